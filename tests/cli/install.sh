#!/bin/bash
# `make install`: what it finds out about Slurm, what it writes and says, and that it can be undone.
. "$(dirname "$0")/../lib/tap.sh"
whole=${TERN_BUILD:-$ROOT/build}
release=$(sed -n 's/.*(Slurm \([0-9]*\.[0-9]*\)\..*/\1/p' "$whole/flags")
[ -n "$release" ] || skip_all "no Slurm headers"
so=tern_spank-$release.so
# A build of a few programs without what a debugger wants of them, in a place that every user reaches:
# each of two dozen installs copies it and sums it up.
build=$WORK/build
programs='bench cluster ledger run'
if long; then programs=$(cd "$whole/bin" && ls tern-* | sed 's/^tern-//; /\./d'); fi
mkdir -p "$build/bin" "$build/man/man1" "$build/man/man3" "$build/man/man5" "$build/man/man7" && chmod 755 "$WORK"
cp "$whole/bin/tern" "$build/bin" && cp "$whole/man/man1/tern.1" "$build/man/man1"
cp "$whole/man/man5/tern-recipe.5" "$build/man/man5" && cp "$whole/man/man7/tern-launch.7" "$build/man/man7"
cp "$whole"/man/man3/*.3 "$build/man/man3"
for p in $programs; do cp "$whole/bin/tern-$p" "$build/bin" && cp "$whole/man/man1/tern-$p.1" "$build/man/man1"; done
cp -r "$whole/plugins" "$build"
strip "$build"/bin/* || true # (larger where there is no strip)
mkdir -p tree/plugins tree/cmd/tern tree/core/base && cp -r "$ROOT/plugins/spank" "$ROOT/plugins/packaging" "$ROOT/plugins/libtern-ledger" tree/plugins && cp "$ROOT/cmd/tern/completion.bash" tree/cmd/tern && cp "$ROOT/core/base/version.h" tree/core/base
installer=$WORK/tree/plugins/spank/install

# The same as the Makefile, without asking make what is out of date.
inst() { # install|uninstall NAME=VALUE...
    local verb=$1; shift
    run env BUILD="$build" BUILT_FOR="$release.8" PREFIX="$WORK/pre" DESTDIR= SLURM_PREFIX= SLURM_CONF= PLUGSTACK_DIR= \
        WITH_PLUGIN= WITH_BENCH= "$@" "$installer" "$verb"
}
files() { (cd "$1" && find . | sort); }

# A Slurm whose controller answers: under a prefix of its own, with a configuration of its own.
mkdir -p slurm/bin etc
cat >slurm/bin/scontrol <<X
#!/bin/sh
[ "\$*" = 'show config' ] || exit 1
[ ! -e "$WORK/dead" ] || exit 1
cat <<C
Configuration data as of 2026-01-01T00:00:00
AuthInfo                = (null)
PlugStackConfig         = $WORK/etc/plugstack.conf
PluginDir               = /usr/lib/slurm
SLURM_CONF              = $WORK/etc/slurm.conf
SLURM_VERSION           = \$(cat "$WORK/version")
C
X
chmod +x slurm/bin/scontrol
echo "$release.3" >version
touch etc/slurm.conf
slurm=SLURM_PREFIX=$WORK/slurm

# ---- a plugstack.conf that includes a folder
printf '# site\ninclude %s/etc/plugstack.conf.d/*.conf\n' "$WORK" >etc/plugstack.conf
files etc >etc.before; cp etc/plugstack.conf plugstack.before
inst install "$slurm"
status 0 "make install ends well"
out_has "scontrol show config"
[ -x pre/bin/tern ] && [ -x pre/bin/tern-run ] && [ -s pre/share/man/man1/tern-run.1 ]; ok $? "programs and man pages are there"
[ -s pre/share/man/man5/tern-recipe.5 ] && [ -s pre/share/man/man7/tern-launch.7 ]; ok $? "man pages of files and of topics are installed"
[ -s pre/share/man/man3/libtern-ledger.3 ] && [ -s pre/share/man/man3/tern_log_open.3 ]; ok $? "man pages of libtern-ledger's functions are installed"
module=$(ls pre/share/tern/modulefiles/tern/*.lua)
is "${module##*/}" "$(tern --version | cut -d' ' -f2).lua" "a module file for Lmod, named for the version"
lua=$(command -v lua || command -v lua5.4 || command -v lua5.3)
if [ -n "$lua" ]; then # with what Lmod gives it
    "$lua" -e 'function help() end whatis = help; conflict = help
        function pathJoin(a, b) return a .. "/" .. b end
        function prepend_path(name, path) print(name .. "=" .. path) end
        dofile(arg[1])' "$module" >module 2>&1
    is "$(paste -sd' ' module)" "PATH=$WORK/pre/bin MANPATH=$WORK/pre/share/man" "puts programs and pages on the paths"
