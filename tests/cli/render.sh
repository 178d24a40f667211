#!/bin/bash
# tern cluster render: golden files, their sameness, --diff, folders, and names that would be commands.
#
#   New golden files, after a look at what changed (--diff tests/golden/render/FORM):
#     cd tests/golden/render && tern cluster render cluster.yaml --to FORM --vars values.txt -o FORM
#     likewise --slurm RELEASE -o slurm-RELEASE, of the oldest and the newest release
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/aws.sh"
# The golden files, with the version of this tree where they have that of another, and in the digests.
golden=$WORK/golden/render
mkdir golden; cp -r "$ROOT/tests/golden/render" golden
version=$(sed -n 's/^#define TERN_VERSION "\(.*\)"/\1/p' "$ROOT/core/base/version.h")
grep -rlE 'tern-[0-9]+\.[0-9]+\.[0-9]+' "$golden" >versions
while read -r file; do
    before=$(sha256sum <"$file")
    sed -i -E "s/tern-[0-9]+\.[0-9]+\.[0-9]+/tern-$version/g" "$file"
    after=$(sha256sum <"$file")
    sed -i "s/${before%% *}/${after%% *}/" "$golden"/*/tern-render.json
done <versions
[ "$(wc -l <versions)" -gt 5 ]; ok $? "the golden files name packages of tern by their version" || cat versions
template=$ROOT/cluster-templates/trn1-4/cluster.yaml
forms='pcluster cfn hyperpod batch'
# FORM: its golden layout into folder FORM.
render() { run tern cluster render "$golden/cluster.yaml" --to "$1" --vars "$golden/values.txt" -o "$1"; }

for form in $forms; do
    (cd "$golden" && tern cluster render cluster.yaml --to "$form" --vars values.txt --diff "$form") >out 2>err; rc=$?
    status 0 "$form: the golden files are rendered" || cat out
    render "$form"; status 0 "$form: a folder is written"
    diff -r "$golden/$form" "$form" >differ; ok $? "$form: it is the golden folder, byte for byte" || head -40 differ
    ! grep -q 'to fill in' out; ok $? "$form: all values are known"
    [ -x "$form/create.sh" ] && [ -x "$form/delete.sh" ]; ok $? "$form: programs may be run"
    render "$form"; status 0 "$form: the folder is replaced by a later rendering"
    ls -d "$form".tmp-* >left 2>/dev/null; [ ! -s left ]; ok $? "$form: nothing is left beside it"
    if command -v shellcheck >/dev/null; then
        find "$form" -type f -perm -100 -print0 | xargs -0 shellcheck >lint 2>&1; ok $? "$form: shellcheck finds nothing" || cat lint
    else
        skip "shellcheck is not installed"
    fi
    rm -rf here; run tern cluster render "$template" --to "$form" -o here; status 0 "$form: values may be missing"
    [ $form != cfn ] || continue # the values are what it makes
    out_has 'to fill in, with --vars FILE: ' "$form: they are listed"
    needs=Bucket; [ $form != batch ] || needs=SecurityGroup
    out_has "\${$needs}" "$form: by name"; [ "$(grep -rl "^missing=.*$needs" here)" ]; ok $? "$form: its programs know that"
    for program in create delete; do
        run here/$program.sh; status 1 "$form: $program.sh does nothing without them"; err_has 'values are missing: '
    done
done

# ---- folders and --diff
render pcluster
out_has "a section has a role of the layout's: it must allow s3:GetObject" 'a role of the site is left alone, and told of'
out_has 'login nodes have no OnNodeConfigured' 'so are login nodes, which have no right to read a bucket'
mkdir theirs; echo mine >theirs/notes
run tern cluster render "$template" --to pcluster -o theirs; status 2 'a folder of other files is refused'; one_line
is "$(ls theirs)" notes 'the folder of other files stays as it was'
echo mine >pcluster/notes; render pcluster; status 2 'a file beside rendered ones is refused'; err_has 'pcluster/notes: was not rendered by tern'
rm pcluster/notes; sed -i 's/MaxCount: 16/MaxCount: 32/' pcluster/cluster.yaml
render pcluster; status 2 'an edited file is not overwritten'; err_has 'pcluster/cluster.yaml: was changed since'
run tern cluster render "$golden/cluster.yaml" --to pcluster --vars "$golden/values.txt" --diff pcluster
status 1 '--diff of an edited file'; has out '-          MaxCount: 32'; has out '+          MaxCount: 16'
is "$(grep -c '^[-+] ' out)" 2 '--diff shows only the edited line'
if command -v patch >/dev/null; then
    cp -r pcluster patched; sed -n '/^--- pcluster/,$p' out | (cd patched && patch -s -p0 cluster.yaml) 2>/dev/null
    cmp -s patched/cluster.yaml "$golden/pcluster/cluster.yaml"; ok $? 'patch(1) takes the diff'
else
    skip 'patch is not installed'
fi
sed -i 's/MinCount: 8/MinCount: 9/; /MaxCount: 32/s/32/16/; s/InstanceType: trn1.32xlarge/InstanceType: trn1n.32xlarge/' pcluster/cluster.yaml
run tern cluster render "$golden/cluster.yaml" --to pcluster --vars "$golden/values.txt" --diff pcluster
is "$(grep -c '^@@' out) $(grep -c '^[-+] ' out)" '1 4' 'two changes that are near each other are one hunk'
rm pcluster/delete.sh
run tern cluster render "$golden/cluster.yaml" --to pcluster --vars "$golden/values.txt" --diff pcluster; status 1; has out '--- /dev/null' 'a missing file is new'
run tern cluster render "$template" --to pcluster --diff nowhere; status 2 '--diff with a folder that is not there'; one_line
run tern cluster render "$template" --to pcluster --diff theirs -o here; status 2 '--diff and -o'
run tern cluster render "$template" --to terraform; status 2; err_has "'terraform' is not one of: slurm, pcluster"
ln -s theirs link; run tern cluster render "$template" --to pcluster -o link; status 2 'a link is not replaced'
sed 's/MaxCount: 4/MaxCount: 3/' "$template" >bad.yaml
run tern cluster render bad.yaml --to pcluster -o none; status 2; [ ! -e none ]; ok $? 'nothing is rendered from a bad layout'
rm -rf pcluster; render pcluster; before=$(cat pcluster/* | cksum)
said=$(trap '' XFSZ; ulimit -f 0; tern cluster render "$template" --to pcluster -o pcluster 2>&1); [ $? != 0 ] && [ "$(cat pcluster/* | cksum)" = "$before" ]
ok $? 'a write that fails (no room) leaves the earlier rendering' || echo "# $said"
ls -d pcluster.tmp-* >left 2>/dev/null; [ ! -s left ]; ok $? 'a failed render leaves no temporary folder'

# Any edits: what --diff says leads from the edited files to the rendered ones.
if command -v patch >/dev/null; then
    python3 - "$golden" <<'P'
import os, random, shutil, subprocess, sys
golden, rng = sys.argv[1], random.Random(1)
for case in range(25):
    shutil.rmtree("edited", ignore_errors=True)
    shutil.copytree(golden + "/pcluster", "edited")
    path = "edited/" + ["cluster.yaml", "create.sh"][case % 2]
    lines = open(path).read().split("\n")
    for _ in range(rng.randint(1, 12)):
        i = rng.randrange(len(lines))
        added = rng.randint(0, 3)
        lines[i:i + (rng.randint(0, 4) if added else 2)] = ["edit %d" % rng.randrange(3) for _ in range(added)]
    if case > 20:
        lines = lines[:rng.choice([0, 5])]
    open(path, "w").write("\n".join(lines))
    diff = subprocess.run(["tern", "cluster", "render", golden + "/cluster.yaml", "--to", "pcluster", "--vars", golden + "/values.txt",
                           "--diff", "edited"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    patched = subprocess.run(["patch", "-s", "--fuzz=0", path], input=diff.stdout, stdout=subprocess.PIPE)
    want = open(golden + "/pcluster/" + os.path.basename(path)).read()
    assert diff.returncode == 1 and patched.returncode == 0 and open(path).read() == want, case
P
    ok $? '--diff of 25 random edits leads from each to the rendered files'
else
    skip 'patch is not installed'
fi

# ---- the layout in one form
run tern cluster render pcluster/cluster.yaml --to pcluster --vars "$golden/values.txt" -o again
cmp -s pcluster/cluster.yaml again/cluster.yaml; ok $? 'a normalised layout gives itself'
run tern cluster check pcluster/cluster.yaml; status 0 'a normalised layout passes the check'
run tern cluster render "$golden/cluster.yaml" --to pcluster -o draft; status 0 'variables without a value stay'
has draft/cluster.yaml "'\${PrivateSubnet}'"; out_has '${PublicSubnet} ${PrivateSubnet}' 'variables without a value are listed'
printf '{"Bucket": "b", "FileSystemId": "fs-0123456789abcdef0", "TernPackage": "s3://b/deb/"}' >fs.json
run tern cluster render "$template" --to pcluster --vars fs.json -o fs; status 0
grep -A1 FsxLustreSettings fs/cluster.yaml | grep -q 'FileSystemId: fs-0123456789abcdef0'; ok $? 'the file system of the stack is used instead of a new one'
has fs/cluster.yaml "- 's3://b/deb/'" 'TernPackage is what nodes install'
sed 's/b.deb/other\/deb/' fs.json >other.json; run tern cluster render "$template" --to pcluster --vars other.json -o other; out_has 's3://other/deb/ is not in s3://b/, which nodes may read'
printf '%s\n' 'Tags: [{Key: a, Value: "\u0085\u2028x\ty \"q\" \\ \x07"}, {Key: b, Value: "it'"'"'s \u00fc"}, {Key: c, Value: "Yes"}, {Key: "null", Value: "010"}]' | cat "$template" - >odd.yaml
run tern cluster render odd.yaml --to pcluster -o odd; status 0; has odd/cluster.yaml '"\u0085\u2028x\x09y \"q\" \\ \x07"' 'characters that end a line, or are none, are escaped'
has odd/cluster.yaml "Value: 'Yes'" 'a text that YAML takes for true is quoted'; has odd/cluster.yaml "Key: 'null'"; has odd/cluster.yaml "Value: '010'"
run tern cluster render odd/cluster.yaml --to pcluster -o odd2; cmp -s odd/cluster.yaml odd2/cluster.yaml; ok $? 'a layout with odd characters is read back the same'
printf 'NAME\n' >bad.txt; run tern cluster render "$template" --vars bad.txt; status 2; err_has 'bad.txt:1: is no line NAME=value'

# ---- CloudFormation: what EFA and nodes of several network cards need
python3 - <<'P'
import json
r = json.load(open("cfn/stack.json"))["Resources"]
group = {"Fn::GetAtt": ["SecurityGroup", "GroupId"]}
for kind, other in (("Ingress", "Source"), ("Egress", "Destination")):
    rules = [x["Properties"] for x in r.values() if x["Type"] == "AWS::EC2::SecurityGroup" + kind]
    assert [p for p in rules if p["GroupId"] == group and p[other + "SecurityGroupId"] == group and p["IpProtocol"] == "-1"], kind
assert r["PrivateSubnet"]["Properties"]["MapPublicIpOnLaunch"] is False
assert r["PrivateSubnet"]["Properties"]["AvailabilityZone"] == r["PublicSubnet"]["Properties"]["AvailabilityZone"]
assert r["PrivateRoute"]["Properties"]["NatGatewayId"] == {"Ref": "NatGateway"}
assert r["NatGateway"]["Properties"]["SubnetId"] == {"Ref": "PublicSubnet"}
assert r["FileSystem"]["Properties"]["StorageCapacity"] == 2400
assert r["FileSystem"]["Properties"]["LustreConfiguration"] == {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250}
assert r["Bucket"]["DeletionPolicy"] == "RetainExceptOnCreate"
P
ok $? 'cfn: all traffic inside the group in both directions, a private subnet behind NAT, the layout'"'"'s file system'
sed 's/FsxLustreSettings:/FsxLustreSettings: {FileSystemId: fs-0123456789abcdef0}/; /StorageCapacity/d; /DeploymentType/d' "$template" >there.yaml
run tern cluster render there.yaml --to cfn -o there; status 0; ! grep -q AWS::FSx there/stack.json; ok $? 'cfn: a file system that is there is not made again'
sed 's/FsxLustreSettings:/FsxLustreSettings: {FileSystemId: "${FileSystemId}"}/; /StorageCapacity/d; /DeploymentType/d' "$template" >made.yaml
run tern cluster render made.yaml --to cfn -o made; status 0; has made/stack.json '"SCRATCH_2"' 'cfn: one whose id shall be the stack'"'"'s is made'
sed 's/DeploymentType: .*/&\n      ImportPath: s3:\/\/b\/p/' "$template" >import.yaml
run tern cluster render import.yaml --to cfn -o import; status 0; out_has 'the stack does not have ImportPath of FsxLustreSettings'
# What it prints is a file for --vars.
printf '{"Stacks": [{"Outputs": [{"OutputKey": "Bucket", "OutputValue": "b"}, {"OutputKey": "FileSystemId", "OutputValue": "fs-0123456789abcdef0"}]}]}' >outputs.json
run tern cluster render made.yaml --to pcluster --vars outputs.json -o from; status 0; ! grep -q 'to fill in' out; ok $? 'cfn: its outputs fill a layout'

