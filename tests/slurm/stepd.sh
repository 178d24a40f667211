#!/bin/bash
# A slurmstepd is killed: of a rank's node, of the batch step, together with its rank.  The attempt ends
# with what the ranks' own ends say, and srun is ended.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
cluster_up
tiny_make || exit 1

# ---- of one node: the ranks come to their end, and srun would wait for ever.
sed "s/^name:.*/name: stepd/; s/^steps:.*/steps: 5000/; s/dir: checkpoints/dir: stepd/; s/every: 1, keep/every: 1000, keep/" run.yaml >stepd.yaml
printf "version: 1\nname: stepd-workload\nledger: {dir: ledger}\nworkload: {command: [sh, -c, 'touch began.\$SLURM_PROCID; until [ -e go ]; do sleep 0.1; done; exit \$((3 * SLURM_PROCID))']}\nlaunch: {restarts: 0, health: off}\n" >stepd-workload.yaml
for name in stepd-workload stepd; do
    rm -f began.*
    submit -N2 --exclusive --no-kill -o $name.out --wrap "exec $BIN/tern run $name.yaml"
    if [ $name = stepd ]; then until_true grep -q 'step [1-9]' $name.out; else until_true test -e began.1; fi
    step=$(tern cluster exec $CLUSTER -- squeue -s -h -j "$job" -o %i | grep -v 'batch\|extern' | tail -n 1)
    on sh -c "for p in \$(pgrep -f 'slurmstepd: .$step.'); do ls -l /proc/\$p/fd | grep -q slurmd-trn1-st-trn1-2.log && kill -9 \$p && echo killed; done"
    out_has killed "$name: a slurmstepd is killed"; touch go; began=$SECONDS
    until_true job_over "$job"
    [ $name = stepd ] || bound $((SECONDS - began)) 14 "$name: seconds from the end of the ranks to that of the job"
    on scontrol show job "$job" -o
    is "$(sed 's/.*JobState=\([A-Z_]*\).*ExitCode=\([0-9:]*\).*/\1 \2/' out)" "$([ $name = stepd ] && echo COMPLETED 0:0 || echo FAILED 3:0)" "$name: the job's state and exit code in Slurm"
    is "$(last outcome $name)" "$([ $name = stepd ] && echo done || echo failed)" "$name: a slurmstepd was killed: the ranks' own end counts"
    has $name.out 'srun has not ended, though every rank has' "$name: srun is ended"
done
is "$(last exit_code stepd-workload)" 3 "the job has the status of the ranks"
# ---- of the batch step: its tern run goes on, and Slurm queues the job again.
name=batch; rm -f go
printf "version: 1\nname: batch\nledger: {dir: ledger}\nworkload: {command: [bash, -c, 'trap \"exit 7\" TERM; touch batch.began.\$SLURM_PROCID; [ \$SLURM_RESTART_COUNT ] || until [ -e go ]; do sleep 0.1; done']}\nlaunch: {restarts: 3, health: off}\n" >batch.yaml
submit -N2 --exclusive --requeue --open-mode=append -o batch.out --wrap "exec $BIN/tern run batch.yaml"
until_true test -e batch.began.0; until_true test -e batch.began.1
on sh -c "for p in \$(pgrep -f 'slurmstepd: .$job.batch'); do kill -9 \$p && echo killed; done"
out_has killed "batch: the slurmstepd of the batch step is killed"
on scontrol requeue "$job"
await_job; is "$(job_state "$job")" COMPLETED "batch: the job that was queued again comes to its end"
is "$(rows outcome batch)" requeued,done "batch: the attempt without a slurmstepd is requeued, not failed"
# ---- it is killed together with its rank, or the ranks have no log: their signs of life count
kill_stepd() { # NODE [all]: the slurmstepd of $job's newest step there, and with "all" its processes
    step=$(tern cluster exec $CLUSTER -- squeue -s -h -j "$job" -o %i | grep -v 'batch\|extern' | tail -n 1)
    on sh -c "for p in \$(pgrep -f 'slurmstepd: .$step.'); do ls -l /proc/\$p/fd | grep -q slurmd-trn1-st-trn1-$1.log || continue
        kids=\$(pgrep -P \$p); kill -9 \$p && echo killed; [ '${2-}' != all ] || for k in \$kids; do kill -9 \$(pgrep -P \$k) \$k; done; done"
    out_has killed "$name: a slurmstepd is killed${2:+ with its rank}"
}
silent() { # NAME COMMAND RESTARTS OPTION...: at work
    name=$1
    printf 'version: 1\nname: %s\nledger: {dir: ledger}\nworkload: {command: [bash, %s/%s.sh]}\nlaunch: {restarts: %s, health: off}\n' "$1" "$WORK" "$1" "$3" >"$1.yaml"
    printf 'touch %s.began.$SLURM_PROCID; [ -e %s.go ] || until [ -e %s.go ]; do sleep 0.1; done\n%s\n' "$1" "$1" "$1" "$2" >"$1.sh"
    submit --exclusive -o "$1.out" "${@:4}" --wrap "exec $BIN/tern run $1.yaml"
    until_true test -e "$1.began.0"
}
silent lost '[ -e lost.once ] || { touch lost.once; exit 75; }' 1 -N2; until_true test -e lost.began.1; kill_stepd 2 all; touch lost.go
silent nolog 'exit $((4 * SLURM_PROCID))' 0 -N2 --export=ALL,TERN_LOG_BYTES=0; until_true test -e nolog.began.1; kill_stepd 4; touch nolog.go
until_true queue_empty
name=lost; has lost.out "no rank has been heard of for a while" "srun is ended when the other ranks have"
is "$(rows outcome lost)" "fault,done" "lost: the rank that failed counts, and the next attempt begins on the same nodes"
name=nolog; has nolog.out "srun has not ended, though every rank has" "without logs, too"
is "$(rows 'outcome, exit_code' nolog)" "failed 4" "nolog: the job has the status of the ranks"
silent single 'exit 0' 0 -N1; kill_stepd '[1-4]' all
until_true queue_empty
has single.out "no rank has been heard of for a while" "the only rank of a job is killed with its slurmstepd: srun is ended"
is "$(rows outcome single)" "fault" "single: how it ended is not known"
on scancel -u "$(id -un)"; until_true queue_empty
tap_done