else skip "lua is not installed"; fi
[ -x pre/lib/slurm/$so ]; ok $? "the plugin's name has Slurm's release"
has etc/plugstack.conf.d/tern.conf "optional $WORK/pre/lib/slurm/$so tern=$WORK/pre/bin/tern" "its line is in the folder that plugstack.conf includes"
cmp -s etc/plugstack.conf plugstack.before; ok $? "plugstack.conf itself is as it was"
for path in $(find pre etc/plugstack.conf.d -type f); do grep -qxF "wrote   $WORK/$path" out || echo "$path"; done >unsaid
[ ! -s unsaid ]; ok $? "every path it wrote is printed" || cat unsaid
[ -z "$(find pre etc -name '*.tern-new')" ]; ok $? "no temporary is left"
run pre/bin/tern help recipe; status 0 "the installed tern works"
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$WORK/pre/share/pkgconfig
    # shellcheck disable=SC2046
    run "${CC:-gcc}" -o log-c "$ROOT/plugins/libtern-ledger/examples/log.c" $(pkg-config --cflags --libs tern-ledger); status 0 "pkg-config builds a program with the installed libtern-ledger"
    LD_LIBRARY_PATH=$WORK/pre/lib run ./log-c logged; status 0 "the program loads it by its soname and logs"
    run pre/bin/tern ledger list -l logged -n -P -o name,state; has out "from-c|done" "the installed tern lists the program's run"
    is "$(pkg-config --modversion tern-ledger)" "$(sed -n 's/^#define TERN_VERSION "\(.*\)"/\1/p' "$ROOT/core/base/version.h")" "tern-ledger.pc has tern's version"
    unset PKG_CONFIG_PATH
else skip "pkg-config is not installed"; fi
if [ -e "$build/plugins/tern_fabric_mpi.so" ]; then
    [ -x pre/lib/tern/tern_fabric_mpi.so ]; ok $? "the plugin for MPI is there"
fi
[ ! -e pre/bin/tern-bench ] && [ ! -e pre/share/man/man1/tern-bench.1 ]; ok $? "tern bench and its page are not installed unless WITH_BENCH=yes"
run pre/bin/tern bench fabric; status 1; err_has 'make install WITH_BENCH=yes'; one_line
for library in "$build"/plugins/no-psm/lib*; do
    [ ! -e "$library" ] || cmp -s "$library" "pre/lib/tern/no-psm/${library##*/}" || echo "$library"
done >missing
[ ! -s missing ]; ok $? "what keeps PSM's libraries out is there, too" || cat missing
complete_words() { # WORD...: what bash would offer for the last one
    run env PATH="$WORK/pre/bin:$PATH" bash -c 'f=$1; shift; . "$f"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tern; printf "%s\n" "${COMPREPLY[@]}"' - \
        pre/share/bash-completion/completions/tern "$@"
}
complete_words tern led; out_has ledger "completion: a program of tern"
complete_words tern help para; out_has parallel "completion: topics of help"
complete_words tern cluster doc; out_has doctor "completion: a verb of tern cluster"
complete_words tern cluster doctor --le; out_has --ledger "completion: options of a verb"
complete_words tern run --se; out_has --set "completion: options of a program"

# ---- again: nothing of it changes but by rename
was=$(stat -c %i pre/lib/slurm/$so); exec 9<pre/lib/slurm/$so
inst install "$slurm"; status 0 "make install a second time"
[ "$(stat -c %i pre/lib/slurm/$so)" != "$was" ] && cmp -s /proc/self/fd/9 "$build/plugins/tern_spank.so"
ok $? "a process that has the old plugin open keeps it whole"
exec 9<&-
[ "$(sort pre/share/tern/installed | uniq -d | wc -l)" = 0 ]; ok $? "nothing is listed twice"

# ---- with tern bench
inst install "$slurm" WITH_BENCH=yes; status 0 "make install WITH_BENCH=yes"
[ -x pre/bin/tern-bench ] && [ -s pre/share/man/man1/tern-bench.1 ]; ok $? "installs tern bench and its page"
if [ -e "$build/plugins/tern_fabric_mpi.so" ]; then
    mv pre/lib/tern/tern_fabric_mpi.so so; echo none >pre/lib/tern/tern_fabric_mpi.so
    PMIX_RANK=0 TERN_FABRIC=mpi run pre/bin/tern bench fabric -e 8
    err_has "$WORK/pre/bin/../lib/tern/tern_fabric_mpi.so: " "the installed tern looks for the MPI plugin in PREFIX/lib/tern"
    mv so pre/lib/tern/tern_fabric_mpi.so
