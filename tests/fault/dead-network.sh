#!/bin/bash
# Nodes (network namespaces) on whose every one there is a network that leads nowhere, as a BMC's or an
# untrunked VLAN's: one end of each link is there, and nothing is at the other.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/netns.sh"
# dead0 and dead9 lie before and behind `good` in the order in which networks are taken.
nodes() {
    nodes_make || return 1
    ip link add good netns $A type veth peer name good netns $B || return 1
    local i n
    for i in 1:$A 2:$B; do
        n=${i#*:}
        ip -n "$n" addr add "10.77.5.${i%:*}/24" dev good && ip -n "$n" link set good up || return 1
        for d in 0 9; do
            ip -n "$n" link add dead$d type veth peer name nobody$d || return 1
            ip -n "$n" addr add "10.77.$d.${i%:*}/24" dev dead$d
            ip -n "$n" link set dead$d up; ip -n "$n" link set nobody$d up
        done
    done
    nodes_up 6 '^(good|dead)'
}
nodes 2>/dev/null || skip_all "no network namespaces here"
unset FI_PROVIDER FI_TCP_IFACE FI_NET_IFACE FI_SOCKETS_IFACE FI_UDP_IFACE
export TERN_DEADLINE=30 TERN_FABRIC_SHARE=1 SLURM_NTASKS=4

info() { run timeout 600 ip netns exec $A "$BIN/tern" fabric info; }
FI_TCP_IFACE=good info
out_has 'rail 0: good (10.77.5.1)' "FI_TCP_IFACE selects tcp's interface, under any name of the provider"
FI_TCP_IFACE=dead info
out_has 'rail 0: dead0' "FI_TCP_IFACE selects by a prefix, as in libfabric"
if grep -q 'provider net' out; then # libfabric 1.16 and 1.17
    FI_NET_IFACE=good FI_TCP_IFACE=dead0 info
    out_has 'rail 0: good' "FI_NET_IFACE comes first where that is tcp's name"
fi
for p in sockets:SOCKETS 'udp;ofi_rxd:UDP' 'tcp;ofi_rxm:TCP'; do
    TERN_FABRIC_PROVIDER=${p%:*} info
    grep -q 'rail 0' out || { skip "libfabric has no ${p%:*} here"; continue; }
    TERN_FABRIC_PROVIDER=${p%:*} run timeout 600 env "FI_${p#*:}_IFACE=good" ip netns exec $A "$BIN/tern" fabric info
    out_has 'rail 0: good' "${p%:*}: FI_${p#*:}_IFACE"
done
FI_TCP_IFACE=god info
out_has "FI_TCP_IFACE: there is no interface 'god' here" "FI_TCP_IFACE with an unknown interface is an error"

# Two ranks a node; their statuses in $rcs, all their words in ./words.
meet() { # STEPS BYTES
    local pid
    rcs=
    serve "${at:-10.77.5.1}"
    rank $A 0 "$1" "$2"; rank $A 1 "$1" "$2"; rank $B 2 "$1" "$2"; rank $B 3 "$1" "$2"
    for pid in $pids; do wait "$pid"; rcs=$rcs$?; done
    serve_end
    cat out.? err.? >words
}
words_has() { grep -qE "$1" words; ok $? "$2" || sed 's/^/# /' words | head -20; }
told="a network that leads nowhere is left out: dead[09] \\(10.77.[09].1\\): rank [0-3] at 10.77.[09].[12] hears nothing from rank [0-3] at 10.77.[09].[12]"

for how in all any; do
    TERN_FABRIC_RAILS=$how meet 20 300000
    [ "$rcs" = 0000 ]; ok $? "$how: ranks meet where every node has two more networks, that lead nowhere" || sed 's/^/# /' words | head -20
    [ "$(grep -cE "$told" words)" = 2 ]; ok $? "$how: each dead network is logged once, with interface and addresses" || sed 's/^/# /' words | head -20
    [ "$(grep -c ' on good (10.77.5.0/24)$' words)" = 4 ]; ok $? "$how: messages use the network that leads to all" || sed 's/^/# /' words | head -20
done
TERN_FABRIC_MODE=tagged meet 20 300000
[ "$rcs" = 0000 ] && [ "$(grep -c '(tagged) on good (10.77.5.0/24)$' words)" = 4 ]
ok $? "tagged messages use the network that leads to all" || sed 's/^/# /' words | head -20
FI_TCP_IFACE=good meet 20 300000
[ "$rcs" = 0000 ] && ! grep -q 'left out' words
ok $? "FI_TCP_IFACE=good: nothing else is tried" || sed 's/^/# /' words | head -20

# Where none is left: an error in seconds, with what to do.
export TERN_DEADLINE=8
FI_TCP_IFACE=dead meet 20 300000
[ "$rcs" = 3333 ]; ok $? "no network that is left leads anywhere: all ranks end" || sed 's/^/# /' words
words_has "code 75: of the networks that FI_TCP_IFACE leaves, none leads anywhere: dead0 \\(10.77.0.1\\): rank 0 at 10.77.0.1 hears nothing from rank 2 at 10.77.0.2.*dead9 .*launch.rails .*TERN_FABRIC_RAILS, now not set\\) or FI_TCP_IFACE \\(dead\\)" "the error names each dead network, its addresses and the settings"
TERN_FABRIC_RAILS=any FI_TCP_IFACE=dead meet 20 300000
[ "$rcs" = 3333 ]; ok $? "launch.rails any: all ranks end where no network leads anywhere" || sed 's/^/# /' words
words_has "code 75: .*TERN_FABRIC_RAILS, now any\\) or FI_TCP_IFACE \\(dead\\)" "launch.rails any: the error tells that it is set"
for p in tcp:NET 'udp;ofi_rxd:UDP' sockets:SOCKETS; do
    TERN_FABRIC_PROVIDER=${p%:*} run timeout 600 env "FI_${p#*:}_IFACE=dead9" ip netns exec $A "$BIN/tern" fabric info
    grep -q 'rail 0: dead9' out || { skip "libfabric has no provider here that FI_${p#*:}_IFACE is for"; continue; }
    export TERN_FABRIC_PROVIDER=${p%:*} "FI_${p#*:}_IFACE=dead9"
    meet 20 300000
    [ "$rcs" = 3333 ] && grep -q "code 75: of the networks that FI_${p#*:}_IFACE leaves, none .*not set) or FI_${p#*:}_IFACE (dead9)" words && ! grep -q FI_TCP_IFACE words
    ok $? "the error names FI_${p#*:}_IFACE where that has chosen the network" || sed 's/^/# /' words
    unset TERN_FABRIC_PROVIDER "FI_${p#*:}_IFACE"
done
TERN_FABRIC_RAILS=dead9 meet 20 300000
[ "$rcs" = 3333 ]; ok $? "a requested network that leads nowhere ends all ranks" || sed 's/^/# /' words
words_has "code 75: the rail named leads nowhere: dead9 .*Name one that does by .*TERN_FABRIC_RAILS, now dead9\\)" "the error names the requested network and its setting"
TERN_FABRIC_RAILS=good,dead9 meet 20 300000
[ "$rcs" = 3333 ]; ok $? "one of two requested networks leads nowhere: all ranks end" || sed 's/^/# /' words
words_has "code 75: of the rails named, these lead nowhere: dead9 .*Name others by .*TERN_FABRIC_RAILS, now good,dead9\\)" "the error tells which of the requested networks leads nowhere"
! grep -qE "no network|good \\(" words; ok $? "the error says nothing of the requested network that works" || sed 's/^/# /' words

# Nodes that have no other IPv4 than their own loopback's.
export TERN_DEADLINE=30
for i in 1:$A 2:$B; do
    n=${i#*:}
    for d in good dead0 dead9; do ip -n "$n" -4 addr flush dev $d; done
    ip -n "$n" -6 addr add "fd77:5::${i%:*}/64" dev good nodad; ip -n "$n" -6 addr add "fd77:9::${i%:*}/64" dev dead9 nodad
done
at=fd77:5::1 meet 20 300000
[ "$rcs" = 0000 ] && [ "$(grep -c ' on good (fd77:5::/64)$' words)" = 4 ]
ok $? "ranks meet on nodes of IPv6 alone" || sed 's/^/# /' words | head -20
tap_done
