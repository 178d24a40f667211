#!/bin/bash
# The way back from checkpoint.mirror: s3://... when the network, the server or a signal comes in between.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/mirror.sh"
train() { tern run run.yaml --set steps="$1" "${@:2}"; }
run train 3; status 0 "a run with copies in a bucket"
run train 4; status 0
id=$(cat checkpoints/run.id) newest=step-00000004
shard=$(names | grep "^$newest/shard" | head -n 1)

# ---- a bit that is wrong on its way: the object is of one part, and its ETag is no MD5 of contents
"$TOOLS/store-tool" get "s3://copies/tiny/$shard" >whole
"$TOOLS/store-tool" parts "s3://copies/tiny/$shard" <whole
rm -rf checkpoints
fault flip=1 "match=GET./copies/tiny/$newest/shard"
run train 5; status 0 "one wrong bit on the way is no damage"
fault_none
err_has ', from step 4' "the newest copy came back"
grep 'passed over' err; [ $? = 1 ]; ok $? "a copy with one wrong bit on the way is not passed over"
is "$(names | grep -c '\.bad$')" 0 "no copy is marked as damaged"

# ---- one manifest that cannot be read
rm -rf checkpoints
newest=$(names | grep manifest.json | sort | tail -n 1); newest=${newest%/*}
fault 403=100 "match=GET./copies/tiny/$newest/manifest"
run train 5; status 0 "a manifest that cannot be read does not end the search"
fault_none
err_has 'passed over as a copy: s3://copies/tiny'; err_has 'comes back from s3://copies/tiny/step-'

# ---- local checkpoints of the right sizes and wrong bytes
run train 6; status 0
for s in checkpoints/step-*; do
    f=$(ls "$s"/shard-* | head -n 1)
    printf XYZ | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") - 9)) conv=notrunc status=none
done
run train 6 --restarts 0; status 75 "all local checkpoints are damaged: the attempt ends for a reason outside the run"
err_has 'takes the newest copy in checkpoint.mirror'
run train 6; status 0 "the next attempt takes the copy"; err_has 'comes back from s3://copies/tiny/step-'

# ---- a server that does not answer, and a signal
rm -rf checkpoints
fault stall=1000 'match=GET./copies'
before=$(asked 'GET /copies')
tern run run.yaml --set steps=7 >out 2>err & pid=$!
until_true sh -c "[ \$(grep -c 'GET /copies' s3.log) -gt $before ]"
kill -TERM $pid; wait $pid; is $? 75 "a signal ends the look for copies at a server that does not answer"
err_has 'a signal came while copies were looked for'
[ ! -e checkpoints ]; ok $? "nothing is made"
fault_none

# ---- a signal, and kill -9, while a copy comes back
fault stall=1000 'match=GET./copies/tiny/step-.*/shard'
tern run run.yaml --set steps=7 >out 2>err & pid=$!
until_true grep -q 'comes back from' err; kill -TERM $pid; wait $pid
is $? 76 "a signal ends the way back, and the run is to be continued"
err_has 'a signal came while s3://copies/tiny/step-'
is "$(tern ledger sql --ledger ledger -r latest -n -P 'select outcome from attempt order by attempt desc limit 1' | tail -n 1)" stopped "the ledger has the attempt as stopped"
is "$(ls -d checkpoints/step-* 2>/dev/null | wc -l)" 0 "nothing half has a checkpoint's name"
rm err # the next run empties it only when it begins
tern run run.yaml --set steps=7 >out 2>err & pid=$!
until_true grep -q 'comes back from' err; kill -9 $pid; wait $pid 2>/dev/null
fault_none
is "$(ls -d checkpoints/step-* 2>/dev/null | wc -l)" 0 "kill -9 in a restore leaves no half checkpoint under its name"
run train 7; status 0 "the next attempt goes on"; err_has 'comes back from s3://copies/tiny/step-'
is "$(cat checkpoints/run.id)" "$id" "the restored run keeps its id"
is "$(ls -A checkpoints | grep -c '\.back$')" 0 "nothing is left aside"
tap_done
