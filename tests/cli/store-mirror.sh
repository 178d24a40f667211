#!/bin/bash
# checkpoint.mirror: s3://...: copies in the background, and the way back when checkpoint.dir is gone.
# waits: for a server that is down
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/s3.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/; s#keep: 2}#keep: 2, mirror: "s3://copies/tiny/"}#' run.yaml
digest() { sha256sum <"$1" | cut -d' ' -f1; }
names() { "$TOOLS/store-tool" list "s3://copies/${1-tiny}" 2>/dev/null | cut -f1; }
rows() { tern ledger sql --ledger "$1" -r latest -n -P "select step || ' ' || state from checkpoint where path like 's3://copies/%' order by step" | tail -n 1; }
events() { tern ledger sql --ledger ledger -r latest -n -P "select count(*) from event where kind = 'checkpoint' and text like '$1'"; }
last=step-00000008

# ---- copies
run tern run run.yaml --set steps=7
status 0 "training with a mirror in a bucket"
run tern run run.yaml; status 0
tern fetch s3://copies/tiny/$last/ --out got >fetched 2>&1; ok $? "the last checkpoint has its copy" || cat fetched
run tern ckpt verify got; status 0 "the copy is sound"
is "$(digest got/manifest.json)" "$(digest checkpoints/$last/manifest.json)" "the copy has the checkpoint's manifest"
is "$(rows ledger)" "8 verified" "the ledger has a row of the copy"
is "$(names | grep -c '^\.')" 0 "no mark of a half copy is left"
sent() { grep -E "PUT /copies/tiny/$1/" s3.log | tail -n 1; }
sent $last >last; has last manifest.json "the manifest is sent last"
puts=$(asked "PUT /copies/tiny/$last/")
run tern ckpt mirror tiny --ledger ledger; status 0 "tern ckpt mirror finds the copies"
is "$(asked "PUT /copies/tiny/$last/")" "$puts" "a complete copy is not sent again"

# ---- the folder is gone: the run goes on from the copy, as the same run
id=$(cat checkpoints/run.id); tiny_curve ledger >before.curve; cp -r checkpoints kept
rm -rf checkpoints
run tern run run.yaml --set steps=9
status 0 "a run goes on when its checkpoint.dir is gone"
err_has "comes back from s3://copies/tiny/$last"; err_has ', from step 8'
is "$(cat checkpoints/run.id)" "$id" "the run keeps its id"
is "$(events '%was brought back from s3://copies/tiny/%')" 1 "the ledger has where the checkpoint came from"
is "$(digest checkpoints/$last/manifest.json)" "$(digest kept/$last/manifest.json)" "the checkpoint is the copy's"
is "$(ls -A checkpoints | grep -c '\.back$')" 0 "nothing is left aside"
tern ckpt verify checkpoints/$last >/dev/null; ok $? "the checkpoint that came back verifies"

# ---- an interrupted copy is no copy, and goes on
nine=step-00000009
"$TOOLS/store-tool" rm s3://copies/tiny/$nine/manifest.json
echo "$id" | "$TOOLS/store-tool" put s3://copies/tiny/.$nine.$id.new
rm -rf checkpoints
run tern run run.yaml --set steps=9
status 0; err_has "comes back from s3://copies/tiny/$last" "a copy without its manifest is not complete"
is "$(names | grep -cE "^$nine/manifest.json|^\.$nine")" 1 "the next attempt completes it"
shard=$(names | grep "$nine/shard" | head -n 1)
"$TOOLS/store-tool" rm "s3://copies/tiny/$shard"
rm -rf checkpoints
run tern run run.yaml --set steps=9
status 0; err_has "passed over as a copy: s3://copies/tiny/$nine: only" "a copy without one of its files is passed over"
grep 'has no mirror' err; [ $? = 1 ]; ok $? "the run's new checkpoint of that step takes its place"
is "$(names | grep -cxF "$shard")" 1 "the new copy has all files"

