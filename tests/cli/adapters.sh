#!/bin/bash
# Adapters (LoRA, DoRA) out of a checkpoint: as PEFT's, and put into the weights.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
is() { [ "$1" = "$2" ]; ok $? "$3" || echo "# got '$1', wanted '$2'"; }
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/; s/every: 1,/every: 0,/' run.yaml
run tern run run.yaml; status 0
run tern ckpt export checkpoints/latest -o base; status 0
echo '{"eos_token_id": 2}' >base/generation_config.json
# What does not change from one line to the next is under `lora`, the rest in the call.
adapt() { # NAME KEYS: a run of adapters beside `base`
    run tern run run.yaml --set name=$1 --set checkpoint.dir=$1 --set 'model={from: base}' --set optimizer.lr=1e-2 \
        --set "lora={rank: 3, alpha: 5, targets: [q_proj, v_proj, o_proj, up_proj, down_proj]$2}"
    status 0 "a run of adapters: $1"
}
nats() { tern eval run.yaml --only --checkpoint "$1" --json 2>/dev/null | jq -r '.. | .nll? // empty'; }
near() { awk -v a="$1" -v b="$2" 'BEGIN {d = a / b - 1; exit !(a > 0 && d < 1e-6 && d > -1e-6)}'; }
adapt lora ', dropout: 0.25, rslora: true'
adapt dora ', dora: true'

# As PEFT's.
run tern ckpt export lora/latest -o peft; status 0; err_has '20 tensors of adapters'; err_has 'tern ckpt merge'
run tern ckpt export lora/latest -o none-nxd --to nxd; status 2; one_line; err_has 'holds adapters beside its weights'; [ ! -e none-nxd ]; ok $? "adapters are not exported to ranks, and nothing is left"
is "$(ls peft | tr '\n' ' ')" "adapter_config.json adapter_model.safetensors " "an export has the files that PEFT reads, and no others"
is "$(jq -c '[.peft_type, .task_type, .r, .lora_alpha, .lora_dropout, .use_rslora, .use_dora, .bias, .fan_in_fan_out]' peft/adapter_config.json)" \
    '["LORA","CAUSAL_LM",3,5,0.25,true,false,"none",false]' "its config"
is "$(jq -r '.target_modules | join(" ")' peft/adapter_config.json)" "q_proj v_proj o_proj up_proj down_proj" "adapter_config.json names the linear layers"
is "$(jq -r .base_model_name_or_path peft/adapter_config.json)" "$PWD/base" "adapter_config.json names the base model"
run tern ckpt export dora/latest -o peft-dora --base me/base-8b --dtype bf16; status 0; err_has '30 tensors'
is "$(jq -c '[.use_dora, .use_rslora, .base_model_name_or_path]' peft-dora/adapter_config.json)" '[true,false,"me/base-8b"]' "an export of DoRA has the name given for its base"
names() { head -c "$((8 + $(od -An -tu8 -N8 "$1")))" "$1" | tail -c +9 | jq -r 'keys[] | select(. != "__metadata__")'; }
is "$(names peft-dora/adapter_model.safetensors | grep -c '^base_model.model.model.layers.[01].\(self_attn\|mlp\).[a-z]*_proj.\(lora_[AB].weight\|lora_magnitude_vector\)$')" 30 "arrays of an export have PEFT's names"

# Put into the weights.
for m in lora dora; do
    run tern ckpt merge $m/latest -o $m-hf; status 0
    is "$(ls $m-hf | tr '\n' ' ')" "config.json generation_config.json model.safetensors tokenizer.model tokenizer_config.json " "a merge makes a whole Hugging Face folder"
    a=$(nats $m/latest); b=$(nats $m-hf); c=$(nats base)
    d=$(tern ledger sql --ledger ledger -r $m -n -P "select printf('%.17g', nll) from eval where step = 8")
    near "$a" "$b" && near "$b" "$d" && awk -v a="$a" -v c="$c" 'BEGIN {exit !(a - c < -1)}'
    ok $? "$m: merged, the loss of the checkpoint, which the run has with adapters beside ($b, $a, $d; before $c)"
    run tern ckpt merge $m/latest --base base -o $m-beside; status 0
    cmp $m-hf/model.safetensors $m-beside/model.safetensors; ok $? "a merge into the weights of a folder gives the same"
    run tern ckpt merge $m/latest --base checkpoints/latest -o $m-ours; status 0
    cmp $m-hf/model.safetensors $m-ours/model.safetensors; ok $? "a merge into the weights of a checkpoint gives the same"
