#!/bin/bash
# Weights as other tools leave them: pytorch_model.bin in every form, several with an index, Meta's
# files; what is none of these is refused by what it is.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool F=$TOOLS/torch-tool

"$T" model hf 302 || exit 1
"$F" bin hf bin && "$F" old hf old && "$F" bins hf bins 3 && "$F" odd hf odd && "$F" below hf below a.model || exit 1
for form in bin old bins odd; do
    "$T" same hf $form; ok $? "$form: the same tensors"
    run tern ckpt export $form -o out-$form; status 0
    cmp -s hf/model.safetensors out-$form/model.safetensors; ok $? "$form: exported, it is the same file as from safetensors"
    rm -rf out-$form
done
run tern ckpt show odd; status 0; out_has 'model.embed_tokens.weight'
run tern ckpt export bin -o half --dtype bf16; status 0; "$T" same hf half; ok $? "exported as bf16 it is the same, rounded"

# Ctrl-C while another process reads the pickle.
if strace -o /dev/null true 2>/dev/null; then
    while read -r words; do
        run env ASAN_OPTIONS=detect_leaks=0 strace -o /dev/null -e trace=pipe2 -e inject=pipe2:signal=INT:when=1 tern ckpt $words
        [ $rc != 0 ] && [ $rc != 2 ]; ok $? "ckpt $words: interrupted while it opens the file (status $rc)"
        one_line; err_has 'bin/pytorch_model.bin: interrupted'
    done <<'E'
export bin -o none
diff bin bin
E
else
    skip "strace may not trace here"
fi

# Below a key.
run tern ckpt export below -o none; status 2; one_line; err_has "lie below 'a.model'"; err_has '--key'
run tern ckpt export below -o none --key b; status 2; one_line; err_has "it has some below 'a.model'"
run tern ckpt export bin -o none --key b; status 2; one_line; err_has 'lie at the top'
run tern ckpt export below -o out-below --key a.model; status 0
cmp -s hf/model.safetensors out-below/model.safetensors; ok $? "what lies below a key is exported without it"
run tern ckpt show below/pytorch_model.bin --key a.model; status 0; out_has ' model.norm.weight'
"$F" below hf empty ''; "$F" mixed hf mixed b
run tern ckpt export empty -o none; status 2; one_line; err_has "lie below '' ("
run tern ckpt export empty -o out-empty --key ''; status 0 "what lies below an empty key is exported"
run tern ckpt export mixed -o none; status 2; one_line "tensors at the top, and a dict of others"; err_has "has tensors at the top and, in dicts beside them, below 'b' ("
run tern ckpt export mixed -o out-mixed --key b; status 0
cmp -s hf/model.safetensors out-mixed/model.safetensors; ok $? "a key chooses among tensors at the top and below it"
mv below/pytorch_model.bin below/last.pt
run tern ckpt export below/last.pt --key a.model -o out-file; status 0
cmp -s hf/model.safetensors out-file/model.safetensors; ok $? "a file beside its config.json is exported"

# Meta's: of one file and several, the embedding cut by columns (Llama 2) and by rows (Llama 3).
key() { sed -n "s/.*\"$1\": *\([0-9.e-]*\).*/\1/p" hf/config.json | head -n 1; }
params() { # MORE
    cat <<P
{"dim": $(key hidden_size), "n_layers": $(key num_hidden_layers), "n_heads": $(key num_attention_heads), "multiple_of": 80,
 "norm_eps": $(key rms_norm_eps), "vocab_size": -1${1-}}
P
}
kv=", \"n_kv_heads\": $(key num_key_value_heads)" narrow=', "ffn_dim_multiplier": 0.6'
while read -r name n axis; do
    "$F" meta hf "$name" "$n" "$axis" || exit 1
    params "$kv$narrow" >"$name"/params.json
    "$T" same hf "$name"; ok $? "$name: the same tensors"
    run tern ckpt export "$name" -o out-"$name"; status 0; err_has 'config.json says 4096, 2 and false'
    cmp -s hf/model.safetensors out-"$name"/model.safetensors; ok $? "$name: exported, it is the same file as from safetensors"
    for k in hidden_size intermediate_size num_key_value_heads vocab_size head_dim; do
        is "$(grep -o "\"$k\": [0-9]*" out-"$name"/config.json)" "\"$k\": $(key $k)" "$name: $k is that of the model"
    done
done <<'E'
meta-one 1 0
meta-columns 2 1
meta-rows 2 0
E
refuse() { # PARAMS WORDS
    params "$1" >meta-one/params.json
    run tern ckpt show meta-one; status 2 "params.json with '$1' is refused"; one_line; err_has "$2"
}
refuse "$narrow" attention.wk.weight
refuse "$narrow, \"n_kv_heads\": 0" n_kv_heads
refuse "$narrow$kv, \"moe\": {}" 'has moe'
for k in head_dim hidden_dim rope_scaling attention_bias quantization_args sliding_window; do
    refuse "$narrow$kv, \"$k\": 16" "has $k, which tern does not know"
done
refuse "$narrow$kv, \"use_scaled_rope\": 1" 'use_scaled_rope is neither'
refuse "$kv" feed_forward.w1.weight
refuse ', "n_layers": 2' 'duplicate object key'
rm meta-columns/consolidated.01.pth
run tern ckpt show meta-columns; status 2; one_line "a file of two is missing"; err_has 'Is a file missing?'
rm meta-rows/params.json
run tern ckpt show meta-rows; status 2; one_line; err_has 'params.json'

# What is none of these.
other() { # WORDS FILE...
    rm -rf other; mkdir other
    local words=$1
    shift
    (cd other && touch "$@")
    run tern ckpt export other -o none; status 2 "a folder of $1 is refused"; one_line; err_has "$words"
}
other 'adapters alone (PEFT)' adapter_model.safetensors adapter_config.json
other 'GGUF' model-q4.gguf
other 'DeepSpeed' zero_to_fp32.py
other 'NeuronX Distributed' tp_rank_00_pp_rank_00
other 'Megatron' mp_rank_00
other 'Get the index, too' model-00001-of-00002.safetensors
other 'Get the index, too' pytorch_model-00001-of-00002.bin
other 'It holds ' a b
run tern ckpt show nowhere; status 2; one_line; err_has 'there is no such folder'
cp -r bins cut; rm cut/pytorch_model-00002-of-00003.bin
run tern ckpt show cut; status 2; one_line; err_has 'pytorch_model-00002-of-00003.bin'
cp -r bins swapped; cp bins/pytorch_model-00001-of-00003.bin swapped/pytorch_model-00002-of-00003.bin
run tern ckpt show swapped; status 2; one_line; err_has 'is not in pytorch_model-00002-of-00003.bin'
sed -i 's,pytorch_model-00002,../pytorch_model-00002,g' cut/*.index.json
run tern ckpt show cut; status 2; one_line "an index that leads out of its folder"; err_has 'no .bin of its folder'
truncate -s 5000 bin/pytorch_model.bin
run tern ckpt export bin -o none; status 2; one_line; err_has 'bin/pytorch_model.bin: is cut off'
printf '\200\002cos\nsystem\nX\005\000\000\000touch\205R.' >old/pytorch_model.bin
run tern ckpt show old; status 2; one_line; err_has "'os.system'"
[ ! -e none ]; ok $? "a refused export leaves nothing"
tap_done
