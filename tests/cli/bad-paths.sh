#!/bin/bash
# Each path that a verb of tern takes: a missing one, noise, an empty file, a file where a folder is
# wanted and a folder where a file is wanted are refused with 2, by one line that names it.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|C))'); do unset "$v"; done
export TERN_CLUSTER_HOME=$WORK/clusters # where one that should be refused would be
cluster_ends() { tern cluster down >/dev/null 2>&1; }
tap_cleanup=cluster_ends

# The path stands for @.  What is refused: a missing one (m), a file of noise (n), an empty file (e), an
# empty folder (f), a name below a file (b).
rows() {
    cat <<'ROWS'
mnef tern bench data -t model @
mnef tern bench data --tokenizer @ train.jsonl
mneb tern bench data -t model -n 1 --dir @ train.jsonl
mf   tern bench data -t model -n 1 --peer gigatoken --script @ train.jsonl
mf   tern bench train --peer torch --peer-script @
mne  tern ckpt ls @
mnef tern ckpt show @
mnef tern ckpt diff @ $C
mnef tern ckpt diff $C @
mnef tern ckpt verify @
mnef tern ckpt verify --run latest --ledger @ $C
mnef tern ckpt verify --manifest @ $C
mne  tern ckpt du @
mne  tern ckpt prune @
mnef tern ckpt mirror --ledger @ latest
mnef tern ckpt export -o x @
neb  tern ckpt export --out @ $C
mnef tern ckpt export --from nxd --config @ -o x nxd
mnef tern ckpt export -o x --tokenizer @ $C
mnef tern ckpt merge -o x @
neb  tern ckpt merge --out @ $L
mnef tern ckpt merge -o x --base @ peft
mnef tern ckpt merge -o x --tokenizer @ $L
mnef tern ckpt blend -o x @ $C
neb  tern ckpt blend --out @ $C $C
mnef tern ckpt blend --method ties -o x --base @ $C $C
mnef tern ckpt blend -o x --tokenizer @ $C $C
mnef tern ckpt reshard -o x @
neb  tern ckpt reshard --out @ $C
mnef tern cluster check @
mnef tern cluster check --vars @ cluster.yaml
mnef tern cluster lint @
mnef tern cluster lint --vars @ cluster.yaml
mnef tern cluster render @
mnef tern cluster render --vars @ cluster.yaml
neb  tern cluster render --out @ cluster.yaml
mne  tern cluster render --diff @ cluster.yaml
mnef tern cluster plan @
mnef tern cluster plan --vars @ cluster.yaml
mnef tern cluster apply @
mnef tern cluster apply --vars @ cluster.yaml
mnef tern cluster drift @
mnef tern cluster drift --vars @ cluster.yaml
mnef tern cluster up @
mnef tern cluster up --vars @ cluster.yaml
mneb tern cluster up --share @ cluster.yaml
mneb tern cluster smoke --dir @ here
neb  tern cluster smoke --ledger @ here
mnf  tern data build -t model -o x @
mnef tern data build --tokenizer @ -o x train.jsonl
nfb  tern data build -t model --out @ train.jsonl
mnef tern data merge -o x @
fb   tern data merge --out @ p1.tds p2.tds
mnef tern data info @
mnef tern data stat @
mnef tern data stat --tokenizer @ data/train.tds
mnef tern data plan @
mnef tern data verify @
mnf  tern data encode -t model @
mnef tern data encode --tokenizer @ train.jsonl
mf   tern data decode -t model @
mnef tern data decode --tokenizer @ empty
mnef tern data head @ -t model
mnef tern data head data/train.tds --tokenizer @
mnef tern data overlap --held-out data/test.tds @
mnef tern data overlap --held-out @ data/train.tds
mnef tern data sample @ 1
mnef tern data sample --text --tokenizer @ run.yaml 1
mnef tern data export -L 32 -o x @
neb  tern data export -L 32 --out @ data/train.tds
mnef tern data import -t model -o x @
mnef tern data import --tokenizer @ -o x arrow
nfb  tern data import -t model --out @ arrow
mnef tern data push @ s3://b/k
mnef tern eval @
mnef tern eval --checkpoint @ run.yaml
mnef tern eval --data a=@ run.yaml
mnef tern eval --choices @ $C
mnef tern eval --choices train.jsonl --tokenizer @ $C
mnef tern eval --ledger @ --checkpoints all latest
mnef tern fabric flight-report @
neb  tern fetch --out @ https://localhost:1/x
mnef tern generate @ -p a
mnf  tern generate $C --prompt-file @
mnf  tern generate $C --from @ --template alpaca
mnef tern generate $C --template @ --chat a
mnf  tern generate $C --prompt-ids @
mnef tern generate $C -p a --tokenizer @
mne  tern ledger list --ledger @
mnef tern ledger show --ledger @
mnef tern ledger why --ledger @
mnef tern ledger compare --ledger @ a b
mne  tern ledger best --ledger @ loss
mnef tern ledger goodput --ledger @
mnef tern ledger cost --ledger @
mnef tern ledger plot --ledger @
mnef tern ledger watch --ledger @
mnef tern ledger report --ledger @
fb   tern ledger report --out @ latest
mnef tern ledger serve --ledger @
nfb  tern ledger serve --socket @
mne  tern ledger sql --ledger @ 'select 1'
mnef tern ledger export --csv --ledger @
neb  tern ledger export --tensorboard @
mnef tern ledger tag --ledger @ latest a
mnef tern ledger note --ledger @ latest a
mnef tern ledger reproduce --ledger @
mne  tern ledger fold --ledger @
mne  tern ledger rebuild --ledger @
mne  tern ledger verify --ledger @
mne  tern ledger fsck --ledger @
mne  tern ledger gc --ledger @
mnef tern ledger merge @
neb  tern ledger merge --ledger @ ledger
mnef tern ledger import @
neb  tern ledger import --ledger @ events
mnef tern logs --ledger @
mnef tern run @
mnef tern run --check --cluster @ run.yaml
mnef tern run --explain --cluster @ run.yaml
mnef tern submit @
mnef tern submit --dry-run --cluster @ run.yaml
mnef tern train @
mnef tern train --explain --cluster @ run.yaml
fb   tern train --profile @ run.yaml
ROWS
}
# Facts of nodes, which doctor and health judge: what is wrong with them is a finding.
judged='^tern (cluster doctor|ledger doctor|health) '

