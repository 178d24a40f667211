#!/bin/bash
# Tokenizers of every format by way of tern data: which file is read, what ends a document, what a set
# says of it.
. "$(dirname "$0")/../lib/tap.sh"

tokenizer() { # MODEL-TYPE: a tokenizer.json
    cat <<J
{"version": "1.0", "truncation": null, "padding": null,
 "added_tokens": [{"id": 0, "content": "</s>", "special": true, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false}],
 "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
 "pre_tokenizer": null, "post_processor": null, "decoder": null,
 "model": {"type": "$1", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": false,
           "vocab": {"</s>": 0, "<unk>": 1, "▁": 2, "a": 3, "b": 4, "▁a": 5, "ab": 6},
           "merges": ["▁ a", "a b"]}}
J
}
ids() { od -An -v -tu4 out | tr -s ' \n' ' '; }

mkdir json && tokenizer BPE >json/tokenizer.json
printf 'ab a</s>' >a.txt
run tern data encode -t json a.txt
is "$(ids)" " 5 4 5 1 " "tokenizer.json's merges go by their order, and a special token in text is text"
cp out ids
run tern data decode -t json ids
has out 'ab a' "ids of tokenizer.json are text again"

run tern data encode --specials -t json a.txt; status 0 "tern data encode finds special tokens where it is asked to"
is "$(ids)" " 5 4 5 0 " "with --specials a special token in text is its id"
printf '{"text": "ab a</s>"}\n{"text": "</s>ab</s>"}\n' >a.jsonl
run tern data build --specials -t json -o special.tds a.jsonl; status 0 "tern data build finds special tokens where it is asked to"
run tern data info --json special.tds; out_has '"specials": true' "a set says that special tokens were found in its texts"
run tern data stat --json special.tds; out_has '"tokens": 10' "the set's special tokens are one id each, beside the EOS of documents"
for part in 1 2; do tern data build --specials -t json --part $part/2 -o $part.part a.jsonl 2>/dev/null; done
run tern data merge -o merged.tds 1.part 2.part; status 0; cmp -s merged.tds special.tds; ok $? "parts with special tokens found in text merge into the same set"
tern data build -t json --part 2/2 -o other.part a.jsonl 2>/dev/null
run tern data merge -o mixed.tds 1.part other.part; status 2 "a part built without --specials is of another build"
run tern data build -t json -o plain.tds a.jsonl; run tern data info --json plain.tds; ! grep -q specials out; ok $? "a set of plain texts says nothing of special tokens"

run tern data build -t json -o a.tds a.txt
status 0; err_has '</s> is taken' "a tokenizer.json without a configuration: the one well-known EOS is taken, and logged"
run tern data info --json a.tds
out_has '"eos": 0' "its id ends the documents"
out_has '"tokenizer_format": "tokenizer.json"' "a set says which format its tokenizer has"
out_has '"tokenizer_file": "json/tokenizer.json"' "a set says which tokenizer file was read"

echo '{"eos_token": {"content": "ab"}}' >json/tokenizer_config.json
run tern data build -t json -o b.tds a.txt
status 0; run tern data info --json b.tds; out_has '"eos": 6' "tokenizer_config.json names the EOS"
echo '{"eos_token": "nothing"}' >json/tokenizer_config.json
run tern data build -t json -o c.tds a.txt
status 2; err_has "eos_token 'nothing' is not in the vocabulary" "an EOS that is no piece is refused by name"
[ ! -e c.tds ]; ok $? "a tokenizer that is refused leaves no set"
echo '{"eos_token": null}' >json/tokenizer_config.json
run tern data build -t json -o c.tds a.txt
status 2; err_has 'has no EOS token' "a tokenizer whose EOS is null cannot end documents"
rm json/tokenizer_config.json
for verb in encode 'build -o refused.tds'; do
    run tern data $verb --specials -t "$ROOT/tests/golden/spm-bpe-800.model" a.txt; status 2 "tern data ${verb%% *}: --specials is refused of a SentencePiece model"
    err_has 'spm-bpe-800.model is a SentencePiece model, and its library finds no special tokens in text'
done
echo '{"instruction": "a", "response": "b"}' >record.jsonl
run tern data build --specials -t json --template dolly -o refused.tds record.jsonl; status 2 "--specials is refused beside a template"
err_has 'with a --template special tokens are the template'

cp -r json both && cp "$ROOT/tests/golden/spm-bpe-800.model" both/tokenizer.model
run tern data build -t both -o both.tds a.txt
status 0; err_has 'tokenizer.model is read, not tokenizer.json' "a folder with both: the model is read, and that is logged"
err_has 'tokenizer.model and tokenizer.json differ, first in the ids of " "' "where both give other ids, a warning names a text"
run tern data info --json both.tds; out_has '"tokenizer_format": "sentencepiece"' "the set was made with the model"

mkdir llama && cp "$ROOT/tests/golden/spm-bpe-800.model" llama/tokenizer.model
run tern data build -t llama -o llama.tds a.txt
status 0; ! grep -q AutoTokenizer err; ok $? "a folder that names no class of tokenizers: nothing is said of AutoTokenizer"
for class in LlamaTokenizer LlamaTokenizerFast PreTrainedTokenizerFast; do
    echo "{\"tokenizer_class\": \"$class\"}" >llama/tokenizer_config.json
    run tern data build -t llama -o llama.tds a.txt
    status 0 "a folder of class $class"
    case $class in
    Llama*) err_has 'gives other ids to " a". Those of tokenizer.model are written' "$class: a warning names a text that AutoTokenizer reads otherwise" ;;
    *) ! grep -q AutoTokenizer err; ok $? "$class: nothing is said of AutoTokenizer" ;;
    esac
