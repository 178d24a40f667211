#!/bin/bash
# tern cluster render: nothing is lost without a word.  Each key that a form leaves out is reported;
# programs keep file systems, buckets and checkpoints; edits by hand are not overwritten.
. "$(dirname "$0")/../lib/tap.sh"
golden=$ROOT/tests/golden/render
template=$ROOT/cluster-templates/trn1-4/cluster.yaml
values=$golden/values.txt
render() { run tern cluster render "$@"; }
mkdir bin
stand_in() { cat >"bin/$1"; chmod +x "bin/$1"; } # NAME: its text on standard input
aided() { run env PATH="$WORK/bin:$PATH" "$@"; }
printf '#!/bin/bash\n' | stand_in sleep

# ---- a key that a form does not have
cat >full.yaml <<'Y'
Region: us-west-2
Image: {Os: ubuntu2204}
Tags: [{Key: a, Value: b}]
HeadNode: {InstanceType: c5.4xlarge, LocalStorage: {RootVolume: {Size: 500}}, Networking: {SubnetId: subnet-0123456789abcdef0}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: other
      CapacityReservationTarget: {CapacityReservationId: cr-00000000000000000}
      Networking: {SubnetIds: [subnet-0123456789abcdef2]}
      ComputeResources: [{Name: c5, InstanceType: c5.4xlarge, MinCount: 1, MaxCount: 1}]
    - Name: q
      CapacityReservationTarget: {CapacityReservationId: "${Reservation}"}
      ComputeSettings: {LocalStorage: {RootVolume: {Size: 1_024, VolumeType: io2, Iops: 8000, Encrypted: no}, EphemeralVolume: {MountDir: /scratch}}}
      CustomSlurmSettings: {Priority: 3}
      Networking: {SubnetIds: [subnet-0123456789abcdef1], SecurityGroups: [sg-0123456789abcdef0], PlacementGroup: {Name: mine}}
      ComputeResources:
        - {Name: c, InstanceType: trn1.32xlarge, MinCount: 2, MaxCount: 4, Efa: {Enabled: true}}
SharedStorage:
  - {Name: fsx, MountDir: /fsx, StorageType: FsxLustre, FsxLustreSettings: {FileSystemId: fs-0123456789abcdef0}}
  - {Name: home, MountDir: /shared, StorageType: Efs}
Y
echo Reservation=cr-0123456789abcdef0 >reservation.txt
left() { is "$(sed -n 's/^left out: //p' out | cut -d ' ' -f 1 | tr -d : | sort | tr '\n' ' ')" "$2 " "$1: each key that is left out is reported" || sed 's/^/# /' err; }
q='Scheduling.SlurmQueues[1]'
render full.yaml --to batch --vars reservation.txt -o b; status 0 "batch: a reservation and a root volume are rendered"
left batch "/shared HeadNode Image $q.ComputeSettings.LocalStorage.EphemeralVolume $q.CustomSlurmSettings $q.Networking.PlacementGroup.Name Tags"
python3 - <<'P'
import json
d = json.load(open("b/launch-template.json"))["LaunchTemplateData"]
assert d["CapacityReservationSpecification"] == {"CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"}}, d
assert d["BlockDeviceMappings"][0]["Ebs"] == {"VolumeSize": 1024, "VolumeType": "io2", "Iops": 8000, "Encrypted": False, "DeleteOnTermination": True}, d
P
ok $? "batch: the launch template has the queue's reservation and root volume"
sed 's/CapacityReservationTarget: {CapacityReservationId: "${Reservation}"}/CapacityType: ONDEMAND/; s/{Name: c, /{Name: c, CapacityReservationTarget: {CapacityReservationResourceGroupArn: "arn:aws:resource-groups:us-west-2:123456789012:group\/g"}, /' full.yaml >own.yaml
render own.yaml --to batch -o own; has own/launch-template.json '"CapacityReservationResourceGroupArn": "arn:aws:resource-groups:us-west-2:123456789012:group/g"' "batch: a compute resource's own reservation is rendered"
render full.yaml --to hyperpod --vars reservation.txt -o h; status 0 "hyperpod: a layout with keys that it cannot have is rendered"
left hyperpod "/shared HeadNode.LocalStorage HeadNode.Networking.SubnetId Image Scheduling.SlurmQueues[0].CapacityReservationTarget $q.CapacityReservationTarget $q.ComputeSettings $q.CustomSlurmSettings $q.Networking.PlacementGroup Tags"
python3 - <<'P'
import json
c = json.load(open("h/cluster-config.json"))
assert c["VpcConfig"]["Subnets"] == ["subnet-0123456789abcdef2"], c
own = {g["InstanceGroupName"]: g.get("OverrideVpcConfig") for g in c["InstanceGroups"]}
assert own == {"controller": None, "other-c5": None,
               "q-c": {"SecurityGroupIds": ["sg-0123456789abcdef0"], "Subnets": ["subnet-0123456789abcdef1"]}}, own
