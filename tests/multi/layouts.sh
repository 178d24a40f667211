#!/bin/bash
# Every parallel layout gives the one-rank curve: 50 steps, in double to 1e-9 and in float to 1e-4;
# one layout gives the same bits again; a checkpoint of any loads into any other.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
TOOLS=${TERN_BUILD:-$ROOT/build}/tests/tools
tiny_make
sed -i 's/batch: .*/batch: {global: 12, micro: 1, seq_len: 16}/; s/every: 1,/every: 0,/; s/steps: 8/steps: 50/' run.yaml
# 8 query heads and 2 key heads for 8 tensor ranks; layers and vocabulary that do not divide.
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 9/; s/"num_attention_heads": 4/"num_attention_heads": 8, "head_dim": 8/; s/"vocab_size": 800/"vocab_size": 803/' model/config.json
sed 's/true, "hidden_act"/false, "hidden_act"/; s/"num_attention_heads": 8/"num_attention_heads": 6/; s/"num_key_value_heads": 2/"num_key_value_heads": 3/; s/"intermediate_size": 64/"intermediate_size": 66/' model/config.json >three.json
[ "$(grep -c '"tie_word_embeddings": false' three.json)" = 1 ] || echo "Bail out! three.json"

train() { # PROGRAM RANKS [KEY=VALUE]...
    rm -rf checkpoints
    timeout 120 "$TOOLS/$1" run.yaml "${@:2}" 2>err >out || { sed 's/^/# /' err; return 1; }
}

perplexities() { grep -o 'step.* a token, .*' err; } # before and after, of held-out text

# Largest difference of the losses in $1 and out, if each has $2 of them.
difference() {
    paste -d' ' "$1" out | awk -v n="$2" '{d = $2 - $4; if (d < 0) d = -d; if (!(d <= m)) m = d} END {if (NR == n && NF == 4) print m + 0; else print "nan"}'
}

same_curve() { # PROGRAM BOUND LIST: layouts of a list against one rank
    local program=$1 bound=$2 first=1 n sets d
    while read -r n sets; do
        train "$program" $n $sets
        [ -n "$first" ] && { cp out one; perplexities >one.ppl; first=; [ "$(wc -l <one)" = 50 ]; ok $? "$program: one rank${sets:+, $sets}"; continue; }
        d=$(difference one 50)
        awk -v d="$d" -v b="$bound" 'BEGIN {exit !(d + 0 == d && d <= b)}'
        ok $? "$program: $n ranks${sets:+, ${sets//parallel./}}: the same 50 losses ($d)"
        [ "$program" = train-ranks ] || { perplexities | cmp -s - one.ppl && [ "$(wc -l <one.ppl)" = 2 ]; ok $? "and perplexities"; }
    done
}

