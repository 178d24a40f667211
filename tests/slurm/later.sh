#!/bin/bash
# A job whose time is up queues itself again and goes on, to the run's end; one that a person stopped,
# that got nowhere or may not be requeued does not.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
cluster_up
tiny_make || exit 1
ended() { case $(job_state "$job") in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) ;; *) return 1 ;; esac; }
# Slurm's own pauses are 30 seconds and more.
over() { until_true ended; ok $? "$1: the job ends" || tern cluster exec $CLUSTER -- squeue; }
pending() { until_true is_pending; }
# The shortest limit there is; Slurm looks twice a minute.
limits="--time=1 --signal=B:USR1@50 --exclusive --open-mode=append --requeue"
sed "s/^name:.*/name: long/; s/^steps:.*/steps: 100000000/; s/every: 1, keep: 2/every: 1000000, keep: 2/" run.yaml >long.yaml

submit $limits -N1 -o long.out --wrap "exec tern run long.yaml"; status 0; long_job=$job
on sbatch --parsable -N1 --dependency=afterok:"$long_job" -o after.out --wrap "echo after"; after=$(cat out)
submit $limits -N1 -o stop.out --wrap "exec tern run long.yaml --set name=stop --set checkpoint.dir=stop --set launch.at_time_limit=stop"; stop_job=$job
submit $limits --no-requeue -N1 -o norequeue.out --wrap "exec tern run long.yaml --set name=norequeue --set checkpoint.dir=norequeue"; norequeue_job=$job
printf 'version: 1\nname: nothing\nledger: {dir: ledger}\nworkload: {command: [sleep, "600"]}\n' >nothing.yaml
submit $limits -N1 -o nothing.out --wrap "exec tern run nothing.yaml"; nothing_job=$job
# The script's own warning, much earlier than a tenth of the job.
printf '#!/bin/bash\n#SBATCH --time=10 --signal=B:USR1@540\nexec tern run long.yaml --set name=early --set checkpoint.dir=early\n' >early.sh
submit --exclusive --open-mode=append --requeue -N1 -o early.out early.sh; early_job=$job
until_true grep -q 'attempt 1' long.out; job=$long_job; pending; ok $? "a job whose time is up is queued again" || cat long.out
has long.out "the job's time limit is near; the job is queued again" "a job's requeue at its time limit is logged"
first=$(rows 'last_step' long)
start_again # Slurm would wait for two minutes
job=$stop_job; over stop; is "$(job_state $stop_job)" FAILED "launch.at_time_limit: stop ends the job"
is "$(rows 'outcome, exit_code' stop)" "time_limit 76" "the cause of a stopped job is the time limit"
job=$norequeue_job; over "not to be requeued"; has norequeue.out 'cannot be queued again: submit with --requeue'
is "$(rows 'outcome, exit_code' norequeue)" "time_limit 76" "the cause of a job with --no-requeue is the time limit"
job=$nothing_job; over "no checkpoint"; has nothing.out 'it left no checkpoint: not queued again'
is "$(rows outcome nothing)" time_limit "the cause of a workload without a checkpoint is the time limit"

# A signal by a person is not the time limit.
submit --time=30 --exclusive -N1 -o wish.out --requeue --wrap "exec tern run long.yaml --set name=wish --set checkpoint.dir=wish"
until_true grep -q 'step ' wish.out; on scancel --signal=USR1 --batch "$job"
over "a person's signal"; is "$(rows 'outcome, exit_code' wish)" "stopped 76" "a person's signal has another cause than the time limit"

# An admin's requeue: what the ranks have is kept, and the job goes on with it.
submit --time=30 --exclusive --open-mode=append -N1 -o again.out --requeue --wrap "exec tern run long.yaml --set name=again --set checkpoint.dir=again"
until_true grep -q 'step ' again.out; on scontrol requeue "$job"; status 0 "scontrol requeue ends well"
pending; start_again; until_true sh -c "sed '1,/attempt 2/d' again.out | grep -q 'step '"
ok $? "a job that an admin queued again trains again" || cat again.out
on scancel --signal=USR1 --batch "$job"; over "queued again by an admin"
is "$(rows 'outcome' again)" "requeued,stopped" "the cause of an admin's requeue is the requeue"
[ "$(rows 'resumed_step > 0' again)" = "0,1" ]; ok $? "after an admin's requeue the second attempt continues the first" || rows 'resumed_step, last_step' again

until_true grep -q 'attempt 2' long.out; job=$long_job; pending; ok $? "a job whose time is up is queued again twice" || cat long.out
is "$(rows 'outcome' long)" "time_limit,time_limit" "two attempts ended by the limit"
[ "$(rows resumed_step long)" = "0,$first" ]; ok $? "the second attempt continued the first" || rows 'resumed_step, last_step' long
sed -i "s/^steps:.*/steps: $(($(sqlite3 ledger/ledger.db "select last_step from run where name = 'long'") + 10))/" long.yaml
start_again; over long; is "$(job_state $long_job)" COMPLETED "the third attempt completes the run"
is "$(rows outcome long)" "time_limit,time_limit,done" "three attempts belong to one job and one run"
is "$(rows restart_count long)" "0,1,2" "attempts have Slurm's restart counts"
job=$after; over "a job with afterok"; has after.out after "a job with afterok runs after the last attempt"

until_true grep -q "the job's time limit is near; the job is queued again" early.out
ok $? "a job is queued again after a warning that its script asked for long before the end" || cat early.out
is "$(rows outcome early | cut -d, -f1)" time_limit "the cause of a stop nine minutes before the end is the time limit"
on scancel "$early_job"

# A short limit, three times in a row, to the end; without --signal.
if long; then
    sed "s/^name:.*/name: row/; s/^steps:.*/steps: 100000000/; s/every: 1, keep: 2/every: 1000000, keep: 2/" run.yaml >row.yaml
    submit --time=2 --exclusive --open-mode=append --requeue -N1 -o row.out --wrap "exec tern run row.yaml --set checkpoint.dir=row"; row_job=$job
    for attempt in 1 2 3; do
        until_true grep -q "attempt $attempt" row.out; pending; ok $? "--time=2: attempt $attempt ends at the limit, and the job is queued again" || tail -5 row.out
        [ $attempt = 3 ] && sed -i "s/^steps:.*/steps: $(($(sqlite3 ledger/ledger.db "select last_step from run where name = 'row'") + 10))/" row.yaml
        start_again
    done
    over "--time=2 three times"; is "$(job_state $row_job)" COMPLETED "--time=2: the fourth attempt completes the run"
    is "$(rows outcome row)" "time_limit,time_limit,time_limit,done" "--time=2: three limits in a row, and the end"
    is "$(rows 'resumed_step > 0' row)" "0,1,1,1" "--time=2: each attempt goes on from the one before"
fi
tap_done
