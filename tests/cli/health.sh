#!/bin/bash
# tern health on machines that are made up: each check is seen to pass and to fail.
. "$(dirname "$0")/../lib/tap.sh"
export TERN_HEALTH_ROOT=$WORK/m TERN_CONFIG=$WORK/none.yaml
# Checks that are to answer have the time to on a busy machine, too.
export TERN_HEALTH_PATIENCE=100
# TRUE COMMAND...: with the limits as users have them, for checks that hang; once more, up to five times,
# when one beside them was late.
strict() { local n; for n in 1 2 3 4 5; do env -u TERN_HEALTH_PATIENCE "${@:2}" >out 2>err </dev/null; rc=$? cmd="${*:2}"; eval "$1" && return; done; }
printf 'version: 1\n' >none.yaml
# A trn1.32xlarge with everything in order.
machine() {
    chmod -R u+w m 2>/dev/null; rm -rf m
    mkdir -p m/dev/shm m/etc m/fsx m/sys/devices/virtual/dmi/id m/sys/class/net/{lo,eth0,eth1} m/proc/net m/sys/module/neuron
    echo trn1.32xlarge >m/sys/devices/virtual/dmi/id/product_name
    echo 2.16.7.0 >m/sys/module/neuron/version
    for i in $(seq 0 15); do
        : >m/dev/neuron$i
        c=m/sys/devices/virtual/neuron_device/neuron$i/stats/hardware; mkdir -p $c
        for k in sram_ecc_uncorrected mem_ecc_uncorrected; do echo 0 >$c/$k; done
        mkdir $c/mem_ecc_repairable_uncorrected; echo 0 >$c/mem_ecc_repairable_uncorrected/total
    done
    for i in 0 1 2 3 4 5 6 7; do
        mkdir -p m/sys/class/infiniband/rdmap$i/ports/1; echo '4: ACTIVE' >m/sys/class/infiniband/rdmap$i/ports/1/state
    done
    for n in eth0 eth1; do echo 0x1003 >m/sys/class/net/$n/flags; echo 1 >m/sys/class/net/$n/carrier; echo up >m/sys/class/net/$n/operstate; done
    printf 'Iface\tDestination\neth0\t00000000\n' >m/proc/net/route
    printf 'MemTotal: 536870912 kB\nMemAvailable: 530000000 kB\nHugePages_Total: 5128\n' >m/proc/meminfo
    : >m/dev/kmsg
}
# verdict CHECK: its verdict
verdict() { sed -n "/\"check\": \"$1\"/,/}/s/.*\"verdict\": \"\([a-z_]*\)\".*/\1/p" out | tr '\n' ' ' | sed 's/ $//'; }
# check NAME CHECK VERDICT STATUS [OPTION...]
check() {
    name=$1 id=$2 want=$3 st=$4; shift 4
    run tern health --json --only "$id" "$@"
    got=$(verdict "$id")
    [ "$got $rc" = "$want $st" ]; ok $? "$name: $id is $want, status $st" || { echo "# got $got $rc"; sed 's/^/# /' out err; }
}
bad() { check "$1" "$2" node_bad 3 "${@:3}"; }
good() { check "$1" "$2" ok 0 "${@:3}"; }

machine
ulimit -l unlimited 2>/dev/null && limits= || limits=limits,
run tern health --json --skip "${limits}provider" --mount /fsx --expect hugepages=5128
status 0 "a whole machine is well" || sed 's/^/# /' out
for c in neuron ecc kernel efa nic mount memory hugepages leftovers stuck software; do
    [ "$(verdict $c)" = ok ]; ok $? "$c is ok on a good node" || sed 's/^/# /' out
done
out_has 'neuron=2.16.7.0' "the driver's version is in the fingerprint"

rm m/dev/neuron7; bad "a device is missing" neuron; out_has '15 of 16 Neuron devices'
machine
if [ "$(id -u)" = 0 ] && chattr +i m/dev/neuron3 2>/dev/null; then # refuses root with EPERM, as a cgroup does
    check "a device that the job's cgroup hides" neuron unknown 4; out_has 'ConstrainDevices'
    chattr -i m/dev/neuron3
else
    skip "nothing here refuses root a file"
