#!/bin/bash
# Adapters (LoRA, rsLoRA, DoRA) beside the tools people use: numpy puts them into the weights; PEFT
# loads them, has the merged folder's logits and weights, and their gradients, and after ten steps of
# PyTorch's AdamW the same adapters and moments.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
. "$ROOT/tests/lib/venv.sh"
venv safetensors 'safetensors, numpy' safetensors numpy ||
    skip_all "the Python package safetensors is not there and cannot be installed"

tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/; s/keep: 2/keep: 9/; s/^schedule: .*/schedule: {kind: constant, warmup: 0}/' run.yaml
sed -i 's/^optimizer: .*/optimizer: {lr: 2.0e-2, clip: 0, betas: [0.9, 0.95]}/' run.yaml
run tern run run.yaml --set model.init_std=0.1; status 0; run tern ckpt export checkpoints/latest -o base; status 0
all="targets: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]"
while read -r name lora; do
    run tern run run.yaml --set name=$name --set checkpoint.dir=$name --set 'model={from: base}' --set steps=3 --set "lora={$lora}"
    status 0 "$name: a run trains with $lora"
    for s in 1 2 3; do run tern ckpt export $name/step-0000000$s -o $name-peft$s; status 0; done
    run tern ckpt merge $name/latest -o $name-hf; status 0
    run tern ckpt merge $name/latest -o $name-half --dtype bf16; status 0
    ten="--set optimizer.clip=0.05 --set optimizer.weight_decay=0.1"
    run tern run run.yaml --set name=$name-begin --set checkpoint.dir=$name-begin --set 'model={from: base}' $ten --set steps=1 --set optimizer.lr=0 --set "lora={$lora}"; status 0
    run tern run run.yaml --set name=$name-ten --set checkpoint.dir=$name-ten --set 'model={from: base}' $ten --set steps=10 --set "lora={$lora}"; status 0
    for s in begin ten; do run tern ckpt export $name-$s/latest -o $name-$s-peft; status 0; done
done <<E
lora rank: 4, alpha: 6
rslora rank: 3, alpha: 5, rslora: true, $all
dora rank: 3, alpha: 5, dora: true, $all
E
tern data sample run.yaml 0-79 --json >samples.json

cat >weights.py <<'PY'
import json, struct
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

def say(good, what):
    print(("" if good else "not ") + "ok", what)

