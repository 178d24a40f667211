#!/bin/bash
# Checkpoints that are written while training goes on: the same bits as those that it waits for; one at
# a time; waited for at every end; and a save that fails ends no run that has another one before it.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make

sql() { tern ledger sql --ledger "$1" -r latest -n -P "$2"; }
published() { sql "$1" "select step from checkpoint where state = 'published' order by step" | tr '\n' ' '; }

# ---- the same bits
long_sets() { long || [ "$1" != + ]; }
while read -r also ranks sets; do
    long_sets "$also" || continue
    opts=(); for s in $sets; do opts+=(--set "$s"); done
    for async in true false; do
        rm -rf "ck-$async"
        tern run run.yaml --ranks "$ranks" --set steps=5 --set checkpoint.every=2 --set checkpoint.keep=9 \
            --set "checkpoint.dir=ck-$async" --set checkpoint.async=$async "${opts[@]}" 2>err </dev/null || sed 's/^/# /' err
    done
    same=0 files=0
    for f in ck-true/step-*/*; do
        [ "${f##*/}" != manifest.json ] || continue
        files=$((files + 1)); cmp -s "$f" "ck-false/${f#ck-true/}" && same=$((same + 1))
    done
    [ $files -ge $((3 * (ranks + 1))) ] && [ $same = $files ]
    ok $? "$ranks ranks, ${sets:-as they are}: every file of a checkpoint has the bytes of one that training waited for" || echo "# $same of $files"
    arrays() { for s in "$1"/step-*; do tern ckpt show "$s" --json | grep '"sha256"'; done; }
    [ "$(arrays ck-true | wc -l)" -gt 9 ] && [ "$(arrays ck-true)" = "$(arrays ck-false)" ]
    ok $? "$ranks ranks, ${sets:-as they are}: so have the manifests their digests"
    tern ckpt verify --full ck-true >/dev/null 2>err; ok $? "$ranks ranks, ${sets:-as they are}: they verify" || cat err
done <<'L'
. 1
. 2 parallel.zero=1
+ 4 parallel.tensor=2 parallel.zero=1
+ 2 parallel.pipeline=2
. 2 precision=bf16 parallel.zero=1
+ 2 precision=bf16 parallel.tensor=2
. 2 lora.rank=4 lora.alpha=4
+ 2 lora.rank=4 lora.alpha=4 parallel.zero=1 precision=bf16
L
rm -rf ck-true ck-false checkpoints ledger

# ---- memory that is not there
(ulimit -v 4000000; run tern train run.yaml --set checkpoint.every=3; echo $rc >rc)
is "$(cat rc)" 0 "a run has memory for its staging"
rm -rf checkpoints
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "writers that are held: the sanitizer wants to be loaded first"
    tap_done; exit
fi

# ---- writers that are held, or have no room.  Of a shard whose path has $TEST_HELD, the writer waits
# while the file ./held is there; with $TEST_FULL in its path there is no room for it.
gcc -shared -fPIC -x c -o disk.so - <<'C'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int fallocate64(int fd, int mode, long from, long len)
{
    const char *held = getenv("TEST_HELD"), *full = getenv("TEST_FULL"), *file = getenv("TEST_FILE");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (!strstr(path, "/shard-"))
        return (int)syscall(SYS_fallocate, fd, mode, from, len);
    while (held && strstr(path, held) && access(file, F_OK) == 0)
        usleep(10000);
    if (full && strstr(path, full)) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, from, len);
}
C
export TEST_FILE=$WORK/held
steps_done() { sql "$1" "select coalesce(max(step), 0) from step where name = 'loss'"; }
reached() { [ "$(steps_done "$1")" -ge "$2" ]; }
begin() { # LEDGER ARGS...: in the background
    setsid env LD_PRELOAD="$WORK/disk.so" tern run run.yaml --ranks 2 --set ledger.dir="$@" 2>err >out </dev/null & pid=$!
}
ended() { wait $pid; rc=$? cmd="tern run"; }

