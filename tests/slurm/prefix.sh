#!/bin/bash
# A Slurm that is not the system's: its daemons, its srun also in jobs without the caller's environment,
# its release; and what a Slurm built for one slurmd a machine needs.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/reach.sh"
. "$ROOT/tests/lib/vcluster.sh"
[ -z "${TERN_SANITIZE-}" ] || export ASAN_OPTIONS=detect_leaks=0
mkdir p; sed 's/Count: 4/Count: 2/' "$ROOT/cluster-templates/trn1-4/cluster.yaml" >p/cluster.yaml
C=prefix-$$
finish() { tern cluster down $C; rm -rf "$WORK-munge"; } >/dev/null 2>&1
tap_cleanup=finish
up() { run timeout 600 tern cluster up p/cluster.yaml --name $C "$@"; }
on() { run tern cluster exec $C -- "$@"; }
real() { PATH=$PATH:/usr/sbin command -v "$1"; }
prefix() { # NAME: one whose programs are the real ones, behind scripts
    mkdir -p "$1/bin" "$1/sbin"
    for p in slurmctld slurmd; do printf '#!/bin/sh\nexec %s "$@"\n' "$(real $p)" >"$1/sbin/$p"; done
    for p in srun sbatch scontrol sinfo salloc; do printf '#!/bin/sh\necho %s >>%s/used\nexec %s "$@"\n' $p "$WORK" "$(real $p)" >"$1/bin/$p"; done
    chmod +x "$1"/*/*
}

# ---- which daemons
up --slurm "$WORK/nowhere"; status 2 "a prefix that is not there"; err_has "--slurm $WORK/nowhere: there is no slurmctld, slurmd in its sbin"; one_line
prefix other
printf '#!/bin/sh\n[ "$1" = -V ] && echo "slurm 20.11.9" && exit\nexec %s "$@"\n' "$(real slurmd)" >other/sbin/slurmd
up --slurm "$WORK/other"; status 2 "a slurmd of another release than slurmctld's is refused"
err_has "$WORK/other/sbin/slurmd is of Slurm 20.11.9, and this tern was built for "; one_line
printf '#!/bin/sh\nexit 1\n' >other/sbin/slurmctld
TERN_SLURM=$WORK/other up; status 2 "a slurmctld that says nothing, by TERN_SLURM"; err_has "slurmctld is of Slurm (unknown version)"

# ---- a prefix of one's own
prefix mine
up --slurm "$WORK/mine"; status 0 "up with a prefix" || cat err
on sh -c 'command -v srun'; is "$(cat out)" "$WORK/mine/bin/srun" "exec finds its srun"
printf '#!/bin/sh\ncommand -v srun\nsrun -N2 hostname\n' >job; chmod +x job
for export in NONE ALL HOME,USER; do
    rm -f used; on sbatch -W -N2 --export=$export -o job.out job; status 0 "a job with --export=$export"
    is "$(sort -u job.out | paste -sd,)" "$WORK/mine/bin/srun,trn1-st-trn1-1,trn1-st-trn1-2" "runs on both" || cat err
    is "$(sort -u used | paste -sd,)" sbatch,srun "jobs use the srun of the prefix"
done
on sbatch -W -N1 -o job.out --wrap 'env PATH=/usr/bin:/bin sh -c "echo \$PATH"'
is "$(cat job.out)" /usr/bin:/bin "a PATH that the job sets is kept"

# ---- a munged a node: a credential that two nodes look at is no replay
on sh -c 'munge -n >cred; unmunge <cred | head -1'; has out Success "the head takes a credential"
for n in 1 2; do
    run tern cluster exec --node trn1-st-trn1-$n $C -- sh -c 'unmunge <cred | head -1; unmunge <cred 2>&1 | head -1'
    has out Success "node $n takes it"; has out Replayed "node $n refuses a credential that it had"
done
run tern cluster node trn1-st-trn1-2 --power off --cluster $C; run tern cluster node trn1-st-trn1-2 --power on --cluster $C; status 0 "a node goes and comes back"
run tern cluster exec --node trn1-st-trn1-2 $C -- sh -c 'until munge -n 2>/dev/null | unmunge >/dev/null 2>&1; do sleep 0.05; done'; status 0 "a node that comes back has a munged"
finish

# ---- MUNGE in a place of its own, which the nodes' own /tmp would hide
mkdir -p "$WORK-munge/sbin"; ln -s "$(real munged)" "$WORK-munge/sbin/munged"
PATH=$WORK-munge/sbin:$PATH up; status 0 "a munged in a folder under /tmp: up" || cat err
finish
mkdir broken # the head's starts, the nodes' do not
printf '#!/bin/sh\ncase "$*" in */munged.log*) exec %s "$@" ;; esac\necho "munged: Error: Out of luck" >&2\nexit 1\n' "$(real munged)" >broken/munged
chmod +x broken/munged
PATH=$WORK/broken:$PATH up; status 1 "a munged that ends on the nodes is an error, and no wait until the limit"
grep -qE "trn1-st-trn1-[12]: $WORK/broken/munged ended while starting: munged: Error: Out of luck" err
ok $? "the error names node, program and its last words" || cat err
one_line

