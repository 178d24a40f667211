#!/bin/bash
# A stopped rank is not taken for one that computes, nor for a wait that stood still itself.
# waits: for deadlines, most of the time
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"
export TERN_DEADLINE=40 TERN_LIVENESS=2

# ranks a node, and what the others say of the one that is stopped: alone on its node it may be cut off
for case in '4:but its node is alive: the process is stopped or frozen' '2:but its node is alive: the process is stopped or frozen' \
            '1:it is stopped, or its node is frozen or cut off'; do
    share=${case%%:*}
    [ "$share" != 2 ] || long || continue
    TERN_FABRIC_SHARE=$share run timeout 100 "$R" stop 4 2
    named 3 "rank 2 \(.*no sign of life for .*${case#*:}" && [ "$rc" = 3 ]
    words "a stopped rank, at most $share sharing: the three others name it before the deadline"
    bound "$(slowest)" "$([ "$share" = 1 ] && echo 7 || echo 3)" "at most $share sharing: seconds, of 2 without life"
    TERN_LIVENESS=1 TERN_FABRIC_SHARE=$share run timeout 100 "$R" busy 4 2 4000
    status 0 "a rank that computes for longer than that shows life, at most $share sharing"
    TERN_DEADLINE=3 TERN_FABRIC_SHARE=$share TEST_FABRIC_SAVES=1 run timeout 100 "$R" busy 4 2 5500
    status 0 "one that writes a checkpoint has longer than the deadline, at most $share sharing"
    TERN_DEADLINE=6 TERN_FABRIC_SHARE=$share TEST_FABRIC_SAVES=1 TEST_FABRIC_STEP=1 run timeout 100 "$R" busy 4 2 4000
    status 0 "ranks wait the whole deadline for the next step, at most $share sharing"
    env -u TERN_DEADLINE TERN_FABRIC_SHARE=$share TEST_FABRIC_STEP=2 timeout 200 "$R" busy 4 2 1000 90000 >out 2>err; rc=$?
    # The late rank itself may hear of the others' end before their words.
    late='rank 2 \(.*not come within the deadline of 2 s: it runs, and computes'
    { named 4 "$late" || named 3 "$late"; } && [ "$rc" = 3 ]
    words "one that computes for longer than it said is named before the usual deadline, at most $share sharing"
    TERN_DEADLINE=3 TERN_LIVENESS=2 TERN_FABRIC_SHARE=$share run timeout 100 "$R" hold 4 2 5000
    status 0 "all are stopped and go on: none is named, at most $share sharing"
done

for share in $(long && echo 8) 1; do
    TERN_LIVENESS=2 TERN_FABRIC_SHARE=$share run timeout 100 "$R" turns 8 0 3000
    status 0 "ranks that are awaited one after the other for longer than that, at most $share sharing: none is named"
done

TERN_DEADLINE=3 TERN_FABRIC_SHARE=1 run timeout 100 "$R" busy 3 2 90000
named 3 'rank 2 \(.*not come within the deadline of 3 s: it runs, and computes'
words "a rank that computes beyond the deadline: named, with the word that it runs"
TERN_DEADLINE=2 TERN_LIVENESS=0 run timeout 100 "$R" stop 3 2
named 2 'rank 2 \(.*within the deadline of 2 s'; words "TERN_LIVENESS=0: the deadline alone counts"
TERN_LIVENESS=soon run "$R" stop 3 2
err_has "TERN_LIVENESS: 'soon' is not a number of seconds" "TERN_LIVENESS that is no number is refused"

# ---- the thread that answers has its own descriptors: those of others cost each of their system calls
look_apart() {
    local rank thread
    for rank in $(pgrep -P $main); do for thread in /proc/"$rank"/task/*; do
        [ "$(find "$thread/fd" -type l 2>/dev/null | wc -l)" -le 5 ] && [ "$(find "/proc/$rank/fd" -type l 2>/dev/null | wc -l)" -gt 5 ] && apart=1
    done; done
    [ -n "$apart" ] || ! kill -0 $main 2>/dev/null
}
if "$TOOLS/../unit/process" | grep -q 'table of its own is refused'; then
    skip "the kernel gives a thread no table of descriptors of its own here"
else
    "$R" random 2 5 200000 >out 2>err & main=$!
    apart=; until_true look_apart; is "$apart" 1 "a rank's thread that answers has no descriptors but its own"
    kill -9 $main $(pgrep -P $main) 2>/dev/null; wait $main 2>/dev/null
fi
tap_done
