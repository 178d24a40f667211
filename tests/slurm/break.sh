#!/bin/bash
# tern cluster break and mend: each trouble of a node, as root and as an ordinary user.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/reach.sh"
. "$ROOT/tests/lib/vcluster.sh"
sed 's/Count: 4/Count: 2/' "$LAYOUT" >cluster.yaml
echo 'virtual: {tmp_mib: 16}' >cluster.tern.yaml
LAYOUT=$WORK/cluster.yaml
as=() who=root
n=trn1-st-trn1-2
tern_cluster() { "${as[@]}" tern cluster "$@"; }
cluster_down() { tern_cluster down $CLUSTER >/dev/null 2>&1; }
on_head() { run tern_cluster exec $CLUSTER -- "$@"; }
at() { run tern_cluster exec -w $n $CLUSTER -- "$@"; } # on the node
broken() {
    run tern_cluster break $n -c $CLUSTER --how "$1"; status 0 "$who: break --how $1"
    run tern_cluster status $CLUSTER
    is "$(sed -n 's/^\([^ ]*\) .*  broken: \([a-z-]*\).*/\1 \2/p' out)" "$n $1" "$who: status shows that the node has $1, and no other"
}
mended() { run tern_cluster mend $n -c $CLUSTER; status 0 "$who: mend after $1"; out_has "mended ($1)" "$who: mend names $1"; works "$1"
    run tern_cluster status --json $CLUSTER; is "$(jq -r '[.[].trouble] | join(",")' out)" , "$who: after the mend of $1 status shows no trouble"
}
reached() { [ "$(tern_cluster exec $CLUSTER -- timeout 10 srun -Q -N1 -w $n hostname 2>/dev/null)" = $n ]; }
works() { until_true reached; ok $? "$who: after $1 the node works again" || tern_cluster status $CLUSTER; }
port() { tern_cluster exec $CLUSTER -- timeout "$1" bash -c "exec 3<>/dev/tcp/10.200.1.2/6818" 2>/dev/null; } # SECONDS: slurmd's

