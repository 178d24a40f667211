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
    run tern train from.yaml --set steps=2; status 2 "$name: nor is it trained"; err_has "$word"
done <<E2
a bias|t['$L.q_proj.bias'] = ('F32', [32], f(*[1.0] * 32))|'$L.q_proj.bias'
norms of queries|t['$L.q_norm.weight'] = ('F32', [8], f(*[1.0] * 8)); t['$L.k_norm.weight'] = t['$L.q_norm.weight']|holds 2 tensors
a layer more|t.update({k.replace('layers.1.', 'layers.2.'): v for k, v in list(t.items()) if 'layers.1.' in k})|holds 9 tensors
adapters|t['base_model.model.x.lora_A.weight'] = ('F32', [1, 2], f(1, 2))|'base_model.model.x.lora_A.weight'
a head that is not the embedding|d, s, x = t['model.embed_tokens.weight']; t['lm_head.weight'] = (d, s, x[:-4] + f(9.0))|lm_head.weight is not the embedding
a head of another shape|t['lm_head.weight'] = ('F32', [2, 32], f(*[0.0] * 64))|lm_head.weight is not the embedding
E2
while IFS='|' read -r name code; do
    edit other "$code"; evaluate other; status 0 "$name"; cmp -s out plain; ok $? "is as good as without"
done <<'E2'
RoPE's frequencies|t['model.layers.0.self_attn.rotary_emb.inv_freq'] = ('F32', [4], f(1, 2, 3, 4)); t['model.rotary_emb.inv_freq'] = ('F32', [4], f(1, 2, 3, 4))
a head that is the embedding|t['lm_head.weight'] = t['model.embed_tokens.weight']
E2
tap_done
