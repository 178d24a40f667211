#!/bin/bash
# Health in a real Slurm: the preflight before a launch, drains and what undoes them, replacement, smoke.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/reach.sh"
cluster_up
N=trn1-st-trn1
at() { timeout 600 "$BIN/tern" cluster exec --node "$N-$1" $CLUSTER -- "${@:2}"; }
on() { run timeout 600 "$BIN/tern" cluster exec $CLUSTER -- "$@"; }
# *: Slurm has yet to ask a resumed node.  Slurm keeps from 23.11 on the reason of a node that is back in service, and nothing takes it away.
case $(tern cluster exec $CLUSTER -- sinfo --version) in *' 22.'* | *' 23.02'*) kept= ;; *) kept='s/^idle .*/idle none/' ;; esac
reason() { timeout 600 "$BIN/tern" cluster exec $CLUSTER -- sinfo -h -N -n "$N-$1" -o '%T %E' | sed "s/[*] / /; $kept"; }
resume() { on scontrol update nodename="$N-$1" state=resume; }
printf '#!/bin/bash\nexec tern run run.yaml\n' >job.sbatch
# recipe [LAUNCH]: of a workload that tells its nodes
recipe() {
    printf 'version: 1\nname: preflight\nledger: {dir: ledger}\nlaunch: {restarts: 2, %s}\nworkload: {command: [bash, -c, "echo rank on $SLURMD_NODENAME"], tasks_per_node: 1}\n' "${1-spares: 1}" >run.yaml
}
job() { rm -f job.out; submit --exclusive --no-kill --open-mode=append -o job.out "$@" job.sbatch; until_true job_over "$job"; }
ranks() { sed -n "s/^rank on $N-//p" job.out | sort | tr '\n' ' ' | sed 's/ $//'; }
sql() { tern ledger sql --ledger ledger -r latest -n -P "$1"; }

# ---- all well: every check of every node is in the ledger
recipe; job -N4
is "$(ranks)" "1 2 3" "four good nodes: three work, one is spare"
is "$(sql "select count(distinct node), sum(verdict in ('ok', 'skipped')) = count(*), count(*) > 30 from health")" "3|1|1" "the ledger has the checks of three good nodes, all well" || sql 'select * from health' | head
is "$(sql "select count(value) from health where check_id = 'clock' and verdict = 'ok'")" 3 "the clocks of three nodes were compared"
bound "$(sql "select max(abs(value)) from health where check_id = 'clock'")" 100 "milliseconds between clocks that are one"
TERN_HEALTH=off job -N4; is "$(sql 'select count(*) from health')" 0 "TERN_HEALTH=off: nothing is checked"
recipe 'health: off, spares: 1'; job -N4; is "$(sql 'select count(*) from health')" 0 "launch.health: off: nothing is checked"

# ---- a bad node: excluded, drained, recorded
recipe; at 2 rm /dev/neuron3; job -N4
is "$(ranks)" "1 3 4" "a node without its device: the spare works in its place"
case $(reason 2) in 'drained tern:neuron: 15 of 16 '*) true ;; *) false ;; esac; ok $? "a node without its device is drained, with the finding" || reason 2
is "$(sql "select node, verdict, severity, value, unit from health where check_id = 'neuron' and verdict <> 'ok'")" "$N-2|node_bad|error|15.0|devices" "the ledger has the finding of a missing device"
has job.out 'modprobe neuron' "the job's output has the remedy of a missing device"
on tern health --mend $N-4; out_has 'not drained by tern'
at 2 tern health --mend >out; out_has "not well now" "--mend on a bad node: the drain stays"
at 2 touch /dev/neuron3; at 2 tern health --mend >out; out_has "taken back" "--mend on a node that is well: the drain is undone"
is "$(reason 2)" "idle none" "--mend: the node is idle again"
recipe 'spares: 0'; at 1 rm /dev/neuron0; job -N4 --no-requeue
has job.out 'node_fail' "no spare: the launch is refused"; is "$(ranks)" "" "no spare: no rank ran"
at 1 touch /dev/neuron0; on tern health --mend $N-1
is "$(reason 1)" "idle none" "--mend NODE: an admin undoes the drain by name"
printf '#!/bin/bash\nscontrol update nodename=%s-3 state=drain reason="cable: mine"\nexec tern run run.yaml\n' $N >mine.sbatch
recipe; at 3 rm /dev/neuron1; rm -f job.out; submit --exclusive --no-kill -N4 -o job.out mine.sbatch
await_job
is "$(ranks)" "1 2 4" "a bad node that an admin drains meanwhile is not used"
is "$(reason 3)" "drained cable: mine" "a bad node that an admin drains meanwhile keeps the admin's reason"
at 3 touch /dev/neuron1; resume 3

