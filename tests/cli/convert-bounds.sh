#!/bin/bash
# Conversions beside a copy: their time against that of cp and fsync of the same bytes, nothing of
# which is in memory before; and their memory at the widths of a 70B model.
# CONVERT_LAYERS=32 has the shape of a 7B model: 13.5 GB, of which five copies lie on disk at once.
. "$(dirname "$0")/../lib/tap.sh"
[ -n "${TERN_TEST_BOUNDS-}" ] || skip_all "it measures alone: make bounds"
layers=${CONVERT_LAYERS:-3} turns=${CONVERT_TURNS:-5}

cat >make.py <<'P'
# make.py DIR HIDDEN INNER LAYERS HEADS KEYS RANDOM: a model in f16, of random bytes or of a hole
import json, math, os, struct, sys
path, (hidden, inner, layers, heads, keys, random) = sys.argv[1], map(int, sys.argv[2:])
os.mkdir(path)
json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": inner,
           "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": keys, "vocab_size": 32000,
           "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
           "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float16"}, open(path + "/config.json", "w"))
small = keys * hidden // heads
of_layer = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (small, hidden), "self_attn.v_proj": (small, hidden),
            "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}
shapes = {"model.embed_tokens": (32000, hidden), "model.norm": (hidden,), "lm_head": (32000, hidden)}
shapes |= {f"model.layers.{i}.{n}": s for i in range(layers) for n, s in of_layer.items()}
head, at = {}, 0
for name, shape in shapes.items():
    end = at + 2 * math.prod(shape)
    head[name + ".weight"] = {"dtype": "F16", "shape": shape, "data_offsets": [at, end]}
    at = end
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
block = bytes(b & 0xbf for b in os.urandom(1 << 24)) # no infinities
with open(path + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    while random and at > 0:
        at -= f.write(block[:at])
    f.truncate(f.tell() + at)
P
forget() { # DIR...: its files are on the storage alone
    find "$@" -type f -exec sh -c 'for f; do dd if=/dev/null of="$f" oflag=nocache conv=notrunc,fdatasync status=none; dd if="$f" iflag=nocache count=0 status=none; done' - {} +
}
seconds() { # FILE COMMAND...: appended to FILE
    local to=$1 from=${EPOCHREALTIME/./}
    shift
    "$@" >/dev/null 2>err || sed 's/^/# /' err
    echo "$from ${EPOCHREALTIME/./}" | awk '{print ($2 - $1) * 1e-6}' >>"$to"
}
copied() { cp -r "$1" "$2" && find "$2" -exec sync {} +; }
median() { sort -n "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

python3 make.py hf 4096 11008 "$layers" 32 32 1 || echo "Bail out! no model"
tern ckpt export hf -o nxd --to nxd --tensor 8 --pipeline $((layers < 8 ? 1 : 8)) 2>err || sed 's/^/# /' err
"$TOOLS/ckpt-tool" save whole 1 1 hf && tern ckpt reshard whole/latest -o ours --shards 4 >/dev/null 2>&1; rm -r whole
for i in $(seq "$turns"); do
    while read -r name from options; do
        rm -rf to; forget $from; seconds "$name" tern ckpt $options -o to
        rm -rf to; forget $from; seconds "$name.cp" copied $from to
    done <<'L'
hf-to-f32 hf export hf --dtype f32
hf-to-hf hf export hf
hf-to-nxd hf export hf --to nxd --tensor 8
hf-to-xser hf export hf --to nxd --tensor 8 --xser
nxd-to-hf nxd export nxd --from nxd --config hf
ours-to-hf ours export ours/latest
ours-to-ours ours reshard ours/latest --shards 3
L
done
for name in *.cp; do
    name=${name%.cp} twice=1
    [ "$name" != hf-to-f32 ] || twice=1.5 # the copy of three bytes where this one moves two and writes four
    r=$(awk -v a="$(median "$name")" -v b="$(median "$name.cp")" -v t=$twice 'BEGIN {print a / b / t}')
    echo "# $name: $(median "$name") s; cp and sync: $(median "$name.cp") s"
    bound "$r" 1.11 "$name: the time of a conversion over that of a copy"
done
rm -rf to hf nxd ours

# 70B's widths, of a hole: a layer has as much at once as all 80.
python3 make.py wide 8192 28672 1 64 8 0
memory() { python3 -c 'import resource, subprocess, sys; subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL, check=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)' "$@"; }
bound "$(memory tern ckpt export wide -o a --dtype f32)" 1024 "MiB resident: a 70B layer to f32"; rm -r a
bound "$(memory tern ckpt export wide -o a --to nxd --tensor 8)" 1024 "MiB resident: a 70B layer to 8 ranks"
bound "$(memory tern ckpt export a -o b --from nxd --config wide)" 1024 "MiB resident: a 70B layer from 8 ranks"
tap_done
