#!/bin/bash
# Steps that make no update, and runs that end early, as a user sees them.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make

events() { # LEDGER KIND
    tern ledger sql --ledger "$1" -r latest -n -P "select text from event where kind = '$2' order by attempt, seq"
}
value() { # LEDGER NAME STEP
    tern ledger sql --ledger "$1" -r latest -n -P "select value from step where name = '$2' and step = $3"
}

# A model that knows its text well, and one with a weight that is not a number.
tern train run.yaml --set steps=60 --set optimizer.lr=1e-2 --set checkpoint.every=0 2>/dev/null
tern ckpt export checkpoints/latest -o hf >/dev/null 2>&1
cp -r hf bad
printf '\0\0\300\177' | dd of=bad/model.safetensors bs=1 seek=$(($(stat -c %s bad/model.safetensors) - 4)) conv=notrunc 2>/dev/null
rm -rf checkpoints
sed 's/^model: .*/model: {from: bad}/' run.yaml >bad.yaml

# Not finite: skipped, counted, recorded, and the count survives a restart.
run tern run bad.yaml --ranks 2 --set ledger.dir=ledger1 --set steps=3
status 1 "three steps in a row without an update are allowed, but the run ends without a model"
err_has "step 3 is the last one, but the model's loss on held is not finite: this run is not done"
err_has "step 3: loss nan, gradient norm nan: not finite; no update; samples 16 to 23: $PWD/data/train.tds rows"
[ "$(events ledger1 skip | wc -l)" = 3 ]; ok $? "the ledger has an event for each step without an update"
events ledger1 skip | sed -n 2p | grep -q '^step 2: .*no update; samples 8 to 15: [^ ]*/data/train.tds rows [0-9, ]*$'
ok $? "the event of a skipped step has its samples and their rows" || events ledger1 skip
[ "$(value ledger1 skipped_steps 3)" = 3.0 ]; ok $? "skipped_steps counts the steps without an update" || value ledger1 skipped_steps 3
run tern run bad.yaml --ranks 1 --set ledger.dir=ledger1 --set steps=3
status 1 "a run without a finite loss is not done, also when no step is left"
err_has "step 3 is the last one, but the model's loss on held is not finite: this run is not done"
run tern run bad.yaml --ranks 1 --set ledger.dir=ledger1
status 1 "resumed, the run fails two steps later"
err_has "no update in 5 steps in a row, up to step 5"
[ ! -e checkpoints/step-00000005 ]; ok $? "there is no checkpoint of that step"
is "$(value ledger1 skipped_steps 5)" 5.0 "the skipped step that ended the run is recorded, too"
tern ledger sql --ledger ledger1 -r latest -n -P "select cause from attempt order by attempt desc limit 1" | grep -q 'no update in 5 steps in a row'
ok $? "the ledger says why the attempt failed"
run tern run bad.yaml --ranks 1 --set ledger.dir=ledger1 --set optimizer.guard.stop_after=100
status 1 "with more patience the same run goes on over skipped steps"
err_has "step 8 is the last one"
[ "$(value ledger1 skipped_steps 8)" = 8.0 ]; ok $? "skipped_steps counts on in the resumed run"
awk -v s="$(value ledger1 slowest_rank_seconds 8)" 'BEGIN {exit !(s > 0)}'; ok $? "a single rank is the slowest of a skipped step, and takes time"
tern ckpt show checkpoints/latest --json | tr -d ' \n' | grep -q '"optimizer_step":0,'
ok $? "no update was made"

rm -rf checkpoints
run tern run bad.yaml --ranks 1 --set ledger.dir=ledger1s --set 'evaluate={every: 1, stop: {metric: held, patience: 2}}'
status 1 "losses that are not finite end a run as failed, not as done by evaluate.stop"
err_has "no update in 5 steps in a row"
rm -rf checkpoints
for ranks in 2 1; do # the second time nothing is left to do
    run tern run bad.yaml --ranks $ranks --set ledger.dir=ledger1h --set steps=3 --set data.held_out=[]
    status 1 "without held-out text the last steps decide whether the run is done"
    err_has "step 3 is the last one, but the last 3 made no update, as their losses or gradients are not finite: this run is not done"
