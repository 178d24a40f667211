#!/bin/bash
# What tern run asks of the controller does not grow with the nodes: counted, not timed.
# alone: 64 nodes share these processors, and a node that is late is asked about
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
sed 's/MinCount: 4/MinCount: 64/; s/MaxCount: 4/MaxCount: 64/' "$LAYOUT" >cluster.yaml
echo 'topology: {leaf: 6}' >cluster.tern.yaml
LAYOUT=$WORK/cluster.yaml
cluster_up
on scontrol show config
[ "$(sed -n 's/^MessageTimeout *= \([0-9]*\) sec/\1/p' out)" -ge 16 ]
ok $? "64 nodes on one machine are waited for longer than four" || grep -i timeout out

cat >run.yaml <<Y
version: 1
name: scale
ledger: {dir: ledger}
parallel: {tensor: 1, pipeline: 2}
workload: {command: [bash, $WORK/rank.sh], tasks_per_node: 2}
Y
echo 'echo "at $SLURM_PROCID $SLURMD_NODENAME"' >rank.sh
printf '#!/bin/bash\nexec %s/tern run run.yaml\n' "$BIN" >job.sbatch
over() { grep -q 'attempt 1: [a-z]' "job-$1.out"; }
# counts NODES: what one run asks, "MESSAGE_TYPE count" a line, sorted.  Nobody else asks meanwhile;
# what each node's slurmd says by itself (its registration, the end of its prolog, epilog, step) is
# not tern's.  Whether the step is still there is asked by time, every 10 s, so that a slow machine
# asks more often.
counts() {
    until_true queue_empty
    on sdiag -r
    submit --exclusive -N "$1" -o "job-$1.out" job.sbatch
    for _ in 1 2 3 4 5 6; do until_true over "$1" && break; done
    sleep 0.5
    on sdiag
    sed -n '/by message type/,/by user/p' out | sed -n 's/^[ \t]*\([A-Z_]*\) .*count:\([0-9]*\).*/\1 \2/p' |
        sed 's/\(REQUEST_JOB_STEP_INFO\) .*/\1/' |
        grep -vE '^(MESSAGE_|REQUEST_(COMPLETE_|STEP_COMPLETE|STATS_INFO|PING|NODE_REGISTRATION))' | sort >"asked-$1"
}
counts 4
counts 64
[ "$(grep -c '^at' job-4.out)" = 8 ] && [ "$(grep -c '^at' job-64.out)" = 128 ]
ok $? "8 ranks on 4 nodes, 128 on 64" || tail -20 job-64.out
has job-64.out "ranks follow the network's switches" "in an order of tern's"
grep -q REQUEST_JOB_STEP_CREATE asked-4 && grep -q REQUEST_TOPO_INFO asked-4
ok $? "the controller counts what it is asked" || cat out
cmp -s asked-4 asked-64
ok $? "tern run asks the controller as often for 64 nodes as for 4" || diff asked-4 asked-64 | sed 's/^/# /'
sed 's/^/# /' asked-64
tap_done
