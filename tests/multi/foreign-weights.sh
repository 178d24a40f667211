#!/bin/bash
# Weights of a Hugging Face folder that its config.json does not speak of: another model than it says.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
command -v python3 >/dev/null || skip_all "python3 is not installed"
tiny_make 2>/dev/null
sed -i "s/warmup: 2/warmup: 1/" run.yaml
run tern train run.yaml --set steps=2; status 0
run tern ckpt export checkpoints/latest -o hf; status 0 # tied: no lm_head
# edit DIR PYTHON: `t` is {name: (dtype, shape, bytes)}, `f(...)` packs floats
edit() {
    rm -rf "$1"; cp -r hf "$1"
    python3 - "$1/model.safetensors" "$2" <<'P'
import json, struct, sys
b = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', b[:8])[0]
head = json.loads(b[8:8 + n]); meta = head.pop('__metadata__', None)
t = {k: (v['dtype'], v['shape'], b[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]]) for k, v in head.items()}
f = lambda *v: struct.pack('<%df' % len(v), *v)
exec(sys.argv[2])
out, at = ({'__metadata__': meta} if meta else {}), 0
for k, (d, s, x) in t.items():
    out[k] = {'dtype': d, 'shape': s, 'data_offsets': [at, at + len(x)]}; at += len(x)
h = json.dumps(out).encode(); h += b' ' * (-len(h) % 8)
open(sys.argv[1], 'wb').write(struct.pack('<Q', len(h)) + h + b''.join(x for d, s, x in t.values()))
P
}
evaluate() { run tern eval run.yaml --only -c "$1"; }
evaluate hf; status 0; cp out plain
L=model.layers.0.self_attn
while IFS='|' read -r name code word; do
    edit other "$code"; evaluate other; status 2 "$name"; err_has "$word"; one_line
    sed 's/^model: .*/model: {from: other, tokenizer: model}/; s/^checkpoint: .*/checkpoint: {dir: from, every: 1}/' run.yaml >from.yaml
    run tern train from.yaml --set steps=2; status 2 "$name: a run from it is refused"; err_has "$word"
done <<E2
a bias|t['$L.q_proj.bias'] = ('F32', [32], f(*[1.0] * 32))|'$L.q_proj.bias'
norms of queries|t['$L.q_norm.weight'] = ('F32', [8], f(*[1.0] * 8)); t['$L.k_norm.weight'] = t['$L.q_norm.weight']|holds 2 tensors
a layer more|t.update({k.replace('layers.1.', 'layers.2.'): v for k, v in list(t.items()) if 'layers.1.' in k})|holds 9 tensors
adapters|t['base_model.model.x.lora_A.weight'] = ('F32', [1, 2], f(1, 2))|'base_model.model.x.lora_A.weight'
a head that is not the embedding|d, s, x = t['model.embed_tokens.weight']; t['lm_head.weight'] = (d, s, x[:-4] + f(9.0))|lm_head.weight is not the embedding
a head of another shape|t['lm_head.weight'] = ('F32', [2, 32], f(*[0.0] * 64))|lm_head.weight is not the embedding
E2
while IFS='|' read -r name code; do
    edit other "$code"; evaluate other; status 0 "$name"; cmp -s out plain; ok $? "$name: the loss is that of the plain folder"
done <<'E2'
RoPE's frequencies|t['model.layers.0.self_attn.rotary_emb.inv_freq'] = ('F32', [4], f(1, 2, 3, 4)); t['model.rotary_emb.inv_freq'] = ('F32', [4], f(1, 2, 3, 4))
a head that is the embedding|t['lm_head.weight'] = t['model.embed_tokens.weight']
a quantisation's, of another type|t['model.layers.0.self_attn.k_scale'] = ('F8_E4M3', [4], bytes(4)); t['x'] = ('F4', [2, 3], bytes(3))
E2
# A weight itself of such a type.
edit other "d, s, x = t['model.norm.weight']; t['model.norm.weight'] = ('F8_E4M3', s, bytes(s[0]))"
evaluate other; status 2 "a weight of a type that is not read"; err_has "model.norm.weight"; one_line

