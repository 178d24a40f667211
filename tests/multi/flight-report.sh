#!/bin/bash
# The dumps of ranks that differ, stop or are cut off, and the flight report on them.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"
R=$TOOLS/fabric-faults

export TERN_FABRIC_DUMP=$WORK/dumps
look() { # WORDS NAME
    run tern fabric flight-report dumps
    [ $rc = 0 ] && head -n 1 out | grep -qE -- "$1"
    ok $? "flight report: $2" || sed 's/^/# /' out err
}
TERN_FABRIC_SHARE=1 run timeout 600 "$R" differ 4 op
look 'rank 3 \(.*\) called all_gather f32 64 #21 where rank.* called all_reduce f32 sum 4096 on communicator 0' "different calls"
rm -rf dumps
TERN_FABRIC_SHARE=2 run timeout 600 "$TOOLS/fabric-ranks" kill 4 2
look '3 ranks wait, .* for rank 2 \(.*\), which wrote no dump itself \(rank 3 .*\): it was killed or hung' \
    "the dump of a killed rank is written by a rank of its node"
out_has 'finished #20'
grep -q 'rank 2 (.*) left all_reduce f32 sum 4096 #20 at [0-9:.]* and never called #21' out
ok $? "the report has the last call of the killed rank" || sed 's/^/# /' out
rm -rf dumps
TERN_DEADLINE=10 TERN_FABRIC_SHARE=1 run timeout 600 "$TOOLS/fabric-ranks" kill 4 2
look '3 ranks wait, .* for rank 2 \(.*\), which has no dump: it died or was cut off' "killed alone on its node"
out_has 'ranks, dumps of 3; none of rank 2'
rm -rf dumps
trap '' USR2 # until it listens, the question must not end it
TERN_DEADLINE=600 "$R" late 4 2>err & pid=$!
trap - USR2
asked() { # until all three wait for the fourth itself, and have answered
    kill -USR2 $pid; sleep 0.1
    tern fabric flight-report dumps 2>/dev/null | grep -q 'ranks 0-2 are in all_reduce .* #21 .*, waiting for rank 3'
}
until_true asked
look '3 ranks wait, .* for rank 3 \(.*\), which was in no operation' "SIGUSR2, while one does not come"
out_has 'ranks 0-2 are in all_reduce f32 sum 4096 #21'
run tern fabric flight-report --json dumps
out_has '"culprit": 3'
out_has '"waits_for": 3'
kill -0 $pid; ok $? "ranks go on after SIGUSR2"
kill $pid; wait $pid 2>/dev/null
run tern fabric flight-report dumps; mv out new
run tern fabric autopsy dumps
cmp -s out new; ok $? "tern fabric autopsy, the name in tern 0.3, prints the flight report"

head -c 700 dumps/fabric-rank-00001.tfr >cut && mv cut dumps/fabric-rank-00001.tfr
look 'for rank 3' "a damaged dump does not stop it"
out_has 'fabric-rank-00001.tfr: not a dump'
mkdir empty
run tern fabric flight-report empty
status 2; one_line; err_has 'no fabric-rank'
run tern fabric flight-report nosuch
status 2; one_line

run tern fabric info
status 0; out_has 'libfabric'; out_has 'deadline: '
run env TERN_FABRIC_SHARE=1 tern fabric info --json
status 0; out_has '"explain"'
"$R" meet 4 127.0.0.1 >address & meet=$!
until [ -s address ]; do sleep 0.02; done
for r in 1 2 3 0; do # rank 1 is not like the others
    env SLURMD_NODENAME=n$r SLURM_PROCID=$r SLURM_NTASKS=4 TERN_RUN_SOCKET=$(cat address) TERN_DEADLINE=20 \
        $([ $r = 1 ] && echo RDMAV_FORK_SAFE=yes) timeout 600 tern fabric info >info.$r 2>&1 &
    [ $r = 0 ] && wait $!
done
kill $meet; wait 2>/dev/null
[ "$(grep -oE '^from rank.*|.*FORK_SAFE=.*' info.0 | paste -sd';')" = \
    "from rank 1 (n1) on, between nodes:;  RDMAV_FORK_SAFE=yes;from rank 2 (n2) on, between nodes: as rank 0" ]
ok $? "from which rank on the transport is another one, and from which on it is not" || sed 's/^/# /' info.0

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
    run timeout 600 tern fabric plan all_gather $count; status 2; one_line
done
run timeout 600 tern fabric plan barrier 64G; status 0 "a barrier has no elements"
run tern fabric plan all_reduce many; status 2; one_line
run tern fabric plan -n 4 -r 4 all_reduce; status 2; one_line
run tern fabric plan -n 0; status 2; one_line; err_has 'out of range' "a plan of no ranks"
tap_done
