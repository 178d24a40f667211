#!/bin/bash
# Take all away that create.sh made, each before what it needs: the queue (with its jobs), the compute
# environment, job definitions, launch template, placement group.  Images in the repository stay.
set -euo pipefail
name=render
region=us-west-2
missing=''
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
command -v aws >/dev/null || fail "aws is missing: pip install awscli"
ec2() { aws ec2 "$1" --region "$region" "${@:2}"; }
batch() { aws batch "$1" --region "$region" "${@:2}"; }
environment() { batch describe-compute-environments --compute-environments "$name" --query "computeEnvironments[0].$1" --output text; }
queue() { batch describe-job-queues --job-queues "$name" --query "jobQueues[0].$1" --output text; }
settled() { # KIND: until nothing is under way with it; fails where it is gone
    local now
    while :; do
        now=$("$1" status)
        case $now in
        None | DELETED) return 1 ;;
        CREATING | UPDATING | DELETING) sleep 5 ;;
        *) return 0 ;;
        esac
    done
}
if settled queue; then
    batch update-job-queue --job-queue "$name" --state DISABLED >/dev/null
    settled queue && batch delete-job-queue --job-queue "$name"
    ! settled queue || fail "queue $name is still there: $(queue statusReason)"
fi
if settled environment; then
    batch update-compute-environment --compute-environment "$name" --state DISABLED >/dev/null
    settled environment && batch delete-compute-environment --compute-environment "$name"
    ! settled environment || fail "compute environment $name is still there: $(environment statusReason)"
fi
for definition in $(batch describe-job-definitions --job-definition-name "$name" --status ACTIVE \
    --query 'jobDefinitions[].jobDefinitionArn' --output text); do
    [ "$definition" = None ] || batch deregister-job-definition --job-definition "$definition"
done
! ec2 describe-launch-templates --launch-template-names "$name" >/dev/null 2>&1 ||
    ec2 delete-launch-template --launch-template-name "$name" >/dev/null
! ec2 describe-placement-groups --group-names "$name" >/dev/null 2>&1 ||
    ec2 delete-placement-group --group-name "$name"
say "$name is gone"
