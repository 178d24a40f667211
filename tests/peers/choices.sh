#!/bin/bash
# tern eval --choices beside lm-eval 0.4.13, with transformers: log-likelihoods of 500 items, acc, acc_norm and
# acc_bytes, for tokenizers that put BOS first and one that does not.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
[ -n "$DATA" ] || skip_all "no ../shared/data"
venv lm-eval-0.4.13 'lm_eval, torch, transformers, accelerate, datasets' lm-eval==0.4.13 torch transformers accelerate datasets ||
    skip_all "lm-eval 0.4.13 is not there and cannot be installed"
python="$VENV/bin/python -I"
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TRANSFORMERS_VERBOSITY=error HF_HOME=$WORK/hf LOGLEVEL=ERROR

$python "$ROOT/tests/peers/choices.py" make "$DATA"/tokenizers/gpt2 "$DATA"/tokenizers/llama2 >log 2>&1
ok $? "items and models are made" || tail -5 log
for k in 0 1 2; do
    run tern eval model-$k --choices items-$k.jsonl --json --ranks $((k + 1)); status 0; cp out tern-$k.json
    while IFS= read -r line; do
        case $line in
        ok*) ok 0 "model $k: ${line#ok - }" ;;
        "not ok"*) ok 1 "model $k: ${line#not ok - }" ;;
        "#"*) echo "$line" ;;
        esac
    done < <($python "$ROOT/tests/peers/choices.py" compare $k 2>log || echo "not ok - lm-eval runs to its end")
done
[ "$tap_n" -ge 22 ]; ok $? "every model was compared" || tail -5 log
tap_done
