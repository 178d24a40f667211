#!/bin/bash
# Take the cluster away.  File systems whose DeletionPolicy is Retain, and the bucket, stay.
set -euo pipefail
name=render
region=us-west-2
missing=''
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
for tool in aws pcluster; do
    command -v "$tool" >/dev/null || fail "$tool is missing: pip install awscli aws-parallelcluster"
done
if ! said=$(pcluster describe-cluster --region "$region" --cluster-name "$name" 2>&1); then
    case $said in *"does not exist"*) say "$name is not there"; exit 0 ;; *) fail "$said" ;; esac
fi
pcluster delete-cluster --region "$region" --cluster-name "$name"
aws cloudformation wait stack-delete-complete --region "$region" --stack-name "$name" ||
    fail "$name was not deleted. See: aws cloudformation describe-stack-events --region $region --stack-name $name"
say "$name is gone"
