#!/bin/bash
# precision: bf16.  Every layout trains as one rank does, one layout to the same bits; what lies on
# disk has two bytes where it should; fp32 runs go on in bf16 and back.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/layouts.sh"
steps=$(long && echo 30 || echo 8)
layouts_make "$steps" || echo "Bail out! no setting"
constant_lr
cp run.yaml fp32.yaml
echo 'precision: bf16' >>run.yaml

perplexity() { sed -n 's/.*step '"$1"': held: perplexity \([0-9.]*\) .*/\1/p' err; }
evaluated() { tern eval "$1" --only --json 2>/dev/null | sed -n 's/.*"ppl_token": \([0-9.]*\).*/\1/p'; }
# "NAME DIGEST" of the arrays of a checkpoint's kind $2, which are of one slice each.
digests() { tern ckpt show "$1" --json | awk -v p="\"$2/" 'index($1, "\"") == 1 && $2 == "{" {on = index($1, p) == 1; n = $1; sub(p, "", n)} on && $1 == "\"sha256\":" {print n, $2}'; }
types() { tern ckpt show "$1" --json | awk '$2 == "{" {split($1, p, "/"); n = p[1]} $1 == "\"dtype\":" {print n, $2}' | tr -d '",' | sort | uniq -c | awk '{print $2, $3, $1}'; }

# ---- curves
RECIPE=fp32.yaml train 1; cp out fp32
train 1; cp out one; ran=$(perplexity "$steps")
apart=$(difference fp32 one "$steps")
within "$apart" 1e-2 && beyond "$apart" 1e-4; ok $? "$steps steps in bf16 are near those in fp32, and not the same ($apart)"
evaluated run.yaml >half
awk -v a="$ran" '{exit !(a > 1 && sprintf("%.2f", $1) == a)}' half; ok $? "tern eval: the perplexity of the run ($ran)"
evaluated fp32.yaml >wide
paste half wide | awk '{d = $1 / $2 - 1; if (d < 0) d = -d} END {exit !(NF == 2 && d > 0 && d < 1e-2)}'; ok $? "tern eval by an fp32 recipe: nearly the same perplexity"
for how in full $(long && echo selective); do
    train 1 parallel.recompute=$how; cmp -s out one; ok $? "recompute $how: the same bits"
done
# Ranks add up in another order than one does alone: in fp32 that is next to nothing, but where it
# crosses a tie a whole unit of bf16.  Some roundings fall otherwise; were it all of them, the
# losses would lie as far apart as those of bf16 and fp32.
while next; do
    train $n $sets; d=$(difference one out "$steps")
    within "$d" "$apart"; ok $? "$n ranks, $(short_sets): the same losses within bf16's own error ($d)"
done <<'L'
+ 2 parallel.tensor=2
+ 2 parallel.pipeline=2 parallel.interleave=3
+ 3 parallel.zero=1
4 parallel.tensor=2 parallel.sequence=true parallel.recompute=selective
+ 4 parallel.pipeline=4 parallel.interleave=2 parallel.recompute=full
+ 6 parallel.tensor=2 parallel.pipeline=3 parallel.zero=1
+ 8 parallel.tensor=8 parallel.sequence=true
8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.sequence=true parallel.interleave=2 parallel.recompute=full
L
cp out mixed; tiny_digests >mixed.digests
mixed="parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.sequence=true parallel.interleave=2 parallel.recompute=full"
if long; then
    train 8 $mixed
    cmp -s out mixed && tiny_digests | cmp -s - mixed.digests && [ -s mixed.digests ]; ok $? "8 ranks again: the same bits"
fi
at=$((steps / 2)) then=$((steps * 3 / 4))
train 8 $mixed steps=$at; cp out parts; cp -r checkpoints stopped; more 8 $mixed >>parts
cmp -s parts mixed && tiny_digests | cmp -s - mixed.digests && [ -s mixed.digests ]; ok $? "stopped after $at steps and gone on: the same bits"
head -n $at parts >start; mv start parts; rm -rf checkpoints; mv stopped checkpoints
more 3 parallel.zero=1 steps=$then >>parts; more 2 parallel.tensor=2 >>parts
d=$(difference one parts "$steps"); within "$d" "$apart"; ok $? "gone on with in other layouts: the same losses ($d)"

# ---- killed at some step
once="--set checkpoint.every=1 --set steps=8"
rm -rf checkpoints; tern train run.yaml $once 2>err || sed 's/^/# /' err
tiny_digests >whole
for at in 2 $(long && echo 5); do
    rm -rf checkpoints
    tern train run.yaml $once 2>err & pid=$!
    tiny_wait_step $at $pid
    kill -9 $pid; wait $pid 2>/dev/null
    run tern train run.yaml $once
    [ -s whole ] && tiny_digests | cmp -s - whole; ok $? "killed after step $at, resumed: the same bits"
done

