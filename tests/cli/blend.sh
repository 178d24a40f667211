#!/bin/bash
# tern ckpt blend: checkpoints and model folders become one model; what cannot be blended; interrupted, killed, disk full.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/; s/keep: 2/keep: 8/' run.yaml
run tern run run.yaml --set steps=4 --set optimizer.lr=1e-2; status 0
one=checkpoints/step-00000002 two=checkpoints/step-00000003
run tern ckpt export checkpoints/step-00000001 -o base; status 0
run tern ckpt export $two -o two; status 0
echo '{"eos_token_id": 2}' >base/generation_config.json
blend() { rm -rf out-dir; run tern ckpt blend -o out-dir "$@"; }
same() { cmp "$1/model.safetensors" "$2/model.safetensors"; }
nats() { tern eval run.yaml --only --checkpoint "$1" --json 2>/dev/null | jq -r '.. | .nll? // empty'; }

# A folder of Hugging Face, with what the first model or the base has beside its weights.
blend base $one; status 0; err_has 'linear of 2 models, 20 tensors'
is "$(ls out-dir | tr '\n' ' ')" "config.json generation_config.json model.safetensors tokenizer.model tokenizer_config.json " "a blend is a whole Hugging Face folder"
cmp base/generation_config.json out-dir/generation_config.json; ok $? "the generation config of the first model comes along"
is "$(jq -S 'del(.torch_dtype)' out-dir/config.json)" "$(jq -S 'del(.torch_dtype)' base/config.json)" "the config of the first model comes along"
n=$(nats out-dir); awk -v n="$n" -v b="$(nats base)" 'BEGIN {exit !(b > 0 && n > b / 2 && n < b * 1.5)}'; ok $? "tern eval takes the blend ($n)"
blend $one two -m ties --base base --density 0.5; status 0; err_has 'ties of 2 models'
[ -f out-dir/generation_config.json ]; ok $? "the generation config of the base comes along"

# Known results.
blend two $two; status 0; same out-dir two; ok $? "linear: a model and its checkpoint blend to itself, byte for byte"
blend base $one two -w 0,0,3; status 0; same out-dir two; ok $? "linear: models of weight 0 count for nothing"
blend two base -w 1,0 --normalize no; status 0; same out-dir two; ok $? "linear: the weights need not be divided"
blend two base -m slerp -t 0; status 0; same out-dir two; ok $? "slerp: t = 0 is the first model"
blend two base -m slerp -t 1; status 0; same out-dir base; ok $? "slerp: t = 1 is the second model"
blend two $one -m ties --base base --lambda 0; status 0; same out-dir base; ok $? "ties: lambda 0 is the base"
blend base base -m dare_linear --base base --density 0.5; status 0; same out-dir base; ok $? "dare: models without a difference blend to the base"
blend $one two -m ties --base base -w 0.5 --density 0.3,0.6; status 0; mv out-dir ties
blend $one two -m ties --base base -w 0.5,0.5 --density 0.3,0.6 --int8-mask; status 0
same out-dir ties; ok $? "ties: --int8-mask changes nothing, and one weight is that of all models"
blend two $one -m ties --base base -w 0.5 --density 0.6,0.3; status 0; same out-dir ties; ok $? "ties: the models' order does not count"
blend $one two -m ties --base base -w 0.5 --density 0.3,0.7; status 0; ! same out-dir ties >/dev/null; ok $? "ties: the density counts"
blend $one two -m dare_ties --base base --density 0.4 --seed 7 --threads 1; status 0; mv out-dir dare
blend $one two -m dare_ties --base base --density 0.4 --seed 7 --threads 3; status 0
same out-dir dare; ok $? "dare: a seed writes the same bytes with any number of threads"
blend $one two -m dare_ties --base base --density 0.4 --seed 8; status 0; ! same out-dir dare >/dev/null; ok $? "dare: another seed writes others"
blend $one two -m dare_ties --base base --density 0.4 --seed 7 --rescale no; status 0; ! same out-dir dare >/dev/null; ok $? "dare: --rescale counts"
blend $one two -m dare_linear --base base --density 0.4 --seed 7; status 0; ! same out-dir dare >/dev/null; ok $? "dare_linear and dare_ties differ"

