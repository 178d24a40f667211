#!/bin/bash
# tern train --explain: who does what where, with the published recipes' arithmetic.
. "$(dirname "$0")/../lib/tap.sh"
cat >config.json <<'J'
{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
 "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "hidden_act": "silu"}
J
cat >run.yaml <<'Y'
version: 1
name: llama2-70b
model: {config: config.json}
data: {train: [{path: text.tds}]}
batch: {global: 512, micro: 1, seq_len: 4096}
steps: 1500
parallel: {tensor: 8, pipeline: 8, sequence: true, zero: 1, recompute: selective}
checkpoint: {dir: ck}
launch: {ranks_per_node: 32}
Y
narrow() { [ -z "$(awk 'length > 120' out)" ]; ok $? "at most 120 columns" || awk 'length > 120' out; }
run tern train run.yaml --explain -N 32
status 0; narrow
out_has 'llama2-70b: 68976648192 parameters'
out_has '1024 ranks: tensor 8 x data 16 x pipeline 8' '32 nodes x 32 ranks'
out_has '16 data ranks x 32 micro-batches of 1' 'the SageMaker recipe at 32 nodes'
out_has '512-639     40-49' 'stage 4 and its layers'
out_has '2 all-gathers and 2 reduce-scatters forward' 'sequence parallel'
out_has 'stage 6   F0 F1 B0 F2 B1' '1F1B'
[ ! -e ck ]; ok $? 'nothing is begun'
run tern train run.yaml --explain -N 8
out_has '4 data ranks x 128 micro-batches of 1' 'and at 8 nodes'
run tern train run.yaml --explain -N 8 --set parallel.interleave=2 --set parallel.tensor=32 --set parallel.pipeline=4
out_has 'key heads: each on 4 tensor ranks' 'fewer key heads than tensor ranks'
out_has '0-9,40-49' 'two chunks of layers a stage'
out_has 'F3a F0b' 'interleaved'
cat >config.json <<'J'
{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "hidden_act": "silu"}
J
run tern train run.yaml --explain --set 'lora={rank: 16, alpha: 16, targets: [q_proj, v_proj]}' --set parallel.pipeline=1 --set parallel.zero=0
out_has 'trained: 6815744 parameters (0.0848 %): adapters of rank 16 beside q_proj v_proj' 'Llama-3-8B'
run tern train run.yaml --explain --set 'lora={rank: 16, dora: true}' --set parallel.pipeline=1 --set parallel.zero=0
out_has 'trained: 6979584 parameters (0.0868 %): adapters of rank 16 and magnitudes (DoRA) beside q_proj v_proj' 'and with DoRA'
run tern train run.yaml --explain -N 6
status 2 'a batch that does not divide'; err_has 'run.yaml:5: batch.global'
run tern train run.yaml --explain -N 32 --set parallel.tensor=128
status 2 'more tensor ranks than heads'; err_has '32 attention heads do not divide over 128'
tap_done
