#!/bin/bash
# Make placement group, launch template, compute environment, job definition and queue, each before what
# needs it, and wait until jobs can be submitted.  It may run again after it was interrupted: what is there
# stays as it was made.  After a change of the layout, or for a newer image: delete.sh first.
set -euo pipefail
#@values@
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
here=$(cd "$(dirname "$0")" && pwd)
command -v aws >/dev/null || fail "aws is missing: pip install awscli"
ec2() { aws ec2 "$1" --region "$region" "${@:2}"; }
batch() { aws batch "$1" --region "$region" "${@:2}"; }
environment() { batch describe-compute-environments --compute-environments "$name" --query "computeEnvironments[0].$1" --output text; }
queue() { batch describe-job-queues --job-queues "$name" --query "jobQueues[0].$1" --output text; }
await() { # KIND: until it is VALID
    local now
    while :; do
        now=$("$1" status)
        case $now in
        VALID) return ;;
        INVALID) fail "$1 $name is invalid: $("$1" statusReason)" ;;
        CREATING | UPDATING) sleep 5 ;;
        *) fail "$1 $name is $now" ;;
        esac
    done
}

ec2 describe-placement-groups --group-names "$name" >/dev/null 2>&1 ||
    ec2 create-placement-group --group-name "$name" --strategy cluster
ec2 describe-launch-templates --launch-template-names "$name" >/dev/null 2>&1 ||
    ec2 create-launch-template --cli-input-json "file://$here/launch-template.json" >/dev/null
image=$(aws ssm get-parameter --region "$region" --query Parameter.Value --output text \
    --name "/aws/service/ecs/optimized-ami/amazon-linux-2023/${kind}recommended/image_id")
# Batch joins this to a part of its own, and so wants MIME.
setup=$({
    printf 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="==tern=="\n\n--==tern==\n'
    printf 'Content-Type: text/x-shellscript; charset="us-ascii"\n\n'
    cat "$here/node-setup.sh"
    printf '\n--==tern==--\n'
} | base64 | tr -d '\n')
ec2 create-launch-template-version --launch-template-name "$name" --source-version 1 \
    --launch-template-data "{\"ImageId\": \"$image\", \"UserData\": \"$setup\"}" >/dev/null
if [ "$(environment status)" = None ]; then
    batch create-compute-environment --cli-input-json "file://$here/compute-environment.json" >/dev/null
else
    say "compute environment $name is there, and its nodes stay as they were made; delete.sh takes it away"
fi
await environment
batch register-job-definition --cli-input-json "file://$here/job-definition.json" >/dev/null
if [ "$(queue status)" = None ]; then
    batch create-job-queue --cli-input-json "file://$here/job-queue.json" >/dev/null
fi
await queue
say "$name takes jobs: submit.sh NAME COMMAND..."
