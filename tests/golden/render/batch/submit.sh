#!/bin/bash
# Submit a job: submit.sh [-n NODES] NAME COMMAND...  Every node runs COMMAND in a container; batch-node
# tells it by NODE_RANK, NNODES, MASTER_ADDR and MASTER_PORT where the others are.  Prints the job's id.
set -euo pipefail
name=render
region=us-west-2
missing=''
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
nodes=
while getopts n: option; do
    case $option in n) nodes=$OPTARG ;; *) exit 2 ;; esac
done
shift $((OPTIND - 1))
[ $# -ge 2 ] || fail "submit.sh [-n NODES] NAME COMMAND..."
case $nodes in *[!0-9]* | 0) fail "-n $nodes: is no number of nodes" ;; esac
for tool in aws python3; do command -v "$tool" >/dev/null || fail "$tool is missing"; done
job=$1
shift
overrides=$(python3 -c 'import json, sys
o = {"nodePropertyOverrides": [{"targetNodes": "0:", "containerOverrides": {"command": sys.argv[2:]}}]}
if sys.argv[1]:
    o["numNodes"] = int(sys.argv[1])
print(json.dumps(o))' "$nodes" "$@")
aws batch submit-job --region "$region" --job-name "$job" --job-queue "$name" --job-definition "$name" \
    --node-overrides "$overrides" --query jobId --output text
