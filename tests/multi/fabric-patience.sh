#!/bin/bash
# A rank that computes, or writes a checkpoint, has the time that it announced, and is named after that.
# waits: for deadlines, most of the time
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"

for share in 4 $(long && echo 2) 1; do
    TERN_DEADLINE=10 TERN_FABRIC_SHARE=$share TEST_FABRIC_SAVES=1 run timeout 600 "$R" busy 4 2 14000
    status 0 "one that writes a checkpoint has longer than the deadline, at most $share sharing"
    TERN_DEADLINE=15 TERN_FABRIC_SHARE=$share TEST_FABRIC_SAVES=1 TEST_FABRIC_STEP=1 run timeout 600 "$R" busy 4 2 10000
    status 0 "ranks wait the whole deadline for the next step, at most $share sharing"
    env -u TERN_DEADLINE TERN_FABRIC_SHARE=$share TEST_FABRIC_STEP=2 timeout 600 "$R" busy 4 2 1000 300000 >out 2>err; rc=$?
    # The late rank itself may hear of the others' end before their words.
    late='rank 2 \(.*not come within the deadline of 2 s: it runs, and computes'
    { named 4 "$late" || named 3 "$late"; } && [ "$rc" = 3 ]
    words "one that computes for longer than it said is named before the usual deadline, at most $share sharing"
done

TERN_DEADLINE=10 TERN_FABRIC_SHARE=1 run timeout 600 "$R" busy 3 2 300000
named 3 'rank 2 \(.*not come within the deadline of 10 s: it runs, and computes'
words "a rank that computes beyond the deadline: named, with the word that it runs"
tap_done