# One rank's shard is held: steps go on, up to the next save.
: >held
TEST_HELD=step-00000005.tmp begin one --set steps=12 --set checkpoint.every=5 --set checkpoint.keep=9
until_true reached one 10
ok $? "training goes on while a checkpoint is written"
[ -d checkpoints/step-00000005.tmp-1 ] && [ ! -e checkpoints/step-00000005 ]; ok $? "nothing is published before every rank has written"
[ "$(steps_done one)" = 10 ] && [ "$(ls -d checkpoints/step-* | wc -l)" = 1 ]; ok $? "the next save waits: one is under way at a time"
is "$(published one)" "" "the ledger has no checkpoint that is not there"
rm held; ended; status 0 "then the run ends well"
is "$(published one)" "5 10 12 " "and has published each checkpoint"
tern ckpt verify --full checkpoints >/dev/null 2>err2; ok $? "which verify" || cat err2
is "$(sql one "select count(*) from step where step = 5 and name in ('checkpoint_bytes', 'checkpoint_bytes_per_second', 'checkpoint_write_seconds', 'checkpoint_copy_seconds', 'checkpoint_stall_seconds')")" 5 "bytes, rate and seconds of a save are values of its step"
awk -v w="$(sql one "select value from step where step = 5 and name = 'checkpoint_write_seconds'")" -v s="$(sql one "select value from step where step = 12 and name = 'checkpoint_copy_seconds'")" 'BEGIN {exit !(w > 0 && s == 0)}'
ok $? "the last checkpoint is copied nowhere"
was=$(for s in 5 10 12; do tern ckpt show "checkpoints/step-000000$(printf %02d $s)" --json | grep '"sha256"'; done)
rm -rf checkpoints
tern run run.yaml --ranks 2 --set ledger.dir=whole --set steps=12 --set checkpoint.every=5 --set checkpoint.keep=9 --set checkpoint.async=false >/dev/null 2>&1
is "$(for s in 5 10 12; do tern ckpt show "checkpoints/step-000000$(printf %02d $s)" --json | grep '"sha256"'; done)" "$was" "what was held has the content of its own step"
rm -rf checkpoints

# A stop waits for the save under way, too, and leaves its own checkpoint.
: >held
TEST_HELD=step-00000003.tmp begin two --set steps=100000 --set checkpoint.every=3 --set checkpoint.keep=9
until_true [ -d checkpoints/step-00000003.tmp-1 ]
kill -INT $pid
until_true grep -q 'passed on' err; rm held; ended
status 77 "Ctrl-C while a checkpoint is written"
last=$(sed -n 's/.*stopped after step \([0-9]*\) .*/\1/p' err | head -n 1)
[ -n "$last" ] && [ -d checkpoints/step-00000003 ] && [ -d "checkpoints/step-$(printf %08d "$last")" ]
ok $? "the one that was under way is there, and that of the last step"
tern ckpt verify --full checkpoints >/dev/null 2>err2; ok $? "a stop: both verify" || cat err2
ls checkpoints | grep -q tmp; [ $? = 1 ]; ok $? "nothing half-written stays"
rm -rf checkpoints

# kill -9 of a rank while a checkpoint is written: the one before it is there, and the run goes on from it.
: >held
TEST_HELD=step-00000004.tmp begin three --set steps=8 --set checkpoint.every=2 --set launch.restarts=0
until_true [ -d checkpoints/step-00000004.tmp-1 ]
kill -9 "$(pgrep -P $pid | head -1)"; rm held; ended
[ $rc != 0 ]; ok $? "a rank is killed while a checkpoint is written"
[ -d checkpoints/step-00000002 ] && tern ckpt verify --full checkpoints/latest >/dev/null 2>&1; ok $? "the checkpoint before it is whole"
run tern run run.yaml --ranks 2 --set ledger.dir=three --set steps=8 --set checkpoint.every=2
status 0 "the run goes on to its end"; err_has "going on after step"
ls checkpoints | grep -q tmp; [ $? = 1 ]; ok $? "no temporary folder of the killed attempt stays"
tiny_digests >weights

