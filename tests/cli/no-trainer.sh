#!/bin/bash
# `make WITH_TRAINER=no`: the tools of a head node, where neither libfabric nor PMIx is installed.
. "$(dirname "$0")/../lib/tap.sh"
[ -z "${TERN_SANITIZE-}" ] || skip_all "plain builds only"
pc=$(pkg-config --variable pc_path pkg-config)
mkdir pc
for m in yaml-0.1 jansson libcrypto sqlite3 zlib; do
    file=$(IFS=:; for d in $pc; do [ ! -e "$d/$m.pc" ] || { echo "$d/$m.pc"; break; }; done)
    [ -n "$file" ] || skip_all "$m.pc is not where pkg-config looks"
    ln -s "$file" pc/
done
tools_make() { run env -u MAKEFLAGS -u SANITIZE PKG_CONFIG_LIBDIR="$WORK/pc" make -C "$ROOT" -s -j"$(nproc)" O="$WORK/o" WITH_TRAINER=no CFLAGS=-O0 WERROR= "$@"; }

if ls /opt/amazon/efa/lib*/pkgconfig /opt/pmix/lib*/pkgconfig >/dev/null 2>&1; then
    skip "the whole of tern wants them: they are in /opt, where they are found anyway"
else
    run env -u MAKEFLAGS PKG_CONFIG_LIBDIR="$WORK/pc" make -C "$ROOT" -s O="$WORK/whole" ready; status 2 "the whole of tern wants them"
    grep -q 'libfabric' out err && grep -q 'PMIx' out err; ok $? "a build without them names what is missing" || cat out err
fi
long || { tap_done; exit; }
tools_make all; status 0 "the tools alone do not" || { sed 's/^/# /' err | head -n 20; tap_done; }
for p in cluster submit run ledger data ckpt health env logs metric task; do echo "o/bin/tern-$p"; done | xargs ls >/dev/null
ok $? "the tools are there"
run ls o/bin/tern-train o/bin/tern-eval o/bin/tern-generate o/bin/tern-bench; [ ! -s out ]; ok $? "the trainer's programs are not"
! for f in o/bin/*; do ldd "$f" 2>/dev/null; done | grep -E 'pmix|fabric|mpi'; ok $? "programs without the trainer want no library of PMIx, libfabric or MPI"
for p in cluster submit run ledger data ckpt health env logs metric task; do
    run "o/bin/tern" $p -h; [ "$rc" = 0 ] && [ -s out ]; ok $? "tern $p -h"
done
run o/bin/tern train run.yaml; status 1; err_has 'built without it (make WITH_TRAINER=no)'; one_line
run o/bin/tern -h; status 0; out_has '(not installed)'
[ "$(grep -c 'not installed' out)" = 6 ]; ok $? "tern -h marks the six programs that a build without the trainer lacks"
printf '\050\265\057\375\044\000\001\000\000\231' >x.jsonl.zst
run o/bin/tern data build -t "$ROOT/tests/golden/spm-bpe-800.model" x.jsonl.zst; status 2 "a build without libzstd refuses its files"
err_has 'is compressed by Zstandard, and this tern was built without libzstd'; one_line
run tern -h; ! grep -q 'not installed' out; ok $? "tern -h marks none in a whole build"
tools_make install DESTDIR="$WORK/root" PREFIX=/usr PLUGSTACK_DIR=/etc/slurm/plugstack.conf.d; status 0 "make install without the trainer ends well"
[ -x root/usr/bin/tern-submit ] && [ ! -e root/usr/bin/tern-train ]; ok $? "an install without the trainer has the other tools" || find root
tools_make tests; status 2; err_has 'build without WITH_TRAINER=no'
tap_done
