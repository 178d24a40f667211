#!/bin/bash
# tern cluster check: each mistake of a layout is found by its kind and line, and nothing else is.
. "$(dirname "$0")/../lib/tap.sh"
template=$ROOT/cluster-templates/trn1-4/cluster.yaml

# ID KIND LINE NAME SED-SCRIPT [MORE]: the template after the script, and MORE below it, has a
# finding ID (KIND: E error, W warning) on LINE, and no error of another kind.
finds() {
    sed "$5" "$template" >c.yaml
    [ -z "${6-}" ] || printf '%b\n' "$6" >>c.yaml
    run tern cluster check c.yaml
    local word=error wanted=2
    [ "$2" = E ] || { word=warning; wanted=0; }
    grep -qE "^c\.yaml:$3: $word: $1: .+\. *.+[.?]\$" err && [ "$rc" = $wanted ] &&
        ! grep -E '^c\.yaml:[0-9]+: error: ' err | grep -qv ": $1: "
    ok $? "$4: the only error is $1" || { echo "# got $rc"; sed 's/^/# /' err; }
}
# NAME SED-SCRIPT [MORE]: nothing is found.
takes() {
    sed "$2" "$template" >c.yaml
    [ -z "${3-}" ] || printf '%b\n' "$3" >>c.yaml
    run tern cluster check c.yaml
    [ "$rc" = 0 ] && [ ! -s err ]; ok $? "a layout is taken with $1" || sed 's/^/# /' err
}
queue='/CapacityType/s/$/\n' head='/KeyName/s/$/\n' resource='/MinCount/s/$/\n' more='$s/$/\n'
A=0123456789abcdef

# ---- keys and values
finds key-unknown E 19 'a misspelt key of a queue' 's/CapacityType/CapacityTyp/'
err_has "Did you mean 'CapacityType'?" "the nearest key is named"
finds key-unknown E 39 'a misspelt key at the top' '' 'Monitorin: {DetailedMonitoring: true}'
finds key-unknown E 34 'a key that is nowhere' "/Name: fsx/s/\$/\n    Colour: red/"
err_has 'the keys here are: MountDir, Name' "keys are listed where none is near"
finds key-unknown E 9 'a key of another section' 's/  InstanceType: c5.4xlarge/&\n  SubnetIds: [a]/'
finds key-missing E 18 'a queue without a name' '18s/Name: trn1/JobExclusiveAllocation: false/'
finds key-missing E 6 'an image without Os' 's/  Os: ubuntu2204/  CustomAmi: ami-0123456789abcdef0/'
finds value-null E 28 'a key without value' 's/MinCount: 4/MinCount:/'
finds value-type E 29 'a word for a number' 's/MaxCount: 4/MaxCount: many/'
finds value-type E 31 'a word for true' 's/            Enabled: true/            Enabled: maybe/'
finds value-type E 39 'a number for a text' '' 'Tags: [{Key: cost, Value: 12}]'
err_has 'Write "12", with the quotes.' "the remedy of a number for a text is named"
finds value-type E 16 'a list for a map' 's/    ScaledownIdletime: 10/    - 10/'
finds value-type E 4 'a date for a text' 's/us-west-2/2026-01-31/'
finds value-word E 6 'an operating system that is no more' 's/ubuntu2204/alinux2/'
finds value-word E 19 'an unknown CapacityType' 's/ONDEMAND/ONDEMANT/'
err_has "Did you mean 'ONDEMAND'?" "the nearest word is named"
finds value-word E 39 'a period of logs that CloudWatch does not have' '' 'Monitoring: {Logs: {CloudWatch: {RetentionInDays: 31}}}'
finds value-word E 39 'another Imds' '' 'Imds: {ImdsSupport: v3}'
finds value-word E 14 'another scheduler' 's/Scheduler: slurm/Scheduler: awsbatch/'
finds value-form E 22 'an id of no subnet' 's/subnet-0123456789abcdef1/subnet-xyz/'
finds value-form E 12 'an address of no network' '/KeyName/s/.*/    AllowedIps: 10.0.0.0/' && err_has 'prefix list'
finds value-range E 29 'no nodes at all' 's/MaxCount: 4/MaxCount: 0/; s/MinCount: 4/MinCount: 0/'
finds value-range E 29 'more nodes than a Slurm has' 's/MaxCount: 4/MaxCount: 65534/' && err_has 'Write 1 to 65533'
finds value-range E 16 'an idle time below -1' 's/ScaledownIdletime: 10/ScaledownIdletime: -2/'
finds value-length E 39 'a tag of 129 letters' '' "Tags: [{Key: $(printf 'k%.0s' $(seq 129)), Value: v}]"
finds list-length E 17 'no queue' '/SlurmQueues/,/            Enabled/d; s/^SharedStorage/  SlurmQueues: []\n&/'
finds value-cut W 28 'a part of a node' 's/MinCount: 4/MinCount: 4.7/'
finds value-base W 28 'octal' 's/MinCount: 4/MinCount: 03/; s/MaxCount: 4/MaxCount: 010/'
err_has '010 is read as 8 (YAML 1.1)' 'an octal number is printed in decimals'
finds value-range E 39 'a RAID of six volumes' '' '  - {Name: b, MountDir: /b, StorageType: Ebs, EbsSettings: {Raid: {Type: 1, NumberOfVolumes: 6}}}'
finds value-variable E 22 'a variable' 's/subnet-0123456789abcdef1/"${Private}"/'
takes '4.0 nodes' 's/MinCount: 4/MinCount: 4.0/'
takes 'a number in quotes' 's/MinCount: 4/MinCount: "4"/'
takes 'true in the words of YAML 1.1' '0,/Enabled: true/s//Enabled: yes/; s/            Enabled: true/            Enabled: On/'
takes '1 for true' 's/            Enabled: true/            Enabled: 1/'
takes 'MountDir without a slash' 's,MountDir: /fsx,MountDir: fsx,'

