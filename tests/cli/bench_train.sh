#!/bin/bash
# tern bench train: its columns, its ranks, and the talk with PyTorch's script.
. "$(dirname "$0")/../lib/tap.sh"
number() { jq -e "$1" out >/dev/null; ok $? "$2" || cat out; }
for v in $(compgen -e | grep -E '^(SLURM|PMI|TERN_R)'); do unset "$v"; done
export OMP_NUM_THREADS=1

run tern bench train --size tiny --steps 1 --json; status 0 "a tiny model"
bound "$(jq '.gflops / .limit_gflops' out)" 2 "a step's FLOPs over the limit"
number '.steps == 1 and .ranks == 1 and .tokens_per_step == 128 and .parameters > 4000000' "what was measured"
number '.tokens_per_second > 0 and .share > 0 and .limit_gflops > 0 and .peak_bytes > 0' "a step has a rate, a limit, a share and a peak of memory"
bound "$(jq '60e6 / .peak_bytes' out)" 1 "weights, gradients and moments over a step's peak of memory"
number '.seconds | .step >= .forward and .forward > 0 and .backward > 0 and .optimizer > 0 and .comm >= 0 and .data >= 0' "a step's seconds are there by phase"
number '(.gflops * 1e9 / .tokens_per_second / .flops_per_token - 1) | fabs < 1e-9' "FLOPs are tokens' FLOPs"
# A layer has q [64,64], k and v [32,64] each, o [64,64] and three of [192,64]; the head is [32000,64]; attention's products
# are 2 x 2 x 64 x 32 a layer.  Rank 4 beside q and v: [4,64] and [64,4], [4,64] and [32,4].
layers=$((2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 192 * 64))) scores=$((2 * 2 * 2 * 64 * 32)) adapters=$((2 * (4 * 128 + 4 * 96)))
number ".trained == .parameters and .flops_per_token == 3 * (2 * ($layers + 32000 * 64) + $scores) and .precision == \"fp32\"" "all weights, in fp32"
full=$(jq .peak_bytes out)
if long; then
    run tern bench train --size tiny --steps 2 --ranks 2 --micro-batches 2; status 0 "bench train runs on two ranks"
    out_has '512 tokens a step'; out_has '2 ranks'; out_has 'share '
    run tern bench train --size tiny --steps 1 --recompute full; status 0 "everything made again"
fi

run tern bench train --size tiny --steps 1 --json --lora 4; status 0 "bench train runs with adapters"
number ".trained == $adapters and .parameters > 4000000 and .lora == 4 and .dora == false" "adapters beside q and v have as many parameters as their shapes say"
number ".flops_per_token == 4 * ($layers + 32000 * 64) + 3 * $scores - 2 * 128 * 64 + 6 * $adapters" "a frozen weight has no gradient, nor has what is before the first layer"
bound "$(jq .peak_bytes out)" $((full - 40000000)) "peak of memory where frozen weights have no gradients and moments"
if long; then
    run tern bench train --size tiny --steps 3 --json --lora 4 --peer full; status 0 "adapters and all weights in turns"
    number ".peers[0] | .name == \"tern\" and .setting == \"all weights\" and .ratio > 0 and .peak_bytes == null and .share > 0" "the full step beside it"
    number ".trained == $adapters and .steps == 3" "the full step's parameters are not counted"
    bound "$(jq .peak_bytes out)" $((full - 40000000)) "peak of memory beside a full step that is not counted"
    number '.peers[0].gflops * 1e9 / .peers[0].tokens_per_second - .flops_per_token > 1e6' "nor are its FLOPs those of adapters"
    run tern bench train --size tiny --steps 2 --lora 4 --peer full --ranks 2; status 0 "adapters and all weights in turns, on two ranks"
    out_has "tern, all weights: tokens/s"; out_has "adapters' is"
    run tern bench train --size tiny --steps 2 --lora 4 --dora --precision bf16; status 0 "adapters with magnitudes, of a model in bf16, are measured"
    out_has 'tiny, bf16'; out_has "DoRA of rank 4 beside q_proj and v_proj: $((adapters + 2 * 96)) parameters"
    run tern bench train --size tiny --steps 2 --json --precision bf16; status 0 "bf16 with a master copy"
    number '.trained == .parameters and .precision == "bf16" and .share > 0' "of all weights"
    number '[.unit, .limit_of] == ["avx512_bf16", "registers"] or [.unit, .limit_of] == ["fp32", "OpenBLAS"]' "the limit is of the unit that makes the products"
fi

# A script in PyTorch's place: 64 tokens... a second and a peak of 2^40 bytes.
cat >fake <<'S'
echo "{\"version\": \"of straw $2\", \"peak_bytes\": 1}"
while read -r word; do
    [ "$word" = step ] || exit 1
    echo '{"seconds": 2.0, "loss": 1, "peak_bytes": 1099511627776}'