done
rm -rf checkpoints

# A spike: known text, and now and then (a sample of 251, by the mix) a row of something else.
awk 'BEGIN {srand(3); for (d = 0; d < 9; d++) {s = ""; for (i = 0; i < 20; i++) s = s sprintf("%c%d%c", 97 + rand() * 26, rand() * 1e6, 65 + rand() * 26); printf "{\"text\": \"%s\"}\n", s}}' >odd.jsonl
tern data build --tokenizer model -o data/odd.tds odd.jsonl 2>/dev/null
sed 's/^model: .*/model: {from: hf}/; s/^steps: .*/steps: 90/; s|^  train: .*|  train: [{path: data/train.tds, weight: 250}, {path: data/odd.tds}]|' run.yaml >spike.yaml
sed -i 's/^optimizer: .*/optimizer: {lr: 1.0e-5, guard: {spike: 7, window: 16}}/; s/^schedule: .*/schedule: {kind: constant}/; /^checkpoint:/s/every: 1/every: 10/' spike.yaml
rm -rf checkpoints
run tern run spike.yaml --ranks 1 --set ledger.dir=ledger2
status 0
events ledger2 skip >skips
[ "$(grep -c "standard deviations above the mean of the 16 steps before.*no update; samples [0-9]* to [0-9]*: .*data/odd.tds rows" skips)" -ge 2 ] &&
    [ "$(wc -l <skips)" -le 4 ]
ok $? "batches with an odd row are spikes, named with their samples and rows" || sed 's/^/# /' skips err
tiny_digests >whole
rm -rf checkpoints
for n in $(long && echo 20 61) 47; do run tern run spike.yaml --ranks 1 --set ledger.dir=ledger3 --set steps=$n; done
run tern run spike.yaml --ranks 1 --set ledger.dir=ledger3
events ledger3 skip | cmp -s - skips; ok $? "a run cut off and gone on with records the same spikes" || { events ledger3 skip | diff - skips; }
tiny_digests | cmp -s - whole; ok $? "a run cut off and gone on with has the same weights to the last bit"
rm -rf checkpoints
if long; then
    sed 's|^  train: .*|  stages: [{until: 20, train: [{path: data/train.tds}]}, {train: [{path: data/odd.tds}]}]|; s/^steps: .*/steps: 30/' spike.yaml >turn.yaml
    run tern run turn.yaml --ranks 1 --set ledger.dir=ledger3t
    status 0
    [ "$(value ledger3t skipped_steps 30)" = 0.0 ]; ok $? "a new stage of other data is no spike" || sed 's/^/# /' err
fi
run tern run --check spike.yaml --set optimizer.guard.window=4
status 2; err_has "not a whole number from 8 to 1024"
run tern run --check spike.yaml --set optimizer.eps=0 # adapters' gradients begin as zeros: 0 / 0
status 2; err_has "not a number from 1e-30 to 1"
run tern run --check spike.yaml --set batch.global=1073741824
status 2; err_has "not a whole number from 1 to 16777216"

