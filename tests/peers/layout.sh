#!/bin/bash
# pcluster 3.16.1's own reader, schema and validators judge layouts as tern does.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
venv pcluster 'pcluster.schemas.cluster_schema, pkg_resources' aws-parallelcluster==3.16.1 'setuptools<80' ||
    skip_all "no aws-parallelcluster (PyPI, with a network)"
python="$VENV/bin/python -I"

# Every eighth change of one key; all 5,000 in the long list.
step=8; long && step=1
mkdir files
$python "$ROOT/tests/peers/layout.py" write files $step "$ROOT"/cluster-templates/*/cluster.yaml >out || exit 1
cases=$(ls "$ROOT"/../shared/cases/slurm/yaml/*.yaml 2>/dev/null)
# shellcheck disable=SC2086
$python "$ROOT/tests/peers/layout.py" compare "$BIN/tern" files/*.yaml $cases >result 2>err
rc=$?
while IFS= read -r line; do
    case $line in
    ok*) ok 0 "${line#ok }" ;;
    "not ok"*) ok 1 "${line#not ok }" ;;
    *) echo "$line" ;;
    esac
done <result
[ $rc = 0 ]; ok $? "the comparison ran to its end" || sed 's/^/# /' err
tap_done
