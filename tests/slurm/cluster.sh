#!/bin/bash
# The virtual cluster: as this user, as an ordinary one when this one is root, and in plain mode.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/reach.sh"
. "$ROOT/tests/lib/pmix.sh"
for p in munged slurmctld slurmd; do
    PATH=$PATH:/usr/sbin command -v $p >/dev/null || skip_all "$p is not installed"
done
# The leak checker's helper cannot trace a process whose children live in another PID namespace.
[ -z "${TERN_SANITIZE-}" ] || export ASAN_OPTIONS=detect_leaks=0
template=$ROOT/cluster-templates/trn1-4/cluster.yaml
mkdir "$WORK/many-16"; sed "s/Count: 4/Count: 16/" "$template" >"$WORK/many-16/cluster.yaml"
as=()
tern_cluster() { "${as[@]}" tern cluster "$@"; }
on() { run tern_cluster exec trn1-4 -- "$@"; }          # on the head
finish() { for c in trn1-4 many-16; do tern_cluster down $c; done >/dev/null 2>&1; }
tap_cleanup=finish
supervisor() { tern_cluster list | awk -v n="$1" '$1 == n { print $(NF - 1) }'; }

# In a PID namespace: the supervisor's, so that "nothing is left" can be asked of the kernel.
left() { # PIDNS MOUNT: processes of that namespace, links and mounts that outlived it
    for p in /proc/[0-9]*; do
        [ "$(readlink "$p/ns/pid" 2>/dev/null)" = "$1" ] && ! grep -q '^State:.Z' "$p/status" && echo "$p"
    done
    ip -o link 2>/dev/null | grep -E ': v[0-9]+@'
    grep -F "$2" /proc/mounts
}

running() { grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null; }