same_curve train-ranks-f64 1e-9 <<'E'
1
1 parallel.recompute=full
2 parallel.tensor=2
2 parallel.pipeline=2 parallel.interleave=3
3 parallel.zero=1
4 parallel.tensor=2 parallel.sequence=true parallel.recompute=selective
4 parallel.pipeline=4 parallel.interleave=2 parallel.recompute=full
6 parallel.tensor=2 parallel.pipeline=3 parallel.zero=1
3 parallel.pipeline=3 parallel.interleave=3
8 parallel.tensor=8 parallel.sequence=true
8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.sequence=true parallel.interleave=2 parallel.recompute=full
E
same_curve train-ranks-f64 1e-9 <<'E'
1 model.config=three.json
3 model.config=three.json parallel.tensor=3
6 model.config=three.json parallel.tensor=6 parallel.sequence=true batch.micro=3
6 model.config=three.json parallel.tensor=3 parallel.pipeline=2
E
# A long ring: more links than a rank can have communicators.
sed 's/"num_hidden_layers": 9/"num_hidden_layers": 66/; s/"head_dim": 8/"head_dim": 4/; s/"hidden_size": [0-9]*/"hidden_size": 16/' model/config.json >long.json
long="model.config=long.json steps=2 schedule.warmup=0 batch.global=33"
train train-ranks-f64 1 $long; cp out one
train train-ranks-f64 33 $long parallel.pipeline=33 parallel.interleave=2
d=$(difference one 2); awk -v d="$d" 'BEGIN {exit !(d + 0 == d && d <= 1e-9)}'
ok $? "33 stages in a ring: the same 2 losses ($d)"
# Parts of a vocabulary of which one is just too large for as many logits at a time as the other.
sed 's/"vocab_size": 803/"vocab_size": 32769/; s/"num_hidden_layers": 9/"num_hidden_layers": 1/; s/"max_position_embeddings": 64/"max_position_embeddings": 512/' model/config.json >wide.json
wide="model.config=wide.json batch.seq_len=512 batch.global=1 steps=2 schedule.warmup=0"
train train-ranks-f64 1 $wide; cp out one
train train-ranks-f64 2 $wide parallel.tensor=2
d=$(difference one 2)
awk -v d="$d" 'BEGIN {exit !(d + 0 == d && d <= 1e-9)}'
ok $? "a vocabulary of 32769 on 2 ranks: the same losses ($d)"
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' wide.json >untied.json
wide="$wide model.config=untied.json batch.global=2"
train train-ranks-f64 1 $wide; cp out one
train train-ranks-f64 2 $wide
d=$(difference one 2)
awk -v d="$d" 'BEGIN {exit !(d + 0 == d && d <= 1e-9)}'
ok $? "its gradients, which are not one sum, on 2 data ranks: the same ($d)"
# A step allocates nothing; of what comes early over the wire, once as much has come as ever does.
allocations() { sed -n 's/^rank [0-9]*: \([0-9]*\) allocations in 40 steps,.*/\1/p' err | sort -n | tail -n 1; }
for layout in "parallel.tensor=2 parallel.zero=1" "parallel.tensor=2 parallel.pipeline=2"; do
    if [ -n "${TERN_SANITIZE-}" ]; then skip "allocations, $layout: a sanitizer makes its own"; continue; fi
    train train-ranks 4 $layout
    [ "$(allocations)" = 0 ]; ok $? "4 ranks in one node, ${layout//parallel./}: 40 steps allocate nothing ($(allocations))"
    TERN_FABRIC_SHARE=1 train train-ranks 4 $layout
    [ "$(allocations)" -lt 40 ]; ok $? "4 nodes: next to nothing ($(allocations))"
