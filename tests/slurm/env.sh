#!/bin/bash
# Profiles in real jobs: each rank's own variables, rank 0's node, the ledger's record, requeues.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
unset OPENBLAS_CORETYPE OMP_NUM_THREADS FI_PROVIDER TERN_PROFILE
cluster_up
over() { until_true job_over "$job"; ok $? "$name: the job ends" || tern cluster exec $CLUSTER -- squeue; }
param() { sqlite3 "file:$(ls -d ledger/runs/*/ | tail -1)run.db?immutable=1" "select value from param where name = 'env.$1' order by attempt desc limit 1"; }

# ---- tern env under srun: every task by its place
cat >step.sbatch <<'X'
#!/bin/bash
srun --ntasks-per-node=4 tern env -p trn1-2.31 -- bash -c 'echo "$SLURM_NODEID.$SLURM_LOCALID cores $NEURON_RT_VISIBLE_CORES at $MASTER_ADDR:$MASTER_PORT root $NEURON_RT_ROOT_COMM_ID $FI_PROVIDER"'
srun --ntasks-per-node=1 -w trn1-st-trn1-2 -N1 tern env -p trn1-2.31 --explain
X
name=step; submit -N2 --exclusive -o step.out step.sbatch; over
port=$((20000 + 2 * (job % 4000)))
for place in 0.0:0-7 0.3:24-31 1.0:0-7 1.1:8-15 1.2:16-23; do
    has step.out "${place%:*} cores ${place#*:} at trn1-st-trn1-1:$port root trn1-st-trn1-1:$((port + 1)) tcp" "task ${place%:*} has cores ${place#*:}"
done
is "$(grep -c '^[01][.][0-3] cores ' step.out)" 8 "srun: eight tasks have cores"
has step.out "MASTER_ADDR=trn1-st-trn1-2" "a step on another node meets there"
has step.out "this node has no EFA device" "a virtual node has no EFA, and says so"

# ---- by the plugin, in a job without tern run: the batch script's values are not its tasks'
cat >plugin.sbatch <<'X'
#!/bin/bash
#SBATCH --tern-profile=trn1-2.30
say='echo "$0 $SLURM_NODEID.$SLURM_LOCALID cores ${NEURON_RT_VISIBLE_CORES-none} of ${NEURON_RT_NUM_CORES-none} at $MASTER_ADDR $NEURON_CC_FLAGS"'
bash -c "$say" batch
NEURON_CC_FLAGS=-O1 srun --ntasks-per-node=2 bash -c "$say" task
X
name=plugin; submit -N2 --exclusive -o plugin.out plugin.sbatch; over
has plugin.out "batch 0.0 cores none of 32 at trn1-st-trn1-1 --model-type transformer" "the batch script"
for place in 0.0:0-15 0.1:16-31 1.0:0-15 1.1:16-31; do
    has plugin.out "task ${place%:*} cores ${place#*:} of 16 at trn1-st-trn1-1 -O1" "srun's task ${place%:*}, with what the script has changed"
done

cat >left.sbatch <<'X'
#!/bin/bash
unset OMP_NUM_THREADS
echo "batch $OMP_PROC_BIND"
srun -N1 --ntasks-per-node=4 bash -c 'echo "task ${OMP_PROC_BIND-none} ${TERN_PROFILE_SET-}"'
X
name=left; OMP_NUM_THREADS=2 submit -N1 --exclusive --tern-profile=cpu -o left.out left.sbatch; over
if grep -q '^batch close$' left.out; then
    is "$(grep -c '^task none ' left.out)" 4 "a variable of the batch script's profile that tasks must not have is unset"
else
    skip "one CPU: nothing is bound"
fi

