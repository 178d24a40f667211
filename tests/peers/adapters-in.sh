#!/bin/bash
# Adapters that PEFT made: put into their base as its merge_and_unload does; and every field of the
# newest PEFT's LoraConfig is known.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
cat >fields.py <<'P'
import dataclasses, re, sys
from peft import LoraConfig, __version__
known = re.findall(r'^    \{"([a-z_]+)", (?:READ|HARMLESS|REFUSED)\}', open(sys.argv[1]).read(), re.M)
mine = [f.name for f in dataclasses.fields(LoraConfig)]
print("PEFT", __version__, "fields", len(mine))
print("unknown:", " ".join(sorted(set(mine) - set(known))))
P
if venv trainers 'torch, transformers' torch transformers accelerate lightning rich tensorboardX &&
    { "$VENV/bin/pip" install -q --disable-pip-version-check --no-deps -U peft >/dev/null 2>&1; "$VENV/bin/python" -c 'import peft' 2>log; }; then
    "$VENV/bin/python" fields.py "$ROOT/core/convert/peft_in.c" >fields 2>log || tail -3 log
    sed 's/^/# /' fields
    is "$(sed -n 's/^unknown: *//p' fields)" "" "every field of PEFT's LoraConfig is understood, harmless or refused"
    [ "$(sed -n 's/.* fields //p' fields)" -gt 30 ]; ok $? "the check compared the fields of LoraConfig"
else
    skip "no newest PEFT: it is not there and cannot be installed"
fi

PYTHON=${PYTHON:-/usr/bin/python3}
if ! "$PYTHON" -c 'import torch' 2>/dev/null; then skip "no PyTorch (apt-get install python3-torch)"; tap_done; exit; fi
if ! VENV_WITH=--system-site-packages venv peft peft --no-deps peft==0.13.2 transformers==4.40.2 accelerate==0.30.1 \
    huggingface_hub==0.23.5 tokenizers==0.19.1 safetensors==0.4.5 'numpy<2' regex requests tqdm filelock fsspec pyyaml \
    packaging psutil typing_extensions idna urllib3 certifi charset_normalizer; then
    skip "PEFT: is not there and cannot be installed"; tap_done; exit
fi
cat >make.py <<'P'
import sys, torch
from peft import LoraConfig, PeftModel, get_peft_model
PeftModel.create_or_update_model_card = lambda self, where: None  # it wants Jinja2
from transformers import LlamaConfig, LlamaForCausalLM
cases = {
    "plain": dict(r=4, lora_alpha=7, target_modules=["q_proj", "v_proj"]),
    "all-linear": dict(r=3, lora_alpha=5, target_modules="all-linear", use_rslora=True),
    "patterns": dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "down_proj"], rank_pattern={"k_proj": 2, "model.layers.1.mlp.down_proj": 5},
                     alpha_pattern={"layers.0.self_attn.q_proj": 3, "down_proj": 11}),
    "regex": dict(r=2, lora_alpha=4, target_modules=r".*layers\.1\..*(gate|up)_proj"),
    "dora": dict(r=3, lora_alpha=5, target_modules=["q_proj", "o_proj", "up_proj"], use_dora=True),
    "layers": dict(r=2, lora_alpha=4, target_modules=["q_proj"], layers_to_transform=[1]),
    "saved": dict(r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["norm", "lm_head"]),
    "head": dict(r=2, lora_alpha=4, target_modules=["lm_head"]),
}
torch.manual_seed(5)
def base():
    return LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=120))
m = base(); m.save_pretrained("base")
for name, options in cases.items():
    m = get_peft_model(LlamaForCausalLM.from_pretrained("base"), LoraConfig(task_type="CAUSAL_LM", **options))
    for k, p in m.named_parameters():
        if p.requires_grad:
            p.data += 0.3 * torch.randn_like(p)
    m.save_pretrained(name, safe_serialization=name != "plain")
    torch.save(dict(m.double().merge_and_unload().state_dict()), name + ".merged")
    print(name)
P
cat >compare.py <<'P'
import sys, torch
from safetensors.torch import load_file
theirs, ours = torch.load(sys.argv[1] + ".merged"), load_file(sys.argv[1] + "-ours/model.safetensors")
worst = max(((ours[k].double() - v).norm() / v.norm()).item() for k, v in theirs.items())
print(set(theirs) == set(ours), worst < 1e-7, "%.1e" % worst)
P
"$VENV/bin/python" make.py >made 2>log || { ok 1 "PEFT makes its adapters"; tail -3 log; }
while read -r name; do
    if [ "$name" = head ]; then # with it PEFT saves the weight that the adapter is of, which may be another than the base's
        run tern ckpt merge head --base base -o none; status 2; one_line; err_has 'lm_head.base_layer.weight'
        continue
    fi
    run tern ckpt merge "$name" --base base -o "$name-ours"; status 0
    verdict=$("$VENV/bin/python" compare.py "$name" 2>&1 | tail -1)
    [ "${verdict% *}" = "True True" ]; ok $? "$name: the weights of PEFT's merge_and_unload ($verdict)"
done <made
[ "$(wc -l <made)" = 8 ]; ok $? "eight kinds of adapters were compared"
tap_done