done
! cmp -s lora-hf/model.safetensors base/model.safetensors; ok $? "merged weights differ from the base's"
run tern ckpt merge dora/latest -o half --dtype bf16 --max-shard 40KB; status 0
has half/config.json '"torch_dtype": "bfloat16"'; [ -f half/model.safetensors.index.json ]; ok $? "a merge into several files"

# PEFT's folders come back in.
run tern ckpt export dora/latest -o peft-dora32; status 0
run tern ckpt merge peft -o back-lora; status 0
cmp lora-hf/model.safetensors back-lora/model.safetensors; ok $? "adapters of PEFT are put into the base that their config names"
run tern ckpt merge peft --base checkpoints/latest -o back-ours; status 0
cmp lora-hf/model.safetensors back-ours/model.safetensors; ok $? "adapters of PEFT are put into a checkpoint's weights"
[ -f back-ours/tokenizer.model ] && [ -f back-ours/config.json ]; ok $? "a merge into a checkpoint makes a whole Hugging Face folder"
run tern ckpt merge peft --base lora/latest -o none; status 2; one_line; err_has 'has adapters of its own'
run tern ckpt merge peft-dora32 --base base -o back-dora; status 0
cmp dora-hf/model.safetensors back-dora/model.safetensors; ok $? "DoRA's, too, into the base that is given"
[ -f back-dora/tokenizer.model ] && [ -f back-dora/config.json ]; ok $? "a merge of PEFT's adapters makes a whole Hugging Face folder"
cp -r peft peft-bin; mkdir as-model; mv peft-bin/adapter_model.safetensors as-model/model.safetensors; cp base/config.json as-model
"$TOOLS/torch-tool" bin as-model as-bin && mv as-bin/pytorch_model.bin peft-bin/adapter_model.bin
run tern ckpt merge peft-bin -o back-bin; status 0
cmp lora-hf/model.safetensors back-bin/model.safetensors; ok $? "adapter_model.bin is read as adapter_model.safetensors"
cp -r peft changed
edited() { # JQ: peft with a changed config
    jq "$1" peft/adapter_config.json >changed/adapter_config.json; rm -rf none
    run tern ckpt merge changed -o none
}
edited '.lora_alpha = 1 | .alpha_pattern = {"q_proj": 5, "model.layers.0.self_attn.(v|o)_proj": 5, ".*": 5} | .target_modules = "all-linear"'; status 0
cmp lora-hf/model.safetensors none/model.safetensors; ok $? "alpha_pattern counts where it matches"
edited '.lora_alpha = 1 | .alpha_pattern = {"^model\\.layers\\.[0-9]+\\.self_attn\\.(q|v|o)_proj$": 5, "(mlp.(up|[c-e][a-z_-]wn)_?)+proj|x[^.]?": 5}'; status 0
cmp lora-hf/model.safetensors none/model.safetensors; ok $? "alpha_pattern may have groups, classes and repeats"
edited '.alpha_pattern = {"proj": 9, "q": 9}'; status 0
cmp lora-hf/model.safetensors none/model.safetensors; ok $? "alpha_pattern matches whole names alone"
edited '.use_rslora = false'; status 0
! cmp -s lora-hf/model.safetensors none/model.safetensors; ok $? "with use_rslora false the merged model changes"
while IFS='|' read -r change words; do
    edited "$change"; status 2 "PEFT's adapters with $change are refused"; one_line; err_has "$words"
