#!/bin/bash
# tern run goes on by itself: on a spare node, after a requeue; and stops when that does not help.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
cluster_up

# recipe NAME 'SCRIPT' LAUNCH
recipe() {
    printf 'version: 1\nname: %s\nledger: {dir: ledger}\nworkload: {command: [bash, %s/%s.sh]}\nlaunch: {%s}\n' \
        "$1" "$WORK" "$1" "$3" >"$1.yaml"
    printf '%s\n' "$2" >"$1.sh"
}
printf '#!/bin/bash\nexec tern run\n' >job.sbatch
job() { name=$1; shift; rm -f "$name.out"; submit --exclusive --open-mode=append -o "$name.out" --tern="$name.yaml" "$@" job.sbatch; }
over() { await_job; ok $? "$name: the job ends" || tern cluster exec $CLUSTER -- squeue; }
# The workload waits for a file, unless its node is not the one that fails.
wait_for='echo $SLURMD_NODENAME >>at.$SLURM_STEP_ID; [ -e go ] || exec sleep 600'

# ---- a spare node takes the place of a lost one
rm -f go at.*
recipe spare "$wait_for" 'spares: 1, restarts: 3'
job spare -N3 -w 'trn1-st-trn1-[1-3]' --no-kill --no-requeue
both() { until_true sh -c '[ $(cat at.* 2>/dev/null | wc -l) = 2 ]'; }
both
is "$(sort at.* | paste -sd' ')" "trn1-st-trn1-1 trn1-st-trn1-2" "the spare does not work at first"
touch go
run tern cluster node --power off -c $CLUSTER trn1-st-trn1-2; status 0
over
is "$(rows outcome spare)" "node_fail,done" "a lost node, and the next attempt is done"
is "$(rows nodes spare)" "trn1-st-trn1-[1-2],trn1-st-trn1-[1,3]" "on the spare"
is "$(sqlite3 ledger/runs/$(rows "distinct run_id" spare)/run.db "select node from event where kind = 'restart'")" trn1-st-trn1-2 "the ledger has the restart and the node"
has spare.out 'node trn1-st-trn1-2 is down'

# ---- none left: the job is queued again
run tern cluster node --power on -c $CLUSTER trn1-st-trn1-2
until_true sh -c "tern cluster exec $CLUSTER -- sinfo -h -n trn1-st-trn1-2 -o %t | grep -qx idle"
rm -f go at.*
recipe queued "$wait_for" 'restarts: 3'
job queued -N2 -w 'trn1-st-trn1-[1-2]' --no-kill --requeue
both
touch go
on scontrol update jobid="$job" ReqNodeList= >/dev/null
run tern cluster node --power off -c $CLUSTER trn1-st-trn1-2; status 0
until_true grep -q 'queued again' queued.out
has queued.out 'the job is queued again'
run tern cluster node --power on -c $CLUSTER trn1-st-trn1-2
over
is "$(rows outcome queued)" "node_fail,done" "without a spare the job is queued again, and done"
is "$(rows restart_count queued)" "0,1" "as Slurm's restart"
is "$(rows world queued)" "2,2" "the next attempt has all nodes of the job"

# ---- one rank exits by itself, and srun ends the other
one='[ "$SLURM_PROCID" = 1 ] || { : >begun; exec sleep 600; }; until [ -e begun ]; do sleep 0.1; done; exit 1'
rm -f begun; recipe oneexit "$one" 'restarts: 3'
job oneexit -N2; over
is "$(rows 'outcome, exit_code' oneexit)" "failed 1" "an exit status of one rank counts, not the end that srun gave the other: it has failed, once"
has oneexit.out 'rank 1 ended with status 1' "the message names the rank with status 1"
rm -f begun; recipe onecompile true 'restarts: 3'
printf '%s\n' "$one" >compile.sh
sed -i "s|^workload: {|&precompile: {command: [bash, $WORK/compile.sh], cache: cache}, |" onecompile.yaml
job onecompile -N2; over
is "$(rows 'kind, outcome, exit_code' onecompile)" "precompile precompile_failed 1" "so does that of a rank that compiles"

# ---- what helps no more
recipe stuck 'kill -9 $$' 'restarts: 5'
job stuck -N1; over
is "$(rows outcome stuck)" "killed,killed,killed" "three attempts in a row without a checkpoint"
has stuck.out 'given up'
recipe few 'kill -9 $$' 'restarts: 5'
job few -N1 --tern-restarts=1; over
is "$(rows outcome few)" "killed,killed" "--tern-restarts=1: one more attempt"
has few.out 'no restart is left of 1'
job few -N1 --tern-restarts=0; over
is "$(rows outcome few | tr -d ,)" "killedkilledkilled" "--tern-restarts=0: the job is not tried again"
# The supervisor is lost with its node, and Slurm queues the job again by itself.
cat >lost.sbatch <<'S'
#!/bin/bash
rm -f started; tern run & pid=$!
until [ -e started ]; do kill -0 $pid || exit; sleep 0.1; done
kill -9 $pid; scontrol requeue "$SLURM_JOB_ID"; exec sleep 600
S
recipe lost 'touch started; exec sleep 600' 'restarts: 1, health: off'
name=lost; submit --exclusive --open-mode=append -o lost.out --requeue --tern=lost.yaml -N1 lost.sbatch
for _ in 1 2; do until_true grep -q 'no restart is left' lost.out && break; done; over
is "$(rows "coalesce(outcome, '-')" lost)" "requeued,requeued,failed" "a supervisor that is always lost: not for ever"
has lost.out '2 attempts of this job were lost and made no checkpoint; no restart is left of 1'

# ---- the batch script's own node is lost: Slurm queues the job again, and the next attempt says why
rm -f go at.*
recipe batch "$wait_for" 'restarts: 3'
name=batch; on tern submit batch.yaml -N2 -- --parsable -w 'trn1-st-trn1-[1-2]' -o batch.out; job=$(cat out)
both; touch go
run tern cluster node --power off -c $CLUSTER trn1-st-trn1-1; status 0
until_true is_pending
on scontrol update jobid="$job" ReqNodeList= >/dev/null
start_again; over
is "$(job_state "$job")" COMPLETED "a job that lost its batch script's node is done without a person"
is "$(rows outcome batch)" "node_fail,done" "which is its first attempt's end"
is "$(rows restart_count batch)" "0,1" "as Slurm's restart"
run tern cluster node --power on -c $CLUSTER trn1-st-trn1-1
until_true sh -c "tern cluster exec $CLUSTER -- sinfo -h -n trn1-st-trn1-1 -o %t | grep -qx idle"

# ---- srun, with its helper, is killed: its ranks live on, and hold the nodes
rm -f up.*
cat >srun.sbatch <<'S'
#!/bin/bash
tern run & pid=$!
until [ -e up.0.0 ] && [ -e up.0.1 ]; do kill -0 $pid || exit; sleep 0.1; done
kill -9 $(pgrep -x srun); wait $pid
S
recipe orphans 'touch up.$SLURM_STEP_ID.$SLURM_PROCID; [ $SLURM_STEP_ID != 0 ] || exec sleep 600' 'restarts: 1, health: off'
name=orphans; submit --exclusive -o orphans.out --no-requeue --tern=orphans.yaml -N2 srun.sbatch
over
is "$(rows outcome orphans)" "killed,done" "ranks that a killed srun left do not hold up the next attempt"
recipe all 'exit 0' 'spares: 2'
job all -N2; over
has all.out 'all.yaml:5: launch.spares: 2 nodes in reserve'
tap_done
