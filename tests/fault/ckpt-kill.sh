#!/bin/bash
# kill -9 of saves: every visible step-* verifies in full, and none that was acknowledged is lost.  The
# oracle is what the writer printed, kept by this shell.
#
# The moments come in turn: a random one from the start on, a random one after the first save, and the
# one at which a save is seen under way.  Rounds go on, to four times as many, until a tenth of them
# hit a save, so that the speed of the machine does not matter.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
ROUNDS=${CKPT_KILL_ROUNDS:-$(long && echo 200 || echo 24)}
SEED=${CKPT_SEED:-$$}
RANDOM=$SEED
echo "# seed $SEED, $ROUNDS rounds"
"$T" model hf || exit 1

nap() { sleep "0.$(printf %03d "$1")"; } # milliseconds
saved() { [ -s acks ] || ! kill -0 "$pid" 2>/dev/null; }
under_way() { compgen -G 'run/step-*.tmp-*' >/dev/null; }
moment() { # ROUND: waits for it
    case $(($1 % 3)) in
    0) nap $((15 + RANDOM % 120)) ;;
    1) until_true saved; nap $((RANDOM % 60)) ;;
    2) until_true saved; for ((k = 0; k < 20000; k++)); do under_way && break; done ;;
    esac
}
bad=0 lost=0 mid=0 acked=0 saves=0
for ((i = 0; i < ROUNDS || (mid < ROUNDS / 10 + 1 && i < ROUNDS * 4); i++)); do
    ranks=$((1 + RANDOM % 3))
    : >acks
    setsid "$T" loop run $ranks hf >acks 2>errs &
    pid=$!
    moment $i
    # The whole group; every fourth time one rank alone, if there is one yet, whose peers must notice.
    victim=
    [ $((i % 4)) = 3 ] && [ $ranks -gt 1 ] && victim=$(pgrep -P $pid | head -1)
    if [ -n "$victim" ]; then
        kill -9 "$victim"
        wait $pid 2>/dev/null; rc=$?
        [ $rc != 0 ] || bad=$((bad + 1))
    else
        kill -9 -- -$pid 2>/dev/null || kill -9 $pid 2>/dev/null # one that has no group yet
        wait $pid 2>/dev/null
    fi
    under_way && mid=$((mid + 1))
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
[ "$saves" -gt 0 ] && [ "$mid" -gt $((ROUNDS / 10)) ]; ok $? "the kills hit saves at work"
[ $lost = 0 ]; ok $? "none of $saves acknowledged checkpoints was lost"
[ $bad = 0 ]; ok $? "every visible checkpoint verified in full, $i times"
"$T" same hf run/step-"$(printf %08d "$acked")"; ok $? "the newest holds the model"
tap_done
