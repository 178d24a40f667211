#!/bin/bash
# checkpoint.local: the checkpoint of the best evaluation reaches checkpoint.dir, and the nodes' copy helps where the
# only checkpoint there is damaged.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/saves.sh"
tiny_make 2>/dev/null || skip_all "cannot make the tiny setting"
export RANKS=2
steps_in() { ls "$1" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | sort -n | tr '\n' ' '; }
harm() { printf x | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") - 100)) conv=notrunc 2>/dev/null; }
local=(--set "checkpoint.local=$WORK/local")

# ---- the only checkpoint in checkpoint.dir is damaged
both() { run tern run run.yaml --ranks 2 --set steps=6 --set checkpoint.every=2 "${local[@]}" "$@"; }
run tern run run.yaml --ranks 2 --set steps=6 --set checkpoint.every=2 --set ledger.dir=whole; status 0; tiny_digests >weights; rm -rf checkpoints
both --set launch.stop_at=2; status 76 "a run is stopped after its first checkpoint"
cp -a checkpoints saved; cp -a local saved-local; cp -a ledger saved-ledger
back() { rm -rf checkpoints local ledger; cp -a saved checkpoints; cp -a saved-local local; cp -a saved-ledger ledger; }
harm checkpoints/step-00000002/shard-00001-of-00002.safetensors
both; status 0 "the only checkpoint of checkpoint.dir is damaged, and the nodes have it whole: the run goes on"
err_has "the nodes have step 2, and $WORK/checkpoints has none; it was copied there"; err_has "going on after step 2 "
[ -d checkpoints/step-00000002.bad-1 ]; ok $? "the damaged one is kept under another name" || ls checkpoints
tiny_digests | cmp -s - weights; ok $? "with the weights of a run that was never stopped"
back; mv checkpoints/step-00000002 checkpoints/step-00000002.bad-1
both; status 0 "checkpoint.dir has a damaged one alone, by its name: the nodes' copy is taken"; err_has "going on after step 2 "
back; harm checkpoints/step-00000002/shard-00001-of-00002.safetensors; harm "$(ls local/*/*/step-00000002/shard-00001*)"
both --set launch.restarts=0; status 1 "a checkpoint that is damaged everywhere is refused"; err_has "none is whole"
both --set launch.restarts=0; status 1 "a second time, as well"; err_has "holds 1 checkpoint, and none is whole"
rm -rf checkpoints/*.bad-* local
both; status 0 "a person removed it"; err_has "beginning from random weights"
rm -rf checkpoints local ledger

# ---- the best evaluation's checkpoint
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "writers that are held: the sanitizer wants to be loaded first"
    tap_done; exit
fi
saves_make
printf '{"text": "the cat sees a dog on the old river stone. the cat runs in a house."}\n' >few.jsonl
tern data build --tokenizer model -o data/few.tds few.jsonl 2>/dev/null
sed -i 's,data/train.tds,data/few.tds,; s/^steps: .*/steps: 40/; s/^optimizer: .*/optimizer: {lr: 1.0e-2, weight_decay: 0}/; s/^schedule: .*/schedule: {kind: constant, warmup: 2}/
    s/^checkpoint: .*/checkpoint: {dir: checkpoints, every: 2, keep: 2}\nevaluate: {every: 2}/' run.yaml
run tern run run.yaml --ranks 2 --set ledger.dir=direct; status 0
best=$(tern ledger best held latest --ledger direct -c 1 -P -n -o step); at=$(printf 'step-%08d' "$best")
[ "$best" -gt 2 ] && [ "$best" -lt 30 ]; ok $? "the best evaluation is of step $best" || echo "# $best"
rm -rf checkpoints
# Nothing reaches checkpoint.dir while the best one is made, and long after that.
here=/checkpoints/
hold 2 $here; begin slow "${local[@]}"
until_true reached slow $((best + 5)); ok $? "training goes on beyond the best evaluation while the first checkpoint is copied"
is "$(sql slow "select count(*) from checkpoint where state = 'published'")" 0 "nothing was published yet"
[ -d local/*/*/"$at" ]; ok $? "the best evaluation's checkpoint stays on the node" || ls local/*/*
let_go; ended; status 0 "the run ends well"
is "$(steps_in checkpoints | sed "s/^\(2 \)\?$best .*40 $/as it should be/")" "as it should be" "checkpoint.dir has the best evaluation's checkpoint and the last one"
run tern ckpt show checkpoints/best; status 0; out_has "step $best,"
tern ckpt verify --full checkpoints >/dev/null 2>err2; ok $? "all published checkpoints verify" || cat err2
rm -rf checkpoints local
# Killed meanwhile: the next attempt brings it, before the newest.
hold 2 $here; begin killed "${local[@]}" --set launch.restarts=0
until_true reached killed $((best + 5))
kill -9 $pid; until_true sh -c "! pgrep -r DRST -s $pid"; ended; let_go
is "$(steps_in checkpoints)" "" "a run is killed while the nodes alone have checkpoints"
run tern run run.yaml --ranks 2 --set ledger.dir=killed "${local[@]}"; status 0 "a run whose nodes alone have checkpoints goes on"
err_has "the nodes have the checkpoint of the best evaluation, step $best, and it was copied to checkpoint.dir"
[ -d "checkpoints/$at" ]; ok $? "killed meanwhile: checkpoint.dir has the best evaluation's checkpoint in the end" || ls checkpoints
run tern ckpt show checkpoints/best; status 0; out_has "step $best,"
rm -rf checkpoints local
# evaluate.stop ends the run.
run tern run run.yaml --ranks 2 --set ledger.dir=stop --set evaluate.every=1 --set checkpoint.every=1 --set evaluate.stop.metric=held --set evaluate.stop.patience=3 "${local[@]}"
status 0 "evaluate.stop ends a run with checkpoint.local"
at=$(cat out err | sed -n 's/.*has not got better than .* of step \([0-9]*\) in .*/\1/p' | head -n 1)
run tern ckpt show checkpoints/best; status 0; out_has "step $at,"
is "$(ls local 2>&1)" "" "a run that is done leaves nothing on the nodes"
tap_done