# ---- HyperPod: one of the two files is of the other
run tern cluster check hyperpod/cluster-config.json hyperpod/lifecycle/provisioning_parameters.json; status 0 'hyperpod: tern finds nothing in what it renders'
[ ! -s err ]; ok $? 'hyperpod: tern has no warning about its rendering' || cat err
sed 's/MinCount: 4/MinCount: 0/' "$template" >dynamic.yaml
run tern cluster render dynamic.yaml --to hyperpod; status 2 'hyperpod: a queue of dynamic nodes alone is refused'; err_has 'dynamic.yaml:26: trn1 has no static nodes'
sed 's/trn1.32xlarge/trn1.2xlarge/; s/MaxCount: 4/MaxCount: 1/; s/MinCount: 4/MinCount: 1/; /Efa/,+1d' "$template" >small.yaml
run tern cluster render small.yaml --to hyperpod; status 2; err_has 'HyperPod has no ml.trn1.2xlarge'
sed 's/FsxLustreSettings:/FsxLustreSettings: {FileSystemId: fs-0123456789abcdef0}/; /StorageCapacity/d; /DeploymentType/d' "$template" >there.yaml
run tern cluster render there.yaml --to hyperpod -o there2; has there2/lifecycle/provisioning_parameters.json '"fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com"' 'hyperpod: the host of a file system is made of its id'

