#!/bin/bash
# tern submit: the run is known by its id from the queue on; job arrays; a finished run goes on; reproduce.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
cluster_up
tiny_make || exit 1
runs() { sqlite3 -separator ' ' ledger/ledger.db "select $1 from run order by name"; }
submitted() { on tern submit "$@" -- --parsable; job=$(cat out); }
over() { await_job; [ "$(job_state "$job")" = COMPLETED ]; ok $? "$1" || { cat slurm-*.out | tail -20 | sed 's/^/# /'; }; }

# ---- the Comment, also of a job that waits
on tern submit run.yaml --set checkpoint.dir=first -- --parsable --hold; status 0; job=$(cat out)
on squeue -h -j "$job" -o %k
id=$(cat out)
is "${#id} $(cat first/run.id)" "26 $id" "a job that waits has the new run's id as its Comment"
on scontrol release "$job"; over "and runs"
is "$(runs id)" "$id" "the queued run has the id of its submission"

# ---- without nodes in reserve Slurm ends a job with its node, and with them it does not
on tern submit run.yaml --set checkpoint.dir=first --dry-run; status 0; has out --requeue; grep -q -- '--no-kill' out; [ $? = 1 ]; ok $? "without launch.spares the job has no --no-kill" || cat out
on tern submit run.yaml --set checkpoint.dir=first --set launch.spares=1 --dry-run; status 0; has out ' --no-kill ' "with launch.spares it has --no-kill"

# ---- the user's own Comment, behind the id; a second submission without tern submit
sed 's/dir: checkpoints/dir: mine/' run.yaml >mine.yaml
on tern submit mine.yaml -- --parsable --hold --comment='of mine'; status 0; job=$(cat out)
on squeue -h -j "$job" -o %k; is "$(cat out)" "$(cat mine/run.id) of mine" "the user's --comment stands behind the run's id"
on tern submit mine.yaml --dry-run; err_has "run $(cat mine/run.id) is job $job already (PENDING)" "a job with a Comment of the user's is found while it waits"
on sbatch --parsable --hold --tern=mine.yaml --wrap true; status 0; second=$(cat out)
err_has "run $(cat mine/run.id) is job $job already (PENDING)" "sbatch --tern tells of the job that the run has already"; err_has "--dependency=afterany:$job"
on tern submit mine.yaml -- --parsable --begin=now+1hour; is "$(grep -c 'is job' err)" 1 "tern submit tells it once"
on scancel "$job" "$second" "$(cat out)"
on sbatch --parsable --hold --tern=mine.yaml --wrap true; grep -q already err; [ $? = 1 ]; ok $? "sbatch --tern of a run that has no job tells nothing" || cat err
on scancel "$(cat out)"

# ---- again from the ledger, to the last bit
run tern ledger reproduce "$id" --ledger ledger --check; status 0 "ledger reproduce --check finds the inputs unchanged"
tern ledger reproduce "$id" --ledger ledger >again.yaml
on sh -c "$(sed -n 's/^#     \(tern submit.*\)/\1/p' again.yaml) -- --parsable"; job=$(cat out)
over "the command that tern ledger reproduce prints"
tern ledger sql --ledger ledger -r "$id" -n -P "select value from step where name = 'loss' order by step" >first.curve
tiny_curve ledger >again.curve; [ -s again.curve ] && tern ledger sql --ledger ledger -r latest -n -P "select value from step where name = 'loss' order by step" | cmp -s - first.curve
ok $? "gives the same losses" || diff first.curve again.curve | sed 's/^/# /'
# ---- a finished run goes on
submitted run.yaml --set checkpoint.dir=first --set steps=12; over "a finished run, with more steps"
is "$(sqlite3 -separator " " ledger/ledger.db "select attempts, last_step from run where id = '$id'")" "2 12" "a job submitted again is the same run"
is "$(sqlite3 ledger/runs/"$id"/run.db "select resumed_step from attempt where attempt = 2")" 8 "the second attempt goes on where the first one ended"
is "$(sqlite3 ledger/runs/"$id"/run.db "select count(*) from step where name = 'loss'")" 12 "the ledger has every step once"

