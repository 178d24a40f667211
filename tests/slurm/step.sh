#!/bin/bash
# `tern run` started by srun, in steps of every shape: it trains, or is refused at once with the way
# out.  srun's variables for the step do not reach the ranks; a launch that waits for the job's
# nodes says so.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
cluster_up
tiny_make || exit 1
over() { until_true job_over "$job"; ok $? "$name: the job ends" || tern cluster exec $CLUSTER -- squeue; }
outcome() { sqlite3 -separator ' ' ledger/ledger.db "select outcome, last_step from attempt where run_id in (select id from run where name = '$1')"; }
recipe() { sed "s/^name:.*/name: $1/; s/dir: checkpoints/dir: $1-checkpoints/" run.yaml >"$1.yaml"; }
trains() { is "$(outcome "$1")" "done 8" "$2"; }
# batch NAME 'COMMANDS' [OPTION...]: a job of two nodes, with all of their CPUs and memory
batch() {
    name=$1
    printf '#!/bin/bash\nexport MY_OWN=kept\n%s\n' "$2" >"$1.sh"
    submit -N2 --exclusive --mem=0 -o "$1.out" "${@:3}" "$1.sh"
}

# ---- what reaches the ranks
printf 'version: 1\nname: who\nledger: {dir: ledger}\nlaunch: {health: off}\nworkload: {command: [bash, %s/who.sh]}\n' "$WORK" >who.yaml
echo 'echo "rank $SLURM_PROCID of $SLURM_NTASKS at ${SLURMD_NODENAME##*-}, step $SLURM_STEP_ID, bind ${SLURM_CPU_BIND-none} ${SLURM_CPU_BIND_TYPE-}, own $MY_OWN, $WHERE"' >who.sh
batch plain 'export SLURM_CPU_BIND=verbose,none WHERE=out; tern run who.yaml'; over
has plain.out "rank 1 of 2 at 2, step 0, bind verbose,none none, own kept, out" "in the batch script: a setting of srun's that it exports stays"
batch step 'export WHERE=in
srun -N1 -n1 -c3 --cpu-bind=none --distribution=plane=2 tern run who.yaml
srun -N1 -n1 -c3 --cpu-bind=none tern env --explain
srun -N1 -n1 env SLURM_CPU_BIND=cores tern env --explain | grep -A1 ^SLURM_CPU_BIND='; over
has step.out "rank 0 of 2 at 1, step 1, bind none , own kept, in" "in a step: a rank on each of the job's nodes"
has step.out "rank 1 of 2 at 2, step 1, bind none , own kept, in" "not bound as the step is, with what the script exports"
has step.out "step $job.2: srun has started this process" "tern env --explain knows the step"
grep -q '^SLURM_CPU_BIND=quiet,none  *left out$' step.out; ok $? "the output says which of Slurm's variables are left out"
grep -q '^SLURM_CPUS_PER_TASK=3  *left out$' step.out; ok $? "SLURM_CPUS_PER_TASK is among the variables left out"
grep -q '^SLURM_CPU_BIND=cores  *you$' step.out; ok $? "but not a setting that a script inside has made" || cat step.out

# What srun sets in a step and reads as an option: the ranks get neither, nor does their srun.
printf 'version: 1\nname: mpi\nledger: {dir: ledger}\nlaunch: {health: off}\nworkload: {command: [sh, -c, "echo mpi ${SLURM_MPI_TYPE-none} ${PMI_RANK-none}"]}\n' >mpi.yaml
batch layout 'export WHERE=in
srun -N1 -n1 --hint=nomultithread tern run who.yaml; echo "hint $?"
srun -N1 -n1 --threads-per-core=1 tern run who.yaml; echo "threads $?"
srun -N1 -n1 -B 1:1:1 tern run who.yaml; echo "cores $?"
srun -N1 -n1 --hint=nomultithread tern env --explain
srun -N1 -n1 sh -c '"'[ -z "${SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0-}" ] || echo PACK_GROUP'"'
srun --mpi=pmi2 -N1 -n1 tern run mpi.yaml'; over
is "$(grep -E '^(hint|threads|cores) ' layout.out | paste -sd' ')" "hint 0 threads 0 cores 0" "steps of one thread a core: tern run takes the job's CPUs"
grep -q '^SLURM_THREADS_PER_CORE=1  *left out$' layout.out; ok $? "tern env --explain names the step's threads a core"
if grep -q '^PACK_GROUP$' layout.out; then # 26.05's srun does not set it
    grep -q '^SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0=.*left out$' layout.out; ok $? "the CPUs of the job that srun adds are left out, too"
else
    skip "this srun adds nothing of the job's CPUs"
fi
has layout.out "mpi none none" "a step of --mpi=pmi2: the ranks' srun has its own"
batch threads 'export WHERE=in; tern run who.yaml; env | grep ^SLURM_THREADS
srun -N1 -n1 env SLURM_THREADS_PER_CORE=1 tern run who.yaml
sbatch -N1 --exclusive -d singleton -o threads2.out --export=ALL,SLURM_THREADS_PER_CORE=1 --wrap "tern run who.yaml"' --threads-per-core=1; until_true queue_empty
is "$(grep -c 'rank 1 of 2' threads.out)" 2 "a job of one thread a core: in the batch script and in a step"
has threads2.out "SLURM_THREADS_PER_CORE=1 is not this job's" "a job that was submitted from there has not inherited it"
has threads2.out "rank 0 of 1" "a job from such a step has its node's cores"

