#!/bin/bash
# tern run --explain outside a job: on assumed nodes, on a layout's, on this machine.
. "$(dirname "$0")/../lib/tap.sh"
unset SLURM_JOB_ID
cat >run.yaml <<'Y'
version: 1
name: nxd
ledger: {dir: ledger}
parallel: {tensor: 8, pipeline: 4}
workload: {command: [torchrun, --nproc_per_node, '32', "it's", train.py], workers_per_node: 32}
Y
sed 's/MinCount: 4/MinCount: 64/; s/MaxCount: 4/MaxCount: 64/' "$ROOT/cluster-templates/trn1-4/cluster.yaml" >cluster.yaml
echo 'topology: {leaf: 12}' >cluster.tern.yaml
narrow() { ! wider 80 out >wide; ok $? "$cmd: at most 80 columns" || cat wide; }

run tern run --explain run.yaml -N 4
status 0; narrow
out_has 'nxd: 4 nodes x 32 ranks = 128: tensor 8 x data 4 x pipeline 4'
out_has '32-63            1  node-2  -       1      0-3' 'a stage a node'
out_has 'pipeline       32     4  96 over 1 switch' 'the pipelines cross switches'
out_has 'tensor         16     8  128 inside a node' 'tensor groups do not'
out_has 'No topology is known' 'explain says that no topology is known'
out_has 'srun --nodes=4 --ntasks=4 --ntasks-per-node=1 --distribution=block' 'the command line'
out_has " 'it'\\''s'" 'quoted for a shell' # the line is broken where the build folder's path ends
[ ! -e ledger ]; ok $? 'nothing is begun'

run tern run --explain run.yaml -N 5 --set launch.spares=1
status 0; narrow
out_has 'nxd: 4 nodes x 32 ranks = 128: ' 'the node in reserve does not compute'
out_has 'In reserve (launch.spares): node-5' 'explain names the node in reserve'
run tern run --explain run.yaml -N 1 --set launch.spares=1; status 2; err_has 'none is left to work'; one_line

run tern run --explain run.yaml -c cluster.yaml
status 0; narrow
[ "$(wc -l <out)" -lt 90 ]; ok $? '64 nodes x 32 ranks: equal rows are one'
out_has '0-95             3  trn1-st-trn1-[1-3]    spine.trn1-trn1-1  0      0-11' 'three nodes of a stage under a switch'
out_has '512-607          3  trn1-st-trn1-[4-6]    spine.trn1-trn1-1  1      0-11' 'the next stage is under the same switch'
out_has 'pipeline      512     4  1536 over 1 switch' 'so no pipeline leaves its switch'
out_has 'SLURM_HOSTFILE=HOSTS srun --ntasks=64 --ntasks-per-node=1' 'launched in that order'
out_has '[16-17]--[18-19]--[20-21]--[22-23]--' 'explain draws the ring on the torus'
out_has '    4  4            2      1     32-33,96-97' 'NeuronCore 4 is on NUMA node 1'
out_has 'Neighbours in a tensor group are on one chip or on adjacent ones.' 'a row of the torus'
run tern run --explain run.yaml -c cluster.yaml --set launch.mapping=block
out_has 'pipeline      512     4  1536 over 3 switches' 'in the given order, pipelines cross the spine'

run tern run --explain run.yaml -N 2 -c cluster.yaml --json
status 0
if command -v python3 >/dev/null; then
    python3 - <<'P' && ok 0 '--json: the same for programs' || ok 1 '--json: the same for programs'
import json
j = json.load(open("out"))
assert j["world"] == 64 and j["data"] == 2 and j["tensor"] == 8 and not j["reordered"]
assert [n["ranks"] for n in j["nodes"]] == [[0, 31], [32, 63]]
assert j["nodes"][1]["stages"] == [2, 3] and j["nodes"][0]["switches"] == "spine.trn1-trn1-1"
assert j["groups"]["pipeline"]["pairs_by_switches"] == {"0": 32, "1": 16}
p = j["core_placement"]
assert len(p) == 32 and p[4]["numa"] == 1 and p[4]["neuron_cores"] == [4, 4]
assert j["seats"] == p # its name until 0.4
assert j["command"][0] == "srun"
P
else
    skip 'python3 is not installed'
fi

# A tensor group of several rows of the torus: along the links where tern deals the cores.
sed 's/, workers_per_node: 32/, tasks_per_node: 32/' run.yaml >tasks.yaml
run tern run --explain tasks.yaml -N 2 -c cluster.yaml --set parallel.tensor=32 --set parallel.pipeline=1
status 0; narrow
out_has '[14-15]--[12-13]--[10-11]--[  8-9]--' 'every second row backwards'
out_has 'Neighbours in a tensor group are on one chip or on adjacent ones.' 'so that the ring has no detour'
out_has '    8  14           7      1     44-45,108-109' 'the core placement says the same'
run tern run --explain tasks.yaml -N 2 -c cluster.yaml --set parallel.tensor=16 --set parallel.pipeline=1
out_has '[16-17]--[18-19]--[20-21]--[22-23]--' 'two groups of two rows: the second begins beside the first'
out_has 'Neighbours in a tensor group are on one chip or on adjacent ones.'
run tern run --explain tasks.yaml -N 2 -c cluster.yaml --set parallel.tensor=32 --set parallel.pipeline=1 --set launch.mapping=block
out_has '[  8-9]--[10-11]--' 'launch.mapping: block keeps the numbers'
out_has 'at most two chips apart, by number'
run tern run --explain run.yaml -N 2 -c cluster.yaml --set parallel.tensor=32 --set parallel.pipeline=1
out_has '[  8-9]--[10-11]--' 'torchrun deals the cores by LOCAL_RANK'; narrow
out_has 'workers take the core of their LOCAL_RANK' 'a workload assigns cores by LOCAL_RANK, and the table says so'
out_has 'intranode-collective-comm.rst' 'with its source'

run tern run --explain run.yaml --set launch.with=mpirun -N 2
out_has '-n 2 --map-by ppr:1:node:OVERSUBSCRIBE --bind-to' 'explain has mpirun'"'"'s command line'
run tern run --explain run.yaml; status 0
out_has 'Nodes: this machine'
run tern run --explain run.yaml -N 5 --set parallel.tensor=3
status 2; err_has 'run.yaml:4: parallel: 5 nodes x 32 ranks are 160, no multiple of'; one_line
run tern run --explain run.yaml -N 3 --set parallel.tensor=12 --set parallel.pipeline=1
status 2; err_has 'a tensor group would share a node with a part of another'
run tern run --explain run.yaml -N 65 -c cluster.yaml
status 2; err_has 'its first compute resource has 64 nodes, not 65'
run tern run --explain run.yaml -c nowhere
status 2; err_has "'nowhere' is neither a layout file nor a virtual cluster"
run tern run run.yaml --json
status 2; err_has '--json goes with --explain'
tap_done
