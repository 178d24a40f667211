#!/bin/bash
# Adapters, without magnitudes and with them (DoRA): every layout gives the one-rank curve, a
# checkpoint loads into any other layout, into the evaluation and into a run of all weights.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/layouts.sh"
steps=$(long && echo 50 || echo 6)
layouts_make "$steps" || echo "Bail out! no setting"
go="steps=8 optimizer.lr=1e-2 schedule.kind=constant schedule.min_lr=0"
ended() { sed -n "s/.*step $1: held: perplexity \([0-9.]*\) .*/\1/p" err; }
alike() { paste "$1" "$2" | awk '{d = $1 / $2 - 1} END {exit !(NR == 1 && NF == 2 && d < 1e-4 && d > -1e-4)}'; }
adapted() { # LAST-ARRAY: a checkpoint of adapters, read, and gone on with
    train 1 $go; tern ckpt show checkpoints/latest >names
    grep -q base/model.layers.8.mlp.up_proj.weight names && grep -q "lora/base_model.model.model.layers.8.mlp.up_proj.$1\$" names && ! grep -q 'exp_avg/model' names
    ok $? "a checkpoint has the frozen weights, the adapters by PEFT's names ($1), and no other moments"
    ended 8 >trained
    tern eval run.yaml --only --json 2>/dev/null | sed -n 's/.*"ppl_token": \([0-9.]*\).*/\1/p' >merged
    alike trained merged; ok $? "tern eval puts them into the weights: the same perplexity ($(paste trained merged))"
    long || return 0
    # In double: with adapters that learn this fast, roundings of float grow as far as 4e-5.
    double 1 $go; cp out one
    double 2 $go steps=4 parallel.tensor=2 && cp out parts && program=train-ranks-f64 more 3 $go parallel.zero=1 >>parts
    d=$(difference one parts 8)
    within "$d" 1e-9; ok $? "adapters that go on in another layout: the same losses ($d)"
}
double 1; cp out together

# Beside every linear, dropping out; the weights beside them stay as they are.
echo 'lora: {rank: 3, alpha: 6, dropout: 0.1, targets: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]}' >>run.yaml
same_curve train-ranks-f64 1e-9 "$steps" <<'L'
1
+ 3 parallel.zero=1
+ 4 parallel.tensor=4 parallel.sequence=true parallel.recompute=selective
8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.interleave=2 parallel.recompute=full
L
cp one lora
d=$(difference together lora "$steps"); beyond "$d" 1e-3; ok $? "training adapters is another thing ($d)"
if long; then adapted lora_B.weight; fi

sed -i 's/^lora: {/&dora: true, /' run.yaml
same_curve train-ranks-f64 1e-9 "$steps" <<'L'
1
+ 3 parallel.zero=1
4 parallel.tensor=4 parallel.sequence=true parallel.recompute=selective
+ 8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.interleave=2 parallel.recompute=full
L
d=$(difference lora one "$steps"); beyond "$d" 1e-6; ok $? "training with magnitudes (DoRA) has other losses ($d)"
if long; then
    same_curve train-ranks-f64 1e-9 "$steps" <<'L'
1 lora.dropout=0
2 lora.dropout=0 parallel.tensor=2 parallel.sequence=true
8 lora.dropout=0 parallel.tensor=8 parallel.recompute=full
L
fi
adapted lora_magnitude_vector
train 3 $go parallel.zero=1
cp -r checkpoints with; ended 8 >apart
sed -i '/^lora:/d' run.yaml
train 2 'model={from: with/latest, tokenizer: model}' parallel.tensor=2 steps=1 schedule.warmup=0
ended 0 >together; alike apart together; ok $? "a run of all weights begins from a shard of them put together: the same perplexity ($(paste apart together))"
tap_done
