#!/bin/bash
# Files that are damaged, forged or out of place: each has a clear message, and none gives wrong
# weights.  tests/peers/safetensors.sh holds the table of headers against safetensors' own validator.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool

# ---- headers of safetensors files
mkdir heads && python3 "$ROOT/tests/lib/headers.py" heads >cases || exit 1
[ "$(wc -l <cases)" -ge 60 ]; ok $? "the table of headers"
while IFS=$'\t' read -r name _ tern words; do
    case $tern in
    takes)
        run tern ckpt diff --full --json -a heads/plain heads/"$name"; [ "$rc" -le 1 ]; ok $? "header $name is taken" || cat err
        # A changed type is reported; everything else is the same bits.
        is "$(jq -c '[.[] | select(.change == "changed" and .a.dtype == .b.dtype)]' out)" '[]' "header $name: the weights are right"
        is "$(jq -r '[.[] | select(.name == "a" or .name == "b") | .change | select(. == "only in A" or . == "not read")] | length' out)" 0 \
            "header $name: both tensors are there"
        ;;
    refuses)
        run tern ckpt show heads/"$name"
        status 2 "header $name is refused"; one_line "header $name: one clear line"
        err_has "$words" "header $name: says '$words'"; err_has "heads/$name/model.safetensors" "header $name: the file is named"
        ;;
    esac
done <cases

# ---- the manifest and its folder
"$T" model hf && cp -r hf f8 && cp -r hf others || exit 1
python3 - f8/model.safetensors <<'P'
import json, struct, sys
b = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", b[:8])[0]
head = json.loads(b[8:8 + n])
head["lm_head.weight"]["dtype"] = "F8_E4M3"
head["lm_head.weight"]["shape"][-1] *= 4
text = json.dumps(head).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + b[8 + n:])
P
run tern ckpt export f8 -o no; status 2 "a weight of a type that tern does not read is refused"; one_line
err_has "tensor 'lm_head.weight' is of type F8_E4M3"; [ ! -e no ]; ok $? "an export that is refused for a type leaves nothing"

# Steps 1 and 2 of the same weights, 3 of others; all cut alike, in two shards.
python3 - others/model.safetensors <<'P'
import struct, sys
b = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", b[:8])[0]
for i in range(8 + n, len(b) - 1, 4):
    b[i + 1] ^= 1
open(sys.argv[1], "wb").write(b)
P
"$T" save good 1 2 hf && "$T" save good 2 2 hf && "$T" save good 3 2 others || exit 1
s=step-00000002; one=shard-00000-of-00002.safetensors two=shard-00001-of-00002.safetensors
patch() { # FILE OFFSET-FROM-END: one bit
    python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(-int(sys.argv[2]), 2); b = f.read(1)[0]; f.seek(-1, 1); f.write(bytes([b ^ 4]))' "$@"
}
attack() { # NAME
    case $1 in
    flipped-weight) patch $s/$two 100 ;;
    flipped-header) python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(40); b = f.read(1)[0]; f.seek(40); f.write(bytes([b ^ 4]))' $s/$one ;;
    flipped-manifest) patch $s/manifest.json 60 ;;
    cut-shard) truncate -s -1 $s/$two ;;
    empty-shard) : >$s/$two ;;
    longer-shard) printf x >>$s/$two ;;
    swapped-shards) mv $s/$one t; mv $s/$two $s/$one; mv t $s/$two ;;
    shard-of-another) cp step-00000003/$one $s/ ;;
    missing-shard) rm $s/$two ;;
    shard-is-a-folder) rm $s/$two; mkdir $s/$two ;;
    empty-manifest) : >$s/manifest.json ;;
    cut-manifest) truncate -s -10 $s/manifest.json ;;
    missing-manifest) rm $s/manifest.json ;;
    manifest-of-another) cp step-00000003/manifest.json $s/ ;;
    renamed) mv $s t; mv step-00000003 $s; mv t step-00000004 ;;
    companion) patch $s/tokenizer.model 5 ;;
    esac
}
# What opening tells (show), or reading (export).  Of a shard's header only verify: its weights are
# found by the manifest; and of a companion file only a copy of it.
while IFS='|' read -r name command words; do
    rm -rf run hf-again; cp -r good run; (cd run && attack "$name")
    case $command in
    show) run tern ckpt show run/$s ;;
    verify) run tern ckpt verify --full run/$s ;;
    export) run tern ckpt export run/$s -o hf-again; [ ! -e hf-again ]; ok $? "$name: nothing is exported" ;;
    esac
    status 2 "$name: is refused"; one_line "$name: one clear line"; err_has "$words" "$name: says '$words'"; err_has "run/$s" "$name: the place is named"
    run tern ckpt verify --full run/$s; [ "$rc" != 0 ]; ok $? "$name: does not verify"
    # Every command that reads the weights finds those of before, or refuses.
    run tern ckpt diff --full run/$s hf
    case $name in
    companion | flipped-header) status 0 "$name: the weights are right" ;;
    *) status 2 "$name: no weights are read" ;;
    esac
    run tern ckpt export run/latest -o hf-again
    [ "$rc" != 0 ] || "$T" same hf hf-again 2>err || "$T" same others hf-again 2>err; ok $? "$name: the newest one is right or refused" || cat err
