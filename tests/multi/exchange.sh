#!/bin/bash
# Weights from Hugging Face to a run, on to NeuronX Distributed's ranks, and back: the commands of
# README.  The long list: a model as deep as Llama 2 70B, with its share of key heads.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make 2>/dev/null
shape='"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 8, "num_attention_heads": 8'
long && shape='"hidden_size": 256, "intermediate_size": 896, "num_hidden_layers": 80, "num_attention_heads": 32'
sed -i "s/\"hidden_size\".*\"num_attention_heads\": 4/$shape/; s/\"num_key_value_heads\": 2/\"num_key_value_heads\": 4/; s/_embeddings\": true/_embeddings\": false/" model/config.json
! long || sed -i 's/"vocab_size": 800/"vocab_size": 32000/' model/config.json
sed -i 's/steps: 8/steps: 2/; s/warmup: 2/warmup: 1/; s/global: 8, micro: 2/global: 2, micro: 1/' run.yaml
run tern train run.yaml --set steps=1; status 0 "a model to begin with"
run tern ckpt export checkpoints/latest -o from-hub --max-shard 100KB; status 0
rm -rf checkpoints

perplexity() { tern eval "$@" --only --json 2>/dev/null | sed -n 's/.*"ppl_token": \([0-9.]*\).*/\1/p'; }
same() { # A B WHAT: exactly the same arrays
    run tern ckpt diff --full "$1" "$2"; status 0 "$3"
}

# Hugging Face -> tern -> trained -> Hugging Face
sed 's/^name: .*/name: cpt/; s/^model: .*/model: {from: from-hub, tokenizer: model}/' run.yaml >cpt.yaml
run tern run cpt.yaml --ranks 2; status 0 "a run continues from the folder"
run tern ckpt export checkpoints/latest -o out-hf; status 0 "a continued run is exported as a folder again"
run tern ckpt diff --full from-hub out-hf; status 1 "a continued run has other weights"
p=$(perplexity cpt.yaml); q=$(perplexity cpt.yaml -c out-hf)
[ -n "$p" ]; ok $? "the checkpoint is evaluated"
is "$q" "$p" "the export has the perplexity of the run"
cmp -s model/tokenizer.model out-hf/tokenizer.model; ok $? "the export has the model's tokenizer"

# Hugging Face -> the files of 8 x 8 ranks -> Hugging Face
run tern ckpt export out-hf --to nxd --tensor 8 --pipeline 8 -o ranks; status 0 "written for 8 tensor ranks x 8 stages"
is "$(find ranks -name '*tp_rank_*.pt' | wc -l)" 64 "a file a rank"
run tern ckpt export ranks --from nxd --config out-hf -o again; status 0 "the files of ranks are read back"
same out-hf again "the weights are the same to the last bit"
is "$(perplexity cpt.yaml -c again)" "$p" "the model that was read back has the same perplexity"

# Adapters -> merged -> sharded
sed 's/^name: .*/name: lora/; s/^model: .*/model: {from: out-hf}/; s/dir: checkpoints/dir: lora/; s/lr: 1.0e-3/lr: 1.0e-2/' run.yaml >lora.yaml
echo 'lora: {rank: 4, alpha: 8, targets: [q_proj, v_proj, down_proj]}' >>lora.yaml
run tern run lora.yaml --ranks 2; status 0 "adapters are trained beside it"
run tern ckpt merge lora/latest -o merged; status 0 "merged into the weights"
run tern ckpt diff --full out-hf merged; status 1 "merged adapters change the weights"
a=$(perplexity lora.yaml); b=$(perplexity cpt.yaml -c merged)
awk -v a="$a" -v b="$b" -v p="$p" 'BEGIN {d = a / b - 1; exit !(a > 0 && a != p && d < 1e-4 && d > -1e-4)}'
ok $? "merged or beside: the same perplexity ($a, $b; $p before)"
run tern ckpt export merged --to nxd --tensor 8 --pipeline 8 --xser -o sharded; status 0 "sharded, a file a tensor"
run tern ckpt export sharded --from nxd --config merged -o whole; status 0 "the sharded model is put together"
same merged whole "the same weights"
tap_done
