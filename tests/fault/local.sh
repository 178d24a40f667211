#!/bin/bash
# checkpoint.local under faults: kill -9 while a checkpoint is copied from the nodes, a node that is lost, a
# damaged copy, and storage that is full, on the nodes or behind them.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/saves.sh"
[ -z "${TERN_SANITIZE-}" ] || skip_all "the sanitizer wants to be loaded first"
tiny_make || skip_all "cannot make the tiny setting"
saves_make
export TERN_FABRIC_SHARE=2 RANKS=4
args=(--set steps=16 --set checkpoint.every=2 --set checkpoint.keep=9 --set launch.restarts=0 --set "checkpoint.local=$WORK/local")
here=/checkpoints/
strays() { find checkpoints local -name '*.tmp-*' 2>/dev/null | wc -l; }
again() { # NAME: the next attempt, which is to end as a run without a kill
    run tern run run.yaml --ranks 4 --set ledger.dir=l "${args[@]}"
    status 0 "$1: the next attempt ends the run"
    tiny_digests | cmp -s - weights; ok $? "$1: with the weights of a run without a kill"
    tiny_curve l | cmp -s - curve; ok $? "$1: with the losses of a run without a kill"
    is "$(strays) $(ls local)" "0 " "$1: nothing stays half done, and nothing on the nodes"
    tern ckpt verify --full checkpoints >/dev/null 2>err2; ok $? "$1: its checkpoints verify" || cat err2
}

tern run run.yaml --ranks 4 --set ledger.dir=whole --set steps=16 --set checkpoint.every=2 >out 2>err </dev/null || sed 's/^/# /' err
tiny_digests >weights; tiny_curve whole >curve
rm -rf checkpoints

