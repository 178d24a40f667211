#!/bin/bash
# Virtual nodes with several network interfaces (virtual.nics): each on a network of its own, and a run uses all.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
sed 's/Count: 4/Count: 2/' "$LAYOUT" >cluster.yaml
LAYOUT=$WORK/cluster.yaml
echo 'virtual: {nics: 9}' >cluster.tern.yaml
run tern cluster up -n $CLUSTER cluster.yaml; status 2 "more interfaces than 8 are refused"; err_has 'nics'
echo 'virtual: {nics: 2}' >cluster.tern.yaml
cluster_up
n=trn1-st-trn1
on_node() { tern cluster exec -w "$1" $CLUSTER -- "${@:2}"; }
is "$(on_node $n-2 ip -o -4 addr | awk '$2 != "lo" {print $2, $4}' | paste -sd,)" "eth0 10.200.1.2/16,eth1 10.201.1.2/16" "a node has two interfaces, each on its network"
for a in 10.200.1.2 10.201.1.2; do
    on_node $n-1 timeout 600 bash -c "exec 3<>/dev/tcp/$a/6818"; ok $? "node 1 reaches node 2 at $a"
done
is "$(on_node $n-1 ip route get 10.201.1.2 | grep -o 'dev eth1.*src [0-9.]*' | tr -s ' ')" "dev eth1 src 10.201.1.1" "by the interface of that network"

# ---- the ranks' rails
tiny_make || exit 1
carried() { on_node $n-2 cat /sys/class/net/eth1/statistics/tx_bytes; } # by node 2 on its second network
before=$(carried)
submit -N2 --exclusive --ntasks-per-node=1 -o run.out --wrap 'exec tern run run.yaml'
await_job; is "$(job_state "$job")" COMPLETED "a run of ranks with two rails trains" || tail -20 run.out
after=$(carried)
[ $((after - before)) -gt 2000 ]; ok $? "ranks use the second network, too" || echo "# $before, $after bytes"
submit -N2 --exclusive --ntasks-per-node=1 -o one.out --wrap 'TERN_FABRIC_RAILS=eth1 exec tern run run.yaml --set name=one --set checkpoint.dir=one'
await_job; is "$(job_state "$job")" COMPLETED "TERN_FABRIC_RAILS=eth1: a run over the second network alone trains" || tail -20 one.out
[ $(($(carried) - after)) -gt 2000 ]; ok $? "which carries its messages"; echo "# bytes on eth1: $before, $after, $(carried)"

# ---- what befalls a node befalls all of its interfaces
port() { tern cluster exec $CLUSTER -- timeout "$1" bash -c "exec 3<>/dev/tcp/$2/6818" 2>/dev/null; }
run tern cluster break $n-2 -c $CLUSTER --how partition; status 0
! port 2 10.200.1.2 && ! port 2 10.201.1.2; ok $? "a partition cuts both networks off"
run tern cluster mend $n-2 -c $CLUSTER; status 0
port 30 10.200.1.2 && port 30 10.201.1.2; ok $? "a mend brings both back"
run tern cluster node $n-2 -c $CLUSTER --power off; run tern cluster node $n-2 -c $CLUSTER --power on; status 0
back() { port 5 10.201.1.2; }
until_true back; ok $? "a node that boots again has both"
tap_done