fi
machine; rm m/dev/neuron*; bad "the driver is not loaded" neuron; out_has 'modprobe neuron' "a missing driver: the remedy is printed"
machine; rm m/sys/devices/virtual/dmi/id/product_name; rm m/dev/neuron*
check "nothing is known of the machine" neuron skipped 0
bad "--expect neuron=16 on a machine without devices" neuron --expect neuron=16
TERN_HEALTH_EXPECT=neuron=2 bad "TERN_HEALTH_EXPECT=neuron=2 on a machine without devices" neuron
TERN_HEALTH_EXPECT='other-[1-3]:neuron=2' check "TERN_HEALTH_EXPECT for other nodes" neuron skipped 0
SLURMD_NODENAME=other-2 TERN_HEALTH_EXPECT='other-[1-3]:neuron=2;cpu-1:neuron=0' bad "TERN_HEALTH_EXPECT for this node among others" neuron
host=$(uname -n); host=${host%%.*}
TERN_HEALTH_EXPECT="${host^^}.example.org:neuron=2" bad "TERN_HEALTH_EXPECT for this node, in capitals and with a domain" neuron
SLURMD_NODENAME=n1.a.org TERN_HEALTH_EXPECT='N1.A.ORG:neuron=2' bad "TERN_HEALTH_EXPECT for a node with a domain" neuron
SLURMD_NODENAME=n1.a.org TERN_HEALTH_EXPECT='n1.b.org,n1b:neuron=2' check "TERN_HEALTH_EXPECT for a node in another domain" neuron skipped 0

machine; echo 1 >m/sys/devices/virtual/neuron_device/neuron3/stats/hardware/sram_ecc_uncorrected
bad "SRAM error" ecc; out_has 'neuron3: sram_ecc_uncorrected is 1' "names device and counter"
machine; echo 2 >m/sys/devices/virtual/neuron_device/neuron15/stats/hardware/mem_ecc_uncorrected; bad "HBM error" ecc; out_has 'cannot be repaired'
machine; echo 4 >m/sys/devices/virtual/neuron_device/neuron0/stats/hardware/mem_ecc_repairable_uncorrected/total; bad "repairable error" ecc; out_has 'Reload the Neuron driver'
machine; rm -r m/sys/devices/virtual/neuron_device; check "no counters" ecc skipped 0
machine; echo '3,1,2,-;NEURON_HW_ERR=NC_UE nd-id=3 action=TERMINATE_INSTANCE' >m/dev/kmsg; bad "the kernel's log has a hardware error" kernel; out_has 'NEURON_HW_ERR=NC_UE'
machine; echo '6,1,2,-;NEURON_HW_ERR=[1431]: segfault at 0 ip 0 sp 0 error 4 in NEURON_HW_ERR=NC_UE nd-id=3' >m/dev/kmsg; good "a program's name in the log is no error" kernel
machine; echo '6,1,2,-;NEURON_HW_ERR=X nd-id=3[1431]: segfault at 0' >m/dev/kmsg; good "a program's name that begins like the driver's line is no error" kernel

machine; rm -r m/sys/class/infiniband/rdmap5; bad "an EFA device is missing" efa; out_has '7 of 8 EFA devices'
machine; echo '1: DOWN' >m/sys/class/infiniband/rdmap2/ports/1/state; bad "an EFA port is down" efa; out_has 'rdmap2 is not'
machine; echo 0 >m/sys/class/net/eth0/carrier; bad "the link in use is cut" nic; out_has 'eth0 is in use'
machine; echo down >m/sys/class/net/eth0/operstate; bad "the link in use is down" nic
machine; n=m/sys/class/net/br-3f2c; mkdir -p $n/bridge; echo 0x1003 >$n/flags; echo 0 >$n/carrier; echo down >$n/operstate
printf 'br-3f2c\t000012AC\n' >>m/proc/net/route; good "a bridge whose containers are stopped is no cut cable" nic
rm -r $n; machine; echo 0 >m/sys/class/net/eth1/carrier; good "an unused port may be cut" nic

