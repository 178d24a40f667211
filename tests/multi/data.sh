#!/bin/bash
# What a run is trained on, and for how long: stages, epochs, the samples of each step.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make

# With a learning rate of 0 a step's loss tells its samples and nothing else.
sed -i 's/^optimizer: .*/optimizer: {lr: 0, weight_decay: 0}/; s/^schedule: .*/schedule: {kind: constant}/' run.yaml
sed -i '/^checkpoint:/s/keep: 2/keep: 100/' run.yaml
same() { # two files of losses are alike within rounding
    [ "$(wc -l <"$1")" = "$(wc -l <"$2")" ] && [ -s "$1" ] &&
        paste "$1" "$2" | awk '{d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) bad = 1} END {exit bad}'
}

run tern run run.yaml --ranks 1 --set ledger.dir=ledger1
status 0
tiny_curve ledger1 >one
[ "$(sort -u one | wc -l)" = 8 ]; ok $? "eight steps of different samples"
rm -rf checkpoints
run tern run run.yaml --ranks 2 --set ledger.dir=ledger2
tiny_curve ledger2 >two
same one two; ok $? "two ranks take the same samples in the same order" || paste one two | sed 's/^/# /'

n=0
for layout in "2 tensor: 2" "2 pipeline: 2" "4 tensor: 2, sequence: true, pipeline: 2" "4 pipeline: 2, zero: 1"; do
    rm -rf checkpoints
    run tern run run.yaml --ranks ${layout%% *} --set "parallel={${layout#* }}" --set ledger.dir=layout$((++n))
    tiny_curve layout$n >other
    same one other; ok $? "$layout: the same weights from other shards of data" || { sed 's/^/# /' err; paste one other | sed 's/^/# /'; }
done

# Cut off after step 3, gone on with by other layouts.
rm -rf checkpoints
run tern run run.yaml --ranks 2 --set ledger.dir=ledger2 --set steps=3
run tern run run.yaml --ranks 1 --set ledger.dir=ledger2 --set steps=5
run tern run run.yaml --ranks 2 --set ledger.dir=ledger2 --set "parallel={tensor: 2}"
tiny_curve ledger2 >mixed
same one mixed; ok $? "a run that changed its layout twice, too" || paste one mixed | sed 's/^/# /'

# Stages: the second begins after step 4, with samples of its own.
rm -rf checkpoints
sed 's|^  train: .*|  stages: [{until: 4, train: [{path: data/train.tds}]}, {train: [{path: data/test.tds}, {path: data/train.tds, weight: 3}]}]|' run.yaml >staged.yaml
run tern run staged.yaml --ranks 1 --set ledger.dir=ledger3
status 0
tiny_curve ledger3 >staged
head -n 4 one >a; head -n 4 staged >b; same a b
ok $? "the first stage is what the run without stages began with"
tail -n 4 one >a; tail -n 4 staged >b
! same a b; ok $? "the second is not"
rm -rf checkpoints/step-0000000[6-8]
run tern run staged.yaml --ranks 2 --set ledger.dir=ledger3b
tiny_curve ledger3b >b; tail -n 3 staged >a
same a b; ok $? "resumed inside the second stage, on two ranks: the same samples" || paste a b | sed 's/^/# /'
run tern train staged.yaml --set data.stages='[{until: 4, train: [{path: data/test.tds}]}, {train: [{path: data/train.tds}]}]'
status 2; err_has "are not those"; one_error
run tern train staged.yaml --set steps=10 --set batch.global=4 --accept
status 2 "stages end by the step: with another batch no step is known"
err_has "was not trained with 4 sequences a step throughout" && one_error
rm -rf checkpoints
run tern train run.yaml --set steps=2
run tern train run.yaml --set steps=4 --set batch.global=4 --accept
status 0 "without stages it goes on with the next sample"
run tern train staged.yaml --set steps=6 --set batch.global=4 --accept
status 2 "a run that changed its batch has no stages later"; err_has "was not trained with 4 sequences a step throughout"
run tern run --check staged.yaml --set steps=3
status 0 "a run too short for its second stage is begun"
err_has "data.stages[1].train: this stage begins after step 4, and the run has 3"

# What a step was given can be looked up: its samples, and what they say.
run tern data sample staged.yaml 30-33
status 0
awk 'NR > 1 && ($1 != NR + 28 || $2 != int($1 / 8) + 1 || $3 != ($1 >= 32) || $6 !~ /^data\/t(rain|est).tds$/) {bad = 1} END {exit bad || NR != 5}' out
ok $? "samples 30 to 33: step, stage and set" || sed 's/^/# /' out
run tern data sample --text staged.yaml 3
row=$(awk 'NR == 2 {print $5}' out)
tern data head --tokenizer model -n 50 data/train.tds | grep -v '^---' | tr -d '\n ' >all
tail -n +3 out | tr -d '\n ' | cut -c 5-30 >some
[ "$(wc -c <some)" -gt 20 ] && grep -qF "$(cat some)" all; ok $? "row $row has text of the set" || sed 's/^/# /' out
run tern data sample --json staged.yaml 3
out_has '"row": '
for bad in 5-3 x -1 0-9999999; do run tern data sample staged.yaml -- "$bad"; status 2; one_error; done

# Epochs: of the first set, whole.
rm -rf checkpoints
rows=$(tern data info data/train.tds --seq-len 32 --json | sed -n 's/.*"rows": \([0-9]*\).*/\1/p')
sed 's/^steps: .*/epochs: 0.25/' run.yaml >epochs.yaml
want=$(((rows + 31) / 32)) # rows / 4 samples, 8 a step
run tern run epochs.yaml --ranks 1 --set ledger.dir=ledger4
status 0
err_has "step $want/$want"
run tern eval epochs.yaml
status 0
run tern run --trial 2 epochs.yaml
status 0
run tern run --check epochs.yaml --set data.train='[{path: gone.tds}]'
status 2; err_has "gone.tds: cannot open"; one_error
run tern run --check epochs.yaml --set steps=3 --set schedule.warmup=4
status 2; err_has "4 steps of warm-up, but the run has 3"
rm -rf checkpoints
sed 's/^steps: .*/tokens: 1000/' run.yaml >tokens.yaml
run tern train tokens.yaml
status 0; err_has "step 4/4" # of 8 x 32
tap_done
