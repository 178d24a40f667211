#!/bin/bash
# tern ckpt export --from nxd and merge, of adapters on Optimum Neuron's ranks: they are PEFT's again,
# byte for byte.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
python() { python3 -c "
import json, os, sys
sys.path.insert(0, '$ROOT/tests/lib')
import nxd, optimum
$1"; }
same() { # DIR DIR: arrays by name, whatever their order, and the config's modules
    python "
a, b = (nxd.source(d, 'adapter_model.safetensors') for d in ('$1', '$2'))
assert a == b, {k for k in a.keys() | b.keys() if a.get(k) != b.get(k)}
a, b = (json.load(open(d + '/adapter_config.json')) for d in ('$1', '$2'))
assert sorted(a.pop('target_modules')) == sorted(b.pop('target_modules')) and a == b, (a, b)"
}

python "
nxd.make('gqa', 8, 2, 4); nxd.make('mha', 4, 4, 3)
optimum.make('a1', 8, 2, 4, 1, 1, 1, 'fused')
optimum.make('a2', 8, 2, 4, 4, 2, 2, 'fused', xser=True)
optimum.make('a3', 8, 2, 4, 8, 1, 4, 'split', rank=5)
optimum.make('a4', 8, 2, 4, 8, 4, 4, 'split', xser=True, adapter='chat', fused_config=True)
optimum.make('a5', 8, 2, 4, 2, 1, 2, 'fused', modules='qkv o')
optimum.make('a6', 8, 2, 4, 4, 1, 2, 'split', modules='o down')
optimum.make('a7', 8, 2, 4, 2, 2, 1, 'separate')
optimum.make('a8', 4, 4, 3, 4, 1, 1, 'coalesced', xser=True, fused_config=True)
optimum.make('a9', 4, 4, 3, 2, 3, 1, 'separate', modules='qkv gate_up')
optimum.make('a10', 8, 2, 4, 2, 1, 1, 'separate', old='json')
optimum.make('a11', 8, 2, 4, 2, 1, 1, 'separate', old=True)
optimum.make('a12', 8, 2, 4, 1, 1, 1, 'separate', old=True, xser=True)
" || exit 1
for i in $(long && echo 1 3 4 6 7 9 10 11) 2 5 8 12; do
    base=gqa; case $i in 8 | 9) base=mha ;; esac
    run tern ckpt export a$i -o out$i --from nxd; status 0; err_has "of adapters"
    same out$i a$i-peft; ok $? "folder $i: the ranks' adapters are PEFT's"
    run tern ckpt merge a$i --base $base -o merged$i; status 0
    run tern ckpt merge a$i-peft --base $base -o wanted$i; status 0
    "$T" same wanted$i merged$i; ok $? "folder $i: merged from the ranks, as from PEFT's folder"