# ---- Batch: what a multi-node job on Trainium needs
python3 - <<'P'
import json
load = lambda n: json.load(open("batch/%s.json" % n))
t = load("launch-template")["LaunchTemplateData"]
assert [(i["NetworkCardIndex"], i["DeviceIndex"], i["InterfaceType"]) for i in t["NetworkInterfaces"]] == [(i, min(i, 1), "efa") for i in range(8)]
assert all(i["Groups"] == ["sg-0123456789abcdef0"] and i["SubnetId"] == "subnet-0123456789abcdef1" for i in t["NetworkInterfaces"])
assert t["Placement"] == {"GroupName": "render"} and t["MetadataOptions"]["HttpTokens"] == "required"
e = load("compute-environment")["computeResources"]
assert e["maxvCpus"] == 16 * 128 and e["minvCpus"] == 0 and e["launchTemplate"]["version"] == "$Latest"
assert "securityGroupIds" not in e and e["instanceTypes"] == ["trn1.32xlarge"]
assert load("job-queue")["computeEnvironmentOrder"] == [{"order": 1, "computeEnvironment": "render"}]
j = load("job-definition")
n = j["nodeProperties"]
c = n["nodeRangeProperties"][0]["container"]
assert j["type"] == "multinode" and n["mainNode"] == 0 and n["numNodes"] == 16 and n["nodeRangeProperties"][0]["targetNodes"] == "0:"
assert [d["hostPath"] for d in c["linuxParameters"]["devices"]] == ["/dev/infiniband/uverbs%d" % i for i in range(8)] + ["/dev/neuron%d" % i for i in range(16)]
assert {x["type"]: x["value"] for x in c["resourceRequirements"]} == {"VCPU": "128", "MEMORY": "498073"}
assert c["ulimits"] == [{"name": "memlock", "softLimit": -1, "hardLimit": -1}] and c["mountPoints"][0]["containerPath"] == "/fsx"
assert c["image"].startswith("123456789012.dkr.ecr.us-west-2.amazonaws.com/tern:tern-")
assert c["environment"] == [{"name": "NEURON_COMPILE_CACHE_URL", "value": "s3://tern-bucket/neuron-cache"}]
assert j["retryStrategy"]["evaluateOnExit"][1] == {"onExitCode": "75", "action": "RETRY"} and j["timeout"]["attemptDurationSeconds"] > 0
P
ok $? 'batch: interfaces, placement, devices, memory and retries of 16 trn1.32xlarge'
sed 's/CapacityType: ONDEMAND/CapacityType: SPOT/' "$template" >spot.yaml
run tern cluster render spot.yaml --to batch; status 2 'batch: spot instances are refused'; err_has 'spot.yaml:18: Batch runs no multi-node job on spot instances'

