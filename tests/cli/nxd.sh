#!/bin/bash
# tern ckpt export --to nxd: the ranks' files put together again are the model, byte for byte.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool

cat >whole.py <<'PY'
# whole.py DIR SOURCE TP PP COPIES FORM [hw=trn2] [files=v1] [xser=1] [interleave=2] [dtype=BF16]
import sys
sys.path.insert(0, sys.argv[1])
import nxd
path, source, tp, pp, copies, form = sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7]), sys.argv[7]
more = dict(a.split("=") for a in sys.argv[8:])
hw, files, xser, parts = more.get("hw", "trn1"), more.get("files", "v2"), "xser" in more, pp * int(more.get("interleave", 1))
want = nxd.source(source)
size = nxd.SIZE[next(iter(want.values()))[0]]
layers = 1 + max(int(k.split(".")[2]) for k in want if ".layers." in k)
dim = want["model.norm.weight"][1][0]
q_heads, kv_heads = (want[f"model.layers.0.self_attn.{x}_proj.weight"][1][0] // nxd.HEAD for x in "qk")
tied = "lm_head.weight" not in want
bounds = [sum(layers // parts + (i >= parts - layers % parts) for i in range(n)) for n in range(parts + 1)]

def rows(t): # of a matrix, as bytes
    n = len(t[2]) // t[1][0]
    return [t[2][i:i + n] for i in range(0, len(t[2]), n)]

def whole(pieces): # all ranks have the same
    assert len(set(pieces)) == 1
    return pieces[0]

def columns(t): # of each row, in blocks of one head
    return [[r[i:i + nxd.HEAD * size] for i in range(0, len(r), nxd.HEAD * size)] for r in rows(t)]

slots = kv_heads * copies // tp
def slot(rank, i): # key head, and which copy
    return ((rank * slots + i) % kv_heads, (rank * slots + i) // kv_heads) if hw == "trn1" else (rank // copies * slots + i, rank % copies)

got, seen = {}, set()
for p in range(pp):
    ranks = [nxd.rank_state(path, files, xser, t, p) for t in range(tp)]
    assert all(list(r) == list(ranks[0]) for r in ranks)
    mine = [i for part in range(p, parts, pp) for i in range(bounds[part], bounds[part + 1])]
    for i in mine:
        at = f"model.layers.{i}."
        qkv = {"fused": ["qkv_proj.weight_qkv"], "split": [f"qkv_proj.weight_{x}" for x in "qkv"],
               "coalesced": ["qkv_proj.weight"], "separate": [f"{x}_proj.weight" for x in "qkv"]}[form]
        expect = [f"self_attn.{x}" for x in qkv + ["o_proj.weight"]] + ["mlp.gate_up_proj.weight", "mlp.down_proj.weight", "input_layernorm.weight", "post_attention_layernorm.weight"]
        assert [n for n in ranks[0] if n.startswith(at)] == [at + e for e in expect], list(ranks[0])
        seen.update(at + e for e in expect)
        q, k, v, o = [None] * q_heads, [None] * kv_heads, [None] * kv_heads, [[None] * q_heads for _ in range(dim)]
        for t, r in enumerate(ranks):
            all_rows = [x for n in qkv for x in rows(r[f"{at}self_attn.{n}"])]
            heads = [all_rows[i:i + nxd.HEAD] for i in range(0, len(all_rows), nxd.HEAD)]
            n_q = q_heads // tp
            assert len(heads) == n_q + 2 * slots
            col = columns(r[at + "self_attn.o_proj.weight"])
            for j in range(slots):
                head, copy = slot(t, j)
                for to, h in ((k, heads[n_q + j]), (v, heads[n_q + slots + j])):
                    assert to[head] in (None, h)
                    to[head] = h
                each = n_q // slots
                for m in range(each):
                    place = head * (q_heads // kv_heads) + copy * each + m
                    assert q[place] is None
                    q[place] = heads[j * each + m]
                    for d in range(dim):
                        o[d][place] = col[d][j * each + m]
        for x, h in (("q", q), ("k", k), ("v", v)):
            got[f"{at}self_attn.{x}_proj.weight"] = b"".join(b"".join(rows) for rows in h)
        got[at + "self_attn.o_proj.weight"] = b"".join(b"".join(r) for r in o)
        gate_up = [rows(r[at + "mlp.gate_up_proj.weight"]) for r in ranks]
        half = len(gate_up[0]) // 2
        got[at + "mlp.gate_proj.weight"] = b"".join(b"".join(x[:half]) for x in gate_up)
        got[at + "mlp.up_proj.weight"] = b"".join(b"".join(x[half:]) for x in gate_up)
        down = [rows(r[at + "mlp.down_proj.weight"]) for r in ranks]
        got[at + "mlp.down_proj.weight"] = b"".join(b"".join(x[d] for x in down) for d in range(dim))
        for n in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            got[at + n] = whole([r[at + n][2] for r in ranks])
    ends = (["model.embed_tokens.weight"] if p == 0 else []) + (["model.norm.weight", "lm_head.weight"] if p == pp - 1 else [])
    for n in ends:
        got[n] = whole([r[n][2] for r in ranks]) if "norm" in n else b"".join(r[n][2] for r in ranks)
    assert [n for n in ranks[0] if ".layers." not in n] == ends and len(ranks[0]) == len(ends) + len(mine) * len(expect)
if tied:
    assert got.pop("lm_head.weight") == want["model.embed_tokens.weight"][2]
assert got.keys() == want.keys() and all(got[n] == want[n][2] for n in want), [n for n in want if got.get(n) != want[n][2]]
PY
make() { python3 -c "import sys; sys.path.insert(0, '$ROOT/tests/lib'); import nxd; nxd.make($1)" || exit 1; }
make "'gqa', 8, 2, 3"; make "'mha', 4, 4, 3, tied=True, dtype='BF16'"; make "'many', 16, 8, 4"

n=0
while read -r source tp pp copies form more; do
    n=$((n + 1))
    options=$(echo "$more" | sed -E 's/hw=/--hw /; s/files=/--files /; s/xser=1/--xser/; s/interleave=/--interleave /')
    run tern ckpt export $source -o x$n --to nxd --tensor $tp --pipeline $pp --qkv $form $options
    status 0; err_has "--tensor_parallel_size $tp --pipeline_parallel_size $pp"; err_has "--kv_replicator $copies"
    python3 whole.py "$ROOT/tests/lib" x$n $source $tp $pp $copies $form $more
    ok $? "$source on $tp x $pp ranks, $form $more: the ranks' files are the model" || ls -R x$n | head -20
done <<'E'
gqa 1 1 1 fused
gqa 4 2 2 fused
gqa 8 1 4 split xser=1 files=v1
gqa 4 3 2 split hw=trn2
gqa 2 1 1 separate files=v3
mha 4 2 1 coalesced xser=1
mha 2 1 1 separate files=v1
many 2 2 1 fused interleave=2
many 4 1 1 split hw=trn2 xser=1 files=v3
E

# Back: names, ranks, form and copies are seen.
n=0
while read -r source hw; do
    n=$((n + 1))
    run tern ckpt export x$n -o back$n --from nxd --config $source --hw $hw; status 0
    "$T" same $source back$n; ok $? "$source: the ranks' files of export $n make the model again"
    cmp -s $source/config.json back$n/config.json || has back$n/config.json '"num_key_value_heads"' "$source: the config comes with it"
done <<'E'
gqa trn1
gqa trn1
gqa trn1
gqa trn2
gqa trn2
mha trn1
mha trn2
many trn1
many trn1
E
run tern ckpt export x2/model -o below --from nxd --config gqa/config.json; status 0 "the folder of the files itself will do"
"$T" same gqa below; ok $? "the folder of the files itself makes the model"
run tern ckpt export x2 -o other --from nxd --config gqa --to nxd --tensor 8 --qkv split --files v1 --xser; status 0
diff -r other x3 >/dev/null; ok $? "an export from ranks to other ranks is that from the model"
run tern ckpt export gqa -o auto --to nxd --tensor 4; status 0; err_has "--qkv_linear 1 --fuse_qkv 1 --kv_replicator 2"
run tern ckpt export mha -o auto2 --to nxd; status 0; err_has "--qkv_linear 0 --fuse_qkv 1 --kv_replicator 1"
[ "$(ls auto2)" = model ]; ok $? "weights to begin with have no markers"
run tern ckpt export mha -o marked --to nxd --markers; status 0
[ "$(cat marked/checkpoint marked/done)" = 11 ]; ok $? "--markers: checkpoint and done, each \"1\""

# From a checkpoint of ours, and in another type.
"$T" save run 3 2 gqa || exit 1
run tern ckpt export run/latest -o ours --to nxd --tensor 4 --pipeline 2; status 0
diff -r ours x2 >/dev/null; ok $? "a checkpoint of tern's gives the files of its Hugging Face folder"
run tern ckpt export run/latest -o half --to nxd --tensor 2 --dtype bf16; status 0
run tern ckpt export run/latest -o hf-half --dtype bf16; status 0
python3 whole.py "$ROOT/tests/lib" half hf-half 2 1 1 fused; ok $? "--dtype bf16 rounds as an export to Hugging Face's"

# What is refused leaves nothing.
refused() { # STATUS WORDS OPTION...
    local want=$1 words=$2; shift 2
    run tern ckpt export "$@" -o refused; status "$want"; one_line; err_has "$words"
    [ -z "$(ls -d refused* 2>/dev/null)" ]; ok $? "$*: a refused export leaves nothing"
}
refused 2 "num_attention_heads 8 is no multiple of the 3 tensor ranks" gqa --to nxd --tensor 3
refused 2 "has 3 layers, fewer than 4 parts" gqa --to nxd --pipeline 4
refused 2 "only where the numbers are equal" gqa --to nxd --qkv coalesced
refused 2 "'x' is none of auto, fused, split, coalesced, separate" gqa --to nxd --qkv x
refused 2 "'trn3' is none of trn1, trn2" gqa --to nxd --hw trn3
refused 2 "--tensor: must be 1 to 1024" gqa --to nxd --tensor 0
refused 2 "--to: 'nemo' is none of hf, nxd" gqa --to nemo
refused 2 "give --to nxd for files of ranks" run/latest --tensor 2
refused 2 "--tokenizer: goes with --to hf alone" gqa --to nxd --tokenizer gqa
refused 2 "cannot open checkpoint" run/step-00000004 --to nxd
mkdir full; touch full/file; run tern ckpt export gqa -o full --to nxd; status 2; one_line; err_has "is there already"
cp -r gqa cut; truncate -s -4 cut/model.safetensors; refused 2 "cut/model.safetensors" cut --to nxd
cp -r gqa less; sed -i 's/"num_hidden_layers": 3/"num_hidden_layers": 4/' less/config.json; refused 2 "wants tensor 'model.layers.3" less --to nxd
cp -r gqa none; rm none/config.json; refused 2 "none: holds no model's config" none --to nxd
cp -r gqa int; sed -i 's/"dtype": "F32", "shape": \[40, 32\]/"dtype": "I32", "shape": [40, 32]/' int/model.safetensors
refused 2 "is I32, no kind of float" int --to nxd
make "'mixed', 8, 2, 2, half='k_proj'"
refused 2 "become one in NxD: choose a type (--dtype)" mixed --to nxd
run tern ckpt export mixed -o one-type --to nxd --dtype bf16; status 0 "tensors of two types become one in a type that is named"

refused 2 "files of NeuronX Distributed's ranks. Make a model of them: tern ckpt export --from nxd" x2
refused 2 "files of NeuronX Distributed's ranks. Make a model of them: tern ckpt export --from nxd" x3
refused 2 "Is --hw trn2 right?" x2 --from nxd --config gqa --hw trn2
refused 2 "Is --hw trn2 right?" x3 --from nxd --config gqa --hw trn2
refused 2 "Is --hw trn1 right?" x4 --from nxd --config gqa
refused 2 "'model.layers.0.self_attn.qkv_proj.weight_qkv' is [16, 32] on each of its 4 tensor ranks. It is not of a model with this config: hidden_size 16, 4 query and 4 key heads of 4." x2 --from nxd --config mha
cp -r gqa odd; sed -i 's/"vocab_size": 40/"vocab_size": 42/' odd/config.json
refused 2 "are not of a model with this config, which has: vocab_size 42 is no multiple of the 4 tensor ranks, which NxD needs" x2 --from nxd --config odd
refused 2 "Name the model's: --config" x2 --from nxd
cp -r gqa wide; sed -i 's/"intermediate_size": 48/"intermediate_size": 96/' wide/config.json
refused 2 "'model.layers.0.mlp.gate_up_proj.weight' is [24, 32] on each of its 4 tensor ranks, and the config implies [48, 32]" x2 --from nxd --config wide
refused 2 "'hf' is not nxd" gqa --from hf
refused 2 "--config: goes with --from nxd alone" gqa --config gqa
refused 2 "holds no files of NxD's ranks" gqa --from nxd
refused 2 "nowhere" x2 --from nxd --config nowhere
file=model/dp_rank_00_tp_rank_02_pp_rank_01.pt
cp -r x2 gone; rm gone/$file; refused 2 "the folder has files of 4 tensor and 2 pipeline ranks" gone --from nxd --config gqa
cp -r x2 swap; cp x2/model/dp_rank_00_tp_rank_02_pp_rank_00.pt swap/$file; refused 2 "$file: has no tensor 'model.layers.1" swap --from nxd --config gqa
cp -r x2 cut2; size=$(stat -c %s cut2/$file)
for at in 0 1 30 100 1000 $((size / 2)) $((size - 23)) $((size - 1)); do
    cp x2/$file cut2/$file; truncate -s $at cut2/$file
    refused 2 "cut2/$file" cut2 --from nxd --config gqa
done
cp -r x3 bare; rm -r bare/tp_rank_05_pp_rank_00.tensors; refused 2 "bare/tp_rank_05_pp_rank_00.tensors/tensor_" bare --from nxd --config gqa
cp -r x3 mix; cp x3/tp_rank_05_pp_rank_00.tensors/tensor_1.pt mix/tp_rank_05_pp_rank_00.tensors/tensor_0.pt
refused 2 "tensor 'model.embed_tokens.weight' is F32 [4, 32], and on tensor rank 0 it is F32 [5, 32]" mix --from nxd --config gqa
cp -r x6 ref; rm -r ref/model/*.tensors; refused 2 "not in this file (xser)" ref --from nxd --config mha


# What the model would be without.
edit() { # FILE STATEMENTS: of `s`, the object in a file of PyTorch
    python3 -c "
import sys; sys.path.insert(0, '$ROOT/tests/lib'); import nxd
s = nxd.load('$1'); x = ('F32', (3, 2), bytes(24))
$2
nxd.save('$1', s)" || exit 1
}
at=model.layers.0.self_attn.qkv_proj
cp -r x2 more; edit more/$file "s['$at.lora_A.weight'] = s['$at.lora_B.weight_q'] = s['$at.bias_q'] = s['visual.weight'] = x"
refused 2 "more/$file: holds 4 tensors that would be left out: '$at.lora_A.weight', '$at.lora_B.weight_q', '$at.bias_q', .... The config" more --from nxd --config gqa
cp x2/$file more/$file; edit more/$file "s['model.layers.2.self_attn.rotary_emb.inv_freq'] = x"
run tern ckpt export more -o less-freq --from nxd --config gqa; status 0 "RoPE's frequencies may be left out"
"$T" same gqa less-freq; ok $? "a model with RoPE's frequencies in its files is the model"
for tp in 0 1 2 3; do edit more/model/dp_rank_00_tp_rank_0${tp}_pp_rank_00.pt "s['model.norm.weight'] = ('F32', (32,), bytes(128))"; done
cp x2/$file more/$file; refused 2 "holds 1 tensor that would be left out: 'model.norm.weight'. The config names none of this name, or another pipeline rank has it" more --from nxd --config gqa
cp -r x7 trainer; for tp in 0 1; do edit trainer/tp_rank_0${tp}_pp_rank_00/checkpoint.pt "s = {'model': s, 'optimizer_state': {'0': {'exp_avg': x}}, 'step': x, 'epoch': 2}"; done
run tern ckpt export trainer -o of-trainer --from nxd --config mha; status 0 "an optimizer's state lies beside the model"
"$T" same mha of-trainer; ok $? "beside an optimizer's state the model is the model"
edit trainer/tp_rank_01_pp_rank_00/checkpoint.pt "s['model']['score.weight'] = x"
refused 2 "holds 1 tensor that would be left out: 'score.weight'" trainer --from nxd --config mha
cp -r x7 head; edit head/tp_rank_01_pp_rank_00/checkpoint.pt "t, n, b = s['lm_head.weight']; s['lm_head.weight'] = t, n, b[:-1] + bytes([b[-1] ^ 1])"
refused 2 "says tie_word_embeddings, and lm_head.weight is not the embedding" head --from nxd --config mha
refused 2 "says tie_word_embeddings, and lm_head.weight is not the embedding" head --from nxd --config mha --to nxd
for tp in 0 1; do edit head/tp_rank_0${tp}_pp_rank_00/checkpoint.pt "del s['lm_head.weight']"; done
run tern ckpt export head -o headless --from nxd --config mha; status 0 "a tied model may come without its head"
"$T" same mha headless; ok $? "a tied model without its head is the model"
cp -r mha twice; python3 - "$ROOT/tests/lib" <<'PY'
import sys; sys.path.insert(0, sys.argv[1]); import nxd
s = nxd.source("twice"); s["lm_head.weight"] = s["model.embed_tokens.weight"]; nxd.write("twice/model.safetensors", s)
PY
run tern ckpt export twice -o once; status 0 "a folder may hold its tied head"; "$T" same mha once; ok $? "a tied head is left out"
printf x | dd of=twice/model.safetensors bs=1 seek=$(($(stat -c %s twice/model.safetensors) - 9)) conv=notrunc 2>/dev/null
refused 2 "twice: its config says tie_word_embeddings, and lm_head.weight is not the embedding" twice
refused 2 "twice: its config says tie_word_embeddings, and lm_head.weight is not the embedding" twice --to nxd

# A checkpoint that was not finished; names of all kinds.
run tern ckpt export marked -o whole --from nxd --config mha; status 0 "a finished checkpoint is taken"
rm marked/done
refused 2 "marked: has the marker 'checkpoint' and no marker 'done': the trainer has not finished this checkpoint" marked --from nxd --config mha
refused 2 "marked/model: has the marker 'checkpoint' and no marker 'done'" marked/model --from nxd --config mha
refused 2 "holds model/dp_rank_00_ep_rank_00_tp_rank_0" x5
refused 2 "holds model/dp_rank_00_ep_rank_00_tp_rank_0" x9
cp -r x2 later; rm later/model/*tp_rank_00*; refused 2 "files of NeuronX Distributed's ranks. Make a model of them" later
mkdir -p on/shards on/two/model; refused 2 "on: holds shards: a model on Optimum Neuron's ranks. Make one model of it: tern ckpt export --from nxd" on
refused 2 "two: holds no weights that tern reads" on/two

if strace -o /dev/null true 2>/dev/null; then
    run env ASAN_OPTIONS=detect_leaks=0 strace -o calls -e trace=pipe2 -e inject=pipe2:signal=INT:when=12 \
        tern ckpt export x3 -o stopped --from nxd --config gqa
    status 130 "Ctrl-C while ranks' files are opened: exit status 130"
    [ "$(grep -c ^pipe2 calls)" -le 13 ]; ok $? "Ctrl-C while ranks' files are opened: no more are opened" || cat calls
    run env ASAN_OPTIONS=detect_leaks=0 strace -o calls -e trace=pipe2 tern ckpt export x3 -o all --from nxd --config gqa
    # 8 ranks, 8 tensors of 3 layers and of the ends; norms are alike on all ranks; k of layer 0 is seen twice before.
    [ "$(grep -c ^pipe2 calls)" = $((8 + 8 * (3 * 6 + 2) + 3 * 2 + 1 + 2 * 8)) ]; ok $? "with xser a norm is opened on one rank alone" || grep -c ^pipe2 calls
    for at in 3 12 25; do
        run env ASAN_OPTIONS=detect_leaks=0 strace -f -o /dev/null -e trace=pread64 -e inject=pread64:signal=INT:when=$at \
            tern ckpt export gqa -o stopped --to nxd --tensor 4 --xser
        status 130 "Ctrl-C at read $at: exit status 130"
        [ ! -e stopped ]; ok $? "Ctrl-C at read $at: nothing has the folder's name"
        run env ASAN_OPTIONS=detect_leaks=0 strace -f -o /dev/null -e trace=fsync -e inject=fsync:error=ENOSPC:when=$((at / 10 + 1)) \
            tern ckpt export gqa -o stopped --to nxd --tensor 4
        status 75 "no room at file $((at / 10 + 1)): exit status 75"; err_has "No space left"
        [ -z "$(ls -d stopped* 2>/dev/null)" ]; ok $? "no room at file $((at / 10 + 1)): nothing is left, not even by the call before"
    done
else
    skip "strace may not trace here"
fi
tap_done
