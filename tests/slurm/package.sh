#!/bin/bash
# The tarball; in the long form the packages made from it: Debian's installed into a copy of this
# machine's system (an overlay that goes again), used, renewed under a running job, and purged.
. "$(dirname "$0")/../lib/tap.sh"
by_make() { run env -u MAKEFLAGS -u SANITIZE make -C "$ROOT" -s O="$WORK/o" "$@"; }
version=$(tern --version | cut -d' ' -f2)
ball=o/dist/tern-$version.tar.gz

by_make dist; status 0 "make dist ends well"; out_has "wrote   $WORK/$ball"
has o/dist/package.py "version(\"$version\", sha256=\"$(sha256sum <$ball | cut -d' ' -f1)\")" "Spack's recipe is of that tarball"
if command -v python3 >/dev/null; then run python3 -m py_compile o/dist/package.py; status 0 "Spack's recipe compiles as Python"; else skip "no python3"; fi
tar -tzf $ball | grep -v '/$' | sed "s,^tern-$version/,," | LC_ALL=C sort >in
if [ -e "$ROOT/.git" ] && git -C "$ROOT" ls-files >/dev/null 2>&1; then
    git -C "$ROOT" ls-files | LC_ALL=C sort | cmp - in; ok $? "what git has, and nothing else"
    cp $ball first; by_make dist; cmp first $ball; ok $? "make dist gives the same bytes twice"
fi
tar -xzf $ball
run env -u MAKEFLAGS -u SANITIZE make -C "tern-$version" -s O="$WORK/o2" dist; status 0 "make dist in a tarball's tree"
tar -tzf o2/dist/tern-"$version".tar.gz | grep -v '/$' | sed "s,^tern-$version/,," | LC_ALL=C sort | cmp - in; ok $? "makes the same of it"
rm -rf "tern-$version"

long || tap_done

# ---- rpm: no system that has it is here, so it is made and unpacked
if command -v rpmbuild >/dev/null; then
    by_make rpm; status 0 "make rpm ends well" || tail -n 20 o/dist/rpm/log
    release=$(sed -n 's/^%global release_of_slurm //p' o/dist/rpm/tern.spec)
    for p in tern- tern-slurm-plugin-"$release"- tern-doc-; do
        ls o/dist/$p"$version"-1*.rpm >/dev/null; ok $? "make rpm makes packages of $version"
    done
    rpm -qp --provides o/dist/tern-slurm-plugin-*.rpm | grep -q '^tern-slurm-plugin = '; ok $? "the plugin's package says what it is"
    mkdir rpms; run rpm --root "$WORK/rpms" --initdb; run rpm --root "$WORK/rpms" -i --nodeps o/dist/*.rpm; status 0 "rpm installs the packages"
    is "$(rpms/usr/bin/tern --version)" "tern $version" "programs of the rpm run"
    [ -e rpms/usr/lib/slurm/tern_spank-"$release".so ] && [ -e rpms/etc/slurm/plugstack.conf.d/tern.conf ]; ok $? "rpm puts the plugin and its line where Slurm looks"
    run rpm --root "$WORK/rpms" -e --nodeps tern tern-doc tern-slurm-plugin-"$release"; status 0 "rpm removes the packages"
    [ -z "$(find rpms -path '*/var/lib' -prune -o -name '*tern*' -print)" ]; ok $? "rpm -e leaves no file" || find rpms -name '*tern*'
else
    skip "rpmbuild is not installed"
fi

# ---- deb
command -v dh >/dev/null && command -v dpkg-buildpackage >/dev/null || { skip "debhelper is not installed"; tap_done; }
by_make deb; status 0 "make deb ends well"; [ $rc = 0 ] || { tail -n 30 o/dist/deb/log; tap_done; }
release=$(ls o/dist/tern-slurm-plugin-*.deb | sed 's/.*plugin-\([0-9.]*\)_.*/\1/')
mkdir debs newer
cp o/dist/*.deb debs/
is "$(ls debs | sed 's/_.*//' | LC_ALL=C sort | paste -sd' ')" "tern tern-doc tern-slurm-plugin-$release" "make deb makes three packages"
dpkg-deb -c debs/tern_*.deb >in; grep -q ' \./usr/share/tern/apparmor$' in; ok $? "the deb holds the AppArmor profile, /usr/share/tern/apparmor"
for p in debs/*.deb; do
    rm -rf open; dpkg-deb -R "$p" open
    sed -i "s/$version/$version+1/" open/DEBIAN/control; dpkg-deb -b open newer/"${p##*/}" >/dev/null
