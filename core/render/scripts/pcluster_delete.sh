#!/bin/bash
# Take the cluster away.  File systems whose DeletionPolicy is Retain, and the bucket, stay.
set -euo pipefail
#@values@
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
command -v pcluster >/dev/null || fail "pcluster is missing: pip install aws-parallelcluster"
if ! pcluster describe-cluster --region "$region" --cluster-name "$name" >/dev/null 2>&1; then
    say "$name is not there"
    exit 0
fi
pcluster delete-cluster --region "$region" --cluster-name "$name"
aws cloudformation wait stack-delete-complete --region "$region" --stack-name "$name" ||
    fail "$name was not deleted. See: aws cloudformation describe-stack-events --region $region --stack-name $name"
say "$name is gone"
