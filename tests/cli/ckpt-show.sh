#!/bin/bash
# tern ckpt show draws a folder and what each file in it is, from headers alone.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool F=$TOOLS/torch-tool

"$T" model hf && "$T" model even 302 && "$T" save run 10 3 hf && "$F" bins hf bins 3 && "$F" meta even meta 2 1 || exit 1
python3 -c "
import sys
sys.path.insert(0, '$ROOT/tests/lib')
import nxd, optimum
nxd.make('gqa', 8, 2, 4)
optimum.make('ranks', 8, 2, 4, 4, 2, 2, 'fused', xser=True)" || exit 1
key() { sed -n "s/.*\"$1\": *\([0-9.e-]*\).*/\1/p" hf/config.json | head -n 1; }
cat >meta/params.json <<P
{"dim": $(key hidden_size), "n_layers": $(key num_hidden_layers), "n_heads": $(key num_attention_heads), "multiple_of": 80,
 "norm_eps": $(key rms_norm_eps), "vocab_size": -1, "n_kv_heads": $(key num_key_value_heads), "ffn_dim_multiplier": 0.6}
P
tern ckpt export gqa -o nxd --to nxd --tensor 4 --pipeline 2 --markers 2>/dev/null || exit 1
tern ckpt export gqa -o old --to nxd --tensor 4 --pipeline 4 --files v1 2>/dev/null || exit 1

# WORDS: a line of the drawing has the file, its size and the words, with one space between them.
drawn() { tr -s ' ' <out | grep -qxF -- "$1"; ok $? "$cmd: draws '$1'" || sed 's/^/# /' out; }
# FILE WORDS: the same where the words stand in the line below.
below() { grep -F -A 1 -- "$1" out | tail -n 1 | grep -q "  $2\$"; ok $? "$cmd: below $1 stands '$2'" || sed 's/^/# /' out; }
narrow() { grep -e '^[|` ]*--' -e '^|  ' out >tree; [ -s tree ] && ! wider 80 tree; ok $? "$cmd: the tree has at most 80 columns"; }

run tern ckpt show run/latest; status 0; narrow
drawn '|-- manifest.json 15.9 KiB manifest: arrays, digests'
drawn '|-- shard-00001-of-00003.safetensors 113 KiB shard of rank 1: 30 arrays'
drawn '|-- config.json 604 B config of the model'
drawn '`-- tokenizer_config.json 21 B config of the tokenizer'
out_has 'model/model.embed_tokens.weight'
cp -r run more; touch more/step-00000010/notes.txt
run tern ckpt show more/latest; status 0; drawn '|-- notes.txt 0 B not of this checkpoint'
run tern ckpt show hf; status 0; narrow; drawn '|-- model.safetensors 333 KiB weights: 30 arrays'
run tern ckpt show bins; status 0; narrow
drawn '|-- pytorch_model-00002-of-00003.bin 103 KiB weights, part 2 of 3: 10 arrays'
drawn '`-- pytorch_model.bin.index.json 2.26 KiB index: the file of each tensor'
run tern ckpt show meta; status 0; narrow
grep -q "^|-- consolidated.01.pth  *[0-9.]* KiB  weights as Meta's, part 1: [0-9]* arrays$" out; ok $? "a part of Meta's is called so" || cat out
grep -q "params.json  .*config as Meta's$" out; ok $? "Meta's params.json is called a config"
run tern ckpt show ranks-peft; status 0; narrow
drawn '`-- adapter_model.safetensors 21.2 KiB adapters of PEFT: 56 arrays'
drawn '|-- adapter_config.json 373 B config of the adapters'; out_has 'layers.0.self_attn.q_proj.lora_A.weight'
run tern ckpt show nxd; status 0; narrow; drawn '`-- model/ 182 KiB weights by rank'
below dp_rank_00_tp_rank_03_pp_rank_01.pt 'weights of tensor rank 3, pipeline rank 1: 14 arrays'; drawn '|-- done 1 B marker: finished'
out_has 'tern ckpt export --from nxd puts them together'
run tern ckpt show ranks; status 0; narrow
below dp_rank_00_tp_rank_01_pp_rank_00.pt\  'adapters of tensor rank 1, pipeline rank 0: 32 arrays'
below dp_rank_00_tp_rank_01_pp_rank_00.pt.info.pt 'shapes of the tensors (xser)'
is "$(grep -c -e '-- \.\.\. 29 more' out)" 8 "of 32 files of tensors three are drawn, and the number of the others"
below mp_metadata_pp_rank_1 'how parts of pipeline rank 1 are put together'
run tern ckpt show old; status 0; narrow
drawn '|-- ... 13 more 141 KiB'; drawn '| `-- checkpoint.pt 10.0 KiB weights of this rank: 6 arrays'
grep -q tp_rank_03_pp_rank_03/ out && ! grep -q tp_rank_01 out; ok $? "of sixteen folders of ranks the first and the last are drawn"