# ---- under tern run
recipe() { # NAME PROFILE 'SCRIPT' TASKS WORKERS
    printf 'version: 1\nname: %s\nledger: {dir: ledger}\nlaunch: {health: off%s}\nworkload: {command: [bash, %s/%s.sh], tasks_per_node: %s, workers_per_node: %s}\n' \
        "$1" "${2:+, profile: $2}" "$WORK" "$1" "$4" "$5" >"$1.yaml"
    printf '%s\n' "$3" >"$1.sh"
}
printf '#!/bin/bash\nexec tern run\n' >job.sbatch
say='echo "rank $SLURM_PROCID: $MASTER_ADDR:$MASTER_PORT softmax ${NEURON_FUSE_SOFTMAX-none} requests ${NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS-none} cores ${NEURON_RT_VISIBLE_CORES-none} of ${NEURON_RT_NUM_CORES-none} omp ${OMP_NUM_THREADS-none}"'
recipe workers trn1-2.30 "$say" 1 32
name=workers; submit -N2 --exclusive -o workers.out --tern=workers.yaml job.sbatch; over
port=$((20000 + 2 * (job % 4000)))
for r in 0 1; do has workers.out "rank $r: trn1-st-trn1-1:$port softmax 1 requests 3 cores none" "torchrun's task $r"; done
is "$(param FI_PROVIDER)" "tcp (profile trn1-2.30)" "the ledger has a value and its profile"
is "$(param profile)" "trn1-2.30: asked for" "the ledger has the profile and its reason"

recipe ranks trn1-2.31 "$say" 4 4
name=ranks; submit -N2 --exclusive -o ranks.out --tern=ranks.yaml job.sbatch; over
for r in 0:0-7 1:8-15 3:24-31 4:0-7 7:24-31; do
    grep -q "rank ${r%:*}: .* requests none cores ${r#*:} of 8 omp 1" ranks.out; ok $? "rank ${r%:*} has cores ${r#*:} of its node" || cat ranks.out
done
recipe torus trn1-2.31 'echo "rank $SLURM_PROCID cores $NEURON_RT_VISIBLE_CORES"' 16 16
echo 'parallel: {tensor: 16}' >>torus.yaml
name=torus; submit -N1 --exclusive -o torus.out --tern=torus.yaml job.sbatch; over
is "$(sed -n 's/^rank \([0-9]*\) cores/\1/p' torus.out | sort -n | awk '{printf "%d ", $2 / 2}')" "0 1 2 3 7 6 5 4 8 9 10 11 15 14 13 12 " "a tensor group of all chips goes round the torus link by link"
recipe threads cpu 'echo "rank $SLURM_PROCID cores ${NEURON_RT_VISIBLE_CORES-none} bind ${OMP_PROC_BIND-none} set $TERN_PROFILE_SET"' 2 2
name=threads; submit -N1 --exclusive -o threads.out --tern=threads.yaml job.sbatch; over
is "$(grep -c 'rank [01] cores none bind none set .*MASTER_ADDR=' threads.out)" 2 "profile cpu, by rank"
if command -v mpirun >/dev/null; then
    recipe mpi trn1-2.31 'echo "rank $OMPI_COMM_WORLD_RANK cores $NEURON_RT_VISIBLE_CORES at $MASTER_ADDR"' 4 4
    sed -i 's/launch: {/launch: {with: mpirun, /' mpi.yaml
    name=mpi; submit -N2 --exclusive -o mpi.out --tern=mpi.yaml job.sbatch; over
    for r in 0:0-7 3:24-31 4:0-7 7:24-31; do
        has mpi.out "rank ${r%:*} cores ${r#*:} at trn1-st-trn1-1" "under mpirun rank ${r%:*} has cores ${r#*:}"
    done
else
    skip "mpirun is not installed"
fi

recipe users '' "$say" 1 1
name=users; NEURON_FUSE_SOFTMAX=0 submit -N1 --exclusive -o users.out --tern=users.yaml job.sbatch; over
has users.out "softmax 0" "the user's value reaches the rank"
is "$(param NEURON_FUSE_SOFTMAX)" "0 (you)" "the ledger marks a value as the user's"
case $(param profile) in "trn1-2.31: 16 Neuron devices here; no Neuron SDK is installed"*) true ;; *) false ;; esac
ok $? "without a name the node's devices decide" || param profile

# The next attempt in the same allocation starts from the user's own environment again.
recipe again trn1-2.31 "$say"'
[ -e ended ] && exit 0; touch ended; exit 75' 1 1
name=again; MALLOC_ARENA_MAX=7 submit -N1 --exclusive -o again.out --tern=again.yaml -w trn1-st-trn1-3 job.sbatch; over
is "$(grep -c "rank 0: trn1-st-trn1-3:$((20000 + 2 * (job % 4000)))" again.out)" 2 "a requeued job: two attempts have the rendezvous"
is "$(param NEURON_FUSE_SOFTMAX) $(param MALLOC_ARENA_MAX)" "1 (profile trn1-2.31) 7 (you)" "the second attempt tells the profile's values from the user's"

tap_done