# A run that fails by itself while a checkpoint is written: that one is published first.
tern ckpt export checkpoints/latest -o bad >/dev/null 2>&1
printf '\0\0\300\177' | dd of=bad/model.safetensors bs=1 seek=$(($(stat -c %s bad/model.safetensors) - 4)) conv=notrunc 2>/dev/null
rm -rf checkpoints
: >held
TEST_HELD=step-00000002.tmp begin four --set model='{from: bad}' --set checkpoint.every=2 --set optimizer.guard.stop_after=3 --set launch.restarts=0
until_true reached four 3; rm held; ended
status 1 "a run that fails while a checkpoint is written"; err_has "no update in 3 steps in a row, up to step 3"
is "$(published four)" "2 " "that checkpoint is published all the same"
tern ckpt verify --full checkpoints/step-00000002 >/dev/null 2>err2; ok $? "and verifies" || cat err2
rm -rf checkpoints

# No room for one rank's shard of step 4.
for async in true false; do
    TEST_FULL=step-00000004.tmp-1/shard-00001 begin five-$async --set steps=8 --set checkpoint.every=2 --set checkpoint.keep=9 --set checkpoint.async=$async
    ended; status 0 "async $async: a checkpoint that cannot be written ends no run"
    grep -q 'warning: step 4 was not saved, and training goes on: rank 1: .*No space left on device' err; ok $? "async $async: it is told, with rank and cause" || cat err
    is "$(sql five-$async "select text from event where kind = 'save_failed'" | grep -c '^step 4 was not saved')" 1 "async $async: and in the ledger"
    is "$(published five-$async)" "2 6 8 " "async $async: the next checkpoint is tried, and published"
    is "$(ls checkpoints | grep -c '^step-')" 3 "async $async: nothing is left of the one that failed"
    tiny_digests | cmp -s - weights; ok $? "async $async: the last one has the weights of a run without a failure"
    rm -rf checkpoints
    TEST_FULL=step-00000008.tmp-1/shard-00001 begin six-$async --set steps=8 --set checkpoint.every=2 --set checkpoint.async=$async --set launch.restarts=0
    ended; status 75 "async $async: without room for the last checkpoint the run fails"
    is "$(ls checkpoints | grep '^step-' | tail -1)" step-00000006 "async $async: what was published before stays, and nothing else"
    rm -rf checkpoints
done
# Storage that takes no checkpoint at all ends the run, before it has computed much in vain.
for async in true false; do
    TEST_FULL=.tmp-1/shard-00001 begin seven-$async --set steps=1000 --set checkpoint.every=2 --set checkpoint.async=$async --set launch.restarts=0
    ended; status 75 "async $async: no checkpoint can be written"
    grep -q '3 checkpoints in a row were not saved: rank 1: .*No space left on device' err; ok $? "async $async: the third ends the run" || cat err
    is "$(sql seven-$async "select count(*) from event where kind = 'save_failed'")" 2 "async $async: the two before it are in the ledger"
    rm -rf checkpoints
done

# A batch without a target, which all ranks see, while a checkpoint is written: that is published.
awk 'BEGIN {srand(3); for (i = 0; i < 60; i++) {p = c = ""; for (k = 0; k < 16; k++) p = p "the cat sees "; for (k = 0; k < 20 + rand() * 20; k++) c = c "a dog runs "
    printf "{\"prompt\": \"%s\", \"completion\": \"%s\"}\n", p, c}}' >masked.jsonl
tern data build -t model --template completion -o data/masked.tds masked.jsonl >out 2>&1 || cat out
masked=(--set "data={train: [{path: data/masked.tds}], seed: 5}" --set 'batch={global: 2, micro: 1, seq_len: 32}' --set steps=500 --set launch.restarts=0)
tern run run.yaml --ranks 2 --set ledger.dir=find "${masked[@]}" --set checkpoint.every=0 >out 2>err
at=$(sed -n 's/.*step \([0-9]*\): no target in the whole batch.*/\1/p' err | head -n 1)
if [ "${at:-0}" -gt 2 ]; then
    rm -rf checkpoints
    : >held
    TEST_HELD=step-$(printf %08d $((at - 1))).tmp begin eight "${masked[@]}" --set checkpoint.every=$((at - 1)) --set checkpoint.keep=9
    until_true [ -d "checkpoints/step-$(printf %08d $((at - 1))).tmp-1" ]; sleep 0.5; rm held; ended
    status 2 "a batch without a target, at step $at"
    is "$(published eight)" "$((at - 1)) " "the checkpoint that was written then is published"
else
    ok 1 "a batch without a target (step '$at')" && tail -n 3 err
fi
tap_done
