# Sourced after vcluster.sh by tests in which the node of the batch script dies.
#
#   recipe NAME LAUNCH   a workload of that name, for $owner
#   job RANKS OPTION...  submits it as $owner; $job and $batch, its batch node, once it is at work
#   die SECONDS          the batch node: the job begins anew, within SECONDS where bounds are asserted
#   over STATE NAME      an assertion of that name: the job ends in that state
#   configure SlurmdTimeout KillWait TCPTimeout   also sets $released and $admin, both in seconds
#   begins               seconds, each once, after which Slurm was told that $job may begin
. "$ROOT/tests/lib/reach.sh"
rows() { sqlite3 -separator ' ' "$name.ledger/ledger.db" "select $1 from attempt order by attempt" | paste -sd,; }
user=$(id -u daemon) # newer releases of Slurm start jobs of users that passwd knows alone
recipe() { # NAME LAUNCH: a workload that waits for NAME.end, or not at all when NAME.go is there
    name=$1
    printf 'version: 1\nname: %s\nledger: {dir: %s.ledger}\nworkload: {command: [bash, %s/%s.sh]}\nlaunch: {%s}\n' "$1" "$1" "$WORK" "$1" "$2" >"$1.yaml"
    printf '%s\n' "echo \$SLURMD_NODENAME >>$1.at; [ -e $1.go ] || until [ -e $1.end ]; do sleep 0.2; done" >"$1.sh"
    mkdir -p "$1.ledger"; touch "$1.at" "$1.out"
    chown -R "$owner" "$1".* 2>/dev/null
}
job() { # RANKS OPTIONS: at work as $script, its batch node in $batch
    local ranks=$1; shift
    on setpriv --reuid="$owner" --regid="$owner" --clear-groups env HOME="$WORK" PATH="$REACH_BIN:$PATH" \
        sbatch --parsable --exclusive --open-mode=append -o "$name.out" "$@" --wrap "${script:-exec tern run $name.yaml}"
    job=$(cat out)
    until_true sh -c "[ \$(wc -l <$name.at) = $ranks ]"
    batch=$(tern cluster exec $CLUSTER -- squeue -h -j "$job" -o %B)
}
over() { await_job 3; is "$(job_state "$job")" "$1" "$2" || { cat "$name.out"; on scontrol show job "$job"; cat out; }; }
die() { # the batch node; SECONDS: at most, until the job begins anew
    touch "$name.go"; began=$SECONDS
    run tern cluster node --power off -c $CLUSTER "$batch"; status 0 "$name: the node of the batch script dies"
    over COMPLETED "$name: the job begins anew, and comes to its end"
    bound $((SECONDS - began)) "$1" "$name: seconds until then"
    is "$(rows outcome)" "node_fail,done" "$name: the ledger has the node's end"
    on sinfo -h -n "$batch" -o '%T %E'
    if [ "$owner" = 0 ]; then grep -q '^down' out; ok $? "$name: an admin's job sets the node DOWN" || cat out; fi
    # Within 60 s Slurm itself sets no node down, and later it leaves the reason.
    [ "$owner-${timeout-}" != 0-60 ] || has out "tern: does not answer the nodes of job $job" "$name: the node's reason names tern and the job"
    run tern cluster node --power on -c $CLUSTER "$batch"
    until_true sh -c "tern cluster exec $CLUSTER -- sinfo -h -n $batch -o %T | grep -qx idle" ||
        { on scontrol update nodename="$batch" state=resume; until_true sh -c "tern cluster exec $CLUSTER -- sinfo -h -n $batch -o %T | grep -qx idle"; }
}
chmod 755 "$WORK"; reach $user
owners=0; command -v setpriv >/dev/null && [ "$(id -u)" = 0 ] && owners="0 $user"
slurm_conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/slurm.conf
setting() { sed -n "s/^$1 *= *\([0-9]*\) sec\$/\1/p" out; }
configure() { # SlurmdTimeout KillWait TCPTimeout
    sed -i "s/^SlurmdTimeout=.*/SlurmdTimeout=$1/; s/^KillWait=.*/KillWait=$2/; /^TCPTimeout=/d" "$slurm_conf"
    echo "TCPTimeout=$3" >>"$slurm_conf"; reconfigure
    on scontrol show config
    is "$(setting SlurmdTimeout) $(setting KillWait) $(setting TCPTimeout)" "$1 $2 $3" "Slurm has SlurmdTimeout=$1 KillWait=$2 TCPTimeout=$3"
    # Until Slurm has released the other nodes: slurmstepd tells the dead srun of each end six times, for
    # TCPTimeout each (14.3 s of 2, in its log at debug2); slurmd checks once a second at first, and every
    # 10 s from the tenth on.  So an admin's job cannot begin within 15 s.
    released=$((6 * $3 + 13))
    admin=$((12 + released + 2)) # the silence, two looks, a turn; the job itself
}
# Slurm's own log: a begin that comes before the nodes are released costs the job cred_expire more.
begins() {
    sed -n "s/^.\([^]]*\)\..*setting begin to \([^ ]*\) for JobId=$job\$/\1 \2/p" "$TERN_CLUSTER_HOME/$CLUSTER/log/slurmctld.log" |
        while read -r now then; do echo $((($(date +%s -d "$then") - $(date +%s -d "$now") + 1) / 2)); done | sort -u
}
