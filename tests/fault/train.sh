#!/bin/bash
# Faults around a training run on one machine: a full disk, kill -9 of everything, Ctrl-C.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make || skip_all "cannot make the tiny setting"

# A disk that fills up during a checkpoint: exit 75, one line, what was published stays whole.
if [ "$(id -u)" = 0 ] && mkdir -p small && mount -t tmpfs -o size=1400k tmpfs small 2>/dev/null; then
    tap_cleanup() { umount -l "$WORK/small" 2>/dev/null; }
    tap_cleanup=tap_cleanup
    run tern run run.yaml --ranks 2 --set checkpoint.dir=small/ck --set steps=8
    status 75 "a full disk during a checkpoint is a reason outside the run"
    err_has "Free space"
    run tern ckpt verify --full small/ck/latest
    status 0 "the checkpoint before it is whole"
    before=$(ls small/ck | grep -c '^step-........$')
    [ "$before" -ge 1 ] && ! ls small/ck | grep -q tmp
    ok $? "nothing half-written stays"
    mount -o remount,size=20m small
    run tern run run.yaml --ranks 2 --set checkpoint.dir=small/ck --set steps=8
    status 0 "a run that had no room goes on to its end when there is some"
    err_has "going on after step"
    umount small; tap_cleanup=:
else
    skip "a full disk: only root can mount a small one"
fi

# kill -9 of the supervisor and its ranks at many moments, at its start and after steps that are seen:
# the ledger and the weights are those of a run left alone.
run tern run run.yaml --ranks 2 --set steps=40 --set ledger.dir=whole
tiny_digests >weights
tiny_curve whole >curve
[ "$(wc -l <curve)" = 40 ]; ok $? "the run left alone records 40 losses"
rm -rf checkpoints
kills=0
for step in 0 0 0 2 $(long && echo 3) 6 $(long && echo "11 17") 20 33; do
    setsid tern run run.yaml --ranks 2 --set steps=40 --set ledger.dir=killed >/dev/null 2>&1 & pid=$!
    if [ $step = 0 ]; then sleep "0.$((RANDOM % 3))5"; else tiny_wait_step $step $pid; fi
    kill -9 -- -$pid 2>/dev/null || kill -9 $pid 2>/dev/null # one that has no group yet
    wait $pid 2>/dev/null; [ $? != 137 ] || kills=$((kills + 1))
    until_true sh -c "! pgrep -r DRST -s $pid"
done
[ $kills -gt 0 ]; ok $? "the kills hit a run at work"
run tern run run.yaml --ranks 2 --set steps=40 --set ledger.dir=killed
status 0 "killed $kills times, the run ends well"
tiny_digests | cmp -s - weights
ok $? "its weights are those of the run left alone, to the last bit"
tiny_curve killed >curve2
cmp -s curve curve2
ok $? "its effective losses too, each step once" || diff curve curve2 | sed 's/^/# /'
run tern ledger verify --ledger killed
status 0 "the ledger verifies"

# Ctrl-C: the ranks finish their step, leave a checkpoint, and the status says halted.
rm -rf checkpoints
setsid tern run run.yaml --ranks 2 --set steps=100000 2>err >out & pid=$!
tiny_wait_step 3 $pid
kill -INT $pid
wait $pid; rc=$? cmd="Ctrl-C during tern run"
status 77
run tern ckpt verify checkpoints/latest
status 0 "the stopped run leaves a verified checkpoint"

# A finger that presses twice, in a terminal, which tells the whole foreground group; the ranks are
# held until it has.
said() { until_true grep -q "$1" err; }
for _ in 1 2 3 4 5 6; do # on a machine that was busy for 2 s in between, once more
    rm -rf checkpoints
    setsid tern run run.yaml --ranks 2 --set steps=100000 2>err >out & pid=$!
    tiny_wait_step 3 $pid
    ranks=$(pgrep -P $pid | sed 's/^/-/')
    kill -STOP -- $ranks
    kill -INT -$pid; said 'passed on'
    kill -INT -$pid; said 'the same stop request\|ending the ranks'
    kill -CONT -- $ranks
    wait $pid; rc=$? cmd="Ctrl-C twice during tern run"
    grep -q 'the same stop request' err && break
done
status 77
last=$(sed -n 's/.*stopped after step \([0-9]*\) .*/\1/p' err | head -n 1)
[ -n "$last" ] && [ -d "checkpoints/step-$(printf %08d "$last")" ]
ok $? "the checkpoint of the step that was under way is there"
run tern ckpt verify checkpoints/latest
status 0
tap_done
