#!/bin/bash
# Values that a weight's type does not reach are refused wherever they are computed or converted, and
# never written as infinities.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
"$T" model hf 302 || exit 1
cat >edit.py <<'P'
# edit.py FILE TENSOR VALUE: the first element of a tensor in FILE, whose elements are F16, BF16 or F32
import json, struct, sys
path, name, value = sys.argv[1], sys.argv[2], float(sys.argv[3])
b = bytearray(open(path, "rb").read())
n = struct.unpack("<Q", b[:8])[0]
t = json.loads(b[8:8 + n])[name]
one = {"F16": lambda v: struct.pack("<e", v), "F32": lambda v: struct.pack("<f", v), "BF16": lambda v: struct.pack("<f", v)[2:]}[t["dtype"]](value)
at = 8 + n + t["data_offsets"][0]
b[at:at + len(one)] = one
open(path, "wb").write(b)
P
cat >adapters.py <<'P'
# adapters.py MODEL DIR A B [NORM]: adapters of rank 1 whose elements are A and B; with NORM a norm that was trained whole
import json, os, struct, sys
config = json.load(open(sys.argv[1] + "/config.json"))
n, a, b = config["hidden_size"], float(sys.argv[3]), float(sys.argv[4])
at = "base_model.model.model.layers.0.mlp.gate_proj.lora_%s.weight"
arrays = {at % "A": ([1, n], a), at % "B": ([config["intermediate_size"], 1], b)}
if len(sys.argv) > 5:
    arrays["base_model.model.model.norm.weight"] = ([n], float(sys.argv[5]))
head, body = {}, b""
for key, (shape, value) in arrays.items():
    count, begin = 1, len(body)
    for k in shape:
        count *= k
    body += struct.pack("<f", value) * count
    head[key] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(body)]}
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
os.mkdir(sys.argv[2])
open(sys.argv[2] + "/adapter_model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
json.dump({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["gate_proj"], "task_type": "CAUSAL_LM",
           "modules_to_save": ["norm"] if len(sys.argv) > 5 else None}, open(sys.argv[2] + "/adapter_config.json", "w"))
P
tensor=model.layers.0.mlp.gate_proj.weight
refused() { # WHAT WORDS: the command before
    status 2 "$1 is refused"; one_line; err_has "$2" "$1: the message names the type's last value"; [ ! -e none ]; ok $? "$1: nothing is left"
}

# A base in f16, whose type the merged weights keep.
run tern ckpt export hf -o f16 --dtype f16; status 0
python3 edit.py f16/model.safetensors $tensor 60000
python3 adapters.py hf large 100 100; python3 adapters.py hf small 10 10
run tern ckpt merge large --base f16 -o none; refused "a merged weight beyond f16" "tensor '$tensor' holds values beyond f16's 65504"
run tern ckpt merge large --base f16 -o none --dtype f16; refused "a merged weight beyond f16, of which --dtype says f16," "beyond f16's 65504"
run tern ckpt merge large --base f16 -o wide --dtype bf16; status 0 "such a weight is merged as bf16"
run tern ckpt merge small --base f16 -o fits; status 0 "a merged weight that f16 reaches is written"
python3 adapters.py hf norm 1 1 70000
run tern ckpt merge norm --base f16 -o none; refused "a weight that was trained whole, beyond its base's f16," "tensor 'model.norm.weight' holds values beyond f16's 65504"

# bf16 and f32 have an end, too.
run tern ckpt export hf -o bf16 --dtype bf16; status 0
python3 adapters.py hf huge 1e20 3.4e18
python3 edit.py bf16/model.safetensors $tensor 3.3e38
run tern ckpt merge huge --base bf16 -o none; refused "a merged weight beyond bf16" "beyond bf16's 3.39e38"
python3 adapters.py hf vast 1e20 1e20
run tern ckpt merge vast --base hf -o none; refused "a merged weight beyond f32" "beyond f32's 3.40e38"
cp -r hf end; python3 edit.py end/model.safetensors $tensor 3.4e38
run tern ckpt export end -o none --dtype bf16; refused "an f32 that bf16 does not reach" "beyond bf16's 3.39e38"
run tern ckpt export end -o none --to nxd --dtype bf16; refused "an f32 that bf16 does not reach, for ranks," "beyond bf16's 3.39e38"
run tern ckpt export end -o none --to nxd --dtype f16; refused "an f32 that f16 does not reach, for ranks," "beyond f16's 65504"
run tern ckpt blend -o none -w 2 --normalize no f16 f16; refused "a blend of two f16 models beyond f16" "beyond F16"

# What is copied stays as it is.
cp -r f16 inf; python3 edit.py inf/model.safetensors $tensor inf
run tern ckpt export inf -o copy; status 0 "an infinity that was there is copied"; cmp -s inf/model.safetensors copy/model.safetensors; ok $? "a copy in the same type has the same bytes"
run tern ckpt export inf -o wider --dtype f32; status 0 "a wider type has every value"
run tern ckpt export inf -o ranks --to nxd; status 0 "an infinity that was there is copied to ranks"
tap_done
