#!/bin/bash
# Take the stack away, after the clusters in it.  The bucket stays with its objects.  A file system whose
# DeletionPolicy is Retain stays too, with the network that it needs.
set -euo pipefail
name=render-base
region=us-west-2
kept=Bucket
missing=''
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
command -v aws >/dev/null || fail "aws is missing: pip install awscli"
stay=
for what in $kept; do
    id=$(aws cloudformation describe-stack-resources --region "$region" --stack-name "$name" \
        --logical-resource-id "$what" --query 'StackResources[0].PhysicalResourceId' --output text 2>/dev/null) || id=
    case $id in '' | None) ;; *) stay="$stay $what $id" ;; esac
done
aws cloudformation delete-stack --region "$region" --stack-name "$name"
aws cloudformation wait stack-delete-complete --region "$region" --stack-name "$name" ||
    fail "$name was not deleted: is a cluster in it? aws cloudformation describe-stack-events --region $region --stack-name $name"
say "$name is gone${stay:+; these stay, and cost:$stay}"
