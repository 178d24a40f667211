#!/bin/bash
# tern run --trial: a few steps that leave the run alone.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/' run.yaml
run tern run run.yaml; status 0
before=$(find checkpoints -type f -exec sha256sum {} + | sort)
curve=$(tiny_curve ledger); files=$(ls)
run tern run --trial 5 run.yaml; status 0
out_has 'tokens/s  '; out_has 'memory    '; out_has 'medians of 3 steps'
is "$(find checkpoints -type f -exec sha256sum {} + | sort)" "$before" "a trial leaves the run's checkpoints as they were"
is "$(ls)" "$files" "the trial's checkpoints are removed"
is "$(sqlite3 -separator ' ' ledger/ledger.db "select r.name, a.kind, a.outcome, a.attempt from attempt a join run r on r.id = run_id order by begin_ns" | tr '\n' ,)" "tiny train done 1,tiny-trial trial done 1," "a trial is an attempt of its own kind in a run of its own"
is "$(tern ledger sql --ledger ledger -r tiny -n -P "select printf('%.17g', value) from step where name = 'loss' order by step")" "$curve" "a trial leaves the run's values as they were"
is "$(tern ledger sql --ledger ledger -r tiny-trial -n -P 'select distinct step, state from checkpoint')" "5|deleted" "the ledger has the trial's checkpoint as deleted"
run tern run --trial 1 --set schedule.warmup=4 run.yaml; status 0 "a warm-up longer than the trial is accepted"
run tern run --trial 3 --set "checkpoint.dir=o'brien" run.yaml; status 0 "a trial works in a folder with a quote in its name"
is "$(ls)" "$files" "the trial's folder with a quote is removed"
run tern ledger reproduce tiny --ledger ledger --check; status 0; out_has "same     model.config" "tern ledger reproduce --check"
run tern ledger reproduce tiny --ledger ledger --check --json; status 0
is "$(jq -r '.same, .inputs[0].state' out | tr '\n' ' ')" "true same " "tern ledger reproduce --check --json has the state of inputs"
run tern run --trial 0 run.yaml; status 2; err_has '--trial: from 1'
run tern run --trial 3 run.yaml --set data.train='[{path: none.tds}]'; status 2 "a trial of a recipe with errors is refused"
is "$(ls)" "$files" "a refused trial leaves no folder"
run tern run --trial 5 run.yaml --set 'workload.command=[true]'; status 2; err_has 'workload.precompile'

# A line's tokens/s are of the steps alone: no longer than from the end of one evaluation to the next one's first set.
head -n 2 test.jsonl >short.jsonl; run tern data build --tokenizer model -o data/short.tds short.jsonl; status 0
run tern run run.yaml --set name=rate --set checkpoint.dir=rate --set steps=2 --set schedule.warmup=1 \
    --set 'data.held_out=[{name: a, path: data/short.tds}, {name: b, path: data/train.tds}]'; status 0
rate=$(sed -n 's|.*step 2/2: .* \([0-9]*\) tokens/s|\1|p' err)
between=$(tern ledger sql --ledger ledger -r rate -n -P "select (select wall_ns from eval where step = 2 and set_name = 'a') - (select wall_ns from eval where step = 0 and set_name = 'b')")
awk -v r="$rate" -v ns="$between" 'BEGIN { exit !(r > 0 && 2 * 8 * 32 / (r + 1) <= ns * 1e-9) }'
ok $? "tokens/s leave evaluations out" || echo "# $rate tokens/s, $between ns"

tap_done
