#!/bin/bash
# A folder's ids, as tern gives them, beside those of transformers' AutoTokenizer: where they differ, a
# warning of tern data build names a text.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
[ -n "$DATA" ] || skip_all "no shared data: no published tokenizers"
venv_tokenizers || skip_all "no sentencepiece, tokenizers, tiktoken and transformers (make deps-peers, with a network)"
python="$VENV/bin/python -I"
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
T=$DATA/tokenizers
mkdir made warnings
$python "$ROOT/tests/peers/auto.py" make made "$ROOT/HACKING.md" "$ROOT/tests/golden/spm-bpe-800.model" "$T" >log 2>&1
ok $? "folders are made" || tail -5 log
echo text >text
differ="made/other-json! made/never! made/never-llama! made/saved! made/smol! made/neox! made/qwen! made/by-kind! made/prefix! made/code! made/no-prefix!" same="made/olmo made/plain made/gpt2-own made/llama-of-bytes made/mistral made/learnt made/saved-json $T/gpt2 $T/mini-spm-4k $T/torchtitan-test-2k $T/llama3"
for folder in $differ $same "$T/llama2!"; do
    folder=${folder%!}
    tern data build -t "$folder" -o set.tds text 2>"warnings/${folder##*/}"
    ok $? "${folder##*/}: a set is built" || cat "warnings/${folder##*/}"
done
# shellcheck disable=SC2086
tap_lines < <($python "$ROOT/tests/peers/auto.py" compare "$TOOLS/token-pipe" warnings $differ $same "$T/llama2!" 2>log || { sed 's/^/# /' log; echo "not ok - transformers loads the folders"; })
tap_done
