#!/bin/bash
# Take the cluster away.  The bucket and the file system stay.
set -euo pipefail
#@values@
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
command -v aws >/dev/null || fail "aws is missing: pip install awscli"
there() { # fails where it is not; ends where that cannot be known
    local said
    said=$(aws sagemaker describe-cluster --region "$region" --cluster-name "$name" 2>&1) && return
    case $said in *ResourceNotFound*) return 1 ;; *) fail "$said" ;; esac
}
if ! there; then
    say "$name is not there"
    exit 0
fi
aws sagemaker delete-cluster --region "$region" --cluster-name "$name"
while there; do sleep 30; done
say "$name is gone"