# A job that Slurm has suspended stays so, whatever else is stopped and continued.
suspended() {
    at rm -f /tmp/held /tmp/steps
    on_head sbatch --parsable -w $n -o /dev/null --wrap 'echo $$ >/tmp/pid; i=0; while :; do i=$((i + 1)); echo $i >/tmp/held; done'; job=$(cat out)
    until_true tern_cluster exec -w $n $CLUSTER -- test -s /tmp/held
    on_head scontrol suspend "$job"; status 0
    is_held() { tern_cluster exec -w $n $CLUSTER -- sh -c 'cat /proc/$(cat /tmp/pid)/stat' | grep -q ') T '; }
    until_true is_held; a=$(tern_cluster exec -w $n $CLUSTER -- cat /tmp/held)
    stays() { [ "$(tern_cluster exec -w $n $CLUSTER -- cat /tmp/held)" = "$a" ] && is_held; }
    broken slow
    at sh -c '(while :; do echo >>/tmp/steps; sleep 0.01; done) >/dev/null 2>&1 & echo $! >/tmp/other'
    passed() { [ "$(tern_cluster exec -w $n $CLUSTER -- sh -c 'wc -l </tmp/steps')" -gt 10 ]; } # in several of its turns
    until_true passed
    stays; ok $? "$who: on a slow node a job that Slurm has suspended does not run"
    mended slow; stays; ok $? "$who: a suspended job does not run when the node is mended"
    broken freeze; mended freeze; stays; ok $? "$who: a suspended job does not run after a freeze"
    broken slow
    on_head scontrol resume "$job"; status 0
    until_true eval '! stays'; ok $? "$who: Slurm resumes a job on a slow node"
    mended slow
    a=$(tern_cluster exec -w $n $CLUSTER -- cat /tmp/held); until_true eval '! stays'; ok $? "$who: a resumed job goes on when the node is mended"
    on_head scancel "$job"; at sh -c 'kill $(cat /tmp/other)'
    until_true eval '[ -z "$(tern_cluster exec $CLUSTER -- squeue -h)" ]'
}
troubles() {
    tern_cluster up -n $CLUSTER "$LAYOUT" >up 2>&1 || { cat up; exit 1; }
    works up

    broken freeze
    state=$(tern_cluster exec $CLUSTER -- sh -c 'for p in /proc/[0-9]*; do grep -q "^Name:.slurmd" $p/status && awk "/^State/ {print \$2}" $p/status; done' | sort | tr -d '\n')
    [ "${#state} ${state//[^T]/}" = "2 T" ]; ok $? "$who: of a frozen node slurmd is stopped, and of the other it is not" || echo "# $state"
    run tern_cluster break $n -c $CLUSTER --how slow; status 2 "$who: one trouble at a time"; one_line; err_has "$n is broken already (freeze)"
    mended freeze

    # What the node's own processes did in a second tells how much of it they ran.
    at sh -c 'echo 0 >/tmp/steps; (i=0; while :; do i=$((i + 1)); echo $i >/tmp/steps; done) >/dev/null 2>&1 & echo $! >/tmp/pid'
    broken slow
    stopped=0; for _ in $(seq 60); do
        tern_cluster exec -w $n $CLUSTER -- sh -c 'cat /proc/$(cat /tmp/pid)/stat' 2>/dev/null | grep -q ') T ' && stopped=$((stopped + 1)); [ $stopped = 3 ] && break
    done
    ok $((stopped < 3)) "$who: processes of a slow node are seen stopped again and again"
    a=$(tern_cluster exec -w $n $CLUSTER -- cat /tmp/steps)
    goes_on() { [ "$(tern_cluster exec -w $n $CLUSTER -- cat /tmp/steps)" != "$a" ]; }
    until_true goes_on; ok $? "$who: processes of a slow node go on in between"
    at sh -c 'kill $(cat /tmp/pid)'
    mended slow

    suspended

    port 30; ok $? "$who: slurmd's port answers the head"
    broken partition
    ! port 2; ok $? "$who: nothing reaches a node behind a partition"
    at timeout 2 bash -c 'exec 3<>/dev/tcp/10.200.0.1/6817'; [ $rc = 124 ]; ok $? "$who: a node behind a partition reaches nothing, without an error" || cat err
    mended partition
    broken one-way
    ! port 2; ok $? "$who: one-way: nothing reaches the node"
    # A datagram needs no answer.
    tern_cluster exec $CLUSTER -- timeout 20 python3 -c 'import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("10.200.0.1", 9999)); open("bound", "w").close(); print(s.recv(9).decode())' >heard 2>/dev/null &
    until_true test -e bound
    at bash -c 'for i in 1 2 3; do echo word >/dev/udp/10.200.0.1/9999; done'; wait $!
    has heard word "$who: one-way: what it sends arrives"; rm -f bound
    mended one-way

    at sh -c 'echo kept >/tmp/kept; echo kept >/fsx/kept; exec 3>/tmp/open; echo $$ >/tmp/pid; (sleep 600; :) >/dev/null 2>&1 &'
    # Processes whose folder is there: one from before, and one that comes meanwhile.
    at sh -c 'mkfifo /dev/shm/go; (cd /fsx; read go </dev/shm/go; if echo x >beside; then echo wrote; else echo refused; fi >/dev/shm/told) >/dev/null 2>&1 &'
    broken read-only
    at sh -c 'echo >/dev/shm/go'; told() { tern_cluster exec -w $n $CLUSTER -- test -s /dev/shm/told; }; until_true told
    at cat /dev/shm/told; out_has refused "$who: read-only: a process in the shared storage makes no new file there"
    at sh -c 'rm /dev/shm/told; (cd /tmp; read go </dev/shm/go; if echo x >beside; then echo wrote; else echo refused; fi >/dev/shm/told) >/dev/null 2>&1 &'
    at sh -c 'echo x >/tmp/new'; [ $rc != 0 ]; ok $? "$who: read-only: /tmp takes no new file"; err_has 'Read-only file system'
    at sh -c 'echo x >/fsx/new'; [ $rc != 0 ]; ok $? "$who: read-only: the shared storage takes no new file"; err_has 'Read-only file system'
    at cat /tmp/kept /fsx/kept; [ "$(cat out)" = "kept
kept" ]; ok $? "$who: read-only: files can be read"
    on_head sh -c 'echo x >/fsx/other'; status 0 "$who: read-only: others write to the shared storage"
    mended read-only
    at sh -c 'echo x >/tmp/new && echo x >/fsx/new'; status 0 "$who: both can be written again"
    at sh -c 'echo >/dev/shm/go'; until_true told
    at cat /dev/shm/told; out_has wrote "$who: a process that came while they were read-only writes again"

    at sh -c 'exec 3>/fsx/open; (sleep 600; :) >/dev/null 2>&1 &' # its mount is busy: there will be a second one
    broken read-only
    at umount -l /fsx; run tern_cluster mend $n -c $CLUSTER; status 0
    at sh -c 'grep -q " /fsx " /proc/self/mounts && grep kept /fsx/kept'; out_has kept "$who: a mend leaves the shared storage, whatever was unmounted inside"

    broken disk-full
    at sh -c 'head -c 65536 /dev/zero >/tmp/more'; [ $rc != 0 ]; ok $? "$who: disk-full: no room"; err_has 'No space left on device'
    at cat /tmp/kept; out_has kept "$who: disk-full: what was there stays"
    mended disk-full
    at sh -c 'head -c 1000000 /dev/zero >/tmp/more'; status 0 "$who: there is room again"
    at sh -c 'head -c 20000000 /dev/zero >/tmp/more'; [ $rc != 0 ]; ok $? "$who: virtual.tmp_mib is the limit of /tmp"

    broken kill
    at true; status 2 "$who: a node that was killed is off"
    mended kill
    broken no-capacity
    reached; ok $? "$who: no-capacity: a node that is on stays on"
    run tern_cluster node $n -c $CLUSTER --power off; status 0
    run tern_cluster node $n -c $CLUSTER --power on; status 75 "$who: no-capacity: once off, it cannot be had"; err_has '(Code:InsufficientInstanceCapacity)'
    run tern_cluster mend $n -c $CLUSTER; status 0; run tern_cluster node $n -c $CLUSTER --power on; status 0 "$who: capacity is there again"; works no-capacity
    broken spot-reclaim
    run tern_cluster node $n -c $CLUSTER --power on; status 75 "$who: a reclaimed node cannot be started"
    mended spot-reclaim

    run tern_cluster mend $n -c $CLUSTER; status 2; one_line; err_has "$n is not broken"
    broken slow
    at sh -c 'for p in /proc/[0-9]*; do grep -q "^Name:.tern-brake" $p/status && kill -9 ${p#/proc/}; done; true'
    well() { tern_cluster mend $n -c $CLUSTER 2>&1 | grep -q 'is not broken'; }
    until_true well; ok $? "$who: a brake that is killed inside is noticed"; works "the brake's end"
    run tern_cluster break $n -c $CLUSTER --how flood; status 2; one_line; err_has "'flood' is not one of: kill, freeze,"
    run tern_cluster break nobody -c $CLUSTER; status 2; err_has "has no node 'nobody'"
    broken slow
    run tern_cluster node "trn1-st-trn1-[2-4]" -c $CLUSTER --power off; status 2 "$who: power off of nodes that are not there, too"; one_line
    err_has "2 of 3 nodes failed, the first with: cluster '$CLUSTER' has no node 'trn1-st-trn1-3'" "$who: the error says how many nodes failed"
    run tern_cluster node "trn1-st-trn1-[1-2]" -c $CLUSTER --power on; status 2; err_has "trn1-st-trn1-1 is on already"
    at true; status 0 "$who: a node is started, though the one before it in the list was on"
    run tern_cluster break $n -c $CLUSTER --how partition; status 0 "$who: a power cut ends what befell the node"
    run tern_cluster node $n -c $CLUSTER --power off; run tern_cluster node $n -c $CLUSTER --power on; works "a power cut during a partition"
    broken slow; run tern_cluster down $CLUSTER; status 0 "$who: a broken cluster goes down"
    ! ps ax -o comm | grep -q '^tern-brake$'; ok $? "$who: a broken cluster leaves no process"
}
tap_cleanup=cluster_down
troubles
if [ "$(id -u)" = 0 ]; then
    uid=65533
    as=(setpriv --reuid=$uid --regid=$uid --clear-groups env HOME="$WORK/user") who=user
    chmod 755 "$WORK"; mkdir user; cp cluster.yaml cluster.tern.yaml user; chown -R $uid:$uid user; cd user || exit 1
    root_path=$PATH; reach $uid; PATH=$REACH_BIN:$PATH
    export TERN_CLUSTER_HOME=$WORK/user/clusters
    LAYOUT=$WORK/user/cluster.yaml
    if "${as[@]}" unshare -U true 2>/dev/null; then troubles; else skip "user: user namespaces are not allowed"; fi
    cd .. && PATH=$root_path && export TERN_CLUSTER_HOME=$WORK/clusters && LAYOUT=$WORK/cluster.yaml
else
    skip "another user: this is not root"
fi
# ---- without a /tmp of limited size, and without namespaces
as=() who=root
rm cluster.tern.yaml
tern_cluster up -n $CLUSTER "$LAYOUT" >up 2>&1 || { cat up; exit 1; }
run tern_cluster break $n -c $CLUSTER --how disk-full; status 2 "disk-full wants a limit"; one_line; err_has "'virtual: {tmp_mib: 256}'"
# ---- a supervisor that is busy
supervisor=$(tern_cluster list | awk -v n=$CLUSTER '$1 == n { print $(NF - 1) }')
kill -STOP "$supervisor"
tern_cluster node $n -c $CLUSTER --power off >busy.out 2>busy.err & waits=$!
until_true grep -q 'the supervisor is busy' busy.err; ok $? "a command tells that the supervisor is busy" || cat busy.err
kill -CONT "$supervisor"; wait $waits; ok $? "the command succeeds when the supervisor is busy no more" || cat busy.err
at true; status 2; err_has "$n is off" "what it asked for is done"
run tern_cluster down $CLUSTER
sed -i 's/MaxCount: 2/MaxCount: 9/' cluster.yaml
if tern_cluster up -n $CLUSTER --mode plain "$LAYOUT" >up 2>&1; then
    run tern_cluster node trn1-dy-trn1-1 -c $CLUSTER --power on; status 2 "plain mode starts no dynamic node"; one_line
    run tern_cluster list; grep -q "^$CLUSTER .* 2 " out; ok $? "plain mode counts the nodes that are there" || cat out
    run tern_cluster break $n -c $CLUSTER --how freeze; status 2 "plain mode has no freeze"; err_has 'in plain mode'
    broken kill; run tern_cluster mend $n -c $CLUSTER; status 0 "plain mode: mend"
    again() { tern_cluster status $CLUSTER | grep -q "$n idle"; }; until_true again; ok $? "plain mode: the node comes back"
else
    skip "plain mode: this Slurm runs one slurmd a machine"
fi
tap_done