P
ok $? "hyperpod: an instance group is in its queue's subnet"
cat "$values" reservation.txt >both.txt; render full.yaml --to hyperpod --vars both.txt -o vars; status 0; ! grep -q OverrideVpcConfig vars/cluster-config.json; ok $? "hyperpod: the subnet of --vars is that of all groups"
out_has 'left out: Scheduling.SlurmQueues[0].Networking.SubnetIds[0]: subnet-0123456789abcdef2' "hyperpod: a queue's subnet that --vars replaces is reported"
sed 's/InstanceType: trn1.32xlarge/Instances: [{InstanceType: trn1.32xlarge}, {InstanceType: trn1n.32xlarge}]/' "$template" >types.yaml
for form in batch hyperpod; do
    render types.yaml --to $form -o types-$form; out_has 'left out: Scheduling.SlurmQueues[0].ComputeResources[0].Instances[1]' "$form: a second instance type is reported"
done
render full.yaml --to cfn --vars reservation.txt; sed -n '/^left out/p' err >out; left cfn '/shared Tags'
render "$golden/cluster.yaml" --to pcluster --vars "$values"; ! grep -q 'left out' err; ok $? "pcluster: leaves no key out"
for type in SPOT CAPACITY_BLOCK; do
    sed "s/CapacityType: ONDEMAND/CapacityType: $type\n      CapacityReservationTarget: {CapacityReservationId: cr-0123456789abcdef0}/" "$template" >capacity.yaml
    render capacity.yaml --to hyperpod -o no; status 2 "hyperpod: $type does not become nodes on demand"
    err_has 'capacity.yaml:18: HyperPod has neither spot instances nor capacity blocks' "hyperpod: $type is refused by its line"; [ ! -e no ]; ok $? "hyperpod: nothing is written for $type"
done
sed 's/Name: other/Name: a-b/; s/Name: q$/Name: a/; s/{Name: c, I/{Name: b-c, I/; s/Name: c5/Name: c/' full.yaml >twice.yaml
render twice.yaml --to hyperpod --vars reservation.txt; status 2 "hyperpod: two instance groups of one name are refused"
err_has 'twice.yaml:18: its instance group would be a-b-c, as that of line 11' "hyperpod: both lines are named"

