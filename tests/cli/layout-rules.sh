#!/bin/bash
# Rules of a layout that layout-lint.sh has no line for: one bad layout a rule, and what it is found to be.
# Layouts are JSON, which YAML reads, so that a row says what it changes and nothing else.
. "$(dirname "$0")/../lib/tap.sh"

cat >rows.py <<'P'
"""Write a layout a row; print 'FILE ID SEVERITY NAME'."""
import copy, json

SECRET = "arn:aws:secretsmanager:us-west-2:123456789012:secret:x"
A = "0123456789abcdef"
BASE = {
    "Region": "us-west-2", "Image": {"Os": "ubuntu2204"},
    "HeadNode": {"InstanceType": "c5.4xlarge", "Networking": {"SubnetId": f"subnet-{A}0"}, "Ssh": {"KeyName": "my-key"}},
    "Scheduling": {"Scheduler": "slurm", "SlurmSettings": {"ScaledownIdletime": 10}, "SlurmQueues": [{
        "Name": "trn1", "CapacityType": "ONDEMAND",
        "Networking": {"SubnetIds": [f"subnet-{A}1"], "PlacementGroup": {"Enabled": True}},
        "ComputeResources": [{"Name": "trn1", "InstanceType": "trn1.32xlarge", "MinCount": 4, "MaxCount": 4, "Efa": {"Enabled": True}}]}]},
    "SharedStorage": [{"Name": "fsx", "MountDir": "/fsx", "StorageType": "FsxLustre",
                       "FsxLustreSettings": {"StorageCapacity": 1200, "DeploymentType": "SCRATCH_2"}}],
}
S = "Scheduling.SlurmSettings."
Q = "Scheduling.SlurmQueues.0."
N = Q + "Networking."
C = Q + "ComputeResources.0."
F = "SharedStorage.0.FsxLustreSettings."
TWO = {N + "SubnetIds": [f"subnet-{A}1", f"subnet-{A}2"], "SharedStorage": None}
PLAIN = {C + "InstanceType": "c5.large", C + "Efa": None, N + "PlacementGroup": None}
DIRECTORY = {"DomainName": "corp.example.com", "DomainAddr": "ldaps://a", "DomainReadOnlyUser": "u", "PasswordSecretArn": SECRET}
DATABASE = {"Uri": "db.example.com:3306", "UserName": "u", "PasswordSecretArn": SECRET}
BLOCK = {"CapacityReservationId": f"cr-{A}0"}


def types(*names):
    return {**PLAIN, C + "InstanceType": None, C + "Instances": [{"InstanceType": n} for n in names]}


def queue(n=1, subnet=f"subnet-{A}1", **more):
    return {"Name": "cpu", "Networking": {"SubnetIds": [subnet]}, **more,
            "ComputeResources": [{"Name": f"c{i}", "InstanceType": "c5.large", "MaxCount": 1} for i in range(n)]}


def storage(kind, folder="/b", **settings):
    return {"Name": "b", "MountDir": folder, "StorageType": kind, **({kind + "Settings": settings} if settings else {})}