# The paths of COMMAND by its -h: "COMMAND @", "COMMAND --out @".
paths_of() {
    local what='(FILE(\.jsonl)?|DIR|PATH|FOLDER|SET|PART|TRAIN|OTHER|RECIPE|LAYOUT|MODEL|CLUSTER|A|NAME=FILE)'
    tern $1 -h >help
    sed -n '/^usage/,/^$/p' help | grep -qE "[ [|]$what([]. |]|\$)" && echo "tern $1 @"
    sed -nE "s/^ +(-[A-Za-z], )? *(--[a-z-]+) $what(\$|[]: []).*/tern $1 \2 @/p" help
}
all_paths() {
    local noun verbs verb
    for noun in $(tern -h | sed -nE '/^topics/q; s/^  ([a-z]+) +.*/\1/p'); do
        verbs=$(tern "$noun" -h 2>/dev/null | sed -n '/^verbs:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p')
        [ -n "$verbs" ] || paths_of "$noun"
        for verb in $verbs; do paths_of "$noun $verb"; done
    done
}
all_paths | grep -vE "$judged" >paths
rows | sed 's/^[a-z]* *//' >tried
[ "$(wc -l <paths)" -ge 100 ]; ok $? "the help of all verbs names $(wc -l <paths) paths"
# A row tries "COMMAND --option @" where it begins with the command and has the option's value; and
# "COMMAND @" where the word before @ is no option of a path.
missing=$(while read -r command; do
    command=${command% @}
    case $command in
    *" --"*) grep -E "^${command% --*} (.* )?--${command#* --} (a=)?@" tried ;;
    *) grep -E "^$command (.*[^ ] )?@" tried | grep -vE -- '--[a-z-]+ (a=)?@' ;;
    esac | grep -q . || echo "$command @"
done <paths)
is "$missing" "" "each path that the help of a verb names is tried below"

{
    tiny_make && tern run run.yaml --set steps=2 &&
        tern run run.yaml --set steps=2 --set name=adapters --set checkpoint.dir=adapters --set lora.rank=2 &&
        tern ckpt export adapters/latest -o peft &&
        tern ckpt export checkpoints/latest -o nxd --to nxd &&
        tern data build -t model -o p1.tds --part 1/2 train.jsonl &&
        tern data build -t model -o p2.tds --part 2/2 train.jsonl &&
        tern data export data/train.tds -L 32 -o arrow && tern ledger export --tensorboard events
} >out 2>err </dev/null || { ok 1 "checkpoints, adapters and sets to try with"; cat err; tap_done; exit; }
cp "$ROOT/cluster-templates/trn1-4/cluster.yaml" .
C=checkpoints/step-00000002 L=adapters/step-00000002
head -c 3000 /dev/zero | tr '\0' '\377' >noise

n=0 bad=0
try() { # PATH COMMAND...
    local path=$1 rc why=
    shift
    rm -rf nowhere folder; : >empty; mkdir folder
    timeout 600 "$@" >out 2>err </dev/null; rc=$?
    [ $rc = 2 ] || why="exit $rc"
    [ "$(wc -l <err)" = 1 ] || why="$why, $(wc -l <err) lines"
    grep -qF -- "${path%/x}" err || why="$why, does not name $path"
    [ -e x ] && why="$why, wrote its output"
    [ -s empty ] && why="$why, wrote into the empty file"
    rm -rf x; n=$((n + 1))
    [ -z "$why" ] || { bad=$((bad + 1)); echo "# $*:$why"; sed 's/^/#     /' err | head -3; }
}
row=0
while read -r kinds command; do
    # One kind a row, another in the next one; all of each in the long list.
    row=$((row + 1))
    long || kinds=${kinds:row % ${#kinds}:1}
    case $kinds in *m*) eval "try nowhere ${command//@/nowhere}" ;; esac
    case $kinds in *n*) eval "try noise ${command//@/noise}" ;; esac
    case $kinds in *e*) eval "try empty ${command//@/empty}" ;; esac
    case $kinds in *f*) eval "try folder ${command//@/folder}" ;; esac
    case $kinds in *b*) eval "try noise/x ${command//@/noise\/x}" ;; esac
done < <(rows)
[ $n -ge $(long && echo 400 || echo 100) ] && [ $bad = 0 ]
ok $? "wrong kinds of paths are refused with 2 and one line that names the path, by each of $n commands"
tap_done
