#!/bin/bash
# Make the image and push it: build.sh PACKAGE...  PACKAGE is what `make deb` made, or for a base of the
# other kind `make rpm`.  The repository is made where it is not there.
set -euo pipefail
#@values@
say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }
[ -z "$missing" ] || fail "values are missing: $missing. Give them: tern cluster render --vars FILE"
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || fail "which packages? build.sh build/dist/*.deb"
for tool in aws docker; do command -v "$tool" >/dev/null || fail "$tool is missing"; done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/packages"
cp -- "$@" "$work/packages/"
cp "$here/Dockerfile" "$here/batch-node" "$work/"
registry=${repository%%/*}
region_of() { # HOST: of a registry of ECR; fails where it is another's
    local rest=${1#*.dkr[.-]ecr*.}
    [ "$rest" != "$1" ] && echo "${rest%%.*}"
}
if at=$(region_of "$registry"); then
    aws ecr describe-repositories --region "$at" --repository-names "${repository#*/}" >/dev/null 2>&1 ||
        aws ecr create-repository --region "$at" --repository-name "${repository#*/}" >/dev/null
fi
# The base may be in another account's registry, and in another region.
for host in "$registry" "${base%%/*}"; do
    at=$(region_of "$host") || continue
    aws ecr get-login-password --region "$at" | docker login --username AWS --password-stdin "$host"
done
docker build --build-arg "BASE_IMAGE=$base" --tag "$repository:$tag" "$work"
docker push "$repository:$tag"
say "pushed $repository:$tag"