machine; printf 'MemTotal: 400000000 kB\nMemAvailable: 390000000 kB\n' >m/proc/meminfo; bad "a memory module is gone" memory
machine; printf 'MemTotal: 536870912 kB\nMemAvailable: 1000000 kB\n' >m/proc/meminfo; bad "the memory is taken" memory; out_has 'Leftover processes'
machine; printf 'MemTotal: 536870912 kB\nMemAvailable: 200000000 kB\n' >m/proc/meminfo; good "half of it taken is a warning" memory; out_has '"severity": "warn"'
bad "huge pages" hugepages --expect hugepages=6000
(ulimit -n 1024; bad "few open files" limits; echo $tap_n $tap_bad >sub); read -r tap_n b <sub; [ "$b" = 0 ] || tap_bad=1
(ulimit -l 64; bad "little memory may be locked" limits; out_has 'LimitMEMLOCK'; echo $tap_n $tap_bad >sub); read -r tap_n b <sub; [ "$b" = 0 ] || tap_bad=1
if [ "$(ulimit -H -l)" = unlimited ]; then
    (ulimit -S -l 64; check "the job's own soft limit drains no node" limits unknown 4; out_has 'ulimit -l unlimited'; echo $tap_n $tap_bad >sub); read -r tap_n b <sub; [ "$b" = 0 ] || tap_bad=1
else
    skip "the hard limit of locked memory is low here"
fi

# ---- mounts
machine; good "a folder that takes a file" mount --mount /fsx
[ -z "$(ls -A m/fsx)" ]; ok $? "check mount leaves no file"
bad_storage() { check "$1" mount storage_bad 4 "${@:2}"; }
bad "a folder that is not there" mount --mount /scratch
bad_storage "too little room" --mount /fsx:1000000G; out_has 'Make room'
printf 'fs:/x /fsx nfs rw 0 0\n' >m/etc/fstab; bad "fstab's file system is not mounted" mount; out_has 'but not mounted'
bad "fstab's file system that --mount names is not mounted" mount --mount /fsx:0; out_has 'but not mounted'
printf 'fs:/x /fsx nfs rw,noauto 0 0\n/dev/sda /home ext4 rw 0 0\n' >m/etc/fstab
run tern health --json --only mount; status 0; [ "$(verdict mount)" = skipped ]; ok $? "fstab's local and noauto file systems are skipped"
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    machine
    on_ro() { unshare -m sh -c "mount -t tmpfs ${1-} none m/fsx && $2 exec \"\$@\"" sh "${@:3}"; }
    run on_ro '-o ro' '' tern health --json --only mount --mount /fsx; [ "$(verdict mount) $rc" = "node_bad 3" ]; ok $? "a read-only mount is the node's fault" || cat out err
    run on_ro '-o size=100m' 'head -c 99m /dev/zero >m/fsx/f;' tern health --json --only mount --mount /fsx; [ "$(verdict mount) $rc" = "storage_bad 4" ]; ok $? "a full file system is the storage's fault" || cat out err
    run on_ro '-o size=200m,nr_inodes=500' '' tern health --json --only mount --mount /fsx; [ "$(verdict mount) $rc" = "storage_bad 4" ]; ok $? "a file system without inodes is the storage's fault" || cat out err
    out_has 'inodes are left'
else
    skip "only root mounts"
fi
# A pipe without a writer stands for storage that does not answer: opening it never returns.
machine; rm m/proc/meminfo; mkfifo m/proc/meminfo; began=$SECONDS
TERN_HEALTH_PATIENCE=1 check "a read that never returns" memory unknown 4; out_has 'no answer within 1 s'
bound $((SECONDS - began)) 4 "a read that never returns: seconds"
hung='[ "$(verdict memory) $(verdict software)" = "unknown ok" ]'
strict "$hung" tern health --json --skip provider,limits --mount /fsx; eval "$hung"; ok $? "checks after one that hangs are made" || sed 's/^/# /' out err
if long; then # together they would take 7 s
    rm m/proc/net/route; mkdir m/proc/9; mkfifo m/proc/net/route m/proc/9/cmdline m/proc/9/stat; mkdir m/proc/9/fd; ln -s /dev/neuron3 m/proc/9/fd/5; mkfifo m/proc/9/status m/proc/9/cgroup
    us() { echo "${EPOCHREALTIME/./}"; }
    began=$(us); TERN_HEALTH_PATIENCE=1 run tern health --json --only nic,memory,hugepages,leftovers,stuck; took=$(($(us) - began)); status 4 "five checks that hang"
    out_has 'not reached'; bound "$took" 6000000 "microseconds of quick, which is 5 s at most"
