#!/bin/bash
# tern cluster check and render, and what it says without a cluster.
. "$(dirname "$0")/../lib/tap.sh"
template=$ROOT/cluster-templates/trn1-4/cluster.yaml
export TERN_CLUSTER_HOME=$WORK/clusters

run tern cluster check "$template"; status 0
out_has '4 static and 0 dynamic trn1.32xlarge, each 128 CPUs, 16 Neuron devices'
[ ! -s err ]; ok $? 'no complaint about the template'

run tern cluster render "$template" --to slurm; status 0
out_has 'NodeName=trn1-st-trn1-[1-4] CPUs=128 '
out_has 'File=/dev/neuron[0-15]'; out_has 'AccountingStoreFlags=job_comment' "sacct -o comment tells the run"
run tern cluster render "$template" -o conf; status 0
[ "$(ls conf | tr '\n' ' ')" = 'cgroup.conf gres.conf plugstack.conf slurm.conf tern-render.json topology.conf ' ]
ok $? 'render -o writes the five files, and their list'
run tern cluster render "$template" --slurm 22.05 -o conf; status 0 'render -o writes again over its own files'; has conf/slurm.conf SwitchType=switch/none 'which is replaced'
for f in slurm.conf plugstack.conf cgroup.conf; do
    rm -rf theirs; mkdir theirs; echo "# mine" >theirs/$f
    run tern cluster render "$template" -o theirs; status 2 "render -o over somebody's $f"; one_line; err_has 'was not rendered by tern'
    [ "$(ls theirs) $(cat theirs/$f)" = "$f # mine" ]; ok $? 'nothing is written'
done
run tern cluster render "$template" --to terraform; status 2
err_has "'terraform' is not one of: slurm"

sed 's/trn1.32xlarge/trn1.32xlage/; s/MaxCount: 4/MaxCount: 3/; s/CapacityType/CapacityTyp/' "$template" >bad.yaml
run tern cluster check bad.yaml; status 2
err_has "bad.yaml:27: "
err_has "Did you mean 'trn1.32xlarge'?"
err_has 'MaxCount 3 is less than MinCount 4'
err_has "Did you mean 'CapacityType'?"
err_has 'bad.yaml: 3 errors, named above.'
run tern cluster render bad.yaml -o none; status 2
[ ! -e none ]; ok $? 'nothing is rendered from a bad layout'
run tern cluster up bad.yaml; status 2
[ ! -e clusters ]; ok $? 'a bad layout is not brought up'

run tern cluster check missing.yaml; status 2; one_line
printf 'a: [' >broken.yaml
run tern cluster check broken.yaml; status 2; one_line

sed 's/MinCount: 4/MinCount: 0/' "$template" >dynamic.yaml
run tern cluster check dynamic.yaml; status 0
run tern cluster up dynamic.yaml --name 'a b'; status 2
err_has 'is not a name for a cluster'
if PATH=$PATH:/usr/sbin:/usr/local/sbin:/opt/slurm/sbin:${SLURM_PREFIX:+$SLURM_PREFIX/sbin} command -v slurmctld >/dev/null; then
    run tern cluster up dynamic.yaml --mode plain; status 2
    err_has 'no static nodes'
    [ ! -e clusters/dynamic ]; ok $? 'a refused cluster leaves no folder'
    mkdir -p clusters/photos; echo mine >clusters/photos/one
    run tern cluster up "$template" --name photos; status 2
    run tern cluster down photos; status 2
    [ "$(cat clusters/photos/one)" = mine ]; ok $? "files that are no cluster's are left alone"
    run tern cluster list; ! grep -q photos out; ok $? 'folders that are not clusters are not listed'
else
    run tern cluster up "$template"; status 2
    err_has 'apt-get install'
fi
run tern cluster up "$template" --mode fast; status 2
err_has 'is not one of: auto, namespaces, plain'

run tern cluster list; status 0
run tern cluster down; status 2; err_has 'no cluster is up'
run tern cluster down gone; status 2; err_has "there is no cluster 'gone'"
run tern cluster exec gone -- true; status 2; err_has "no cluster 'gone' is up"
run tern cluster status; status 2; one_line
run env -u HOME -u TERN_CLUSTER_HOME -u XDG_STATE_HOME tern cluster list; status 2
err_has 'TERN_CLUSTER_HOME'
printf 'Region: x\nNonsense: 1\n' >first.yaml; printf 'Region: x\nMore: 1\n' >second.yaml
run tern cluster check first.yaml "$ROOT/cluster-templates/trn1-4/cluster.yaml" second.yaml
status 2; err_has first.yaml; err_has second.yaml "check names the mistakes of every layout"
out_has trn1.32xlarge "check describes the good layout between bad ones"
tap_done
