#!/bin/bash
# Dynamic nodes as ParallelCluster has them: off until a job wants them, off again when idle, and not
# always to be had.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/reach.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
sed 's/MinCount: 4/MinCount: 0/; s/MaxCount: 4/MaxCount: 3/' "$LAYOUT" >cluster.yaml
echo 'virtual: {idle_s: 600}' >cluster.tern.yaml
LAYOUT=$WORK/cluster.yaml
n=trn1-dy-trn1
nodes() { tern cluster exec $CLUSTER -- sinfo -h -N -o '%N %t' | sort | sed "s/^$n-//" | tr '\n' ',' ; }
nodes_are() { [ "$(nodes)" = "$1" ]; }
cluster_up
has up '0 nodes idle' "a layout without static nodes comes up"; has up '3 more start when a job wants them' "cluster up says how many nodes start on demand"
is "$(nodes)" '1 idle~,2 idle~,3 idle~,' "dynamic nodes are off"
run tern cluster exec -w $n-1 $CLUSTER -- true; status 2 "a node that is off cannot be entered"

# ---- a job wants them
on srun -N2 hostname; status 0 "srun waits until its nodes have booted"
is "$(sort out | paste -sd,)" "$n-1,$n-2" "srun runs on the nodes that have booted"
off() { nodes_are '1 idle,2 idle,3 idle~,'; }
until_true off; ok $? "nodes that no job wants stay off" || nodes
tiny_make || exit 1
submit -N3 --exclusive --ntasks-per-node=1 -o run.out --wrap "exec tern run run.yaml --set batch.global=6"
await_job; is "$(job_state $job)" COMPLETED "a run on three nodes, of which one has to boot" || cat run.out
is "$(rows 'outcome, nodes' tiny)" "done $n-[1-3]" "the ledger has it on three nodes" || rows '*' tiny

# ---- capacity
run tern cluster break $n-3 -c $CLUSTER --how spot-reclaim; status 0
is_down() { tern cluster exec $CLUSTER -- sinfo -h -N -n $n-3 -o %t | grep -q 'down\*'; }
until_true is_down; ok $? "a reclaimed node does not answer" || nodes
run tern cluster mend $n-3 -c $CLUSTER; status 0
all_idle() { nodes_are '1 idle,2 idle,3 idle,'; }
until_true all_idle; ok $? "a mended node is idle again" || nodes
tern cluster exec $CLUSTER -- scontrol update nodename=$n-3 state=power_down_force
until_true off; ok $? "an admin switches a node off" || nodes
run tern cluster break $n-3 -c $CLUSTER --how no-capacity; status 0
submit -N3 --exclusive --ntasks-per-node=1 -o three.out --wrap 'srun hostname && exec tern run run.yaml --set batch.global=6 --set name=late --set checkpoint.dir=late'
refused() { tern cluster exec $CLUSTER -- sinfo -h -N -n $n-3 -o '%t %E' | grep -q '^down. (Code:InsufficientInstanceCapacity)Failure when resuming nodes'; }
until_true refused; ok $? "a node that cannot be had is down, with ParallelCluster's reason" || nodes
until_true is_pending; ok $? "the job of a node that cannot be had waits again" || job_state "$job"
tern cluster exec $CLUSTER -- scontrol show job "$job" -o | grep -q "AdminComment=tern: $n-3: (Code:InsufficientInstanceCapacity)Failure when resuming nodes, 2"
ok $? "the job's AdminComment has the reason" || tern cluster exec $CLUSTER -- scontrol show job "$job"
id=$job; submit -N2 -o two.out --wrap 'srun hostname'; done_two() { [ "$(job_state "$job")" = COMPLETED ]; }; until_true done_two; is "$(sort two.out | paste -sd,)" "$n-1,$n-2" "a smaller job gets what is there"
job=$id
run tern cluster mend $n-3 -c $CLUSTER; status 0 "capacity is there again"
tried_again() { ! refused; }
until_true tried_again; ok $? "after the back-off the node may be asked for again" || nodes
start_again; await_job; is "$(job_state "$job")" COMPLETED "then the waiting job runs" || cat three.out
is "$(grep "^$n-[123]$" three.out | sort | paste -sd,)" "$n-1,$n-2,$n-3" "on all three nodes"
is "$(tern ledger sql -l ledger -r late -n -P "select severity, text from event where kind = 'capacity'" | sed 's/, 2.*//')" "warn|$n-3: (Code:InsufficientInstanceCapacity)Failure when resuming nodes" "the ledger says why the run's job has waited" || cat three.out
if long; then # the back-off's end meets a node that is at work again
    tern cluster exec $CLUSTER -- scontrol update nodename=$n-3 state=power_down_force; until_true off
    run tern cluster break $n-3 -c $CLUSTER --how no-capacity
    submit -N1 -w $n-3 -o again.out --wrap 'srun sleep 40'; until_true refused
    run tern cluster mend $n-3 -c $CLUSTER; run tern cluster node $n-3 -c $CLUSTER --power on
    start_again; await_job; is "$(job_state "$job")" COMPLETED "a job on a node that came back early is left alone" || nodes
    is "$(tern cluster exec $CLUSTER -- scontrol show job "$job" -o | grep -o 'Restarts=[0-9]*')" Restarts=1 "the job on a node that came back is not started again"