fi

# ---- processes
# process PID CGROUP UID TITLE
process() {
    mkdir -p m/proc/$1/fd; printf '%s\n' "$2" >m/proc/$1/cgroup; printf '%s\0' "$4" >m/proc/$1/cmdline
    printf 'Name:\tx\nUid:\t%s\t%s\t0\t0\n' "$3" "$3" >m/proc/$1/status
}
holder() { machine; process 4711 "$1" 1000 python; ln -s /dev/neuron3 m/proc/4711/fd/5; printf 'SLURM_JOB_ID=1\0' >m/proc/4711/environ; }
scope=0::/system.slice/slurmstepd.scope
holder $scope/job_77/step_0/user/task_0
bad "a process of an ended job has a device" leftovers; out_has 'process 4711 of job 77' "a leftover process: its cgroup names the job, not its environment"
process 4712 0::/ 0 'slurmstepd: [77.0]'; good "its job still runs" leftovers
process 4712 0::/ 0 'slurmstepd: [770.0]'; bad "another job runs" leftovers
process 4712 0::/ $(($(id -u) + 1)) 'slurmstepd: [77.0]'; bad "a user's process only looks like the job" leftovers
for i in $(seq 300); do process $((5000 + i)) 0::/ 0 "slurmstepd: [$i.0]"; done; process 4712 0::/ 0 'slurmstepd: [77.0]'; rm -r m/proc/5077; good "its job runs among many" leftovers
holder 0::/user.slice/user-1000.slice/user@1000.service/slurm/job_77; check "a cgroup of the user's own naming" leftovers unknown 4
holder 0::/; check "a process whose job is not known" leftovers unknown 4; out_has 'process 4711 holds a Neuron device'
process 4711 0::/ 0 python; good "root's own, a monitor's say" leftovers
holder $'12:cpuset:/\n4:memory:/slurm_n1/uid_1000/job_77/step_0'; bad "a leftover process in the older cgroups" leftovers; out_has 'of job 77'
if [ "$(id -u)" = 0 ]; then
    machine; chmod 1777 m/fsx; run tern health --json --only mount,leftovers --mount /fsx
    out_has '"text": "none"' "check leftovers is root's after check mount stepped down"
else
    skip "only root steps down"
fi
machine; : >m/dev/shm/tern-123; good "stray shared memory is a warning" leftovers; out_has '/dev/shm/tern-123'
machine; mkdir m/proc/99; echo '99 (cp (x) y) D 1 1' >m/proc/99/stat; check "a process hangs in the kernel" stuck unknown 4; out_has 'process 99 (cp (x) y)'
echo '99 (cp) S 1 1' >m/proc/99/stat; good "a process that hangs no more" stuck

