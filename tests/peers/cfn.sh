#!/bin/bash
# cfn-lint of AWS on the stacks that tern renders: of the templates, the golden layout, and each deployment
# of FSx for Lustre.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
venv cfn-lint cfnlint cfn-lint==1.58.0 || skip_all "no cfn-lint (PyPI, with a network)"
n=0
# LAYOUT NAME
lints() {
    n=$((n + 1))
    run tern cluster render "$1" --to cfn -o "stack$n"; status 0 "$2 is rendered"
    run "$VENV/bin/cfn-lint" -- "stack$n/stack.json"; status 0 "cfn-lint finds nothing in the stack of $2" || cat out
}
for layout in "$ROOT"/cluster-templates/*/cluster.yaml "$ROOT/tests/golden/render/cluster.yaml"; do
    lints "$layout" "${layout#"$ROOT"/}"
done
base=$ROOT/cluster-templates/trn1-4/cluster.yaml
for fsx in 'StorageCapacity: 3600, DeploymentType: SCRATCH_1' 'StorageCapacity: 1200, DeploymentType: PERSISTENT_1, PerUnitStorageThroughput: 200' \
    'StorageCapacity: 6000, DeploymentType: PERSISTENT_1, PerUnitStorageThroughput: 12, StorageType: HDD' \
    'StorageCapacity: 4800, DeploymentType: PERSISTENT_2, PerUnitStorageThroughput: 1000, DataCompressionType: LZ4, DeletionPolicy: Retain'; do
    sed "/FsxLustreSettings/,\$d" "$base" >layout.yaml; echo "    FsxLustreSettings: {$fsx}" >>layout.yaml
    run tern cluster check layout.yaml; status 0 "$fsx is a good layout"
    lints layout.yaml "$fsx"
done
tap_done
