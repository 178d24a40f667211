#!/bin/bash
# Programs of `tern cluster render` on the nodes of a virtual cluster: tern is installed there from a
# package, and runs a job.  AWS's and the system's commands are scripts that do the same on this machine.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
command -v dpkg-deb >/dev/null || skip_all "dpkg-deb is not installed"
cluster_up
version=$(tern --version | cut -d' ' -f2)

# A package with tern's programs; a bucket; commands.
mkdir -p deb/DEBIAN deb/usr/bin bucket bin
cp "$BIN"/tern "$BIN"/tern-{run,task,env,health,metric} deb/usr/bin/
printf 'Package: tern\nVersion: %s\nArchitecture: all\nMaintainer: tern <tern@localhost>\nDescription: tern\n' "$version" >deb/DEBIAN/control
dpkg-deb -Znone -b deb "bucket/tern-$version.deb" >/dev/null
cat >bin/aws <<'S'
#!/bin/bash
# aws s3 cp ... s3://BUCKET/KEY TO
from=${@: -2:1} to=${@: -1}
[ "$1 $2" = "s3 cp" ] && cp "$HERE/bucket/${from#s3://*/}" "$to"
S
cat >bin/apt-get <<'S'
#!/bin/bash
# apt-get install ... FILE.deb: into this node's own /tmp.
mkdir -p /tmp/system && dpkg-deb -x "${@: -1}" /tmp/system
S
chmod +x bin/*
# NODE FILE COMMAND...: as root of an instance would run it; the node's kind is in FILE.
node() {
    local at=(--node "$1")
    [ "$1" != head ] || at=()
    run tern cluster exec "${at[@]}" $CLUSTER -- env HERE="$WORK" PATH="$WORK/bin:$PATH" CFNCONFIG="$WORK/$2" TERN_SLURM="$WORK/slurm" "${@:3}"
}
printf 'cfn_node_type=HeadNode\n' >head; printf 'cfn_node_type=ComputeFleet\n' >compute
mkdir -p slurm/etc

# ---- Slurm's own files: this Slurm reads what is rendered for it, and for every other release
for release in 22.05 23.11 24.11 26.05; do
    run tern cluster render "$LAYOUT" --slurm $release -o conf-$release
    sed -i 's/^SlurmctldHost=.*/SlurmctldHost=head(127.0.0.1)/' conf-$release/slurm.conf
    run env SLURM_CONF="$WORK/conf-$release/slurm.conf" timeout 600 sinfo
    [ -s err ] && ! grep -qiE 'pars|fatal|unrecognized' err; ok $? "slurm.conf for $release is read" || cat err
done

# ---- ParallelCluster
printf '{"Bucket": "b", "TernPackage": "s3://b/tern-%s.deb"}' "$version" >values.json
run tern cluster render "$LAYOUT" --to pcluster --vars values.json -o p; status 0 "pcluster: tern cluster render ends well"
arg=$(sed -n "s/^ *- '\(s3:.*deb\)'$/\1/p" p/cluster.yaml | head -n 1)
is "$arg" "s3://b/tern-$version.deb" "pcluster: nodes get the package"
node head head p/on-node-configured "$arg"; status 0 "pcluster: the head node installs tern" || cat err
for n in 1 2 3 4; do node trn1-st-trn1-$n compute p/on-node-configured "$arg"; [ "$rc" = 0 ] || break; done
status 0 "pcluster: every compute node does" || cat err
on srun -N4 /tmp/system/usr/bin/tern --version; status 0 "pcluster: a job runs it on all nodes"
is "$(sort -u out; wc -l <out)" "tern $version
4" "pcluster: each node has its own"
# A job by the installed tern alone.
printf 'version: 1\nname: installed\nledger: {dir: ledger}\nworkload: {command: [bash, %s/rank.sh], tasks_per_node: 2}\nlaunch: {restarts: 0}\n' "$WORK" >run.yaml
echo 'readlink /proc/$PPID/exe; echo "$SLURM_PROCID on $SLURMD_NODENAME"' >rank.sh
printf '#!/bin/bash\nexport PATH=/tmp/system/usr/bin:/usr/bin:/bin\nexec tern run run.yaml\n' >job.sbatch
with_slurm job.sbatch
submit --exclusive -N4 -o job.out job.sbatch
await_job; is "$(job_state "$job") $(grep -c '^[0-7] on trn1-st-trn1-[1-4]$' job.out)" 'COMPLETED 8' "pcluster: a job of tern runs on the nodes" || cat job.out
is "$(grep '/tern' job.out | sort -u)" /tmp/system/usr/bin/tern-task "pcluster: started by the tern that was installed" || cat job.out
has slurm/etc/plugstack.conf 'include /etc/slurm/plugstack.conf.d/*.conf' "pcluster: Slurm takes its plugin"