# Types and files.
blend base $one --dtype bf16 --max-shard 40KB; status 0
is "$(jq -r .torch_dtype out-dir/config.json)" bfloat16 "config.json has the type of the blend"
for f in out-dir/*.safetensors; do [ "$(stat -c %s "$f")" -gt 52000 ] && echo "$f"; done >large
[ ! -s large ] && [ "$(ls out-dir/model-0000?-of-0000?.safetensors | wc -l)" = 2 ]; ok $? "no file of a blend is larger than --max-shard" || ls -l out-dir
is "$(jq -r '.weight_map | keys | length' out-dir/model.safetensors.index.json)" 20 "the index has each tensor"
# Tensors above the limit have files of their own, between those of tensors that go on behind them.
blend two base -w 1,0 --max-shard-size 6KB; status 0; run tern ckpt export two -o parts --max-shard-size 6KB; status 0
run tern ckpt diff --full two out-dir; status 0 "a blend in files smaller than a tensor has every weight"
cmp -s out-dir/model.safetensors.index.json parts/model.safetensors.index.json; ok $? "its index is that of an export"
[ "$(cat out-dir/model-*.safetensors | sha256sum)" = "$(cat parts/model-*.safetensors | sha256sum)" ]; ok $? "its files are those of an export"
run tern ckpt export base -o narrow --dtype bf16; status 0
blend narrow two -m linear -w 0,1; status 0; run tern ckpt export two -o two-16 --dtype bf16
same out-dir two-16; ok $? "models of several types blend to that of the first, rounded once"
blend two narrow -w 1,0; status 0; same out-dir two; ok $? "a blend is in F32 when its first model is"
jq '.dtype = "float32"' base/config.json >c && mkdir new && cp base/* new && mv c new/config.json
blend new $one --dtype f16; status 0; is "$(jq -r '.dtype + " " + .torch_dtype' out-dir/config.json)" "float16 float16" "dtype of newer configs, too, is that of the blend"
"$TOOLS/torch-tool" bin two bin 2>/dev/null && cp two/config.json two/tokenizer.model bin && rm -f bin/model.safetensors
blend bin base -w 1,0; status 0; same out-dir two; ok $? "a folder of pytorch_model.bin is blended"

# What cannot be: one clear line, and nothing is left.
refused() { # WORDS ARGS...
    local words=$1; shift
    rm -rf none*; run tern ckpt blend -o none "$@"; status 2 "refused: blend $*"; one_line "blend $*: one clear line"; err_has "$words"
    [ -z "$(ls -d none* 2>/dev/null)" ]; ok $? "blend $*: nothing is left"
}
run tern ckpt blend base two; status 2; one_line; err_has '--out'
mkdir full; echo x >full/x; run tern ckpt blend base two -o full; status 2; one_line; err_has 'is there already'
run tern ckpt blend base two -o base; status 2; one_line; err_has 'is there already'
while IFS='|' read -r words args; do
    # shellcheck disable=SC2086
    refused "$words" $args
done <<E
none of linear|base two -m mean
--base: does not go with --method linear|base two --base base
--t: does not go with --method ties|base two -m ties -t 0.5
--seed: does not go with --method ties|base two -m ties --seed 3
--weight: does not go with --method slerp|base two -m slerp -w 1
--density: does not go with --method linear|base two --density 0.5
--int8-mask: does not go|base two --int8-mask
--base|base two -m ties
slerp blends two models|base -m slerp
slerp blends two models|base two $one -m slerp
3 values for 2 models|base two -w 1,2,3
'x' is no number|base two -w 1,x
'nan' is no number|base two -w 1,nan
sum up to 0|base two -w 1,-1
its density is 0|two -m ties --base base --density 0
its density is 1.5|two -m dare_ties --base base --density 1.5
t is 1.5|base two -m slerp -t 1.5
neither yes nor no|base two --normalize maybe
no whole number|two -m dare_ties --base base --seed -1
--dtype|base two --dtype f8
--max-shard|base two --max-shard 0
--threads|base two --threads 5000
no such tokenizer folder|base two --tokenizer nowhere
nowhere: there is no such folder|base nowhere
nowhere|two -m ties --base nowhere
are beyond F16|base two -w 1e8,1 --normalize no --dtype f16
are beyond F32|base two -w 1e30,1e30 --threads 2 -m dare_linear --base $one --lambda 1e30
E
# shellcheck disable=SC2046
refused '33 models' $(yes base | head -n 33)
while IFS='|' read -r change words; do
    rm -rf odd; cp -r two odd; jq "$change" two/config.json >odd/config.json
    refused "$words" base odd
done <<'E'
.rope_theta = 500000|odd: rope_theta is 500000 in its config, 10000 in that of base
.rms_norm_eps = 1e-6|odd: rms_norm_eps is 1e-06 in its config, 1e-05
.hidden_size = 64|odd: tensor 'model.embed_tokens.weight' has not the shape
.vocab_size = 801|odd: tensor 'model.embed_tokens.weight' has not the shape
.tie_word_embeddings = false|odd: its config wants tensor 'lm_head.weight'
.rope_scaling = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 32}|odd: rope_scaling in its config
.hidden_size = "many"|odd
E
"$TOOLS/ckpt-tool" model other 900 && refused 'other: vocab_size is 900 in its config, 800 in that of base' base other
rm -rf odd; cp -r two odd; LC_ALL=C sed -i 's/the/tha/' odd/tokenizer.model
refused "odd: its tokenizer has another vocabulary than that of base (id" base odd
blend base odd --tokenizer odd; status 0; cmp odd/tokenizer.model out-dir/tokenizer.model; ok $? "the tokenizer that is named is taken, whatever the models have"
rm odd/tokenizer.model; blend base odd; status 0 "a model without a tokenizer is blended"
rm -rf odd; cp -r two odd; LC_ALL=C sed -i '0,/"F32"/s//"I32"/' odd/model.safetensors; refused 'is I32, no kind of float' base odd; refused 'is I32, no kind of float' odd base
rm -rf odd; cp -r two odd; head=$((8 + $(od -An -tu8 -N8 two/model.safetensors)))
printf '\377\377\377\177' | dd of=odd/model.safetensors bs=1 seek=$((head + 400)) conv=notrunc 2>/dev/null; refused "odd: tensor 'model.embed_tokens.weight' holds values that are infinite or no numbers" base odd; refused 'odd: tensor' odd -m ties --base base
for at in 0 4 8 60 $((head - 1)) $((head + 9)); do
    head -c "$at" two/model.safetensors >odd/model.safetensors; refused odd base odd
done
cp -r $two cut; truncate -s -5 cut/shard*; refused cut base cut
cp -r $two step-00000003; for f in step-00000003/shard*; do printf '\001' | dd of="$f" bs=1 seek=$((8 + $(od -An -tu8 -N8 "$f") + 102)) conv=notrunc 2>/dev/null; done
refused 'does not match its digest' base step-00000003
run tern run run.yaml --set name=adapted --set checkpoint.dir=adapted --set 'model={from: base}' --set 'lora={rank: 2}' --set steps=2 --set schedule.warmup=1; status 0
refused 'holds adapters beside its weights' base adapted/latest
run tern ckpt export adapted/latest -o peft; status 0; refused 'tern ckpt merge' base peft

# Interrupted, killed, no room: nothing under the name.
if strace -o /dev/null true 2>/dev/null; then
    stop() { # SIGNAL READ: signalled at that read
        run env ASAN_OPTIONS=detect_leaks=0 strace -f -o /dev/null -e trace=pread64 -e "inject=pread64:signal=$1:when=$2" \
            tern ckpt blend -m ties --base base $one two --density 0.5 -o stopped --threads 1
    }
    stop INT 12; status 130 "Ctrl-C in a blend: exit status 130"; one_line "an interrupted blend prints one clear line"
    [ -z "$(ls -d stopped* 2>/dev/null)" ]; ok $? "an interrupted blend leaves nothing"
    for at in 1 3 9; do stop KILL $at 2>/dev/null; [ ! -e stopped ]; ok $? "a blend killed at its read $at has no folder under its name"; done
    rm -rf stopped*; run tern ckpt blend -m ties --base base $one two --density 0.5 -o stopped; status 0 "a blend that was killed can be made again"
else
    skip "strace may not trace here"
fi
( trap '' XFSZ; ulimit -f 64; exec tern ckpt blend base two -o room ) 2>err; [ $? != 0 ]; ok $? "a blend without room fails"
one_line "a blend without room prints one clear line"; [ -z "$(ls -d room* 2>/dev/null)" ]; ok $? "a blend without room leaves nothing"
mkdir small
if unshare -rm mount -t tmpfs -o size=64k none small 2>/dev/null; then
    run unshare -rm sh -c "mount -t tmpfs -o size=64k none small && { tern ckpt blend base two -o small/out; rc=\$?; ls small >left; exit \$rc; }"
    status 75 "a blend on a full disk: exit status 75"; err_has 'No space left on device'; one_line "a blend on a full disk prints one clear line"
    is "$(cat left)" "" "a blend on a full disk leaves nothing"
else
    skip "no file system may be mounted here"
fi
tap_done
