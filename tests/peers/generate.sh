#!/bin/bash
# tern generate beside transformers: the same greedy tokens and probabilities, of small random models with grouped
# queries, tied and untied heads, stretched RoPE, bf16 and f16, and several ids that end a text; and the rates of both.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
venv trainers 'torch, transformers' torch transformers accelerate lightning rich tensorboardX ||
    skip_all "torch and transformers are not there and cannot be installed"
python="$VENV/bin/python -I"
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error HF_HOME=$WORK/hf

$python "$ROOT/tests/peers/generate.py" make >log 2>&1; ok $? "transformers makes the models" || tail -5 log
compare() { # COMMAND ARGUMENT
    tap_lines < <($python "$ROOT/tests/peers/generate.py" "$1" "$2" 2>log || echo "not ok - $1 $2 ends well")
}
for name in untied tied stretched half f16; do compare compare $name; done
[ "$tap_n" = 16 ]; ok $? "every model was compared" || tail -5 log
if [ -n "$DATA" ]; then compare text "$DATA/tokenizers/llama2"; else skip "no Llama 2 tokenizer"; fi
# Rates on a model of 150 million parameters, in turns.
while read -r word value limit name; do
    case $word in
    bound) bound "$value" "$limit" "$name" ;;
    "#") echo "# $value $limit $name" ;;
    esac
done < <($python "$ROOT/tests/peers/generate.py" bench "$(nproc)" 2>log || echo "bound none 1 rates")
tap_done