pmix_ranks() { # RANKS-A-NODE WANTED WHO
    has_pmix tern_cluster exec trn1-4 -- || { skip "$3: $NO_PMIX"; return; }
    on srun --mpi=pmix -N4 --ntasks-per-node="$1" sh -c 'echo $PMIX_RANK'
    [ "$(sort -n out | tr '\n' ' ')" = "$2" ]; ok $? "$3: PMIx ranks" || cat err
}
namespaces() { # WHO
    run tern_cluster up "$template"; status 0 "$1: tern cluster up ends well"
    sed -n 's/^trn1-4: /# /p' out
    shares() { tr '\n' ' ' <out | grep -o 'All nodes share .*'; }
    is "$(shares | sed "s/own), .*and this/own), and this/")" "All nodes share /fsx (the cluster's own), and this machine's other folders. Each node has its own /tmp, /run, /dev and /dev/shm. " "$1: up says what the nodes share" || cat out
    case $PWD in /tmp/*) shares | grep -qF "$PWD, "; ok $? "$1: the current folder among them" || cat out ;; esac
    said=$(shares); run tern_cluster status; is "$(shares)" "$said" "$1: status says so, too"
    on sinfo -h -N -o '%N %t %c %G'
    [ "$(sort out | tr '\n' ' ')" = "$(for i in 1 2 3 4; do printf 'trn1-st-trn1-%d idle 128 neuron:trn1:16 ' $i; done)" ]
    ok $? "$1: sinfo shows four idle nodes with 128 CPUs and 16 devices" || cat out
    on srun -N4 hostname
    [ "$(sort out | tr '\n' ' ')" = 'trn1-st-trn1-1 trn1-st-trn1-2 trn1-st-trn1-3 trn1-st-trn1-4 ' ]
    ok $? "$1: srun reaches four hosts" || cat err
    pmix_ranks 2 '0 1 2 3 4 5 6 7 ' "$1"
    if command -v mpirun >/dev/null; then
        on env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            salloc -Q -N4 timeout 600 mpirun --map-by ppr:1:node hostname
        [ "$(sort out | tr '\n' ' ')" = 'trn1-st-trn1-1 trn1-st-trn1-2 trn1-st-trn1-3 trn1-st-trn1-4 ' ]
        ok $? "$1: mpirun on the head reaches four hosts" || cat err
    else skip "mpirun is not installed"; fi
    on srun -N4 --gres=neuron:trn1:16 sh -c 'ls /dev/neuron* | wc -l'
    [ "$(sort -u out)" = 16 ]; ok $? "$1: tasks see 16 Neuron devices"
    on srun -N4 sh -c 'touch /tmp/mine /dev/shm/mine; sleep 0.2; ls /tmp /dev/shm | grep -c mine; cat /proc/sys/kernel/hostname >/fsx/$(hostname)'
    [ "$(sort -u out)" = 2 ] && [ ! -e /tmp/mine ]; ok $? "$1: /tmp and /dev/shm are the node's own"
    on ls /fsx
    [ "$(wc -l <out)" = 4 ]; ok $? "$1: the shared folder is shared"
    on srun -N1 -w trn1-st-trn1-2 pwd
    [ "$(cat out)" = "$PWD" ]; ok $? "$1: the current folder is seen on nodes, under /tmp too" || cat err
    on srun -N1 -w trn1-st-trn1-2 sh -c 'cat /sys/class/net/eth0/operstate; getent hosts trn1-st-trn1-3; ps ax | wc -l'
    has out 10.200.1.3 "$1: a node knows the others' addresses"
    [ "$(tail -1 out)" -lt 15 ]; ok $? "$1: a node sees its own processes only"
    printf '#!/bin/sh\nsrun -N4 hostname\n' >job.sh
    on sbatch -N4 -o "$PWD/job.out" -W job.sh; status 0 "$1: sbatch -W"
    [ "$(wc -l <job.out)" = 4 ]; ok $? "$1: a batch job's step runs on four nodes"
    on sh -c 'exit 7'; status 7 "$1: exec passes the exit status"
    on ./no-such-program; status 127 "$1: exec of what is not there"
    echo from stdin | tern_cluster exec trn1-4 -- cat | grep -q 'from stdin'; ok $? "$1: exec passes stdin and stdout"
    # env: so that the signal meets tern itself, and no shell of this script's
    "${as[@]}" env tern cluster exec trn1-4 -- sh -c 'trap "echo caught; exit 9" TERM; echo ready; while :; do sleep 0.1; done' >out 2>err & pid=$!
    until_true grep -q ready out; kill -TERM $pid; wait $pid
    [ $? = 9 ] && grep -q caught out; ok $? "$1: exec passes signals"
    run tern_cluster exec --node trn1-st-trn1-3 trn1-4 -- hostname
    out_has trn1-st-trn1-3 "$1: exec --node"
    run tern_cluster exec --node nope trn1-4 -- hostname; status 2; err_has "has no node 'nope'"

    run tern_cluster up "$template"; status 2 "$1: a second up is refused"
    err_has 'is up already'
    on true; status 0 "$1: a second up does no harm"

    run tern_cluster node trn1-st-trn1-4 --power off; status 0 "$1: power off"
    run tern_cluster exec -w trn1-st-trn1-4 trn1-4 -- true; status 2
    run tern_cluster node trn1-st-trn1-4 --power off; status 2
    run tern_cluster node trn1-st-trn1-4 --power on; status 0 "$1: power on"
    works() { on srun -N1 -w trn1-st-trn1-4 hostname; [ $rc = 0 ]; }
    until_true works
    [ "$(cat out)" = trn1-st-trn1-4 ]; ok $? "$1: the node works again"
    run tern_cluster status; status 0; out_has 'trn1-st-trn1-1 idle'

    pid=$(supervisor trn1-4) ns=$(readlink "/proc/$pid/ns/pid")
    start=$(date +%s%N)
    run tern_cluster down; status 0 "$1: tern cluster down ends well"
    bound $((($(date +%s%N) - start) / 1000000)) 5000 "$1: milliseconds that down takes"
    # A cluster of another test has its links here for a moment, too.
    nothing_left() { [ -z "$(left "$ns" "$TERN_CLUSTER_HOME")" ] && [ -z "$(ls "$TERN_CLUSTER_HOME")" ]; }
    [ -n "$ns" ] && until_true nothing_left
    ok $? "$1: down leaves no process, link, mount or folder" || left "$ns" "$TERN_CLUSTER_HOME"
    run tern_cluster down trn1-4; status 2 "$1: down twice"

    run tern_cluster up "$template"; status 0 "$1: up again"
    kill -9 "$(supervisor trn1-4)"
    until_true is_dead; ok $? "$1: a cluster whose supervisor was killed is dead"
    run tern_cluster up "$template"; status 0 "$1: a dead cluster comes up again over its own remains"
    run tern_cluster down; status 0

    run tern_cluster up "$template"; status 0
    pid=$(supervisor trn1-4)
    rm -rf "$TERN_CLUSTER_HOME/trn1-4"
    ended() { ! running "$pid"; }
    until_true ended; ok $? "$1: a cluster whose folder is removed ends"

    # Ctrl-C while it comes up, at different moments.
    for s in 0.03 0.06 0.12; do
        "${as[@]}" timeout -s INT $s tern cluster up "$template" >out 2>err
        [ -z "$(ls "$TERN_CLUSTER_HOME")" ] || grep -q 'idle after' out; ok $? "$1: interrupted after $s s: all or nothing"
        tern_cluster down trn1-4 >/dev/null 2>&1
    done

    long || return 0
    run tern_cluster up "$WORK/many-16/cluster.yaml"; status 0 "$1: 16 nodes"
    sed -n 's/^many-16: /# /p' out
    run tern_cluster exec many-16 -- srun -N16 hostname
    [ "$(sort -u out | wc -l)" = 16 ]; ok $? "$1: srun on 16 nodes"
    run tern_cluster down; status 0
}

# The jobs of a plain cluster outlive a supervisor that is killed; WHAT ends them, and no shell of the user's.
plain_dead() { # WHO WHAT
    tern_cluster up --mode plain "$template" >/dev/null 2>&1
    on sbatch -N4 -o /dev/null sleep.sh; status 0
    until_true all_sleep
    "${as[@]}" env SLURM_CONF="$TERN_CLUSTER_HOME/trn1-4/etc/slurm.conf" sleep 600 & shell=$!
    kill -9 "$(supervisor trn1-4)"; until_true is_dead
    all_sleep || echo "# the jobs have ended with their supervisor"
    if [ "$2" = up ]; then run tern_cluster up --mode plain "$template"; else run tern_cluster down trn1-4; fi
    status 0 "$1, plain: $2 after that"
    ! pgrep -f "sleep $nap" >/dev/null; ok $? "$1, plain: $2 of a cluster that is dead ends its jobs" || pgrep -af "sleep $nap"
    kill $shell; wait $shell; [ $? = 143 ]; ok $? "$1, plain: the user's own shell is left alone"
}
is_dead() { tern_cluster list 2>/dev/null | grep -q dead; }

plain() { # WHO
    run tern_cluster up --mode plain "$template"
    if grep -q 'was built without --enable-multiple-slurmd' err; then
        status 1 "$1, plain: this Slurm cannot"; return
    fi
    status 0 "$1, plain: up"
    err_has 'plain mode' "$1, plain: says what is missing"
    on srun -N4 sh -c 'echo $SLURMD_NODENAME'
    [ "$(sort -u out | wc -l)" = 4 ]; ok $? "$1, plain: srun on four nodes" || cat err
    pmix_ranks 1 '0 1 2 3 ' "$1, plain"
    nap=$((100000 + $$)) # a number of seconds that no other process sleeps
    printf '#!/bin/sh\nsrun -N4 sleep %d\n' $nap >sleep.sh
    on sbatch -N4 -o /dev/null sleep.sh; status 0
    all_sleep() { [ "$(pgrep -x sleep -a | grep -c $nap)" = 4 ]; }
    until_true all_sleep
    run tern_cluster down; status 0 "$1, plain: down in the middle of a step"
    ! pgrep -f "$TERN_CLUSTER_HOME|sleep $nap" >/dev/null; ok $? "$1, plain: nothing is left"
    plain_dead "$1" down
    plain_dead "$1" up
    run tern_cluster down; status 0
}

export TERN_CLUSTER_HOME=$WORK/clusters
me=$([ "$(id -u)" = 0 ] && echo root || echo user)
if run tern_cluster up --mode namespaces "$template"; [ $rc = 0 ]; then
    tern_cluster down
    namespaces $me
else
    skip "no namespaces here: $(cat err)"
fi
mkdir late; printf '#!/bin/sh\nexec sleep 600\n' >late/munged; chmod +x late/munged
PATH=$WORK/late:$PATH run tern_cluster up --timeout 1 "$template"; status 1 "a daemon that never listens ends up"
err_has 'munged does not listen in time (--timeout)' "the error names the daemon that is late"
plain $me

# A kernel that refuses user namespaces, made of one whose limit of them is 0.
refused() {
    unshare -U sleep 600 & holder=$!
    apart() { [ "$(readlink /proc/$holder/ns/user)" != "$(readlink /proc/self/ns/user)" ]; }
    until_true apart
    echo "0 0 65536" >/proc/$holder/uid_map && echo "0 0 65536" >/proc/$holder/gid_map
    uid=$(id -u daemon) # Slurm in plain mode wants a user that passwd knows, and not nobody
    as=(nsenter -U -t $holder -S 0 -G 0 sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"' sh
        setpriv --reuid=$uid --regid=$uid --clear-groups env HOME="$WORK/user")
    export TERN_CLUSTER_HOME=$WORK/refused
    mkdir "$TERN_CLUSTER_HOME"; chown $uid:$uid "$TERN_CLUSTER_HOME"
    run tern_cluster up --mode namespaces "$template"; status 1 'user, refused: up --mode namespaces'
    err_has 'cannot make namespaces: the limit is reached'; one_line
    [ -z "$(ls "$TERN_CLUSTER_HOME")" ]; ok $? 'user, refused: nothing is left'
    run tern_cluster up "$template"
    if grep -q 'was built without --enable-multiple-slurmd' err; then
        status 1 'user, refused: this Slurm cannot do without'; kill $holder; return
    fi
    status 0 'user, refused: up falls back to plain mode'
    err_has 'plain mode (cannot make namespaces' 'user, refused: up says that it is in plain mode'
    on srun -N4 true; status 0 'user, refused: srun'
    run tern_cluster down; status 0 'user, refused: down'
    kill $holder
}

# Root at the user's cluster: what runs there is the user's, down to the programs behind a name.
others() {
    tern_cluster up --mode namespaces "$template" >/dev/null 2>&1
    while read -r what; do
        run tern cluster $what; status 2 "root, another user's: tern cluster $what"; one_line
        err_has "sudo -u '#$uid' TERN_CLUSTER_HOME=$TERN_CLUSTER_HOME tern cluster exec trn1-4"
    done <<L
exec trn1-4 -- id
exec --node trn1-st-trn1-2 trn1-4 -- id
status trn1-4
node trn1-st-trn1-4 -c trn1-4 --power off
up $template
down trn1-4
L
    on srun -N4 true; status 0 "root, another user's: it is left as it is"
    kill -9 "$(supervisor trn1-4)"
    for what in down up; do
        run tern cluster $what "$([ $what = up ] && echo "$template" || echo trn1-4)"; status 2 "root, what is left of another user's: $what"; one_line
    done
    [ -e "$TERN_CLUSTER_HOME/trn1-4/etc/slurm.conf" ]; ok $? "root, what is left of another user's: all of it is there"
    run tern_cluster down trn1-4; status 0 "user: tern cluster down removes what another user left"
    mkdir "$TERN_CLUSTER_HOME/bent"; chown $uid "$TERN_CLUSTER_HOME/bent"
    run tern cluster exec bent -- id; status 2 "root, a folder that is no cluster of its"
    rmdir "$TERN_CLUSTER_HOME/bent"
}

if [ "$(id -u)" = 0 ]; then
    uid=12345 # nobody's
    as=(setpriv --reuid=$uid --regid=$uid --clear-groups env HOME="$WORK/user")
    chmod 755 "$WORK"; mkdir "$WORK/user"; chown $uid:$uid "$WORK/user"; cd "$WORK/user" || exit 1
    export TERN_CLUSTER_HOME=$WORK/user/clusters
    reach $uid; PATH=$REACH_BIN:$PATH
    mkdir "$WORK/trn1-4"; cp "$template" "$WORK/trn1-4"; template=$WORK/trn1-4/cluster.yaml
    if run tern_cluster up --mode namespaces "$template"; [ $rc != 0 ]; then
        skip "no user namespaces here: $(cat err)"
    else
        tern_cluster down
        namespaces user
        others
        refused
    fi
fi
tap_done