done <<'TABLE'
flipped-weight|export|does not match its digest
flipped-header|verify|its header does not match
flipped-manifest|show|manifest.json: is damaged
cut-shard|show|shard-00001-of-00002.safetensors
empty-shard|show|shard-00001-of-00002.safetensors
longer-shard|show|shard-00001-of-00002.safetensors
swapped-shards|export|shard-0000
shard-of-another|export|does not match its digest
missing-shard|show|shard-00001-of-00002.safetensors
shard-is-a-folder|show|shard-00001-of-00002.safetensors
empty-manifest|show|manifest.json
cut-manifest|show|manifest.json: is truncated, or no manifest that tern wrote
missing-manifest|show|is no checkpoint: it has no manifest.json
manifest-of-another|show|its manifest is of step 3
renamed|show|its manifest is of step 3: a copy under another name? Name the folder step-00000003.
companion|export|tokenizer.model: is damaged: it does not match its digest
TABLE

mv run/$s run/mine; run tern ckpt diff --full run/mine hf; status 0 "a folder of any other name is taken"
mv run/mine run/step-00000005; run tern ckpt show run/step-00000005/; status 2 "a renamed folder is refused, also with a slash behind it"

# ---- several files with an index
run tern ckpt export good/$s -o many --max-shard-size 40KB; status 0
index=model.safetensors.index.json
first=$(cd many && ls model-00001-of-*) second=$(cd many && ls model-00002-of-*)
while IFS='|' read -r name words; do
    rm -rf cut out-hf; cp -r many cut
    case $name in
    missing-file) rm cut/"$second" ;;
    swapped-files) mv cut/"$first" t; mv cut/"$second" cut/"$first"; mv t cut/"$second" ;;
    cut-file) truncate -s -4 cut/"$second" ;;
    empty-index) : >cut/$index ;;
    cut-index) truncate -s -20 cut/$index ;;
    index-without-map) echo '{"metadata": {}}' >cut/$index ;;
    esac
    run tern ckpt export cut -o out-hf
    status 2 "$name: is refused"; one_line "$name: one clear line"; err_has "$words" "$name: says '$words'"
    [ ! -e out-hf ]; ok $? "$name: nothing is exported"
done <<TABLE
missing-file|$second: cannot open
swapped-files| is not in model-0000
cut-file|$second: is truncated
empty-index|$index:1: not valid JSON
cut-index|not valid JSON
index-without-map|$index: has no weight_map
TABLE
# An index that names what nothing needs, or leaves out what is there: as transformers reads it.
run tern ckpt export many -o whole; status 0
for name in index-of-more index-of-less; do
    rm -rf cut out-hf; cp -r many cut
    case $name in
    index-of-more) sed -i 's/"weight_map": {/&"model.layers.9.mlp.up_proj.weight": "'"$first"'", /' cut/$index ;;
    index-of-less) sed -i '/"model.layers.0.input_layernorm.weight"/d' cut/$index ;;
    esac
    ! cmp -s cut/$index many/$index; ok $? "$name: the index is another one"
    run tern ckpt export cut -o out-hf; status 0 "$name: is read"
    cmp -s whole/model.safetensors out-hf/model.safetensors; ok $? "$name: every tensor is exported"
done

# ---- a writer that died
rm -rf run; cp -r good run; mkdir run/step-00000004.tmp-1 run/.trash-step-00000000-01020304
cp good/$s/* run/step-00000004.tmp-1/
run tern ckpt ls run; status 0
run tern ckpt export run/latest -o newest; status 0; "$T" same others newest; ok $? "a stale temporary folder is no checkpoint: the newest is step 3"
run tern ckpt verify --full run/step-00000004.tmp-1; [ "$rc" != 0 ]; ok $? "a stale temporary folder with every file of a checkpoint does not verify"
"$T" save run 4 2 hf; ok $? "the step of a stale temporary folder can be saved"
run tern ckpt verify --full run/step-00000004; status 0
tap_done
