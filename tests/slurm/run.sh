#!/bin/bash
# tern run in real jobs: ledger rows, Comment, statuses, signals, lost nodes, requeue.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
cluster_up

# recipe NAME 'SCRIPT' [TASKS] [LAUNCH]: tried once, without LAUNCH
recipe() {
    printf 'version: 1\nname: %s\nledger: {dir: ledger}\nworkload: {command: [bash, %s/%s.sh], tasks_per_node: %s}\nlaunch: {%s}\n' \
        "$1" "$WORK" "$1" "${3:-1}" "${4:-restarts: 0}" >"$1.yaml"
    printf '%s\n' "$2" >"$1.sh"
}
printf '#!/bin/bash\nexec tern run\n' >job.sbatch
# job NAME SBATCH-OPTION...: submitted with --tern, its output in NAME.out
job() { name=$1; shift; rm -f "$name.out" ready; submit --exclusive -o "$name.out" --tern="$name.yaml" "$@" job.sbatch; }
job_field() { tern cluster exec $CLUSTER -- scontrol show job "$job" -o | sed "s/.* $1=\([^ ]*\).*/\1/"; }
over() { until_true job_over "$job"; ok $? "$name: the job ends" || tern cluster exec $CLUSTER -- squeue; }

# ---- a job of four nodes
recipe good 'echo "rank $SLURM_PROCID on $SLURMD_NODENAME marker $TERN_MARKER cpus $SLURM_CPUS_PER_TASK"
[ $SLURM_PROCID = 0 ] && for s in 1 2 3; do tern metric step=$s loss=$((10 - s)); done; exit 0' 2
job good -N4; over
[ "$(grep -c '^rank [0-7] on trn1-st-trn1-[1-4] marker '"$job"'[.][0-9.]* cpus 64$' good.out)" = 8 ]
ok $? "eight ranks on four nodes, each with its marker and half the node's CPUs" || cat good.out
for r in 0 1; do has good.out "rank $r on trn1-st-trn1-1"; done
is "$(last 'outcome, exit_code, job_id, nodes, world, last_step' good)" "done 0 $job trn1-st-trn1-[1-4] 8 3" "the attempt's row"
is "$(job_field Comment)" "$(last run_id good)" "the job's Comment is the run"
is "$(job_state "$job") $(job_field ExitCode)" "COMPLETED 0:0" "the job is COMPLETED"
run tern ledger --help; run tern ledger list --ledger ledger; out_has good "tern ledger list shows it"

# ---- statuses
recipe ends 'exit $CODE'
for pair in '3 failed' '2 refused' '75 fault' '76 stopped' '77 halted'; do
    set -- $pair
    CODE=$1 job ends -N1; over
    is "$(last 'outcome, exit_code' ends) $(job_field ExitCode)" "$2 $1 $1:0" "status $1: outcome $2, the job's too"
done
recipe killed '[ $SLURM_PROCID = 1 ] && { sleep 0.2; kill -9 $$; }; exec sleep 60'
job killed -N2; over
is "$(last 'outcome, exit_code' killed)" "killed 75" "a rank that is killed ends all, with 75"

# ---- signals: each rank hears them, and has the time to answer
recipe stops 'trap "echo rank $SLURM_PROCID got TERM; exit 76" TERM
usr1() { # the first that ends ends the other
    echo rank $SLURM_PROCID got USR1; touch heard.$SLURM_PROCID
    for i in $(seq 200); do [ -e heard.0 ] && [ -e heard.1 ] && break; sleep 0.1; done
    exit 76
}
trap usr1 USR1
touch ready.$SLURM_PROCID; while :; do sleep 0.1; done'
ready() { [ -e ready.0 ] && [ -e ready.1 ]; }
stopping() { rm -f ready.* heard.*; job stops -N2 "$@"; until_true ready; }
stopping; on scancel "$job"; over
is "$(grep -c 'got TERM' stops.out)" 2 "scancel: both ranks get SIGTERM"
is "$(last 'outcome, exit_code' stops)" "cancelled 76" "scancel: the outcome is Slurm's word"
stopping; on scancel -b -s USR1 "$job"; over
is "$(grep -c 'got USR1' stops.out)" 2 "a warning signal to the batch job reaches both ranks"
is "$(last 'outcome, exit_code' stops)" "stopped 76" "a stopped attempt is to be continued"
# The first that ends ends the other, which is not ready then.
recipe apart 'ready() { touch ready.$SLURM_PROCID; while :; do sleep 0.1; done; }
[ $SLURM_PROCID = 0 ] && trap "exit 76" USR1 || trap "sleep 60; exit 76" USR1
ready'
rm -f ready.*; job apart -N2; until_true ready; on scancel -b -s USR1 "$job"; over
is "$(last 'outcome, exit_code' apart)" "stopped 76" "ranks that stop one after the other: the first says that it is with a checkpoint"

# ---- requeue: the same run, the next attempt
recipe again 'touch ready.$SLURM_PROCID; [ -z "$SLURM_RESTART_COUNT" ] || exit 0; while :; do sleep 0.1; done'
rm -f ready.*; job again -N2 --requeue --open-mode=append; until_true ready
on "$TOOLS/slurm_job" "$job"
is "$(sed 's/comment=.*//' out)" "RUNNING 1 nodes=trn1-st-trn1-[1-2] restarts=0 requeue=1 name=job.sbatch partition=trn1 " "libslurm tells of the job"
on "$TOOLS/slurm_job" "$job" requeue; status 0 "the job is queued again"
on "$TOOLS/slurm_job" 999999; status 1 "a job that is not there"; err_has "1: job 999999: "
start_again; over
is "$(last 'attempt, restart_count, outcome' again)" "2 1 done" "a requeued job is the run's next attempt"
is "$(sqlite3 ledger/ledger.db "select count(*) from run where name = 'again'")" 1 "under one id, by the job's Comment"

# ---- a lost node
recipe lost 'touch ready.$SLURM_PROCID; exec sleep 600'
rm -f ready.*; job lost -N2 -w 'trn1-st-trn1-[2-3]' --no-requeue --no-kill; until_true ready
run tern cluster node --power off -c $CLUSTER trn1-st-trn1-3; status 0
await_job
is "$(last 'outcome, exit_code' lost)" "node_fail 75" "a lost node has the outcome node_fail, with 75"
has lost.out 'node trn1-st-trn1-3 is down' "the node that is down is named"

# ---- shapes that cannot work
recipe wide 'exit 0' 3
name=wide; submit -N2 -o wide.out --tern=wide.yaml job.sbatch; over
has wide.out '--ntasks-per-node=3' "too few CPUs for the ranks: the error says what to request"
is "$(job_field ExitCode)" "2:0" "the job ends with status 2"
on srun --mpi=none -N2 tern run wide.yaml
err_has 'call it once, in the batch script' "tern run under srun is refused"

# ---- tern submit
on tern submit good.yaml -N 2 -- -o "$WORK/good.out" --parsable
status 0; job=$(cat out) name=good; over
is "$(last 'outcome, world' good)" "done 4" "tern submit: the job runs"
tap_done