# ---- the site's file counts for a job's nodes; nine folders of it are nine on each
d=; for i in 1 2 3 4 5 6 7 8 9; do mkdir -p "$WORK/dir$i"; d=$d,$WORK/dir$i; done
printf 'version: 1\nhealth: {mounts: "%s", expect: "hugepages=99999999"}\n' "${d#,}" >site.yaml
on env TERN_CONFIG="$WORK/site.yaml" salloc -N2 --exclusive tern health --job --json --expect neuron=1
is "$(grep -c '"subject": ".*/dir[1-9]"' out)" 18 "health.mounts: each on both nodes"
is "$(grep -o 'of 99999999 huge pages' out | sort -u)" "of 99999999 huge pages" "health.expect counts beside --expect" || cat out err
recipe; TERN_CONFIG=$WORK/site.yaml job -N4
is "$(sql "select count(*) from health where check_id = 'hugepages' and text like '%of 99999999 huge pages%'")" 3 "health.expect counts in tern run's preflight" || cat job.out

# ---- a job whose devices are all in use is checked beside it
on salloc -N2 --exclusive --gres=neuron:16 bash -c 'srun --gres=neuron:16 --mpi=none sh -c "touch holds.\$SLURM_PROCID; exec sleep 600" & until [ -e holds.0 ] && [ -e holds.1 ]; do kill -0 $! || exit; sleep 0.05; done
    tern health --job --json --only neuron; rc=$?; kill $!; wait; exit $rc'
status 0 "nodes are checked while another step has all devices"; is "$(grep -c '16 Neuron devices' out)" 2 "the check sees devices that another step has"
run tern cluster exec --node trn1-st-trn1-1 $CLUSTER -- tern health quick --only neuron
out_has '16 Neuron devices; --expect neuron=N sets' "without an expectation the row names --expect"

# ---- a user without the right to drain learns what to ask for
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    at 4 rm /dev/neuron2
    reach 65534
    at 4 setpriv --reuid=65534 --regid=65534 --clear-groups "$REACH_BIN/tern" health --program >out 2>err
    err_has "Ask the admin for: scontrol update nodename=$N-4 state=drain reason=\"tern:neuron: " "--program of an ordinary user prints the admin's command"
    is "$(reason 4)" "idle none" "--program of an ordinary user drains no node"
    at 4 touch /dev/neuron2
else
    skip "only root becomes another user"
fi

# ---- storage
if [ "$(id -u)" = 0 ]; then
    mkdir -p ledger
    ro() { at "$1" sh -c "cd / && mount --bind '$WORK/ledger' '$WORK/ledger' && mount -o remount,bind,ro '$WORK/ledger'"; }
    rw() { at "$1" sh -c "cd / && umount -l '$WORK/ledger'"; }
    ro 3; job -N4; rw 3
    is "$(ranks)" "1 2 4" "a node whose mount is read-only is not used"
    case $(reason 3) in "drained tern:mount: "*) true ;; *) false ;; esac; ok $? "a node whose mount is read-only is drained" || reason 3
    on tern health --mend $N-3
    # On all: a folder that no node may write to.
    printf '#!/bin/bash\nexec tern health --job --json --mount /fsx/full\n' >all.sh; chmod +x all.sh
    for i in 1 2 3 4; do at $i sh -c 'cd /; mkdir -p /fsx/full; mount -t tmpfs -o size=1m none /fsx/full'; done
    on salloc -N4 --exclusive ./all.sh; status 4 "storage that is full for all: status 4"
    is "$(grep -c '"verdict": "storage_bad"' out)" 9 "storage that is full for all: all rows say storage_bad"
    on salloc -N4 --exclusive tern health --job --mount /fsx/full
    is "$(sed -n 's/^\([^ ]*\) *mount .*/\1/p' out | tr '\n' ' ')" "$N-1 $N-2 $N-3 $N-4 " "storage that is full for all: printed node by node"
    for i in 1 2 3; do at $i sh -c 'cd /; umount -l /fsx/full'; done
    on salloc -N4 --exclusive ./all.sh; status 3 "storage that is full on one node: status 3"
    at 4 sh -c 'cd /; umount -l /fsx/full'
    is "$(on sinfo -h -R -o %n; cat out)" "" "tern health --job drains no node"
else
    skip "only root mounts"
fi

# ---- a node that is gone
run tern cluster node --power off -c $CLUSTER $N-2
until_true sh -c "tern cluster exec $CLUSTER -- sinfo -h -n $N-2 -o %T | grep -q down"
recipe; submit --exclusive --no-kill -N3 -o job.out job.sbatch; await_job
is "$(ranks | wc -w)" 2 "a node that dies as a job starts: the others work"
run tern cluster node --power on -c $CLUSTER $N-2
until_true sh -c "tern cluster exec $CLUSTER -- sinfo -h -n $N-2 -o %T | grep -qx idle"; ok $? "a node that died comes back" || reason 2

