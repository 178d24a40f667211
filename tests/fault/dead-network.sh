#!/bin/bash
# Nodes (network namespaces) on whose every one there is a network that leads nowhere, as a BMC's or an
# untrunked VLAN's: one end of each link is there, and nothing is at the other.
. "$(dirname "$0")/../lib/tap.sh"
[ "$(id -u)" = 0 ] || skip_all "needs root for network namespaces"
. "$ROOT/tests/lib/fabric.sh"
R=$TOOLS/fabric-rails
A=tern-da-$$ B=tern-db-$$
pids=
# shellcheck disable=SC2086
clean() {
    [ -z "$pids" ] || kill $pids 2>/dev/null
    ip netns del $A 2>/dev/null; ip netns del $B 2>/dev/null
}
tap_cleanup=clean
# dead0 and dead9 lie before and behind `good` in the order in which networks are taken.
nodes() {
    ip netns add $A && ip netns add $B || return 1
    ip link add good netns $A type veth peer name good netns $B || return 1
    local i n
    for i in 1:$A 2:$B; do
        n=${i#*:}
        ip -n "$n" addr add "10.77.5.${i%:*}/24" dev good && ip -n "$n" link set good up && ip -n "$n" link set lo up || return 1
        for d in 0 9; do
            ip -n "$n" link add dead$d type veth peer name nobody$d || return 1
            ip -n "$n" addr add "10.77.$d.${i%:*}/24" dev dead$d
            ip -n "$n" link set dead$d up; ip -n "$n" link set nobody$d up
        done
    done
    until [ "$(cat <(ip -n $A -br link) <(ip -n $B -br link) | grep -cE '^(good|dead).* UP ')" = 6 ]; do sleep 0.05; done
}
nodes 2>/dev/null || skip_all "no network namespaces here"
unset TERN_FABRIC_PROVIDER TERN_FABRIC_MODE TERN_FABRIC_RAILS FI_PROVIDER FI_TCP_IFACE FI_NET_IFACE FI_SOCKETS_IFACE FI_UDP_IFACE
export TERN_DEADLINE=30 TERN_FABRIC_SHARE=1

info() { run timeout 60 ip netns exec $A "$BIN/tern" fabric info; }
FI_TCP_IFACE=good info
out_has 'rail 0: good (10.77.5.1)' "FI_TCP_IFACE is heeded, whatever tcp is called"
FI_TCP_IFACE=dead info
out_has 'rail 0: dead0' "or names' beginning, as libfabric has it"
if grep -q 'provider net' out; then # libfabric 1.16 and 1.17
    FI_NET_IFACE=good FI_TCP_IFACE=dead0 info
    out_has 'rail 0: good' "FI_NET_IFACE comes first where that is tcp's name"
fi
for p in sockets:SOCKETS 'udp;ofi_rxd:UDP' 'tcp;ofi_rxm:TCP'; do
    TERN_FABRIC_PROVIDER=${p%:*} info
    grep -q 'rail 0' out || { skip "libfabric has no ${p%:*} here"; continue; }
    TERN_FABRIC_PROVIDER=${p%:*} run timeout 60 env "FI_${p#*:}_IFACE=good" ip netns exec $A "$BIN/tern" fabric info
    out_has 'rail 0: good' "${p%:*}: FI_${p#*:}_IFACE"
done
FI_TCP_IFACE=god info
out_has "FI_TCP_IFACE: there is no interface 'god' here" "one that is not there is told"
tap_done