# evaluate.stop: a learning rate of 0 makes nothing better.
rm -rf checkpoints
sed 's/^optimizer: .*/optimizer: {lr: 0, weight_decay: 0}/; s/^schedule: .*/schedule: {kind: constant}/' run.yaml >stop.yaml
echo 'evaluate: {every: 2, stop: {metric: held, patience: 3}}' >>stop.yaml
run tern run stop.yaml --ranks 2 --set ledger.dir=ledger4 --set steps=20
status 0 "a run that gets no better is done"
err_has "step 6: held has not got better than 6."
err_has "done: held has not got better"
[ "$(ls -d checkpoints/step-* | tail -n 1)" = checkpoints/step-00000006 ]; ok $? "a run that evaluate.stop ended has a checkpoint of its last step"
[ "$(tern ledger sql --ledger ledger4 -r latest -n -P 'select outcome from attempt')" = done ]
ok $? "the outcome of a run that evaluate.stop ended is done"
tern ledger sql --ledger ledger4 -r latest -n -P 'select cause from attempt' | grep -q 'has not got better than'
ok $? "the cause of a run that evaluate.stop ended is in the ledger"
events ledger4 early_stop | grep -q 'of step 0 in 3 evaluations'; ok $? "an early stop has an event"; is "$(events ledger4 over | wc -l)" 0 "no event says that the run was over before"
run tern run stop.yaml --ranks 1 --set ledger.dir=ledger4 --set steps=20
status 0; err_has "nothing is left to do: step 6 of 20 is done, where evaluate.stop ended the run"
run tern run stop.yaml --ranks 1 --set ledger.dir=ledger4 --set steps=20 --set evaluate.stop.patience=4
status 0 "a run that evaluate.stop ended goes on with more patience"; err_has "step 8: held has not got better"
rm -rf checkpoints
run tern run stop.yaml --ranks 1 --set ledger.dir=ledger5 --set steps=3
run tern run stop.yaml --ranks 1 --set ledger.dir=ledger5 --set steps=20
status 0 "looks before and after a restart count together"; err_has "step 4: held has not got better than 6."
run tern run stop.yaml --ranks 1 --set ledger.dir=ledger5 --set steps=20 --set evaluate.every=1 --set evaluate.stop.patience=1
status 0 "less patience than before: done already"; err_has "nothing is left to do: step 4 of 20"
rm -rf checkpoints
if long; then
    run tern run stop.yaml --ranks 1 --set ledger.dir=ledger6 --set steps=4
    run tern run stop.yaml --ranks 1 --set ledger.dir=ledger6 --set steps=20 --set evaluate.stop.patience=2
    status 0 "with less patience than before the run is done without another step"
    err_has "step 4: held has not got better"; err_has "done: held has not got better"
    [ "$(ls -d checkpoints/step-* | tail -n 1)" = checkpoints/step-00000004 ]; ok $? "the newest checkpoint of a run done with less patience stays the same"
fi
rm -rf checkpoints
run tern run stop.yaml --ranks 2 --set ledger.dir=ledger7 --set steps=6
run tern run stop.yaml --ranks 2 --set ledger.dir=ledger7 --set steps=20
status 0 "a run ended at its last step stays done with more steps"
err_has "step 6: held has not got better"; err_has "done: held has not got better"
[ "$(ls -d checkpoints/step-* | tail -n 1)" = checkpoints/step-00000006 ]; ok $? "the cause of a run ended at its last step stays the same"
run tern run stop.yaml --ranks 1 --set ledger.dir=ledger7 --set steps=20 --set evaluate.stop.patience=4
status 0 "a run that evaluate.stop ended goes on with more patience"; err_has "step 8: held has not got better"
# Stopped at a step that is to be evaluated: that is made up for, and no step is made beyond it.
rm -rf checkpoints
tern run stop.yaml --ranks 2 --set ledger.dir=ledger8 --set steps=1000000 --set evaluate.every=1000000 2>err >out </dev/null & pid=$!
until_true compgen -G 'checkpoints/step-*'; kill -USR1 $pid; wait $pid; rc=$?
status 76 "a run is stopped before the step of its evaluation"
at=$(ls -d checkpoints/step-* | tail -n 1)
tern ckpt show checkpoints/latest --json | tr -d ' \n' | grep -q '"evaluated":false,'; ok $? "a stopped run's checkpoint is not evaluated"
run tern run stop.yaml --ranks 2 --set ledger.dir=ledger8 --set steps=1000000 --set evaluate.every=1 --set evaluate.stop.patience=1
status 0 "the missing evaluation is made up for, and ends the run"
[ "$(ls -d checkpoints/step-* | tail -n 1)" = "$at" ]; ok $? "a run that a missing evaluation ends makes no step after $at"
is "$(events ledger8 over | grep -c 'has not got better')" 1 "the ledger has the end of the evaluation that was made up for"
# And stopped again while that is made up for.
rm -rf checkpoints
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "evaluations that are held: the sanitizer wants to be loaded first"
else
    tiny_make_long
    whole=(tern run stop.yaml --ranks 2 --set ledger.dir=ledger10 --set steps=1000000 --set 'data.held_out=[{name: held, path: data/long.tds}]')
    due=(--set evaluate.every=1 --set evaluate.stop.patience=1)
    "${whole[@]}" --set evaluate.every=1000000 2>err >out </dev/null & pid=$!
    until_true compgen -G 'checkpoints/step-*'; kill -USR1 $pid; wait $pid
    at=$(ls -d checkpoints/step-* | tail -n 1)
    tiny_hold "${whole[@]}" "${due[@]}"
    kill -USR1 $pid; wait $pid; rc=$?
    status 76 "a run is stopped again in the evaluation that is made up for"
    [ "$(ls -d checkpoints/step-* | tail -n 1)" = "$at" ]; ok $? "a run stopped in an evaluation makes no step" || ls checkpoints
    run "${whole[@]}" "${due[@]}"
    status 0 "the evaluation that is made up for at last ends the run"
    [ "$(ls -d checkpoints/step-* | tail -n 1)" = "$at" ]; ok $? "the run that an evaluation ends has no step after $at"
