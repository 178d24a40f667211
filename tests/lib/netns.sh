# Sourced after tap.sh by tests of ranks on two nodes that are network namespaces; skips them where
# there are none.
#
#   $A, $B            the namespaces: `nodes_make` makes them empty, the test's end removes them
#   nodes_up N REGEX  waits until N links whose lines match REGEX are up
#   serve ADDRESS     starts the place on $A where $SLURM_NTASKS ranks meet
#   rank NODE RANK STEPS BYTES   starts a rank there (fabric-rails); its words are in ./out.RANK, ./err.RANK
#   $pids             of the ranks
#   serve_end         after the ranks' end
. "$ROOT/tests/lib/fabric.sh"
[ "$(id -u)" = 0 ] || skip_all "needs root for network namespaces"
R=$TOOLS/fabric-rails
A=tern-a-$$ B=tern-b-$$
pids=
unset TERN_FABRIC_PROVIDER TERN_FABRIC_MODE TERN_FABRIC_RAILS
# shellcheck disable=SC2086
nodes_remove() {
    [ -z "$pids" ] || kill $pids 2>/dev/null
    ip netns del $A 2>/dev/null; ip netns del $B 2>/dev/null
}
tap_cleanup=nodes_remove
nodes_make() { ip netns add $A && ip netns add $B && ip -n $A link set lo up && ip -n $B link set lo up; }
nodes_up() { until [ "$(cat <(ip -n $A -br link) <(ip -n $B -br link) | grep -cE "$2.* UP ")" = "$1" ]; do sleep 0.05; done; }
serve() {
    pids=
    rm -f address hold seen out.? err.? && mkfifo hold
    ip netns exec $A "$R" serve "$SLURM_NTASKS" "$1" <hold >address &
    server=$!
    exec 9>hold
    until [ -s address ]; do sleep 0.05; done
}
rank() {
    SLURM_PROCID=$2 SLURMD_NODENAME=node-$2 TERN_RUN_SOCKET=$(cat address) \
        ip netns exec "$1" timeout 600 "$R" rank "$3" "$4" >"out.$2" 2>"err.$2" &
    pids="$pids $!"
}
serve_end() { pids=; exec 9>&-; wait "$server"; }
