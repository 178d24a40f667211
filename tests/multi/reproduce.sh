#!/bin/bash
# tern ledger reproduce: what it prints, saved and run as it says, gives the run's losses to the last
# bit, whatever the command line changed and whatever became of the recipe since.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
. "$ROOT/tests/lib/tiny.sh"
tiny_make >made 2>&1 || { cat made; exit 1; }
curve() { tern ledger sql -l "$1" -r latest -P -n "select step, value from step where name = 'loss' order by step"; }
# The recipe as printed, in a ledger of its own, by the commands that stand above it.
again() { # NAME
    curve ledger >wanted
    run tern ledger reproduce -l ledger latest; status 0
    cp out again.yaml; sed -n 's/^#     \(tern .*\)/\1/p' out >commands
    sed -i 's/seed: 5/seed: 6/; s/name: tiny/name: other/' run.yaml # the file is another now
    rm -rf again again-*
    while read -r line; do
        sh -c "$line --set ledger.dir=again" >log 2>&1
    done <commands
    curve again >got
    [ -s got ] && cmp -s wanted got; ok $? "$1: the losses, to the last bit" || { cat commands; diff wanted got | head -5; } | sed 's/^/# /'
    cp kept.yaml run.yaml
}
cp run.yaml kept.yaml

run tern run run.yaml --ranks 2 --set optimizer.lr=5e-3 --set 'data.train=[{path: data/train.tds, weight: 2}]'; status 0
again "settings of the command line"
is "$(wc -l <commands)" 1 "reproduce prints one command"
rm -rf again again-*; run tern run again.yaml --set ledger.dir=again; status 0; curve again | cmp -s wanted -; ok $? "the recipe alone reproduces the run"
run tern run again.yaml --set ledger.dir=again; err_has "nothing is left to do" "a reproduction has checkpoints of its own"

rm -rf ledger checkpoints
run tern run run.yaml; status 0; run tern run run.yaml --set steps=12; status 0
again "a run that was extended"; is "$(wc -l <commands)" 2 "a run whose recipe changed, or that was extended, is two commands"
is "$(tail -1 commands)" "tern run --set steps=12 $PWD/again.yaml" "the second command says what was changed"

# Stopped in its middle, and gone on from there by another recipe; one that got nowhere is not done again.
rm -rf ledger checkpoints
run tern run run.yaml --set launch.stop_at=5; status 76; is "$(curve ledger | wc -l)" 5 "launch.stop_at stops behind its step"
run tern run run.yaml --set launch.stop_at=5 --set name=idle; status 76
run tern ckpt show checkpoints/latest; out_has "step-00000005" "with a checkpoint"
run tern run run.yaml --accept --set optimizer.lr=4e-3 --set name=else; status 0
again "a recipe that changed in the middle"; is "$(wc -l <commands)" 2 "a run whose recipe changed, or that was extended, is two commands"
out_has "--accept" "the second of which asks for what the first's checkpoint is not"
rm -rf ledger checkpoints
run tern run run.yaml --set checkpoint.keep=9; status 0; rm -rf checkpoints/step-0000000{7,8}
run tern run run.yaml --set checkpoint.keep=9 --set steps=10; status 0; has err "step 6" "a run resumes where newer checkpoints are gone"
again "an attempt that began before the end of the last"; has commands "launch.stop_at=6" "which ends there"

rm -rf ledger checkpoints
SLURM_ARRAY_TASK_ID=1 run tern run run.yaml --array optimizer.lr=1e-3,3e-3 --ranks 1; status 0
again "a member of an array"; has again.yaml "lr: 3e-3" "with its values"
run tern ledger reproduce -l ledger latest --json; python3 - out <<'P'; ok $? "reproduce --json has the recipe"
import json, sys
j = json.load(open(sys.argv[1])); assert len(j["commands"]) == 1 and "lr: 3e-3" in j["recipe"], j
P

# What a person noted at the end of the file is no setting, and a setting may have several lines.
rm -rf ledger
printf '#!/bin/sh\necho "$@" >>said\n' >w.sh; chmod +x w.sh
printf 'version: 1\nname: noted\nledger: {dir: ledger}\nworkload: {command: [./w.sh, "1"]}\n# on Monday:\n# --set workload.command=[./w.sh,"99"]\n' >noted.yaml
run tern run noted.yaml; status 0; run tern ledger reproduce -l ledger latest; status 0
out_has "command: [./w.sh, '1']" "a note at the end of the recipe is no setting that ran"
run tern ledger list -l ledger -o name,'workload.command[1]'; status 0; ! grep -q 99 out; ok $? "ledger list shows no value of the note"
run tern run noted.yaml --set 'name=lines' --set $'workload.command=[./w.sh, # as on Friday\n "5"]'; status 0 "a setting of two lines is taken"; is "$(tail -1 said)" 5 "a setting of two lines runs"
run tern ledger reproduce -l ledger lines; status 0; out_has "command: [./w.sh, '5']" "a setting of two lines is reproduced"; cp out again.yaml
run tern run again.yaml; status 0; is "$(tail -1 said)" 5 "a recipe that reproduce printed runs again"
run tern ledger reproduce -l ledger lines --check; status 0 "the recipe's file counts as unchanged"

# Texts that YAML must have in quotes come back as they are.
rm -rf ledger
printf 'version: 1\nname: odd\nledger: {dir: ledger}\nworkload: {command: [sh, -c, "printf \x27%%s\\\\n\x27 \\"$@\\" >got", "-", "a: b", "#x", "", "null", "~", "it\x27s", "{}", "- y", "%%", "é", "t\\tb", "1e3", "yes"]}\n' >odd.yaml
run tern run odd.yaml; status 0; mv got first
run tern ledger reproduce -l ledger latest; cp out again.yaml; run tern run again.yaml; status 0; cmp -s first got; ok $? "a recipe with odd texts is reproduced" || diff first got | sed 's/^/# /'
tap_done
