#!/bin/bash
# Copies in checkpoint.mirror: each has its row in the ledger, is read no more than once, holds nothing of an older one, and
# leaves no half folder.  What a bucket's policy must allow is what the programs ask for.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/mirror.sh"
train() { tern run run.yaml --set steps="$1" "${@:2}"; }
rows() { tern ledger sql --ledger "${2-ledger}" -r latest -n -P "select count(*) from checkpoint where path like '$1' and state = 'verified'" | tail -n 1; }
# Run the rest, killed at the first request that $1 matches, which the server does not serve.
killed_at() {
    local before pid
    before=$(asked "$1"); fault 503=1000 "match=$1"
    "${@:2}" >out 2>err & pid=$!
    until_true sh -c "[ \$(grep -cE '$1' s3.log) -gt $before ]"; kill -9 $pid; wait $pid 2>/dev/null; fault_none
}

# ---- killed when the copy is complete, before its row
run train 2; status 0
killed_at 'DELETE /copies/tiny/[.]step-00000003' tern run run.yaml --set steps=3
is "$(names | grep -c 'step-00000003/manifest')" 1 "the copy is complete"
is "$(rows 's3://copies/tiny/step-00000003')" 0 "the killed process added no row for the copy"
run train 3; status 0
is "$(rows 's3://copies/tiny/step-00000003')" 1 "the next process adds the row"
is "$(names | grep -c '^\.')" 0 "the next process removes the mark"
cp -r checkpoints copied; rm copied/claim* copied/run.id copied/after.json 2>/dev/null
run train 3 --set checkpoint.mirror=copied; status 0
is "$(rows '%/copied/step-00000003')" 1 "so it does for a copy in a folder"

# ---- a complete copy: its checkpoint is not read again
run train 3; status 0
shard=$(ls checkpoints/step-00000003/shard-* | head -n 1); cp "$shard" shard.kept
printf XYZ | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 9)) conv=notrunc status=none
run tern ckpt mirror tiny --ledger ledger; status 0 "a checkpoint that has its copy is not verified for another"
cp shard.kept "$shard"

# ---- a copy that gives way leaves nothing
"$TOOLS/store-tool" rm "s3://copies/tiny/step-00000003/${shard##*/}"
echo old | "$TOOLS/store-tool" put s3://copies/tiny/step-00000003/shard-00007-of-00008.safetensors
rm -rf checkpoints
mkdir -p checkpoints/.step-00000002.01ARZ3NDEKTSV4RRFFQ69G5FAV.back && echo half >checkpoints/.step-00000002.01ARZ3NDEKTSV4RRFFQ69G5FAV.back/shard
run train 3; status 0; err_has 'comes back from s3://copies/tiny/step-00000002'
is "$(names | grep -c 'step-00000003/shard-00007')" 0 "files that the new copy lacks are gone"
is "$(names | grep -cF "step-00000003/${shard##*/}")" 1 "the new copy's own files are there"

# ---- what an interrupted way back has left goes when the run has its checkpoints
mkdir checkpoints/.step-00000002.01ARZ3NDEKTSV4RRFFQ69G5FAV.back && echo half >checkpoints/.step-00000002.01ARZ3NDEKTSV4RRFFQ69G5FAV.back/shard
run train 4; status 0
is "$(ls -A checkpoints | grep -c '\.back$')" 0 "a half folder of an interrupted way back is removed"

# ---- no room for the way back
rm -rf checkpoints; mkdir checkpoints
if unshare -rm mount -t tmpfs -o size=64k none checkpoints 2>/dev/null; then
    run unshare -rm sh -c "mount -t tmpfs -o size=64k none checkpoints && { tern run run.yaml --set steps=5 --restarts 0; rc=\$?; find checkpoints -name 'shard*' >left; exit \$rc; }"
    status 75 "a copy that does not fit is not begun"
    err_has 'MiB, and '; is "$(wc -l <left)" 0 "nothing of it is written"
else
    ok 0 "no room for the way back # SKIP no user namespaces"
fi

# ---- a wrong bit on the way from a folder
rm -rf checkpoints
shard=$(ls copied/step-00000003/shard-* | head -n 1)
if strace -qq -o /dev/null -P "$shard" -e trace=pread64 -e inject=pread64:poke_exit=@arg2=00:when=1 true 2>/dev/null; then
    n=$(strace -f -qq -P "$PWD/$shard" -e trace=pread64 tern ckpt verify --full copied/step-00000003 2>&1 | grep -c pread64)
    run env ASAN_OPTIONS=detect_leaks=0 LSAN_OPTIONS=detect_leaks=0 strace -f -qq -o /dev/null -P "$PWD/$shard" -e trace=pread64 -e "inject=pread64:poke_exit=@arg2=55555555:when=$n" \
        tern run run.yaml --set steps=3 --set checkpoint.mirror=copied
    status 0; err_has "comes back from $PWD/copied/step-00000003" "a folder's copy with one wrong bit on the way comes back"
    grep 'passed over' err; [ $? = 1 ]; ok $? "a copy with one wrong bit is read again"
    is "$(ls copied | grep -c bad)" 0 "a copy that was read again is not marked as damaged"
else
    ok 0 "a wrong bit on the way from a folder # SKIP no strace that changes memory"
fi

# ---- what is asked of the server, and what the page says
mkdir ext; cd ext || exit 1
cat >run.yaml <<'Y'
version: 1
name: ext
ledger: {dir: ledger}
launch: {health: off}
checkpoint: {dir: run, mirror: "s3://copies/ext"}
workload: {command: [sh, -c, "d=ck/step_$(cat ../n); [ -e $d/done ] || { mkdir -p $d; head -c 20000000 /dev/zero >$d/big; touch $d/done; }"], progress: {glob: ck/step_*, marker: done}}
Y
ln -s ../s3.log s3.log
echo 10 >../n; killed_at 'PUT /copies/ext/step_10/big.*partNumber=2' tern run run.yaml
run tern run run.yaml; status 0 "an upload in parts goes on after kill -9"
echo 20 >../n; killed_at 'PUT /copies/ext/step_20/big.*partNumber=2' tern run run.yaml
rm -rf ck/step_20; echo 10 >../n
run tern run run.yaml; status 0 "a half upload without its checkpoint"
is "$(names ext | grep -c step_20)" 0 "a half upload without its checkpoint is removed"
cd .. || exit 1
tern help checkpoint >page
sed -nE -e 's/^GET \S*[?&]uploads.*/ListBucketMultipartUploads/p;t' -e 's/^GET \S*[?&]uploadId=.*/ListMultipartUploadParts/p;t' -e 's/^DELETE \S*[?&]uploadId=.*/AbortMultipartUpload/p;t' \
    -e 's/^GET \S*list-type.*/ListBucket/p;t' -e 's/^(GET|HEAD) .*/GetObject/p;t' -e 's/^(PUT|POST) .*/PutObject/p;t' -e 's/^DELETE .*/DeleteObject/p' s3.log | grep -v /_ | sort -u >asked
grep -oE 's3:[A-Z][A-Za-z]+' page | cut -c4- | sort -u >allowed
is "$(paste -sd' ' allowed)" "$(paste -sd' ' asked)" "the page on checkpoints names the actions that are asked for, and no others"
tap_done
