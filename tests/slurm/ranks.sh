#!/bin/bash
# Where ranks go: the network's switches, srun and mpirun, heterogeneous jobs, options of sbatch.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
cp "$LAYOUT" cluster.yaml
echo 'topology: {leaf: 2}' >cluster.tern.yaml # two nodes a switch
LAYOUT=$WORK/cluster.yaml
cluster_up

# recipe NAME KEYS 'SCRIPT': a workload
recipe() {
    printf 'version: 1\nname: %s\nledger: {dir: ledger}\n%s\n' "$1" "$2" >"$1.yaml"
    printf '%s\n' "$3" >"$1.sh"
}
printf '#!/bin/bash\nexec %s/tern run\n' "$BIN" >job.sbatch # whatever PATH is there
job() { name=$1; shift; rm -f "$name.out"; submit --exclusive -o "$name.out" --tern="$name.yaml" "$@" job.sbatch; }
over() { until_true job_over "$job"; ok $? "$name: the job ends" || tern cluster exec $CLUSTER -- squeue; }
exit_code() { tern cluster exec $CLUSTER -- scontrol show job "$job" -o | sed 's/.* ExitCode=\([^ ]*\).*/\1/'; }

# ---- the order of nodes
who='echo "at $SLURM_PROCID ${SLURMD_NODENAME##*-} $SLURM_LOCALID"'
recipe tree "parallel: {tensor: 2, pipeline: 2}
workload: {command: [bash, $WORK/tree.sh], tasks_per_node: 2}" "$who"
job tree -N4; over
is "$(grep '^at' tree.out | sort -k2n | cut -d' ' -f3,4 | tr '\n' ,)" "1 0,1 1,3 0,3 1,2 0,2 1,4 0,4 1," \
    "pipeline neighbours share a switch: nodes 1, 3, 2, 4"
has tree.out "node trn1-st-trn1-3 comes second" "an order by switches is logged"
sed "s/exec .*/& --explain tree.yaml/" job.sbatch >explain.sbatch
name=tree; submit --exclusive -N4 -o tree.out explain.sbatch; over
has tree.out "Nodes: of job $job, trn1.32xlarge" "--explain in a job"
has tree.out "Switches crossed: 0, 4, 12 (the least); in the job's order 0, 12, 4." "tells what is gained"
has tree.out "SLURM_HOSTFILE=HOSTS srun --ntasks=8" "explain has the command with the hosts' file"
sed -i '$a launch: {mapping: block}' tree.yaml
job tree -N4; over
is "$(grep '^at' tree.out | sort -k2n | cut -d' ' -f3 | tr '\n' ,)" "1,1,2,2,3,3,4,4," "launch.mapping: block: the job's order"
sed -i 's/^launch.*/launch: {with: mpirun}/; s/tree.sh/tree-mpi.sh/' tree.yaml
echo 'echo "at $OMPI_COMM_WORLD_RANK ${SLURMD_NODENAME:-$(hostname)} $FROM_THE_SCRIPT"' >tree-mpi.sh
if command -v mpirun >/dev/null; then
    FROM_THE_SCRIPT=yes job tree -N4; over
    is "$(grep '^at' tree.out | sort -k2n | sed 's/trn1-st-trn1-//' | cut -d' ' -f3,4 | tr '\n' ,)" \
        "1 yes,1 yes,3 yes,3 yes,2 yes,2 yes,4 yes,4 yes," "mpirun: the same order, the environment goes along"
else
    skip "mpirun is not installed"
fi

# ---- mpirun
if command -v mpirun >/dev/null; then
    recipe index "launch: {with: mpirun}
workload: {command: [sh, -c, 'echo at \$OMPI_COMM_WORLD_RANK {node_index}'], tasks_per_node: 2}" ''
    job index -N2; over
    is "$(grep '^at' index.out | sort | cut -d' ' -f2- | paste -sd,)" "0 0,1 0,2 1,3 1" "{node_index} is the node's, by mpirun too"
    recipe ends "launch: {with: mpirun}