# JSON: a manifest with one member more; of other folders the same members.
run tern ckpt show --json run/latest; status 0
jq 'del(.folder)' out >of-show; jq . run/step-00000010/manifest.json | cmp -s - of-show; ok $? "the JSON of a checkpoint is its manifest beside the folder"
is "$(jq -c '.folder[3]' out)" "{\"name\":\"shard-00000-of-00003.safetensors\",\"bytes\":$(stat -c %s run/step-00000010/shard-00000-of-00003.safetensors),\"what\":\"shard of rank 0\"}" "JSON has a file's name, bytes and words"
run tern ckpt show --json hf; status 0; is "$(jq -r '.folder[].name' out | tr '\n' ' ')" "$(ls hf | tr '\n' ' ')" "JSON of a model's folder has all its files"
is "$(jq -c '.arrays["lm_head.weight"]' out)" '{"dtype":"F32","shape":[301,48]}' "JSON of a model's folder has its arrays"
run tern ckpt show --json ranks; status 0; is "$(jq '[.folder[] | select(.folder | not)] | length' out)" "$(find ranks -type f | wc -l)" "JSON has each file of ranks"

# Headers alone: of 333 KiB of weights less than 16 are read.
if strace -o /dev/null true 2>/dev/null; then
    ASAN_OPTIONS=detect_leaks=0 strace -f -y -e trace=read,pread64,readv,preadv,mmap -o calls tern ckpt show hf >out
    read -r bytes maps <<<"$(awk '/hf\/model.safetensors/ {if (/mmap/) maps++; else n += $NF} END {print n + 0, maps + 0}' calls)"
    [ "$bytes" -gt 0 ] && [ "$bytes" -lt 16384 ] && [ "$maps" = 0 ]; ok $? "of a file of weights the header alone is read" || echo "# $bytes bytes, $maps maps"
else
    skip "strace may not trace here"
fi

# What is odd.
cp -r nxd cut; truncate -s 3000 cut/model/dp_rank_00_tp_rank_02_pp_rank_00.pt
run tern ckpt show cut; status 2 "a rank's file that is cut off is an error"; one_line; err_has 'dp_rank_00_tp_rank_02_pp_rank_00.pt'
below dp_rank_00_tp_rank_02_pp_rank_00.pt 'weights of tensor rank 2, pipeline rank 0: cannot be read'; below dp_rank_00_tp_rank_03_pp_rank_01.pt 'weights of tensor rank 3, pipeline rank 1: 14 arrays'
cp -r hf odd; touch "odd/$(printf 'a\033[31m\nb')" odd/.hidden; mkdir odd/deep; ln -s .. odd/deep/up
mkfifo odd/x.safetensors; long=$(printf 'n%.0s' $(seq 200)); touch "odd/$long.md"
run tern ckpt show odd; status 0 "a folder with odd names is drawn"; drawn '|-- a?[31m?b 0 B' || cat -A out
has out "-- $long.md" "a name longer than a line is printed whole"; is "$(grep -c -e '-- up/' out)" 1 "a linked folder is drawn, and not entered"
! grep -q hidden out; ok $? "a hidden file is not drawn"
tap_done
