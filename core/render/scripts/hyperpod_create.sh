#!/bin/bash
# Make the cluster: create.sh [PACKAGE...].  Puts the lifecycle scripts, and PACKAGE (made by `make deb`),
# into the bucket, then asks HyperPod, and waits until the nodes are in service.  It may run again: a
# cluster that is there is only waited for.  delete.sh takes it away.
set -euo pipefail
#@values@
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
here=$(cd "$(dirname "$0")" && pwd)
case $package in */) ;; *) [ $# -le 1 ] || fail "one package, which becomes $package, or none: create.sh [PACKAGE]" ;; esac
command -v aws >/dev/null || fail "aws is missing: pip install awscli"
for file; do
    [ -f "$file" ] || fail "$file: no such file"
    case "$package|$file" in */\|*.tar.gz | */\|*.tgz) fail "$file: nodes install packages from $package, and build nothing there: make deb" ;; esac
done
for file; do
    case $package in */) to=$package${file##*/} ;; *) to=$package ;; esac
    aws s3 cp --region "$region" --only-show-errors "$file" "$to"
done
aws s3 ls --region "$region" "$package" >/dev/null ||
    fail "$package is not there. Make packages with 'make deb', and name them: create.sh build/dist/*.deb"
aws s3 cp --region "$region" --only-show-errors --recursive "$here/lifecycle" "s3://$bucket/$name/lifecycle"
state() { # of the cluster; none: there is none
    local said
    if said=$(aws sagemaker describe-cluster --region "$region" --cluster-name "$name" --query ClusterStatus --output text 2>&1); then
        echo "$said"
    else
        case $said in *ResourceNotFound*) echo none ;; *) say "$said"; echo unknown ;; esac
    fi
}
now=$(state)
[ "$now" != none ] ||
    aws sagemaker create-cluster --region "$region" --cli-input-json "file://$here/cluster-config.json"
while :; do
    now=$(state)
    case $now in
    InService) break ;;
    Creating | Updating | SystemUpdating | RollingBack) sleep 30 ;;
    *) fail "$name is $now. See: aws sagemaker describe-cluster --region $region --cluster-name $name" ;;
    esac
done
say "$name is in service: on its controller, tern cluster doctor"
