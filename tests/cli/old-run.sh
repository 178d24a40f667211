#!/bin/bash
# A run folder of tern 0.3 (tests/golden/old-run.sh made it) is read and resumed by this tern.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/old-run.sh"
command -v sqlite3 >/dev/null || skip_all "sqlite3 is not installed"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|C|P))'); do unset "$v"; done
old_place || skip_all "$OLD belongs to another user"
old_cleanup() { rm -rf $OLD; }
tap_cleanup=old_cleanup
tar -C $OLD --no-same-owner -xzf "$ROOT/tests/golden/old-run.tar.gz" || exit 1
then=$OLD/then own=$OLD/own other=$OLD/other
# same NAME WHAT: the answer is the old one.
same() { cmp -s "$then/$1" "$1"; ok $? "$2" || diff "$then/$1" "$1" | head -5 | sed 's/^/# /'; }
# same_values NAME WHAT: the same but for the last digits, which each SQLite prints in its own way.
same_values() {
    paste -d '|' "$then/$1" "$1" | awk -F '|' '
        NF % 2 {exit bad = 1}
        {for (i = 1; i <= NF / 2; i++) {
            a = $i; b = $(i + NF / 2); d = a - b
            if (a "" != b "" && (i != 3 || (d < 0 ? -d : d) > 1e-15 * (a < 0 ? -a : a))) exit bad = 1}}
        END {exit bad || !NR}' && [ "$(wc -l <"$then/$1")" = "$(wc -l <"$1")" ]
    ok $? "$2" || diff "$then/$1" "$1" | head -5 | sed 's/^/# /'
}
# same_points NAME WHAT: the same document, whose numbers each library prints in its own way.  0.3's points had no x.
same_points() {
    jq -e 'all(.[][]; .x == .step)' "$1" >/dev/null && diff <(jq -S '(.. | numbers) |= . + 0' "$then/$1") <(jq -S 'del(.[][].x) | (.. | numbers) |= . + 0' "$1") >differs 2>&1
    ok $? "$2" || head -5 differs | sed 's/^/# /'
}
names() { # that each table and column is still there, also in snapshots made anew
    for r in own other; do
        for db in ledger.db run.db; do
            is "$(sort "$r.$db.columns" | comm -23 <(sort "$then/$r.$db.columns") -)" "" "$r/$db: every table, view and column of 0.3 has its name$1"
        done
    done
}

# ---- looked at
old_answers 2>err
for r in own other; do
    same $r.list "$r: tern ledger list"; same $r.attempts "$r: the attempts"; same $r.checkpoints "$r: the checkpoints"
    same_values $r.values "$r: every metric's values"; same $r.evals "$r: the evaluations"; same $r.events "$r: the events"
    same_points $r.plot "$r: tern ledger plot"; same $r.logs "$r: tern logs"
    run tern ledger verify -l $OLD/$r/ledger; status 0 "$r: every frame of the spools is good, run.db says what they say"