fi
inst install "$slurm"; status 0
[ ! -e pre/bin/tern-bench ] && [ ! -e pre/share/man/man1/tern-bench.1 ]; ok $? "an install without WITH_BENCH removes tern bench of the one before"

# ---- uninstall
mkdir -p pre/share/other; touch pre/share/other/file pre/bin/foreign
inst uninstall "$slurm"; status 0 "make uninstall ends well"
[ "$(find pre -type f | sort | tr '\n' ' ')" = 'pre/bin/foreign pre/share/other/file ' ]; ok $? "uninstall leaves only files of others" || find pre
files etc | cmp -s - etc.before; ok $? "Slurm's configuration is as before" || files etc
rm -r pre
inst install "$slurm"; echo '# mine' >>etc/plugstack.conf.d/tern.conf
inst install "$slurm"; status 0
has etc/plugstack.conf.d/tern.conf '# mine' "a line that the admin changed stays"
inst uninstall; status 0
out_has "kept    $WORK/etc/plugstack.conf.d/tern.conf (changed since)"
[ ! -e pre ]; ok $? "all else is gone, its folders too"
inst uninstall; status 0 "uninstall of nothing"; out_has 'nothing is installed'
rm -r etc/plugstack.conf.d

# ---- stopped in the middle: what was written can be undone
# The real mv, before whose n-th call the installing shell is killed.
mkdir killing; printf '#!/bin/sh\nn=$(cat %s/count); echo $((n - 1)) >%s/count; [ "$n" -gt 0 ] || kill -9 $PPID; exec /bin/mv "$@"\n' "$WORK" "$WORK" >killing/mv; chmod +x killing/mv
for n in $(long && echo 0 1 2 20) 9; do
    echo $n >count
    inst install "$slurm" PATH="$WORK/killing:$PATH"
    [ $rc != 0 ]; ok $? "killed at rename $n"
    inst uninstall
    [ -z "$(find pre -type f ! -name '*.new' 2>/dev/null)" ] && files etc | cmp -s - etc.before; ok $? "uninstall after a kill at rename $n undoes all" || find pre etc
    rm -rf pre
done

# ---- other sites
echo '# nothing included' >etc/plugstack.conf
inst install "$slurm"; status 0 "a plugstack.conf that includes nothing"
out_has "add this line to $WORK/etc/plugstack.conf"; out_has "  optional $WORK/pre/lib/slurm/$so tern="
[ "$(files etc)" = "$(cat etc.before)" ]; ok $? "nothing is written there"
inst uninstall
echo "optional $WORK/elsewhere/tern_spank.so" >etc/plugstack.conf
inst install "$slurm"; out_has "$WORK/etc/plugstack.conf loads another build" "an install warns of a plugstack line for another build"
echo "optional $WORK/pre/lib/slurm/$so tern=x" >etc/plugstack.conf
inst install "$slurm"; out_has "$WORK/etc/plugstack.conf loads the plugin already"
inst uninstall
printf 'include plugstack.conf.d/*\n' >etc/plugstack.conf
inst install "$slurm"; has etc/plugstack.conf.d/tern.conf optional "an include relative to plugstack.conf"
inst uninstall
if long; then
    printf 'include %s/etc/*/x.conf\ninclude %s/etc/other.conf\n' "$WORK" "$WORK" >etc/plugstack.conf
    inst install "$slurm"; out_has 'add this line'; [ "$(files etc)" = "$(cat etc.before)" ]; ok $? "includes that would not take tern.conf"
    inst uninstall
fi
touch dead
printf 'PlugStackConfig=%s/etc/stack.conf # x\n' "$WORK" >etc/slurm.conf
inst install "$slurm" SLURM_CONF="$WORK/etc/slurm.conf"; status 0 "no controller answers: the file is read"
out_has "add this line to $WORK/etc/stack.conf"
rm dead; inst uninstall

# ---- refused
echo 19.05.1 >version
inst install "$slurm"; status 1 "a Slurm of another release"
err_has "here is 19.05.1"; err_has 'SLURM_PREFIX=DIR'; [ ! -e pre ]; ok $? "nothing is written"
inst install "$slurm" WITH_PLUGIN=no; status 0 "make install WITH_PLUGIN=no ends well"
[ ! -e pre/lib/slurm ] && [ -x pre/bin/tern ]; ok $? "WITH_PLUGIN=no installs all but the plugin"
inst uninstall
inst install SLURM_PREFIX="$WORK/none"; status 1; err_has 'no bin/scontrol under'
inst install PREFIX=relative; status 1; err_has 'no absolute path'
inst install SLURM_CONF="$WORK/none"; status 1; err_has 'cannot read'

