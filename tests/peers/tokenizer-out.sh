#!/bin/bash
# Exported folders whose source had nothing but the tokenizer's file: transformers finds the ids, BOS
# and EOS that the model was trained with.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
[ -n "$DATA" ] || skip_all "no shared data: no published tokenizers"
venv_tokenizers || skip_all "no sentencepiece, tokenizers, tiktoken and transformers (make deps-peers, with a network)"
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
T=$DATA/tokenizers

"$VENV/bin/python" -I "$ROOT/tests/peers/token_texts.py" some 0.2 "$DATA/general/general_val.jsonl" "$DATA/utf8/blns.txt" "$DATA/instruct/dolly_mini.jsonl"
ok $? "texts are made"
"$TOOLS/ckpt-tool" model hf; rm hf/tokenizer*
against() { # SOURCE LIBRARY NAME [plain]
    run tern ckpt export hf -o "$3" --tokenizer "$1"; status 0
    tap_lines < <("$VENV/bin/python" -I "$ROOT/tests/peers/tokenizer-out.py" "$3" "$2" "$1" some ${4-} 2>log || { sed 's/^/# /' log; echo "not ok - $3: transformers loads the tokenizer"; })
}
against "$T/llama3/tokenizer.model" tiktoken llama3
against "$T/llama2/tokenizer.model" sentencepiece llama2 plain
against "$T/mini-spm-4k/tokenizer.model" sentencepiece mini plain
tap_done