# ---- HyperPod: its lifecycle script finds out what each node is
cat >bin/mount <<'S'
#!/bin/bash
echo "mount $*" >>/tmp/calls
[ -e /tmp/mounted ] || { touch /tmp/mounted; exit 1; } # the network comes up late
S
printf '#!/bin/bash\nexit 1\n' >bin/mountpoint
printf '#!/bin/bash\necho "systemctl $*" >>/tmp/calls\n' >bin/systemctl
printf '#!/bin/bash\n' >bin/sleep
chmod +x bin/*
printf '{"Bucket": "b", "TernPackage": "s3://b/tern-%s.deb", "ExecutionRoleArn": "arn:aws:iam::123456789012:role/r", "SecurityGroup": "sg-1", "FileSystemDnsName": "fs-01234567.fsx.us-west-2.amazonaws.com", "FileSystemMountName": "abc"}' "$version" >values.json
run tern cluster render "$LAYOUT" --to hyperpod --vars values.json -o h; status 0 "hyperpod: tern cluster render ends well"
address() { tern cluster exec ${1:+--node "$1"} $CLUSTER -- hostname -I | tr -d ' \n'; }
head=$(address)
printf '{"InstanceGroups": [{"Name": "controller", "Instances": [{"CustomerIpAddress": "%s"}]}, {"Name": "trn1-trn1", "Instances": [{"CustomerIpAddress": "%s"}, {"CustomerIpAddress": "%s"}]}]}' \
    "$head" "$(address trn1-st-trn1-1)" "$(address trn1-st-trn1-2)" >resources.json
echo "SlurmctldHost=head($head)" >slurm/etc/slurm.conf
created() { node "$1" none SYSTEM_ROOT=/tmp/system SAGEMAKER_RESOURCE_CONFIG_PATH="$WORK/resources.json" h/lifecycle/on_create.sh; }
for n in head trn1-st-trn1-1; do
    tern cluster exec $([ $n = head ] || echo --node $n) $CLUSTER -- sh -c 'rm -rf /tmp/system /tmp/calls; mkdir -p /tmp/system/etc; echo "old / ext4" >/tmp/system/etc/fstab'
done
created head; status 0 "hyperpod: the controller is set up" || cat err
out_has ": controller; controller $head" "hyperpod: it knows its part"
on cat /tmp/calls; has out 'systemctl enable --now slurmctld' "hyperpod: the controller starts slurmctld"
created trn1-st-trn1-1; status 0 "hyperpod: a worker is set up" || cat err
out_has ': compute; controller' "hyperpod: it knows its part"
on_worker() { run tern cluster exec --node trn1-st-trn1-1 $CLUSTER -- "$@"; }
on_worker cat /tmp/calls; has out 'systemctl enable --now slurmd' "hyperpod: the worker starts slurmd"
is "$(grep -c 'mount -t lustre -o noatime,flock fs-01234567.fsx.us-west-2.amazonaws.com@tcp:/abc /fsx' out)" 2 "hyperpod: FSx is mounted at the second try"
on_worker cat /tmp/system/etc/systemd/system/slurmd.service.d/tern.conf; has out "SLURMD_OPTIONS=--conf-server $head" "hyperpod: which asks the controller"
on_worker /tmp/system/usr/bin/tern --version; is "$(cat out)" "tern $version" "hyperpod: tern is installed"
created trn1-st-trn1-1; on_worker cat /tmp/system/etc/fstab; is "$(grep -c lustre out) $(head -n 1 out)" '1 old / ext4' "hyperpod: a second run adds nothing to fstab"
created trn1-st-trn1-3; status 1 "hyperpod: a node that is in no group"; err_has 'no instance of' "hyperpod: the error names the node without a group"
: >slurm/etc/slurm.conf; created head; status 1 "hyperpod: a controller without its slurm.conf"; err_has "has not written it" "hyperpod: the error names the missing slurm.conf"

# ---- Batch: instances, and containers on them
printf '{"Bucket": "b", "InstanceProfileArn": "arn:aws:iam::123456789012:instance-profile/p", "SecurityGroup": "sg-1", "ImageRepository": "r/tern", "FileSystemDnsName": "fs-01234567.fsx.us-west-2.amazonaws.com", "FileSystemMountName": "abc"}' >values.json
run tern cluster render "$LAYOUT" --to batch --vars values.json -o b; status 0 "batch: tern cluster render ends well"
# EFA's installer, which makes the devices.
mkdir -p aws-efa-installer
printf '#!/bin/bash\nmkdir -p /tmp/system/dev/infiniband && touch /tmp/system/dev/infiniband/uverbs{0..7}\n' >aws-efa-installer/efa_installer.sh
chmod +x aws-efa-installer/efa_installer.sh; tar -czf efa.tar.gz aws-efa-installer
printf '#!/bin/bash\n[ "${@: -1}" = https://efa-installer.amazonaws.com/aws-efa-installer-latest.tar.gz ] && cp "$HERE/efa.tar.gz" "${@: -2:1}"\n' >bin/curl
printf '#!/bin/bash\necho "dnf $*" >>/tmp/calls\n' >bin/dnf
chmod +x bin/*
two() { run tern cluster exec --node trn1-st-trn1-2 $CLUSTER -- "$@"; }
two sh -c 'rm -rf /tmp/system /tmp/calls /tmp/mounted; mkdir -p /tmp/system/etc'
node trn1-st-trn1-2 none SYSTEM_ROOT=/tmp/system b/node-setup.sh; status 0 "batch: an instance is set up" || cat err
two sh -c 'ls /tmp/system/dev/infiniband | wc -l; cat /tmp/system/etc/fstab'; has out 8 "batch: EFA is installed"
has out 'fs-01234567.fsx.us-west-2.amazonaws.com@tcp:/abc /fsx lustre' "batch: FSx is mounted from then on"
node trn1-st-trn1-2 none SYSTEM_ROOT=/tmp/system b/node-setup.sh; two sh -c 'wc -l </tmp/system/etc/fstab; cat /tmp/calls'
is "$(head -n 1 out)" 1 "batch: a second start adds nothing"
contained() { run tern cluster exec --node "$1" $CLUSTER -- env "${@:2}" b/batch-node sh -c 'echo $NODE_RANK/$NNODES $MASTER_ADDR:$MASTER_PORT'; }
main=$(address trn1-st-trn1-1)
contained trn1-st-trn1-1 AWS_BATCH_JOB_NODE_INDEX=0 AWS_BATCH_JOB_NUM_NODES=2; is "$(cat out)" "0/2 $main:41000" "batch: the main node finds its own address"
contained trn1-st-trn1-2 AWS_BATCH_JOB_NODE_INDEX=1 AWS_BATCH_JOB_NUM_NODES=2 AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS="$main"
is "$(cat out)" "1/2 $main:41000" "batch: another node gets the same address"
run tern cluster exec --node trn1-st-trn1-2 $CLUSTER -- b/batch-node sh -c 'exit 75'; status 75 "batch: the command's status is the container's"
tap_done