workload: {command: [bash, $WORK/ends.sh]}" '[ $OMPI_COMM_WORLD_RANK = 1 ] && exit $CODE; exec sleep 30'
    CODE=76 job ends -N2 --ntasks-per-node=1 --export=NONE,CODE=76; over
    is "$(last 'outcome, exit_code' ends)" "stopped 76" "a rank's status comes through mpirun, also under --export=NONE"
    recipe dies "launch: {with: mpirun, restarts: 0}
workload: {command: [bash, $WORK/dies.sh]}" '[ $OMPI_COMM_WORLD_RANK = 1 ] && { sleep 0.2; kill -9 $$; }; exec sleep 30'
    job dies -N2; over
    is "$(last 'outcome, exit_code' dies)" "killed 75" "under mpirun the attempt of a rank that is killed ends as killed"
    recipe usr1 "launch: {with: mpirun}
workload: {command: [bash, $WORK/usr1.sh]}" 'trap "echo got USR1; touch got.\$OMPI_COMM_WORLD_RANK" USR1; touch ready.$OMPI_COMM_WORLD_RANK
until [ -e got.0 ] && [ -e got.1 ]; do sleep 0.1; done; sleep 0.5; exit 76' # mpirun ends the others with the first
    job usr1 -N2; until_true test -e ready.0 -a -e ready.1
    on scancel -b -s USR1 "$job"; over
    is "$(grep -c 'got USR1' usr1.out) $(last 'outcome, exit_code' usr1)" "2 stopped 76" "signals reach both ranks"

    mkdir mpi srun
    tiny_make || exit 1
    for with in srun mpirun; do
        sed "s/^name:.*/name: by-$with/; s/^launch:.*/launch: {threads: 1, ranks_per_node: 2, with: $with}/
            s/dir: checkpoints/dir: $with-checkpoints/" run.yaml >by-$with.yaml
        job by-$with -N2; over
        is "$(last 'outcome, last_step' by-$with)" "done 8" "training by $with"
    done
    curve() { tern ledger sql --ledger ledger -r "$(last run_id "by-$1")" -n -P "select printf('%.17g', value) from step where name = 'loss' order by step"; }
    curve srun >srun.curve; curve mpirun >mpirun.curve
    [ "$(wc -l <srun.curve)" = 8 ] && cmp -s srun.curve mpirun.curve
    ok $? "mpirun trains to the same bits as srun, step by step" || diff srun.curve mpirun.curve | sed 's/^/# /'
    sed -i 's/^steps:.*/steps: 100000/; s/every: 1,/every: 0,/' by-mpirun.yaml
    sed -i 's/mpirun-checkpoints/stopped/' by-mpirun.yaml
    job by-mpirun -N2
    first() { sqlite3 ledger/ledger.db "select last_step > 0 from attempt where job_id = $job" | grep -q 1; }
    until_true first
    on scancel -b -s TERM "$job"; over
    is "$(last 'outcome, exit_code' by-mpirun)" "stopped 76" "SIGTERM ends training by mpirun with a checkpoint"
else
    skip "mpirun is not installed"
fi

# ---- heterogeneous jobs
recipe het "workload: {command: [bash, $WORK/het.sh], tasks_per_node: 2}" "$who
trap 'echo got USR1; touch got.\$SLURM_PROCID; until [ -e got.0 -a -e got.1 -a -e got.2 -a -e got.3 -a -e got.4 -a -e got.5 ]; do sleep 0.05; done; exit 76' USR1; touch het.\$SLURM_PROCID; while :; do sleep 0.01; done"
cat >het.sbatch <<E2
#!/bin/bash
#SBATCH -N2 --exclusive
#SBATCH hetjob
#SBATCH -N1 --exclusive
exec tern run $WORK/het.yaml
E2
name=het; submit -o het.out het.sbatch
all_six() { [ "$(ls het.? | wc -l)" = 6 ]; }
until_true all_six
het_over() { until_true queue_empty; }
on scancel -b -s USR1 "$job"; het_over
is "$(grep '^at' het.out | sort -k2n | cut -d' ' -f3 | tr '\n' ,)" "1,1,2,2,3,3," "a heterogeneous job: one run over both groups"
is "$(grep -c 'got USR1' het.out) $(last 'outcome, world' het)" "6 stopped 6" "signals reach the ranks of both groups"
sed -i 's/-N1 --exclusive/& --ntasks-per-node=4/; s/-N2 --exclusive/& --ntasks-per-node=2/' het.sbatch
submit -o het.out het.sbatch; het_over
has het.out "the job's groups ask for 2 and 4 tasks a node" "groups that ask for different numbers are refused"
is "$(exit_code | head -1)" "2:0" "the job ends with status 2"

