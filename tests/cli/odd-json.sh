#!/bin/bash
# JSON of Hugging Face with values that Python's json reads and writes, and JSON or C do not have: in
# keys that are not used they do no harm, and come out again as they were.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool F=$TOOLS/torch-tool G=$ROOT/tests/golden
is() { [ "$1" = "$2" ]; ok $? "$3" || echo "# got '$1', wanted '$2'"; }

odd='"odd": [1000000000000000019884624838656, 1e999, -1e999, NaN, -Infinity, "\ud800", "a\u0000b"], "k\u0000": 1, "\udc00x": {"n": Infinity}, '
make_odd() { # FILE...: with such keys at its beginning
    ODD=$odd python3 - "$@" <<'P'
import json, os, sys
for path in sys.argv[1:]:
    text = open(path).read()
    text = text.replace("{", "{" + os.environ["ODD"], 1).replace(", }", "}")
    json.loads(text)
    open(path, "w").write(text)
P
}
kept() { # FILE WHAT: has the odd keys as they were
    ODD=$odd python3 - "$1" <<'P'
import json, os, sys
want, got = json.loads("{" + os.environ["ODD"].rstrip(", ") + "}"), json.load(open(sys.argv[1]))
sys.exit(repr(want) != repr({k: got.get(k) for k in want}))
P
    ok $? "$2 keeps values that only Python reads"
}

"$T" model hf 302 || exit 1
cp -r hf plain; make_odd hf/config.json
run tern ckpt export hf -o exported; status 0 "a config.json with odd values in keys that are not used"
cmp -s hf/model.safetensors exported/model.safetensors; ok $? "the exported weights are those of the folder with a plain config"
kept exported/config.json "the config of an export"
run tern ckpt export hf -o ranks --to nxd; status 0 "such a model is exported to ranks"
run tern ckpt export ranks -o back --from nxd --config hf/config.json; status 0 "ranks with such a config are read"
kept back/config.json "the config that is given for ranks"
run tern ckpt blend -o mixed hf plain; status 0 "such a model is blended"; kept mixed/config.json "the config of a blend"
for bad in '"hidden_size": 1000000000000000019884624838656' '"hidden_size": 1e999' '"hidden_size": "\ud800"' '"hidden_size": NaN'; do
    cp -r plain bad; sed -i "s/\"hidden_size\": *[0-9]*/${bad//\\/\\\\}/" bad/config.json
    run tern ckpt export bad -o none; status 2 "refused in a key that is used: $bad"; one_line; err_has "hidden_size is ${bad#*: }"; rm -r bad
done

# The indexes of several files.
run tern ckpt export plain -o parts --max-shard-size 40KB; status 0
make_odd parts/model.safetensors.index.json
run tern ckpt export parts -o whole; status 0 "an index of safetensors files with odd values"; cmp -s plain/model.safetensors whole/model.safetensors; ok $? "the tensors are those of an index without odd values"
"$F" bins plain bins 3; make_odd bins/pytorch_model.bin.index.json
run tern ckpt export bins -o of-bins; status 0 "an index of PyTorch files with odd values"

# Adapters of PEFT.
python3 - plain peft <<'P'
import json, os, struct, sys
config = json.load(open(sys.argv[1] + "/config.json"))
n = config["hidden_size"]
name = "base_model.model.model.layers.0.mlp.gate_proj.lora_%s.weight"
shapes = {name % "A": [1, n], name % "B": [config["intermediate_size"], 1]}
head, at, body = {}, 0, b""
for key, shape in shapes.items():
    body += struct.pack("<f", 1.0) * (shape[0] * shape[1])
    head[key] = {"dtype": "F32", "shape": shape, "data_offsets": [at, len(body)]}
    at = len(body)
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
os.mkdir(sys.argv[2])
open(sys.argv[2] + "/adapter_model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
json.dump({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["gate_proj"], "task_type": "CAUSAL_LM"},
          open(sys.argv[2] + "/adapter_config.json", "w"))
P
run tern ckpt merge peft --base plain -o merged; status 0
sed -i 's/{/{"lora_dropout": NaN, "revision": "\\ud800", "auto_mapping": {"a\\u0000": 1e999}, "peft_version": 1000000000000000019884624838656, /' peft/adapter_config.json
run tern ckpt merge peft --base plain -o merged-odd; status 0 "an adapter_config.json with odd values"
cmp -s merged/model.safetensors merged-odd/model.safetensors; ok $? "the adapters are put in as with a plain config"
sed -i 's/"lora_alpha": 1/"lora_alpha": 1e999/' peft/adapter_config.json
run tern ckpt merge peft --base plain -o none; status 2 "a lora_alpha beyond all numbers is refused"; one_line; err_has 'lora_alpha'
run tern ckpt export peft -o none; status 2; one_line; err_has 'holds adapters of PEFT (LORA)' "a folder of such adapters is not taken for a model"

# A tokenizer's.
mkdir tok; cp "$G/spm-bpe-800.model" tok/tokenizer.model; printf 'We the people\n' >a.txt
run tern data encode -t tok a.txt; cp out wanted
for name in tokenizer_config.json special_tokens_map.json generation_config.json config.json; do
    echo '{"more": 1}' >tok/$name; make_odd tok/$name
    run tern data encode -t tok a.txt; status 0 "a $name with odd values"; cmp -s out wanted; ok $? "$name with odd values leaves the ids as they are"
done

# A model's generation config.
"$T" model gen 800; cp "$G/spm-bpe-800.model" gen/tokenizer.model
echo '{"eos_token_id": 2}' >gen/generation_config.json
run tern generate gen --ids -n 4 -p 'We'; status 0; cp out wanted
make_odd gen/generation_config.json gen/config.json
run tern generate gen --ids -n 4 -p 'We'; status 0 "a generation_config.json with odd values is read"; cmp -s out wanted; ok $? "the tokens are the same with a generation_config.json with odd values"
echo '{"eos_token_id": 1e999}' >gen/generation_config.json
run tern generate gen --ids -n 4 -p 'We'; status 2 "an id beyond all numbers is refused"; err_has 'eos_token_id'
python3 -c 'import json; print(json.dumps({"eos_token_id": list(range(2, 72))}))' >gen/generation_config.json
run tern generate gen --ids -n 4 -p 'We'; status 0 "70 ids that end a text are read"
tap_done
