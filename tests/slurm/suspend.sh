#!/bin/bash
# scontrol suspend and resume: no rank is blamed for the time in which none ran.  A rank that is
# stopped alone is.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
cluster_up
tiny_make || exit 1
gone() { [ -z "$(tern cluster exec $CLUSTER -- squeue -h -j "$job")" ]; }
over() { for _ in 1 2 3 4; do until_true gone && break; done; is "$(job_state "$job")" COMPLETED "$1: the job comes to its end" || cat "$1.out"; }
begin() { # NAME: a job of two nodes at work
    sed "s/^name:.*/name: $1/; s/^steps:.*/steps: 400/; s/every: 1, keep: 2/every: 50, keep: 2/; s/dir: checkpoints/dir: $1/" run.yaml >"$1.yaml"
    submit -N2 --exclusive -o "$1.out" --wrap "exec tern run $1.yaml"; status 0
    until_true test -d "$1/step-00000050"
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

is_past() { [ "$(date +%s)" -gt "$end" ]; }
job=$late; for _ in 1 2 3 4; do until_true is_past && break; done
on scontrol resume "$late"; for _ in 1 2 3 4; do until_true grep -q "time limit is" late.out && break; done
sed -n "s/.*the job's time limit is in \([0-9]*\) s.*/\1/p" late.out >seconds
[ "$(cat seconds)" -gt 0 ] && [ "$(cat seconds)" -le 60 ]; ok $? "a resumed job is stopped for the end that it has now, in the last half of its time" || tail -3 late.out
on scancel "$late"; until_true gone
tap_done
