#!/bin/bash
# Take the stack away, after the clusters in it.  The bucket stays with its objects, and the file system
# where its DeletionPolicy is Retain.
set -euo pipefail
#@values@
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
command -v aws >/dev/null || fail "aws is missing: pip install awscli"
bucket=$(aws cloudformation describe-stack-resources --region "$region" --stack-name "$name" \
    --logical-resource-id Bucket --query 'StackResources[0].PhysicalResourceId' --output text 2>/dev/null) || bucket=
aws cloudformation delete-stack --region "$region" --stack-name "$name"
aws cloudformation wait stack-delete-complete --region "$region" --stack-name "$name" ||
    fail "$name was not deleted: is a cluster in it? aws cloudformation describe-stack-events --region $region --stack-name $name"
say "$name is gone${bucket:+; its bucket stays: $bucket}"
