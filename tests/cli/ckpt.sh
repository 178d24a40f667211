#!/bin/bash
# tern ckpt as a user meets it: list, show, verify, export; and what it says about bad input.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool

"$T" model hf || exit 1
"$T" save run 5 1 hf && "$T" save run 10 3 hf && "$T" save run 15 2 hf || exit 1

run tern ckpt ls run; status 0; out_has 'STEP'; out_has 'run/step-00000015'
[ "$(wc -l <out)" = 4 ]; ok $? "ls prints a line a checkpoint"
run tern ckpt ls -nP -o step,shards,path run; status 0
[ "$(cat out)" = "5|1|run/step-00000005
10|3|run/step-00000010
15|2|run/step-00000015" ]; ok $? "ls -nP -o prints what was asked for" || cat out
run tern ckpt ls --json run
python3 -c 'import json; j = json.load(open("out")); assert [e["step"] for e in j] == [5, 10, 15] and j[0]["state"] == "good"' 2>/dev/null ||
    grep -q '"step": 15' out; ok $? "ls --json is JSON"
run tern ckpt ls -o stepp run; status 2; one_line; err_has "no column 'stepp'"
run tern ckpt ls nowhere; status 2; one_line
run tern ckpt show run/latest; status 0; out_has 'step 15'; out_has 'model/model.embed_tokens.weight'
run tern ckpt show hf; status 0; out_has 'lm_head.weight'
run tern ckpt verify run/latest; status 0; out_has 'step-00000015: good'
run tern ckpt verify --full run; status 0
[ "$(grep -c 'good, every byte' out)" = 3 ]; ok $? "verify of a folder looks at each"

run tern ckpt export run/step-00000010 -o out1; status 0
"$T" same hf out1; ok $? "the export holds the same tensors"
cmp -s hf/model.safetensors out1/model.safetensors; ok $? "an export to one file is its source, byte for byte"
cmp -s hf/tokenizer.model out1/tokenizer.model; ok $? "an export has the tokenizer"
has out1/config.json '"torch_dtype": "float32"'
run tern ckpt export run/latest -o out2 --dtype bf16 --max-shard-size 40KB; status 0
"$T" same hf out2; ok $? "an export to several files in BF16 holds the same tensors, rounded"
has out2/config.json '"torch_dtype": "bfloat16"'
has out2/model.safetensors.index.json '"total_size": 169056'
has out2/model.safetensors.index.json '"total_parameters": 84528'
run tern ckpt export run/latest -o out2b --dtype bf16 --max-shard-size 0.04MB; status 0
diff -r out2 out2b >diffs; ok $? "a size may have a fraction"
big=$(find out2 -name '*.safetensors' -size +41k | wc -l)
[ "$big" = 0 ] && [ "$(ls out2/model-0000?-of-0000?.safetensors | wc -l)" -gt 3 ]; ok $? "no file of an export is larger than --max-shard-size"
run tern ckpt export run/latest -o half --dtype f16; status 0 "as f16, where all of it is small"
for value in 65519 65520 -70000 3e38; do # the last that f16 rounds down to 65504, and the first that it does not
    cp -r hf big
    python3 - big/model.safetensors "$value" <<'P'
import struct, sys
b = bytearray(open(sys.argv[1], 'rb').read())
b[-4:] = struct.pack('<f', float(sys.argv[2]))
open(sys.argv[1], 'wb').write(b)
P
    rm -rf big-run half; "$T" save big-run 1 2 big
    run tern ckpt export big-run/latest -o half --dtype f16
    if [ "$value" = 65519 ]; then status 0 "export as f16 takes $value"; else
        status 2 "export as f16 refuses $value"; one_line; err_has "beyond f16's 65504"; [ ! -e half ]; ok $? "a refused export as f16 leaves nothing"
        run tern ckpt export big-run/latest -o half --dtype bf16; status 0 "weights beyond f16 are exported as bf16"
    fi
    rm -rf big half
done
run tern ckpt export run/latest -o out1; status 2; one_line; err_has 'is there already'
run tern ckpt export run/latest -o out3 --dtype f8; status 2; one_line
run tern ckpt export run/latest -o out3 --max-shard 0; status 2; one_line; err_has "--max-shard-size: '0' is no size"
run tern ckpt export run/latest -o out3 --max-shard-size .0000001KB; status 2; one_line
cp -r hf newer; sed -i 's/"torch_dtype"/"dtype"/' newer/config.json
run tern ckpt export newer -o out3 --dtype bf16; status 0
has out3/config.json '"dtype": "bfloat16"' "a config with the type by transformers 5's name has the exported one"
has out3/config.json '"torch_dtype": "bfloat16"' "a config with the type by transformers 5's name has it by that of 4, too"
rm -r out3
run tern ckpt export run/latest -o out3 --tokenizer nowhere; status 2; one_line
run tern ckpt export run/latest; status 2; one_line
run tern ckpt export run/latest -o /proc/none/out; one_line "an impossible place: one clear line"
mkdir nothing; run tern ckpt export nothing -o out3; status 2; one_line; err_has 'holds no weights that tern reads'
[ -z "$(ls -d out3* 2>/dev/null)" ]; ok $? "a refused export leaves nothing"

# Damage.
cp -r run bad
s=bad/step-00000010/shard-00001-of-00003.safetensors
printf '\377' | dd of=$s bs=1 seek=60000 conv=notrunc 2>/dev/null
run tern ckpt verify bad; status 0 "verify without --full misses a flipped byte"
run tern ckpt verify --full bad; status 2; err_has 'shard-00001-of-00003.safetensors: is damaged'; one_line
run tern ckpt export bad/step-00000010 -o out3; status 2; one_line; err_has 'does not match its digest'
[ -z "$(ls -d out3* 2>/dev/null)" ]; ok $? "a damaged checkpoint exports nothing"
truncate -s 1000 bad/step-00000015/shard-00000-of-00002.safetensors
run tern ckpt verify bad/step-00000015; status 2; one_line; err_has 'has 1000 bytes'
run tern ckpt show bad/latest; status 0; out_has 'step 10'; err_has 'passed over'
run tern ckpt ls bad; status 0; out_has 'broken'
rm bad/step-00000005/manifest.json
run tern ckpt verify bad/step-00000005; status 2; one_line; err_has 'it has no manifest.json'
truncate -s 100 out1/model.safetensors
run tern ckpt show out1; status 2; one_line; err_has 'truncated'
mkdir empty
run tern ckpt show empty; status 2; one_line
run tern ckpt verify empty; status 2; one_line
run tern ckpt verify empty/latest; status 2; one_line

# Ctrl-C in the middle of an export: at its twelfth read.
if strace -o /dev/null true 2>/dev/null; then
    run env ASAN_OPTIONS=detect_leaks=0 \
        strace -f -o /dev/null -e trace=pread64 -e inject=pread64:signal=INT:when=12 \
        tern ckpt export run/latest -o out4 --max-shard 40KB
    status 130 "Ctrl-C in an export: exit status 130"; one_line "an interrupted export prints one clear line"
    is "$(ls -d out4*)" out4.unfinished "an interrupted export leaves nothing but what the next call goes on with"
else
    skip "strace may not trace here"
fi
tap_done