# ---- shapes that train
for shape in one exact overlap pty multi; do recipe $shape; done
echo '0 tern run multi.yaml' >multi.conf
batch shapes 'srun -N1 -n1 tern run one.yaml
srun -N1 -n1 -c2 --exact --mem=100 tern run exact.yaml
srun -N1 -n1 --overlap tern run overlap.yaml
script -qec "srun -N1 -n1 --pty tern run pty.yaml" pty.log </dev/null
srun -N1 -n1 --multi-prog multi.conf'; over
for shape in one exact overlap pty multi; do trains $shape "a step of one task trains: $shape"; done

recipe salloc; recipe inner; recipe direct; recipe inside
on salloc -N2 --exclusive --mem=0 srun -N1 -n1 tern run salloc.yaml; status 0; trains salloc "in salloc"
on srun -N1 -n1 --exclusive tern run direct.yaml; status 0; trains direct "in a job that srun has made"
batch inner 'srun -N1 -n1 -c3 --ntasks-per-node=1 sbatch -N2 --exclusive -d singleton -o inner2.out --wrap "tern run inner.yaml"'; over
until_true queue_empty; trains inner "in a batch job that a step has submitted"
[ ! -s inner2.out ] || ! grep -q 'asked for' inner2.out; ok $? "which is taken for what it is" || cat inner2.out
batch widths 'export WHERE=in SLURM_CPUS_PER_TASK=2; sbatch -N1 --exclusive -d singleton -o widths2.out --export=ALL --wrap "export SLURM_CPUS_PER_TASK=2; tern run who.yaml"' -N1 --ntasks-per-node=2 -c2; until_true queue_empty
has widths2.out "SLURM_CPUS_PER_TASK=2 is not this job's (sbatch --cpus-per-task): left out" "another job's --cpus-per-task does not count"
has widths2.out "rank 0 of 1 at" "a job that another job has submitted runs"
! grep 'asked for' widths2.out; ok $? "a job that another job has submitted does not inherit its tasks" || cat widths2.out
recipe task
batch task 'sbatch -N1 --exclusive -d singleton -o task2.out --wrap "exec tern run task.yaml"' --array=7 -N1; until_true queue_empty
is "$(sqlite3 -separator ' ' ledger/ledger.db "select outcome, array_job from attempt where run_id in (select id from run where name = 'task')")" "done 0" "a job that a task of an array has submitted is done"
has task2.out "SLURM_ARRAY_JOB_ID=$job is another job's" "a job that a task of an array has submitted is none of the array"
if command -v mpirun >/dev/null; then
    sed 's/^launch:.*/launch: {threads: 1, with: mpirun}/' inside.yaml >mpirun.yaml
    batch mpirun 'srun -N1 -n1 tern run mpirun.yaml'; over; trains inside "by mpirun"
else
    skip "mpirun is not installed"
fi

# ---- groups of nodes
recipe group
batch group 'srun -N1 -n1 tern run group.yaml
srun --het-group=1 -N1 -n1 tern run group.yaml --set name=group1 --set checkpoint.dir=group1
srun --het-group=0-1 -n1 tern run group.yaml' -N1 : -N1 --exclusive
until_true queue_empty; trains group "in a step of a heterogeneous job"; trains group1 "of any of its groups"
has group.out "one of the 2 tasks of step" "a step of both is refused"

# ---- and those that do not
for shape in tasks multi2; do recipe $shape; done
printf '0 tern run multi2.yaml\n1 true\n' >multi2.conf
batch tasks 'srun -n2 --ntasks-per-node=1 tern run tasks.yaml; echo "status $?"
srun -n2 --multi-prog multi2.conf; echo "status $?"'; over
is "$(grep -c 'one of the 2 tasks of step .*: call it once, in the batch script without srun, or by' tasks.out)" 3 "each of several tasks is refused, with the way out"
is "$(grep '^status' tasks.out | paste -sd' ')" "status 2 status 2" "each of several tasks exits with status 2"
is "$(outcome tasks)$(outcome multi2)" "" "before anything is written"

# ---- other steps have the nodes
for shape in busy quiet; do recipe $shape; done
batch busy 'srun -N2 -n2 sleep 600 & until squeue -h -s -j "$SLURM_JOB_ID" -o %i | grep -q "\.0$"; do sleep 0.1; done
SLURM_DEBUG=0 SLURM_OVERLAP=1 tern run quiet.yaml
tern run busy.yaml'
until_true grep -q 'the ranks wait' busy.out; has busy.out "other steps of the job have its nodes: $job.0 (sleep on trn1-st-trn1-[1-2]). They begin when those have ended" \
    "a launch that waits says so, and for what"
is "$(outcome busy)" " " "tern run in a job whose nodes other steps have waits"
trains quiet "with SLURM_OVERLAP=1 it does not"
on scancel "$job.0"; over; trains busy "when the step has ended it trains"

if command -v mpirun >/dev/null; then
    recipe mpiwait; sed -i 's/^launch:.*/launch: {threads: 1, with: mpirun, health: off}/' mpiwait.yaml
    batch mpiwait 'srun -N2 -n2 sleep 600 & until squeue -h -s -j "$SLURM_JOB_ID" -o %i | grep -q "\.0$"; do sleep 0.1; done
tern run mpiwait.yaml'
    until_true grep -q 'the ranks wait\|: done$' mpiwait.out
    if grep -q ': done$' mpiwait.out; then # its daemons may start beside other steps
        skip "mpirun does not wait here"
    else
        has mpiwait.out "other steps of the job have its nodes: $job.0 (sleep on trn1-st-trn1-[1-2])" "a launch by mpirun that waits says so, too"
    fi
    on scancel "$job.0"; over; trains mpiwait "it trains"
else
    skip "mpirun is not installed"
fi

# ---- and so does another program's
on scontrol update partition=trn1 state=down
on tern cluster doctor --timeout 2; has err "queued and waiting for resources" "the words of an srun that waits are passed on"
tap_done