# ---- what lies on disk
types checkpoints/latest >types
[ "$(cat types)" = "$(printf '%s 83\n' 'exp_avg F32' 'exp_avg_sq F32' 'master F32' 'model BF16')" ]; ok $? "model in BF16; master copy and moments in F32" || sed 's/^/# /' types
run tern ckpt export checkpoints/latest -o hf; status 0 "a checkpoint in BF16 is exported"
grep -q '"bfloat16"' hf/config.json; ok $? "the exported config.json says bfloat16"

# ---- to fp32 and back.  With lr 0 a step changes no weight: what was read is written again.
cp -r checkpoints eight
still="--set steps=9 --set optimizer.lr=0"
run tern train fp32.yaml $still; status 2 "a bf16 run goes on in fp32 only with --accept"; err_has "precision"
run tern train fp32.yaml $still --accept; status 0 "a bf16 run goes on in fp32 with --accept"
digests eight/latest master >was; digests checkpoints/latest model >is
cmp -s was is && [ "$(wc -l <is)" = 83 ] && types checkpoints/latest | grep -q 'model F32'; ok $? "weights in fp32 are those of the master copy, to the last bit"
cp -r checkpoints nine
run tern train run.yaml --set steps=10 --set optimizer.lr=0 --accept; status 0 "a run of bf16 that went on in fp32 goes back to bf16"
digests checkpoints/latest master | cmp -s - was; ok $? "back in bf16 the master copy is the same"
digests eight/latest model >was; digests checkpoints/latest model | cmp -s - was; ok $? "back in bf16 the rounded model is the same"
# Another run begins from it, in either.
for p in $(long && echo fp32) bf16; do
    rm -rf checkpoints
    run tern train fp32.yaml --set precision=$p --set model='{from: nine/latest, tokenizer: model, optimizer: keep}' --set steps=1 --set schedule.warmup=0 --set optimizer.lr=0
    digests nine/latest model >was; digests checkpoints/latest "$([ $p = fp32 ] && echo model || echo master)" | cmp -s - was; ok $? "model.from of an fp32 checkpoint, in $p"
done

# ---- rounded at random: by the recipe alone, whatever the layout
rounded() { # FILE RANKS [KEY=VALUE]...: the model as exported
    train "${@:2}" optimizer.stochastic_rounding=true model='{from: nine/latest, tokenizer: model}' steps=1 schedule.warmup=0 optimizer.lr=0
    rm -rf hf; tern ckpt export checkpoints/latest -o hf >/dev/null 2>&1; mv hf/model.safetensors "$1"
}
rounded alone 1; digests checkpoints/latest model >is; digests eight/latest model >was
[ "$(wc -l <is)" = 83 ] && ! cmp -s is was; ok $? "stochastic rounding: other parameters than to the nearest"
digests checkpoints/latest master >is; digests nine/latest model | cmp -s - is; ok $? "stochastic rounding: of the same master copy"
rounded shared 8 $mixed; cmp -s alone shared && [ -s alone ]; ok $? "stochastic rounding: the same parameters on 8 ranks"
if long; then
    random="optimizer.stochastic_rounding=true parallel.tensor=2 parallel.zero=1"
    train 4 $random; cp out whole; tiny_digests >whole.digests
    train 4 $random steps=$((steps / 2)); cp out parts; more 4 $random >>parts
    cmp -s parts whole && tiny_digests | cmp -s - whole.digests && [ -s whole.digests ]; ok $? "stochastic rounding: stopped and gone on, the same bits"
    d=$(difference one whole "$steps"); within "$d" 1e-2; ok $? "stochastic rounding: losses near those of rounding to the nearest ($d)"
fi

# ---- adapters: fp32 beside frozen weights in bf16
lora='lora={rank: 3, alpha: 6, dropout: 0.1, targets: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]}'
dora="${lora%\}}, dora: true}"
train 1 "$lora"; cp out adapters; ran=$(perplexity "$steps")
types checkpoints/latest >types; grep -q 'base BF16' types && grep -q 'lora F32' types && ! grep -q master types; ok $? "adapters in F32, what they stand beside in BF16"
evaluated run.yaml >merged
awk -v a="$ran" '{d = $1 / a - 1; exit !(d < 1e-2 && d > -1e-2)}' merged; ok $? "tern eval adds them to the weights ($ran, $(cat merged))"
if long; then train 8 "$lora" $mixed; d=$(difference adapters out "$steps"); within "$d" "$apart"; ok $? "8 ranks train the same adapters ($d)"; fi
train 1 "$dora"; cp out scaled; d=$(difference adapters scaled "$steps"); beyond "$d" 1e-6; ok $? "magnitudes beside weights in bf16 (DoRA) are another thing ($d)"
if long; then train 8 "$dora" $mixed; d=$(difference scaled out "$steps"); within "$d" "$apart"; ok $? "8 ranks train the same adapters with magnitudes ($d)"; fi
run tern train run.yaml --explain; out_has 'parameters and activations in bf16; gradients, master copy and moments in fp32' '--explain says it'
tap_done