done
same own.ckpts "own: tern ckpt ls"; same own.digests "own: digests of the newest checkpoint"
same dumps.culprit "dumps of the fabric: which rank waits for which"
names ""
run tern ckpt verify --full $own/checkpoints; status 0 "own: every byte of the checkpoints verifies"
is "$(grep -c 'good, every byte' out)" 2 "own: both of them"
for r in own other; do
    cp -r $OLD/$r/ledger $r.ledger
    for db in $r.ledger/runs/*/run.db $r.ledger/ledger.db; do chmod u+w $db && rm $db; done
    run tern ledger fold -l $r.ledger; status 0 "$r: snapshots are made anew from the old spools"
    tern ledger sql -l $r.ledger -r latest -P "SELECT step, name, printf('%.17g', value), attempt, wall_ns FROM step ORDER BY name, step" >$r.values
    same_values $r.values "$r: with the same values"
    for db in $r.ledger/ledger.db $r.ledger/runs/*/run.db; do old_columns $db >$r.${db##*/}.columns; done
done
names ", in a new snapshot"

# ---- somebody else's checkpoints, by the records of the old tern
id=$(basename $other/ledger/runs/*)
for c in ck/step_20 ck/step_30 mirror/step_10; do
    run tern ckpt verify $other/$c --run other --ledger $other/ledger; status 0 "other: $c verifies against its record"
    out_has "good, every byte of 2 files" "other: $c: both files"
done
printf W | dd of=$other/mirror/step_10/r0.pt conv=notrunc status=none
run tern ckpt verify $other/mirror/step_10 --run other --ledger $other/ledger; status 1 "other: a changed byte is found by the old record"
# A record knows its checkpoint by the marker's time and inode, which unpacking has changed.
for s in 20 30; do
    sed -i "s/\"written\": \"[^\"]*\"/\"written\": \"$(stat -c %.9Y-%i $other/ck/step_$s/done)\"/" "$(ls -d $other/ledger/runs/$id/foreign/step_$s-*.json)"
done
mkdir $other/ck/step_40; echo "weights 40" >$other/ck/step_40/r0.pt; echo 1 >$other/ck/step_40/done
half=$other/mirror/.step_40.$id.new; mkdir "$half"; echo half >"$half/r0.pt" # of a run that was killed as it copied
run tern ckpt mirror other --ledger $other/ledger; status 0 "other: tern ckpt mirror goes by the old keep.json"
out_has "1 copied to $other/mirror" "other: the checkpoint without a copy is copied"
diff -r $other/ck/step_40 $other/mirror/step_40; ok $? "other: the copy is whole"
[ ! -e "$half" ]; ok $? "other: a half copy of the run is taken over" || ls -A $other/mirror
sed -i 's/10 20 30/50/' $other/train.sh
run env -C $other tern run run.yaml; status 0 "other: a new attempt ends well"
is "$(ls $other/ck | paste -sd' ')" "step_40 step_50" "other: it prunes what the old tern found and verified"
run tern ledger verify -l $other/ledger; status 0 "other: its ledger verifies"
is "$(ls $other/ledger/runs)" "$id" "other: it is the same run"

# ---- resumed: the old supervisor, on another node, holds the lease while its heartbeat is young
claim=$own/checkpoints/claim-000002
sed -i 's/"boot": "[^"]*"/"boot": "another"/' $claim
touch $claim
run tern run $own/run.yaml --set launch.stop_at=12; status 75 "own: a live supervisor of 0.3 keeps the folder"
err_has 'attempt 2' "own: the message names its attempt"
is "$(ls $own/checkpoints | grep -c '^step-')" 2 "own: nothing is written meanwhile"
touch -d '2 minutes ago' $claim
run tern run $own/run.yaml --set launch.stop_at=12; status 76 "own: a silent supervisor loses it, the run is resumed"
err_has 'attempt 3: ' "own: by the next attempt"; err_has 'from step 6' "own: behind the newest checkpoint"
old_next >next
built() { tern ledger sql -l $own/ledger -r latest -P -n "SELECT group_concat(value) FROM param WHERE attempt = $1 AND name IN ('kernels', 'blas')"; }
if [ "$(built 3)" = "$(built 2)" ]; then
    same next "own: losses and perplexities go on with the old tern's bits"
else
    paste -d'|' "$then/next" next | awk -F'|' '{d = $(NF / 2) - $NF; if (d < 0) d = -d; if (!NF || d > 1e-4 * $NF) bad = 1} END {exit bad || !NR}'
    ok $? "own: losses and perplexities go on as the old tern's, on another CPU or BLAS"
fi
is "$(tern ledger list -l $own/ledger -P -n -o attempts,step,ckpt)" "3|12|12" "own: it is the same run, with one attempt more"
run tern ckpt verify --full $own/checkpoints; status 0 "own: the new checkpoints verify"
is "$(tern ledger show -l $own/ledger -P -n -c -o step,state | tail -3 | paste -sd' ')" "8|deleted 10|published 12|published" "own: retention goes on in the same rows"
run tern ledger verify -l $own/ledger; status 0 "own: its ledger verifies"
tap_done
