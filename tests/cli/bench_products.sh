#!/bin/bash
# tern bench products: its rows, and its columns with a unit for bf16 and without.
. "$(dirname "$0")/../lib/tap.sh"
number() { jq -e "$1" out >/dev/null; ok $? "$2" || cat out; }
export OMP_NUM_THREADS=1
bench() { run tern bench products --size tiny --tokens 32 --times 2 "$@"; }

! TERN_BF16_UNIT=avx512_bf16 bench --json || [ "$rc" != 0 ] || export TERN_BF16_UNIT=avx512_bf16 # also where tern does not take it by itself
bench --json; status 0 "a tiny model's products"
number '[.products[] | [.weight, .product]] | unique | length == 15' "five weights have three products each"
number '[.products[] | select(.weight == "gate_up") | .shape] | unique == [[32, 64, 384]]' "gate and up are one weight of twice the width"
number '[.products[], .model | .fp32 > 0 and .openblas > 0] | all' "products in fp32 and by OpenBLAS have rates"
if [ "$(jq -r .unit out)" = avx512_bf16 ]; then
    number '.limit_gflops > 0 and ([.products[], .model | .bf16 > 0 and .share > 0 and .ratio > 0] | all)' "products of bf16 have rates, shares of the limit and ratios"
    number '. as $b | [.products[], .model | (.bf16 / $b.limit_gflops / .share - 1 | fabs) < 1e-9] | all' "a share is a rate by the limit"
    bound "$(jq '.model.share' out)" 1 "the products' share of the limit"
else
    skip "this CPU or compiler has no AVX512_BF16"
fi
export TERN_BF16_UNIT=fp32
bench --json; status 0 "bench products runs without a unit for bf16"
number '.unit == "fp32" and .limit_gflops == null and ([.products[], .model | .bf16 == null and .share == null and .fp32 > 0] | all)' "without a unit there is no limit, and bf16 has no rate"
bench; status 0 "bench products prints text without a unit for bf16"
out_has "unit for bf16: fp32"; out_has "a step's products"
unset TERN_BF16_UNIT
bench --size XL; status 2 "an unknown model"; err_has "'XL' is not S, M, L or tiny"
bench --times 0; status 2 "--times 0 is refused"; err_has "from 1 to 10000 --times"
tap_done
