#!/bin/bash
# Which OpenBLAS is used: a build that is named, one that is none, a serial one.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
unset OPENBLAS_CORETYPE
tiny_make || exit 1
loss() { sed -n 's/.*step 8\/8: loss \([0-9.]*\).*/\1/p' err; }
train() { rm -rf checkpoints ledger run; run env "$@" tern train run.yaml --set launch.threads=2; }
train TERN_BLAS=; status 0 "tern trains with the BLAS that it finds itself"; want=$(loss); [ -n "$want" ]; ok $? "a run with the BLAS that tern finds has a loss"
S=$TOOLS/../serial_blas.so
train TERN_BLAS="$S"; status 0 "a serial build, by name"
err_has "a serial build: one thread at a time"
awk -v a="$(loss)" -v b="$want" 'BEGIN {exit !(a != "" && (a - b) ^ 2 < 4e-8)}'; ok $? "trains the same" || echo "# $(loss) $want"
train TERN_BLAS="$S" OPENBLAS_CORETYPE=Prescott; status 0 "a serial BLAS whose core type makes every product trains, too"
train TERN_BLAS=/nowhere/libopenblas.so; [ "$rc" = 1 ]; ok $? "one that is not there"
err_has "/nowhere/libopenblas.so"; err_has "libopenblas0-openmp (Debian, Ubuntu) or openblas-openmp (Fedora, EPEL)"
train TERN_BLAS=libm.so.6; err_has "libm.so.6 has no cblas_sgemm: it is not OpenBLAS"
tap_done
