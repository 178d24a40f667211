#!/bin/bash
# tern for arm64: compiled across against Debian 12's libraries of that kind, its unit tests and a
# small training run by qemu-user.  The libraries lie in $TERN_DEBIAN/arm64 (default
# /var/tmp/tern-debian), made by debootstrap's first stage, about 700 MB, and kept.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
machine=aarch64-linux-gnu
[ -z "${TERN_SANITIZE-}" ] || skip_all "plain builds only"
for p in $machine-gcc qemu-aarch64-static debootstrap dpkg-deb; do
    command -v $p >/dev/null || skip_all "$p is not installed (gcc-$machine, qemu-user-static, debootstrap)"
done
[ "$(id -u)" = 0 ] || skip_all "debootstrap makes its folder as root only"

root=${TERN_DEBIAN:-/var/tmp/tern-debian}/arm64
if [ ! -e "$root/whole" ]; then
    rm -rf --one-file-system "$root" && mkdir -p "$root"
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    [ -z "${proxy-}" ] || export http_proxy="$proxy"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
    debootstrap --arch=arm64 --foreign --variant=minbase --include=gcc,libslurm-dev,libpmix-dev,libfabric-dev,libjansson-dev,libyaml-dev,libsqlite3-dev,libssl-dev,zlib1g-dev,libzstd-dev,liblzma-dev,libbz2-dev,libopenblas0-openmp \
        bookworm "$root" ${mirror:+"$mirror"} >debootstrap.log 2>&1 || skip_all "debootstrap: $(tail -n 1 debootstrap.log)"
    # Its second stage would run each package's scripts; the files are enough.
    for f in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$f" "$root" || exit 1; done
    find "$root" -type l -lname '/*' -printf '%p %l\n' | while read -r link to; do ln -sfn "$root$to" "$link"; done
    rm -f "$root"/var/cache/apt/archives/*.deb
    touch "$root/whole"
fi
rm -f "$root/dev/ptmx" # one that has no devpts beside it hides the machine's own

lib=$root/usr/lib/$machine
export PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
make_arm64() {
    run env -u MAKEFLAGS make -C "$ROOT" -j"$(nproc)" -s O="$WORK/o" CC="$machine-gcc --sysroot=$root" \
        SLURM_PREFIX="$root/usr" MPICC=none BLAS_DIR= WERROR=1 "$@"
}
make_arm64 all; status 0 "tern is built for arm64, without a warning" || { grep -E 'error|warning' err | head -n 20; tap_done; }
# Programs cannot be asked for their man pages here: the tests are built one by one.
mapfile -t units < <(cd "$ROOT" && ls tests/unit/*.c | sed 's,.*/,,; s,\.c$,,')
make_arm64 "${units[@]/#/$WORK/o/tests/unit/}" "$WORK/o/tests/provider/libternsrd-fi.so"; status 0 "the unit tests build for arm64" || tap_done

# What the emulator does not give a program: its own start time as others see it, huge pages, an end
# in order when memory is refused, a list of the machine's processes.
not_here='a second live owner is refused the lease|of eight processes that take the lease at once, one gets it|made of huge pages'
not_here+='|a file of this process: while the trainer runs|beside files of other runs: |one is open in the task|a daemon of the task has open|daemon has open: at its end|with the pid of that daemon'
arm64() { qemu-aarch64-static -L "$root" "$@"; }
for unit in "${units[@]}"; do
    (cd "$ROOT" && TERN_BUILD=$WORK/o timeout 900 qemu-aarch64-static -L "$root" "$WORK/o/tests/unit/$unit") >"$unit.out" 2>&1 </dev/null
    counted=$(grep -c '^ok' "$unit.out") last=$(grep -E '^1\.\.' "$unit.out")
    grep '^not ok' "$unit.out" | grep -vE "$not_here" >bad
    [ -n "$last" ] && [ ! -s bad ]; ok $? "unit/$unit passes on arm64: $counted" || tail -n 5 bad "$unit.out" | sed 's/^/# /'
done

tiny_make 2>/dev/null
export TERN_BLAS=$lib/openblas-openmp/libopenblas.so.0
run arm64 o/bin/tern-train run.yaml; status 0 "tern train trains on arm64"
err_has 'armv8 kernels'
unset TERN_BLAS
perplexity() { sed -n 's/.*step 8: held: perplexity \([0-9.]*\) .*/\1/p' "$1"; }
perplexity err >arm
run tern ckpt verify checkpoints/latest; status 0 "a checkpoint of arm64 verifies on this machine"
rm -rf checkpoints
run tern train run.yaml; status 0
paste -d' ' arm <(perplexity err) | awk 'NF == 2 && $1 > 1 && $1 / $2 < 1.0001 && $2 / $1 < 1.0001 {good = 1} END {exit !good}'
ok $? "the model trained on arm64 is as good as one trained here, to four digits" || paste arm <(perplexity err)
tap_done