done
run tern ckpt merge out2 --base gqa -o merged-out; status 0; "$T" same wanted2 merged-out; ok $? "the exported folder is merged"
cp -r a2/adapter_default both; cp a5-peft/* both; run tern ckpt merge both --base gqa -o of-both; status 0
"$T" same wanted5 of-both; ok $? "arrays of PEFT come before those of ranks beside them"
cp -r gqa base; run tern ckpt merge a2 -o named; status 0 "the base is the one that the config names"
"$T" same wanted2 named; ok $? "merged into the base that the config names"
for at in a2/adapter_default a2/adapter_default/adapter_shards; do
    run tern ckpt export $at -o of-below --from nxd; status 0; same of-below a2-peft; ok $? "$at is taken"; rm -r of-below
done
(cd a2/adapter_default && run tern ckpt export . -o ../../of-here --from nxd); same of-here a2-peft; ok $? "the folder may be the current one"
cp -r a2/adapter_default renamed
python "
for p in (0, 1):
    at = f'renamed/adapter_shards/mp_metadata_pp_rank_{p}.json'
    m = json.load(open(f'a2/adapter_default/adapter_shards/mp_metadata_pp_rank_{p}.json'))
    m['parameters'] = {k: v for k, v in m['parameters'].items() if '.another.' not in k}
    json.dump(m, open(at, 'w'))"
run tern ckpt export renamed -o of-renamed --from nxd; status 0 "a folder may have another name when it is of one adapter"
same of-renamed a2-peft; ok $? "a renamed folder's adapters are PEFT's"
run tern ckpt export a1 -o based --from nxd --base llama; status 0; has based/adapter_config.json '"base_model_name_or_path": "llama"'
run tern ckpt export a3 -o half --from nxd --dtype bf16; status 0 "adapters may get another type"
has half/adapter_model.safetensors '"dtype":"BF16"'

# A whole model that Optimum Neuron saved: shards/ beside the config.
run tern ckpt export gqa -o whole/shards --to nxd --tensor 4 --pipeline 2 --markers; status 0
cp gqa/config.json whole; run tern ckpt export whole -o whole-hf --from nxd; status 0; "$T" same gqa whole-hf; ok $? "shards beside a config make the model"

# What is refused leaves nothing.
refused() { # STATUS WORDS COMMAND...
    local want=$1 words=$2; shift 2
    run tern ckpt "$@" -o refused; status "$want"; one_line; err_has "$words"
    [ -z "$(ls -d refused* 2>/dev/null)" ]; ok $? "$*: a refused export leaves nothing"
}
S=adapter_default/adapter_shards
M=$S/mp_metadata_pp_rank_0.json
edit() { # FILE STATEMENTS: of `m`, the JSON in it
    python "
m = json.load(open('$1'))
$2
json.dump(m, open('$1', 'w'))" || exit 1
}
fresh() { rm -rf bad; cp -r "$1" bad; }
refused 2 "ranks. Make adapters of PEFT of them: tern ckpt export --from nxd" export a2
refused 2 "ranks. Make adapters of PEFT of them: tern ckpt export --from nxd" export a2/adapter_default
refused 2 "holds adapters alone. Put them into their base first: tern ckpt merge" export a2 --from nxd --to nxd
cp -r a2 two; cp -r a4/adapter_chat two; refused 2 "two: holds several adapters: adapter_" export two --from nxd
refused 2 "Give the folder of one" merge two --base gqa
fresh a2; mv bad/adapter_default bad/mine; refused 2 "is of several adapters, 'default' among them" export bad --from nxd
fresh a2; rm bad/$S/done; refused 2 "has not finished this checkpoint" export bad --from nxd
fresh a2; rm bad/$M; refused 2 "mp_metadata_pp_rank_0.json: is missing" export bad --from nxd
P=adapter_shards/mp_metadata_pp_rank_0.pt
fresh a11; mv bad/$P bad/old.pt; size=$(stat -c %s bad/old.pt)
for at in $(long && echo 1 30 1000) 0 $((size / 2)) $((size - 1)); do head -c $at bad/old.pt >bad/$P; refused 2 "bad/$P" export bad --from nxd; done
pt() { python "m = nxd.load('a11/$P'); $1; nxd.save('bad/$P', m)"; }
pt "m = {'sharded_metadata': {}}"; refused 2 "$P: does not tell how tensors are cut for 2 ranks" export bad --from nxd
pt "m['gqa_qkv_metadata']['num_attention_heads'] = 8"; refused 2 "has copies of key heads, which that release" export bad --from nxd
pt "m['sharded_metadata']['base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight']['partition_dim'] = 2"; refused 2 "has no 'partition_dim' that tern understands" export bad --from nxd
fresh a2; rm bad/adapter_default/adapter_config.json; refused 2 "adapter_config.json" export bad --from nxd
fresh a1; edit bad/$M "m['model_weight_transformation_specs'][0]['specs'][0][0] = 'MoESpec'"; refused 2 "has a transformation that tern does not know: MoESpec" export bad --from nxd
fresh a1; edit bad/$M "m['model_weight_transformation_specs'][1]['specs'][0][1]['fuse_axis'] = 1"; refused 2 "has columns fused (fuse_axis 1)" export bad --from nxd
fresh a2; edit bad/$M "m['model_weight_transformation_specs'][1]['specs'][0][1]['original_dims'] = [47, 49]"; refused 2 "has no 'original_dims' that tern understands" export bad --from nxd
fresh a1; edit bad/$M "m['model_weight_transformation_specs'][1]['specs'][0][1]['original_dims'] = [40, 48]"
refused 2 "gate_up_proj.lora_B.weight' is [96, 2] on each of 1 tensor ranks, and the transformations of Optimum Neuron imply 88 rows" export bad --from nxd
fresh a2; edit bad/$M "m['model_weight_transformation_specs'][0]['specs'][0][1]['kv_size_multiplier'] = 4"; refused 2 "which does not fit together" export bad --from nxd
fresh a1; edit bad/$M "m['model_weight_transformation_specs'][0]['specs'][0][1].update(num_attention_heads=2 ** 20, num_key_value_heads=2 ** 20, q_output_size_per_partition=2 ** 22, kv_output_size_per_partition=2 ** 22)"; refused 2 "which does not fit together" export bad --from nxd
fresh a2; edit bad/$M "m['model_weight_transformation_specs'][2]['specs'][0][1].update(num_attention_heads=16, kv_output_size_per_partition=2)"; refused 2 "has other heads than modules before" export bad --from nxd
fresh a2; edit bad/$M "del m['model_weight_transformation_specs'][0]['specs'][0][1]['fuse_qkv']"; refused 2 "has no 'fuse_qkv' that tern understands" export bad --from nxd
fresh a2; edit bad/$M "del m['model_weight_transformation_specs'][1]"; refused 2 "no transformation takes the parameter '" export bad --from nxd
fresh a2; edit bad/$M "del m['parameters']"; refused 2 "is not Optimum Neuron's" export bad --from nxd
fresh a7; edit bad/$M "m['parameters']['base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight']['partition_dim'] = 2"; refused 2 "has no 'partition_dim' that tern understands" export bad --from nxd
fresh a7; edit bad/$M "del m['parameters']['base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight']"; refused 2 "holds 1 tensor that would be left out: 'base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight'" export bad --from nxd
fresh a7; edit bad/$M "m['parameters']['base_model.model.model.layers.0.self_attn.r_proj.lora_B.default.weight'] = {}"; refused 2 "names 'base_model.model.model.layers.0.self_attn.r_proj.lora_B.weight', which model/dp_rank_00_tp_rank_00_pp_rank_00.pt lacks" export bad --from nxd
fresh a1; python "
at = 'bad/$S/model/dp_rank_00_tp_rank_00_pp_rank_00.pt'
s = nxd.load(at); del s['base_model.model.model.layers.1.mlp.down_proj.lora_B.weight']; nxd.save(at, s)
m = json.load(open('bad/$M')); del m['parameters']['base_model.model.model.layers.1.mlp.down_proj.lora_B.default.weight']; json.dump(m, open('bad/$M', 'w'))"
refused 2 "has 'base_model.model.model.layers.1.mlp.down_proj.lora_A.weight', and no 'base_model.model.model.layers.1.mlp.down_proj.lora_B.weight'" export bad --from nxd
fresh a1; edit bad/adapter_default/adapter_config.json "m['alpha_pattern'] = {'q_proj': 8}"; refused 2 "has a alpha_pattern, which Optimum Neuron compares" export bad --from nxd
fresh a10; edit bad/adapter_shards/mp_metadata_pp_rank_0.json "m['gqa_qkv_metadata']['num_attention_heads'] = 8"; refused 2 "has copies of key heads, which that release" export bad --from nxd
fresh a2; rm bad/$S/model/dp_rank_00_tp_rank_03_pp_rank_01.pt; refused 2 "is missing; the folder has files of 4 tensor and 2 pipeline ranks" export bad --from nxd
fresh a1; size=$(stat -c %s bad/$M)
for at in $(long && echo 1 2 30 1000) 0 $((size / 2)) $((size - 1)); do
    cp a1/$M bad/$M; truncate -s $at bad/$M; refused 2 "bad/$M" export bad --from nxd
done
for text in '[]' '{"parameters": {}, "model_weight_transformation_specs": []}' '{"parameters": [], "model_weight_transformation_specs": {}}' \
    '{"parameters": {}, "model_weight_transformation_specs": [[]]}' '{"parameters": {}, "model_weight_transformation_specs": [{"module_fully_qualified_name": "a", "specs": [[1, 2]]}]}' \
    '{"sharded_metadata": {"a": []}}'; do
    printf '%s' "$text" >bad/$M; refused 2 "bad/adapter_default" export bad --from nxd
done
if strace -o /dev/null true 2>/dev/null; then
    run env ASAN_OPTIONS=detect_leaks=0 strace -f -o /dev/null -e trace=pread64 -e inject=pread64:signal=INT:when=12 tern ckpt export a4 -o stopped --from nxd
    status 130 "Ctrl-C: exit status 130"
    [ -z "$(ls -d stopped* 2>/dev/null)" ]; ok $? "Ctrl-C: nothing is left"
else
    skip "strace may not trace here"
fi
tap_done
