#!/bin/bash
# Logs of real jobs: every rank on its node, over a requeue, to the end of the run.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
cluster_up
export TERN_LEDGER=$WORK/ledger

# recipe NAME 'SCRIPT' [TASKS]
recipe() {
    printf 'version: 1\nname: %s\nledger: {dir: ledger}\nworkload: {command: [bash, %s/%s.sh], tasks_per_node: %s}\n' \
        "$1" "$WORK" "$1" "${3:-1}" >"$1.yaml"
    printf '%s\n' "$2" >"$1.sh"
}
printf '#!/bin/bash\nexec tern run\n' >job.sbatch
job() { name=$1; shift; rm -f "$name.out"; submit --exclusive -o "$name.out" --tern="$name.yaml" "$@" job.sbatch; }
over() { until_true job_over "$job"; ok $? "$name: the job ends" || tern cluster exec $CLUSTER -- squeue; }

# ---- 32 ranks on four nodes
recipe wide 'for i in 1 2 3 4 5; do echo "rank $SLURM_PROCID line $i"; done; echo "to stderr" >&2' 8
job wide -N4; over
is "$(grep -c '^rank [0-9]* line [1-5]$' wide.out)" 160 "the job's output is as without tern-task"
run tern logs -j "$job"; status 0
is "$(grep -c ' o rank ' out)" 160 "the logs have all of it"
is "$(grep -c ' e to stderr' out)" 32 "the logs have stderr, too"
cut -c1-29 out | sort -c; ok $? "tern logs shows lines in order of time"
run tern logs wide --node trn1-st-trn1-2 --no-time --grep 'line 1$'
is "$(awk '{print $1}' out | sort -n | tr '\n' ' ')" "8 9 10 11 12 13 14 15 " "--node: the ranks of one node"
is "$(awk '{print $2}' out | sort -u)" trn1-st-trn1-2 "tern logs names nodes as Slurm does"
run tern logs wide --rank 31 --tail 1 --no-time; out_has 'to stderr'

# ---- a rank that is killed
here='echo "rank $SLURM_PROCID here"; touch here.$SLURM_PROCID; until [ -e here.0 ]; do sleep 0.1; done; [ $SLURM_PROCID = 1 ]'
recipe killed "$here"' && { sleep 0.3; kill -9 $$; }; exec sleep 60'
job killed -N2 --no-requeue; over
run tern logs killed --rank 0-1; is "$(grep -c 'here$' out)" 2 "kill -9 of a rank: what was printed is there"
rm here.*; recipe shim "$here"' && { until tern logs shim --rank 1 | grep -q "rank 1 here"; do sleep 0.1; done; kill -9 $PPID; }; exec sleep 60'
job shim -N2 --no-requeue; over
run tern logs shim --rank 0-1; is "$(grep -c 'here$' out)" 2 "kill -9 of tern-task: likewise, and the step ends"

# ---- followed over a requeue
recipe again 'echo "attempt ${SLURM_RESTART_COUNT:-0} rank $SLURM_PROCID"; touch ready.$SLURM_PROCID
[ -z "$SLURM_RESTART_COUNT" ] || exit 0; while :; do sleep 0.1; done'
rm -f ready.*; job again -N2 --requeue --open-mode=append
until_true sh -c '[ -e ready.0 ] && [ -e ready.1 ]'
until_true tern logs again
tern cluster exec $CLUSTER -- timeout 600 tern logs again -f --rank 0-1 --no-time >followed 2>followed.err & follower=$!
until_true grep -q 'attempt 0' followed
on "$TOOLS/slurm_job" "$job" requeue; status 0
until_true grep -q 'requeued:' again.out # a script that starts beside its former self may lose its file
start_again
until_true grep -q 'attempt 1 rank 1' again.out; over
wait $follower; is $? 0 "tern logs -f ends with the run, not with its first attempt"
for a in 0 1; do for r in 0 1; do has followed "attempt $a rank $r"; done; done
run tern logs again --attempt 1; out_has 'attempt 0 rank 1' "the first attempt's logs are kept"
run tern logs again; out_has 'attempt 1 rank 1'
tap_done
