#!/bin/bash
# The way back from checkpoint.mirror when copies there are damaged or cannot be read: an older one, or none and no new beginning.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/mirror.sh"
train() { tern run run.yaml --set steps="$1" "${@:2}"; }
for n in 2 3 4; do run train $n; status 0 "a run makes copies, $n steps"; done
id=$(cat checkpoints/run.id)
mv checkpoints kept

# ---- no manifest can be read
fault 403=1000 'match=GET./copies/tiny/step-.*manifest'
run train 5; status 2 "a run whose copies cannot be read does not begin anew"
fault_none
err_has "run $id has no good checkpoint in "; err_has 'any more, and no copy of it can be read from checkpoint.mirror' "the message has the run and the mirror"; err_has 's3://copies/tiny: no copy there can be used, of 4; the newest: '
[ ! -e checkpoints ]; ok $? "no folder is made for a run that cannot begin"

# ---- one wrong bit in a manifest, on its way
fault flip=1 'match=GET./copies/tiny/step-00000004/manifest'
run train 4; status 0; fault_none
err_has 'comes back from s3://copies/tiny/step-00000004' "a manifest with one wrong bit is read again"
grep 'passed over' err; [ $? = 1 ]; ok $? "the checkpoint's copy is not passed over"

# ---- an object that has rotted at the server, under the ETag of its right bytes
rm -rf checkpoints; shard=$(names | grep '^step-00000004/shard' | head -n 1)
fault flip=1000 "match=GET./copies/tiny/$shard"; before=$(asked "PUT /copies/tiny/$shard")
TERN_STORE_DEADLINE=10 run train 4; status 0 "an object that is not what its ETag says is passed over"; fault_none
err_has 'passed over as a copy'; err_has 'comes back from s3://copies/tiny/step-00000003' "the older copy comes back"
is "$(names | grep -c 'step-00000004/manifest.json$')" 1 "the run's new checkpoint takes the damaged copy's place"
[ "$(asked "PUT /copies/tiny/$shard")" -gt "$before" ]; ok $? "its files are sent, though the server lists their ETags"

# ---- a server that fails when a damaged copy is marked, and a signal
"$TOOLS/store-tool" get "s3://copies/tiny/$shard" >whole; tr a b <whole >other; cmp -s whole other && printf X | dd of=other bs=1 seek=$(($(stat -c %s other) - 3)) conv=notrunc status=none
"$TOOLS/store-tool" put "s3://copies/tiny/$shard" <other
rm -rf checkpoints
fault 503=1000 'match=PUT./copies/tiny/step-00000004/.*bad'
before=$(asked 'PUT /copies/tiny/step-00000004/.*bad')
tern run run.yaml --set steps=6 >out 2>err & pid=$!
until_true sh -c "[ \$(grep -c 'PUT /copies/tiny/step-00000004/.*bad' s3.log) -gt $before ]"; kill -TERM $pid; wait $pid
is $? 76 "a signal ends the wait for a server that fails while a damaged copy is marked"; fault_none
err_has 'is not marked as damaged'
is "$(ls -d checkpoints/step-????????)" checkpoints/step-00000003 "the older copy is there"

# ---- a folder
rm -rf checkpoints
run train 2 --set checkpoint.dir=f --set checkpoint.mirror=copies --set ledger.dir=ledger.f; status 0 "a run with copies in a folder"
for f in copies/step-*/shard-*; do truncate -s -1 "$f"; done
rm -rf f
run train 3 --set checkpoint.dir=f --set checkpoint.mirror=copies --set ledger.dir=ledger.f; status 2 "a run whose copies in a folder are all damaged does not begin anew"
err_has 'copies: no copy there can be used, of '; [ ! -e f ]; ok $? "no folder is made for it"
tap_done
