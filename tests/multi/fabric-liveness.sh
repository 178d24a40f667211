#!/bin/bash
# A stopped rank is not taken for one that computes, nor for a wait that stood still itself.
# waits: for deadlines, most of the time
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"
# What ranks may be silent for is long beside what a busy machine makes one of them wait.
export TERN_DEADLINE=40 TERN_LIVENESS=5

# ranks a node, and what the others say of the one that is stopped: alone on its node it may be cut off
for case in '4:but its node is alive: the process is stopped or frozen' '2:but its node is alive: the process is stopped or frozen' \
            '1:it is stopped, or its node is frozen or cut off'; do
    share=${case%%:*}
    [ "$share" != 2 ] || long || continue
    TERN_FABRIC_SHARE=$share run timeout 600 "$R" stop 4 2
    named 3 "rank 2 \(.*no sign of life for .*${case#*:}" && [ "$rc" = 3 ]
    words "a stopped rank, at most $share sharing: the three others name it before the deadline"
    bound "$(slowest)" "$([ "$share" = 1 ] && echo 16 || echo 6)" "at most $share sharing: seconds, of 5 without life"
    TERN_FABRIC_SHARE=$share run timeout 600 "$R" busy 4 2 12000
    status 0 "a rank that computes for longer than that shows life, at most $share sharing"
    TERN_DEADLINE=8 TERN_FABRIC_SHARE=$share run timeout 600 "$R" hold 4 2 10000
    status 0 "all are stopped and go on: none is named, at most $share sharing"
done

for share in $(long && echo 8) 1; do
    TERN_FABRIC_SHARE=$share run timeout 600 "$R" turns 8 0 8000
    status 0 "ranks that are awaited one after the other for longer than that, at most $share sharing: none is named"
done

TERN_DEADLINE=10 TERN_LIVENESS=0 run timeout 600 "$R" stop 3 2
named 2 'rank 2 \(.*within the deadline of 10 s'; words "TERN_LIVENESS=0: the deadline alone counts"
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