done
# What is small goes together: a step is one sum of all gradients, one of what is agreed on, and one
# round of times; the 55 arrays of 9 layers are less than a MiB.
operations() { # STEPS: of all ranks by the end of the last one
    rm -rf dumps; mkdir dumps
    TERN_FABRIC_DUMP=dumps train train-ranks 4 steps=$1 schedule.warmup=0
    tern fabric autopsy dumps | sed -n 's/^last to come, of \([0-9]*\) operations.*/\1/p'
}
few=$(operations 5) more=$(operations 25)
[ $((more - few)) = 60 ]; ok $? "20 steps of 4 data ranks are 60 operations (after 5: ${few:-none}, after 25: ${more:-none})"
# Documents that do not see each other.
train train-ranks-f64 1; cp out together
same_curve train-ranks-f64 1e-9 <<'E'
1 data.isolate=true
4 data.isolate=true parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true parallel.recompute=selective
E
! cmp -s one together; ok $? "isolated documents have other losses"
# Adapters beside every linear, dropping out; the weights beside them stay as they are.
echo 'lora: {rank: 3, alpha: 6, dropout: 0.1, targets: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]}' >>run.yaml
same_curve train-ranks-f64 1e-9 <<'E'
1
3 parallel.zero=1
4 parallel.tensor=4 parallel.sequence=true parallel.recompute=selective
8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.interleave=2 parallel.recompute=full
E
d=$(difference together 50); awk -v d="$d" 'BEGIN {exit !(d > 1e-3)}'; ok $? "training adapters is another thing ($d)"
adapted() { # LAST-ARRAY: a checkpoint of adapters, read, and gone on with
    local steps="steps=8 optimizer.lr=1e-2 schedule.kind=constant schedule.min_lr=0"
    train train-ranks 1 $steps; cp out one; tern ckpt show checkpoints/latest >names
    grep -q base/model.layers.8.mlp.up_proj.weight names && grep -q "lora/base_model.model.model.layers.8.mlp.up_proj.$1\$" names && ! grep -q 'exp_avg/model' names
    ok $? "a checkpoint has the frozen weights, the adapters by PEFT's names ($1), and no other moments"
    sed -n 's/.*step 8: held: perplexity \([0-9.]*\) .*/\1/p' err >trained
    tern eval run.yaml --only --json 2>/dev/null | sed -n 's/.*"ppl_token": \([0-9.]*\).*/\1/p' >merged
    paste trained merged | awk '{d = $1 / $2 - 1} END {exit !(NF == 2 && d < 1e-4 && d > -1e-4)}'
    ok $? "tern eval puts them into the weights: the same perplexity ($(paste trained merged))"
    rm -rf checkpoints
    timeout 60 "$TOOLS/train-ranks" run.yaml 2 $steps steps=4 parallel.tensor=2 2>err >out &&
        timeout 60 "$TOOLS/train-ranks" run.yaml 3 $steps parallel.zero=1 2>err >>out
    d=$(difference one 8); awk -v d="$d" 'BEGIN {exit !(d + 0 == d && d <= 1e-4)}'
    ok $? "and go on in another layout: the same losses ($d)"
}
cp one lora
adapted lora_B.weight
sed -i 's/^lora: {/&dora: true, /' run.yaml
same_curve train-ranks-f64 1e-9 <<'E'
1
3 parallel.zero=1
4 parallel.tensor=4 parallel.sequence=true parallel.recompute=selective
8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.interleave=2 parallel.recompute=full
E
d=$(difference lora 50); awk -v d="$d" 'BEGIN {exit !(d > 1e-6)}'; ok $? "with magnitudes (DoRA) it is another thing again ($d)"
same_curve train-ranks-f64 1e-9 <<'E'
1 lora.dropout=0
2 lora.dropout=0 parallel.tensor=2 parallel.sequence=true
8 lora.dropout=0 parallel.tensor=8 parallel.recompute=full
E
adapted lora_magnitude_vector
cp -r checkpoints with; perplexities | sed -n 's/.*step 8: held: //p' >ended
sed -i '/^lora:/d' run.yaml
train train-ranks 2 'model={from: with/latest, tokenizer: model}' parallel.tensor=2 steps=1 schedule.warmup=0
perplexities | sed -n 's/.*step 0: held: //p' | cmp -s - ended && [ -s ended ]; ok $? "a run of all weights begins from a shard of them put together: $(cat ended)"
same_curve train-ranks 1e-4 <<'E'
1
2 parallel.tensor=2 parallel.sequence=true
3 parallel.pipeline=3 parallel.recompute=selective
4 parallel.zero=1
8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.sequence=true parallel.recompute=full
E
mixed="8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.sequence=true parallel.recompute=full"
cp out before; tiny_digests >digests
train train-ranks $mixed
cmp -s before out && tiny_digests | cmp -s - digests && [ -s digests ]
ok $? "8 ranks, all at once: the same bits again"

# Stopped and gone on with in another layout, twice: the same curve.
sed -i 's/kind: cosine/kind: constant/; s/, min_lr: 1.0e-4//' run.yaml # the number of steps says nothing
train train-ranks-f64 1; cp out one
train train-ranks-f64 8 steps=17 $(cut -d' ' -f2- <<<"$mixed"); cp out parts
resume() { timeout 120 "$TOOLS/train-ranks-f64" run.yaml "$@" 2>err >>parts || sed 's/^/# /' err; }
resume 3 steps=33 parallel.zero=1
resume 6 steps=50 parallel.tensor=2 parallel.pipeline=3 parallel.interleave=2
cp parts out
d=$(difference one 50)
awk -v d="$d" 'BEGIN {exit !(d + 0 == d && d <= 1e-9)}'
ok $? "a run that changes its layout after 17 and 33 steps: the same losses ($d)"

