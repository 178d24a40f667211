#!/bin/bash
# What is said, and left behind, when ranks differ, stop or are cut off.
#
# alone: what is promised within a deadline holds where its ranks get the processor
. "$(dirname "$0")/../lib/tap.sh"
R=$TOOLS/fabric-faults
export TERN_DEADLINE=20
unset TERN_RUN_SOCKET TERN_FABRIC_DUMP

# Ranks that call different things: both calls and who made them, at once, on every rank.
declare -A last=([op]='all_gather f32 64' [type]='all_reduce i32 sum 4096'
    [count]='all_reduce f32 sum 4095' [root]='broadcast f32 4096 from 1')
for share in 4 2 1; do
    for kind in op type count root; do
        rest='all_reduce f32 sum 4096'
        [ $kind = root ] && rest='broadcast f32 4096 from 0'
        TERN_FABRIC_SHARE=$share run timeout 30 "$R" differ 4 $kind
        [ "$(grep -c "rank 3 (.*) called ${last[$kind]} #21 where rank.* called $rest on" err)" = 4 ]
        ok $? "another $kind, at most $share sharing: every rank names both calls" || sed 's/^/# /' err
        awk '$2 > 1 {late = 1} END {exit late}' err
        ok $? "within a second" || sed 's/^/# /' err
    done
done

# Ranks in calls on several communicators: only a circle is an error, and at once.
x='all_reduce f32 sum 4096 #1 on communicator'
declare -A said=(
    [two]="rank 0 (.*) called $x 1 and waits for rank 3 (.*), which called $x 2 and waits for rank 0"
    [broadcast]="rank 0 (.*) called $x 1 and waits for rank 3 (.*), which called broadcast f32 4096 from 0 #1 on communicator 2 and waits for rank 0"
    [four]="rank 0 (.*) called $x 3 and waits for rank 1 (.*), which called $x 4 and waits for rank 3 (.*), which called $x 3 and waits for rank 2 (.*), which called $x 4 and waits for rank 0"
)
for share in 4 2 1; do
    for kind in two broadcast four; do
        TERN_FABRIC_SHARE=$share run timeout 30 "$R" cross 4 $kind
        words=${said[$kind]} # whom of the first three the last one waits for is the algorithm's to say
        [ $kind = four ] || words=${words//rank 0/'rank [0-2]'}
        [ "$(grep -c "code 75: $words$" err)" = 4 ]
        ok $? "crosswise, $kind, at most $share sharing: every rank says who waits where" || sed 's/^/# /' err
        awk '$2 > 1 {late = 1} END {exit late}' err
        ok $? "within a second" || sed 's/^/# /' err
    done
    TERN_FABRIC_SHARE=$share run timeout 60 "$R" cross 4 legal
    status 0 "in any order without waiting, at most $share sharing: goes well"
done

# Who waits for one who waits itself is patient: the last of these comes after two deadlines.
for share in 4 1; do
    TERN_DEADLINE=2 TERN_FABRIC_SHARE=$share run timeout 60 "$R" chain 4
    status 0 "a pipeline fills for longer than the deadline, at most $share sharing"
done

# One that asks instead of waiting judges by what it hears then, not by what it heard before it
# computed.
for share in 4 1; do
    TERN_DEADLINE=2 TERN_FABRIC_SHARE=$share run timeout 60 "$R" chain 4 1700
    status 0 "the same where the last one asks, and computes when it has asked around, at most $share sharing"
done

# Who waited asks around for half a second then; who comes in that time and goes on at once has come.
for share in 2 1; do
    TERN_DEADLINE=2 TERN_FABRIC_SHARE=$share run timeout 60 "$R" tardy 2 2250
    status 0 "one comes while the other asks whose fault it is, at most $share sharing: both go on"
done

# What they leave behind, and what is said of it.
export TERN_FABRIC_DUMP=$WORK/dumps
look() { # WORDS NAME
    run tern fabric autopsy dumps
    [ $rc = 0 ] && head -n 1 out | grep -qE -- "$1"
    ok $? "autopsy: $2" || sed 's/^/# /' out err
}
TERN_FABRIC_SHARE=1 run timeout 30 "$R" differ 4 op
look 'rank 3 \(.*\) called all_gather f32 64 #21 where rank.* called all_reduce f32 sum 4096 on communicator 0' "different calls"
rm -rf dumps
TERN_FABRIC_SHARE=2 run timeout 30 "$TOOLS/fabric-ranks" kill 4 2
look '3 ranks wait, .* for rank 2 \(.*\), which wrote no dump itself \(rank 3 .*\): it was killed or hung' \
    "the dump of a killed rank is written by its mate"
out_has 'finished #20'
grep -q 'rank 2 (.*) left all_reduce f32 sum 4096 #20 at [0-9:.]* and never called #21' out
ok $? "with what it did last" || sed 's/^/# /' out
rm -rf dumps
TERN_DEADLINE=2 TERN_FABRIC_SHARE=1 run timeout 30 "$TOOLS/fabric-ranks" kill 4 2
look '3 ranks wait, .* for rank 2 \(.*\), which has no dump: it died or was cut off' "killed alone on its node"
out_has 'ranks, dumps of 3; none of rank 2'
rm -rf dumps
env --ignore-signal=USR2 "$R" late 4 2>err & pid=$! # until it listens, nobody is to be ended by the question
for _ in $(seq 20); do # until all four wait, and have answered
    sleep 0.5; kill -USR2 $pid; sleep 0.3
    tern fabric autopsy dumps 2>/dev/null | head -n 1 | grep -q '3 ranks wait' && break
done
look '3 ranks wait, .* for rank 3 \(.*\), which was in no operation' "SIGUSR2, while one does not come"
out_has 'ranks 0-2 are in all_reduce f32 sum 4096 #21'
run tern fabric autopsy --json dumps
out_has '"culprit": 3'
out_has '"waits_for": 3'
kill -0 $pid; ok $? "and the ranks go on"
kill $pid; wait $pid 2>/dev/null

head -c 700 dumps/fabric-rank-00001.tfr >cut && mv cut dumps/fabric-rank-00001.tfr
look 'for rank 3' "a damaged dump does not stop it"
out_has 'fabric-rank-00001.tfr: not a dump'
mkdir empty
run tern fabric autopsy empty
status 2; one_line; err_has 'no fabric-rank'
run tern fabric autopsy nosuch
status 1; one_line

# A communicator again in the same processes, without the one that was killed.
for share in 4 1; do
    unset TERN_FABRIC_DUMP
    TERN_DEADLINE=2 TERN_FABRIC_SHARE=$share run timeout 30 "$R" rebuild 4
    [ "$(grep -c 'rebuilt: .* 3 ranks, sum 3' err)" = 9 ] &&
        awk '/^rebuilt:/ && $2 >= 1000 {late = 1} END {exit late}' err
    ok $? "rebuilt without the killed rank in under a second, at most $share sharing" || sed 's/^/# /' err
    maps=0
    [ -n "${TERN_SANITIZE-}" ] && maps='[0-9]*' # their own memory grows; leaks they tell themselves
    [ "$(grep -c "left: 0 descriptors, $maps maps" err)" = 6 ]
    ok $? "and nothing is left open or mapped" || sed 's/^/# /' err
done

run tern fabric info
status 0; out_has 'libfabric'; out_has 'deadline: '
run env TERN_FABRIC_SHARE=1 tern fabric info --json
status 0; out_has '"explain"'
"$R" meet 4 127.0.0.1 >address & meet=$!
until [ -s address ]; do sleep 0.02; done
for r in 1 2 3 0; do # rank 1 is not like the others
    env SLURMD_NODENAME=n$r SLURM_PROCID=$r SLURM_NTASKS=4 TERN_RUN_SOCKET=$(cat address) TERN_DEADLINE=20 \
        $([ $r = 1 ] && echo RDMAV_FORK_SAFE=yes) timeout 30 tern fabric info >info.$r 2>&1 &
    [ $r = 0 ] && wait $!
done
kill $meet; wait 2>/dev/null
[ "$(grep -oE '^from rank.*|.*FORK_SAFE=.*' info.0 | paste -sd';')" = \
    "from rank 1 (n1) on, between nodes:;  RDMAV_FORK_SAFE=yes;from rank 2 (n2) on, between nodes: as rank 0" ]
ok $? "from which rank on the transport is another one, and from which on it is not" || sed 's/^/# /' info.0

# Two nodes whose link goes down: everybody has an error in time that names a rank of the other side.
net=tern$$
unpart() { for n in a b; do ip netns del $net-$n 2>/dev/null; done; }
part() {
    ip netns add $net-a && ip netns add $net-b || return 1
    ip -n $net-a link add eth0 type veth peer name eth0 netns $net-b || return 1
    ip -n $net-a addr add 10.77.0.1/24 dev eth0; ip -n $net-b addr add 10.77.0.2/24 dev eth0
    for n in a b; do ip -n $net-$n link set lo up; ip -n $net-$n link set eth0 up; done
}
tap_cleanup=unpart
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null || ! part 2>/dev/null; then
    skip "a partition: network namespaces are not to be had"
else
    rm -f address
    ip netns exec $net-a "$R" meet 4 10.77.0.1 >address & meet=$!
    until [ -s address ]; do sleep 0.05; done
    pids=
    for r in 0 1 2 3; do
        n=a; [ $r -ge 2 ] && n=b
        SLURMD_NODENAME=node-$n SLURM_PROCID=$r SLURM_NTASKS=4 TERN_RUN_SOCKET=$(cat address) \
            TERN_DEADLINE=3 TERN_FABRIC_SHARE=2 TERN_FABRIC_DUMP=$WORK/parted \
            ip netns exec $net-$n timeout 30 "$R" rank 2>part.$r & pids="$pids $!"
    done
    for _ in $(seq 200); do [ "$(cat part.? | grep -c '^at work')" = 4 ] && break; sleep 0.05; done
    sleep 0.5
    ip -n $net-a link set eth0 down
    wait $pids
    kill $meet; wait $meet 2>/dev/null
    cat part.? >err
    [ "$(grep -c 'code 75: rank [0-3] (node-[ab]) .* #[0-9]* of communicator 0' err)" = 4 ]
    ok $? "a partition is an error on every rank that names rank, node and operation" || sed 's/^/# /' err
    awk '/^after/ && $2 > 4 {late = 1} END {exit late}' err
    ok $? "within the deadline and a second" || sed 's/^/# /' err
    run tern fabric autopsy parted
    status 0; out_has 'dumps of 4'
fi

# ---- plans
run tern fabric plan -n 64 --ranks-per-node 2
status 0; out_has 'all_reduce      from 8 B      doubling' "which algorithm for which sizes"
run tern fabric plan -n 4 --ranks-per-node 2 -r 1 all_gather 4
status 0; out_has 'meet the node' "the steps of one rank"
run env TERN_FABRIC_ALGORITHM=tree tern fabric plan -n 4 --ranks-per-node 1 -r 1 all_reduce 4
out_has 'send #0: 16 bytes to rank 0' "of an algorithm that is asked for"
for call in broadcast:binomial barrier:dissemination; do
    run tern fabric plan -n 8 --ranks-per-node 2 ${call%:*} 1M
    out_has "${call#*:}" "how a ${call%:*} goes between nodes"
    run tern fabric plan -n 2 --ranks-per-node 2 ${call%:*} 1M
    out_has "${call%:*}: memory"
done
run tern fabric plan all_redcue; status 2; one_line
for count in 1T 15E; do
    run timeout 10 tern fabric plan all_gather $count; status 2; one_line
done
run timeout 10 tern fabric plan barrier 64G; status 0 "a barrier has no elements"
run tern fabric plan all_reduce many; status 2; one_line
run tern fabric plan -n 4 -r 4 all_reduce; status 2; one_line
tap_done
