#!/bin/bash
# A recipe for a cluster, checked on a machine that is none of its nodes: -c cluster.yaml.
. "$(dirname "$0")/../lib/tap.sh"
unset SLURM_JOB_ID
export SLURM_CONF=/nonexistent # a laptop without Slurm
template=$ROOT/cluster-templates/trn1-4/cluster.yaml
sed 's/trn1.32xlarge/trn1n.32xlarge/; s/MinCount: 4/MinCount: 16/; s/MaxCount: 4/MaxCount: 16/' "$template" >cluster.yaml
sed 's/trn1.32xlarge/c5.large/; s/Enabled: true/Enabled: false/; s/MinCount: 4/MinCount: 16/; s/MaxCount: 4/MaxCount: 16/' "$template" >small.yaml
sed 's/trn1.32xlarge/u99.metal/; /Efa:/,/Enabled: true/d' "$template" >other.yaml
mkdir model
cat >model/config.json <<'J'
{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 32, "vocab_size": 800, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05}
J
cp "$ROOT/tests/golden/spm-bpe-800.model" model/tokenizer.model
printf '{"text": "the cat sees the dog"}\n' >t.jsonl
tern data build --tokenizer model -o t.tds t.jsonl 2>/dev/null
cat >run.yaml <<'Y'
version: 1
name: cpt-7b
model: {config: model/config.json, tokenizer: model}
data: {train: [{path: t.tds}]}
batch: {global: 2048, micro: 1, seq_len: 4096}
steps: 100
optimizer: {lr: 1.5e-4}
parallel: {tensor: 8, zero: 1}
checkpoint: {dir: ck}
ledger: {dir: ledger}
launch: {ranks_per_node: 8}
Y
need='8 ranks a node of '

# ---- tern run --check
run tern run --check run.yaml -N 16 -c cluster.yaml; status 0 "run --check: a 7B plan for 16 trn1n.32xlarge is accepted on any machine"
run tern run --check run.yaml -c cluster.yaml; status 0 "run --check: without -N the layout's nodes count"
run tern run --check run.yaml -N 16 -c small.yaml; status 2 "run --check: nodes of 4 GiB are too small for it"
err_has "run.yaml:3: model: $need" "the refusal has the recipe's line"; err_has 'and the largest node has 3.80 GiB' "the refusal names what the layout's nodes have"; one_line
run tern run --check run.yaml -N 17 -c cluster.yaml; status 2 "run --check: more nodes than the layout has"
err_has 'cluster.yaml: its largest queue has 16 nodes, and 17 are asked for'; one_line
run tern run --check run.yaml -N 16; status 0 "run --check: several nodes are not judged by this machine's memory"
sed 's/"num_hidden_layers": 32/"num_hidden_layers": 4000/' model/config.json >deep.json
run tern run --check run.yaml --set model.config=deep.json; status 2 "run --check: one node is this machine"
err_has 'and this machine has' "the refusal says that it is about this machine"; err_has 'tern run --check -c cluster.yaml' "the refusal has the command for a cluster's nodes"
run tern run --check run.yaml --set model.config=deep.json -c cluster.yaml; status 2; err_has 'the largest node has 486' "a node of trn1n.32xlarge has 95 % of 512 GiB"
run tern run --check run.yaml -c other.yaml; status 0 "run --check: an instance type that is not known limits nothing"
run tern run --check run.yaml -c nowhere.yaml; status 2; err_has "'nowhere.yaml' is neither a layout file nor a virtual cluster"; one_line
sed 's/SlurmQueues/SlurmQueue/' cluster.yaml >broken.yaml
run tern run --check run.yaml -c broken.yaml; status 2; err_has 'broken.yaml:' "a mistake of the layout is an error, with its line"; one_line
run tern run run.yaml -c cluster.yaml; status 2 "run: --cluster without --check or --explain is refused"; [ ! -e ledger ]; ok $? "the refused run begins nothing"

