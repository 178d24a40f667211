#!/bin/bash
# A job that is killed for memory has that as its cause, whichever of its processes was killed.
# The cgroup's counters are files of this test, mounted where the kernel has them.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done

[ -z "${TERN_SANITIZE-}" ] || skip_all "sanitizers"
unshare -rm sh -c 'mount -t tmpfs none /sys/fs/cgroup' 2>/dev/null || skip_all "no mount namespace"
cat >kill.sh <<'K'
# As the kernel counts a kill.
for f in $(find /sys/fs/cgroup -name memory.events -o -name memory.oom_control); do
    sed 's/^oom_kill .*/oom_kill 1/' "$f" >"$f.new" && cat "$f.new" >"$f"; rm "$f.new"
done
K
cat >work.sh <<'K'
case $1 in
worker) sleep 60 & kill -9 $!; wait $!; sh kill.sh; echo "a worker is killed by signal: Killed." >&2; exit 1 ;;
script) sh -c 'sh kill.sh; kill -9 $$'; exit $? ;;
torchrun) sh kill.sh; exit 120 ;;
itself) sh kill.sh; kill -9 $$ ;;
abort) sh kill.sh; kill -ABRT $$ ;;
survives) sh kill.sh; exit 0 ;;
fails) exit 1 ;;
saved) sh kill.sh; exit 76 ;;
esac
K
cat >in-cgroup.sh <<'K'
mount -t tmpfs none /sys/fs/cgroup
for g in $(sed -n 's/^0:://p; s/^[0-9]*:[a-z,]*memory[a-z,]*://p' /proc/self/cgroup) /; do
    for base in /sys/fs/cgroup /sys/fs/cgroup/memory; do
        mkdir -p $base$g
        printf 'low 0\nhigh 0\nmax 3\noom 1\noom_kill 0\n' >$base$g/memory.events; echo 104857600 >$base$g/memory.max
        printf 'oom_kill_disable 0\nunder_oom 0\noom_kill 0\n' >$base$g/memory.oom_control; echo 104857600 >$base$g/memory.limit_in_bytes
    done
done
exec tern run run.yaml --ranks 1 --set "workload.command=[bash, work.sh, $1]"
K
printf 'version: 1\nname: w\nworkload: {command: [bash, work.sh, x]}\nlaunch: {restarts: 0}\nledger: {dir: ledger}\n' >run.yaml
ends() { # WAY
    rm -rf ledger
    run unshare -rm bash in-cgroup.sh "$1"
}
cause() { tern ledger sql -l ledger -r latest -P -n 'select outcome, cause from attempt'; }

for way in worker script torchrun itself abort; do
    ends $way; status 75
    has err "for memory: its job's limit there, 100 MiB was reached" "$way: standard error says what was reached"
    cause >cause; grep -q '^killed.*rank 0 on .* for memory' cause; ok $? "$way: killed for memory is the cause in the ledger" || sed 's/^/# /' cause
done
ends worker; has err "ended with status 1 after a kill for memory" "a program that ended by itself is said to have"
ends survives; status 0; ! grep -q "for memory" err; ok $? "a kill that the program survives is no cause"
ends saved; status 76; is "$(cause | cut -c1-7)" stopped "a kill beside an end with a checkpoint is no cause"
ends fails; status 1; is "$(cause | cut -c1-6)" failed "a failure without a kill does not name memory"
tap_done
