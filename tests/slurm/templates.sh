#!/bin/bash
# Templates of whole jobs: their layouts and recipes are good, and their narrow twins train.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
. "$ROOT/tests/lib/tiny.sh"
shape() { # FOLDER HEADS LAYERS: a model folder of that shape, with weights
    mkdir -p "$1"
    sed "s/\"hidden_size\": 32/\"hidden_size\": $(($2 * 8))/; s/\"num_hidden_layers\": 2/\"num_hidden_layers\": $3/; s/\"num_attention_heads\": 4/\"num_attention_heads\": $2/
        s/\"num_key_value_heads\": 2/\"num_key_value_heads\": $2/; s/\"max_position_embeddings\": 64/\"max_position_embeddings\": 4096/" model/config.json >shape.json
    tern run run.yaml --ranks 1 --set model.config=shape.json --set steps=1 --set schedule.warmup=0 --set name=begin --set checkpoint.dir=begin >begin.out 2>&1 &&
        tern ckpt export begin/latest -o exported >>begin.out 2>&1 && cp exported/* "$1" || cat begin.out
    rm -rf begin exported
}
place() { # TEMPLATE NODES: in ./twin, on a cluster of its layout
    dir=$ROOT/cluster-templates/$1 nodes=$2
    run tern cluster check "$dir/cluster.yaml"; status 0 "$1: its layout passes the check"
    sed "s/MinCount: .*/MinCount: $nodes/; s/MaxCount: .*/MaxCount: $nodes/" "$dir/cluster.yaml" >cluster.yaml
    LAYOUT=$WORK/cluster.yaml; cluster_up
    mkdir -p twin/data; cp "$dir"/* twin
}
twin() { # TEMPLATE NODES RANKS EVALUATIONS SED...: its recipe, narrower, trains to its end
    local t=$1 ranks=$3 evals=$4
    place "$1" "$2"; shift 4
    for set in pubmed domain general wikicorpus; do cp data/train.tds twin/data/$set.tds; cp data/test.tds twin/data/$set-test.tds; done
    sed -i "$@" twin/run.yaml
    # What a person types, in the job's folder.
    run tern cluster exec $CLUSTER -- sh -c "cd twin && exec sbatch --parsable --tern=run.yaml -N$nodes --ntasks-per-node=$ranks -o run.out train.sbatch"
    status 0 "$t: sbatch takes the recipe" || cat err
    job=$(cat out)
    await_job 4; is "$(job_state "$job")" COMPLETED "$t: the twin trains to its end" || tail -20 twin/run.out
    db=$(ls twin/ledger/runs/*/run.db)
    is "$(sqlite3 "$db" "select outcome, world, last_step from attempt" | tail -1)" "done|$((nodes * ranks))|8" "$t: all ranks, all steps"
    is "$(sqlite3 "$db" "select count(*) from (select distinct set_name, step from eval where step in (4, 8))")" "$evals" "$t: every held-out set is evaluated at every checkpoint"
    run tern ckpt verify twin/checkpoints/latest; status 0 "$t: its checkpoint verifies"
    run tern ckpt export twin/checkpoints/latest -o twin/out-hf; status 0 "$t: its checkpoint is exported"
    cluster_down; mv twin "twin-$t"
}
tiny_make || exit 1
shape Llama-2-7b-hf 8 32
mkdir twin; cp -r Llama-2-7b-hf twin/
twin trn1n-16-llama2-7b-cpt 2 8 4 's/global: 2048/global: 8/; s/seq_len: 4096/seq_len: 32/; s/^tokens: .*/steps: 8/; s/warmup: 100/warmup: 2/; s/every: 500/every: 4/; s/ranks_per_node: 32/ranks_per_node: 8, threads: 1/'
run tern run --check -N 16 -c "$dir/cluster.yaml" "twin-trn1n-16-llama2-7b-cpt/nxd.yaml"; status 0 "the same by NeuronX Distributed: its recipe is good on 16 nodes"
run tern run --explain -N 16 -c "$dir/cluster.yaml" "twin-trn1n-16-llama2-7b-cpt/nxd.yaml"; out_has '= 512: tensor 8 '
! grep -q '{[a-z_]*}' out; ok $? "every word of its command is filled in"
# The chain of jobs, and where it ends when its first one fails.
lora() {
    mkdir twin; cp -r llama3-8B twin/
    place llama3-8b-lora 1
    sed -i 's/seq_len: 1024/seq_len: 64/; s/^steps: .*/steps: 8/; s/warmup: 100/warmup: 2/; s/every: 400/every: 4/; s/ranks_per_node: 32/ranks_per_node: 32, threads: 1/' twin/run.yaml
    for i in $(seq 40); do echo "{\"instruction\": \"Say $i.\", \"context\": \"\", \"response\": \"the cat runs $i\", \"category\": \"qa\"}"; done >twin/dolly.jsonl
    cp -r twin broken; echo '{' >broken/dolly.jsonl
    run tern cluster exec $CLUSTER -- sh -c "cd twin && exec ./chain"; status 0 "lora: the chain of jobs is submitted" || cat err
    is "$(sed 's/:.*//' out | paste -sd' ')" "fetch train consolidate merge generate" "lora: its five jobs"
    job=$(sed -n 's/generate: job //p' out)
    for _ in 1 2 3 4; do until_true queue_empty && break; done
    is "$(job_state "$job")" COMPLETED "lora: the last job of the chain has ended well" || tail -5 twin/*.log
    is "$(sqlite3 twin/ledger/runs/*/run.db "select outcome, world, last_step from attempt")" "done|32|8" "lora: all ranks, all steps"
    is "$(jq -c '[.r, .lora_alpha, .lora_dropout, .target_modules]' twin/adapter/adapter_config.json)" '[16,16,0.05,["q_proj","v_proj"]]' "lora: its adapters are consolidated, as PEFT has them"
    [ -s twin/merged/model.safetensors ] && [ -s twin/merged/tokenizer.model ]; ok $? "lora: its model is merged"
    is "$(grep -c 'Say [123]\.' twin/generate-*.log)" 3 "lora: its model goes on with three prompts" || cat twin/generate-*.log
    run tern cluster exec $CLUSTER -- sh -c "cd broken && exec ./chain"; status 0 "lora: a chain of a broken set is submitted"
    until_true queue_empty
    is "$(cd broken; echo *.log | sed 's/-[0-9]*//g')" "fetch.log" "lora: no job of the chain begins after one that failed"
    cluster_down; mv twin twin-llama3-8b-lora; rm -r broken
}
for t in trn1-4-llama2-7b-zero1:4 llama2-70b-nxd:32; do
    dir=$ROOT/cluster-templates/${t%:*}; mkdir checked; cp "$dir"/* checked; cp -r Llama-2-7b-hf checked
    run tern run --check -N "${t#*:}" -c "$dir/cluster.yaml" checked/nxd.yaml; status 0 "${t%:*}: nxd.yaml is good on its nodes"
    bash -n "$dir/train.sbatch"; ok $? "${t%:*}: its batch script"; rm -r checked
done
if long; then
    mkdir twin; cp -r Llama-2-7b-hf twin/
    twin trn1-4-llama2-7b-zero1 4 8 2 's/global: 1024/global: 8/; s/seq_len: 4096/seq_len: 32/; s/^steps: .*/steps: 8/; s/warmup: 100/warmup: 2/; s/every: 500/every: 4/; s/ranks_per_node: 32/ranks_per_node: 8, threads: 1/'
    shape Llama-2-70b-hf 8 80
    mkdir twin; cp -r Llama-2-70b-hf twin/
    twin llama2-70b-nxd 2 32 4 's/global: 512/global: 8/; s/seq_len: 4096/seq_len: 32/; s/^steps: .*/steps: 8/; s/warmup: 100/warmup: 2/; s/every: 100/every: 4/; s/ranks_per_node: 32/ranks_per_node: 32, threads: 1/'
    shape llama3-8B 8 32
    lora
    shape SmolLM-135M 9 30
    mkdir twin; cp -r SmolLM-135M twin/
    twin cpu-efa 4 4 4 's/global: 256/global: 64/; s/seq_len: 1024/seq_len: 32/; s/^steps: .*/steps: 8/; s/warmup: 100/warmup: 2/; s/every: 200/every: 4/; s/every: auto/every: 4/; s/ranks_per_node: 4/ranks_per_node: 4, threads: 1/'
fi
tap_done