on tern submit run.yaml --set checkpoint.dir=first --set steps=200000 --dry-run
grep -Eq -- '--time=([0-9]+-)?[0-9]+:[0-9][0-9]:00 ' out; ok $? "its measured pace makes the time limit" || cat out
err_has '199988 steps are left, at '
on tern submit run.yaml --set checkpoint.dir=first --set steps=200000 --dry-run -- --time=1
out_has '--signal=B:USR1@30 '; grep -q -- '--time=0' out; [ $? = 1 ]; ok $? "the user's limit wins, and the warning leaves time to work"
on tern submit run.yaml --set checkpoint.dir=first --set steps=20000000 -- --parsable --time=5; job=$(cat out)
on tern submit run.yaml --set checkpoint.dir=first --dry-run; err_has "run $id is job $job already" "a second submission of a running run is a warning"; err_has "--dependency=afterany:$job"
on tern submit run.yaml --set checkpoint.dir=first --dry-run -- --dependency=afterany:$job; grep -q already err; [ $? = 1 ]; ok $? "a second submission that waits for the first gets no warning"
until_true grep -q 'it will stop with a checkpoint, to be continued' slurm-"$job".out; ok $? "tern run tells what the limit will do"
on scancel "$job"; until_true job_over "$job"
on tern submit run.yaml --set checkpoint.dir=first --set steps=20000000 --dry-run -- --time=tomorrow; status 2; err_has 'is no time limit'
# ---- srun's own time limit, against what was measured
sed 's/dir: checkpoints/dir: first/' run.yaml >slow.yaml; cmp -s run.yaml slow.yaml; [ $? = 1 ]; ok $? "a recipe of that run"
slow() { forge ledger/runs/"$id"/run.db "update point set value = $1 where metric_id = (select id from metric where name = 'step_seconds')"; }
slow 200
on srun --mpi=none -N1 -n1 --time=3 --tern=slow.yaml touch ran; [ $rc != 0 ] && [ ! -e ran ]; ok $? "srun --time: a limit without room for one step is refused" || cat err
err_has "slow.yaml: --time: not one step of"
on salloc --time=30 -N1 bash -c 'srun --mpi=none -n1 --time=3 --tern=slow.yaml touch ran; echo "step $?"'
out_has 'step 2' "a step with a short time limit is refused in a longer job"; [ ! -e ran ]; ok $? "which does not start"
on srun --mpi=none -N1 -n1 --time=20 --tern=slow.yaml touch ran; status 0; [ -e ran ]; ok $? "a limit with room for some is taken" || cat err

run tern ledger reproduce "$id" --ledger ledger; out_has '(from step 8: attempt 2)' "tern ledger reproduce has a command for each recipe"; out_has ' -- --wait' "of which each waits for the one before"

# ---- an array again while it runs
submitted run.yaml --set steps=20000000 --array 'data.seed=7,8' -N 1
known() { [ "$(tern cluster exec "$CLUSTER" -- squeue -h -r -j "$job" -t R -o %k | grep -c .)" -ge 1 ] && ls checkpoints/data.seed=*/run.id >/dev/null 2>&1; }
until_true known
on tern submit run.yaml --set steps=20000000 --array 'data.seed=7,8' -N 1 --dry-run
err_has " is job ${job}_" "a second submission of an array that runs names the member's job"; err_has "--dependency=afterany:$job"
on tern submit run.yaml --set steps=20000000 --array 'data.seed=9' -N 1 --dry-run; grep -q already err; [ $? = 1 ]; ok $? "an array of other members is not"
on scancel "$job"; until_true queue_empty
rm -rf checkpoints

printf x | dd of=data/test.tds bs=1 seek=60 conv=notrunc 2>/dev/null
run tern ledger reproduce "$id" --ledger ledger --check; status 1 "an input that has changed"; out_has data.held_out

# ---- an array
tern data build --tokenizer model -o data/test.tds test.jsonl 2>/dev/null
rm -rf ledger; : >slurm-x.out; rm slurm-*.out
submitted run.yaml --array 'optimizer.lr=1e-3,2e-3' --array 'data.seed=5,6' -N 1
status 0 "tern submit --array"
four() { [ "$(ls slurm-"${job}"_*.out 2>/dev/null | wc -l)" = 4 ]; }
until_true four
until_true queue_empty
all_done() { [ "$(runs state | grep -c done)" = 4 ]; }
until_true all_done
is "$(runs 'name, state, last_step')" "tiny.lr-1e-3.seed-5 done 8
tiny.lr-1e-3.seed-6 done 8
tiny.lr-2e-3.seed-5 done 8
tiny.lr-2e-3.seed-6 done 8" "four runs, named for what they set" 
[ -d 'checkpoints/optimizer.lr=2e-3,data.seed=6/step-00000008' ]; ok $? "each with its own checkpoints"
is "$(runs 'distinct last_loss' | wc -l)" 4 "each member of an array has losses of its own"
# Jobs by the names that squeue has for them.
run tern ledger list -l ledger -j "${job}_2" -P -n -o name,jobid; is "$(cat out)" "tiny.lr-2e-3.seed-5|${job}_2" "a member by its array's id"
run tern ledger list -l ledger -j "${job}_1,${job}_3" -P -n -o name; is "$(wc -l <out)" 2 "ledger list -j takes several members"
run tern ledger list -l ledger -j "$job" -P -n -o name; is "$(wc -l <out)" 4 "ledger list -j ARRAY lists all members"
raw=$(sqlite3 ledger/ledger.db "select job_id from attempt where array_task = 2"); run tern ledger list -l ledger -j "$raw" -P -n -o jobid; has out "${job}_2" "one by its own number"
run tern logs -l ledger -j "${job}_2"; status 0; out_has "step 8"
run tern logs -l ledger -j "${job}_9"; status 2; err_has "no run of job ${job}_9"; run tern ledger list -l ledger -j 5_x; status 2; err_has "is no job's id"
run tern ledger show -l ledger tiny.lr-2e-3.seed-5 -a -P -n -o jobid; is "$(cat out)" "${job}_2" "tern ledger show has the job of the member"
id=$(tern ledger list -l ledger -j "${job}_1" -n -P -o id); tern ledger reproduce -l ledger "$id" >again.yaml; has again.yaml "seed: 6" "a member is reproduced as it ran"
tap_done
