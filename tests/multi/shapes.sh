#!/bin/bash
# Models whose shapes are awkward for a layout give the one-rank curve, too, in double to 1e-9: odd
# numbers of heads, more stages than a rank can have communicators, a large vocabulary.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/layouts.sh"
steps=$(long && echo 50 || echo 12)
layouts_make "$steps" || echo "Bail out! no setting"
sed 's/true, "hidden_act"/false, "hidden_act"/; s/"num_attention_heads": 8/"num_attention_heads": 6/; s/"num_key_value_heads": 2/"num_key_value_heads": 3/; s/"intermediate_size": 64/"intermediate_size": 66/' model/config.json >three.json
[ "$(grep -c '"tie_word_embeddings": false' three.json)" = 1 ] || echo "Bail out! three.json"
same_curve train-ranks-f64 1e-9 "$steps" <<'L'
1 model.config=three.json
+ 3 model.config=three.json parallel.tensor=3
6 model.config=three.json parallel.tensor=6 parallel.sequence=true batch.micro=3
+ 6 model.config=three.json parallel.tensor=3 parallel.pipeline=2
L
if long; then
    two="steps=2 schedule.warmup=0"
    # A long ring: more links than a rank can have communicators.
    sed 's/"num_hidden_layers": 9/"num_hidden_layers": 66/; s/"head_dim": 8/"head_dim": 4/; s/"hidden_size": [0-9]*/"hidden_size": 16/' model/config.json >ring.json
    ring="model.config=ring.json $two batch.global=33"
    double 1 $ring; cp out one
    double 33 $ring parallel.pipeline=33 parallel.interleave=2
    d=$(difference one out 2)
    within "$d" 1e-9; ok $? "33 stages in a ring: the same 2 losses ($d)"
    # Parts of a vocabulary of which one is just too large for as many logits at a time as the other.
    sed 's/"vocab_size": 803/"vocab_size": 32769/; s/"num_hidden_layers": 9/"num_hidden_layers": 1/; s/"max_position_embeddings": 64/"max_position_embeddings": 512/' model/config.json >wide.json
    wide="batch.seq_len=512 $two"
    double 1 $wide model.config=wide.json batch.global=1; cp out one
    double 2 $wide model.config=wide.json batch.global=1 parallel.tensor=2
    d=$(difference one out 2)
    within "$d" 1e-9; ok $? "a vocabulary of 32769 on 2 ranks: the same losses ($d)"
    sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' wide.json >untied.json
    double 1 $wide model.config=untied.json batch.global=2; cp out one
    double 2 $wide model.config=untied.json batch.global=2
    d=$(difference one out 2)
    within "$d" 1e-9; ok $? "a vocabulary of 32769 on 2 data ranks, whose gradients are several sums: the same losses ($d)"
fi
tap_done