done <<'E'
.init_lora_weights = "pissa_niter_16"|init_lora_weights is pissa_niter_16
.init_lora_weights = "olora"|a changed base
.init_lora_weights = "corda"|init_lora_weights is corda: these adapters belong to a changed base
.init_lora_weights = "lora_ga"|init_lora_weights is lora_ga: these adapters belong to a changed base
.layer_replication = [[0, 2]]|layer_replication
.target_parameters = ["x"]|target_parameters
.trainable_token_indices = [1]|trainable_token_indices
.lora_bias = true|lora_bias
.a_field_of_tomorrow = 1|a_field_of_tomorrow
.peft_type = "IA3"|peft_type is IA3
.alpha_pattern = {"(?:q)_proj": 3}|cannot be read
.alpha_pattern = {"[\\w]+": 3}|cannot be read
.alpha_pattern = {"q\\D*": 3}|cannot be read
.alpha_pattern = {"\\Aq_proj": 3}|cannot be read
.alpha_pattern = {"q??_proj": 3}|cannot be read
.alpha_pattern = {"q_proj++": 3}|cannot be read
.alpha_pattern = {"*q_proj": 3}|cannot be read
.alpha_pattern = {"^*q_proj": 3}|cannot be read
.alpha_pattern = {"q{1,200}": 3}|cannot be read
.alpha_pattern = {"q_proj)(v_proj": 3}|cannot be read
.alpha_pattern = {"(q_proj": 3}|cannot be read
.alpha_pattern = {"[]q]_proj": 3}|cannot be read
.alpha_pattern = {"[a-z-9]_proj": 3}|cannot be read
.alpha_pattern = {"[z-a]_proj": 3}|cannot be read
.alpha_pattern = {"[q_proj": 3}|cannot be read
.alpha_pattern = {"[[:alpha:]]_proj": 3}|cannot be read
.alpha_pattern = {"q_proj\\": 3}|cannot be read
.alpha_pattern = {"q_prój": 3}|cannot be read
.alpha_pattern = {"(((((q)))))_proj": 3}|cannot be read
.alpha_pattern = {("(" * 200000): 3}|cannot be read
.alpha_pattern = {("q" * 201): 3}|cannot be read
.alpha_pattern = {"q_proj": "3"}|has no number
.alpha_pattern = ["q_proj"]|is no object
.alpha_pattern = reduce range(4097) as $i ({}; .["q\($i)"] = 3)|at most 4096
.base_model_name_or_path = "me/base-8b"|Give --base
.use_dora = true|lora_magnitude_vector
E
# Whole weights beside adapters (modules_to_save).
with_array() { # NAME SHAPE: `changed` is peft with an array of zeros
    local f=peft/adapter_model.safetensors n h b i
    n=$(($(od -An -tu8 -N8 $f))) b=$((4 * ${2/,/*}))
    h=$(head -c $((8 + n)) $f | tail -c +9 | jq -c --arg name "$1" --argjson from $(($(stat -c %s $f) - 8 - n)) --argjson bytes $b --argjson shape "[$2]" \
        '. + {($name): {dtype: "F32", shape: $shape, data_offsets: [$from, $from + $bytes]}}')
    while [ $((${#h} % 8)) != 0 ]; do h+=' '; done
    { for i in 0 1 2 3 4 5 6 7; do printf "\\x$(printf %02x $((${#h} >> 8 * i & 255)))"; done
      printf %s "$h"; tail -c +$((9 + n)) $f; head -c $b /dev/zero; } >changed/adapter_model.safetensors
    edited .
}
c=$(jq .hidden_size base/config.json)
with_array base_model.model.model.norm.weight $c; status 0 "a weight that was trained whole is put in"
! cmp -s lora-hf/model.safetensors none/model.safetensors; ok $? "a weight that was trained whole counts"
with_array base_model.model.model.layers.0.self_attn.q_proj.weight $c,$c; status 2; one_line; err_has 'and an adapter of it'
cp peft/adapter_model.safetensors changed

edited '.a_field_of_tomorrow = false | .lora_dropout = 0.5'; status 0 "what changes no weight is no reason to refuse"
cp peft-dora32/adapter_model.safetensors changed
edited .; status 2; one_line; err_has 'use_dora is false'
cp base/model.safetensors changed/adapter_model.safetensors
edited .; status 2; one_line; err_has 'has no place in the base model'
run tern ckpt export peft -o none2; status 2; one_line; err_has 'tern ckpt merge'

# As a model they are refused, with the way to one.
run tern run --check run.yaml --set 'model={from: peft, tokenizer: model}'; status 2; err_has 'model.from'; err_has "adapters of PEFT (LORA), and no model. Their base is '$PWD/base', which is a folder here."
err_has "tern ckpt merge peft -o FOLDER"
jq '.base_model_name_or_path = "me/base-8b"' peft/adapter_config.json >changed/adapter_config.json
run tern run run.yaml --set name=none --set 'model={from: changed, tokenizer: model}'; status 2; err_has "Their base is 'me/base-8b', which is no folder here."
err_has "tern ckpt merge $PWD/changed --base BASE -o FOLDER"

# New adapters beside a model that had some: these are in its weights.
run tern run run.yaml --set name=more --set checkpoint.dir=more --set 'model={from: dora/latest, tokenizer: model}' --set 'lora={rank: 2}' --set steps=1 --set schedule.warmup=0; status 0
a=$(tern ledger sql --ledger ledger -r more -n -P "select printf('%.17g', nll) from eval where step = 0"); b=$(nats dora-hf)
near "$a" "$b"; ok $? "a run of new adapters begins from the old ones' model ($a, $b)"

# Adapters go on as what they are, whatever is accepted.
where="targets: [q_proj, v_proj, o_proj, up_proj, down_proj]"
while IFS='|' read -r lora words; do
    rm -rf shape; cp -r lora shape
    run tern train run.yaml --accept --set checkpoint.dir=shape --set steps=9 --set 'model={from: base, tokenizer: model}' ${lora:+--set "lora={$lora}"}
    status 2 "adapters do not go on as ${lora:-the whole model}"; err_has "$words"
    [ "$(ls shape)" = "$(ls lora)" ]; ok $? "a refused export or merge writes nothing"
done <<E
rank: 1, $where|the recipe of rank 1 beside 5
rank: 3, targets: [q_proj]|the recipe of rank 3 beside 1
rank: 3, dora: true, $where|the recipe of rank 3 with magnitudes (dora) beside 5
|the recipe of rank 0 beside 0
E
run tern run --check run.yaml --set 'model={from: base, tokenizer: model, optimizer: keep}' --set 'lora={rank: 2}'
status 2; err_has "'keep', but adapters are new and have no moments yet"
run tern train run.yaml --set checkpoint.dir=kept --set 'model={from: lora/latest, tokenizer: model, optimizer: keep}'
status 2; err_has "has optimizer state of adapters alone"

# What cannot be.
run tern ckpt merge lora/latest; status 2; one_line; err_has '--out'
run tern ckpt merge lora/latest -o half; status 2; one_line; err_has 'is there already'
run tern ckpt merge checkpoints/latest -o none; status 2; one_line; err_has 'holds no adapters'
run tern ckpt merge lora/latest --base model -o none; status 2; one_line
cp -r base other; sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' other/config.json
run tern run run.yaml --set name=small --set checkpoint.dir=small --set 'model={config: other/config.json, tokenizer: model}' --set steps=2; status 0
run tern ckpt export small/latest -o small-hf; status 0
run tern ckpt merge lora/latest --base small-hf -o none; status 2; one_line; err_has "small-hf: its config wants tensor 'model.layers.1."
cp -r lora bad; s=$(ls bad/step-*/shard-*)
printf '\377' | dd of="$s" bs=1 seek=$(($(stat -c %s "$s") - 65)) conv=notrunc 2>/dev/null # in the last of the frozen weights
run tern ckpt merge bad/latest -o none; status 2; one_line; err_has 'does not match its digest'
[ -z "$(ls -d none* 2>/dev/null)" ]; ok $? "a refused merge leaves nothing"

# Ended in the middle of it, by Ctrl-C and by kill -9.
if strace -o /dev/null true 2>/dev/null; then
    cut_off() { # SIGNAL READ
        run env ASAN_OPTIONS=detect_leaks=0 strace -f -o /dev/null -e trace=pread64 -e inject=pread64:signal=$1:when=$2 \
            tern ckpt merge dora/latest -o cut --max-shard 40KB
    }
    cut_off INT 12; status 130; one_line; is "$(ls -d cut*)" cut.unfinished "Ctrl-C in a merge leaves nothing but what the next call goes on with"
    for n in 1 2 8 12 30; do
        cut_off KILL $n 2>/dev/null
        [ ! -e cut ]; ok $? "killed at read $n, there is no folder of that name (status $rc)"
    done
else
    skip "strace may not trace here"
fi
run tern ckpt merge dora/latest -o cut --max-shard 40KB; status 0
b=$(nats cut); near "$(nats dora/latest)" "$b"; ok $? "a merge after interrupted ones is whole, in several files, with the same loss ($b)"
tap_done
