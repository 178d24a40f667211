#!/bin/bash
# Make the stack, or bring it up to date, and print its outputs: create.sh ZONE > outputs.json.  ZONE has
# the instance types: aws ec2 describe-instance-type-offerings --location-type availability-zone.
# A change that would cost the file system or the bucket is refused.
set -euo pipefail
name=render-base
region=us-west-2
missing=''
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || fail "in which zone? create.sh ${region}a > outputs.json"
zone=$1
command -v aws >/dev/null || fail "aws is missing: pip install awscli"
cfn() { aws cloudformation "$1" --region "$region" "${@:2}"; }
await() { aws cloudformation wait "stack-$1-complete" --region "$region" --stack-name "$name"; }
deploy() {
    cfn deploy --stack-name "$name" --template-file "$here/stack.json" --capabilities CAPABILITY_IAM \
        --no-fail-on-empty-changeset --parameter-overrides "AvailabilityZone=$zone" "$@"
}
update() { # by a change set, which is read first
    local said set changes lost more="--region $region"
    said=$(deploy --no-execute-changeset)
    set=$(grep -om 1 'arn:[^ ]*:changeSet/[^ ]*' <<<"$said") || { say "$said"; return 0; }
    changes=$(cfn describe-change-set --change-set-name "$set" --output text \
        --query 'Changes[].ResourceChange.[LogicalResourceId, Action, Replacement]')
    lost=$(awk '/^(FileSystem|Bucket)[ \t]/ && ($2 == "Remove" || $3 ~ /True|Conditional/) { print $1 }' <<<"$changes")
    [ -z "$lost" ] || fail "nothing is changed: it would replace or remove ${lost//$'\n'/ and }." \
        "If you want that: aws cloudformation execute-change-set $more --change-set-name $set"
    cfn execute-change-set --change-set-name "$set"
    await update ||
        fail "$name was not updated. See: aws cloudformation describe-stack-events $more --stack-name $name"
}
now=$(cfn describe-stacks --stack-name "$name" --query 'Stacks[0].StackStatus' --output text 2>&1) ||
    case $now in *"does not exist"*) now=none ;; *) fail "$now" ;; esac
case $now in
none | REVIEW_IN_PROGRESS) deploy >&2 ;;
ROLLBACK_COMPLETE) # the first creation failed, and such a stack can only be deleted
    say "the first creation of $name failed: its rest is deleted"
    cfn delete-stack --stack-name "$name"
    await delete
    deploy >&2
    ;;
CREATE_FAILED | ROLLBACK_FAILED | DELETE_FAILED) fail "$name is $now: delete.sh, then again" ;;
*_IN_PROGRESS) fail "$name is $now: wait until that has ended" ;;
*) update >&2 ;;
esac
cfn describe-stacks --stack-name "$name" --output json