# Shards: in a folder below, and an index that names what is not there.
# shards PYTHON [FOLDER]: the folder (hf) as `other`, in two files; `files` is {name: file}, and the index
# names those of `more`, too, and none of `gone`
shards() {
    rm -rf other; cp -r ${2:-hf} other
    python3 - other "$1" <<'P'
import json, os, struct, sys
d = sys.argv[1]
b = open(d + '/model.safetensors', 'rb').read(); os.unlink(d + '/model.safetensors')
n = struct.unpack('<Q', b[:8])[0]
head = json.loads(b[8:8 + n]); head.pop('__metadata__', None)
names = sorted(head); files = {k: 'model-0000%d-of-00002.safetensors' % (1 + i % 2) for i, k in enumerate(names)}
exec(sys.argv[2])
for f in set(files.values()):
    out, at, body = {}, 0, b''
    for k in names:
        if files.get(k) != f: continue
        v = head[k]; x = b[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]]
        out[k] = {'dtype': v['dtype'], 'shape': v['shape'], 'data_offsets': [at, at + len(x)]}; at += len(x); body += x
    if not out: continue
    os.makedirs(os.path.dirname(d + '/' + f), exist_ok=True)
    h = json.dumps(out).encode(); h += b' ' * (-len(h) % 8)
    open(d + '/' + f, 'wb').write(struct.pack('<Q', len(h)) + h + body)
files.update(globals().get('more', {}))
for k in globals().get('gone', []): del files[k]
json.dump({'weight_map': files}, open(d + '/model.safetensors.index.json', 'w'))
P
}
while IFS='|' read -r name code; do
    shards "$code"; evaluate other; status 0 "$name"; cmp -s out plain; ok $? "$name: the loss is that of one file"
done <<'E2'
two shards|
in a folder below|files = {k: 'weights/' + f for k, f in files.items()}
a tensor that the index leaves out|gone = ['model.norm.weight']
an entry that no file has|more = {'model.layers.0.self_attn.rotary_emb.inv_freq': 'model-00001-of-00002.safetensors'}
a file that is not there, for what nobody needs|more = {'model.layers.0.self_attn.rotary_emb.inv_freq': 'model-00003-of-00003.safetensors', 'lm_head.weight': 'model-00003-of-00003.safetensors'}
E2
# An entry that neither a file nor the config has is left out, with a word; in PyTorch's files, too.
while IFS='|' read -r name tensor file; do
    shards "more = {'$tensor': '$file'}"; evaluate other; status 0 "$name"; cmp -s out plain; ok $? "$name: the loss is that of one file"
    err_has "names 1 tensor that no file has and the config does not need: '$tensor'" "$name: the index's tensor is named"