# ---- a damaged copy gives way to an older one
rm -rf checkpoints
newest=$(names | grep manifest.json | sort | tail -n 1); newest=${newest%/*}; shard=$(names | grep "$newest/shard" | head -n 1)
"$TOOLS/store-tool" get "s3://copies/tiny/$shard" >shard; printf 'X' | dd of=shard bs=1 seek=$(($(stat -c %s shard) - 3)) conv=notrunc status=none
"$TOOLS/store-tool" put "s3://copies/tiny/$shard" <shard
run tern run run.yaml --set steps=9
status 0 "a damaged copy does not end the run"; err_has 'passed over as a copy'
tern ckpt verify checkpoints/latest >/dev/null; ok $? "an older copy came back instead"
grep 'has no mirror' err; [ $? = 1 ]; ok $? "the damaged copy gives way to the run's new checkpoint"
"$TOOLS/store-tool" get "s3://copies/tiny/$shard" >shard; cmp -s shard "checkpoints/$shard"; ok $? "the copy has the bytes of the checkpoint"
is "$(names | grep -c '\.bad$')" 0 "the mark of the damage goes with it"

# ---- half copies
echo "$id" | "$TOOLS/store-tool" put s3://copies/tiny/.step-00000001.$id.new
echo half | "$TOOLS/store-tool" put s3://copies/tiny/step-00000001/shard-00000-of-00001.safetensors
echo other | "$TOOLS/store-tool" put s3://copies/tiny/.step-00000002.01ARZ3NDEKTSV4RRFFQ69G5FAV.new
run tern run run.yaml --set steps=9; status 0
is "$(names | grep -c step-00000001)" 0 "a half copy that no process will finish goes"
is "$(names | grep -c '^\.step-00000002')" 1 "a half copy of another run stays"
run tern run run.yaml --set steps=10 --set checkpoint.keep=5; status 0
cat >kill.sh <<'S'
# the retention process is killed at its first file of a step, the manifest being the last
tern run run.yaml --set steps=11 & pid=$!
until grep -q "PUT /copies/tiny/step-00000011/" s3.log; do kill -0 $pid 2>/dev/null || break; sleep 0.01; done
kill -9 $pid; wait $pid
S
fault stall=1 'match=PUT./copies/tiny/step-00000011/(tok|shard)'
run timeout 600 bash kill.sh
fault_none
is "$(names | grep -c 'step-00000011/manifest')" 0 "a copy whose process was killed is not complete"
is "$(names | grep -c "^\.step-00000011.$id.new")" 1 "its mark is there"
rm -rf checkpoints
run tern run run.yaml --set steps=11; status 0; err_has 'comes back from s3://copies/tiny/step-00000010' "the way back takes the complete one before it"
is "$(names | grep -cE "^step-00000011/manifest|^\.step-00000011")" 1 "the next attempt makes the copy whole, and its mark goes"

# ---- a checkpoint whose bytes are not the manifest's gets no copy
names | grep step-00000011/ | while read -r n; do "$TOOLS/store-tool" rm "s3://copies/tiny/$n"; done
shard=$(ls checkpoints/step-00000011/shard-* | head -n 1); cp "$shard" shard.kept
printf X | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 3)) conv=notrunc status=none
run tern ckpt mirror tiny --ledger ledger; status 75 "a damaged checkpoint gets no copy"
is "$(names | grep -c step-00000011/)" 0 "nothing of it is sent"
cp shard.kept "$shard"
run tern ckpt mirror tiny --ledger ledger; status 0; out_has '1 copied to s3://copies/tiny' "a whole one does"

# ---- another checkpoint.dir begins another run; another recipe is refused
run tern run run.yaml --set checkpoint.dir=fresh --set steps=2
status 0 "a run with another checkpoint.dir begins anew"
[ "$(cat fresh/run.id)" != "$id" ]; ok $? "the new run has its own id"
grep -q 'comes back' err; [ $? = 1 ]; ok $? "the copies of the other run stay where they are"
# Another user's run: the same recipe and bucket, and nothing here that knows it.
run tern run run.yaml --set checkpoint.dir=theirs --set ledger.dir=theirs.ledger
status 2 "copies of a run that is not known here are not taken"; one_line; err_has "is of run $id, which neither "; err_has "add --accept"
[ -e theirs ]; [ $? = 1 ]; ok $? "no folder is made for it"
run tern run run.yaml --set checkpoint.dir=theirs --set ledger.dir=theirs.ledger --accept
status 0 "with --accept the run goes on, though folder and ledger are gone"
is "$(cat theirs/run.id)" "$id" "the run that goes on from a copy has its id"
rm -rf theirs theirs.ledger
rm -rf checkpoints
run tern run run.yaml --set optimizer.lr=2e-3
status 2 "a copy of another recipe is refused"
[ -e checkpoints ]; [ $? = 1 ]; ok $? "nothing is made for it"

# ---- a bucket that fails costs a warning and no training, once the run has begun
rm -rf ledger checkpoints
fault 503=100000 'match=copies.*else'
TERN_STORE_DEADLINE=2 run tern run run.yaml --set checkpoint.dir=c2 --set ledger.dir=ledger2 --set checkpoint.mirror=s3://copies/else --set steps=3
status 75 "a run does not begin while its bucket, which may have copies, fails"
err_has 'to begin anew, give another checkpoint.mirror'; [ ! -e c2 ]; ok $? "nothing is made for it"
fault_none
run tern run run.yaml --set checkpoint.dir=c2 --set ledger.dir=ledger2 --set checkpoint.mirror=other --set steps=2
status 0 "a run with another mirror begins anew, as the option says"
fault 503=100000 'match=copies.*else'
TERN_STORE_DEADLINE=2 run tern run run.yaml --set checkpoint.dir=c2 --set ledger.dir=ledger2 --set checkpoint.mirror=s3://copies/else --set steps=3
status 0 "a run that has checkpoints goes on with a bucket that fails"
err_has 'checkpoint.mirror'; err_has 'has no mirror'
is "$(tern ledger sql --ledger ledger2 -r latest -n -P "select count(*) > 0 from event where kind = 'checkpoint' and severity = 'warn' and text like '%has no mirror%'")" 1 "the ledger has why there is no copy"
fault_none
run tern ckpt mirror tiny --ledger ledger2; status 0 "tern ckpt mirror copies them when the bucket is back"
out_has 'copied to s3://copies/else'
is "$(names else | grep -c manifest.json)" "$(ls -d c2/step-* | wc -l)" "each checkpoint has its copy"
fault 503=100000 'match=copies.*else'
rm -rf c2
TERN_STORE_DEADLINE=2 run tern run run.yaml --set checkpoint.dir=c2 --set ledger.dir=ledger2 --set checkpoint.mirror=s3://copies/else --set steps=3
status 75 "a run whose only checkpoints lie in a bucket that fails does not begin anew"
err_has 'can be read from checkpoint.mirror'
fault_none

# ---- another user's objects
echo mine | "$TOOLS/store-tool" put s3://copies/taken/step-00000002/notes
run tern run run.yaml --set checkpoint.dir=c4 --set ledger.dir=ledger4 --set checkpoint.mirror=s3://copies/taken --set steps=2
status 0; err_has "1 object is there already and no copy of this run"
is "$(names taken | grep step-00000002)" step-00000002/notes "a copy leaves another user's objects alone"

# ---- an external trainer's
mkdir ext; cd ext || exit 1
printf 'version: 1\nname: ext\nledger: {dir: ledger}\nlaunch: {health: off}\ncheckpoint: {dir: run, mirror: "s3://copies/ext"}\nworkload: {command: [sh, -c, "mkdir -p ck/step_10/m; for f in 1 2 3; do echo $$f >ck/step_10/m/$$f; done; touch ck/step_10/done"], progress: {glob: ck/step_*, marker: done}}\n' >run.yaml
run tern run run.yaml; status 0 "an external trainer's checkpoints"
tern fetch s3://copies/ext/step_10/ --out got >fetched 2>&1; diff -r ck/step_10 got; ok $? "an external checkpoint has its copy, of all its files"
is "$(names ext | grep -c 'step_10.files.json')" 1 "the list of files completes an external checkpoint's copy"
run tern ckpt mirror ext --ledger ledger; status 0; out_has 'has its copy'
tap_done
