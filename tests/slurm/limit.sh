#!/bin/bash
# Ends that Slurm wants, by every way it has of saying so: the warning to the steps alone, to a heterogeneous job, to a task of
# an array; a preemption with its grace time; a reservation for maintenance.  The job queues itself again and goes on.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
sed 's|^    ScaledownIdletime:.*|&\n    CustomSlurmSettings:\n      - PreemptType: preempt/partition_prio\n      - PreemptMode: REQUEUE|' "$LAYOUT" >cluster.yaml
LAYOUT=$WORK/cluster.yaml
cluster_up
echo "PartitionName=prod Nodes=trn1-st-trn1-[1-4] PriorityTier=10 PreemptMode=OFF" >>"$TERN_CLUSTER_HOME/$CLUSTER/etc/slurm.conf"
reconfigure
on scontrol update partition=trn1 PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
tiny_make || exit 1
ended_as() { [ "$(rows 'outcome, exit_code' "$1")" = "$2" ]; }
in_ledger() { until_true ended_as "$1" "$2"; is "$(rows 'outcome, exit_code' "$1")" "$2" "$3"; } # a moment after the log
says() { until_true grep -q "$2" "$1.out"; }
again() { name=$1; says "$1" "$2; the job is queued again"; ok $? "$3" || tail -3 "$1.out" | sed 's/^/# /'; }
recipe() { sed "s/^name:.*/name: $1/; s/^steps:.*/steps: 100000000/; s/every: 1, keep: 2/every: 1000000, keep: 2/; s/dir: checkpoints/dir: $1-checkpoints/" run.yaml >"$1.yaml"; }
# The shortest limit there is; Slurm looks twice a minute.
long="--exclusive --open-mode=append --requeue -N1"
for run in steps array groups; do recipe $run; done
submit --time=1 --signal=USR1@50 $long -o steps.out --wrap "exec tern run steps.yaml"; steps=$job
on sbatch --parsable -N1 --dependency=afterany:"$steps" -o any.out --wrap "echo any"; any=$(cat out)
submit --time=1 --signal=B:USR1@50 --array=3 $long -o array.out --wrap "exec tern run array.yaml"; array=$job
printf '#!/bin/bash\nexec tern run groups.yaml\n' >groups.sh
on sbatch --parsable --time=1 --signal=B:USR1@50 $long -o groups.out : --time=1 -N1 --exclusive groups.sh; groups=$(cat out)
again steps "the job's time limit is near" "a warning to the steps alone (--signal without B:)"
again array "the job's time limit is near" "a task of an array"
again groups "the job's time limit is near" "a heterogeneous job"
three() { echo "$(rows 'outcome, exit_code' steps)|$(rows outcome array)|$(rows outcome groups)"; }; three_are() { [ "$(three)" = "time_limit 76|time_limit|time_limit" ]; }; until_true three_are
is "$(three)" "time_limit 76|time_limit|time_limit" "the cause is the time limit"
is "$(job_state "$any")" PENDING "what waits for the end (afterany) waits on"
for job in "$steps" "${array}_3" "$groups"; do start_again; done
for run in steps array groups; do until_true grep -q 'attempt 2: .*from step' $run.out; ok $? "$run: it goes on from its checkpoint" || tail -5 $run.out; done
on scancel "$steps" "$array" "$groups"; until_true test -s any.out; has any.out any "a job that waits runs after the last attempt"
until_true queue_empty

# ---- a workload that knows nothing of the signal
printf 'version: 1\nname: deaf\nledger: {dir: ledger}\nworkload: {command: [sleep, "600"]}\n' >deaf.yaml
submit --time=1 --signal=USR1@50 $long -o deaf.out --wrap "exec tern run deaf.yaml"; deaf=$job

# ---- preemption: 30 s for a checkpoint
recipe victim
submit --time=30 --exclusive --open-mode=append --requeue -N2 -o victim.out --wrap "exec tern run victim.yaml"; victim=$job
until_true grep -q 'step ' victim.out
submit -p prod --exclusive -N3 -o prod.out --wrap "sleep 2; echo prod"; prod=$job
again victim "Slurm preempts the job" "a preempted job"
in_ledger victim "preempted 76" "its cause is the preemption"
says prod prod; has prod.out prod "the other job runs"
job=$victim; start_again; until_true grep -q 'attempt 2: .*from step' victim.out; ok $? "the run goes on from its checkpoint"
on scancel "$victim"

# ---- without --signal: a stop takes twice a step and a checkpoint, as measured here, and half a minute
recipe unasked; sed -i 's/every: 1000000,/every: 100,/' unasked.yaml
submit --time=2 --exclusive --open-mode=append --requeue -N1 -o unasked.out --wrap "exec tern run unasked.yaml"; unasked=$job

# ---- maintenance of its nodes
recipe nodes
submit --time=30 --exclusive --open-mode=append --requeue -N1 -o nodes.out --wrap "exec tern run nodes.yaml"; nodes=$job
until_true grep -q 'step ' nodes.out
on scontrol create reservation reservation=works starttime=now+130seconds duration=10 flags=maint,ignore_jobs nodes="$(grep -o 'rank on [^,]*' nodes.out | head -1 | sed 's/rank on //')" users=root; status 0
again nodes "a reservation takes the job's nodes" "a job that stops for a maintenance"
in_ledger nodes "reservation 76" "its cause is the reservation"
grep -qE "a reservation takes the job's nodes in [0-9]+ s, and the time of a checkpoint is not known here yet" nodes.out; ok $? "a stop in time when the time of a checkpoint is not known"
on scontrol delete reservation=works
job=$nodes; start_again; until_true grep -q 'attempt 2: .*from step' nodes.out; ok $? "the run goes on from its checkpoint"
on scancel "$nodes"
says deaf 'left no checkpoint'; is "$(rows outcome deaf)" time_limit "a workload that the warning killed has the limit as its cause"
again unasked "the job's time limit is near" "a job without --signal"
in_ledger unasked "time_limit 76" "its cause is the time limit"
grep -qE "the job's time limit is in (30|29) s, and a stop with a checkpoint takes that long here" unasked.out; ok $? "warned as late as a checkpoint here allows" || tail -5 unasked.out
on scancel "$unasked"; until_true queue_empty; tap_done