# ---- spot and fabric
recipe 'health: deep'; job -N4
is "$(sql "select group_concat(c, ' ') from (select distinct check_id c from health where check_id like 'link%' or check_id in ('triad', 'compute')) where c not like '% %'")" "triad compute link" "deep: memory, arithmetic and links are measured" || sql 'select check_id, verdict, text from health' | tail
is "$(sql "select count(*) from health where check_id like 'link %' and unit = 'MB/s' and value > 0")" 8 "deep: four links, each measured from both ends"
is "$(sql "select count(*) from health where check_id = 'link' and text like '%all-reduce%right%'")" 4 "deep: the all-reduce is right on four nodes"

# Rates beside each other, each measured for up to 10 s.
if ! long; then :
elif at 2 tc qdisc add dev eth0 root tbf rate 200mbit burst 64k latency 50ms 2>/dev/null; then
    on salloc -N4 --exclusive tern health fabric --job --json; status 3 "a node behind a slow link"
    [ "$rc" = 3 ] || grep -E '"(node|verdict|text)"' out | sed 's/^/# /'
    is "$(grep -B1 '"verdict": "node_bad"' out | sed -n 's/.*"node": "\(.*\)".*/\1/p' | sort -u)" "$N-2" "a node behind a slow link is bad, and its neighbours are not"
    at 2 tc qdisc del dev eth0 root
else
    skip "this kernel cannot slow a link down"
fi

# ---- HealthCheckProgram
until_true queue_empty
printf '#!/bin/sh\necho >>%s/calls.$SLURMD_NODENAME\nexec %s/tern health quick --program 2>>%s/program.$SLURMD_NODENAME\n' "$WORK" "$BIN" "$WORK" >program; chmod +x program
printf 'HealthCheckProgram=%s/program\nHealthCheckInterval=1\nHealthCheckNodeState=ANY\n' "$WORK" >>"$TERN_CLUSTER_HOME/$CLUSTER/etc/slurm.conf"
reconfigure
# Its first call: slurmd has begun anew (24.11), which it does not while a device in gres.conf lacks.
for i in 1 2 3 4; do until_true test -e "program.$N-$i"; done
is_drained() { case $(reason "$1") in 'drained tern:neuron:'*) true ;; *) false ;; esac; }
is_idle() { [ "$(reason "$1")" = 'idle none' ]; }
at 2 rm /dev/neuron5; until_true is_drained 2; ok $? "HealthCheckProgram drains a bad node" || reason 2
at 2 touch /dev/neuron5; until_true is_idle 2; ok $? "HealthCheckProgram undoes the drain of a node that is well" || reason 2
on scontrol update nodename=$N-3 state=drain reason='cable: mine'
for i in 1 2 3 4; do at $i rm /dev/neuron5; done
settled() { [ "$(for i in 1 2 4; do is_drained $i && echo $i; done | wc -l)" -le 1 ] && grep -q 'too many others' program.*; }
until_true settled; ok $? "the same on all nodes: no more than a quarter of them is drained for it" || on sinfo -N -o '%n %T %E'
is "$(reason 3)" "drained cable: mine" "HealthCheckProgram keeps another reason of a bad node"
for i in 1 2 3 4; do at $i touch /dev/neuron5; done
calls=$(wc -l <calls.$N-3); until_true eval '[ $(wc -l <calls.$N-3) -gt $((calls + 1)) ]'; is "$(reason 3)" "drained cable: mine" "HealthCheckProgram keeps another reason of a node that is well"
sed -i '/HealthCheck/d' "$TERN_CLUSTER_HOME/$CLUSTER/etc/slurm.conf"; reconfigure; resume 3
for i in 1 2 4; do until_true is_idle $i || { on tern health --mend $N-$i; }; done

# ---- Prolog
printf '#!/bin/sh\ntouch %s/prolog.$SLURMD_NODENAME\nexec %s/tern health --prolog --expect neuron=16\n' "$WORK" "$BIN" >prolog; chmod +x prolog
printf 'Prolog=%s/prolog\n' "$WORK" >>"$TERN_CLUSTER_HOME/$CLUSTER/etc/slurm.conf"; reconfigure
prolog_runs() { on srun -w $N-$1 true; [ -e prolog.$N-$1 ]; }
until_true prolog_runs 2; until_true prolog_runs 1; status 0 "Prolog: a good node works"
at 2 rm /dev/neuron8
on srun -w $N-2 true; [ "$rc" != 0 ]; ok $? "Prolog: a job does not begin on a bad node"
is "$(reason 2)" "drained Prolog error" "Prolog: Slurm drains the bad node"
on tern health --mend $N-2; out_has 'not drained by tern' "--mend leaves Slurm's own drain"
at 2 touch /dev/neuron8; sed -i '/^Prolog=/d' "$TERN_CLUSTER_HOME/$CLUSTER/etc/slurm.conf"; reconfigure; resume 2

