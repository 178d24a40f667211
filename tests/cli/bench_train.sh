#!/bin/bash
# tern bench train: its columns, its ranks, and the talk with PyTorch's script.
. "$(dirname "$0")/../lib/tap.sh"
number() { jq -e "$1" out >/dev/null; ok $? "$2" || cat out; }
for v in $(compgen -e | grep -E '^(SLURM|PMI|TERN_R)'); do unset "$v"; done
export OMP_NUM_THREADS=1

run tern bench train --size tiny --steps 3 --json; status 0 "a tiny model"
number '.steps == 3 and .ranks == 1 and .tokens_per_step == 128 and .parameters > 4000000' "what was measured"
number '.tokens_per_second > 0 and .share > 0 and .limit_gflops > .gflops and .peak_bytes > 60e6' "how fast it was"
number '.seconds | .step >= .forward and .forward > 0 and .backward > 0 and .optimizer > 0 and .comm >= 0 and .data >= 0' "its phases"
number '(.gflops * 1e9 / .tokens_per_second / .flops_per_token - 1) | fabs < 1e-9' "FLOPs are tokens' FLOPs"
run tern bench train --size tiny --steps 2 --ranks 2 --micro-batches 2; status 0 "two ranks"
out_has '512 tokens a step'; out_has '2 ranks'; out_has 'share '
run tern bench train --size tiny --steps 1 --recompute full; status 0 "everything made again"

# A script in PyTorch's place: 64 tokens... a second and a peak of 2^40 bytes.
cat >fake <<'S'
echo "{\"version\": \"of straw $2\", \"peak_bytes\": 1}"
while read -r word; do
    [ "$word" = step ] || exit 1
    echo '{"seconds": 2.0, "loss": 1, "peak_bytes": 1099511627776}'
done
S
run tern bench train --size tiny --steps 2 --json --peer torch --peer-python bash --peer-script fake; status 0 "a peer"
number '[.peers[].name] == ["PyTorch of straw fused", "PyTorch of straw eager"]' "tuned and as shipped"
number '.peers[0] | .tokens_per_second == 64 and .peak_bytes == 1099511627776' "its speed and memory"
number '(.peers[1].ratio * 64 / .tokens_per_second - 1) | fabs < 1e-9' "the ratio is ours by its"
number '.peers[0].memory_ratio < 0.01' "and of memory"
run tern bench train --size tiny --steps 2 --peer torch-tuned --peer-python bash --peer-script fake; status 0
out_has 'of straw fused, tuned'; ! grep -q eager out; ok $? "tuned alone"

run tern bench train --size XL; status 2; err_has "'XL' is not S, M, L or tiny"
run tern bench train --recompute some; status 2; err_has 'none, selective or full'
run tern bench train --peer jax; status 2; err_has "'jax' is not torch"
run tern bench train --peer torch --ranks 2; status 2; err_has 'one rank'
run tern bench train --size tiny --peer torch --peer-script none.py; status 2; err_has 'none.py: No such file'; err_has 'train_torch.py of tern'
run tern bench train --size tiny --peer torch --peer-python /no/python --peer-script fake; status 1; err_has '/no/python: No such file'; err_has 'python3-torch'
tap_done
