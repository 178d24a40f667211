#!/bin/bash
# The SPANK plugin: what it refuses, what it leaves with the job, and what it must never break.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
so=${TERN_BUILD:-$ROOT/build}/plugins/tern_spank.so

# ---- the library
want='plugin_name plugin_type plugin_version slurm_spank_init slurm_spank_init_post_opt slurm_spank_job_prolog slurm_spank_local_user_init slurm_spank_task_exit slurm_spank_task_init spank_plugin_version '
[ "$(nm -D --defined-only "$so" | awk '{ print $3 }' | sort | tr '\n' ' ')" = "$want" ]
ok $? "the plugin exports its hooks and nothing else" || nm -D --defined-only "$so"
[ "$(readelf -d "$so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')" = libc.so.6 ]
ok $? "the plugin links libc alone" || readelf -d "$so"

cluster_up
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nworkload: {command: [true]}\n' >good.yaml
sed 's/ledger:/ledgr:/' good.yaml >bad.yaml
printf '#!/bin/bash\n#SBATCH --tern=bad.yaml\ntrue\n' >bad.sbatch

# ---- refused at submission
for how in 'sbatch --tern=bad.yaml --wrap true' 'sbatch bad.sbatch' 'salloc --tern=bad.yaml true' \
    'srun --mpi=none --tern=bad.yaml true'; do
    on $how
    [ $rc != 0 ]; ok $? "refused: $how"
    err_has 'tern: bad.yaml:3: ledgr: unknown key' "$how: with the recipe's line"
    queue_empty; ok $? "$how: nothing is queued"
done
on sbatch --tern=none.yaml --wrap true; [ $rc != 0 ]; ok $? "a recipe that is not there"; err_has 'none.yaml'
on sbatch --tern= --wrap true; [ $rc != 0 ]; ok $? "sbatch refuses an empty --tern"; err_has 'needs the path'
mkdir tiny; (cd tiny && tiny_make) >made 2>&1 || cat made
sed 's/"vocab_size": 800/"vocab_size": 700/' tiny/model/config.json >tiny/small.json
sed 's/"hidden_size": 32/"hidden_size": 32768/; s/"intermediate_size": 64/"intermediate_size": 131072/; s/"num_hidden_layers": 2/"num_hidden_layers": 200/' tiny/model/config.json >tiny/large.json
sed 's,{config: model/config.json.*,{config: small.json},' tiny/run.yaml >tiny/vocab.yaml
sed 's,{config: model/config.json.*,{config: large.json},' tiny/run.yaml >tiny/memory.yaml
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nparallel: {tensor: 2, pipeline: 2}\nlaunch: {ranks_per_node: 2}\nworkload: {command: [true]}\n' >degrees.yaml
on sbatch --test-only --tern=tiny/run.yaml --wrap true; status 0 "sbatch accepts a recipe of tern's own trainer"
refuse() { # TEXT COMMAND...
    on "${@:2}"; [ $rc != 0 ]; ok $? "sbatch refuses ${*:2}"; err_has "$1"; queue_empty; ok $? "${*:2}: nothing is queued"
}
refuse "tokenised with 800 ids, but the model's vocabulary has 700" sbatch --tern=tiny/vocab.yaml --wrap true
refuse 'and the largest node has' sbatch --tern=tiny/memory.yaml --wrap true
sed 's/pipeline: 2/pipeline: 8/; s/\[true\]/[true], workers_per_node: 2/' degrees.yaml >wide.yaml
refuse 'wide.yaml:4: parallel: tensor x pipeline (16) and 2 ranks a node need 8 nodes or a multiple, with 0 in reserve; the cluster has 4.' sbatch --tern=wide.yaml --wrap true
sed 's/pipeline: 8/pipeline: 4/; s/{ranks_per_node: 2}/{spares: 1}/' wide.yaml >spare.yaml
refuse 'spare.yaml:5: launch.spares: tensor x pipeline (8) and 2 ranks a node need 4 nodes' sbatch --tern=spare.yaml --wrap true
on srun --mpi=none -N2 -n6 --tern=degrees.yaml touch ran.x; [ $rc != 0 ]; ok $? "srun with tasks that no degrees divide: refused"; err_has '6 ranks are not'
until_true queue_empty; ok $? "a refused srun gives its allocation back" || tern cluster exec $CLUSTER -- squeue -a
[ ! -e ran.x ]; ok $? "a refused srun starts no task"
on sbatch --help; out_has '--tern=RECIPE'
on salloc --help; out_has '--tern=RECIPE'

# ---- the shape, where srun knows it
printf 'version: 1\nname: toy\nledger: {dir: ledger}\nparallel: {tensor: 2}\nlaunch: {ranks_per_node: 2}\nworkload: {command: [true]}\n' >pairs.yaml
# Of groups of nodes, with 1 and $1 tasks that take $2 s.  When a refused group's tasks have begun,
# they are ended; on a slow machine that takes seconds.
het() { rm -f ran.*; on srun --mpi=none --tern=pairs.yaml -N1 -n1 sh -c "sleep $2 && touch ran.a.end" : -N1 -n$1 sh -c "sleep $2 && touch ran.b.end"; }
step() { rm -f ran.*; on "$@" sh -c 'touch ran.$SLURM_PROCID'; }
for flag in optional required; do
    conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf
    sed -i "s/^[a-z]*/$flag/" "$conf"
    step srun --mpi=none -N1 -n3 --tern=pairs.yaml
    [ $rc != 0 ] && [ -z "$(ls ran.* 2>/dev/null)" ]; ok $? "$flag: srun with tasks that the recipe's degrees do not divide: none starts"
    err_has 'pairs.yaml:4: parallel' "$flag: with the recipe's line"
    until_true queue_empty; ok $? "$flag: the allocation is given back" || tern cluster exec $CLUSTER -- squeue -a
    het 2 600
    [ $rc != 0 ] && [ -z "$(ls ran.* 2>/dev/null)" ]; ok $? "$flag: srun A : B whose groups do not fit together is refused" || { cat err; ls; }
    err_has '3 tasks on 2 nodes: every node must have as many' "$flag: with what they are together"
    on salloc -N2 --exclusive sh -c 'srun --mpi=none -n3 --tern=pairs.yaml true; timeout 600 srun --mpi=none -N2 --exclusive true && echo "goes on"'
    out_has 'goes on' "$flag: the job's next step has its nodes"
done
sed -i 's/^[a-z]*/optional/' "$conf"
het 1 1; [ $rc = 0 ] && [ -e ran.a.end ] && [ -e ran.b.end ]; ok $? "srun A : B whose groups fit together, and neither alone, runs" || { cat err; ls; }
step srun --mpi=none -N2 -n4 --tern=pairs.yaml; [ $rc = 0 ] && [ -e ran.3 ]; ok $? "srun with tasks that they divide runs" || cat err
on salloc -N2 bash -c 'srun --mpi=none -n3 --tern=pairs.yaml touch ran.x; echo "step $?"'
out_has 'step 2' "a step of a job is refused too, when the recipe is typed for it"; [ ! -e ran.x ]; ok $? "a refused step does not start"
step salloc -N2 --tern=pairs.yaml srun --mpi=none -n3; [ $rc = 0 ] && [ -e ran.2 ]; ok $? "a helper's step in a job with a recipe runs" || cat err

# ---- hostile values
rm -f pwned
for value in '$(touch pwned)' '`touch pwned`' '; touch pwned;' '%s%n%s%n' '../../../../etc/passwd' '-h' \
    "$(printf '\033]0;x\007')" "$(printf 'a\nb')" "$(head -c 5000 /dev/zero | tr '\0' a)"; do
    on sbatch -J hostile "--tern=$value" --wrap true
    [ $rc != 0 ] && [ $rc -lt 128 ] || [ $rc = 255 ]; ok $? "refused: $(printf '%.30q' "$value")"
    grep -q "$(printf '\033')" <(grep '^sbatch: error: tern:' err); [ $? = 1 ]; ok $? "no control character of a path is passed on"
done
on squeue -h -t all -n hostile; [ ! -e pwned ] && [ $rc = 0 ] && [ ! -s out ]; ok $? "refused paths run and queue nothing" || cat out err

# ---- accepted: marker and recipe reach every kind of task
cat >show.sbatch <<'X'
#!/bin/bash
export PATH=/usr/bin:/bin
echo "batch $TERN_MARKER $TERN_RECIPE"
echo "as before 0.4: $TERN_RECEIPT"
cd /
srun --mpi=none --export=ALL -N2 bash -c 'echo "step $TERN_MARKER $TERN_RECIPE"'
sbatch -o "$HERE/inner.out" --export=ALL --wrap 'echo "inner $TERN_RECIPE"'
cd "$HERE/other" && srun --mpi=none --export=ALL -N1 -n1 --tern=good.yaml bash -c 'echo "other $TERN_RECIPE"'
X
with_slurm show.sbatch
mkdir other; cp good.yaml other/
for export in ALL NONE; do
    rm -f inner.out
    submit -N2 --tern=good.yaml --export=$export,HERE="$WORK" -o show.out show.sbatch
    until_true queue_empty
    has show.out "batch $job.batch.1.1 $WORK/good.yaml" "--export=$export: the batch script has marker and absolute path" || cat err
    has show.out "as before 0.4: $job.batch.1.1" "--export=$export: TERN_RECEIPT is there for tern before 0.4"
    [ "$(grep -c "^step $job.0.1.1 $WORK/good.yaml\$" show.out)" = 2 ]; ok $? "--export=$export: so has every task of a step" || cat show.out
    has inner.out "inner $WORK/good.yaml" "--export=$export: a job submitted from inside inherits the recipe"
    has show.out "other $WORK/other/good.yaml" "--export=$export: a recipe given inside wins"
done
on srun --mpi=none -N2 --tern=good.yaml sh -c 'echo "$TERN_MARKER $TERN_RECIPE"'
[ "$(grep -c "\.0\.1\.1 $WORK/good.yaml\$" out)" = 2 ]; ok $? "srun without a job carries the recipe" || cat out err
on salloc -N1 --tern=good.yaml srun --mpi=none sh -c 'echo "$TERN_RECIPE"'
out_has "$WORK/good.yaml" "srun under salloc carries the recipe"
printf '#!/bin/bash\nexec %s run\n' "$BIN/tern" >inner.sbatch
on srun --mpi=none -N1 sbatch --parsable --tern=good.yaml -o inner.out inner.sbatch; job=$(cat out)
until_true job_over "$job"; [ "$(job_state "$job")" = COMPLETED ]; ok $? "a job submitted by a step has a marker of its own" || cat inner.out
on srun --mpi=none sh -c 'echo "none:$TERN_MARKER$TERN_RECIPE"'; out_has none: "a job without --tern gets nothing"
# On whichever node was free; the line is written as the step ends, which may be after the job's state.
until_true grep -qF "tern: job $job step 0 task 0: exit 0" "$TERN_CLUSTER_HOME/$CLUSTER"/log/slurmd-*.log
ok $? "the task's end is in the log of its node" || grep -h 'tern: job' "$TERN_CLUSTER_HOME/$CLUSTER"/log/slurmd-*.log
on sinfo -h -o '%t'; ! grep -qE 'drain|drng|down|fail' out; ok $? "every node is idle at the end" || cat out

# ---- what its absence does
conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf
cp "$conf" kept
echo 'optional /nowhere/tern_spank.so' >"$conf"
on srun --mpi=none echo fine; status 0 "jobs run without the plugin"; out_has fine
on sbatch --tern=good.yaml --wrap true; [ $rc != 0 ]; ok $? "without the plugin --tern is no option"; err_has '--tern'
cp kept "$conf"
printf '#!/bin/bash\nexec env -u TERN_MARKER -u TERN_RECEIPT tern run\n' >norec.sbatch
submit --tern=good.yaml -o norec.out norec.sbatch
until_true job_over "$job"
has norec.out 'plugin did not run on node trn1-st-trn1-' "tern run names a node without the plugin"
[ "$(tern cluster exec $CLUSTER -- scontrol show job "$job" -o | sed 's/.*ExitCode=\([0-9]*\).*/\1/')" = 75 ]; ok $? "tern run ends with status 75 on a node without the plugin"
tap_done
