#!/bin/bash
# Which OpenBLAS is used: a build that is named, one that is none, a serial one.  And which unit
# multiplies numbers of bf16.
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
awk -v a="$(loss)" -v b="$want" 'BEGIN {exit !(a != "" && (a - b) ^ 2 < 4e-8)}'; ok $? "a serial BLAS trains to the same loss" || echo "# $(loss) $want"
train TERN_BLAS="$S" OPENBLAS_CORETYPE=Prescott; status 0 "a serial BLAS whose core type makes every product trains, too"
train TERN_BLAS=/nowhere/libopenblas.so; [ "$rc" = 1 ]; ok $? "a TERN_BLAS that is not there is refused"
err_has "/nowhere/libopenblas.so"; err_has "libopenblas0-openmp (Debian, Ubuntu) or openblas-openmp (Fedora, EPEL)"

# ---- names of other distributions, in a folder on LD_LIBRARY_PATH
mkdir o p; cp "$S" o/libopenblaso.so.0; cp "$S" p/libopenblasp.so.0; : >p/libopenblas.so.0 # (hides the system's)
found() { # FOLDER KIND COMMAND-BEFORE...: a run that has such a library there
    rm -rf checkpoints ledger run
    run env TERN_BLAS= LD_LIBRARY_PATH="$PWD/$1" TEST_BLAS_PARALLEL=$2 "${@:3}" tern train run.yaml --set launch.threads=1; status 0 "a run beside $1/libopenblas$1.so.0"
}
found o 2; err_has "OpenBLAS 0.0.0" "libopenblaso.so.0, an OpenMP build, is found by its name"
found o 0; ! grep -q "OpenBLAS 0.0.0" err; ok $? "libopenblaso.so.0, a serial build, is left for a better one"
printf 'for d in /usr/lib/*/openblas-openmp; do [ ! -d "$d" ] || mount -t tmpfs none "$d" || exit; done; exec "$@"\n' >hidden
if ! ls -d /usr/lib/*/openblas-openmp >/dev/null 2>&1; then
    found p 2; err_has "OpenBLAS 0.0.0" "libopenblasp.so.0 is found by its name"
elif [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    found p 2 unshare -m sh hidden; err_has "OpenBLAS 0.0.0" "libopenblasp.so.0 is found by its name"
else
    skip "libopenblasp.so.0 is not looked for: there is openblas-openmp, and only root can hide it"
fi

# ---- the unit for bf16
train TERN_BF16_UNIT=abacus; status 2 "an unknown unit for bf16 is a usage error"
err_has "TERN_BF16_UNIT: 'abacus' is no unit of this CPU: take fp32"
train TERN_BF16_UNIT=fp32; status 0; ! grep -q 'products of bf16' err; ok $? "a run in fp32 says nothing of products of bf16"
sed -i '$a precision: bf16' run.yaml
train TERN_BF16_UNIT=; status 0; tiny_digests >best; cp err log
[ "$(grep -c 'products of bf16' err)" = 1 ]; ok $? "a run in bf16 names the unit for its products, once"
chosen=fp32; ! grep -q 'products of bf16: avx512_bf16$' err || chosen=avx512_bf16
run env TERN_BF16_UNIT= tern train run.yaml --explain; out_has "unit of the products: $chosen (of the machine that says this)" "explain names the unit that a run in bf16 takes"
is "$(sed -n 's/.*\(products of bf16: .*\)/\1/p' out)" "$(sed -n 's/.*\(products of bf16: .*\)/\1/p' log)" "explain gives the log's reason for the unit"
train TERN_BF16_UNIT=avx512_bf16
if [ "$rc" = 0 ]; then
    err_has 'products of bf16: avx512_bf16'; by_unit=$(loss); tiny_digests >unit
    train TERN_BF16_UNIT=fp32; err_has 'products of bf16: fp32'; tiny_digests >floats
    awk -v a="$(loss)" -v b="$by_unit" 'BEGIN {exit !(a != "" && (a - b) ^ 2 < 1e-4)}'; ok $? "by fp32 a run has nearly the same loss" || echo "# $(loss) $by_unit"
    ! cmp -s floats unit; ok $? "by fp32 a run has other bits than by the unit"
    case $chosen in fp32) same=floats ;; *) same=unit ;; esac
    [ -s best ] && cmp -s best $same; ok $? "the unit that tern takes trains the same weights by its name, to the bit"
else
    status 2 "a unit that CPU or compiler lacks is a usage error"
    skip "this CPU or compiler has no AVX512_BF16"
fi

# ---- no OpenBLAS
train TERN_BLAS=libm.so.6; err_has "libm.so.6 has no cblas_sgemm: it is not OpenBLAS"
tap_done