# ---- YAML 1.1
takes 'anchors and aliases' 's/SubnetId: subnet/SubnetId: \&net subnet/; s/- subnet-.*/- *net/'
takes 'tags of YAML itself' 's/my-key/!!str 12/'
finds yaml-merge W 31 'a merge key' 's/        PlacementGroup:/        PlacementGroup: \&on/; s/            Enabled: true/            <<: *on/'
finds efa-off W 32 "a key of the map's own before a merged one" 's/        PlacementGroup:/        PlacementGroup: \&on/; s/            Enabled: true/            <<: *on\n            Enabled: false/'
finds yaml-tag E 12 'a function of CloudFormation' 's/my-key/!Ref Key/'
err_has 'tag !Ref' "the tag is named"
finds yaml-twice E 39 'a key given twice' '' 'Region: us-east-1'
{ # e has 41,545 values; only the copy of the last alias goes beyond the limit
    echo 'a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]'
    for n in 'b a' 'c b' 'd c' 'e d'; do
        echo "${n% *}: &${n% *} [$(printf "*${n#* }, %.0s" 1 2 3 4 5 6 7) *${n#* }]"
    done
    printf 'f: *e\ng: *e\n'
} >c.yaml
run tern cluster check c.yaml; status 2 'aliases of aliases (130,000 values)'; one_line; err_has 'more than 100000 values'

# ---- between keys: the whole and sections of several places
finds image-ami E 6 'rocky9 without an image' 's/ubuntu2204/rocky9/'
finds head-unknown W 8 "a head node's type outside the catalogue" 's/c5.4xlarge/z1d.large/'
finds head-memory E 8 'a small head node for many nodes' 's/c5.4xlarge/c5.large/; s/MaxCount: 4/MaxCount: 400/'
finds custom-both E 17 'settings in two places' 's,ScaledownIdletime: 10,CustomSlurmSettings: [{SlurmdTimeout: 600}]\n    CustomSlurmSettingsIncludeFile: s3://b/k,'
finds setting-denied E 16 'a setting that ParallelCluster makes' 's/ScaledownIdletime: 10/CustomSlurmSettings: [{TreeWidth: 5}]/'
finds setting-denied E 29 "a resource's setting that ParallelCluster makes" "${resource}          CustomSlurmSettings: {Gres: 'neuron:1'}/"
finds setting-value E 16 'a value with a line of its own' 's/ScaledownIdletime: 10/CustomSlurmSettings: [{Epilogue: "a\\nb"}]/'
finds block-counts E 28 'a capacity block with dynamic nodes' "s/ONDEMAND/CAPACITY_BLOCK\n      CapacityReservationTarget: {CapacityReservationId: cr-${A}0}/; /PlacementGroup/,+1d; s/MaxCount: 4/MaxCount: 5/"
finds munge-key E 16 'a slurmdbd without its key' 's/ScaledownIdletime: 10/ExternalSlurmdbd: {Host: db}/'
finds secret-arn E 39 'a password that is no secret' '' 'DirectoryService: {DomainName: a.b, DomainAddr: ldaps://a, DomainReadOnlyUser: u, PasswordSecretArn: "arn:aws:ssm:us-west-2:1:parameter/p:secret:x"}'
finds name-form E 18 'a name of capitals' 's/- Name: trn1$/- Name: Trn1/'
finds name-nodes E 18 'a name with -st-' '18s/trn1/a-st-b/'
finds name-twice E 32 'two resources of one name' 's/            Enabled: true/&\n        - {Name: trn1, InstanceType: c5.large}/'
finds groups-both E 22 'groups that replace and join' "s/        SubnetIds:/        SecurityGroups: [sg-${A}0]\n        AdditionalSecurityGroups: [sg-${A}1]\n&/"
finds iam-both E 14 'a role and policies' "${head}  Iam:\n    InstanceRole: arn:aws:iam::1:role\/r\n    AdditionalIamPolicies: [{Policy: 'arn:aws:iam::aws:policy\/p'}]/"
finds iam-s3 E 15 'S3Access beside a role' "${head}  Iam:\n    InstanceRole: arn:aws:iam::1:role\/r\n    S3Access: [{BucketName: b}]/"
finds tag-reserved E 39 "ParallelCluster's tag" '' 'Tags: [{Key: "parallelcluster:a", Value: b}]'
finds tag-twice E 39 'a tag given twice' '' 'Tags: [{Key: a, Value: b}, {Key: a, Value: c}]'
finds script-url E 13 'a script of this machine' "${head}  CustomActions: {OnNodeStart: {Script: \/home\/x.sh}}/"
finds key-missing E 13 'an action without a script' "${head}  CustomActions: {OnNodeStart: {Args: [a]}}/"
finds key-unknown E 20 'OnNodeUpdated of a queue' "${queue}      CustomActions: {OnNodeUpdated: {Script: 's3:\/\/b\/k'}}/"
finds value-type E 13 'a number among arguments' "${head}  CustomActions: {OnNodeStart: {Script: 's3:\/\/b\/k', Args: [1]}}/"

# ---- queues and compute resources
finds subnet-twice E 23 'a subnet given twice' "s/          - subnet-.*/&\n&/; /PlacementGroup/,+1d; s/InstanceType: trn1.*/Instances: [{InstanceType: c5.large}]/; /Efa/,+1d"
finds public-address E 21 'public addresses of 8 cards' 's/        SubnetIds:/        AssignPublicIp: true\n&/'
err_has '8 network cards'
finds public-address E 21 'public addresses of EFA on one card' 's/        SubnetIds:/        AssignPublicIp: true\n&/; s/trn1.32xlarge/c5n.18xlarge/'
finds priorities W 26 'dynamic nodes first' 's/MaxCount: 4/MaxCount: 5\n          DynamicNodePriority: 1/'
finds group-both E 25 'a placement group of two names' 's/^          Enabled: true/          Name: a\n          Id: b/'
finds reservation-both E 20 'a reservation of two names' "${queue}      CapacityReservationTarget: {CapacityReservationId: cr-${A}0, CapacityReservationResourceGroupArn: 'arn:aws:resource-groups:us-west-2:1:group\/g'}/"
finds reservation-id E 20 'an id of no reservation' "${queue}      CapacityReservationTarget: {CapacityReservationId: mine}/"
finds reservation-id E 28 "an id of no reservation of a resource" "s/InstanceType: trn1.*/&\n          CapacityReservationTarget: {CapacityReservationId: mine}/"
finds type-both E 28 'types in two ways' 's/InstanceType: trn1.32xlarge/&\n          Instances: [{InstanceType: trn1.32xlarge}]/'
finds type-missing E 26 'no type' '/InstanceType: trn1/d'
finds type-unknown W 27 'a type outside the catalogue' 's/trn1.32xlarge/p6-b200.48xlarge/'
finds type-reserved W 27 'the type of a reservation' "s/InstanceType: trn1.*/CapacityReservationTarget: {CapacityReservationId: cr-${A}0}/"
finds type-arm E 27 'ARM nodes of an x86 head node' 's/trn1.32xlarge/hpc7g.16xlarge/'
finds type-group E 27 'burstable nodes in a placement group' 's/trn1.32xlarge/t3.large/; /Efa/,+1d'
finds count-order E 29 'more static nodes than nodes' 's/MaxCount: 4/MaxCount: 3/'
finds block-id E 24 'a capacity block without its id' 's/ONDEMAND/CAPACITY_BLOCK/; /PlacementGroup/,+1d'
finds memory E 29 'more memory than there is' "${resource}          SchedulableMemory: 600000/"
finds efa-type E 31 'EFA on trn1.2xlarge' 's/trn1.32xlarge/trn1.2xlarge/'
finds efa-off W 26 'Trn1 without EFA' '/Efa/,+1d'
finds efa-gdr E 31 'GdrSupport without EFA' 's/            Enabled: true/            GdrSupport: true/'
finds efa-group E 29 'EFA without a placement group' '/PlacementGroup/,+1d'
finds efa-group-off W 24 'EFA with the group off' 's/^          Enabled: true/          Enabled: false/'
finds neuron-nodes W 29 'several trn1.2xlarge' 's/trn1.32xlarge/trn1.2xlarge/; /Efa/,+1d'

# ---- storage
finds storage-count E 39 'a second new FSx' '' '  - {Name: b, MountDir: /b, StorageType: FsxLustre, FsxLustreSettings: {StorageCapacity: 1200}}'
finds mount-reserved E 34 'a mount over the system' 's,MountDir: /fsx,MountDir: opt,'
finds mount-overlap E 39 'a mount inside another' '' '  - {Name: b, MountDir: fsx/b, StorageType: Ebs}'
finds mount-inside E 34 "a mount inside the folder of the nodes' own disks" 's,MountDir: /fsx,MountDir: /scratch/a,'
finds mount-local W 34 "a mount on the nodes' own disks" 's,MountDir: /fsx,MountDir: /scratch,'
finds mount-form E 34 'two folders' 's,MountDir: /fsx,MountDir: /fsx /efs,'
finds settings-type E 39 "another type's settings" '' '    EbsSettings: {Size: 40}'
finds fsx-existing E 37 'settings of an FSx that exists' 's/DeploymentType: .*/FileSystemId: fs-0123456789abcdef0/'
finds fsx-persistent E 37 'PERSISTENT_2 without a rate' 's/SCRATCH_2/PERSISTENT_2/'
finds fsx-throughput E 39 'a rate that FSx does not have' 's/SCRATCH_2/PERSISTENT_2/' '      PerUnitStorageThroughput: 100'
finds fsx-capacity E 37 'a size that FSx does not have' 's/1200/1300/'
finds fsx-import E 39 'an export without an import' '' '      ExportPath: s3://b/k'
finds fsx-backups E 39 'backups of scratch' '' '      AutomaticBackupRetentionDays: 3'
finds efs-throughput E 39 'provisioned without a rate' '' '  - {Name: e, MountDir: /e, StorageType: Efs, EfsSettings: {ThroughputMode: provisioned}}'
finds efs-access E 39 'rights without encryption' '' '  - {Name: e, MountDir: /e, StorageType: Efs, EfsSettings: {IamAuthorization: true}}'
finds encrypted E 39 'a key that encrypts nothing' '' '  - {Name: e, MountDir: /e, StorageType: Efs, EfsSettings: {KmsKeyId: k}}'
finds volume-iops E 39 'too many Iops for a volume' '' '  - {Name: b, MountDir: /b, StorageType: Ebs, EbsSettings: {Size: 10, Iops: 9000}}'
finds volume-throughput E 13 'a gp3 that is too fast' "${head}  LocalStorage: {RootVolume: {Throughput: 2000}}/"

# ---- all at once, as JSON, with variables
sed 's/CapacityType/CapacityTyp/; s/MaxCount: 4/MaxCount: 3/; s/subnet-0123456789abcdef1/subnet-x/' "$template" >bad.yaml
run tern cluster lint bad.yaml; status 2 'lint is check'; err_has 'bad.yaml: 3 errors, named above.'
is "$(grep -o '^bad.yaml:[0-9]*' err | tr '\n' ' ')" 'bad.yaml:19 bad.yaml:22 bad.yaml:29 ' 'findings stand in the order of lines'
run tern cluster check bad.yaml "$template" --json; status 2
is "$(python3 -c 'import json; a = json.load(open("out")); print([[f["id"], f["line"], f["severity"]] for f in a[0]["findings"]], a[0]["errors"], a[1]["errors"], a[1]["quota_vcpus"]["Running On-Demand Trn instances"])')" \
    "[['key-unknown', 19, 'error'], ['value-form', 22, 'error'], ['count-order', 29, 'error']] 3 0 512" 'JSON has the findings and the quota'
run tern cluster check "$template"; status 0
out_has 'quota: 512 vCPUs of Running On-Demand Trn instances'
out_has 'price: 86.68 to 86.68 USD an hour with the head node, without storage'
# Login nodes: two of 16 vCPUs at 0.68 USD, none, one trn1.2xlarge of 8 at 1.34.
{ cat "$template"; echo 'LoginNodes: {Pools: [{Name: a, InstanceType: c5.4xlarge, Count: 2, Networking: {SubnetIds: [subnet-0123456789abcdef0]}}, {Name: none, InstanceType: c5.4xlarge, Count: 0, Networking: {SubnetIds: [subnet-0123456789abcdef0]}}, {Name: b, InstanceType: trn1.2xlarge, Count: 1, Networking: {SubnetIds: [subnet-0123456789abcdef0]}}]}'; } >login.yaml
run tern cluster check login.yaml; status 0
out_has 'quota: 520 vCPUs of Running On-Demand Trn instances' 'the quota counts the login nodes of every pool'
out_has 'quota: 48 vCPUs of Running On-Demand Standard' 'the quota counts each node of a pool'
out_has 'price: 89.38 to 89.38 USD an hour with the head node and 3 login nodes, without storage' 'the price counts the login nodes of every pool'
run tern cluster check login.yaml --json
is "$(jq -c '.[0] | [.quota_vcpus["Running On-Demand Trn instances"], (.usd_hour.least * 100 | round), .usd_hour.complete]' out)" '[520,8938,true]' 'JSON counts the login nodes in quota and price'
sed 's/a, InstanceType: c5.4xlarge/a, InstanceType: zz9.large/' login.yaml >unpriced.yaml
run tern cluster check unpriced.yaml; status 0
out_has 'with the head node and 3 login nodes and without the nodes whose price is not known' 'a login node without a price is told'
printf 'a: 1\nb: [\n' >broken.yaml
run tern cluster check broken.yaml none.yaml; status 2; err_has 'broken.yaml:3'; err_has 'none.yaml: ' 'of several layouts each one is told'
run tern cluster check --json broken.yaml none.yaml; status 2
is "$(python3 -c 'import json; print([[f["id"], f["line"]] for a in json.load(open("out")) for f in a["findings"]])')" \
    "[['yaml-syntax', 3], ['unreadable', 0]]" 'JSON tells what cannot be read, and the line of wrong YAML'
sed 's/subnet-0123456789abcdef0/${Public}/; s/subnet-0123456789abcdef1/"${Private}"/' "$template" >vars.yaml
printf '{"Stacks": [{"Outputs": [{"OutputKey": "Public", "OutputValue": "subnet-0123456789abcdef0"}, {"OutputKey": "Private", "OutputValue": "subnet-0123456789abcdef1"}]}]}' >outputs.json
run tern cluster check vars.yaml --vars outputs.json; status 0; [ ! -s err ]; ok $? 'the outputs of CloudFormation fill the ids' || sed 's/^/# /' err
run tern cluster render vars.yaml --vars outputs.json; status 0; out_has 'NodeName=trn1-st-trn1-[1-4]' 'a layout with variables is rendered'
run tern cluster render vars.yaml; status 2; err_has 'Give its value in a file with --vars'
printf '{"Public": "subnet-0123456789abcdef0", "Privat": "subnet-0123456789abcdef1"}' >outputs.json
run tern cluster check vars.yaml --vars outputs.json; status 2; err_has "Did you mean 'Privat'?" 'a variable without a value is named'
printf '[]' >outputs.json; run tern cluster check vars.yaml --vars outputs.json; status 2; one_line; err_has 'has no values'
run tern cluster check vars.yaml --vars none.json; status 2; one_line
printf '{"Public": "subnet-0123456789abcdef0", "Private": ""}' >outputs.json
run tern cluster check vars.yaml --vars outputs.json; status 2; err_has "has no value for '\${Private}'" 'an empty text of JSON is no value'
printf '[{"OutputKey": "Public", "OutputValue": "subnet-0123456789abcdef0"}, {"OutputKey": "Private", "OutputValue": "<fill in>"}]' >outputs.json
run tern cluster check vars.yaml --vars outputs.json; status 2; err_has "has no value for '\${Private}'" 'a place to fill in is no value in JSON'
sed 's/MinCount: 4/MinCount: "${N}"/; s/MaxCount: 4/MaxCount: "${N}"/; s/c5.4xlarge/"${Head}"/' "$template" >vars.yaml
printf '{"N": 3, "Head": "c5.4xlarge", "Efa": true}' >number.json; run tern cluster render vars.yaml --vars number.json; out_has 'NodeName=trn1-st-trn1-[1-3]' 'a whole number of JSON is a value'
printf '{"N": 3}' >number.json; run tern cluster check vars.yaml --vars number.json; ! grep -q 'has no values' err; ok $? 'a file with a number alone has a value'; err_has "has no value for '\${Head}'"
printf '{"N": 3.0, "Head": "c5.4xlarge"}' >number.json; run tern cluster check vars.yaml --vars number.json; status 2; one_line; err_has 'number.json: N: a number with a point loses its last zeros. Write it in quotes.'

# ---- the same judgement where nodes are made
sed 's/trn1.32xlarge/p6-b200.48xlarge/' "$template" >p5.yaml
run tern cluster render p5.yaml; status 2; err_has 'CPUs and memory of p6-b200.48xlarge are not in'
run tern cluster render bad.yaml; status 2; err_has 'bad.yaml: 3 errors'
run tern cluster up bad.yaml; status 2; err_has 'bad.yaml:22: error: value-form'
tap_done
