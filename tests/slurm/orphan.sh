#!/bin/bash
# The node of the batch script dies: the others have the job queued again, with spares and without, as
# an admin and as a user; a supervisor that only stands still is left alone.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/orphan.sh"
cluster_up
for timeout in 60 5; do
    [ "$timeout" = 60 ] && configure 60 30 2 || configure 5 5 1
    for owner in $owners; do
        # The short list has the pair in which a user waits for Slurm, and an admin does not.
        long || [ "$timeout-$owner" = 5-$user ] || [ "$timeout-$owner" = 60-0 ] || continue
        # Slurm gives up a node by the third of a SlurmdTimeout later.
        seconds=$([ "$owner" = 0 ] && echo $admin || echo $((timeout * 4 / 3 + released + 5)))
        recipe "plain-$owner-$timeout" 'restarts: 3'; job 2 -N2 --requeue; die $seconds
        is "$(begins)" $(((released + 1) / 2)) "$name: the job may begin when Slurm can have released the other nodes"
        recipe "spare-$owner-$timeout" 'spares: 1, restarts: 3'; job 2 -N3 --no-kill --requeue; die $seconds
    done
done

owner=0
recipe still 'restarts: 3'
script='tern run still.yaml & until [ -e still.go ]; do sleep 0.2; done; kill -STOP $!; sleep 15; kill -CONT $!; touch still.end; wait $!' job 2 -N2 --requeue
touch still.go
over COMPLETED "a supervisor that stands still: the job goes on" || true
is "$(rows restart_count | tr -d 0,)" "" "a supervisor that stands still: the job is not queued again"

recipe never 'spares: 1, restarts: 3'; job 2 -N3 --no-kill --no-requeue
run tern cluster node --power off -c $CLUSTER "$batch"
over CANCELLED "one of spares that may not be queued again does not stay"
tap_done
