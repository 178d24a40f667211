#!/bin/bash
# scontrol suspend and resume: no rank is blamed for the time in which none ran.  A rank that is
# stopped alone is.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
cluster_up
tiny_make || exit 1
over() { await_job; is "$(job_state "$job")" COMPLETED "$1: the job comes to its end" || cat "$1.out"; }
begin() { # NAME: a job of two nodes at work
    sed "s/^name:.*/name: $1/; s/^steps:.*/steps: 400/; s/every: 1, keep: 2/every: 50, keep: 2/; s/dir: checkpoints/dir: $1/" run.yaml >"$1.yaml"
    submit -N2 --exclusive -o "$1.out" --wrap "exec tern run $1.yaml"; status 0
    until_true test -d "$1/step-00000050"
}
export TERN_DEADLINE=4 TERN_LIVENESS=2
begin left; over left

begin held
on scontrol suspend "$job"; status 0
until_true sh -c "tern cluster exec $CLUSTER -- squeue -h -j $job -o %T | grep -qx SUSPENDED"
at=$(ls held | sort | tail -n 1); sleep 10 # more than twice the deadline
on scontrol resume "$job"; status 0
over held; is "$(rows outcome held)" "done" "a job suspended for longer than the deadline has one attempt"
digests() { tern ckpt show "$1/latest" --json | grep '"sha256"' | sort; }
digests left >want; digests held | cmp -s - want; ok $? "a suspended job has the weights of an undisturbed one"

export TERN_DEADLINE=60
begin stopped
kill -STOP "$(pgrep -f '^[^ ]*tern-train .*/stopped.yaml' | tail -n 1)"
over stopped
is "$(rows outcome stopped)" "fault,done" "a rank that is stopped alone causes another attempt"
has stopped.out 'no sign of life' "a stopped rank's error says that it gave no sign of life"
digests stopped | cmp -s - want; ok $? "a job with a stopped rank ends with the same weights"

begin wrapper
kill -STOP "$(pgrep -f '^[^ ]*tern-task .*/wrapper.yaml' | tail -n 1)"
over wrapper
is "$(rows outcome wrapper)" "done" "a tern-task that is stopped is continued when all other ranks have ended"
has wrapper.out 'its step is continued' "tern run says which rank had not ended"
tap_done
