#!/bin/bash
# Ranks that go on without one that was killed, and nodes whose link goes down.
# waits: for deadlines, most of the time
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/fabric.sh"
R=$TOOLS/fabric-faults

# A communicator again in the same processes, without the one that was killed.
for share in 4 1; do
    TERN_DEADLINE=10 TERN_FABRIC_SHARE=$share run timeout 600 "$R" rebuild 4
    [ "$(grep -c 'rebuilt: .* 3 ranks, sum 3' err)" = 9 ]
    words "rebuilt without the killed rank, at most $share sharing"
    bound "$(awk '$1 == "rebuilt:" && $2 + 0 > m + 0 {m = $2} END {print m}' err)" 999 "rebuilt, at most $share sharing: milliseconds"
    maps=0
    [ -n "${TERN_SANITIZE-}" ] && maps='[0-9]*' # their own memory grows; leaks they tell themselves
    [ "$(grep -c "left: 0 descriptors, $maps maps" err)" = 6 ]
    ok $? "a cut-off fabric leaves nothing open or mapped" || sed 's/^/# /' err
done

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
    until_true test -s address
    pids=
    for r in 0 1 2 3; do
        n=a; [ $r -ge 2 ] && n=b
        SLURMD_NODENAME=node-$n SLURM_PROCID=$r SLURM_NTASKS=4 TERN_RUN_SOCKET=$(cat address) \
            TERN_DEADLINE=10 TERN_FABRIC_SHARE=2 TERN_FABRIC_DUMP=$WORK/parted \
            ip netns exec $net-$n timeout 600 "$R" rank 2>part.$r & pids="$pids $!"
    done
    working() { [ "$(cat part.? | grep -c '^at work')" = 4 ]; }
    until_true working
    ip -n $net-a link set eth0 down
    wait $pids
    kill $meet; wait $meet 2>/dev/null
    cat part.? >err
    [ "$(grep -c 'code 75: rank [0-3] (node-[ab]) .* #[0-9]* of communicator 0' err)" = 4 ]
    ok $? "a partition is an error on every rank that names rank, node and operation" || sed 's/^/# /' err
    bound "$(slowest)" 11 "a partition: seconds, of a deadline of 10"
    run tern fabric flight-report parted
    status 0; out_has 'dumps of 4'
fi
tap_done
