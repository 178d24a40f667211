#!/bin/bash
# tern cluster plan: the commands of create.sh and delete.sh in their order, prices, and what still costs.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/aws.sh"
golden=$ROOT/tests/golden/render
cp "$golden/values.txt" .; cp "$ROOT/cluster-templates/trn1-4/cluster.yaml" trn.yaml
plan() { run tern cluster plan "$@"; }
# Commands of a plan: one a line, without words.
commands() { sed -n ':a; /\\$/ {N; s/ \\\n */ /; ba}; /^#/d; /^$/d; p' out; }
# Those that change something, or wait for it.
changes() { grep -E '^(aws|pcluster) ' | grep -vE ' (describe|get)-| s3 ls | describe-cluster'; }

touch PACKAGE
for form in pcluster cfn hyperpod batch; do
    plan trn.yaml --to $form --vars values.txt; status 0 "$form: a plan"; cp out plan-$form
    wide=$(wider 80 out); [ -z "$wide" ]; ok $? "$form: no line over 80 columns" || echo "# $wide"
    is "$(commands | head -n 1)" "tern cluster render trn.yaml --to $form --vars values.txt -o files && cd files" "$form: the files come first"
    has out 'what still costs after that' "$form: tells what stays"
    commands | sed 's/ >outputs.json$//' | changes | grep -v ' ssh ' >planned
    tern cluster render trn.yaml --to $form --vars values.txt -o files >/dev/null 2>&1
    rm -f state.log; args=PACKAGE
    case $form in cfn) args=ZONE ;; batch) args= ;; esac
    # shellcheck disable=SC2086
    aws files/create.sh $args; status 0 "$form: create.sh ends well" || cat err
    aws files/delete.sh; status 0 "$form: delete.sh ends well" || cat err
    is "$(ls state)" '' "$form: it is made and taken away"
    sed "s|$WORK/files/||; s|/PACKAGE\$|/|; s|\(--launch-template-data\) .*|\1 DATA|; s|arn:aws:batch:1|trn:REVISION|" state.log | changes >done
    [ -s planned ]; ok $? "$form: the plan has commands"
    diff planned done >differ; ok $? "$form: they are those of create.sh and delete.sh, in their order" || sed 's/^/# /' differ
    # As a shell reads them.
    bash -n out; ok $? "$form: a shell takes the plan"
    rm -rf files
done

