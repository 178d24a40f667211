#!/bin/bash
# Checkpoints that are written while training goes on: the same bits as those that it waits for; one at
# a time; waited for at every end; and a save that fails ends no run that has another one before it.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/saves.sh"
tiny_make

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
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "memory that is not there: the sanitizer takes more addresses than that"
else
    # Addresses that a run takes without a staging depend on the machine: its cores, its BLAS.
    within() { (ulimit -v "$1"; run tern train run.yaml --set checkpoint.every=3 --set steps=4 --set checkpoint.dir="ck-$1" --set checkpoint.async="$2"; echo $rc >rc); [ "$(cat rc)" = 0 ]; }
    kib=4000000; until within $kib false || [ $kib -gt 1000000000 ]; do kib=$((2 * kib)); done
    within $((kib + kib / 2)) true; ok $? "a run has memory for its staging" || sed 's/^/# /' err
    ! grep -q 'no memory for' err; ok $? "a run that has half as many addresses again is not refused its staging" || sed 's/^/# /' err
    rm -rf ck-*
fi
rm -rf checkpoints
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "writers that are held: the sanitizer wants to be loaded first"
    tap_done; exit
fi

# ---- writers that are held, or have no room
saves_make
# The shards are held: steps go on, up to the next save.
hold 5
TEST_FOLDS=1 begin one --set steps=12 --set checkpoint.every=5 --set checkpoint.keep=9
until_true reached one 10
ok $? "training goes on while a checkpoint is written"
folder_made() { [ -d checkpoints/step-00000005.tmp-1 ]; } # by the thread that writes, which may be late
until_true folder_made && [ ! -e checkpoints/step-00000005 ]; ok $? "nothing is published before every rank has written" || { ls checkpoints; cat err; }
[ "$(steps_done one)" = 10 ] && [ "$(ls -d checkpoints/step-* | wc -l)" = 1 ]; ok $? "the next save waits: one is under way at a time"
is "$(published one)" "" "the ledger has no checkpoint that is not there"
let_go; ended; status 0 "the run with slow storage ends well"
is "$(published one)" "5 10 12 " "the run has published each checkpoint"
n=$(nice)
is "$(head -n 1 folds) $(tail -n 1 folds)" "$((n < 9 ? n + 10 : 19)) $n" "a fold of the ledger beside training goes behind it, the last one does not"
tern ckpt verify --full checkpoints >/dev/null 2>err2; ok $? "the published checkpoints verify" || cat err2
is "$(sql one "select count(*) from step where step = 5 and name in ('checkpoint_bytes', 'checkpoint_bytes_per_second', 'checkpoint_write_seconds', 'checkpoint_copy_seconds', 'checkpoint_stall_seconds')")" 5 "bytes, rate and seconds of a save are values of its step"
value() { sql one "select value from step where step = $1 and name = 'checkpoint_$2'"; }
sense() { # STEP CONDITION: of b(ytes), r(ate), w(ritten), c(opied), s(tall)
    awk -v b="$(value $1 bytes)" -v r="$(value $1 bytes_per_second)" -v w="$(value $1 write_seconds)" \
        -v c="$(value $1 copy_seconds)" -v s="$(value $1 stall_seconds)" "BEGIN {exit !($2)}" ||
        { echo "# step $1: $(sql one "select name, value from step where step = $1 and name like 'checkpoint%'" | tr '\n' ' ')"; return 1; }
}
for s in 5 10 12; do
    sense $s "b == $(cat checkpoints/step-000000$(printf %02d $s)/* | wc -c)"; ok $? "step $s: the bytes of a save are those of its files"
    sense $s 'w > 0 && r > 0 && (r * w - b) ^ 2 < (b * 1e-6) ^ 2'; ok $? "step $s: its rate is its bytes by the seconds that it was written"
    sense $s 's > 0 && c >= 0 && s >= c'; ok $? "step $s: training stood still at least for the copy"
    is "$(sql one "select bytes from checkpoint where step = $s")" "$(value $s bytes | sed 's/\.0*$//')" "step $s: the checkpoint's row has the same bytes"
done
sense 5 'c > 0'; ok $? "a save beside training is copied"
sense 12 'c == 0 && s >= w'; ok $? "the last checkpoint is copied nowhere, and waited for"
was=$(for s in 5 10 12; do tern ckpt show "checkpoints/step-000000$(printf %02d $s)" --json | grep '"sha256"'; done)
rm -rf checkpoints
tern run run.yaml --ranks 2 --set ledger.dir=whole --set steps=12 --set checkpoint.every=5 --set checkpoint.keep=9 --set checkpoint.async=false >/dev/null 2>&1
is "$(for s in 5 10 12; do tern ckpt show "checkpoints/step-000000$(printf %02d $s)" --json | grep '"sha256"'; done)" "$was" "what was held has the content of its own step"
rm -rf checkpoints