# kill -9 of everything: checkpoint.dir has step 2, step 4 or a later one is on its way there, the nodes
# have steps up to 10, and step 12 half.
for s in 4 6 8 10; do hold $s $here; done; hold 12 /local/
begin l "${args[@]}"
until_true reached l 13; until_true eval '[ "$(ls -d local/*/*/step-00000012.tmp-1 2>/dev/null | wc -l)" = 2 ]'
until_true eval '[ "$(published l)" = "2 " ]'; ok $? "checkpoint.dir has step 2"
kill -9 $pid; kill -9 $(pgrep -s $pid) 2>/dev/null; until_true sh -c "! pgrep -r DRST -s $pid"; ended; let_go
[ "$(strays)" = 3 ]; ok $? "killed while one is copied from the nodes, and one written there" || find . -name '*.tmp-*'
set -- local/*/*; one=$1 two=$2
for n in "$one" "$two"; do [ -d "$n/step-00000010" ]; ok $? "${n##*/} has step 10"; done
rm -rf killed; mkdir killed; cp -a l checkpoints local killed
back() { rm -rf l checkpoints local; cp -a killed/* .; }

again "killed"
err_has "checkpoint level local: the nodes have step 10, and $WORK/checkpoints has step 2; it was copied there" "killed: the next attempt takes what the nodes have, and says so"
err_has "going on after step 10 " "killed: from step 10"
is "$(sql l "select state from checkpoint where step = 10")" published "killed: the ledger has it as published"

back; rm -rf "$two"
again "a node is lost"
err_has "the nodes' checkpoint of step 10 is passed over: no node of this attempt has 2 of its " "a node is lost: it says why the nodes' checkpoint is not taken"
err_has "checkpoint level shared: $WORK/checkpoints has step 2" "a node is lost: it goes on from checkpoint.dir"

back; rm -rf "$one"
again "the first node is lost"; err_has "checkpoint level shared: $WORK/checkpoints has step 2" "the first node is lost: it goes on from checkpoint.dir"

back; shard=$(ls "$two"/step-00000010/shard-* | head -n 1)
printf x | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 3)) conv=notrunc 2>/dev/null
again "a damaged file on a node"
err_has "is damaged: array" "a damaged file on a node: it is named"
! grep -q "after step 10 " err; ok $? "a damaged file on a node: its checkpoint is not taken"

back; rm -rf local/*/*/step-000000{04,06,08}; cut -c 2- "$one/step-00000010/manifest.json" >x; cp x "$one/step-00000010/manifest.json"
again "a damaged manifest on a node"; err_has "step 10 is passed over: " "a damaged manifest on a node: it is said"

# Killed once more, while the next attempt brings the nodes' checkpoint.
back; hold 10 $here
begin l "${args[@]}"; until_true [ -d checkpoints/step-00000010.tmp-2 ]; ok $? "the next attempt copies step 10"
kill -9 $pid; kill -9 $(pgrep -s $pid) 2>/dev/null; until_true sh -c "! pgrep -r DRST -s $pid"; ended; let_go
again "killed twice"; err_has "going on after step 10 " "killed twice: from step 10 all the same"
rm -rf l checkpoints local

# One rank alone is killed: the supervisor starts the next attempt by itself.
for s in 4 6 8 10; do hold $s $here; done; hold 12 /local/
begin l "${args[@]}" --set launch.restarts=1
until_true reached l 13; kill -9 "$(pgrep -P $pid | head -n 1)"; let_go; ended
status 0 "a rank is killed: the next attempt ends the run"
grep -q 'checkpoint level local: the nodes have step 1[02]' err; ok $? "a rank is killed: from what the nodes have" || sed 's/^/# /' err
tiny_digests | cmp -s - weights; ok $? "a rank is killed: with the weights of a run without a kill"
rm -rf l checkpoints local

# checkpoint.partner: each node has the other's files, and one may be lost.  Steps 10 and 20 are on the
# nodes, and at least the first of them on both.
p=(--set steps=60 --set checkpoint.every=10 --set launch.restarts=0 --set "checkpoint.local=$WORK/local" --set checkpoint.partner=true)
run tern run run.yaml --ranks 4 --set ledger.dir=pw --set steps=60 --set checkpoint.every=60; tiny_digests >weights60; rm -rf checkpoints
for s in 10 20; do hold $s $here; done; hold 30 /local/
begin l "${p[@]}"
until_true reached l 40; set -- local/*/*; one=$1 two=$2
files() { echo "$(ls "$one"/step-00000010/shard-* | wc -l) $(ls "$two"/step-00000010/shard-* | wc -l) $(ls local/*/*/step-00000010/config.json | wc -l)"; }
until_true eval '[ "$(files)" = "4 4 2" ]'
is "$(ls -d local/*/*/step-00000010 | wc -l)" 2 "a partner: a step that has copies stays"
is "$(files)" "4 4 2" "a partner: each node has all files"
kill -9 $pid; kill -9 $(pgrep -s $pid) 2>/dev/null; until_true sh -c "! pgrep -r DRST -s $pid"; ended; let_go
rm -rf killed; mkdir killed; cp -a l checkpoints local killed
for lost in "$two" "$one"; do
    back; rm -rf "$lost"
    run tern run run.yaml --ranks 4 --set ledger.dir=l "${p[@]}"
    status 0 "a partner, ${lost##*/} is lost: the next attempt ends the run"
    grep -q "checkpoint level local: the nodes have step [12]0, and $WORK/checkpoints has none" err
    ok $? "a partner, ${lost##*/} is lost: it goes on from what the other node has" || sed 's/^/# /' err
    tiny_digests | cmp -s - weights60; ok $? "a partner, ${lost##*/} is lost: with the weights of a run without a kill"
    is "$(strays) $(ls local)" "0 " "a partner, ${lost##*/} is lost: nothing stays on the nodes"