done
if ! { [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null && grep -qw overlay /proc/filesystems; }; then
    skip "root with overlayfs"; tap_done
fi
cat >in_overlay.sh <<'S'
# COMMAND...: with / a copy of this machine's, /tmp/.../WORK the same folder
mount --make-rprivate / && mkdir -p overlay && mount -t tmpfs none overlay && mkdir overlay/u overlay/w overlay/root &&
    mount -t overlay -o lowerdir=/,upperdir=overlay/u,workdir=overlay/w none overlay/root || exit 9
work=$PWD
cd overlay/root && mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev && mkdir -p ".$work" &&
    mount -t tmpfs none run && mount --bind "$work" ".$work" && pivot_root . . && umount -l . && cd "$work" || exit 9
exec "$@"
S
cat >use.sh <<'S'
set -u
say() { echo "# $*"; }
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive HOME=/root TERN_CLUSTER_HOME=$PWD/c
mkdir -p /etc/apparmor.d/abi; : >/etc/apparmor.d/abi/4.0 # as Ubuntu 24.04 has it
dpkg -i debs/*.deb >dpkg.1 2>&1; echo "install $?"
cmp /usr/share/tern/apparmor /etc/apparmor.d/tern-cluster && echo "profile in place"
command -v tern
dpkg -L tern tern-slurm-plugin-$1 tern-doc | sort -u >files
tern cluster up /usr/share/doc/tern/examples/trn1-4/cluster.yaml --name pkg >up 2>&1; echo "up $?"
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nworkload: {command: [sh, -c, "until [ -e go ]; do sleep 0.1; done; tern --version"]}\n' >toy.yaml
job=$(tern cluster exec pkg -- sbatch --parsable --tern=toy.yaml -N2 -o toy.out --wrap 'exec tern run'); echo "job $job"
until tern cluster exec pkg -- squeue -h -t R -o %i | grep -qx "$job"; do sleep 0.2; done
until [ -n "$(ls ledger/runs 2>/dev/null)" ]; do sleep 0.1; done
dpkg -i newer/*.deb >dpkg.2 2>&1; echo "upgrade $?"
dpkg-query -W -f='${Version}\n' tern
touch go
while tern cluster exec pkg -- squeue -h -o %i | grep -qx "$job"; do sleep 0.2; done
echo "state $(tern cluster exec pkg -- scontrol show job $job -o | sed 's/.*JobState=\([A-Z]*\).*/\1/')"
tern ledger list -l ledger -n
tern cluster down pkg; echo "down $?"
dpkg --purge tern-slurm-plugin-$1 tern-doc tern >dpkg.3 2>&1; echo "purge $?"
while read -r f; do [ -d "$f" ] || [ ! -e "$f" ] || echo "left $f"; done <files
ls -d /usr/lib/tern /usr/share/tern /etc/apparmor.d/tern* 2>/dev/null
echo over
S
run timeout 300 unshare -m -p -i --fork --kill-child bash in_overlay.sh bash use.sh "$release"
for word in 'install 0' 'profile in place' /usr/bin/tern 'up 0' 'upgrade 0' "$version+1" 'state COMPLETED' 'down 0' 'purge 0' over; do out_has "$word" "in a copy of this system: $word"; done
grep -E '^(left|/usr/lib|/usr/share|/etc)' out; [ $? = 1 ]; ok $? "nothing of it is left"
grep -c "tern $version" toy.out >/dev/null; ok $? "the job ran on" || cat toy.out dpkg.*
tap_done
