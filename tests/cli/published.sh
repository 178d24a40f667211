#!/bin/bash
# Configurations that are published as working on Trainium: tern run --check says of none that it does not fit.
. "$(dirname "$0")/../lib/tap.sh"
model() { # FILE HIDDEN FFN LAYERS HEADS KV-HEADS VOCABULARY POSITIONS
    printf '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": %s, "intermediate_size": %s, "num_hidden_layers": %s, "num_attention_heads": %s, "num_key_value_heads": %s, "vocab_size": %s, "max_position_embeddings": %s, "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": false}\n' "${@:2}" >"$1.json"
}
model llama2-7b 4096 11008 32 32 32 32000 4096
model llama2-13b 5120 13824 40 40 40 32016 4096
model llama2-70b 8192 28672 80 64 8 32000 4096
model llama3-8b 4096 14336 32 32 8 128256 8192
model llama3-70b 8192 28672 80 64 8 128256 8192
# try MODEL NODES TENSOR PIPELINE GLOBAL-BATCH SEQ [INSTANCE [MICRO]]
try() {
    sed "s/MinCount: .*/MinCount: $2/; s/MaxCount: .*/MaxCount: $2/; s/trn1.32xlarge/${7:-trn1.32xlarge}/" "$ROOT/cluster-templates/trn1-4/cluster.yaml" >cluster.yaml
    cat >run.yaml <<Y
version: 1
name: published
model: {config: $1.json}
batch: {global: $5, micro: ${8:-1}, seq_len: $6}
parallel: {tensor: $3, pipeline: $4}
ledger: {dir: ledger}
workload: {command: [torchrun, train.py], workers_per_node: 32}
Y
    run tern run --check -N "$2" -c cluster.yaml run.yaml
}
# Scripts and tables of NeuronX Distributed, its NeMo and NxDT (SDK 2.13 to 2.24), SageMaker's notebook, Arcee, AWS Batch, HLAT.
n=0
while read -r model nodes tp pp gbs seq instance; do
    try "$model" "$nodes" "$tp" "$pp" "$gbs" "$seq" "$instance"
    [ "$rc" = 0 ] && [ ! -s err ]; ok $? "$model on $nodes $instance, TP $tp x PP $pp, $gbs sequences of $seq: fits" || sed 's/^/# /' err
    n=$((n + 1))
done <<'T'
llama2-7b 4 8 1 1024 4096 trn1.32xlarge
llama2-7b 4 8 1 256 4096 trn1.32xlarge
llama2-7b 16 8 1 256 4096 trn1.32xlarge
llama2-7b 16 8 1 1024 4096 trn1.32xlarge
llama2-7b 16 8 1 2048 4096 trn1n.32xlarge
llama2-7b 32 8 4 1024 4096 trn1.32xlarge
llama2-7b 64 8 1 1024 4096 trn1.32xlarge
llama2-13b 4 8 4 1024 4096 trn1.32xlarge
llama2-13b 16 8 4 1024 4096 trn1.32xlarge
llama2-13b 32 8 4 1024 4096 trn1n.32xlarge
llama2-13b 32 8 8 1024 4096 trn1.32xlarge
llama2-70b 8 8 8 512 4096 trn1.32xlarge
llama2-70b 32 8 8 512 4096 trn1.32xlarge
llama2-70b 8 8 16 512 4096 trn1.32xlarge
llama2-70b 32 32 4 1024 4096 trn1.32xlarge
llama2-70b 32 32 8 1024 4096 trn1.32xlarge
llama2-70b 64 32 8 1024 4096 trn1.32xlarge
llama3-8b 1 8 1 12 1024 trn1.32xlarge
llama3-8b 4 32 1 1024 8192 trn1.32xlarge
llama3-8b 8 32 1 1024 8192 trn1.32xlarge
llama3-8b 16 32 1 1024 8192 trn1.32xlarge
llama3-8b 32 32 1 1024 8192 trn1n.32xlarge
llama3-70b 16 32 8 1024 8192 trn1.32xlarge
llama3-70b 32 32 8 1024 8192 trn1.32xlarge
T
is "$n" 24 "each published row is tried"

# ---- what cannot work, or hardly
try llama2-70b 1 1 1 64 4096; status 2 "70B on one node without TP is refused"
one_line; err_has 'run.yaml:3: model: '; err_has 'weights alone are 128 GiB in bf16, and a NeuronCore has 16.0 GiB'
try llama2-70b 4 8 8 512 4096 trn1.32xlarge 4; status 0 "four sequences at once of the tightest row are no error"
err_has 'a worker usually needs about' "four sequences at once of the tightest row are warned of"
tap_done
