#!/bin/bash
# The tokenizer of an export: other programs find its ids, BOS and EOS, whatever the source had.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
"$T" model hf || exit 1
rm -f hf/tokenizer*
config() { jq -c "$2" "$1/tokenizer_config.json"; }

# SentencePiece without a word beside it.
cp "$ROOT/tests/golden/spm-bpe-800.model" hf/tokenizer.model
run tern ckpt export hf -o spm; status 0
cmp hf/tokenizer.model spm/tokenizer.model; ok $? "a SentencePiece model is exported as it is"
is "$(config spm '[.tokenizer_class, .bos_token, .eos_token, .unk_token]')" '["LlamaTokenizer","<s>","</s>","<unk>"]' "tokenizer_config.json names the class, BOS, EOS and the unknown token"
is "$(config spm '[.add_bos_token, .add_eos_token, .model_max_length]')" "[true,false,$(jq .max_position_embeddings hf/config.json)]" "tokenizer_config.json says where BOS and EOS stand, and the model's length"
# What the source says of it counts.
echo '{"tokenizer_class": "LlamaTokenizer", "add_bos_token": false}' >hf/tokenizer_config.json
run tern ckpt export hf -o own; status 0
cmp hf/tokenizer_config.json own/tokenizer_config.json; ok $? "a source's tokenizer_config.json is exported as it is"
rm hf/tokenizer_config.json
# A model that was exported is exported again.
run tern ckpt export spm -o again; status 0; diff -r spm again >diffs; ok $? "an export of an export is the same folder"

# A bare tokenizer.json.
mkdir json; cat >json/tokenizer.json <<'J'
{"model": {"type": "BPE", "byte_fallback": false, "ignore_merges": false, "vocab": {}, "merges": []},
 "added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true}],
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}, "decoder": {"type": "ByteLevel"}}
J
python3 - <<'P'
import json
j = json.load(open('json/tokenizer.json'))
rest = [b for b in range(256) if not (0x21 <= b <= 0x7e or 0xa1 <= b <= 0xac or 0xae <= b)]
letters = {b: chr(b) for b in range(256) if b not in rest} | {b: chr(256 + i) for i, b in enumerate(rest)}
j['model']['vocab'] = {t["content"]: t["id"] for t in j["added_tokens"]} | {letters[b]: b + 3 for b in range(256)}
for t in j['added_tokens']:
    t |= {'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False}
json.dump(j, open('json/tokenizer.json', 'w'))
P
run tern ckpt export hf -o bare --tokenizer json/tokenizer.json; status 0
[ ! -e bare/tokenizer.model ]; ok $? "a tokenizer that is named does not lie beside the source's own"
cmp json/tokenizer.json bare/tokenizer.json; ok $? "a tokenizer.json is exported as it is"
is "$(config bare '[.tokenizer_class, .eos_token, .bos_token]')" '["PreTrainedTokenizerFast","</s>","<s>"]' "beside a bare tokenizer.json EOS and BOS are named"

# One that tern does not read.
jq '.model = {type: "WordPiece", vocab: {"a": 0}}' json/tokenizer.json >json/other.json; mkdir other; mv json/other.json other/tokenizer.json
run tern ckpt export hf -o unread --tokenizer other; status 0; err_has 'WordPiece' "an export warns of a tokenizer that tern does not read"
is "$(ls unread | tr '\n' ' ')" "config.json generation_config.json model.safetensors tokenizer.json " "a tokenizer that tern does not read is left as it is"

if [ -n "$DATA" ]; then
    L=$DATA/tokenizers/llama3/tokenizer.model
    run tern ckpt export hf -o llama3 --tokenizer "$L"; status 0; err_has "written as tokenizer.json"
    is "$(ls llama3 | tr '\n' ' ')" "config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json " "Llama 3's tiktoken file is exported as a tokenizer.json alone"
    is "$(config llama3 '[.tokenizer_class, .bos_token, .eos_token]')" '["PreTrainedTokenizerFast","<|begin_of_text|>","<|end_of_text|>"]' "an export with Llama 3's tokenizer names its BOS and EOS"
    is "$(jq -c '[(.model.vocab | length), (.added_tokens | length), .model.ignore_merges]' llama3/tokenizer.json)" '[128000,256,true]' "the tokenizer.json of Llama 3 has its ranks and special tokens"
    printf '{"text": "Hello  world, it'\''s 2026 \\u00e9"}\n' >text.jsonl
    run tern data build text.jsonl -t "$L" -o a.tds; run tern data build text.jsonl -t llama3 -o b.tds; status 0
    is "$(tern data head a.tds 2>&1 | md5sum)" "$(tern data head b.tds 2>&1 | md5sum)" "texts have the same ids by the exported tokenizer"
    jq -c '.tokenizer_hash // .vocabulary // empty' <(tern data info --json a.tds) >one; jq -c '.tokenizer_hash // .vocabulary // empty' <(tern data info --json b.tds) >two
    cmp one two; ok $? "a token set knows the exported tokenizer by the same name"
    run tern ckpt export hf -o /dev/full/x --tokenizer "$L"; one_line "an export to an impossible place: one clear line"
else
    skip "no shared data: Llama 3's tokenizer"
fi
tap_done