# ---- other trainers: NeuronCores, and their memory
cat >nxd.yaml <<'Y'
version: 1
name: nxd
model: {config: model/config.json, tokenizer: model}
data: {train: [{path: t.tds}]}
batch: {global: 512, micro: 1, seq_len: 4096}
parallel: {tensor: 8}
ledger: {dir: ledger}
workload: {command: [torchrun, train.py], workers_per_node: 32}
Y
run tern run --check nxd.yaml -N 16 -c cluster.yaml; status 0 "run --check: 32 workers on 32 NeuronCores"
run tern run --check nxd.yaml -N 16 -c cluster.yaml --set workload.workers_per_node=24 --set batch.global=480; status 2 "run --check: 24 workers do not share 32 NeuronCores"
err_has "--set workload.workers_per_node: trn1n.32xlarge: 32 NeuronCores do not divide over 24 ranks a node" "the refusal names the key"; one_line
sed 's/"num_hidden_layers": 32/"num_hidden_layers": 3200/' model/config.json >deep.json
run tern run --check nxd.yaml -N 16 -c cluster.yaml --set model.config=deep.json; status 2; err_has 'and a NeuronCore has 16.0 GiB' "weights are judged by the layout's NeuronCores"

# ---- tern train --explain
run tern train run.yaml --explain -c cluster.yaml; status 0 "train --explain: of all nodes of the layout"
out_has '128 ranks: tensor 8 x data 16 x pipeline 1' "16 nodes of 8 ranks"
out_has ' of 486 GiB in cluster.yaml' "a node's need stands beside what it has"
run tern train run.yaml --explain -N 4 -c small.yaml; status 2 "train --explain: a node that is too small"
out_has '32 ranks: tensor 8 x data 4' "the plan is shown all the same"; out_has ' of 3.80 GiB in small.yaml'; err_has 'and the largest node has 3.80 GiB'
run tern train run.yaml -c cluster.yaml; status 2 "train: --cluster without --explain is refused"; err_has 'go with --explain'

# ---- a job is in one queue
python3 - <<'E'
text = open("small.yaml").read()
at = text.index("    - Name:"); end = text.index("SharedStorage")
queue = text[at:end]
big = queue.replace("trn1", "big").replace("c5.large", "trn1n.32xlarge")
big = big.replace("MinCount: 16", "MinCount: 1").replace("MaxCount: 16", "MaxCount: 1")
open("two.yaml", "w").write(text[:end] + big + text[end:])
E
of='of 2 nodes in one queue the smallest has 3.80 GiB'
run tern run --check run.yaml -N 1 -c two.yaml; status 0 "a run of one node is accepted where another queue has one that is large enough"
run tern run --check run.yaml -N 2 -c two.yaml; status 2 "two nodes are refused where only one is large enough"; one_line; err_has "$of"
run tern submit --dry-run run.yaml -N 2 -c two.yaml; status 2 "submit: nodes of two queues make no job"; err_has "$of"
run tern train run.yaml --explain -N 1 -c two.yaml; out_has ' of 486 GiB in two.yaml' "train --explain: one node is the large one"
run tern train run.yaml --explain -c two.yaml; status 2 "train --explain: all nodes of the largest queue are the small ones"; out_has ' of 3.80 GiB in two.yaml'

# ---- a node in reserve does not work
sed 's/^batch: .*/batch: {global: 2048, micro: 1, seq_len: 4096}/; s/launch: {/&spares: 1, /' run.yaml >spare.yaml
run tern run --check spare.yaml -N 17; status 0 "run --check -N 17: 16 nodes work, one is in reserve"
run tern run --check spare.yaml -N 16; status 2 "run --check -N 16: the batch does not divide over the 15 that work"; err_has 'batch.global'; one_line
run tern run --check spare.yaml -N 1; status 2 "run --check: all nodes in reserve"; err_has 'spare.yaml:11: launch.spares: 1 nodes in reserve of 1: none is left to work'; one_line
run tern run --check spare.yaml -N 17 -c cluster.yaml; status 2 "run --check: the node in reserve counts among the layout's"; err_has 'its largest queue has 16 nodes, and 17 are asked for'
run tern train spare.yaml --explain -N 9 -c cluster.yaml; status 0 "train --explain -N 9: of 8 nodes and one in reserve"; out_has '64 ranks: '

# ---- tern submit
run tern submit --dry-run run.yaml -N 16 -c cluster.yaml; status 0 "submit: the line for 16 nodes, without Slurm"
out_has 'sbatch --job-name=cpt-7b --nodes=16 --ntasks-per-node=8'
! grep -q -- cluster.yaml out; ok $? "sbatch gets no --cluster"
run tern submit --dry-run run.yaml -N 16 -c small.yaml; status 2 "submit: nodes that are too small"; err_has 'and the largest node has 3.80 GiB'; one_line
run tern submit --dry-run run.yaml -N 16; status 0 "submit: this machine's memory refuses no job"
[ ! -e ledger ] && [ ! -e ck ]; ok $? "nothing is begun by any of it"
tap_done
