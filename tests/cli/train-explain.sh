#!/bin/bash
# tern train --explain: which rank does what where, with the published recipes' arithmetic.
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
narrow() { ! wider 120 out >wide; ok $? "at most 120 columns" || cat wide; }
run tern train run.yaml --explain -N 32
status 0; narrow
out_has 'llama2-70b: 68976648192 parameters'
grep -Eq '^kernels: (avx512|avx2|plain); unit of the products: fp32 \(of the machine that says this\)$' out; ok $? "explain names the kernels and the unit of a run in fp32" || cat out
out_has "limit of mfu: the unit's rate in the trainer's own matrix product, measured as an attempt begins" "explain names the limit that mfu is a share of"
! grep -q 'products of bf16' out; ok $? "explain says nothing of products of bf16 for a run in fp32"
out_has '1024 ranks: tensor 8 x data 16 x pipeline 8' '32 nodes x 32 ranks'
out_has '16 data ranks x 32 micro-batches of 1' 'the SageMaker recipe at 32 nodes'
out_has '512-639     40-49' 'stage 4 and its layers'
out_has '2 all-gathers and 2 reduce-scatters forward, 4 and 2 backward' 'sequence parallelism has its transfers'
out_has 'the run: 1500 steps, 3.146 billion tokens' 'explain says how long the run is'
out_has 'stage 6   F0 F1 B0 F2 B1' 'a stage'"'"'s steps are those of 1F1B'
[ ! -e ck ]; ok $? 'nothing is begun'
out_has 'data ranks: gradients by reduce-scatter (4.11 GiB of stage 0)' 'what the data ranks say to each other'
run tern train run.yaml --explain -N 8
out_has '4 data ranks x 128 micro-batches of 1' 'at 8 nodes data ranks have more micro-batches'
run tern train run.yaml --explain -N 8 --set parallel.interleave=2 --set parallel.tensor=32 --set parallel.pipeline=4
out_has 'key heads: each on 4 tensor ranks' 'fewer key heads than tensor ranks'
out_has '0-9,40-49' 'two chunks of layers a stage'
out_has 'F3a F0b' 'a stage'"'"'s steps are interleaved'
cat >config.json <<'J'
{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "hidden_act": "silu"}
J
run tern train run.yaml --explain --set 'lora={rank: 16, alpha: 16, targets: [q_proj, v_proj]}' --set parallel.pipeline=1 --set parallel.zero=0
out_has 'trained: 6815744 parameters (0.0848 %): adapters of rank 16 beside q_proj v_proj' 'adapters of Llama-3-8B are counted'
out_has '2 all-gathers and 2 reduce-scatters forward, 3 and 2 backward' 'of what frozen weights multiplied nothing is gathered again'
run tern train run.yaml --explain --set 'lora={rank: 16, dora: true}' --set parallel.pipeline=1 --set parallel.zero=0
out_has 'trained: 6979584 parameters (0.0868 %): adapters of rank 16 and magnitudes (DoRA) beside q_proj v_proj' 'adapters with DoRA are counted'
run tern train run.yaml --explain -N 6
status 2 'a batch that does not divide'; err_has 'run.yaml:5: batch.global'
run tern train run.yaml --explain -N 32 --set parallel.tensor=128
status 2 'more tensor ranks than heads'; err_has '32 attention heads do not divide over 128'
sum() { tern train run.yaml --explain "$@" | awk '/^stage/ {on = 1; next} on && NF {print $(NF - 3), $(NF - 2), $(NF - 1), $NF; exit}'; }
run tern train run.yaml --explain -N 8 --set parallel.recompute=full
out_has '2 all-gathers and 2 reduce-scatters forward, 6 and 3 backward' 'what is computed again is gathered again'
run tern train run.yaml --explain -N 8 --set parallel.recompute=full --set parallel.sequence=false
out_has '2 all-reduces forward, 3 backward'
run tern train run.yaml --explain -N 8 --set batch.seq_len=16384
status 2 'rows longer than the model can take'; err_has 'batch.seq_len: 16384 tokens, but the model was made for 8192'
for n in 0 4611686018427387904 9223372036854775807; do
    run tern train run.yaml --explain -N $n --set launch.ranks_per_node=4
    status 2 "--explain refuses $n nodes"; err_has '--nodes: from 1 to 1000000'
