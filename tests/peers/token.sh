#!/bin/bash
# Ids and texts equal those of the library of each format: sentencepiece, tokenizers, tiktoken; for the
# models at hand and for models made here in other published shapes.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
venv_tokenizers || skip_all "no sentencepiece, tokenizers, tiktoken and transformers (make deps-peers, with a network)"
python="$VENV/bin/python -I"
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error

tap() { # COMMAND...: its lines, numbered
    tap_lines < <("$@" 2>&1 || echo "not ok - $1: ran to its end")
}
texts() { $python "$ROOT/tests/peers/token_texts.py" "$@" || ok 1 "texts are made"; }
against() { # TEXTS: library, model, name become a row of the list
    sed "s,\$,\t$WORK/$1," >>list
}
row() { printf '%s\t%s\t%s\n' "$@"; }

size=0.4; long && size=6
G=$ROOT/tests/golden/spm-bpe-800.model T=$DATA/tokenizers
if [ -n "$DATA" ]; then
    corpora=$(echo "$DATA"/general/*.jsonl "$DATA"/pubmed/*.jsonl "$DATA"/multilingual/*.jsonl "$DATA"/instruct/*.jsonl)
    few="$DATA/general/general_val.jsonl $DATA/utf8/blns.txt $DATA/utf8/utf8tests.txt"
    texts everything 1 $few $corpora
    if long; then texts some $size $few $corpora; else texts some $size $few "$DATA/instruct/dolly_mini.jsonl"; fi
    $python -c 'import json, sys
for line in open(sys.argv[1]):
    print(json.loads(line)["text"])' "$DATA/general/general_val.jsonl" >text
else
    skip "no shared data: short texts, models learnt from the README"
    texts some $size "$ROOT/README.md"
    cat "$ROOT/README.md" "$ROOT/HACKING.md" >text
fi
texts long1 long 500000
texts long4 long 2000000

row sentencepiece "$G" golden | against some
if [ -n "$DATA" ]; then
    row sentencepiece "$T/llama2/tokenizer.model" llama2 | against everything
    row sentencepiece "$T/mini-spm-4k/tokenizer.model" mini-spm-4k | against everything
    row json "$T/llama2/tokenizer.json" llama2-json | against everything
    row json "$T/gpt2/tokenizer.json" gpt2 | against everything
    row tiktoken "$T/llama3/tokenizer.model" llama3 | against everything
    row json? "$T/torchtitan-test-2k/tokenizer.json" torchtitan-test-2k | against some
fi
$python "$ROOT/tests/peers/token_models.py" "$WORK/models" text ${DATA:+"$T"} >made 2>made.err
ok $? "models are made" || tail -5 made.err
against some <made
grep -P '\t(nfkc|gpt2-like|llama3-like|qwen2-like|tinyllama-like|metaspace-first|metaspace-first-split-added|llama3-like-added)$' made >few
sed 's/$/, words of half a megabyte/' few | against long1
tap $python "$ROOT/tests/peers/token.py" "$TOOLS/token-pipe" list
mapfile -t models < <(cut -f2 few)
tap $python "$ROOT/tests/peers/token_growth.py" "$TOOLS/token-pipe" long1 long4 "$G" "${models[@]}"

# ---- special tokens, found in text where that is asked for
compared=0
while IFS=$'\t' read -r kind model name _; do
    [ "$kind" = json ] || continue
    $python "$ROOT/tests/peers/token_specials.py" "$model" make >specials.txt
    [ -s specials.txt ] || continue
    $python "$ROOT/tests/peers/token_specials.py" "$model" encode specials.txt >wanted
    run tern data encode --specials -t "$model" --format text specials.txt
    [ -s wanted ] && cmp -s out wanted; ok $? "$name: with --specials a text with special tokens has the ids of tokenizers' default"
    compared=$((compared + 1))
done <list
[ "$compared" -ge 5 ]; ok $? "several tokenizers have special tokens to be found ($compared)"

[ -n "$DATA" ] || tap_done
. "$ROOT/tests/lib/tiny.sh"
echo 'one text' >one.txt
tern data build -t "$T/llama2" -o one.tds one.txt 2>err
want=$($python "$ROOT/tests/peers/vocabulary.py" "$T/llama2/tokenizer.json")
tern data info --json one.tds | grep -qF "\"$want\""
ok $? "llama2: tokenizer.json and tokenizer.model have one vocabulary hash"
# As transformers 5 saves it: no unk_token, no normaliser, merges in the order of ids.
tiny_make 2>/dev/null
tern data build -t "$T/llama2" -o llama.tds train.jsonl 2>/dev/null
sed -i 's/: 800/: 32000/' model/config.json
sed 's,tokenizer: model},tokenizer: models/saved},; s,data/t[a-z]*.tds,llama.tds,' run.yaml >saved.yaml
run tern run --check saved.yaml; status 0 "llama2: what transformers 5 saves is the same vocabulary"
tap_done