# ---- costs
has plan-pcluster '86.68 USD an hour: c5.4xlarge (head node) 0.68, 4 x trn1.32xlarge 86.00' "pcluster: nodes and their price an hour"
has plan-pcluster 'EC2 on demand in us-east-1 (trn2: us-east-2), July 2026' "prices have a place and a date"
has plan-pcluster '/fsx: FsxLustre of 1200 GiB' "pcluster: a file system without a price is named"
! sed -n '/still costs/,/prices/p' plan-pcluster | grep -q FsxLustre; ok $? "pcluster: one that is deleted does not stay"
has plan-batch '21.50 USD an hour for each node, while jobs run; 86.00 for all 4' "batch: the price of jobs"
has plan-batch 'images in repository 123456789012.dkr.ecr.us-west-2.amazonaws.com/tern (ECR)' "batch: images stay"
is "$(grep -B 1 '^pcluster create' plan-pcluster | head -n 1 | grep -c USD)" 1 "a price stands before the command that it begins with"
has plan-hyperpod "EC2's of the same: 86.68 USD an hour" "hyperpod: numbers are EC2's, and say so"
has plan-cfn "the stack's bucket" "cfn: the bucket stays"; has plan-cfn 'NAT gateway' "cfn: the gateway has its price elsewhere"
sed 's/DeploymentType: .*/&\n      DeletionPolicy: Retain/; s/MaxCount: 4/MaxCount: 6/' trn.yaml >kept.yaml
plan kept.yaml --vars values.txt; status 0; out_has '/fsx (FsxLustre): its DeletionPolicy is Retain' "a retained file system still costs"
out_has 'while jobs want them also 2' "dynamic nodes cost while jobs want them"; tr '\n' ' ' <out | grep -q 'x trn1.32xlarge *#* *43.00'; ok $? "the plan has the price of dynamic nodes"
plan kept.yaml --to cfn; out_has '/fsx (FsxLustre): its DeletionPolicy is Retain' "cfn: a retained file system still costs"
sed 's/FsxLustreSettings:/FsxLustreSettings: {FileSystemId: fs-0123456789abcdef0}/; /StorageCapacity/d; /DeploymentType/d' trn.yaml >there.yaml
plan there.yaml; out_has '/fsx (FsxLustre): it was there before, and stays' "a file system that was there stays"
printf '{"FileSystemId": "fs-0123456789abcdef0"}' >fs.json
plan trn.yaml --vars fs.json; out_has '/fsx (FsxLustre): it was there before, and stays' "so does one of --vars"
{ cat trn.yaml; echo 'LoginNodes: {Pools: [{Name: a, InstanceType: c5.4xlarge, Count: 2, Networking: {SubnetIds: [subnet-0123456789abcdef0]}}, {Name: none, InstanceType: c5.4xlarge, Count: 0, Networking: {SubnetIds: [subnet-0123456789abcdef0]}}, {Name: b, InstanceType: trn1.2xlarge, Count: 1, Networking: {SubnetIds: [subnet-0123456789abcdef0]}}]}'; } >login.yaml
plan login.yaml; status 0; tr -s '\n# ' ' ' <out >words
has words '89.38 USD an hour: c5.4xlarge (head node) 0.68, 2 x c5.4xlarge (login) 1.36, trn1.2xlarge (login) 1.34, 4 x trn1.32xlarge 86.00' "the plan has the price of every pool of login nodes"
plan login.yaml --to hyperpod; status 0; tr -s '\n# ' ' ' <out | grep -qF '88.04 USD an hour: c5.4xlarge (head node) 0.68, 2 x c5.4xlarge (login) 1.36, 4 x'; ok $? "hyperpod: the price is that of the one group of login nodes that it makes" || cat out
python3 - <<'P'
text = open("trn.yaml").read()
open("ebs.yaml", "w").write(text + "  - Name: data\n    MountDir: /data\n    StorageType: Ebs\n    EbsSettings: {Size: 100, DeletionPolicy: Snapshot}\n")
P
plan ebs.yaml; status 0; out_has '/data (Ebs): a snapshot, by its DeletionPolicy' "a snapshot of a volume still costs"
sed 's/CapacityType: ONDEMAND/CapacityType: SPOT/' trn.yaml >spot.yaml
plan spot.yaml; out_has 'at least 0.68 USD an hour' "spot instances have no price here"; out_has 'not on demand' "the plan says that nodes are not on demand"

# ---- values that are missing, hostile ones, mistakes
plan trn.yaml; status 0 "a plan without values"; out_has '${Bucket}' "missing values have their names"; out_has '# to fill in, with --vars FILE: ${Bucket}' "missing values are listed"
printf '{"Bucket": "b;touch hacked;${X}", "TernPackage": "s3://b/\\n$(touch hacked)"}' >evil.json
plan trn.yaml --vars evil.json; status 0 "a plan with hostile values is printed"
mkdir files; cp out evil.sh; printf '#!/bin/bash\n:\n' | tee aws-bin/tern >aws-bin/pcluster; chmod +x aws-bin/*
aws bash evil.sh; [ ! -e hacked ] && [ ! -e files/hacked ]; ok $? "are words of their commands, and run nothing"
plan trn.yaml --to slurm; status 2; err_has 'For a Slurm: tern cluster apply.'; one_line
plan trn.yaml --to terraform; status 2; one_line
sed 's/MaxCount: 4/MaxCount: 3/' trn.yaml >bad.yaml; plan bad.yaml; status 2 "a layout with errors"; is "$(cat out)" '' "a layout with errors has no plan"
tap_done
