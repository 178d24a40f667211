#!/bin/bash
# Make the stack, or bring it up to date, and print its outputs: create.sh ZONE > outputs.json.  ZONE has
# the instance types: aws ec2 describe-instance-type-offerings --location-type availability-zone.
set -euo pipefail
#@values@
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || fail "in which zone? create.sh ${region}a > outputs.json"
command -v aws >/dev/null || fail "aws is missing: pip install awscli"
aws cloudformation deploy --region "$region" --stack-name "$name" --template-file "$here/stack.json" \
    --capabilities CAPABILITY_IAM --no-fail-on-empty-changeset --parameter-overrides "AvailabilityZone=$1" >&2
aws cloudformation describe-stacks --region "$region" --stack-name "$name" --output json