# ---- Slurm's files: edits, and files that are no longer needed
render "$template" -o conf; status 0; [ -e conf/tern-render.json ]; ok $? "slurm: the folder tells what tern rendered"
echo mine >conf/notes; render "$template" --slurm 26.05 -o conf; status 0 "slurm: files of an earlier rendering are replaced, beside others"
[ ! -e conf/topology.conf ] && [ -e conf/topology.yaml ]; ok $? "slurm: a file that is no longer needed is removed"
out_has 'removed: conf/topology.conf' "slurm: the removal of a file is reported"; is "$(cat conf/notes)" mine "slurm: a file of others stays"
echo '# by hand' >>conf/gres.conf; before=$(cat conf/* | cksum)
render "$template" --slurm 24.11 -o conf; status 2 "slurm: an edited file is not overwritten"; err_has 'conf/gres.conf: was changed since tern rendered it' "slurm: the edited file is named"
render "$ROOT/cluster-templates/cpu-efa/cluster.yaml" -o conf; status 2 "slurm: an edited file that is no longer needed is not removed"
is "$(cat conf/* | cksum)" "$before" "slurm: nothing was changed"
sed -i '$d' conf/gres.conf; render "$ROOT/cluster-templates/cpu-efa/cluster.yaml" -o conf; status 0; [ ! -e conf/gres.conf ]; ok $? "slurm: without the edit it is"
render "$template" --to pcluster -o conf; status 2 "another form does not replace Slurm's files"; err_has 'is of another form'
render "$template" --to cfn -o cfn; render "$template" -o cfn; status 2 "Slurm's files do not replace another form's"; is "$(ls cfn | tr '\n' ' ')" 'create.sh delete.sh stack.json tern-render.json ' "cfn's folder stays as it was"
render "$template" -o old; rm old/tern-render.json; render "$template" -o old; status 0 "slurm: equal files without a list are taken"
rm old/tern-render.json; echo SlurmctldTimeout=7 >>old/slurm.conf; render "$template" -o old; status 2 "slurm: other ones without a list are not"
echo precious >precious; printf '{"form": "slurm", "sha256": {"../precious": "%s"}}' "$(sha256sum <precious | cut -d ' ' -f 1)" >old/tern-render.json
rm old/*.conf; render "$template" -o old; [ -e precious ]; ok $? "slurm: a list removes nothing outside its folder"

# ---- --diff: a folder that is none, files that cannot be read, modes, files that go
render "$template" --to cfn -o modes; chmod -x modes/create.sh
render "$template" --to cfn --diff modes; status 1 "--diff: a program that cannot be run differs"; is "$(cat out)" 'modes/create.sh: becomes a program (chmod +x)' "--diff names the program that cannot be run"
rm modes/create.sh; ln -s create.sh modes/create.sh
render "$template" --to cfn --diff modes; err_has 'modes/create.sh: cannot be read' "--diff: a file that cannot be seen is an error"
! grep -q /dev/null out; ok $? "--diff: a file that cannot be seen is no new file"
render "$template" --to cfn --diff "$template"; status 2 "--diff of a file is refused"; err_has 'is no folder'; [ ! -s out ]; ok $? "--diff of a file prints no file as new"
render "$template" -o going; render "$ROOT/cluster-templates/cpu-efa/cluster.yaml" --diff going; status 1
has out '--- going/gres.conf' "--diff: a file that -o would remove is shown"; has out '+++ /dev/null' "--diff: as one that goes"
[ -s going/gres.conf ]; ok $? "--diff: removes nothing"

# ---- a signal while the folder is written
if [ -n "${TERN_SANITIZE-}" ] || ! command -v gcc >/dev/null; then
    skip "no preloaded library under a sanitizer, or without gcc"
else
    cat >signal.c <<'C'
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd)
{
    static int n;
    if (n++ == 0)
        kill(getpid(), SIGTERM);
    return (int)syscall(SYS_fsync, fd);
}
C
    gcc -shared -fPIC -o signal.so signal.c
    run env LD_PRELOAD="$WORK/signal.so" tern cluster render "$template" --to pcluster -o interrupted
    status 143 "a signal during the writing ends the program"
    is "$(ls interrupted | tr '\n' ' ')$(ls -d interrupted.tmp-* 2>/dev/null)" 'cluster.yaml create.sh delete.sh on-node-configured tern-render.json ' "after the folder is whole, with nothing beside it"
fi

# ---- kill -9 while the folder is written
if [ -n "${TERN_SANITIZE-}" ] || ! command -v gcc >/dev/null; then
    skip "no preloaded library under a sanitizer, or without gcc"
else
    sed 's/SIGTERM/SIGKILL/' signal.c >kill.c; gcc -shared -fPIC -o kill.so kill.c
    for form in pcluster slurm; do
        run env LD_PRELOAD="$WORK/kill.so" tern cluster render "$template" --to $form -o "dead-$form"; status 137 "$form: kill -9 during the writing"
        [ -n "$(compgen -G "dead-$form.tmp-*"; compgen -G "dead-$form/*.tmp-*")" ]; ok $? "$form: it leaves what it had written"
        render "$template" --to $form -o "dead-$form"; status 0 "$form: the next rendering"
        is "$(compgen -G "dead-$form*.tmp-*"; compgen -G "dead-$form/*.tmp-*")" '' "$form: the next rendering takes that away"
    done
fi

# ---- cluster.tern.yaml: tern's own settings
mkdir sidecar; cp "$template" sidecar/cluster.yaml
printf 'gres: {neuron: false}\nvirtual: {nics: 2, tmp_mib: 256}\n' >sidecar/cluster.tern.yaml
for form in pcluster cfn hyperpod batch; do
    render sidecar/cluster.yaml --to $form -o "own-$form"; status 0
    has out 'left out: gres.neuron, virtual.nics, virtual.tmp_mib of cluster.tern.yaml: ' "$form: the settings of cluster.tern.yaml that do not travel are reported"
    is "$(grep -c 'cluster.tern.yaml' out)" 1 "$form: by one line"
done
render sidecar/cluster.yaml --to slurm -o own-slurm; status 0; ! grep -q 'left out: gres' out; ok $? "slurm: gres.neuron is heeded, and not reported"
render "$template" --to cfn -o plain-cfn; ! grep -q tern.yaml out; ok $? "without the file nothing is said of it"

# ---- CloudFormation: the file system and the bucket outlive updates and mistakes
render "$template" --to cfn -o stack; status 0
python3 - <<'P'
import json
r = json.load(open("stack/stack.json"))["Resources"]
assert r["Bucket"]["DeletionPolicy"] == "RetainExceptOnCreate" and r["Bucket"]["UpdateReplacePolicy"] == "Retain"
assert r["FileSystem"]["DeletionPolicy"] == "Delete" and r["FileSystem"]["UpdateReplacePolicy"] == "Retain"
assert "DeletionPolicy" not in r["Vpc"]
P
ok $? "cfn: an update never deletes a file system or bucket, and a creation in vain leaves no bucket"
sed 's/DeploymentType: .*/&\n      DeletionPolicy: Retain/' "$template" >kept.yaml
render kept.yaml --to cfn -o kept; out_has 'and the file system with its network' "cfn: the resources that stay are reported"
python3 - <<'P'
import json
r = json.load(open("kept/stack.json"))["Resources"]
for name in "FileSystem Vpc PrivateSubnet SecurityGroup".split():
    assert r[name]["DeletionPolicy"] == "RetainExceptOnCreate", name
assert "DeletionPolicy" not in r["PublicSubnet"]
P
ok $? "cfn: a retained file system keeps the subnet and the group that its interfaces are in"
# AWS: the stack's status is in ./status, an update's changes in ./changes.
stand_in aws <<'S'
#!/bin/bash
echo "$*" >>calls
case "$1 $2 $*" in
"cloudformation describe-stacks "*--query*)
    [ "$(cat status)" != denied ] || { echo "An error occurred (AccessDenied)" >&2; exit 254; }
    [ "$(cat status)" != none ] || { echo "An error occurred (ValidationError): Stack with id x does not exist" >&2; exit 254; }
    cat status ;;