# ---- choosing
machine; rm m/dev/neuron*
run tern health --json --skip neuron --only neuron,nic; status 0; [ "$(verdict neuron)" = skipped ]; ok $? "--skip switches a check off"
run env TERN_HEALTH_SKIP=neuron tern health --json --only neuron,nic; status 0 "TERN_HEALTH_SKIP switches a check off"
printf 'version: 1\nhealth: {skip: neuron, mounts: "/fsx:1000000G"}\n' >site.yaml
run env TERN_CONFIG="$WORK/site.yaml" tern health --json --only neuron,mount; status 4
[ "$(verdict neuron) $(verdict mount)" = "skipped storage_bad" ]; ok $? "tern.yaml switches a check off and adds a folder" || sed 's/^/# /' out err
printf 'version: 1\nhealth: {expect: "neuron=17,efa=9"}\n' >site.yaml
machine; TERN_CONFIG=$WORK/site.yaml bad "tern.yaml's health.expect" neuron
TERN_CONFIG=$WORK/site.yaml bad "tern.yaml's health.expect beside --expect of another key" neuron --expect efa=8
TERN_CONFIG=$WORK/site.yaml good "--expect wins over tern.yaml" neuron --expect neuron=16
printf 'version: 1\nname: gate\nledger: {dir: ledger}\nlaunch: {restarts: 0}\nworkload: {command: ["true"], tasks_per_node: 1}\n' >gate.yaml
run env TERN_CONFIG="$WORK/site.yaml" tern run gate.yaml; err_has 'node_bad: neuron: 16 of 17' "tern run's preflight uses tern.yaml's expectation"
printf 'version: 1\nhealth: {skip: "neuron,limits,mount", expect: neuron=17}\n' >site.yaml
run env TERN_CONFIG="$WORK/site.yaml" tern run gate.yaml; ! grep -q node_bad err; ok $? "tern run's preflight leaves out tern.yaml's health.skip" || sed 's/^/# /' err
for wrong in 'skip: neuron,efaa' 'mounts: /fsx:1G,fsx' 'expect: neurons=3'; do
    printf 'version: 1\nhealth:\n  %s\n' "$wrong" | sed 's/: \(.*\)/: "\1"/; s/"1"/1/' >wrong.yaml
    run env TERN_CONFIG="$WORK/wrong.yaml" tern health; status 2; err_has "wrong.yaml:3: health.${wrong%%:*}: '" "tern.yaml, $wrong: refused with its line"
    run env TERN_CONFIG="$WORK/wrong.yaml" tern health --prolog; status 0 "tern.yaml, $wrong: --prolog drains no node"; err_has 'wrong.yaml:3'
done
run tern health --only neuronn; status 2; err_has "'neuronn' is no check"
run env TERN_HEALTH_SKIP=x tern health; status 2
run tern health --expect neurons=3; status 2; err_has 'neuron=N'
run tern health --mount fsx; status 2; err_has 'no absolute path'
run tern health slow; status 2; err_has 'not one of: quick'
run tern health quick deep; status 2
run tern health --list; status 0; out_has 'neuron'; out_has 'quick deep'
run tern health --job; status 2; err_has 'not inside a Slurm job'
run tern health --node-check; status 2
run tern health --replace n1; status 1; err_has 'no Slurm configuration'
run tern health --replace n1 --platform moon; status 2

# ---- a tern-link that hangs after its row
mkdir -p hangs; cp "$BIN/tern" "$BIN/tern-health" hangs/
printf '%s\n' '#!/bin/sh' 'echo "{\"check\": \"provider\", \"verdict\": \"ok\", \"severity\": \"info\", \"text\": \"efa, from a stand-in\"}"' 'exec sleep 60' >hangs/tern-link; chmod +x hangs/tern-link
hung='[ "$(verdict provider)" = "ok unknown" ]'
strict "$hung" TERN_FABRIC_PROVIDER=efa hangs/tern health --json --only provider; eval "$hung"; ok $? "a row of tern-link counts though it hangs after that" || cat out err
out_has 'from a stand-in'; out_has 'no answer within 2 s'

# ---- as root's: no environment, no made-up machine
run tern health --prolog; [ "$rc" = 0 ] || [ "$rc" = 3 ]; ok $? "--prolog says good or bad only: $rc"
run env TERN_HEALTH_EXPECT=neuron=99 tern health --prolog; status 0 "--prolog ignores TERN_HEALTH_EXPECT"
run env -i "$BIN/tern" health --prolog; status 0 "--prolog works without PATH"
for wrong in spot deep 'quick deep' '--mount fsx' '--only efaa' '--expect x=1'; do
    run tern health --prolog $wrong; status 0 "--prolog $wrong: a mistake drains no node"; [ -s err ]; ok $? "--prolog $wrong: a mistake is printed"
done
run tern health --program deep; status 2; err_has 'quick' "--program deep, which Slurm would kill, is refused"
run tern health --replace n1 --platform none; status 1
run tern health -h; out_has 'or none'

# ---- spot
unset TERN_HEALTH_ROOT
run tern health spot --json; status 0; [ "$(verdict compute) $(verdict triad)" = "ok ok" ]; ok $? "checks compute and triad pass on this machine" || cat out
run tern health fabric; status 0; out_has 'no neighbours'
tap_done