done
rm -rf l checkpoints local
# Four nodes are two pairs.  From step 60 on the second node of the second pair does not write its copies:
# they have a step that the first pair copied, and lose a node.  Then the one before counts.
export TERN_FABRIC_SHARE=1
n=(--set steps=1000 --set checkpoint.every=20 --set launch.restarts=0 --set "checkpoint.local=$WORK/local" --set checkpoint.partner=true)
hold 20 $here; for s in $(seq 60 20 1000); do hold $s "-3/step-$(printf %08d $s)/.part-"; done
begin l "${n[@]}"
held() { # the step of a copy that is held: 60 is the first
    at=$(ls -d local/*/*-3/step-*/.part-shard* | sed 's/.*step-0*\([0-9]*\).*/\1/' | tail -n 1); [ "${at:-0}" -ge 60 ]
}
until_true held; ok $? "two pairs: one waits in the middle of a copy"
first=$(ls -d local/*/*-3); first=${first%-3}
saved_on() { [ "$(ls -d "$first"/step-???????? | sed 's/.*step-0*//' | tail -n 1)" -ge $((at + 40)) ]; }
until_true saved_on; ok $? "two pairs: the steps and saves go on meanwhile"
for copied in 40 20; do # a machine that has much to do goes from the copies of 20 to those of 60
    copy=step-$(printf %08d $copied); [ "$(ls "$first-3/$copy"/shard-* 2>/dev/null | wc -l)" = 2 ] && break
done
is "$(ls "$first/$copy"/shard-* | wc -l) $(ls "$first-1/$copy"/shard-* | wc -l)" "2 2" "two pairs: the first keeps the newest step that the other has copied, too"
kill -9 $pid; kill -9 $(pgrep -s $pid) 2>/dev/null; until_true sh -c "! pgrep -r DRST -s $pid"; ended; let_go
rm -rf "$first-2"
begin l "${n[@]}"; until_true grep -q "going on after step" err
err_has "checkpoint level local: the nodes have step $copied, and $WORK/checkpoints has none" "two pairs, a node of the second is lost: the run goes on from what all had copied"
kill -9 $pid; kill -9 $(pgrep -s $pid) 2>/dev/null; until_true sh -c "! pgrep -r DRST -s $pid"; ended
rm -rf l checkpoints local
export TERN_FABRIC_SHARE=1 # three nodes are together
run tern run run.yaml --ranks 3 --set ledger.dir=l "${p[@]}" --set batch.global=6; status 0 "partners of three nodes: a run ends well"
rm -rf l checkpoints local
export TERN_FABRIC_SHARE=3
run tern run run.yaml --ranks 4 --set ledger.dir=l "${p[@]}"; status 0 "nodes of unlike size have no partners"
err_has "checkpoint.partner is not used: the nodes have unlike numbers of ranks"
rm -rf l checkpoints local
export TERN_FABRIC_SHARE=2

# No room on a node: that step goes to checkpoint.dir at once.
full() { # WORD NAME
    TEST_FULL=$1 begin l "${args[@]}"; ended; status 0 "$2: the run ends well"
    tiny_digests | cmp -s - weights; ok $? "$2: with the same weights"
    is "$(strays) $(ls local 2>/dev/null)" "0 " "$2: nothing is left of it"
}
for async in true false; do
    args+=(--set checkpoint.async=$async)
    full "${two##*/}/step-00000004.tmp-1" "async $async, no room on a node for one step"
    has err "step 4 cannot be saved in checkpoint.local, and is saved in checkpoint.dir: rank 2: " "async $async, no room on a node: the log says so, with rank"
    is "$(sql l "select count(*) from event where text like 'step 4 cannot be saved in checkpoint.local%No space left on device%'")" 1 "async $async, no room on a node: the ledger has it, with the cause"
    tern ckpt verify --full checkpoints/step-00000004 >/dev/null 2>err2; ok $? "async $async, no room on a node: checkpoint.dir has the step" || cat err2
    rm -rf l checkpoints
    full /local/ "async $async, no room on the nodes at all"
    has err "as all later ones of this attempt" "async $async, no room on the nodes at all: they are not tried again for ever"
    is "$(published l)" "2 4 6 8 10 12 14 16 " "async $async, no room on the nodes at all: each step is saved in checkpoint.dir"
    rm -rf l checkpoints
done

# A checkpoint that is damaged on a node cannot be copied: the nodes are not used any more, and neither is
# what is saved there meanwhile copied beside the saves to checkpoint.dir.
q=(--set steps=60 --set checkpoint.every=10 --set checkpoint.keep=9 --set launch.restarts=0 --set "checkpoint.local=$WORK/local")
for s in 10 40; do hold $s $here; done; hold 20 /local/
begin l "${q[@]}"
until_true eval '[ -d checkpoints/step-00000010.tmp-1 ] && compgen -G "local/*/*/step-00000020.tmp-1/shard-*"'
until_true reached l 25
shard=$(ls local/*/*/step-00000010/shard-* | head -n 1)
printf x | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 3)) conv=notrunc 2>/dev/null
rm held-*10 held-*20; until_true [ -d checkpoints/step-00000040.tmp-1 ]
let_go; ended; status 0 "a copy that fails for good: the run ends well"
err_has "step 10 was not copied to checkpoint.dir (later ones of this attempt are saved there)" "a copy that fails for good: the log says so"
case $(published l) in 10\ *|*20\ *) false ;; *"60 ") ;; *) false ;; esac
ok $? "a copy that fails for good: step 20, which is on the nodes, is not copied beside the later saves" || published l
tern ckpt verify --full checkpoints >/dev/null 2>err2; ok $? "a copy that fails for good: they verify" || cat err2
tiny_digests | cmp -s - weights60; ok $? "a copy that fails for good: the weights are right"
is "$(strays) $(ls local)" "0 " "a copy that fails for good: nothing stays half done, and nothing on the nodes"
rm -rf l checkpoints local

