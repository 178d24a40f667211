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

# ---- rendered again, in one form and with what installs tern
printf 'Bucket=tern-bucket\n' >values.txt
set --
for f in files/*-template.yaml files/*-everything.yaml files/*-existing.yaml files/*-scratch.yaml files/*-hdd.yaml files/*-backup.yaml; do
    name=${f#files/}; name=r-${name%.yaml}
    tern cluster render "$f" --to pcluster --vars values.txt -o "$name" >out 2>err && set -- "$@" "$f" "$name/cluster.yaml" || { ok 1 "$f is rendered"; sed 's/^/# /' err; }
done
[ $# -ge 14 ]; ok $? "seven layouts or more are rendered ($(($# / 2)))"
$python "$ROOT/tests/peers/layout.py" same "$@" >result 2>err
rc=$?
while IFS= read -r line; do
    case $line in
    ok*) ok 0 "${line#ok }" ;;
    "not ok"*) ok 1 "${line#not ok }" ;;
    *) echo "$line" ;;
    esac
done <result
[ $rc = 0 ]; ok $? "both layouts were read" || tail -5 err
tap_done