# What cannot be is refused before anything is computed.
train train-ranks 3 parallel.tensor=3 >refused 2>&1
grep -q 'heads do not divide over 3' err; ok $? "3 tensor ranks for 8 heads are refused"
# Memory as it was foretold, of a model that is large beside its process.
sed 's/"hidden_size": 32/"hidden_size": 288/; s/"intermediate_size": 64/"intermediate_size": 768/; s/"vocab_size": 803/"vocab_size": 16000/; s/"max_position_embeddings": 64/"max_position_embeddings": 256/' model/config.json >large.json
memory() { # RANKS [--set KEY=VALUE]...: the larger of predicted / measured and its inverse, less 1
    rm -rf checkpoints ledger
    tern run run.yaml --ranks "$1" --set model.config=large.json --set 'batch={global: 8, micro: 2, seq_len: 256}' --set steps=2 --set data.held_out='[]' "${@:2}" 2>err </dev/null || sed 's/^/# /' err
    # Of all ranks, the one that is furthest off.
    tern ledger sql --ledger ledger -r latest -n -P "select replace(name, 'predicted_', '') k, max(case when name like '%predicted%' then value end) p, max(case when name not like '%predicted%' then value end) m from step where name in ('memory_bytes', 'memory_predicted_bytes') or name like 'rank%/memory%' group by k" |
        awk -F'|' '$2 > 0 && $3 > 0 {d = $2 > $3 ? $2 / $3 - 1 : $3 / $2 - 1; w = d > w ? d : w; n++} END {if (n == (N > 1 ? N + 1 : 1)) print w + 0}' N="$1"
}
while read -r n how; do
    if [ -n "${TERN_SANITIZE-}" ]; then skip "memory of $n, $how: a sanitizer takes its own"; continue; fi
    d=$(memory "$n" --set "$how")
    awk -v d="$d" 'BEGIN {exit !(d != "" && d < 0.1)}'
    ok $? "memory predicted and measured, ranks $n, $how: within 10 % (${d:-nothing recorded})"
done <<'E'
1 parallel.recompute=none
1 parallel.recompute=selective
1 parallel.recompute=full
1 data.isolate=true
1 lora={rank: 8, alpha: 8, targets: [q_proj]}
1 lora={rank: 8, dropout: 0.1, dora: true}
4 parallel.zero=0
4 parallel.zero=1
4 parallel.tensor=4
2 parallel.pipeline=2
4 parallel={pipeline: 4, interleave: 2}
E
if [ -n "${TERN_SANITIZE-}" ]; then skip "memory between nodes: a sanitizer takes its own"; else
    d=$(export TERN_FABRIC_SHARE=1; memory 3 --set parallel.pipeline=3)
    awk -v d="$d" 'BEGIN {exit !(d != "" && d < 0.1)}'; ok $? "and of 3 stages on a node each (${d:-nothing recorded})"
fi
# And of one of 1 MiB, beside which that is large.
while read -r n threads; do
    if [ -n "${TERN_SANITIZE-}" ]; then skip "memory of $n x $threads: a sanitizer takes its own"; continue; fi
    d=$(memory "$n" --set model.config=model/config.json --set 'batch={global: 8, micro: 2, seq_len: 32}' --set "launch={threads: $threads, ranks_per_node: $n}")
    awk -v d="$d" 'BEGIN {exit !(d != "" && d < 0.1)}'
    ok $? "memory of a small model, ranks $n, threads $threads: within 10 % (${d:-nothing recorded})"
done <<'E'
1 1
1 2
1 4
4 1
2 2
E
# Gradients, parameters and activations lie where mates reach them: a step copies next to nothing
# for them to read, of tens of megabytes that go through its sums.
staged() { sed -n 's/^rank [0-9]*: .* in 2 steps, \([0-9]*\) bytes staged/\1/p' err | sort -n | tail -n 1; }
while read -r n how; do
    if [ -n "${TERN_SANITIZE-}" ]; then skip "staged by $n ranks, $how: the same bytes, in minutes"; continue; fi
    train train-ranks "$n" model.config=large.json "batch={global: 4, micro: 1, seq_len: 256}" steps=12 'data.held_out=[]' $how </dev/null
    [ "$(staged)" -lt 200000 ]; ok $? "$n ranks in one node, $how: nothing is staged ($(staged) bytes in 2 steps)"
done <<'E'
2 parallel.zero=0
4 parallel.zero=1
2 parallel.tensor=2 parallel.sequence=true
4 parallel.tensor=4
2 parallel.tensor=2 lora.rank=64 lora.alpha=6 lora.targets=[q_proj,o_proj]
2 parallel.pipeline=2
4 parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true
E
tap_done
