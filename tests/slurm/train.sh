#!/bin/bash
# The main job on a real Slurm: sbatch --tern, four nodes, faults, the ledger.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/pmix.sh"
command -v slurmctld >/dev/null || skip_all "no slurmctld here"
export TERN_CLUSTER_HOME=$WORK/cluster
c=t-train
tap_cleanup() { tern cluster down $c >/dev/null 2>&1; }
tap_cleanup=tap_cleanup
tiny_make
sed -i 's/^batch: .*/batch: {global: 8, micro: 1, seq_len: 32}/' run.yaml
run tern cluster up "$ROOT/cluster-templates/trn1-4/cluster.yaml" --name $c
status 0 || { sed 's/^/# /' err; tap_done; }
on() { tern cluster exec $c -- "$@"; }
cat >job.sh <<'J'
#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --exclusive --no-kill --requeue --open-mode=append
tern run
J

# submit ARGUMENT...: the job id in $job.  wait_job: until it has ended; its state in $state.
submit() { job=$(on sbatch --parsable -D "$WORK" -o "$WORK/job-%j.log" "$@" job.sh 2>err); }
wait_job() {
    for _ in $(seq 600); do
        state=$(on squeue -h -t all -j "$job" -o %T 2>/dev/null)
        case $state in COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|"") return ;; esac
        sleep 0.1
    done
}
outcome() { tern ledger sql --ledger ledger -n -P "select coalesce(outcome, 'running') from attempt order by begin_ns desc limit 1" 2>/dev/null; }

submit --tern=run.yaml
wait_job
[ "$state" = COMPLETED ]; ok $? "sbatch --tern: the job completes on four nodes" || sed 's/^/# /' "job-$job.log"
has "job-$job.log" "4 ranks"
[ "$(outcome)" = "done" ]; ok $? "the attempt's outcome is 'done'" || outcome
if has_pmix on; then
    run on srun --mpi=pmix -N4 --ntasks-per-node=1 tern eval "$WORK/run.yaml"
    status 0 "tern eval on the four nodes"
    mv out four
    run tern eval run.yaml
    cmp -s out four
    ok $? "prints what it prints on one"
else
    skip "tern eval on the four nodes: $NO_PMIX"
fi
n=$(tern cluster exec --node "$(on sinfo -h -N -o %N | tail -n 1)" $c -- sqlite3 "$WORK/ledger/ledger.db" 'select count(*) from attempt')
[ "$n" = 1 ]; ok $? "plain sqlite3 on another node reads the ledger" || echo "# '$n'"

# The ranks met at the supervisor; by PMIx they train the same.
if has_pmix on; then
    tiny_digests >met
    rm -rf checkpoints ledger
    submit --tern=run.yaml --export=ALL,TERN_WIREUP=pmix,TERN_LOG_LEVEL=debug
    wait_job
    has "job-$job.log" "phase: pmix"
    tiny_digests | cmp -s - met; ok $? "ranks that meet by PMIx train the same"
else
    skip "ranks that meet by PMIx: $NO_PMIX"
fi

# kill -9 of one rank in the middle: the attempt is closed with its cause, the next one goes on, same bits.
rm -rf checkpoints ledger
mv run.yaml short.yaml
steps=$(long && echo 300 || echo 200)
sed "s/^steps: .*/steps: $steps/; s/every: 1/every: 3/" short.yaml >run.yaml
submit --tern=run.yaml
tiny_wait_step $((steps / 5))
pid=$(pgrep -f "^[^ ]*tern-train .*$WORK/run.yaml" | tail -n 1)
[ -n "$pid" ] && kill -9 "$pid"
ok $? "kill -9 of a rank in the middle of a run"
wait_job
[ "$state" = COMPLETED ]; ok $? "the same job goes on to the end" || sed 's/^/# /' "job-$job.log"
outcomes=$(tern ledger sql --ledger ledger -n -P "select group_concat(outcome, ' ') from (select outcome from attempt order by attempt)")
[ "$outcomes" = "killed done" ]; ok $? "the run was killed and done in two attempts" || echo "# '$outcomes'"
has "job-$job.log" "going on after step"
tiny_digests >killed
n=$(tern ledger sql --ledger ledger -r latest -n -P "select count(*) from step where name = 'loss'")
[ "$n" = $steps ]; ok $? "every step counts once in the ledger" || echo "# '$n'"
rm -rf checkpoints ledger
submit --tern=run.yaml
wait_job
tiny_digests | cmp -s - killed
ok $? "its weights are, to the last bit, those of a run that was never killed"

# scancel: TERM reaches the trainer, which leaves a checkpoint.
rm -rf checkpoints ledger
submit --tern=run.yaml
tiny_wait_step 6
on scancel --signal=TERM --batch "$job"
wait_job
run tern ckpt verify checkpoints/latest
status 0 "SIGTERM to the batch job leaves a verified checkpoint"
has "job-$job.log" "stopped after step"

# Refusals: one line, nothing queued.
last=$job
sed 's/lr: /lrr: /' run.yaml >bad.yaml
submit --tern=bad.yaml
[ -z "$job" ]; ok $? "a wrong key is refused at sbatch"
has err "bad.yaml:10: optimizer.lrr: unknown key. Did you mean 'lr'?"
[ "$(on squeue -h -t pending,running,completing -o %i | grep -vc "^$last$")" = 0 ]; ok $? "nothing is left in the queue"
tap_done
