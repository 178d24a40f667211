#!/bin/bash
# Ranks that call different operations, or wait for each other (a deadlock), or are only late.
# waits: for deadlines, most of the time
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"
R=$TOOLS/fabric-faults

# Ranks that call different things: both calls and their ranks, at once, on every rank.
declare -A last=([op]='all_gather f32 64' [type]='all_reduce i32 sum 4096'
    [count]='all_reduce f32 sum 4095' [root]='broadcast f32 4096 from 1')
for share in $(long && echo 4 2 1 || echo 4 1); do
    for kind in $(long && echo op type count root || echo op root); do
        rest='all_reduce f32 sum 4096'
        [ $kind = root ] && rest='broadcast f32 4096 from 0'
        TERN_FABRIC_SHARE=$share run timeout 600 "$R" differ 4 $kind
        [ "$(grep -c "rank 3 (.*) called ${last[$kind]} #21 where rank.* called $rest on" err)" = 4 ]
        ok $? "another $kind, at most $share sharing: every rank names both calls" || sed 's/^/# /' err
        bound "$(slowest)" 1 "another $kind, at most $share sharing: seconds until the error"
    done
done

# Ranks in calls on several communicators: only a circle is an error, and at once.
x='all_reduce f32 sum 4096 #1 on communicator'
declare -A said=(
    [two]="rank 0 (.*) called $x 1 and waits for rank 3 (.*), which called $x 2 and waits for rank 0"
    [broadcast]="rank 0 (.*) called $x 1 and waits for rank 3 (.*), which called broadcast f32 4096 from 0 #1 on communicator 2 and waits for rank 0"
    [four]="rank 0 (.*) called $x 3 and waits for rank 1 (.*), which called $x 4 and waits for rank 3 (.*), which called $x 3 and waits for rank 2 (.*), which called $x 4 and waits for rank 0"
)
for share in $(long && echo 4 2 1 || echo 4 1); do
    for kind in two broadcast four; do
        TERN_FABRIC_SHARE=$share run timeout 600 "$R" cross 4 $kind
        words=${said[$kind]} # the algorithm decides which of the first three the last rank waits for
        [ $kind = four ] || words=${words//rank 0/'rank [0-2]'}
        [ "$(grep -c "code 75: $words$" err)" = 4 ]
        ok $? "deadlock, $kind, at most $share sharing: every rank names the waiting ranks and their calls" || sed 's/^/# /' err
        bound "$(slowest)" 1 "deadlock, $kind, at most $share sharing: seconds until the error"
    done
    TERN_FABRIC_SHARE=$share run timeout 600 "$R" cross 4 legal
    status 0 "in any order without waiting, at most $share sharing: goes well"
done

# A rank is patient with one that waits itself: the last of these comes after two deadlines.
export TERN_DEADLINE=10
for share in $(long && echo 4) 1; do
    TERN_FABRIC_SHARE=$share run timeout 6000 "$R" chain 4
    status 0 "a pipeline fills for longer than the deadline, at most $share sharing"
done

# One that asks instead of waiting judges by what it hears then, not by what it heard before it
# computed.
for share in $(long && echo 4 1); do
    TERN_FABRIC_SHARE=$share run timeout 6000 "$R" chain 4 7000
    status 0 "the same where the last one asks, and computes when it has asked around, at most $share sharing"
done

# A rank that waited asks around after the deadline.  One that comes in that time has come.
for share in $(long && echo 2) 1; do
    TERN_FABRIC_SHARE=$share run timeout 6000 "$R" tardy 2
    status 0 "one comes while the other asks whose fault it is, at most $share sharing: both go on"
done
tap_done