fi
# Slurm counts in whole seconds, and takes a node that boots in the second in which it is asked for as
# one that has not booted yet, if slurmd's count of seconds is ahead.
tern cluster exec $CLUSTER -- scontrol update nodename=$n-3 state=power_down_force; until_true off
sleep_to() { sleep "$(awk -v now="$(date +%s.%N)" -v to="$1" 'BEGIN {print 1 - (now - int(now)) + to}')"; }
sleep_to 0.1; asked=$(date +%s); run tern cluster node $n-3 -c $CLUSTER --power on
started() { grep -o 'slurmd started on .*' "$TERN_CLUSTER_HOME/$CLUSTER/log/slurmd-$n-3.log" | tail -1 | sed 's/slurmd started on //'; }
until_true all_idle; [ "$(date -d "$(started)" +%s)" -gt "$asked" ]; ok $? "a node boots in a later second than that in which it was asked for" || { echo "$asked"; started; nodes; }
# Slurm ends the process group of its ResumeProgram with it: what waits for the back-off has left it by then.
if strace -o /dev/null true 2>/dev/null; then
    tern cluster exec $CLUSTER -- scontrol update nodename=$n-3 state=power_down_force; until_true off
    run tern cluster break $n-3 -c $CLUSTER --how no-capacity
    tern cluster exec $CLUSTER -- strace -f -o "$WORK/trace" -e trace=setsid,exit_group -e inject=setsid:delay_enter=1000000 \
        tern cluster node $n-3 --power on --for-slurm >resume.out 2>&1 &
    resume=$!
    until_true grep -q 'exit_group(' trace
    awk '/setsid\(.*= [0-9]/ || /setsid resumed.*= [0-9]/ {left = NR} /exit_group/ {ended = ended ? ended : NR} END {exit !(left && left < ended)}' trace
    ok $? "a resume program ends after its back-off has left its process group" || cat trace resume.out
    kill $resume; wait $resume
else skip "strace cannot trace here"; fi
cluster_down

# ---- idle nodes are switched off; some are there from the beginning; an ordinary user's
echo 'virtual: {idle_s: 3, dynamic: 1}' >cluster.tern.yaml
cluster_up
has up '1 nodes idle' "virtual.dynamic: a node is there from the beginning"
on srun -N2 hostname; status 0
again_off() { nodes_are '1 idle,2 idle~,3 idle~,'; }
until_true again_off; ok $? "an idle node is switched off, one that was there from the beginning is not" || nodes
run tern cluster exec -w $n-2 $CLUSTER -- true; status 2 "an idle node that was switched off cannot be reached"
on srun -N2 hostname; status 0 "a node that was off boots again for the next job"
cluster_down
sed -i 's/ScaledownIdletime:.*/ScaledownIdletime: -1/' cluster.yaml; rm cluster.tern.yaml
cluster_up; on scontrol show config; grep -q 'SuspendTime *= INFINITE' out; ok $? "ScaledownIdletime: -1 switches nothing off"; cluster_down
sed -i 's/ScaledownIdletime:.*/ScaledownIdletime: 7/' cluster.yaml
cluster_up; on scontrol show config; grep -q 'SuspendTime *= 420 sec' out; ok $? "ScaledownIdletime is in minutes"; cluster_down
run tern cluster up -n $CLUSTER --mode plain "$LAYOUT"; status 2 "plain mode starts no dynamic nodes"; one_line; err_has 'no static nodes'
if [ "$(id -u)" = 0 ]; then
    uid=65533; chmod 755 "$WORK"; mkdir user; cp cluster.yaml user; chown -R $uid:$uid user; cd user || exit 1
    as=(setpriv --reuid=$uid --regid=$uid --clear-groups env HOME="$WORK/user" TERN_CLUSTER_HOME="$WORK/user/clusters")
    reach $uid; PATH=$REACH_BIN:$PATH
    cluster_down() { "${as[@]}" tern cluster down $CLUSTER >/dev/null 2>&1; }
    if "${as[@]}" unshare -U true 2>/dev/null; then
        "${as[@]}" tern cluster up -n $CLUSTER cluster.yaml >up 2>&1 || cat up
        run "${as[@]}" tern cluster exec $CLUSTER -- srun -N2 hostname; status 0 "a user's dynamic nodes start, too"
    else
        skip "user namespaces are not allowed"
    fi
else
    skip "another user: this is not root"
fi
tap_done