"cloudformation describe-stacks "*) echo '{"Stacks": []}' ;;
"cloudformation deploy "*--no-execute-changeset*)
    [ -s changes ] || { echo "No changes to deploy. Stack is up to date"; exit; }
    printf 'Waiting for changeset to be created..\nChangeset created successfully. Run the following command to review changes:\naws cloudformation describe-change-set --change-set-name arn:aws:cloudformation:us-west-2:123456789012:changeSet/c/1\n' ;;
"cloudformation describe-change-set "*) cat changes ;;
"cloudformation delete-stack "*) [ ! -e undeletable ] && echo none >status ;;
"cloudformation describe-stack-resources "*) case "$*" in *" FileSystem "*) echo fs-1 ;; *" Bucket "*) echo bucket-1 ;; *) echo None ;; esac ;;
esac
S
cfn() { rm -f calls; echo "$1" >status; printf "$2" >changes; aided kept/create.sh us-west-2a; } # STATUS CHANGES
cfn none ''; status 0 "cfn: a stack is made"; grep -q '^cloudformation deploy.*stack.json' calls; ok $? "cfn: by deploy"
cfn CREATE_COMPLETE 'Vpc\tModify\tFalse\nFileSystem\tModify\tFalse\nBucket2\tRemove\tNone\n'; status 0 "cfn: a harmless update is made"
grep -q 'execute-change-set .*changeSet/c/1' calls && grep -q 'wait stack-update-complete' calls; ok $? "cfn: the update is of the change set that was read"
cfn UPDATE_COMPLETE ''; status 0 "cfn: nothing to change is no failure"; err_has 'No changes to deploy' "cfn: a message says that nothing changes"
for change in 'FileSystem\tModify\tTrue' 'FileSystem\tModify\tConditional' 'FileSystem\tRemove\tNone' 'Bucket\tModify\tTrue' 'Bucket\tRemove\tNone'; do
    cfn UPDATE_COMPLETE "Vpc\tModify\tFalse\n$change\n"; status 1 "cfn: refused: $change"
    err_has "it would replace or remove ${change%%\\*}." "cfn: the resource is named: $change"
    ! grep -q 'execute-change-set\|deploy' <(grep -v no-execute calls); ok $? "cfn: nothing is changed: $change"
done
cfn denied 'FileSystem\tRemove\tNone\n'; status 1 "cfn: a stack that cannot be seen is not changed"; is "$(grep -c deploy calls)" 0 "cfn: a stack that cannot be seen is not made"
cfn UPDATE_IN_PROGRESS ''; status 1 "cfn: a stack that is being changed is left alone"
cfn ROLLBACK_COMPLETE ''; status 0 "cfn: after a failed creation create.sh may run again"
is "$(grep -o 'delete-stack\|wait stack-delete-complete\|deploy' calls | tr '\n' ' ')" 'delete-stack wait stack-delete-complete deploy ' "cfn: what is left of the failed one is deleted first"
aided kept/delete.sh; status 0; err_has 'these stay, and cost: Bucket bucket-1 FileSystem fs-1' "cfn: delete.sh names what stays"