fi
rm -rf checkpoints
run tern run run.yaml --ranks 2 --set ledger.dir=ledger9 --set steps=2
run tern run run.yaml --ranks 2 --set ledger.dir=ledger9 --set steps=4 --accept --set 'lora={rank: 2, alpha: 2, targets: [q_proj]}'
status 2 "a setting that ranks refuse before their first step fails the run"
tern ledger sql --ledger ledger9 -r latest -n -P "select cause from attempt order by attempt desc limit 1" | grep -q 'adapters'
ok $? "the attempt's cause is what rank 0 says" || tern ledger sql --ledger ledger9 -r latest -n -P "select cause from attempt"
run tern run --trial 3 stop.yaml
status 0 "a trial of a recipe with evaluate.stop succeeds"
# The best evaluation's checkpoint outlives the newest ones, whatever is kept of these.
printf '{"text": "the cat sees a dog on the old river stone. the cat runs in a house."}\n' >few.jsonl
tern data build --tokenizer model -o data/few.tds few.jsonl 2>/dev/null
sed 's,data/train.tds,data/few.tds,; s/^steps: .*/steps: 60/; s/^optimizer: .*/optimizer: {lr: 3.0e-2, weight_decay: 0}/; s/^schedule: .*/schedule: {kind: constant, warmup: 2}/; s/^checkpoint: .*/checkpoint: {dir: overfit, every: 2}/; s/^name: .*/name: overfit/' run.yaml | grep -v '^evaluate' >overfit.yaml
echo 'evaluate: {every: 2, stop: {metric: held, patience: 4}}' >>overfit.yaml
run tern run overfit.yaml --ranks 1 --set ledger.dir=ledger9; status 0 "a run that gets worse is ended by evaluate.stop"
best=$(cat out err | sed -n 's/.*has not got better than .* of step \([0-9]*\) in .*/\1/p' | head -n 1)
[ -n "$best" ] && ls overfit >there && [ "$(ls -d overfit/step-* | head -n 1)" = "$(printf 'overfit/step-%08d' "$best")" ]; ok $? "its best checkpoint, of step $best, is there" || cat there err
[ "$(ls -d overfit/step-* | wc -l)" = 4 ]; ok $? "the best checkpoint stays beside the three newest" || cat there
run tern ckpt show overfit/best; status 0 "best is a checkpoint's name"; out_has "step $best"
run tern eval overfit.yaml -c best; status 0; run tern eval overfit.yaml -c overfit/best; status 0 "tern eval takes the best checkpoint"
run tern ckpt export overfit/best -o best-hf; status 0 "tern ckpt export takes the best checkpoint"
rm -rf "$(printf 'overfit/step-%08d' "$best")"; run tern ckpt show overfit/best; status 2; err_has 'no checkpoint of that step or before it is there'; one_line
tap_done