# Small files are copied from the newest checkpoint.  Two flushes come between, and the run keeps few: it
# stays until the save has them.
export TEST_MKDIRS=1
n=(--set steps=2000 --set checkpoint.every=400 --set checkpoint.keep=2 --set launch.restarts=0 --set "checkpoint.local=$WORK/local")
hold 800 $here; hold 1600 "-1/step-00001600.tmp-"
begin l "${n[@]}"
until_true eval 'ls -d local/*/*/step-00001600.tmp-1 >/dev/null 2>&1'; ok $? "the newest goes: a save begins on the nodes"
rm held-*800; until_true eval '[ "$(published l)" = "400 800 1200 " ]'; ok $? "the newest goes: two flushes end meanwhile" || published l
[ -e checkpoints/step-00000400/tokenizer.model ]; ok $? "the newest goes: the one with the files that are to be copied stays"
let_go; ended; status 0 "the newest goes: the run ends well"
! grep -q "cannot be saved" err; ok $? "the newest goes: the save has ended on the nodes" || cat err
[ -e checkpoints/step-00002000/tokenizer.model ]; ok $? "the newest goes: later ones have the tokenizer"
is "$(ls -d checkpoints/step-* | wc -l)" 2 "the newest goes: later it is pruned"
rm -rf l checkpoints local
unset TEST_MKDIRS

# A step that can be saved in neither place: the one before it is copied after all.
hold 10 $here
TEST_FULL=step-00000020.tmp-1 begin l "${q[@]}" --set steps=100000
until_true grep -q "step 20 cannot be saved in checkpoint.local" err; let_go
until_true eval 'case $(published l) in "10 "*) ;; *) false ;; esac'
ok $? "a step has no room anywhere: the one before it is copied to checkpoint.dir" || published l
kill -9 $pid; kill -9 $(pgrep -s $pid) 2>/dev/null; until_true sh -c "! pgrep -r DRST -s $pid"; ended
err_has "step 20 was not saved, and training goes on" "a step has no room anywhere: the log says so"
rm -rf l checkpoints local

# A folder that cannot be made.
rm -rf local; : >local
begin l "${args[@]}"; ended; status 0 "checkpoint.local is a file: the run ends well"
has err "cannot be saved in checkpoint.local" "checkpoint.local is a file: the log says so"
rm -rf l checkpoints local

# No room behind the nodes: training goes on, and the next one is tried.
args+=(--set checkpoint.keep_every=4) # else it may be passed over
full checkpoints/step-00000004.tmp-1/shard "no room in checkpoint.dir for one step"
err_has "step 4 was not copied to checkpoint.dir, and training goes on: rank " "no room in checkpoint.dir for one step: the log says so"
rm -rf l checkpoints
TEST_FULL=checkpoints/step-00000016.tmp-1/shard-00001 begin l "${args[@]}"; ended
status 75 "no room in checkpoint.dir for the last step: the run fails"
is "$(ls -d local/*/*/step-00000016 | wc -l)" 2 "no room in checkpoint.dir for the last step: the nodes have it"
run tern run run.yaml --ranks 4 --set ledger.dir=l "${args[@]}"; status 0 "with room again the next attempt ends the run"
err_has "checkpoint level local: the nodes have step 16"
rm -rf l checkpoints local

if [ "$(id -u)" = 0 ] && mkdir -p small && mount -t tmpfs -o size=900k tmpfs small 2>/dev/null; then
    tap_cleanup() { umount -l "$WORK/small" 2>/dev/null; }
    tap_cleanup=tap_cleanup
    begin l "${args[@]}" --set checkpoint.local="$WORK/small"; ended
    status 0 "a small tmpfs on the nodes: the run ends well"
    has err "cannot be saved in checkpoint.local" "a small tmpfs on the nodes: the log says so"
    tiny_digests | cmp -s - weights; ok $? "a small tmpfs on the nodes: with the same weights"
    umount small; tap_cleanup=:
else
    skip "a small tmpfs: only root can mount one"
fi
tap_done
