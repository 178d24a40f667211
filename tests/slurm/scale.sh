#!/bin/bash
# What tern run asks of the controller does not grow with the nodes: counted, not timed.
# For 8 nodes as for 4; in the long form for 64.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
many=$(long && echo 64 || echo 8)
sed "s/MinCount: 4/MinCount: $many/; s/MaxCount: 4/MaxCount: $many/" "$LAYOUT" >cluster.yaml
echo 'topology: {leaf: 6}' >cluster.tern.yaml
LAYOUT=$WORK/cluster.yaml
cluster_up
on scontrol show config
seconds() { sed -n "s/^$1 *= \([0-9]*\) sec.*/\1/p" out; }
[ "$(seconds SlurmdTimeout)" -ge $((2 * $(seconds MessageTimeout))) ]
ok $? "a node is given up after two lost messages, not after one" || grep -i timeout out
if long; then
    [ "$(seconds MessageTimeout)" -ge 16 ]
    ok $? "64 nodes on one machine are waited for longer than four" || grep -i timeout out
fi

cat >run.yaml <<Y
version: 1
name: scale
ledger: {dir: ledger}
parallel: {tensor: 1, pipeline: 2}
workload: {command: [bash, $WORK/rank.sh], tasks_per_node: 2}
Y
echo 'echo "at $SLURM_PROCID $SLURMD_NODENAME"' >rank.sh
printf '#!/bin/bash\n%s/tern run run.yaml\ntouch over.$SLURM_JOB_NUM_NODES\n' "$BIN" >job.sbatch
# counts NODES: what one run asks, "MESSAGE_TYPE count" a line, sorted.  No other process asks
# meanwhile; what each node's slurmd says by itself (its registration, the end of its prolog,
# epilog, step) is not tern's.  Whether the step is still there is asked by time, every 10 s: a slow
# machine asks it more often.
counts() {
    until_true queue_empty
    on sdiag -r
    submit --exclusive -N "$1" -o "job-$1.out" job.sbatch
    until_true test -e "over.$1"
    on sdiag
    sed -n '/by message type/,/by user/p' out | sed -n 's/^[ \t]*\([A-Z_]*\) .*count:\([0-9]*\).*/\1 \2/p' |
        grep -vE '^(MESSAGE_|REQUEST_(COMPLETE_|STEP_COMPLETE|STATS_INFO|PING|NODE_REGISTRATION|JOB_STEP_INFO))' | sort >"asked-$1"
}
counts 4
counts $many
[ "$(grep -c '^at' job-4.out)" = 8 ] && [ "$(grep -c '^at' job-$many.out)" = $((2 * many)) ]
ok $? "8 ranks on 4 nodes, $((2 * many)) on $many" || tail -20 job-$many.out
has job-$many.out "ranks follow the network's switches" "in an order of tern's"
grep -q REQUEST_JOB_STEP_CREATE asked-4 && grep -q REQUEST_TOPO_INFO asked-4
ok $? "the controller counts what it is asked" || cat out
cmp -s asked-4 asked-$many
ok $? "tern run asks the controller as often for $many nodes as for 4" || diff asked-4 asked-$many | sed 's/^/# /'
sed 's/^/# /' asked-$many
tap_done