done
S
run tern bench train --size tiny --steps 1 --json --peer torch --peer-python bash --peer-script fake; status 0 "bench train runs a peer's script"
number '[.peers[].name] == ["PyTorch of straw fused", "PyTorch of straw eager"]' "tuned and as shipped"
number '.peers[0] | .tokens_per_second == 64 and .peak_bytes == 1099511627776' "the peer's speed and memory are its script's"
number '.steps == 2 and ([.peers[] | (.ratio * 64 / .beside_tokens_per_second - 1) | fabs < 1e-9] | all)' "each ratio is of our steps beside it by its"
number '[.peers[].beside_tokens_per_second > 0] | all' "each peer has steps of ours beside it"
number '[.peers[].share > 0] | all' "each peer has a share of the limit"
number '(.peers[0].memory_ratio * .peers[0].peak_bytes / .peak_bytes - 1) | fabs < 1e-9' "a peer has a ratio of memory"
{ echo 'echo "$2 $3 $4" >>modes'; sed 's/peak_bytes\\": 1}/peak_bytes\\": 1, \\"compiles\\": true}/' fake; } >newer
run tern bench train --size tiny --steps 1 --peer torch --peer-python bash --peer-script newer; status 0 "a PyTorch that compiles"
is "$(paste -sd, modes)" "fused plain fp32,fused compile fp32,eager plain fp32" "in fp32: tuned, compiled, as shipped"
grep -q '^beside the best of these ours is [0-9.]* x as fast$' out; ok $? "bench train compares with the best peer" || cat out
rm modes; run tern bench train --size tiny --steps 1 --precision bf16 --peer torch --peer-python bash --peer-script newer; status 0 "bf16 beside PyTorch"
is "$(paste -sd, modes)" "fused plain autocast,fused compile autocast,fused compile fp32,fused plain fp32" "in bf16: autocast and not, each compiled and not"
out_has 'fused attention; compiled; bf16 autocast: tokens/s'
! grep -q 'an old one' err; ok $? "a PyTorch of unknown age is not warned of" || cat err
for version in 1.13.1 2.6.0+cpu; do
    sed "s/of straw \$2/$version/" fake >old
    run tern bench train --size tiny --steps 1 --peer torch --peer-python bash --peer-script old; status 0 "bench train runs beside PyTorch $version"
    err_has "warning: --peer torch: bash has PyTorch $version, an old one: the peer to compare with is the newest from PyPI (2.15 or later); give its Python by --peer-python" "bench train warns of PyTorch $version"
    is "$(grep -c 'an old one' err)" 1 "bench train warns once of PyTorch $version"
done
for version in 2.15.0 3.0.1+cu130; do
    sed "s/of straw \$2/$version/" fake >young
    run tern bench train --size tiny --steps 1 --peer torch-tuned --peer-python bash --peer-script young; status 0 "bench train runs beside PyTorch $version"
    ! grep -q 'an old one' err; ok $? "bench train does not warn of PyTorch $version" || cat err
done
mkdir venv; printf '#!/bin/sh\nexec bash "$@"\n' >venv/python3; chmod +x venv/python3
run env PATH="$PWD/venv:$PATH" tern bench train --size tiny --steps 1 --peer torch-tuned --peer-script fake; status 0 "the Python of an active virtual environment is taken by default"
cat >alone <<'S'
mkdir one || exit 1
echo '{"version": "alone", "peak_bytes": 1}'
while read -r word; do echo '{"seconds": 2.0, "loss": 1, "peak_bytes": 1}'; done
rmdir one
S
if long; then run tern bench train --size tiny --steps 1 --peer torch --peer-python bash --peer-script alone; status 0 "one PyTorch at a time"; fi
echo 'exec >&-; cat >/dev/null' >mute
run timeout 600 tern bench train --size tiny --peer torch --peer-python bash --peer-script mute; status 1 "one that says nothing more"
err_has 'PyTorch ended'
echo 'kill -9 $$' >killed
run tern bench train --size tiny --peer torch --peer-python bash --peer-script killed; status 1
err_has 'PyTorch was ended by signal 9 (Killed): by a user, or by the kernel for lack of memory'
if long; then
    run tern bench train --size tiny --steps 2 --peer torch-tuned --peer-python bash --peer-script fake; status 0
    out_has 'of straw fused, tuned'; ! grep -q eager out; ok $? "torch-tuned runs the tuned way alone"
fi

run tern bench train --size XL; status 2; err_has "'XL' is not S, M, L or tiny"
run tern bench train --recompute some; status 2; err_has 'none, selective or full'
run tern bench train --peer jax; status 2; err_has "'jax' is not torch"
run tern bench train --peer full; status 2; err_has 'with --lora'
run tern bench train --peer torch --ranks 2; status 2; err_has 'one rank'
run tern bench train --peer torch --lora 8; status 2; err_has 'all weights'
run tern bench train --precision fp16; status 2; err_has "'fp16' is not fp32 or bf16"
run tern bench train --lora 2000; status 2; err_has 'from 1 to 1024'
run tern bench train --dora; status 2; err_has 'rank with --lora'
run env TERN_BLAS=/nowhere tern bench train --size tiny --peer torch --peer-script none.py; status 2 "a script that is not there is refused before anything is computed"; err_has 'none.py: No such file'; err_has 'train_torch.py of tern'
run tern bench train --size tiny --peer torch --peer-python /no/python --peer-script fake; status 1; err_has '/no/python: No such file'; err_has 'python3-torch'
tap_done