# ---- replacement, in each platform's words
at 1 tern health --replace $N-4 --platform none >out 2>err; rc=$?; status 1 "--replace --platform none makes no request"
printf 'version: 1\ncluster: {platform: none}\n' >none.yaml
at 1 env TERN_CONFIG="$WORK/none.yaml" tern health --replace $N-4 >out 2>err; rc=$?; status 1 "--replace with cluster.platform: none makes no request"; is "$(reason 4)" "idle none" "--replace without a platform leaves the node idle"
at 1 tern health --replace $N-4 --because 'HBM error' --wait 50 >out 2>err; rc=$?; status 0 "--replace on a virtual cluster"
out_has 'is born again'; is "$(reason 4)" "idle none" "a replaced virtual node is idle"
on tern health --replace $N-3 --platform hyperpod; status 0
on scontrol show node $N-3; out_has 'Reason=Action:Replace [' "HyperPod: the reason is Action:Replace"; out_has '+FAIL' "HyperPod: the node has state FAIL"
on tern health --replace $N-3 --platform hyperpod --wait 1; status 75 "HyperPod: the wait has an end"; err_has 'has not come back within 1 s'
resume 3
failed() { at 1 scontrol show node $N-3 | grep -q '+FAIL'; }
(until_true failed; at 1 scontrol update nodename=$N-3 state=resume) &
on tern health --replace $N-3 --platform hyperpod --wait 50; status 0 "HyperPod: its agent brings the node back"; out_has 'is back'
wait
on scontrol update nodename=$N-3 state=drain reason='cable: mine'
on tern health --replace $N-3 --platform hyperpod; status 1; err_has 'cable: mine' "--replace refuses a node that an admin has drained"
is "$(reason 3)" "drained cable: mine" "--replace keeps the reason of a node that an admin has drained"; resume 3
on scontrol update nodename=$N-3 state=down reason='Not responding'
on tern health --replace $N-3 --platform hyperpod; status 0 "--replace takes a node that Slurm itself has set down"; resume 3
printf '#!/bin/sh\necho $* >>%s/power\n' "$WORK" >suspend; chmod +x suspend
sed -i "s/^NodeName=$N-\[1-4\]\(.*\)State=UNKNOWN/NodeName=$N-[1-3]\1State=UNKNOWN\nNodeName=$N-4\1State=CLOUD/" "$TERN_CLUSTER_HOME/$CLUSTER/etc/slurm.conf"
printf 'SuspendProgram=%s/suspend\nResumeProgram=/bin/true\nSuspendTime=86400\nSuspendTimeout=1\nSlurmctldParameters=cloud_dns\n' "$WORK" >>"$TERN_CLUSTER_HOME/$CLUSTER/etc/slurm.conf"
reconfigure
on tern health --replace $N-4 --platform pcluster --because 'HBM error'; status 0 "ParallelCluster: the request is made"
on scontrol show node $N-4; out_has 'Reason=tern:replace: HBM error' "ParallelCluster: the node has tern's reason"
until_true grep -q "$N-4" power; ok $? "ParallelCluster: SuspendProgram gets the node" || cat power
on tern health --replace $N-4 --platform pcluster --wait 50; status 0 "ParallelCluster: powered down"; out_has 'is off'
on tern health --replace no-such-node; status 1; err_has 'no-such-node'


# ---- smoke
on scontrol update nodename=$N-3 state=resume
run timeout 600 tern cluster smoke $CLUSTER --timeout 60 -w "$N-[1-3]" --ledger smoke; status 0 "smoke: two steps on every node"
is "$(grep -c ': ok$' out)" 3 "smoke: a line for each node"
is "$(tern ledger sql --ledger smoke -r latest -n -P "select kind, outcome, last_step from attempt")" "smoke|done|2" "smoke: the run is in the ledger"
is "$(tern ledger sql --ledger smoke -r latest -n -P "select distinct state from checkpoint")" "deleted" "smoke: its checkpoint is deleted in the ledger"
[ -z "$(ls -d tern-smoke-* 2>/dev/null)" ]; ok $? "smoke: no files are left"
at 2 rm /dev/neuron9
run timeout 600 tern cluster smoke $CLUSTER --timeout 60 -w "$N-[1-3]" --ledger smoke; status 75 "smoke: a bad node"
has out "$N-2: bad: "; has out "$N-1: ok"; has out "$N-3: ok"
tap_done