ROWS = [
    ("head-efs", "error", "settings of an EFS that the head node does not share", {"HeadNode.SharedStorageEfsSettings": {"Encrypted": True}}),
    ("intel-hpc", "error", "Intel's HPC platform", {"AdditionalPackages": {"IntelSoftware": {"IntelHpcPlatform": True}}}),
    ("resource-count", "error", "51 compute resources", {"Scheduling.SlurmQueues.+": queue(50)}),
    ("root-encryption", "warning", "a queue whose root volume is not encrypted, beside one that is",
     {"Scheduling.SlurmQueues.+": queue(ComputeSettings={"LocalStorage": {"RootVolume": {"Encrypted": False}}})}),
    ("logs-lost", "warning", "logs that are rotated and go to no CloudWatch", {"Monitoring": {"Logs": {"CloudWatch": {"Enabled": False}}}}),
    ("custom-url", "error", "settings in a file of this machine", {S + "CustomSlurmSettingsIncludeFile": "/home/me/slurm.conf"}),
    ("setting-nodes", "error", "a node of one's own with a name of ParallelCluster's", {S + "CustomSlurmSettings": [{"NodeName": "a-st-b-1", "CPUs": 4}]}),
    ("database-both", "error", "two accounting databases", {S + "Database": DATABASE, S + "ExternalSlurmdbd": {"Host": "db"}, S + "MungeKeySecretArn": SECRET}),
    ("database-uri", "error", "a database's address with its protocol", {S + "Database": {**DATABASE, "Uri": "mysql://db"}}),
    ("slurmdbd-open", "warning", "a slurmdbd outside the cluster", {S + "ExternalSlurmdbd": {"Host": "db"}, S + "MungeKeySecretArn": SECRET}),
    ("domain-name", "error", "a directory's domain with a blank", {"DirectoryService": {**DIRECTORY, "DomainName": "corp example"}}),
    ("domain-sssd", "error", "an sssd that asks no LDAP", {"DirectoryService": {**DIRECTORY, "AdditionalSssdConfigs": {"id_provider": "ad"}}}),
    ("iam-prefix", "error", "a prefix of roles with a blank", {"Iam": {"ResourcePrefix": "a b"}}),
    ("dev-url", "error", "a package of this machine", {"DevSettings": {"NodePackage": "/home/me/node.tgz"}}),
    ("dev-chef", "error", "attributes of Chef that are no JSON", {"DevSettings": {"Cookbook": {"ExtraChefAttributes": "{"}}}),
    ("name-taken", "error", "a queue of the name default", {Q + "Name": "default"}),
    ("pool-unknown", "warning", "login nodes of a type outside the catalogue",
     {"LoginNodes": {"Pools": [{"Name": "a", "InstanceType": "z1d.large", "Count": 1, "Networking": {"SubnetIds": [f"subnet-{A}0"]}}]}}),
    ("tag-count", "error", "41 tags of a node", {C + "Tags": [{"Key": f"k{i}", "Value": "v"} for i in range(41)]}),
    ("subnet-type", "error", "an InstanceType in two subnets", {**PLAIN, **TWO}),
    ("group-off", "error", "a placement group that has a name and is off", {N + "PlacementGroup": {"Name": "mine", "Enabled": False}}),
    ("group-subnets", "error", "a placement group in two subnets", {**types("c5.large"), **TWO, N + "PlacementGroup": {"Enabled": True}}),
    ("reservation-arn", "error", "reservations by the ARN of another service", {Q + "CapacityReservationTarget": {"CapacityReservationResourceGroupArn": "arn:aws:ec2:us-west-2:1:group/g"}}),
    ("type-trainium", "error", "a size that Trn1 does not have", {C + "InstanceType": "trn1.16xlarge"}),
    ("type-twice", "error", "an instance type given twice", types("c5.large", "c5.large")),
    ("type-os", "error", "an operating system that the type does not run", {"Image.Os": "rhel9", "HeadNode.InstanceType": "c7g.4xlarge", C + "InstanceType": "p6e-gb200.36xlarge"}),
    ("type-mixed", "error", "instance types of 2 and of 4 CPUs", types("c5.large", "c5.xlarge")),
    ("type-reservation", "error", "several types in one reservation", {**types("c5.large", "m5.large"), C + "CapacityReservationTarget": BLOCK}),
    ("strategy", "error", "a strategy of spot instances on demand", {**types("c5.large"), Q + "AllocationStrategy": "capacity-optimized"}),
    ("block-group", "warning", "a placement group for a capacity block", {Q + "CapacityType": "CAPACITY_BLOCK", Q + "CapacityReservationTarget": BLOCK}),
    ("efa-subnets", "error", "EFA in two subnets", {**types("c5n.18xlarge"), **TWO, C + "Efa": {"Enabled": True}}),
    ("storage-name", "error", "a storage's name with a blank", {"SharedStorage.0.Name": "my fsx"}),
    ("storage-twice", "error", "a file system that is mounted twice",
     {"SharedStorage.+": storage("FsxLustre", FileSystemId=f"fs-{A}0"), "SharedStorage.0.FsxLustreSettings": {"FileSystemId": f"fs-{A}0"}}),
    ("storage-subnets", "error", "a new FSx for queues in two subnets", {"Scheduling.SlurmQueues.+": queue(subnet=f"subnet-{A}2")}),
    ("mount-cache", "error", "a file cache as /home", {"SharedStorage.0": storage("FileCache", "/home", FileCacheId=f"fc-{A}0")}),
    ("settings-none", "error", "an ONTAP volume without its id", {"SharedStorage.0": storage("FsxOntap")}),
    ("fsx-backup", "error", "a backup with a size of its own", {F + "BackupId": f"backup-{A}0"}),
    ("fsx-links", "error", "links to S3 in both ways",
     {F + "ImportPath": "s3://b/k", F + "DataRepositoryAssociations": [{"Name": "a", "FileSystemPath": "/a", "DataRepositoryPath": "s3://b/a"}]}),
    ("fsx-url", "error", "an FSx that imports from a folder", {F + "ImportPath": "/data"}),
    ("fsx-hdd", "error", "hard disks of a SCRATCH_2", {F + "StorageType": "HDD"}),
    ("efs-existing", "error", "settings of an EFS that exists", {"SharedStorage.0": storage("Efs", FileSystemId=f"fs-{A}0", Encrypted=True)}),
    ("volume-size", "error", "a volume of 20,000 GiB", {"SharedStorage.0": storage("Ebs", Size=20000)}),
]


