#!/bin/bash
# scontrol suspend and resume: no rank is blamed for the time in which none ran.  A rank that is
# stopped alone is.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
cluster_up
tiny_make || exit 1
gone() { [ -z "$(tern cluster exec $CLUSTER -- squeue -h -j "$job")" ]; }
over() { until_true gone; is "$(job_state "$job")" COMPLETED "$1: the job comes to its end" || cat "$1.out"; }
begin() { # NAME: a job of two nodes at work
    sed "s/^name:.*/name: $1/; s/^steps:.*/steps: 400/; s/every: 1, keep: 2/every: 50, keep: 2/; s/dir: checkpoints/dir: $1/" run.yaml >"$1.yaml"
    submit -N2 --exclusive -o "$1.out" --wrap "exec tern run $1.yaml"; status 0
    until_true test -d "$1/step-00000050"
}
stop_one() { # PROGRAM NAME: a job with one of them stopped, in $run_name: another where the first was over by then
    local at
    for at in '' 2 3 4 5 6 7 8 9; do
        run_name=$2$at; begin "$run_name"
        kill -STOP "$(pgrep -f "^[^ ]*$1 .*/$run_name.yaml" | tail -n 1)" 2>/dev/null && return
        over "$run_name"
    done
}
is_suspended() { tern cluster exec $CLUSTER -- squeue -h -j "$job" -o %T | grep -qx SUSPENDED; }

# It stays suspended, beside the others, until the end that it had before; then Slurm gives it another.
sed "s/^name:.*/name: late/; s/^steps:.*/steps: 100000000/; s/every: 1, keep: 2/every: 1000000, keep: 2/; s/dir: checkpoints/dir: late/" run.yaml >late.yaml
submit --time=2 -N1 --exclusive -o late.out --wrap "exec tern run late.yaml"; late=$job
until_true grep -q 'step ' late.out; sleep 8 # the first query: without its answer the test is easier to pass
on squeue -h -j "$late" -o %e; end=$(date -d "$(cat out)" +%s)
on scontrol suspend "$late"; until_true is_suspended

export TERN_DEADLINE=4 TERN_LIVENESS=2
begin left; over left

begin held
on scontrol suspend "$job"; status 0
until_true is_suspended
at=$(ls held | sort | tail -n 1); sleep 10 # more than twice the deadline
on scontrol resume "$job"; status 0
over held; is "$(rows outcome held)" "done" "a job suspended for longer than the deadline has one attempt"
digests() { tern ckpt show "$1/latest" --json | grep '"sha256"' | sort; }
digests left >want; digests held | cmp -s - want; ok $? "a suspended job has the weights of an undisturbed one"

if long; then # what is promised, with the deadlines that a run has by itself
    unset TERN_DEADLINE TERN_LIVENESS
    begin minutes
    on scontrol suspend "$job"; status 0; until_true is_suspended; sleep 120
    on scontrol resume "$job"; status 0
    over minutes; is "$(rows outcome minutes)" "done" "a job suspended for 120 s has one attempt, with the default deadlines"
    digests minutes | cmp -s - want; ok $? "a job suspended for 120 s has the weights of an undisturbed one"

    # Gang scheduling: two jobs have the same CPUs by turns, of the least time slice that Slurm knows.
    conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/slurm.conf; cp "$conf" conf.before
    sed -i '/^PreemptMode=/d; /^SchedulerTimeSlice=/d; /^PartitionName=/{s/ OverSubscribe=[^ ]*//; s/$/ OverSubscribe=FORCE:2/}' "$conf"
    printf 'PreemptMode=GANG\nSchedulerTimeSlice=5\n' >>"$conf"; reconfigure
    gang() { # NAME: a long job on two nodes, one task a node with all of its CPUs
        sed "s/^name:.*/name: $1/; s/^steps:.*/steps: 6000/; s/every: 1, keep: 2/every: 1000, keep: 2/; s/dir: checkpoints/dir: $1/" run.yaml >"$1.yaml"
        submit -N2 -w 'trn1-st-trn1-[1-2]' --ntasks-per-node=1 -c "$(tern cluster exec $CLUSTER -- sinfo -h -n trn1-st-trn1-1 -o %c)" -o "$1.out" --wrap "exec tern run $1.yaml"; status 0
    }
    gang undisturbed; over undisturbed
    gang one; first=$job; gang two; second=$job
    turns=0 was=
    for _ in $(seq 1200); do
        now=$(tern cluster exec $CLUSTER -- squeue -h -j "$first,$second" -o '%i %T' | sort | paste -sd' ')
        case $now in *SUSPENDED*) [ "$now" = "$was" ] || turns=$((turns + 1)) ;; '') break ;; esac
        was=$now; sleep 0.3
    done
    [ "$turns" -ge 2 ]; ok $? "gang scheduling: Slurm suspends the two jobs in turns ($turns times)"
    job=$first; over one; job=$second; over two
    for name in one two; do
        is "$(rows outcome $name)" "done" "gang scheduling: job $name has one attempt"
        diff <(digests $name) <(digests undisturbed) >/dev/null; ok $? "gang scheduling: job $name has the weights of an undisturbed one"
    done
    cp conf.before "$conf"; reconfigure
fi

export TERN_DEADLINE=60 TERN_LIVENESS=2
stop_one tern-train stopped
over $run_name
is "$(rows outcome $run_name)" "fault,done" "a rank that is stopped alone causes another attempt"
has $run_name.out 'no sign of life' "a stopped rank's error says that it gave no sign of life"
digests $run_name | cmp -s - want; ok $? "a job with a stopped rank ends with the same weights"

stop_one tern-task wrapper
over $run_name
is "$(rows outcome $run_name)" "done" "a tern-task that is stopped is continued when all other ranks have ended"
has $run_name.out 'its step is continued' "tern run says which rank had not ended"

is_past() { [ "$(date +%s)" -gt "$end" ]; }
job=$late; until_true is_past
before=$(date +%s); on scontrol resume "$late"
on squeue -h -j "$late" -o %e; end=$(date -d "$(cat out)" +%s)
until_true grep -q "time limit is" late.out
sed -n "s/.*the job's time limit is in \([0-9]*\) s.*/\1/p" late.out >seconds
# The line is of a moment between the resume and now; seconds are rounded at both ends.
at=$((end - $(cat seconds))) after=$(date +%s)
[ "$at" -ge $((before - 2)) ] && [ "$at" -le $((after + 2)) ]
ok $? "a resumed job is stopped for the end that Slurm says it has now" || { echo "# $before $at $after"; tail -3 late.out; }
on scancel "$late"; until_true gone
tap_done