# A step waits for the copy alone: what a save does with folders, and its row's way to the disk, is other
# threads'.  (The save of step 12, the last, is waited for.)
if strace -qq -o /dev/null -e trace=none true 2>/dev/null; then
    mkdir trace
    strace -ff -y -o trace/t -e trace=execve,mkdir,renameat2,fsync,fdatasync,unlink,unlinkat,rmdir,openat,newfstatat,getdents64,statfs \
        tern run run.yaml --ranks 1 --set ledger.dir=traced --set steps=12 --set checkpoint.every=3 >out 2>err </dev/null
    main=$(grep -l 'execve("[^"]*/tern-train"' trace/t.*)
    sed -n '/execve("[^"]*\/tern-train"/,/step-00000012/p' "$main" >main
    is "$(grep -c 'step-00000012' main)" 1 "the last save is the training thread's" || ls trace
    is "$(grep -c 'step-0000000[369]\|fdatasync(\|\.trash-' main)" 0 "no other save has the training thread look at a folder, remove one or sync" || grep 'step-0000000[369]\|fdatasync(\|\.trash-' main | sed 's/^/# /'
    is "$(cat trace/t.* | grep -c 'renameat2(.*\.tmp-1".*/step-0000000[369]".* = 0')" 3 "their names were put in place by others"
    is "$(ls checkpoints | grep -c '^step')" 2 "old checkpoints were removed"
    rm -rf checkpoints trace
else
    skip "the calls of the training thread: strace may not trace here"
fi

# A stop waits for the save under way, too, and leaves its own checkpoint.
hold 3
begin two --set steps=100000 --set checkpoint.every=3 --set checkpoint.keep=9
until_true [ -d checkpoints/step-00000003.tmp-1 ]
kill -INT $pid
until_true grep -q 'passed on' err; let_go; ended
status 77 "Ctrl-C while a checkpoint is written"
last=$(sed -n 's/.*stopped after step \([0-9]*\) .*/\1/p' err | head -n 1)
[ -n "$last" ] && [ -d checkpoints/step-00000003 ] && [ -d "checkpoints/step-$(printf %08d "$last")" ]
ok $? "the one that was under way is there, and that of the last step"
tern ckpt verify --full checkpoints >/dev/null 2>err2; ok $? "a stop: both verify" || cat err2
ls checkpoints | grep -q tmp; [ $? = 1 ]; ok $? "nothing half-written stays"
rm -rf checkpoints

# kill -9 of a rank while a checkpoint is written: the one before it is there, and the run goes on from it.
hold 4
begin three --set steps=8 --set checkpoint.every=2 --set launch.restarts=0
until_true [ -d checkpoints/step-00000004.tmp-1 ]
kill -9 "$(pgrep -P $pid | head -1)"; let_go; ended
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
hold 2
begin four --set model='{from: bad}' --set checkpoint.every=2 --set optimizer.guard.stop_after=3 --set launch.restarts=0
until_true reached four 3; let_go; ended
status 1 "a run that fails while a checkpoint is written"; err_has "no update in 3 steps in a row, up to step 3"
is "$(published four)" "2 " "a run that fails publishes its checkpoint all the same"
tern ckpt verify --full checkpoints/step-00000002 >/dev/null 2>err2; ok $? "the checkpoint of a run that fails meanwhile verifies" || cat err2
rm -rf checkpoints

# The best evaluation so far is of step 5 as step 8 is saved, and of step 10 before that save has ended:
# what step 8 calls the best is kept as long as step 8 is the newest.
rm -rf checkpoints
best=(--set 'evaluate={every: 5, stop: {metric: held, patience: 9}}' --set checkpoint.every=2 --set steps=14 --set launch.restarts=0)
hold 8; hold 10
begin best "${best[@]}"
until_true eval "[ \"\$(sql best 'select max(step) from eval')\" = 10 ]"; ok $? "a later step is evaluated while a checkpoint is written"
rm held-00000008
until_true [ -d checkpoints/step-00000010.tmp-1 ]; ok $? "the next save begins"
is "$(ls checkpoints | grep '^step-.*[0-9]$' | grep -v tmp | tr '\n' ' ')" "step-00000004 step-00000006 step-00000008 " "the newest two stay, and the best that the newest knows"
kill -9 $pid; until_true sh -c "! pgrep -r DRST -s $pid"; ended; let_go
run tern ckpt show checkpoints/best; status 0 "after kill -9 the best checkpoint is there"; out_has "step 4," "the best checkpoint is the newest at the best evaluation"
run tern run run.yaml --ranks 2 --set ledger.dir=best "${best[@]}"; status 0 "a killed run with a best checkpoint goes on"
is "$(ls checkpoints | grep -c tmp)" 0 "a killed run leaves nothing half-written"
rm -rf checkpoints

