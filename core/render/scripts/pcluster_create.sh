#!/bin/bash
# Make the cluster: create.sh [PACKAGE...].  Puts on-node-configured into the bucket, and PACKAGE (made by
# `make dist`, `make deb` or `make rpm`), then asks ParallelCluster, and waits until nodes can be used.
# It may run again: a cluster that is there is only waited for.  delete.sh takes it away.
set -euo pipefail
#@values@
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
here=$(cd "$(dirname "$0")" && pwd)
case $package in */) ;; *) [ $# -le 1 ] || fail "one package, which becomes $package, or none: create.sh [PACKAGE]" ;; esac
for tool in aws pcluster; do
    command -v "$tool" >/dev/null || fail "$tool is missing: pip install awscli aws-parallelcluster"
done
for file; do
    [ -f "$file" ] || fail "$file: no such file"
    case "$package|$file" in */\|*.tar.gz | */\|*.tgz) fail "$file: nodes install packages from $package, and build nothing there: make deb" ;; esac
done
for file; do
    case $package in */) to=$package${file##*/} ;; *) to=$package ;; esac
    aws s3 cp --region "$region" --only-show-errors "$file" "$to"
done
aws s3 ls --region "$region" "$package" >/dev/null ||
    fail "$package is not there. Make it with 'make dist', and name it: create.sh build/dist/tern-VERSION.tar.gz"
aws s3 cp --region "$region" --only-show-errors "$here/on-node-configured" "s3://$bucket/on-node-configured"
if pcluster describe-cluster --region "$region" --cluster-name "$name" >/dev/null 2>&1; then
    say "$name is there"
else
    pcluster create-cluster --region "$region" --cluster-name "$name" --cluster-configuration "$here/cluster.yaml"
fi
# The cluster's stack has its name.
aws cloudformation wait stack-create-complete --region "$region" --stack-name "$name" ||
    fail "$name was not made. See: pcluster describe-cluster --region $region --cluster-name $name"
say "$name is up: pcluster ssh --region $region --cluster-name $name, then: tern cluster doctor"
