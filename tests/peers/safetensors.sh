#!/bin/bash
# The safetensors library of Hugging Face reads our exports and our checkpoints' shards, byte for
# byte; and we read what it writes.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
. "$ROOT/tests/lib/venv.sh"
venv safetensors 'safetensors, numpy' safetensors numpy ||
    skip_all "the Python package safetensors is not there and cannot be installed"

"$T" model hf && "$T" save run 7 3 hf || exit 1
tern ckpt export run/latest -o one 2>/dev/null && tern ckpt export run/latest -o many --max-shard 40KB 2>/dev/null
tern ckpt export run/latest -o half --dtype f16 2>/dev/null; tern ckpt export run/latest -o brain --dtype bf16 2>/dev/null

cat >peer.py <<'PY'
import json, os, struct
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

def say(good, what):
    print(("" if good else "not ") + "ok", what)

def header(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    tensors = json.loads(raw[8:8 + n])
    tensors.pop("__metadata__", None)
    return tensors, raw[8 + n:]

source = load_file("hf/model.safetensors")
one = load_file("one/model.safetensors")
say(source.keys() == one.keys() and all(np.array_equal(source[k], one[k]) for k in source), "export in one file")

index = json.load(open("many/model.safetensors.index.json"))
many = {}
placed = True
for f in sorted(set(index["weight_map"].values())):
    part = load_file("many/" + f)
    placed = placed and all(index["weight_map"][k] == f for k in part)
    many.update(part)
say(placed and source.keys() == many.keys() and all(np.array_equal(source[k], many[k]) for k in source), "export in several files, index right")
say(index["metadata"]["total_size"] == sum(v.nbytes for v in source.values()), "total_size")
def order(path):
    tensors, _ = header(path)
    return sorted(tensors, key=lambda k: tensors[k]["data_offsets"][0])
whole = order("one/model.safetensors")
say(whole[0] == "model.embed_tokens.weight" and whole[1].endswith("layers.0.self_attn.q_proj.weight") and whole[-1] == "lm_head.weight" and
    all(sorted(part, key=whole.index) == part for part in (order("many/" + f) for f in set(index["weight_map"].values()))), "order in the files")
with safe_open("one/model.safetensors", "np") as f:
    say(f.metadata() == {"format": "pt"}, "metadata says pt")

half = load_file("half/model.safetensors")
say(all(np.array_equal(source[k].astype(np.float16), half[k]) for k in source), "F16 as numpy rounds it")
head, data = header("brain/model.safetensors")
def bf16(a):
    u = a.view(np.uint32).astype(np.uint64)
    return ((u + 0x7fff + ((u >> 16) & 1)) >> 16).astype(np.uint16)
good = True
for k, v in source.items():
    b, e = head[k]["data_offsets"]
    good = good and head[k]["dtype"] == "BF16" and np.array_equal(np.frombuffer(data[b:e], np.uint16).reshape(v.shape), bf16(v))
say(good, "BF16 rounded to nearest even")

# A checkpoint's shards are plain safetensors; the manifest says how they fit together.
m = json.load(open("run/step-00000007/manifest.json"))
shards = [load_file("run/step-00000007/" + s["name"]) for s in m["shards"]]
good = True
for name, a in m["arrays"].items():
    whole = np.zeros(a["shape"], np.float32)
    for s in a["slices"]:
        where = tuple(slice(b, b + n) for b, n in zip(s["start"], s["shape"]))
        whole[where] = shards[s["shard"]][name]
    good = good and np.array_equal(whole, source[name.removeprefix("model/")])
say(good, "shards of a checkpoint, put together by its manifest")

os.mkdir("theirs")
save_file(source, "theirs/model.safetensors", metadata={"format": "pt"})
PY
mkdir heads && python3 "$ROOT/tests/lib/headers.py" heads >cases || exit 1
cat >heads.py <<'PY'
# What the validator says of each header is what the table has, which tests/cli/ckpt-attack.sh holds tern to.
import safetensors
def verdict(read):
    try:
        read()
    except safetensors.SafetensorError:
        return "refuses"
    return "takes"
def open_it(path):
    with safetensors.safe_open(path, "np") as f:
        list(f.keys())
for line in open("cases"):
    name, wanted = line.split("\t")[:2]
    path = f"heads/{name}/model.safetensors"
    got = {verdict(lambda: safetensors.deserialize(open(path, "rb").read())), verdict(lambda: open_it(path))}
    print("ok" if got == {wanted} else f"not ok # {got}", f"its validator {wanted} the header {name}")
PY
"$VENV/bin/python" heads.py >heads.said 2>err || sed 's/^/# /' err
[ "$(wc -l <heads.said)" = "$(wc -l <cases)" ]; ok $? "the validator read every header"
while read -r verdict what; do
    [ "$verdict" = ok ]; ok $? "safetensors agrees in $what"
done < <(sed 's/^not ok/not_ok/' heads.said)
"$VENV/bin/python" peer.py >said 2>err || sed 's/^/# /' err
[ "$(wc -l <said)" = 8 ]; ok $? "the peer ran to its end" || sed 's/^/# /' err
while read -r verdict what; do
    [ "$verdict" = ok ]; ok $? "safetensors agrees in $what"
done < <(sed 's/^not ok/not_ok/' said)
"$T" same hf theirs; ok $? "a file that safetensors wrote reads back"
tap_done
