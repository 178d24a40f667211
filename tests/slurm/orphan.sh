#!/bin/bash
# The node of the batch script dies: the others have the job queued again, with spares and without, as
# an admin and as a user; a supervisor that only stands still is left alone.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/reach.sh"
cluster_up
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
    for _ in 1 2 3; do until_true sh -c "[ \$(wc -l <$name.at) = $ranks ]" && break; done
    batch=$(tern cluster exec $CLUSTER -- squeue -h -j "$job" -o %B)
}
over() { await_job 15; is "$(job_state "$job")" "$1" "$2" || { cat "$name.out"; on scontrol show job "$job"; cat out; }; }
die() { # the batch node; SECONDS: at most, until the job begins anew
    touch "$name.go"; began=$SECONDS
    run tern cluster node --power off -c $CLUSTER "$batch"; status 0 "$name: the node of the batch script dies"
    over COMPLETED "$name: the job begins anew, and comes to its end"
    bound $((SECONDS - began)) "$1" "$name: seconds until then"
    is "$(rows outcome)" "node_fail,done" "$name: the ledger has the node's end"
    on sinfo -h -n "$batch" -o '%T %E'
    if [ "$owner" = 0 ]; then grep -q '^down' out; ok $? "$name: an admin's job sets the node DOWN" || cat out; fi
    # Within 60 s Slurm itself sets no node down, and later it leaves the reason.
    [ "$owner-${timeout-}" != 0-60 ] || has out "tern: does not answer the nodes of job $job" "$name: the node's reason says who set it down, and why"
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

# ---- the script of README, as sbatch runs it, and without the words of its #SBATCH line
owner=0
readme() { # NAME SBATCH-LINE: begins as $name, its batch node in $batch
    recipe "$1" 'restarts: 3'; until_true queue_empty
    printf '#!/bin/bash\n%s\nexec tern run\n' "$2" >train.sbatch
    on env PATH="$BIN:$PATH" sbatch --parsable --exclusive -N2 -o "$name.out" --tern="$name.yaml" train.sbatch; job=$(cat out)
    until_true sh -c "[ \$(wc -l <$name.at) = 2 ]" || until_true sh -c "[ \$(wc -l <$name.at) = 2 ]"
    batch=$(tern cluster exec $CLUSTER -- squeue -h -j "$job" -o %B)
}
words=$(sed -n 's/.*has `\(#SBATCH [^`]*\)`.*/\1/p' "$ROOT/README.md"); [ -n "$words" ]; ok $? "README has the #SBATCH words of the script: $words"
readme readme "$words"
grep -q 'empties the output' readme.out; [ $? = 1 ]; ok $? "README's script: its output is kept, and nothing is said of it" || cat readme.out
die $admin
is "$(grep -c ', attempt [12]: 2 nodes' readme.out)" 2 "README's script: the output has both attempts"
readme bare ''
has bare.out 'it empties the output file. Submit with --open-mode=append' "a script without --open-mode=append gets a warning before the first attempt"
die $admin
is "$(grep -c ', attempt 1: 2 nodes' bare.out)" 0 "Slurm has emptied the output of a job without --open-mode=append"
is "$(grep -c 'empties the output' bare.out)" 0 "later attempts give no warning again"

# ---- jobs of spares whose ranks cannot watch: watchers on the other nodes do
recipe alone 'spares: 1, restarts: 3'; job 1 -N2 --no-kill --requeue; die $admin
! grep -q "no process on another node" alone.out; ok $? "one computing node of two: the spare watches"
if command -v mpirun >/dev/null; then
    recipe mpi 'spares: 1, with: mpirun, restarts: 3'; job 2 -N3 --no-kill --requeue; die $admin
else
    skip "mpirun is not installed"
fi
so=${TERN_BUILD:-$ROOT/build}/tests/pyxis_stub.so
if [ -e "$so" ] && [ -e "$BIN/tern-inside" ]; then # an image has nothing of tern's but tern-inside
    conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf
    cp "$conf" conf.before; echo "required $so" >>"$conf"; mkdir image
    recipe boxed 'spares: 1, restarts: 3'
    sed -i "s|^workload: {|&container: $WORK/image, |" boxed.yaml
    job 2 -N3 --no-kill --requeue; die $admin
    cp conf.before "$conf"
else
    skip "no pyxis_stub.so, or no tern-inside: no static libc here"
fi

recipe still 'restarts: 3'
script='tern run still.yaml & until [ -e still.go ]; do sleep 0.2; done; kill -STOP $!; sleep 15; kill -CONT $!; touch still.end; wait $!' job 2 -N2 --requeue
touch still.go
over COMPLETED "a supervisor that stands still: the job goes on" || true
is "$(rows restart_count | tr -d 0,)" "" "a supervisor that stands still: the job is not queued again"

recipe never 'spares: 1, restarts: 3'; job 2 -N3 --no-kill --no-requeue
run tern cluster node --power off -c $CLUSTER "$batch"
over CANCELLED "one of spares that may not be queued again does not stay"
tap_done
