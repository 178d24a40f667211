#!/bin/bash
# What an update does: decay of what is to be decayed, and going on from a finished checkpoint.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make

values() { # CHECKPOINT: all its parameters, one a line, in order
    rm -rf hf; tern ckpt export "$1" -o hf >/dev/null 2>&1
    head=$(od -An -t u8 -N 8 hf/model.safetensors)
    od -An -v -t f4 -w4 -j $((head + 8)) hf/model.safetensors
}
meta() { tern ckpt show checkpoints/latest --json | tr -d ' \n' | grep -o "\"$1\":[0-9]*" | head -n 1; }
lr() { tern ledger sql --ledger "$1" -r latest -n -P "select value from step where name = 'lr' and step = $2"; }

# Clipped to nothing, a gradient leaves decay alone: 0.1 x 0.1 of every matrix, none of a norm.
# (Published recipes say 0.1 and get 0.01, from their parameter groups.)
one="--set steps=1 --set optimizer.lr=0.1 --set schedule={kind:\ constant} --set optimizer.clip=1e-60"
eval tern train run.yaml $one --set optimizer.weight_decay=0 2>/dev/null
values checkpoints/latest >before
rm -rf checkpoints
eval run tern train run.yaml $one --set optimizer.weight_decay=0.1
status 0
values checkpoints/latest >after
paste before after | awk '$1 == 1 {norms++; if ($2 != 1) bad++; next}
    $1 != 0 {n++; r = $2 / $1; if (r < 0.99 - 1e-6 || r > 0.99 + 1e-6) bad++}
    END {print n, norms, bad + 0; exit !(n > 10000 && norms == 160 && bad == 0)}' >counts
ok $? "a weight decay of 0.1 is 0.1, of matrices, and norms have none" || cat counts
rm -rf checkpoints

# A finished run; another from its checkpoint warms up again from where it ended.
run tern run run.yaml --ranks 1 --set ledger.dir=ledger1
status 0
mv checkpoints first
[ "$(lr ledger1 1) $(lr ledger1 8)" = "0.0005 0.0001" ]; ok $? "the first ends at min_lr" || lr ledger1 8
sed 's|^model: .*|model: {from: first/step-00000008, optimizer: keep}|; s/^schedule: .*/schedule: {kind: infinite, warmup: 3, start_lr: 1.0e-4, cooldown: 2, constant_lr: 5.0e-4}/' run.yaml >more.yaml
run tern run more.yaml --ranks 1 --set ledger.dir=ledger2
status 0
for s in 1 2 3 4 5 6 8; do lr ledger2 $s; done >rates
printf '%s\n' 0.0004 0.0007 0.001 0.00075 0.0005 0.0005 0.0005 | paste rates - |
    awk '{d = $1 - $2; if (d < 0) d = -d; if (d > 1e-12) bad = 1} END {exit bad || NR != 7}'
ok $? "a schedule's recorded rates are start_lr's, the peak's, the cooldown's, the constant's" || cat rates
[ "$(meta optimizer_step)" = '"optimizer_step":16' ]; ok $? "keep: its moments have seen 16 updates" || meta optimizer_step
tiny_digests >kept
rm -rf checkpoints
run tern train more.yaml --set model.optimizer=reset
[ "$(meta optimizer_step)" = '"optimizer_step":8' ]; ok $? "reset: they have seen 8" || meta optimizer_step
! tiny_digests | cmp -s - kept; ok $? "which is another run"
rm -rf checkpoints
run tern run --check more.yaml --set model.from=hf
status 2; err_has "hf is no checkpoint of tern's and has no optimizer state. Say 'reset'."
tap_done
