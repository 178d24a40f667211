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
aws ecr describe-repositories --region "$region" --repository-names "${repository#*/}" >/dev/null 2>&1 ||
    aws ecr create-repository --region "$region" --repository-name "${repository#*/}" >/dev/null
# The base may be in another account's registry.
for host in "$registry" "${base%%/*}"; do
    case $host in
    *.dkr.ecr.*) aws ecr get-login-password --region "$region" | docker login --username AWS --password-stdin "$host" ;;
    esac
done
docker build --build-arg "BASE_IMAGE=$base" --tag "$repository:$tag" "$work"
docker push "$repository:$tag"
say "pushed $repository:$tag"