cat >het-train.sbatch <<E2
#!/bin/bash
#SBATCH -N2 --exclusive
#SBATCH hetjob
#SBATCH -N2 --exclusive
$BIN/tern health quick --job --json >het-health.json || exit
exec $BIN/tern run
E2
[ -e run.yaml ] || tiny_make || exit 1
sed "s/^name:.*/name: het-train/; s/^launch:.*/launch: {threads: 1, ranks_per_node: 2}/; s/dir: checkpoints/dir: het-checkpoints/; s/micro: 2/micro: 1/" run.yaml >het-train.yaml
name=het-train; submit -o het-train.out --tern=het-train.yaml het-train.sbatch; het_over
is "$(last 'outcome, last_step, world' het-train)" "done 8 8" "tern's own trainer over both groups, submitted with --tern"
mkdir -p elsewhere
printf '#!/bin/bash\n#SBATCH -N1 --exclusive\n#SBATCH hetjob\n#SBATCH -N1 --exclusive\ncd elsewhere && exec %s/tern run\n' "$BIN" >het-pairs.sbatch
sed 's/^name:.*/name: het-pairs/; s/dir: het-checkpoints/dir: het-pairs/; $aparallel: {tensor: 2, pipeline: 2}' het-train.yaml >het-pairs.yaml
name=het-pairs; submit -o het-pairs.out --tern=het-pairs.yaml het-pairs.sbatch; het_over
is "$(last 'outcome, last_step, world' het-pairs)" "done 8 4" "degrees that both groups fill together, and neither alone; --tern's path was relative"
name=het-train
! grep -q 'no answer\|Only allocated' het-train.out; ok $? "nodes of every group answer the supervisor"
is "$(grep -o 'trn1-st-trn1-[1-4]' het-health.json | sort -u | wc -l)" 4 "tern health --job asks both groups"
run tern cluster exec --node trn1-st-trn1-4 $CLUSTER -- rm /dev/neuron3
sed '/tern health/d' het-train.sbatch >het-only.sbatch
submit --no-requeue -o het-train.out --tern=het-train.yaml het-only.sbatch; het_over
has het-train.out 'trn1-st-trn1-4: node_bad: neuron' "a bad node of the second group is found before the launch"
has het-train.out 'node_fail: 3 nodes are left of the 4' "a launch with a bad node of a group is refused: groups have no reserve"
run tern cluster exec --node trn1-st-trn1-4 $CLUSTER -- touch /dev/neuron3
on tern health --mend trn1-st-trn1-4

# ---- options of sbatch
recipe told "workload: {command: [bash, $WORK/told.sh], tasks_per_node: 2}" "$who"
job told -N2 --ntasks-per-node=4; over
has told.out "the job asked for --ntasks-per-node=4, the recipe's workload.tasks_per_node is 2" "--ntasks-per-node that differs from the recipe is logged"
is "$(grep -c '^at' told.out)" 4 "the recipe's number of ranks is started"
job told -N2 -n5; over
has told.out "the job asked for -n 5 on 2 nodes" "-n that differs from the recipe is logged"
is "$(grep '^at' told.out | cut -d' ' -f3 | sort | uniq -c | tr -s ' \n' ' ')" " 2 1 2 2 " "ranks are placed evenly whatever -n says"
job told -N2 --ntasks-per-node=1 --cpus-per-task=100; over
has told.out "--cpus-per-task=100, and 2 ranks a node (workload.tasks_per_node) would need 200 of a node's 128 CPUs" "--cpus-per-task that is too large is refused"
is "$(exit_code)" "2:0" "the job ends with status 2"
tap_done