# ---- a machine without /etc/slurm, as where Slurm lies in /opt/slurm
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    mkdir etc; cp -a /etc/. etc/; rm -rf etc/slurm
    cat >bare.sh <<'S'
mount --make-rprivate / && mount --bind etc /etc || exit 3
[ ! -e /etc/slurm ] && timeout 600 tern cluster up p/cluster.yaml --name $1 || exit 4
tern cluster exec $1 -- srun -N2 hostname &&
    tern cluster exec $1 -- sbatch -W -N2 --export=NONE -o job.out job && cat job.out
tern cluster exec --node trn1-st-trn1-2 $1 -- sh -c 'scontrol show config | grep ^SLURM_CONF'
tern cluster down $1
S
    printf '#!/bin/sh\nsrun -N2 %s\n' "$(command -v hostname)" >job # which such a job has no PATH for
    before=$(ls -d /etc/slurm 2>&1)
    run unshare -m sh bare.sh $C; status 0 "without /etc/slurm a cluster comes up, runs jobs and goes down"
    is "$(grep -c '^trn1-st-trn1-[12]$' out)" 4 "without /etc/slurm: srun and --export=NONE reach both nodes" || cat out err
    out_has "/run/slurm/conf/slurm.conf" "without /etc/slurm: where its configuration is"
    [ ! -e /run/slurm/conf/slurm.conf ] && [ "$(ls -d /etc/slurm 2>&1)" = "$before" ]; ok $? "this machine's Slurm configuration is as it was"
else
    skip "no mount namespaces, or not root"
fi

# ---- smoke names the cause
printf '#!/bin/sh\n[ "${SLURM_NNODES:-1}" = 1 ] || { echo "srun: error: Task launch for StepId=1.0 failed on node trn1-st-trn1-2: Invalid job credential" >&2; exit 1; }\nexec %s "$@"\n' "$(real srun)" >mine/bin/srun
up --slurm "$WORK/mine"; status 0
run timeout 600 tern cluster smoke $C --timeout 80
status 75 "smoke where nodes work alone only"
red=$tap_bad
out_has 'trn1-st-trn1-1: ok'; out_has 'trn1-st-trn1-2: ok'
out_has 'all together: bad: srun: error: Task launch for StepId=1.0 failed on node trn1-st-trn1-2: Invalid job credential' "with Slurm's complaint"
[ $tap_bad = $red ] || { cat err; on sinfo -R; tail -n 30 out "$TERN_CLUSTER_HOME/$C"/log/slurm*.log; } | sed 's/^/# /'
finish

# ---- why there are no namespaces
if [ "$(id -u)" = 0 ] && strace -qq -e trace=none true 2>/dev/null && unshare -m true 2>/dev/null; then
    reach 65534; chmod 755 "$WORK"; mkdir -m 777 theirs
    cat >refused.sh <<'S'
# SETTING (below /proc/sys) VALUE FILTER: up as nobody, with strace's injection
mkdir -p "${1%/*}" 2>/dev/null; mount -t tmpfs none "/proc/sys/${1%%/*}" || exit 3
echo $2 >"/proc/sys/$1"
exec setpriv --reuid 65534 --regid 65534 --clear-groups env HOME="$PWD/theirs" TERN_CLUSTER_HOME="$PWD/theirs/c" \
    timeout 600 strace -f -qq -o /dev/null $3 tern cluster up p/cluster.yaml --name refused --mode namespaces
S
    refused() { PATH=$REACH_BIN:$PATH run unshare -m sh refused.sh "$@"; }
    refused kernel/apparmor_restrict_unprivileged_userns 1 "-e inject=openat:error=EPERM -P /proc/self/uid_map"
    status 1 "Ubuntu's AppArmor: no uid_map" || cat out
    err_has "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"; one_error
    refused kernel/apparmor_restrict_unprivileged_userns 1 "-e inject=mount:error=EACCES"
    status 1 "or no mounts"; err_has "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    refused kernel/unprivileged_userns_clone 0 "-e inject=clone:error=EPERM:when=3"
    status 1 "a kernel that keeps them"; err_has "sysctl -w kernel.unprivileged_userns_clone=1"
    refused user/max_user_namespaces 0 "-e inject=clone:error=ENOSPC:when=3"
    status 1 "user namespaces that are switched off are an error"; err_has "sysctl -w user.max_user_namespaces="
    container=docker refused kernel/some_setting 0 "-e inject=clone:error=EPERM:when=3"
    status 1 "a container that may not make namespaces is an error"; err_has "--cap-add=SYS_ADMIN" "in a container: how it is to be started"; one_error
    [ -z "$(ls -A theirs/c 2>/dev/null)" ]; ok $? "nothing is left"
else
    skip "needs root, strace and unshare"
fi
tap_done