done <<E2
an entry of a layer that the config has not|model.layers.2.mlp.up_proj.weight|model-00001-of-00002.safetensors
an entry of a quantisation|$L.k_scale|model-00002-of-00002.safetensors
entries of a file that is not there|model.layers.2.mlp.up_proj.weight|model-00003-of-00003.safetensors
E2
# What lies in the shards counts, whether or not the index names it.
refused() { evaluate other; status 2 "$1"; err_has "$2" "$1: says why"; one_line "$1: one clear line"; }
edit biased "t['$L.q_proj.bias'] = ('F32', [32], f(*[1.0] * 32))"
edit headed "d, s, x = t['model.embed_tokens.weight']; t['lm_head.weight'] = (d, s, x[:-4] + f(9.0))"
shards "gone = ['$L.q_proj.bias']" biased; refused "a bias that the index leaves out" "holds 1 tensor that its config.json does not place: '$L.q_proj.bias'"
shards "gone = ['lm_head.weight']" headed; refused "another head that the index leaves out" "lm_head.weight is not the embedding"
shards "more = {'$L.q_proj.bias': {'1': 'model-00002', '2': 'model-00001'}[files['$L.q_proj.bias'][10]] + '-of-00002.safetensors'}" biased
refused "a bias that lies in another file than the index says" "tensor '$L.q_proj.bias' is not in"
shards "more = {'model.norm.weight': {'1': 'model-00002', '2': 'model-00001'}[files['model.norm.weight'][10]] + '-of-00002.safetensors'}"
refused "a weight that lies in another file than the index says" "tensor 'model.norm.weight' is not in"
# bins FOLDER JQ: `other` in PyTorch's files, and its index
bins() { rm -rf other; "$TOOLS/torch-tool" bins $1 other 2 && jq -c ".weight_map |= ($2)" other/pytorch_model.bin.index.json >index && mv index other/pytorch_model.bin.index.json; }
bins hf 'del(."model.norm.weight")'; evaluate other; status 0 "PyTorch's files: a tensor that the index leaves out"; cmp -s out plain; ok $? "PyTorch's files: the loss with it is that of one file"
bins hf '. + {"model.layers.2.mlp.up_proj.weight": "pytorch_model-00009-of-00009.bin"}'; evaluate other; status 0 "PyTorch's files: an entry that nothing needs"
cmp -s out plain; ok $? "PyTorch's files: the loss without it is that of one file"
bins hf '. + {"model.norm.weight": "pytorch_model-00009-of-00009.bin"}'; refused "PyTorch's files: one is not there" "pytorch_model-00009-of-00009.bin"
bins biased "del(.\"$L.q_proj.bias\")"; refused "PyTorch's files: a bias that the index leaves out" "'$L.q_proj.bias'"
shards "more = {'model.norm.weight': 'model-00003-of-00003.safetensors'}"; evaluate other; [ $rc != 0 ]; ok $? "a file that is not there"; err_has "model-00003-of-00003.safetensors"; one_line
# What can be seen of the files is seen before the job is.
sed 's/^model: .*/model: {from: other, tokenizer: model}/; s/^checkpoint: .*/checkpoint: {dir: from, every: 1}/' run.yaml >from.yaml
early() { run tern run --check from.yaml; status 2 "at submission: $1"; err_has "$2"; err_has "from.yaml:"; one_line; run tern train from.yaml; status 2 "tern train: $1"; }
early "a file that is not there" "model-00003-of-00003.safetensors: cannot open"
shards ""; truncate -s -1 other/model-00002-of-00002.safetensors; early "a file that is cut short" "is truncated"
shards ""; printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n' >other/model-00001-of-00002.safetensors; early "a Git LFS pointer" "is a Git LFS pointer"
rm -rf other; cp -r hf other; run tern run --check from.yaml; status 0 "the check finds nothing in a good folder of weights"
# Token sets of another vocabulary, without a supervisor, too.
cp -r model model2; python3 - model2/tokenizer.model <<'P'
import sys
b = bytearray(open(sys.argv[1], 'rb').read()); i = b.find(b'the'); b[i:i + 3] = b'teh'; open(sys.argv[1], 'wb').write(b)
P
tern data build --tokenizer model2 -o data/other.tds train.jsonl 2>/dev/null && sed 's,data/train.tds,data/other.tds,; s/dir: checkpoints/dir: vocab/' run.yaml >vocab.yaml
for by in train run; do run tern $by vocab.yaml; status 2 "tern $by: a token set of another vocabulary"; err_has "another vocabulary"; done
for bad in ../x.safetensors /tmp/x.safetensors weights/../../x.safetensors; do
    shards "more = {'model.norm.weight': '$bad'}"; evaluate other; status 2 "$bad"; err_has "places tensor 'model.norm.weight'"
done

# PyTorch's and Meta's files begin the same run; its checkpoints are whole without them.
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' model/config.json >model/untied.json
run tern train run.yaml --set model.config=model/untied.json --set checkpoint.dir=untied --set steps=2; status 0
run tern ckpt export untied/latest -o whole; status 0
F=$TOOLS/torch-tool
"$F" bin whole as-bin && "$F" bins whole as-bins 3 && "$F" meta whole as-meta 2 1 || exit 1
echo '{"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 64, "ffn_dim_multiplier": 0.7, "norm_eps": 1e-05, "vocab_size": -1}' >as-meta/params.json
for f in whole as-bin as-bins as-meta; do
    sed "s/^model: .*/model: {from: $f, tokenizer: model}/; s/^checkpoint: .*/checkpoint: {dir: from-$f, every: 1}/" run.yaml >from.yaml
    run tern run --check from.yaml; status 0 "$f: the check finds nothing"
    run tern train from.yaml --set steps=2; status 0 "$f: it is trained"
    tern ckpt show from-$f/latest --json | jq -S .arrays >$f.arrays
    [ -s $f.arrays ] && cmp -s $f.arrays whole.arrays; ok $? "$f: after two steps every array is as from safetensors"
    run tern ckpt export from-$f/latest -o out-$f; status 0 "$f: its checkpoint is whole without it"
    for k in hidden_size intermediate_size num_key_value_heads vocab_size; do
        is "$(jq .$k out-$f/config.json)" "$(jq .$k whole/config.json)" "$f: $k of the exported config"
    done
done
tap_done