def put(layout, path, value):
    """None removes the key; '+' appends to a list."""
    *folders, last = path.split(".")
    for name in folders:
        layout = layout[int(name)] if isinstance(layout, list) else layout.setdefault(name, {})
    if last == "+":
        layout.append(value)
    elif isinstance(layout, list):
        layout[int(last)] = value
    elif value is None:
        layout.pop(last, None)
    else:
        layout[last] = value


json.dump(BASE, open("base.yaml", "w"))
for rule, severity, name, changes in ROWS:
    layout = copy.deepcopy(BASE)
    for path, value in changes.items():
        put(layout, path, copy.deepcopy(value))
    json.dump(layout, open(rule + ".yaml", "w"))
    print(rule, severity, name)
P
python3 rows.py >rows || exit 1
run tern cluster check base.yaml; status 0; is "$(cat err)" "" "the layout that each row changes has no finding"

# shellcheck disable=SC2046
run tern cluster check --json $(sed 's/ .*/.yaml/' rows); status 2
jq -r '.[] | .layout as $l | .findings[] | [($l | rtrimstr(".yaml")), .id, .severity, (.where | length > 0), (.text | length > 20)] | join(" ")' out >found
# Errors: of the rule alone. Warnings of other rules may stand beside it.
while read -r rule severity name; do
    grep -q "^$rule $rule $severity true true\$" found && ! grep "^$rule [a-z0-9-]* error " found | grep -qv "^$rule $rule "
    ok $? "$name: the $severity is $rule" || grep "^$rule " found | sed 's/^/# /'
done <rows

# Each rule between keys has a layout that it finds something in: here, or in layout-lint.sh.  Those of
# HyperPod's files (pod-*) have theirs in hyperpod.sh.
tern help checks | awk '/And between keys:$/ {on = 1; next} /^[A-Z][A-Z]/ {on = 0} on && /^  [a-z]/ && !/^  pod-/ {print $1}' | sort -u >rules
{ sed 's/ .*//' rows; sed -n 's/^finds \([a-z0-9-]*\) .*/\1/p' "$ROOT/tests/cli/layout-lint.sh"; } | sort -u >held
[ "$(wc -l <rules)" -gt 80 ]; ok $? "the help page of checks lists the rules of layouts" || wc -l rules
comm -23 rules held >none; [ ! -s none ]; ok $? "each rule of layouts has a test" || sed 's/^/# /' none
tap_done
