#!/bin/bash
# tern cluster check of HyperPod's files: each mistake by its kind, file and line, and nothing else.
. "$(dirname "$0")/../lib/tap.sh"
mkdir -p good
cat >good/cluster-config.json <<'J'
{
  "ClusterName": "ml-cluster",
  "InstanceGroups": [
    {"InstanceGroupName": "controller-machine", "InstanceType": "ml.c5.4xlarge", "InstanceCount": 1,
     "LifeCycleConfig": {"SourceS3Uri": "s3://bucket/src", "OnCreate": "on_create.sh"},
     "ExecutionRole": "arn:aws:iam::123456789012:role/pod", "ThreadsPerCore": 1},
    {"InstanceGroupName": "login-group", "InstanceType": "ml.m5.xlarge", "InstanceCount": 1,
     "LifeCycleConfig": {"SourceS3Uri": "s3://bucket/src", "OnCreate": "on_create.sh"},
     "ExecutionRole": "arn:aws:iam::123456789012:role/pod", "ThreadsPerCore": 2},
    {"InstanceGroupName": "worker-group-1", "InstanceType": "ml.trn1.32xlarge", "InstanceCount": 4,
     "LifeCycleConfig": {"SourceS3Uri": "s3://bucket/src", "OnCreate": "on_create.sh"},
     "SlurmConfig": {"NodeType": "Compute", "PartitionNames": ["train"]},
     "InstanceStorageConfigs": [{"EbsVolumeConfig": {"VolumeSizeInGB": 500}}],
     "OnStartDeepHealthChecks": ["InstanceStress", "InstanceConnectivity"],
     "ExecutionRole": "arn:aws:iam::123456789012:role/pod", "ThreadsPerCore": 2}
  ],
  "VpcConfig": {"SecurityGroupIds": ["sg-0123456789abcdef0"], "Subnets": ["subnet-0123456789abcdef0"]},
  "NodeRecovery": "Automatic"
}
J
cat >good/provisioning_parameters.json <<'J'
{
  "version": "1.0.0",
  "workload_manager": "slurm",
  "controller_group": "controller-machine",
  "login_group": "login-group",
  "worker_groups": [
    {"instance_group_name": "worker-group-1", "partition_name": "train"}
  ],
  "fsx_dns_name": "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com",
  "fsx_mountname": "abcdef01"
}
J
cat >good/fsx.json <<'J'
{"FileSystems": [
  {"FileSystemId": "fs-0123456789abcdef0", "DNSName": "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com",
   "SubnetIds": ["subnet-0123456789abcdef0"], "LustreConfiguration": {"MountName": "abcdef01"}}
]}
J
files='cluster-config.json provisioning_parameters.json fsx.json'
lint() { run tern cluster lint $files; }
# FILE LINE KIND ID NAME SED-SCRIPT: the good files, FILE of them after the script, have a finding ID on
# LINE (KIND: E error, W warning), and no error of another kind.
finds() {
    cp good/* .; sed -i "$6" "$1"; lint
    local word=error wanted=2
    [ "$3" = E ] || { word=warning; wanted=0; }
    grep -qE "^$1:$2: $word: $4: .+[.?]\$" err && [ "$rc" = $wanted ] && ! grep -E '^[^ ]*json:[0-9]+: error: ' err | grep -qv ": $4: "
    ok $? "$5: the only error is $4" || { echo "# got $rc"; sed 's/^/# /' err; }
}
c=cluster-config.json p=provisioning_parameters.json
cp good/* .; lint; status 0 'HyperPod'"'"'s good files have no finding'; [ ! -s err ]; ok $? 'nothing is found in them' || cat err
finds $p 4 E pod-group-missing 'a controller group of another name' 's/"controller-machine"/"controller"/'
finds $p 7 E pod-group-missing 'a worker group of another name' 's/worker-group-1/worker-group-2/; '
err_has "did you mean 'worker-group-1'?" 'the error has the nearest name'
finds $p 5 E pod-group-missing 'a login group that is not there' 's/"login-group"/"visitors"/'
finds $p 5 E pod-group-twice 'a group of two parts' 's/"login-group"/"controller-machine"/'
cp good/* .; sed -i 's/"login-group"/"controller-machine"/' $c; lint; err_has "$c:7: error: pod-group-twice" 'two groups of one name'
cp good/* .; sed -i '/login_group/d' $p; lint; err_has "$c:7: warning: pod-group-unused" 'a group that no file names'; status 0
finds $c 4 E pod-count 'two controllers' '4s/"InstanceCount": 1/"InstanceCount": 2/'
cp good/* .; sed -i '4s/"InstanceCount": 1/"InstanceCount": 2/' $c; sed -i 's/"version"/"slurm_configurations": {}, &/' $p; lint; status 0 'two controllers with slurm_configurations'
finds $c 10 E pod-count 'fewer nodes than the least' 's/"InstanceCount": 4/"InstanceCount": 4, "MinInstanceCount": 5/'
finds $c 10 E value-range 'more nodes than a group may have' 's/"InstanceCount": 4/"InstanceCount": 6759/'
finds $c 4 E pod-count 'no controller' '4s/"InstanceCount": 1/"InstanceCount": 0/'
finds $c 10 E key-missing 'a group without a type' 's/"InstanceType": "ml.trn1.32xlarge", //'
finds $c 10 E value-type 'a number in quotes' 's/"InstanceCount": 4/"InstanceCount": "4"/'
finds $c 8 W pod-lifecycle 'another script for one group' '8s/on_create.sh/create.sh/'
finds $c 11 W pod-lifecycle 'another folder for one group' '11s/bucket.src/bucket\/other/'
finds $c 12 E pod-slurm 'a worker that is a login node' 's/"Compute"/"Login"/'
finds $c 12 E pod-slurm 'another partition' 's/\["train"\]/["dev"]/'
finds $c 12 E list-length 'two partitions' 's/\["train"\]/["train", "dev"]/'
finds $c 13 E value-range 'a volume of nothing' 's/500/0/'
finds $c 14 E value-word 'an unknown health check' 's/InstanceStress/Stress/'
finds $c 6 E value-word 'three threads a core' '6s/"ThreadsPerCore": 1/"ThreadsPerCore": 3/'
finds $c 6 E value-form 'a role that is none' '6s/arn:aws:iam/arn:aws:s3/'
finds $c 2 E value-form 'a name with a blank' 's/"ml-cluster"/"ml cluster"/'
finds $c 10 E value-form 'a type of EC2' 's/ml.trn1/trn1/'
finds $c 5 E value-form 'a script at no S3 address' '5s,s3://bucket/src,/home/src,'
finds $c 6 E key-unknown 'a misspelt key' '6s/ThreadsPerCore/ThreadPerCore/'; err_has "Did you mean 'ThreadsPerCore'?" 'the error has the nearest key'
finds $p 9 E pod-fsx-pair 'a host without a mount name' '/fsx_mountname/d; s/amazonaws.com",/amazonaws.com"/'
finds $p 9 E pod-fsx-other 'another file system' 's/fs-0123456789abcdef0/fs-1123456789abcdef0/'
finds $p 9 E pod-fsx-pair 'a host of nothing' 's/"fs-0123456789abcdef0.*com"/"fs-0123456789abcdef0.local"/'
finds $p 10 E pod-fsx-other 'another mount name' 's/"abcdef01"/"abcdef02"/'
finds $c 17 W pod-fsx-network 'nodes in another subnet' 's/subnet-0123456789abcdef0/subnet-1123456789abcdef0/'
finds $p 3 E value-word 'another workload manager' 's/"slurm"/"pbs"/'
finds $p 2 E key-unknown 'a key that is nowhere' 's/"version"/"colour": 1, &/'
cp good/* .; sed -i 's/, *"VpcConfig": {.*/,/; /VpcConfig/d' $c; lint; err_has "warning: pod-fsx-network" 'a cluster without a network of its own'

sed 's/subnet-0123456789abcdef0/${PrivateSubnet}/' good/$c >$c; cp good/$p good/fsx.json .; lint; status 2; err_has "$c:17: error: value-variable" 'a value that is to be filled in'
echo PrivateSubnet=subnet-0123456789abcdef0 >values.txt; run tern cluster lint $files --vars values.txt; status 0 '--vars fills in a value'

# A bare list of groups, as --instance-groups takes it.
cp good/* .; python3 -c 'import json; json.dump(json.load(open("good/cluster-config.json"))["InstanceGroups"], open("cluster-config.json", "w"), indent=1)'
lint; status 0 'a bare list of groups'
sed -i 's/worker-group-1/workers/' $c; lint; status 2; err_has "$p:7: error: pod-group-missing" 'is judged, too'
# Each file alone, in another order, among layouts.
for f in $files; do cp good/* .; run tern cluster check $f; status 0 "$f alone is checked"; done
sed -i 's/worker-group-1/workers/' $p
run tern cluster check fsx.json "$ROOT/cluster-templates/trn1-4/cluster.yaml" $p $c; status 2; err_has pod-group-missing 'HyperPod files among layouts'; out_has trn1.32xlarge 'the layout is described'
run tern cluster check --json $p $c; status 2
is "$(python3 -c 'import json; print([(f["id"], f["file"], f["line"], f["severity"]) for a in json.load(open("out")) for f in a["findings"]])')" \
    "[('pod-group-missing', '$p', 7, 'error'), ('pod-group-unused', '$c', 10, 'warning')]" 'as JSON'
echo '{"a": 1}' >other.json; run tern cluster check other.json; status 2; err_has 'other.json:1: error: pod-file'
printf '{\n"a": 1,\n}' >broken.json; run tern cluster check broken.json; status 2; one_line; err_has 'broken.json:3'
printf '{"worker_groups": [], "worker_groups": []}' >twice.json; run tern cluster check twice.json; status 2; one_line
for text in '[1, null, {"InstanceGroupName": 7}]' '{"InstanceGroups": 4}' '{"InstanceGroups": {"a": 1}}' '{"worker_groups": [1, {}], "controller_group": [2]}' '{"FileSystems": [3]}' '[]' '{"FileSystemId": {}}' 'null' '3'; do
    echo "$text" >odd.json; run tern cluster check odd.json good/$c good/$p; [ "$rc" = 2 ] || [ "$rc" = 0 ]; ok $? "odd values: $text" || cat err
done
tap_done
