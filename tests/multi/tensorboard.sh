#!/bin/bash
# ledger.tensorboard: event files while a run goes on, and after the fact by tern ledger export.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
. "$ROOT/tests/lib/tiny.sh"
export TERN_LEDGER=$WORK/ledger
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^ledger: .*/ledger: {dir: ledger, tensorboard: board}/; s/every: 1, keep: 2/every: 2, keep: 9/' run.yaml
values() { grep -ac "$1" board/*/events*; }

run tern run run.yaml --ranks 2 --set steps=4; status 0
is "$(ls board | wc -l)" 1 "a run has one folder"; is "$(ls board/tiny-*/events* | wc -l)" 1 "an attempt has one file"
is "$(find board -perm /022 | wc -l)" 0 "event files are writable by their owner alone"
is "$(values loss)" 4 "every step's loss is in the file"
grep -aq 'held_out/held/perplexity_token' board/*/events*; ok $? "held-out perplexity is in the file"
rm -rf checkpoints/step-00000004 checkpoints/latest
run tern run run.yaml --ranks 2 --set steps=6; status 0
is "$(ls board/tiny-*/events* | wc -l)" 2 "a second attempt has a file of its own"
run tern ledger export --tensorboard after; status 0; err_has 'values'
is "$(cat after/*/events* | wc -c)" "$(cat board/*/events* | wc -c)" "an export has as much as was written meanwhile"
run tern ledger export --tensorboard after; status 2; one_line; err_has 'is there already'
run tern ledger export --tensorboard after --csv; status 2; one_line; err_has 'one of --csv, --json, --tensorboard and --mlflow'
run tern ledger export --tensorboard after -m loss; status 2; one_line; err_has '--metric goes with'
run tern ledger export nothing --tensorboard other; status 2; one_line; [ ! -e other ]; ok $? "an export of no run leaves nothing"
# A folder that cannot be written costs the run nothing.
echo file >taken
run tern run run.yaml --ranks 2 --set steps=7 --set ledger.tensorboard=taken; status 0; err_has "TensorBoard's files are behind"
is "$(tern ledger list -n -P -o state,step)" "done|7" "the run ended well, and the ledger has it"
tap_done