done
one() { OMP_NUM_THREADS=$1 sum --set parallel='{}' --set launch='{ranks_per_node: 1, threads: 2}' --set batch.global=2; }
[ -n "$(one 1)" ] && [ "$(one 1)" = "$(one 64)" ]; ok $? "memory for the recipe's threads, not for this shell's"
[ "$(one 1)" != "$(OMP_NUM_THREADS=64 sum --set parallel='{}' --set launch='{ranks_per_node: 1}' --set batch.global=2)" ]
ok $? "memory is predicted for the shell's threads where the recipe says none"
samples() { sum --set parallel='{tensor: 8, pipeline: 8}' --set launch.ranks_per_node=64 --set batch.global=512 "$@"; }
more() { # MIB HOW [ARG]...: than one sequence (or $least)
    awk -v a="$(samples "${@:3}" --set batch.global=${least:-1})" -v b="$(samples "${@:3}")" -v m="$1" 'BEGIN {split(a, x, " "); split(b, y, " "); d = y[1] - x[1] - m; exit !(x[2] == "MiB" && y[2] == "MiB" && d < 0.2 && d > -0.2)}'
    ok $? "$2" || samples "${@:3}"
}
more 18 '512 sequences of 4096 tokens are 18 MiB'
more 26 '26 MiB where documents are isolated' --set data.isolate=true
least=2 more 9 'half of it with two data ranks' -N 2
cat >small.json <<'J'
{"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2,
 "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "hidden_act": "silu"}
J
full() { sum --set model.config=small.json --set parallel='{}' --set launch="{ranks_per_node: $(nproc)}" --set batch.global="$(nproc)"; }
[ -n "$(full)" ] && [ "$(unset OMP_NUM_THREADS; full)" = "$(OMP_NUM_THREADS=1 full)" ]; ok $? 'ranks on all CPUs have a thread each'
staging() { tern train run.yaml --explain --set model.config=small.json --set parallel='{}' --set launch='{ranks_per_node: 1, threads: 1}' --set batch.global=2 "$@" | awk '/^stage/ {on = 1; next} on && NF {print $(NF - 5), $(NF - 4); exit}'; }
is "$(staging --set checkpoint.every=0)" "0 B" 'only the last checkpoint: no copy of what is saved'
is "$(staging --set checkpoint.every=2 --set checkpoint.async=false)" "0 B" 'training waits for checkpoints: no copy of what is saved'
copy=$(staging --set checkpoint.every=2); [ "${copy#* }" = MiB ]; ok $? 'a copy of what is saved counts as memory' || echo "# $copy"
half=$(staging --set checkpoint.every=2 -N 2); awk -v a="$copy" -v b="$half" 'BEGIN {exit !(a + 0 > 1.9 * b && a + 0 < 2.1 * b)}'; ok $? 'two data ranks have half of it each' || echo "# $copy $half"
run tern train run.yaml --explain --set 'parallel={pipeline: 2, interleave: 8}' --set launch.ranks_per_node=2
out_has '0-1,4-5,..,28-29 ' 'many chunks in short'; narrow
sed 's/"hidden_act"/"tie_word_embeddings": true, "hidden_act"/' config.json >tied.json
run tern train run.yaml --explain --set model.config=tied.json --set 'parallel={pipeline: 5, tensor: 2}' --set launch.ranks_per_node=10 --set batch.global=1
out_has 'first and last stage: the gradient of the embedding that is the head, too, once a step: 1002 MiB' 'what a tied embedding costs in a pipeline'
out_has '0     0-1         0-5'; out_has '1     2-3         6-12'; out_has '2     4-5         13-19'; out_has '4     8-9         26-31' 'layers that do not divide go to the middle'
run tern train run.yaml --explain --set 'parallel={tensor: 2, tensor: 1}'
status 2; err_has "--set parallel: key 'tensor' is given twice. Keep one."
run tern train run.yaml --explain --set 'parallel={tensor: 2'
status 2; err_has '--set parallel: not valid YAML'
run tern train run.yaml --explain --set steps=
status 2; err_has "--set steps: '' is not a whole number"
tap_done
