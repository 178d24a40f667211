#!/bin/bash
# What tern renders for AWS's own commands (--cli-input-json), judged by the models that these commands
# have: every name, type and range, without an account.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
venv botocore-1.44 botocore botocore==1.44.8 || skip_all "no botocore (PyPI, with a network)"
cat >judge.py <<'P'
import json, os, sys
os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")
import botocore.session
from botocore.validate import ParamValidator
INPUTS = {"launch-template.json": ("ec2", "CreateLaunchTemplate"), "compute-environment.json": ("batch", "CreateComputeEnvironment"),
          "job-queue.json": ("batch", "CreateJobQueue"), "job-definition.json": ("batch", "RegisterJobDefinition"),
          "cluster-config.json": ("sagemaker", "CreateCluster")}
session = botocore.session.get_session()


def words(shape, value, at=""):
    """Texts that are none of the words of their type."""
    if shape.type_name == "structure":
        for key in value:
            yield from words(shape.members[key], value[key], at + "." + key)
    elif shape.type_name == "list":
        for member in value:
            yield from words(shape.member, member, at + "[]")
    elif getattr(shape, "enum", None) and value not in shape.enum:
        yield "%s: %r is none of %s" % (at, value, " ".join(shape.enum))


for path in sys.argv[1:]:
    service, operation = INPUTS[os.path.basename(path)]
    shape = session.get_service_model(service).operation_model(operation).input_shape
    tree = json.load(open(path))
    report = ParamValidator().validate(tree, shape)
    bad = [] if report.has_errors() else list(words(shape, tree))
    print("%sok - %s takes %s" % ("not " if report.has_errors() or bad else "", operation, path))
    if report.has_errors():
        print("#", report.generate_report().replace("\n", "\n# "))
    for b in bad:
        print("#", b)
P
files=
n=0
for layout in "$ROOT"/cluster-templates/*/cluster.yaml "$ROOT/tests/golden/render/cluster.yaml"; do
    for form in batch hyperpod; do
        n=$((n + 1))
        run tern cluster render "$layout" --to $form --vars "$ROOT/tests/golden/render/values.txt" -o $form$n
        status 0 "$form of ${layout#"$ROOT"/}"
    done
    files="$files $(ls batch$((n - 1))/*-*.json hyperpod$n/cluster-config.json | grep -v tern-render | tr '\n' ' ')"
done
# shellcheck disable=SC2086
"$VENV/bin/python" -I judge.py $files >result 2>err
rc=$?
tap_lines <result
[ $rc = 0 ] && [ "$(grep -c '^ok' result)" = $((5 * n / 2)) ]; ok $? "five inputs of each layout were judged" || tail -3 err

# ---- tern's check knows each key that CreateCluster has.
"$VENV/bin/python" -I - >every.json <<'P'
import json, os
os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")
import botocore.session
def sample(shape, depth=0):
    if shape.type_name == "structure":
        return {k: sample(m, depth + 1) for k, m in shape.members.items()}
    if shape.type_name == "list":
        return [sample(shape.member, depth + 1)]
    if shape.type_name == "map":
        return {}
    if getattr(shape, "enum", None):
        return shape.enum[0]
    return {"integer": 1, "boolean": True}.get(shape.type_name, "text")
print(json.dumps(sample(botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateCluster").input_shape)))
P
[ "$(wc -c <every.json)" -gt 2000 ]; ok $? "a cluster of all keys is made of AWS's model"
run tern cluster check every.json; ! grep -E 'key-unknown|value-type' err; ok $? "tern knows them all, and their types"
tap_done
