#!/bin/bash
# Lineage: what a run was made of (base, parent run, data, tokenizer, code), recorded and shown.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
. "$ROOT/tests/lib/tiny.sh"
tiny_make >made 2>&1 || { cat made; exit 1; }
short() { cut -c1-12; }
# What `show` printed, whose lines are as wide as the terminal, has the words.
said() { tr -s ' \n' ' ' <out | grep -qF -- "$1"; ok $? "$2" || cat out; } # TEXT NAME
digest() { sha256sum <"$1" | cut -d' ' -f1; }
tokenizer=$(tern data info data/train.tds --json | jq -r .vocabulary_sha256)
version=$(tern --version | awk '{print $2; exit}')

# A run from random weights, and one from its newest checkpoint.
run tern run run.yaml --set steps=2; status 0
parent=$(tern ledger list -l ledger -P -n -o id)
run tern ledger show tiny -l ledger; status 0
said "base random weights, $PWD/model/config.json sha256 $(digest model/config.json | short)" "show names the config of random weights"
said "tokenizer sha256 ${tokenizer:0:12}" "show has the tokenizer as tern data info does"
said "code tern $version" "show has the version that ran the run"
! grep -q '^  parent' out; ok $? "a run from random weights has no parent" || cat out
sed '/^name:/s/tiny/child/; /^model:/s/{.*}/{from: checkpoints\/latest}/; /^checkpoint:/s/dir: checkpoints/dir: mine/' run.yaml >child.yaml
base=$PWD/checkpoints/step-00000002 manifest=$(digest checkpoints/step-00000002/manifest.json)
run tern run child.yaml --set steps=2 --ranks 2; status 0

# The child goes on after the parent did: its base is still the checkpoint that it began from.
run tern run run.yaml --set steps=3; status 0; [ -d checkpoints/step-00000003 ]; ok $? "the parent's newest checkpoint is another now"
run tern run child.yaml --set steps=3; status 0; err_has "step 2" "the child goes on from its own checkpoint"
run tern ledger show child -l ledger; status 0
said "base $base sha256 ${manifest:0:12}" "show names the checkpoint that the run began from"
said "parent run $parent, step 2" "show names the parent run and the step"
said "data data.held_out[0] $PWD/data/test.tds sha256 " "show names each token set"
tr -s ' \n' ' ' <out >text; tern ledger show child -l ledger --json | jq '.lineage' >lineage
is "$(jq -c '[.base, .parent, .tokenizer_sha256, .tern, .files]' lineage)" \
    "$(jq -cn --arg base "$base" --arg sha "$manifest" --arg run "$parent" --arg t "$tokenizer" --arg v "$version" \
        '[{input: "model.from", path: $base, sha256: $sha}, {run: $run, step: 2}, $t, $v, []]')" "show --json: base, parent, tokenizer and code"
is "$(jq -r '.data[].path' lineage | xargs -n 1 basename | paste -sd' ')" "test.tds train.tds" "show --json: each token set"
jq -r '.data[] | .path + " sha256 " + .sha256[:12]' lineage | { while read -r words; do grep -qF "$words" text || exit 1; done; }; ok $? "the digests of show are those of its JSON"
run tern ledger show child -l ledger --attempts; ! grep -q lineage out; ok $? "show of one table has no lineage"
run tern ledger fold -l ledger --rebuild child; status 0; run tern ledger show child -l ledger; said "parent run $parent, step 2" "a rebuilt ledger has the parent"

# A workload's script, named by a word of the command; a word that names no file is none.
mkdir code; printf '#!/bin/sh\necho "$@" >said\n' >code/train.sh; echo 'lr: 1' >code/settings.txt
printf 'version: 1\nname: script\nledger: {dir: ledger}\nworkload: {command: [sh, code/train.sh, "3", code/settings.txt, code, absent]}\n' >script.yaml
run tern run script.yaml; status 0; script=$(digest code/train.sh)
run tern ledger show script -l ledger; said "$PWD/code/train.sh sha256 ${script:0:12}" "show has the digest of a workload's script"
is "$(tern ledger show script -l ledger --json | jq -c '.lineage | [.files[] | [.input, .path, .sha256]]')" \
    "$(jq -cn --arg d "$PWD" --arg a "$script" --arg b "$(digest code/settings.txt)" \
        '[["workload.command[1]", $d + "/code/train.sh", $a], ["workload.command[3]", $d + "/code/settings.txt", $b]]')" "files that the command names, and no other words"
is "$(tern ledger show script -l ledger --json | jq -c '.lineage | [.base, .parent, .data, .tokenizer_sha256]')" '[null,null,[],null]' "a workload without model and data has neither in its lineage"
cd / || exit 1; run tern ledger reproduce script -l "$WORK/ledger" --check; cd "$WORK" || exit 1
status 0 "reproduce --check finds the script from another folder"
echo 'exit 0' >>code/train.sh; run tern ledger reproduce script -l ledger --check; status 1
has out "changed  workload.command[1]  $PWD/code/train.sh" "reproduce --check says that the script has changed"
has out "same     workload.command[3]" "reproduce --check says which file is the same"
tap_done