def bf16(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    at = lambda t: np.frombuffer(raw[8 + n:][t["data_offsets"][0]:t["data_offsets"][1]], np.uint16).reshape(t["shape"])
    return {k: at(t) for k, t in head.items() if k != "__metadata__"}

def rounded(a):  # double to bfloat16, to nearest, ties to even: by way of a float that errs to odd
    f = a.astype(np.float32)
    u = f.view(np.uint32).copy()
    inexact = f.astype(np.float64) != a
    down = inexact & (np.abs(f.astype(np.float64)) > np.abs(a))
    u = np.where(down, u - 1, u)
    u = np.where(inexact, u | 1, u).astype(np.uint64)
    return ((u + 0x7fff + ((u >> 16) & 1)) >> 16).astype(np.uint16)

base = load_file("base/model.safetensors")
for name in ("lora", "rslora", "dora"):
    c = json.load(open(name + "-peft3/adapter_config.json"))
    a = load_file(name + "-peft3/adapter_model.safetensors")
    with safe_open(name + "-peft3/adapter_model.safetensors", "np") as f:
        say(f.metadata() == {"format": "pt"}, name + ": safetensors reads it; metadata says pt")
    scale = c["lora_alpha"] / (c["r"] ** 0.5 if c["use_rslora"] else c["r"])
    merged = load_file(name + "-hf/model.safetensors")
    half = bf16(name + "-half/model.safetensors")
    worst, n, same, total = 0.0, 0, 0, 0
    for k, w in base.items():
        at = "base_model.model." + k[:-len(".weight")]
        w = w.astype(np.float64)
        if at + ".lora_A.weight" in a:
            n += 1
            w = w + scale * a[at + ".lora_B.weight"].astype(np.float64) @ a[at + ".lora_A.weight"].astype(np.float64)
            if c["use_dora"]:
                w *= (a[at + ".lora_magnitude_vector"].astype(np.float64) / np.linalg.norm(w, axis=1))[:, None]
        worst = max(worst, np.max(np.abs(merged[k] - w) / np.maximum(np.abs(w), 1e-30) * (merged[k] != w.astype(np.float32))))
        same += np.sum(half[k] == rounded(w)); total += w.size
    say(n == len(c["target_modules"]) * 2 and len(a) == n * (3 if c["use_dora"] else 2) and merged.keys() == base.keys(), f"{name}: {n} weights with adapters, and all the others")
    say(worst < 2.0 ** -23, f"{name}: W' = W + s B A, rounded once to float ({worst:.1e})")
    say(same >= total - 2, f"{name}: and to bfloat16 ({total - same} of {total} differ)")
PY
"$VENV/bin/python" weights.py >said 2>err || sed 's/^/# /' err
[ "$(wc -l <said)" = 12 ]; ok $? "numpy ran to its end"
tell() { while read -r verdict what; do [ "$verdict" = ok ]; ok $? "$1: adapters agree in $what"; done < <(sed 's/^not ok/not_ok/' said); }
tell numpy

# PEFT, of a release that works with Debian's PyTorch.
PYTHON=${PYTHON:-/usr/bin/python3}
if ! "$PYTHON" -c 'import torch' 2>/dev/null; then
    skip "PEFT: no PyTorch (apt-get install python3-torch)"; tap_done; exit
fi
if ! VENV_WITH=--system-site-packages venv peft peft --no-deps peft==0.13.2 transformers==4.40.2 accelerate==0.30.1 \
    huggingface_hub==0.23.5 tokenizers==0.19.1 safetensors==0.4.5 'numpy<2' regex requests tqdm filelock fsspec pyyaml \
    packaging psutil typing_extensions idna urllib3 certifi charset_normalizer; then
    skip "PEFT: is not there and cannot be installed"; tap_done; exit
fi
cat >theirs.py <<'PY'
import json, struct
import numpy as np
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

def say(good, what):
    print(("" if good else "not ") + "ok", what)

def llama(path):
    return LlamaForCausalLM.from_pretrained(path, attn_implementation="eager").double()

raw = open("data/train.tds", "rb").read()
offset, size = struct.unpack_from("<QQ", raw, 0x70)  # of the section of tokens, the first
ids = torch.tensor(np.concatenate([[2], np.frombuffer(raw[offset:offset + size], np.uint16)]).astype(np.int64))
rows = [s["row"] for s in json.load(open("samples.json"))]
def batch(step):
    x = torch.stack([ids[32 * r:32 * r + 33] for r in rows[8 * step:8 * step + 8]])
    return x[:, :-1], x[:, 1:]

def load(folder):
    m = PeftModel.from_pretrained(llama("base"), folder, is_trainable=True).double()
    return m.eval()

def trained(m):
    return {k.replace(".default.weight", "" if "magnitude" in k else ".weight"): p for k, p in m.named_parameters() if p.requires_grad}

def backward(m, step):
    x, y = batch(step)
    torch.nn.functional.cross_entropy(m(x).logits.reshape(-1, 800), y.reshape(-1)).backward()

for name in ("lora", "rslora", "dora"):
    m = load(name + "-peft3")
    ours = load_file(name + "-peft3/adapter_model.safetensors")
    theirs = get_peft_model_state_dict(m)
    say(ours.keys() == theirs.keys() and all(torch.equal(ours[k].double(), theirs[k]) for k in ours), f"{name}: the names and values are PEFT's")
    x, y = batch(0)
    a, b = m(x).logits, llama(name + "-hf")(x).logits
    c = llama("base")(x).logits
    d, e = ((a - b).norm() / a.norm()).item(), ((a - c).norm() / a.norm()).item()
    say(d < 1e-6 and e > 1e-2, f"{name}: the merged folder's logits are those of PEFT ({d:.1e}; beside the base {e:.1e})")
    m = m.merge_and_unload()
    merged = load_file(name + "-hf/model.safetensors")
    d = max(((merged[k] - v).norm() / v.norm()).item() for k, v in m.state_dict().items() if k in merged)
    say(d < 1e-7, f"{name}: and its weights PEFT's merge_and_unload ({d:.1e})")
    # AdamW's first moment is 0.9 of what it was and 0.1 of the step's gradient.
    moments = [load_file(f"{name}/step-0000000{s}/shard-00000-of-00001.safetensors") for s in (1, 2, 3)]
    for s in (1, 2):
        m = load(f"{name}-peft{s}")
        backward(m, s)
        g = {k: p.grad for k, p in trained(m).items()}
        worst, which = 0.0, ""
        for k, v in g.items():
            mine = (moments[s]["exp_avg/" + k].double() - 0.9 * moments[s - 1]["exp_avg/" + k].double()) / 0.1
            d = ((mine - v).norm() / v.norm()).item()
            worst, which = max((worst, which), (d, k))
        say(len(g) == len(ours) and worst < 1e-4, f"{name}: step {s + 1}: {len(g)} gradients ({worst:.1e} of its norm: {which})")
    m = load(name + "-begin-peft")
    p = trained(m)
    o = torch.optim.AdamW([{"params": [v for v in p.values() if v.ndim > 1], "weight_decay": 0.1},
                           {"params": [v for v in p.values() if v.ndim < 2], "weight_decay": 0.0}], lr=2e-2, betas=(0.9, 0.95), eps=1e-8)
    clipped = 0
    for step in range(10):
        o.zero_grad()
        backward(m, step)
        clipped += int(torch.nn.utils.clip_grad_norm_(p.values(), 0.05) > 0.05)
        o.step()
    ours = load_file(f"{name}-ten/step-00000010/shard-00000-of-00001.safetensors")
    for what, of in (("adapters", lambda k: ("lora/" + k, p[k].detach())), ("second moments", lambda k: ("exp_avg_sq/" + k, o.state[p[k]]["exp_avg_sq"]))):
        d = max(((ours[of(k)[0]].double() - of(k)[1]).norm() / of(k)[1].norm()).item() for k in p)
        say(clipped > 0 and d < 1e-4, f"{name}: ten steps of AdamW, {clipped} of them clipped: the same {what} ({d:.1e})")
PY
CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 OMP_NUM_THREADS=1 "$VENV/bin/python" theirs.py >said 2>err || sed 's/^/# /' err
[ "$(wc -l <said)" = 21 ]; ok $? "PEFT ran to its end" || tail -5 err | sed 's/^/# /'
tell PEFT
tap_done