# ---- a package: nothing of this machine's Slurm, nothing outside DESTDIR
echo 19.05.1 >version
inst install DESTDIR="$WORK/stage" PREFIX=/usr PLUGSTACK_DIR=/etc/slurm/plugstack.conf.d; status 0 "make install with DESTDIR ends well"
has stage/etc/slurm/plugstack.conf.d/tern.conf "optional /usr/lib/slurm/$so tern=/usr/bin/tern" "paths in it are those of the machine it is for"
! grep -q "$WORK" stage/usr/share/tern/installed; ok $? "the list of a package has paths of the machine that it is for"
inst uninstall DESTDIR="$WORK/stage" PREFIX=/usr
[ -z "$(find stage -type f)" ]; ok $? "uninstall of a package removes all of its files" || find stage
inst install DESTDIR="$WORK/stage" "$slurm"; status 0; err_has 'warning'
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    mkdir home; chown 4711 home; chmod 755 "$WORK"
    echo "$release.1" >version
    printf 'include %s/etc/plugstack.conf.d/*.conf\n' "$WORK" >etc/plugstack.conf
    run setpriv --reuid 4711 --clear-groups env BUILD="$build" BUILT_FOR="$release.8" PREFIX="$WORK/home/tern" DESTDIR= \
        SLURM_PREFIX="$WORK/slurm" SLURM_CONF= PLUGSTACK_DIR= WITH_PLUGIN= "$installer" install
    status 0 "an ordinary user, into HOME"; out_has 'not yours to write'
    run setpriv --reuid 4711 --clear-groups env BUILD="$build" BUILT_FOR="$release.8" PREFIX="$WORK/pre" DESTDIR= \
        SLURM_PREFIX="$WORK/slurm" SLURM_CONF= PLUGSTACK_DIR= WITH_PLUGIN= "$installer" install
    status 1; err_has 'become root'; [ ! -e pre ]; ok $? "nothing is written where one may not"
else
    skip "not root"
fi

# ---- odd paths, planted links, a list that somebody made up
odds=('d$x*[q]')
if long; then odds+=('h#sh' 'a b' "it's" 'ba\ck'); fi
for odd in "${odds[@]}"; do
    inst install PREFIX="$WORK/odd/$odd" DESTDIR= SLURM_PREFIX="$WORK/none" WITH_PLUGIN=no; status 0 "make install into $odd ends well"
    run "odd/$odd/bin/tern" help recipe; status 0 "tern works below PREFIX=$odd"
    inst uninstall PREFIX="$WORK/odd/$odd"; [ ! -e "odd/$odd" ]; ok $? "uninstall removes all below PREFIX=$odd"
done
echo "$release.1" >version
inst install PREFIX="$WORK/odd/h#sh" "$slurm"; out_has 'needs another PREFIX' "a path that plugstack.conf cannot hold"
[ ! -e etc/plugstack.conf.d/tern.conf ]; ok $? "a path that plugstack.conf cannot hold gets no line"
inst uninstall PREFIX="$WORK/odd/h#sh"
echo precious >victim; mkdir -p pre/bin; ln -s "$WORK/victim" pre/bin/tern.tern-new
inst install WITH_PLUGIN=no; status 0
[ "$(cat victim)" = precious ] && [ ! -L pre/bin/tern ]; ok $? "a link in a temporary's place is not written through"
for path in "$WORK/victim" "$WORK/pre/../victim" "$WORK/pre/bin/../../victim"; do
    printf '%s f %s\n' "$(sha256sum <victim | cut -d ' ' -f 1)" "$path" >>pre/share/tern/installed
done
inst uninstall; status 0; out_has "kept    $WORK/victim (not below $WORK/pre)"
[ -e victim ]; ok $? "a list does not make uninstall remove what is not below PREFIX"

# ---- and by make itself
by_make() { run make -C "$ROOT" -s O="$whole" ${TERN_SANITIZE:+SANITIZE="$TERN_SANITIZE"} "$@" DESTDIR= SLURM_PREFIX=; }
by_make uninstall PREFIX="$WORK/it's m"; status 0 "a quote in make's PREFIX"; out_has "nothing is installed at $WORK/it's m"
by_make -n install PREFIX="$WORK/m"; out_has 'plugins/spank/install install' "make install calls it"
tap_done
