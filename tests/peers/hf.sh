#!/bin/bash
# transformers loads what `tern ckpt export` writes, of each type: weights, logits, tokenizer and
# generation config are the source's, and the files are dealt as save_pretrained does.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
venv trainers 'torch, transformers' torch transformers accelerate lightning rich tensorboardX ||
    skip_all "torch and transformers are not there and cannot be installed"
python="$VENV/bin/python -I"
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error HF_HOME=$WORK/hf

$python "$ROOT/tests/peers/hf.py" make >log 2>&1; ok $? "transformers makes the models" || tail -5 log
for name in plain tied stretched; do
    for type in as-is f32 bf16 f16; do
        run tern ckpt export $name -o $name-$type --dtype $type --max-shard-size 20KB; status 0
    done
done
tap_lines < <($python "$ROOT/tests/peers/hf.py" compare 2>log || echo "not ok - transformers loads the exports")
[ "$tap_n" -ge 90 ]; ok $? "every model was compared in every type" || tail -5 log
tap_done