# One rank has no memory for the copy: none uses one, and training waits for its checkpoints.
TEST_NO_STAGING=1 begin small --set steps=6 --set checkpoint.every=2 --set checkpoint.keep=9
ended; status 0 "one rank has no memory for the copy of a checkpoint"
grep -q 'warning: no memory for [0-9.]* [KMG]iB of a save.s staging: Cannot allocate memory' err; ok $? "no memory for the copy: the rank says how much it wanted" || cat err
is "$(grep -c 'warning: training waits for each checkpoint, as if checkpoint.async were false' err)" 1 "no memory for the copy: one rank says what follows"
is "$(published small)" "2 4 6 " "no memory for the copy: each checkpoint is published"
is "$(sql small "select count(*) from step where name = 'checkpoint_copy_seconds' and value = 0")" 3 "no memory for the copy: nothing is copied, on any rank"
rm -rf checkpoints

# No room for one rank's shard of step 4.
for async in true false; do
    TEST_FULL=step-00000004.tmp-1/shard-00001 begin five-$async --set steps=8 --set checkpoint.every=2 --set checkpoint.keep=9 --set checkpoint.async=$async
    ended; status 0 "async $async: a checkpoint that cannot be written ends no run"
    grep -q 'warning: step 4 was not saved, and training goes on: rank 1: .*No space left on device' err; ok $? "async $async: the failed save is reported, with rank and cause" || cat err
    is "$(sql five-$async "select text from event where kind = 'save_failed'" | grep -c '^step 4 was not saved')" 1 "async $async: the ledger has the failed save"
    is "$(published five-$async)" "2 6 8 " "async $async: the next checkpoint is tried, and published"
    is "$(ls checkpoints | grep -c '^step-')" 3 "async $async: nothing is left of the one that failed"
    tiny_digests | cmp -s - weights; ok $? "async $async: the last one has the weights of a run without a failure"
    rm -rf checkpoints
    TEST_FULL=step-00000008.tmp-1/shard-00001 begin six-$async --set steps=8 --set checkpoint.every=2 --set checkpoint.async=$async --set launch.restarts=0
    ended; status 75 "async $async: without room for the last checkpoint the run fails"
    is "$(ls checkpoints | grep '^step-' | tail -1)" step-00000006 "async $async: what was published before stays, and nothing else"
    rm -rf checkpoints
done
# Every other save fails at another call: training goes on after each.
fails_at() { # FIRST SECOND ASYNC: errors of the calls in turn
    local e=$1 f=$2 async=$3 d=step-000000 n failed list
    n=errors-$e-$async
    TEST_FAILS=write:$e:${d}04.tmp-1/shard-00001,fsync:$f:${d}08.tmp-1/shard-00000,mkdir:$e:${d}12.tmp-1,write:$f:${d}16.tmp-1/manifest.json,rename:$e:/${d}20,fsync:$e:${d}24.tmp-1$ \
        begin "$n" --set steps=26 --set checkpoint.every=2 --set checkpoint.keep=99 --set checkpoint.async="$async"
    ended; status 0 "$e and $f in turn, async $async: checkpoints that cannot be written end no run"
    is "$(published "$n")" "2 6 10 14 18 22 26 " "$e and $f in turn, async $async: each save behind a failed one is published"
    failed=$(sql "$n" "select text from event where kind = 'save_failed'")
    list=$(echo "$failed" | sed -n 's/^step \([0-9]*\) was not saved.*: \(Input\/output error\|No space left on device\).*/\1 \2/p')
    is "$(echo "$list" | sed 's/Input.*/EIO/; s/No space.*/ENOSPC/' | tr '\n' ' ')" "4 $e 8 $f 12 $e 16 $f 20 $e 24 $e " "$e and $f in turn, async $async: the ledger has each failed save and its cause" || echo "$failed" | sed 's/^/# /'
    run tern ckpt verify --full checkpoints; status 0 "$e and $f in turn, async $async: what is published has the bytes that it should"
    is "$(ls -A checkpoints | grep -c '^step-') $(ls -A checkpoints | grep -c -e tmp -e trash)" "7 0" "$e and $f in turn, async $async: nothing is left of saves that failed" || ls -A checkpoints
    tiny_digests >of-errors; rm -rf checkpoints
}
fails_at EIO ENOSPC true
if long; then
    tern run run.yaml --ranks 2 --set ledger.dir=whole --set steps=26 --set checkpoint.every=0 >out 2>err
    tiny_digests >of-whole; rm -rf checkpoints
    cmp -s of-errors of-whole; ok $? "after six failed saves the last one has the weights of a run without a failure"
    for async in true false; do fails_at ENOSPC EIO $async; done
    fails_at EIO ENOSPC false
fi
# Storage that takes no checkpoint at all ends the run, before it has computed much in vain.
for async in true $(long && echo false); do
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
    hold $((at - 1))
    begin eight "${masked[@]}" --set checkpoint.every=$((at - 1)) --set checkpoint.keep=9
    until_true [ -d "checkpoints/step-$(printf %08d $((at - 1))).tmp-1" ]; sleep 0.5; let_go; ended
    status 2 "a batch without a target, at step $at"
    is "$(published eight)" "$((at - 1)) " "the checkpoint that was written then is published"
else
    ok 1 "a batch without a target (step '$at')" && tail -n 3 err
fi
tap_done