done
rm llama/tokenizer.model && cp json/tokenizer.json llama
echo '{"tokenizer_class": "LlamaTokenizer"}' >llama/tokenizer_config.json
run tern data build -t llama -o llama.tds a.txt
err_has 'gives other ids to " a". Those of tokenizer.json are written' "a tokenizer.json that puts a space before every text: so does a warning"
sed -i 's/"type": "Prepend", "prepend": "▁"/"type": "NFC"/' llama/tokenizer.json
run tern data build -t llama -o llama.tds a.txt
status 0; ! grep -q AutoTokenizer err; ok $? "a tokenizer.json that puts no space before a text: nothing is said of AutoTokenizer"

# Classes whose rules transformers 5 takes in place of the file's, of a vocabulary of bytes.
if [ -n "$DATA" ] && command -v jq >/dev/null; then
    mkdir bytes
    level='{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}'
    smol='{"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, '$level']}'
    # NAME PRE_TOKENIZER TOKENIZER_CONFIG CONFIG PROBE CLASS: the warning's words; no PROBE: there is none
    auto() {
        jq -c --argjson pre "$2" '.pre_tokenizer = $pre' "$DATA/tokenizers/gpt2/tokenizer.json" >bytes/tokenizer.json
        echo "{\"eos_token\": \"<|endoftext|>\"$3}" >bytes/tokenizer_config.json
        echo "$4" >bytes/config.json
        run tern data build -t bytes -o bytes.tds a.txt; status 0 "$1"
        if [ -n "${5-}" ]; then err_has "reads it as $6, by the rules of that class, and gives other ids to $5" "$1: a warning names class and text"
        else ! grep -q AutoTokenizer err; ok $? "$1: nothing is said of AutoTokenizer" || cat err; fi
    }
    gpt2=', "tokenizer_class": "GPT2Tokenizer"'
    auto "GPT-2's own rules" "$level" "$gpt2" '{"model_type": "gpt2"}'
    auto "SmolLM" "$smol" "$gpt2" '{"model_type": "llama"}' '"12345"' GPT2Tokenizer
    auto "the class stands in config.json" "$smol" '' '{"model_type": "llama", "tokenizer_class": "GPT2TokenizerFast"}' '"12345"' GPT2Tokenizer
    auto "the class comes of the kind of model" "$smol" '' '{"model_type": "gpt_neox"}' '"12345"' GPTNeoXTokenizer
    auto "a kind of model that goes by the file" "$smol" "$gpt2" '{"model_type": "olmo2"}'
    auto "a kind of model that always has one class" "$level" ', "tokenizer_class": "LlamaTokenizerFast"' '{"model_type": "qwen2"}' '"a\n\nb"' Qwen2Tokenizer
    auto "a class that goes by the file" "$smol" ', "tokenizer_class": "PreTrainedTokenizerFast"' '{"model_type": "gpt2"}'
    auto "LlamaTokenizer of bytes" "$smol" ', "tokenizer_class": "LlamaTokenizer"' '{"model_type": "llama"}'
    auto "a space before each text, by the configuration alone" "$level" "$gpt2, \"add_prefix_space\": true" '{}' '"a  b"' GPT2Tokenizer
    auto "an unknown kind of model without a class" "$smol" '' '{"model_type": "own"}'
    cp "$DATA/tokenizers/llama2/tokenizer.json" bytes/
    llama() { # NAME TOKENIZER_CONFIG CONFIG [PROBE CLASS]
        echo "{\"eos_token\": \"</s>\"$2}" >bytes/tokenizer_config.json; echo "$3" >bytes/config.json
        run tern data build -t bytes -o bytes.tds a.txt; status 0 "$1"
        if [ -n "${4-}" ]; then err_has "reads it as $5, by the rules of that class, and gives other ids to $4" "$1: a warning names class and text"
        else ! grep -q AutoTokenizer err; ok $? "$1: nothing is said of AutoTokenizer" || cat err; fi
    }
    llama "CodeLlama" ', "tokenizer_class": "CodeLlamaTokenizer"' '{"model_type": "llama"}' '" a"' CodeLlamaTokenizer
    llama "Llama 2 without a space before texts" ', "tokenizer_class": "LlamaTokenizer", "add_prefix_space": false' '{"model_type": "llama"}' '"a"' LlamaTokenizer
    llama "Mistral" ', "tokenizer_class": "LlamaTokenizer"' '{"model_type": "mistral"}'
else
    skip "no shared data, or no jq: no vocabulary of bytes"
fi

mkdir words && tokenizer WordPiece >words/tokenizer.json
run tern data build -t words -o c.tds a.txt
status 2; err_has "a model of type 'WordPiece' is not supported" "another algorithm is refused by name"

cp json/tokenizer.json kept
run tern data build -t json -o json/tokenizer.json a.txt
status 2; cmp -s kept json/tokenizer.json; ok $? "a build leaves a folder's tokenizer.json as it is"

for n in 1 100 127999; do
    awk -v n=$n 'BEGIN {for (i = 0; i < n; i++) print "QQ== " i}' >ranks.model
    run tern data encode -t ranks.model a.txt
    status 2
done
tap_done
