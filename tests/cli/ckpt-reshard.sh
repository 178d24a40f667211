#!/bin/bash
# tern ckpt reshard: a run's checkpoint in another number of files, with which the run goes on.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make 2>/dev/null || echo "Bail out! no setting"

tern run run.yaml --ranks 2 --set parallel.zero=1 2>/dev/null; tiny_digests >whole
run tern ckpt reshard checkpoints/step-00000007 -o archive --shards 5; status 0
is "$(cat out)" archive/step-00000007 "the new checkpoint's path is printed"
err_has 'in 5 shards'
is "$(ls archive/step-00000007/*.safetensors | wc -l)" 5 "there are as many files as were asked for"
run tern ckpt verify --full archive/latest; status 0 "every byte of the new checkpoint verifies"
run tern ckpt diff --full checkpoints/step-00000007 archive/latest; status 0 "diff finds no difference to the source"
for f in config.json tokenizer.model; do cmp -s checkpoints/step-00000007/$f archive/step-00000007/$f; ok $? "$f comes with it"; done
run tern ckpt reshard archive/latest -o one; status 0 "ckpt reshard writes one file by default"; err_has 'in 1 shard'
run tern ckpt diff --full checkpoints/step-00000007 one/latest; status 0 "diff finds no difference after two calls"

# The run goes on from it, on another layout, to the same bits as from its own.
mv checkpoints kept; cp -r archive checkpoints; cp kept/run.id checkpoints
run tern run run.yaml --ranks 2 --set parallel.zero=1; status 0 "a run goes on from a checkpoint that was dealt anew"
err_has 'going on after step 7 '
tern ckpt reshard checkpoints/latest -o again --shards 2 >/dev/null 2>&1
tern ckpt reshard kept/latest -o again-kept --shards 2 >/dev/null 2>&1
tiny_digests | cmp -s - whole && [ -s whole ]; ok $? "the step behind it is the run's own, to the last bit"
run tern ckpt diff --full again/latest again-kept/latest; status 0 "the weights and moments are those of the run itself, to the last bit"

# What is refused leaves nothing, and what is there stays.
refused() { # STATUS WORDS ARGUMENT...
    local want=$1 words=$2; shift 2
    run tern ckpt reshard "$@"; status "$want"; one_line; err_has "$words"
    is "$(ls -d refused/* 2>/dev/null)" "" "reshard $*: leaves nothing"
}
refused 2 '--out: say in which folder' kept/latest
refused 2 '--shards: must be 1 to 65536' kept/latest -o refused --shards 0
refused 2 '--shards: must be 1 to 65536' kept/latest -o refused --shards 65537
refused 2 'model: is no checkpoint: it has no manifest.json' model -o refused
refused 2 'nowhere' nowhere -o refused
run tern ckpt reshard kept/latest -o archive; status 0
run tern ckpt reshard kept/latest -o archive; status 1 "a step that is there is not written over"; one_line; err_has 'already exists'
run tern ckpt reshard kept/latest -o kept; status 2 "a run's folder is left to the run"; one_line; err_has 'Choose another folder'
refused 2 '--out: say in which folder' kept/latest -o ''
mkdir busy; flock -F busy sleep 30 & busy=$!; until_true sh -c '! flock -n busy true'
run tern ckpt reshard kept/latest -o busy; status 75 "two calls do not write into one folder at once"; one_line; err_has 'another tern ckpt reshard'
kill $busy; is "$(ls busy)" "" "the call that came second leaves nothing"
ln -s busy link; run tern ckpt reshard kept/latest -o link; status 0 "a link to a folder is that folder"; [ -d busy/step-00000008 ]; ok $? "the checkpoint is where the link leads"
run tern ckpt verify --full kept; status 0 "the step that was there is whole"
cp -r kept/step-00000007 step-00000007
shard=$(ls step-00000007/shard-* | head -n 1)
printf '\377' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 100)) conv=notrunc 2>/dev/null
refused 2 'does not match its digest' step-00000007 -o refused --shards 3
truncate -s -1 "$shard"; refused 2 'the manifest says' step-00000007 -o refused
if strace -o /dev/null true 2>/dev/null; then
    stopped() { run env ASAN_OPTIONS=detect_leaks=0 strace -f -o /dev/null "$@" tern ckpt reshard kept/latest -o refused --shards 4; }
    stopped -e trace=fsync -e inject=fsync:signal=INT:when=2; status 130 "Ctrl-C: exit status 130"
    is "$(ls -d refused/* 2>/dev/null)" "" "Ctrl-C leaves nothing"
    stopped -e trace=fallocate -e inject=fallocate:error=ENOSPC:when=2; [ "$rc" != 0 ]; ok $? "a full disk is an error"
    err_has 'No space left on device'
    is "$(ls -d refused/* 2>/dev/null)" "" "a full disk leaves nothing"
    stopped -e trace=fsync -e inject=fsync:error=EIO:when=2; [ "$rc" != 0 ]; ok $? "bytes that cannot be made durable are an error"
    is "$(ls -d refused/* 2>/dev/null)" "" "bytes that cannot be made durable leave nothing"
    stopped -e trace=fsync -e inject=fsync:signal=KILL:when=2
    run tern ckpt ls refused; status 0; grep -q unfinished out && ! grep -q good out; ok $? "kill -9: no reader takes what is there for a checkpoint"
    run tern ckpt reshard kept/latest -o refused --shards 4; status 0 "after kill -9 the same command makes it"
    is "$(ls refused)" step-00000008 "after kill -9 nothing else is left"
else
    skip "strace may not trace here"
fi
tap_done
