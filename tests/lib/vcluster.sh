# Sourced after tap.sh by tests that need a Slurm: a virtual cluster of this test's own.
#
#   cluster_up            four Trn1 nodes; skips the test where Slurm is not installed
#   $SLURM_INCLUDE, with_slurm FILE...   for a Slurm that is not the system's
#   on COMMAND...         run on its head, in the current folder; ./out, ./err and $rc as with run
#   reconfigure           slurm.conf has changed: its daemons go by it, and the nodes are there
#   nodes are trn1-st-trn1-[1-4]
for p in munged slurmctld slurmd; do
    PATH=$PATH:/usr/sbin command -v $p >/dev/null || skip_all "$p is not installed"
done
SLURM_INCLUDE=${SLURM_PREFIX:+-isystem $SLURM_PREFIX/include} # where a test builds a plugin
# A job script that sets a plain PATH of its own finds the right Slurm on it.
with_slurm() { [ -z "${SLURM_PREFIX-}" ] || sed -i "s|^export PATH=|&$SLURM_PREFIX/bin:|" "$@"; }
export TERN_CLUSTER_HOME=$WORK/clusters
CLUSTER=t$$
LAYOUT=$ROOT/cluster-templates/trn1-4/cluster.yaml
cluster_down() { # after something failed, with what Slurm said of its nodes
    [ $tap_bad = 0 ] || grep -hiE 'error|not resp|state set to down|node failure' "$TERN_CLUSTER_HOME/$CLUSTER"/log/slurm*.log |
        sort | tail -n 50 | sed 's/^/# slurm: /'
    tern cluster down $CLUSTER >/dev/null 2>&1
}
cluster_up() {
    tap_cleanup=cluster_down
    tern cluster up -n $CLUSTER "$@" "$LAYOUT" >up 2>&1 || { cat up; exit 1; }
}
on() { run tern cluster exec $CLUSTER -- "$@"; }
queue_empty() { [ -z "$(tern cluster exec $CLUSTER -- squeue -h)" ]; }
job_state() { tern cluster exec $CLUSTER -- scontrol show job "$1" -o | sed 's/.*JobState=\([A-Z_]*\).*/\1/'; }
job_over() { case $(job_state "$1") in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL | PREEMPTED) queue_empty ;; *) return 1 ;; esac; }
# Until $job is over, for ROUNDS (default 1) times three minutes at most.
await_job() { for _ in $(seq "${1:-1}"); do until_true job_over "$job" && return; done; return 1; }
# COLUMNS RUN: of the run's attempts in ./ledger, in order, a comma between attempts.
rows() { sqlite3 -separator ' ' ledger/ledger.db "select $1 from attempt where run_id in (select id from run where name = '$2') order by attempt" | paste -sd,; }
# COLUMNS RUN: of the attempt of ./ledger that began last.
last() { sqlite3 -separator ' ' ledger/ledger.db "select $1 from attempt where run_id in (select id from run where name = '$2') order by begin_ns" | tail -1; }
# As tap.sh's; one that fails also prints the end of the output of the job $name.
is() { # GOT WANTED NAME
    [ "$1" = "$2" ]; ok $? "$3" || {
        echo "# got '$1', wanted '$2'"
        [ ! -s "${name-}.out" ] || tail -20 "$name.out" | sed 's/^/# /'
        [ ! -s err ] || sed 's/^/# the last command: /' err | tail -5
        return 1
    }
}
# A requeued $job waits for old credentials to expire: it is started again as soon as its nodes have
# let it go, but not in the second of its end, in which slurmd would refuse it.
is_pending() { tern cluster exec $CLUSTER -- squeue -h -j "$job" -o %T | grep -qx PENDING; }
start_again() { until_true is_pending; sleep 1.1; on scontrol update jobid="$job" StartTime=now; }
# From 24.11 on slurmctld begins anew for it, and knows no node's state until the node registers.
nodes_known() { tern cluster exec $CLUSTER -- sinfo -h -N -o %T >states && [ -s states ] && ! grep -q unknown states; }
reconfigure() { on scontrol reconfigure; until_true nodes_known; }
# sbatch ARGUMENT...: its job's number in $job; out and err are sbatch's.
submit() { on sbatch --parsable "$@"; job=$(cat out); }
