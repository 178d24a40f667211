#!/bin/bash
# A recipe is judged by the nodes of the partition that its job would go to.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
unset SBATCH_PARTITION
# The first queue, Slurm's default partition, has small nodes; the second has one large node.
python3 - "$LAYOUT" <<'P'
import sys
text = open(sys.argv[1]).read()
at = text.index("    - Name:"); end = text.index("SharedStorage")
queue = text[at:end]
small = queue.replace("trn1.32xlarge", "c5.large").replace("Enabled: true", "Enabled: false").replace("trn1", "small")
small = small.replace("MinCount: 4", "MinCount: 2").replace("MaxCount: 4", "MaxCount: 2")
big = queue.replace("MinCount: 4", "MinCount: 1").replace("MaxCount: 4", "MaxCount: 1")
open("two.yaml", "w").write(text[:at] + small + big + text[end:])
P
LAYOUT=$WORK/two.yaml
cluster_up
mkdir model
cat >model/config.json <<'J'
{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5504, "num_hidden_layers": 16, "num_attention_heads": 16,
 "num_key_value_heads": 16, "vocab_size": 800, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05}
J
cp "$ROOT/tests/golden/spm-bpe-800.model" model/tokenizer.model
printf '{"text": "the cat sees the dog"}\n' >t.jsonl
tern data build --tokenizer model -o t.tds t.jsonl 2>/dev/null
cat >run.yaml <<'Y'
version: 1
name: cpt
model: {config: model/config.json, tokenizer: model}
data: {train: [{path: t.tds}]}
batch: {global: 16, micro: 1, seq_len: 512}
steps: 10
optimizer: {lr: 1e-4}
checkpoint: {dir: ck}
ledger: {dir: ledger}
Y
small="the largest node of partition small (Slurm's default) has"

on tern run --check run.yaml -N 1; status 2 "run --check: the nodes of the default partition are too small"
err_has "$small" "run --check: the refusal names the partition, and that it is the default"; one_line
on tern run --check run.yaml -N 1 -p trn1; status 0 "run --check -p: the large partition is taken"
err_has 'run.yaml: judged by the nodes of partition trn1' "run --check says which partition it took"; one_line
on env SBATCH_PARTITION=trn1 tern run --check run.yaml -N 1; status 0 "run --check: SBATCH_PARTITION wins over the default"
err_has 'partition trn1 (SBATCH_PARTITION)' "run --check names the variable that it heeded"
on env SBATCH_PARTITION=trn1 tern run --check run.yaml -N 1 -p small; status 2 "run --check -p wins over SBATCH_PARTITION"
on tern run --check run.yaml -N 1 -p small,trn1; status 0 "run --check -p: one partition of a list is enough"
on tern run --check run.yaml -N 1 -p nowhere; status 2 "run --check -p: a partition that Slurm does not have"
err_has "--partition: Slurm has no partition 'nowhere', only small, trn1" "the refusal names the partitions that there are"; one_line
run tern run run.yaml -p trn1; status 2 "run: --partition without --check is refused"; err_has '--partition goes with --check'

# ---- nodes in reserve
sed 's/^ledger:.*/&\nlaunch: {spares: 1}/' run.yaml >spare.yaml
on tern run --check spare.yaml -N 1 -p trn1; status 2 "run --check -N: the node in reserve does not work"; err_has 'none is left to work'

# ---- tern submit, and sbatch with the plugin
on tern submit --dry-run run.yaml; status 2 "submit: the nodes of the default partition are too small"; err_has "$small"
on tern submit --dry-run run.yaml -- -p trn1; status 0 "submit: -p for sbatch is heeded"
on tern submit --dry-run run.yaml -- --partition=trn1; status 0 "submit: so is --partition="
on env SBATCH_PARTITION=trn1 tern submit --dry-run run.yaml; status 0 "submit: so is SBATCH_PARTITION"
on sbatch --parsable -p trn1 -N1 --hold --tern=run.yaml --wrap true; status 0 "sbatch --tern: the plugin, which does not know the partition, refuses no job for it"
on scancel "$(cat out)"
tap_done
