#!/bin/bash
# Ids equal sentencepiece's, for the models at hand and for models trained here with other settings.
. "$(dirname "$0")/../lib/tap.sh"
python=
for p in python3 /usr/bin/python3; do
    $p -c 'import sentencepiece' 2>/dev/null && { python=$p; break; }
done
[ -n "$python" ] || skip_all "no sentencepiece for Python (Debian: python3-sentencepiece)"

compare() { # MODEL NAME FILE...
    "$python" "$ROOT/tests/peers/token.py" "$TOOLS/token-pipe" "$@" >result 2>&1
    rc=$?
    while IFS= read -r line; do
        case $line in
        ok*) ok 0 "${line#ok - }" ;;
        "not ok"*) ok 1 "${line#not ok - }" ;;
        *) echo "$line" ;;
        esac
    done <result
    [ $rc = 0 ] || ok 1 "$2: the comparison ran"
}

G=$ROOT/tests/golden/spm-bpe-800.model
[ -n "$DATA" ] && few="$DATA/utf8/blns.txt $DATA/utf8/utf8tests.txt $DATA/general/general_val.jsonl" || few=
[ -n "$DATA" ] && many="$few $(echo "$DATA"/general/*.jsonl "$DATA"/pubmed/*.jsonl "$DATA"/multilingual/*.jsonl)"
compare "$G" golden $few
if [ -n "$DATA" ]; then
    compare "$DATA/tokenizers/llama2/tokenizer.model" llama2 $many
    compare "$DATA/tokenizers/mini-spm-4k/tokenizer.model" mini-spm-4k $many
    echo 'one text' >one.txt
    tern data build -t "$DATA/tokenizers/llama2" -o one.tds one.txt 2>err
    want=$("$python" "$ROOT/tests/peers/vocabulary.py" "$DATA/tokenizers/llama2/tokenizer.json")
    tern data info --json one.tds | grep -qF "\"$want\""
    ok $? "llama2: tokenizer.json and tokenizer.model have one vocabulary hash"
    # As transformers 5 saves it: no unk_token, no normaliser, merges in the order of ids.
    mkdir five && cp "$DATA/tokenizers/llama2/tokenizer.model" five/
    if "$python" -c 'import transformers; assert int(transformers.__version__.split(".")[0]) >= 5
transformers.LlamaTokenizerFast.from_pretrained("five").save_pretrained("saved")' >/dev/null 2>&1; then
        . "$ROOT/tests/lib/tiny.sh"
        tiny_make 2>/dev/null
        tern data build -t five -o llama.tds train.jsonl 2>/dev/null
        sed -i 's/: 800/: 32000/' model/config.json
        sed 's,tokenizer: model},tokenizer: saved},; s,data/t[a-z]*.tds,llama.tds,' run.yaml >saved.yaml
        run tern run --check saved.yaml; status 0 "llama2: what transformers 5 saves is the same vocabulary"
    else
        skip "no transformers 5"
    fi
else
    skip "no shared data"
fi

if ! command -v spm_train >/dev/null || [ -z "$DATA" ]; then
    skip "no spm_train (Debian: sentencepiece) or no text"
    tap_done
fi
"$python" -c 'import json, sys
for line in open(sys.argv[1]):
    print(json.loads(line)["text"])' "$DATA/general/general_val.jsonl" >text
train() { # NAME OPTION...
    name=$1; shift
    spm_train --input=text --model_prefix="$name" --model_type=bpe --vocab_size=1000 \
        --normalization_rule_name=identity --hard_vocab_limit=false "$@" >log 2>&1
    ok $? "spm_train makes '$name'" && compare "$name.model" "$name" $few
}
train plain-unk --remove_extra_whitespaces=true --character_coverage=0.99
train suffix --remove_extra_whitespaces=false --byte_fallback --treat_whitespace_as_suffix=true
train across-words --remove_extra_whitespaces=false --split_by_whitespace=false \
    --add_dummy_prefix=false --user_defined_symbols='<sep>,the,ing,<s2>,▁and' --control_symbols='<c>'
train suffix-squeezed --remove_extra_whitespaces=true --byte_fallback --split_by_whitespace=false \
    --treat_whitespace_as_suffix=true --user_defined_symbols=xx,th,the --bos_id=-1
# Protocol buffers merge: a normaliser appended to the file turns escape_whitespaces (5) off.
for from in plain-unk suffix; do
    { cat $from.model; printf '\x1a\x02\x28\x00'; } >$from-unescaped.model
    compare $from-unescaped.model $from-unescaped $few
done
tap_done