aws batch/create.sh; status 0 'batch: create.sh makes each before what needs it' || cat state.log
is "$(ls state | tr '\n' ' ')" 'definition environment group queue template ' 'batch: all of it is there'
python3 - <<'P'
import base64, email, json
d = json.load(open("state.data"))
part, = email.message_from_bytes(base64.b64decode(d["UserData"])).get_payload()
assert d["ImageId"] == "ami-0123456789abcdef0" and part.get_content_type() == "text/x-shellscript"
assert part.get_payload().rstrip("\n") == open("batch/node-setup.sh").read().rstrip("\n")
P
ok $? 'batch: instances run node-setup.sh'
has state.log amazon-linux-2023/neuron/recommended/image_id "batch: instances have Neuron's driver"
run tern cluster render "$ROOT/cluster-templates/cpu-efa/cluster.yaml" --to batch --vars "$golden/values.txt" -o cpu
grep -qx "kind=''" cpu/create.sh && ! grep -q /dev/neuron cpu/*.json; ok $? 'batch: CPU nodes have no Neuron devices, and a plain image'
aws batch/create.sh; status 0 'batch: create.sh may run again'; is "$(grep -c 'create-job-queue\|create-compute-environment\|create-placement-group\|create-launch-template ' state.log)" 4 'batch: a second create.sh makes nothing twice'
aws batch/submit.sh -n 2 "a 'job" tern run "x y.yaml" '$(touch hacked)'; status 0; is "$(cat out)" 7f3c "batch: submit.sh prints the job's id"
python3 - <<'P'
import json
a = open("state.job").read().split("\n")
o = json.loads(a[a.index("--node-overrides") + 1])
assert o == {"numNodes": 2, "nodePropertyOverrides": [{"targetNodes": "0:", "containerOverrides": {"command": ["tern", "run", "x y.yaml", "$(touch hacked)"]}}]}, o
assert a[a.index("--job-name") + 1] == "a 'job"
P
ok $? 'batch: the command arrives as it is'
aws batch/submit.sh -n two j c; status 1; err_has 'no number of nodes'; aws batch/submit.sh j; status 1
aws batch/delete.sh; status 0 'batch: delete.sh takes each away before what it needs' || tail -5 state.log
is "$(ls state)" '' 'batch: nothing is left'
aws batch/delete.sh; status 0 'batch: delete.sh of nothing'

# ---- releases of Slurm
for release in 22.05 26.05; do
    # (the layout's path stands in the files)
    (cd "$golden" && tern cluster render cluster.yaml --slurm $release --vars values.txt -o "$WORK/slurm-$release") >out 2>err; rc=$?
    status 0 "Slurm $release: a folder is written"
    diff -r "$golden/slurm-$release" slurm-$release >differ; ok $? "Slurm $release: the folder is the golden one, byte for byte" || head -40 differ
    (cd "$golden" && tern cluster render cluster.yaml --slurm $release --vars values.txt --diff slurm-$release) >out 2>err; rc=$?
    status 0 "Slurm $release: --diff says that the golden files are rendered" || cat out
done
run tern cluster render "$template" --slurm 24.11; status 0; out_has '# For Slurm 24.11.'; out_has '######## topology.conf'
! grep -q 'SwitchType\|CredType' out; ok $? 'no settings that 23.11 made needless'
run tern cluster render "$template" --slurm 22.05; out_has 'SwitchType=switch/none'; out_has 'CredType=cred/munge'
run tern cluster render "$template" --slurm 26.05; status 0; out_has '######## topology.yaml'; ! grep -q '## topology.conf' out; ok $? 'from 25.05 on topology is YAML'
python3 - out <<'P'
import sys
text = open(sys.argv[1]).read().split("######## topology.yaml\n")[1].split("\n\n####")[0]
try:
    import yaml
except ImportError:
    sys.exit(0)
t = yaml.safe_load(text)
assert t == [{"topology": "tree", "cluster_default": True, "tree": {"switches": [
    {"switch": "trn1-trn1", "nodes": "trn1-st-trn1-[1-4]"}, {"switch": "spine", "children": "trn1-trn1"}]}}], t
P
ok $? 'topology.yaml has the switches and their nodes'
for release in 21.08 26.11 25 25.13 25.11x new; do run tern cluster render "$template" --slurm $release; status 2 "render refuses --slurm $release"; done
run tern cluster render "$template" --slurm 24.11 --to pcluster; status 2
run tern cluster render "$template" --slurm 26.05 -o conf; run tern cluster render "$template" --slurm 26.05 --diff conf; status 0 '--diff of Slurm files that are the same'
run tern cluster render "$template" --slurm 22.05 --diff conf; status 1 '--diff of another release'; has out '+SwitchType=switch/none'

# ---- names that would be commands, lines or options elsewhere
evil="x\$(touch hacked);\`touch hacked\`'\"
touch hacked #"
mkdir "$evil" && cp "$template" "$evil/cluster.yaml"
python3 - "$evil" <<'P'
import json, sys
e = sys.argv[1]
json.dump({n: e for n in "Region Bucket SecurityGroup PrivateSubnet ExecutionRoleArn InstanceProfileArn ImageRepository BaseImage "
           "TernPackage FileSystemId FileSystemDnsName FileSystemMountName".split()}, open("evil.json", "w"))
P
mkdir bin; : >a
printf '#!/bin/bash\nexec /bin/sleep 0.1\n' >bin/sleep
for tool in aws pcluster docker curl systemctl shutdown; do printf '#!/bin/bash\nprintf "%%s\\n" "%s" "$@" >>calls\nexit 1\n' $tool >bin/$tool; done
chmod +x bin/*
for form in $forms; do
    rm -rf evil calls; run tern cluster render "$evil/cluster.yaml" --to $form --vars evil.json -o evil; status 0 "$form: hostile names are rendered"
    for program in evil/*.sh; do PATH=$WORK/bin:$PATH timeout 600 bash "$program" a </dev/null >out 2>err; done
    [ ! -e hacked ] && [ ! -e evil/hacked ]; ok $? "$form: hostile names are no commands of its programs"
    python3 - calls "$evil" <<'P'
import sys
assert sys.argv[2] in open(sys.argv[1]).read()
P
    ok $? "$form: programs pass them on as they are" || cat err
done
run tern cluster render "$evil/cluster.yaml"; status 0 'a path with a line break is rendered for Slurm'
is "$(grep -c '^touch' out)" 0 'a line break in a path makes no line of slurm.conf'
tap_done
