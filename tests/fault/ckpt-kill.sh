#!/bin/bash
# kill -9 at random moments of saves: every visible step-* verifies in full, and none that was
# acknowledged is lost.  The oracle is what the writer printed, kept by this shell.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
ROUNDS=${CKPT_KILL_ROUNDS:-200}
SEED=${CKPT_SEED:-$$}
RANDOM=$SEED
echo "# seed $SEED, $ROUNDS rounds"
"$T" model hf || exit 1

bad=0 lost=0 mid=0 acked=0 saves=0
for ((i = 0; i < ROUNDS; i++)); do
    ranks=$((1 + RANDOM % 3))
    : >acks
    setsid "$T" loop run $ranks hf >acks 2>errs &
    pid=$!
    sleep "0.$(printf %03d $((15 + RANDOM % 120)))"
    # The whole group; every fourth time one rank alone, whose peers must notice.
    if [ $((i % 4)) = 3 ] && [ $ranks -gt 1 ]; then
        victim=$(pgrep -P $pid | head -1)
        [ -n "$victim" ] && kill -9 "$victim"
        wait $pid 2>/dev/null; rc=$?
        [ $rc != 0 ] || bad=$((bad + 1))
    else
        kill -9 -- -$pid 2>/dev/null
        wait $pid 2>/dev/null
    fi
    ls -d run/step-*.tmp-* >/dev/null 2>&1 && mid=$((mid + 1))
    n=$(grep -c '^saved ' acks)
    saves=$((saves + n))
    last=$(sed -n 's/^saved //p' acks | tail -1)
    [ -z "$last" ] || acked=$last
    # The newest acknowledged one is there (pruning keeps three), and what is visible is whole.
    if [ "$acked" -gt 0 ]; then
        [ -d "$(printf run/step-%08d "$acked")" ] || { lost=$((lost + 1)); echo "# round $i lost step $acked"; }
        tern ckpt verify --full run >out 2>err || { bad=$((bad + 1)); echo "# round $i:"; sed 's/^/# /' err; }
    fi
done
echo "# $saves saves acknowledged, $mid kills in the middle of one, last step $acked"
[ "$saves" -gt 0 ] && [ "$mid" -gt 0 ]; ok $? "the kills hit saves at work"
[ $lost = 0 ]; ok $? "none of $saves acknowledged checkpoints was lost"
[ $bad = 0 ]; ok $? "every visible checkpoint verified in full, $ROUNDS times"
"$T" same hf run/step-"$(printf %08d "$acked")"; ok $? "the newest holds the model"
tap_done