# ---- packages that nodes cannot install
stand_in aws <<'S'
#!/bin/bash
echo "$*" >>calls
S
printf '#!/bin/bash\necho "pcluster $*" >>calls\n' | stand_in pcluster
touch tern-0.tar.gz tern-0.deb
printf 'TernPackage=s3://b/deb/\n' | cat "$values" - >folder.txt
for form in hyperpod pcluster; do
    render "$template" --to $form --vars folder.txt -o packages-$form; rm -f calls
    aided packages-$form/create.sh tern-0.deb tern-0.tar.gz; status 1 "$form: a tarball for a folder of packages is refused"
    err_has 'tern-0.tar.gz: nodes install packages from s3://b/deb/' "$form: the refusal names the folder of packages"; [ ! -e calls ]; ok $? "$form: nothing is uploaded"
done
render "$template" --to pcluster --vars "$values" -o tarball
aided tarball/create.sh tern-0.tar.gz; status 0 "pcluster: a tarball for a tarball is taken"

# ---- delete.sh of ParallelCluster without aws
mkdir few; for tool in bash cat dirname pcluster; do ln -s "$(PATH=$WORK/bin:$PATH command -v $tool)" few/; done
rm -f calls; run env PATH="$WORK/few" bash tarball/delete.sh; status 1 "pcluster: delete.sh needs aws"
err_has 'aws is missing'; [ ! -e calls ]; ok $? "pcluster: without it no deletion is asked for"

# ---- Batch: registries of other regions
printf '#!/bin/bash\necho "docker $*" >>calls\n' | stand_in docker
image() { # REPOSITORY BASE
    printf 'ImageRepository=%s\nBaseImage=%s\n' "$1" "$2" | cat - <(grep -v ECR_REPO "$values") >image.txt
    rm -rf image calls; render "$template" --to batch --vars image.txt -o image
    aided image/build.sh tern-0.deb; status 0 "batch: build.sh with base $2" || cat err
}
image 123456789012.dkr.ecr.eu-north-1.amazonaws.com/team/tern 763104351884.dkr.ecr.us-east-1.amazonaws.com/base:1
is "$(grep -o '^ecr [a-z-]* --region [a-z0-9-]*' calls | tr '\n' ' ')" 'ecr describe-repositories --region eu-north-1 ecr get-login-password --region eu-north-1 ecr get-login-password --region us-east-1 ' "batch: each registry is asked in its own region"
image ghcr.io/team/tern debian:12; ! grep -q '^ecr' calls; ok $? "batch: a registry of others is not asked at ECR"

# ---- Batch: an instance that lacks its file system or EFA takes no job
sed "s|MountDir: /fsx|MountDir: $WORK/fsx|" "$template" >here.yaml
render here.yaml --to batch --vars "$values" -o batch; status 0
printf '#!/bin/bash\n[ "$1" != cat ] || exit %s\necho "systemctl $*" >>calls\n' 0 | stand_in systemctl
printf '#!/bin/bash\necho "shutdown $*" >>calls\n' | stand_in shutdown
printf '#!/bin/bash\n' | tee bin/dnf | stand_in mount
printf '#!/bin/bash\nexit 1\n' | tee bin/curl | stand_in mountpoint
chmod +x bin/*
mkdir -p system/etc system/dev/infiniband
touch system/dev/infiniband/uverbs{0..7}
setup() { rm -f calls; aided env SYSTEM_ROOT="$WORK/system" bash batch/node-setup.sh; }
setup; status 0 "batch: an instance with EFA and FSx is set up" || cat err; [ ! -e calls ]; ok $? "batch: an instance with EFA keeps its agent"
printf '#!/bin/bash\nexit 1\n' >bin/mount
setup; status 1 "batch: FSx cannot be mounted"
is "$(cat calls)" "systemctl mask --now --no-block ecs
shutdown -h now" "batch: the instance takes no job, and is given back"
printf '#!/bin/bash\n' >bin/mount; rm system/dev/infiniband/uverbs7
setup; [ "$rc" != 0 ] && grep -q 'mask --now --no-block ecs' calls && grep -q 'shutdown -h now' calls; ok $? "batch: so is one whose EFA cannot be installed"
printf '#!/bin/bash\nexit 1\n' >bin/systemctl
setup; [ "$rc" != 0 ] && [ ! -e calls ]; ok $? "batch: a machine without ECS is not switched off"
tap_done
