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
twin() { # TEMPLATE NODES RANKS NAME SED...: its recipe, narrower, on a cluster of its layout
    local t=$1 nodes=$2 ranks=$3 name=$4; shift 4
    dir=$ROOT/cluster-templates/$t
    run tern cluster check "$dir/cluster.yaml"; status 0 "$t: its layout"
    sed "s/MinCount: .*/MinCount: $nodes/; s/MaxCount: .*/MaxCount: $nodes/" "$dir/cluster.yaml" >cluster.yaml
    LAYOUT=$WORK/cluster.yaml; cluster_up
    mkdir -p twin/data; cp "$dir"/* twin; cp data/train.tds twin/data/one.tds
    for set in pubmed domain general; do cp data/train.tds twin/data/$set.tds; cp data/test.tds twin/data/$set-test.tds; done
    sed -i "$@" twin/run.yaml
    # What a person types, in the job's folder.
    run tern cluster exec $CLUSTER -- sh -c "cd twin && exec sbatch --parsable --tern=run.yaml -N$nodes --ntasks-per-node=$ranks -o run.out train.sbatch"
    status 0 "$t: sbatch takes the recipe" || cat err
    job=$(cat out)
    await_job 12; is "$(job_state "$job")" COMPLETED "$t: the twin trains to its end" || tail -20 twin/run.out
    db=$(ls twin/ledger/runs/*/run.db)
    is "$(sqlite3 "$db" "select outcome, world, last_step from attempt" | tail -1)" "done|$((nodes * ranks))|8" "$t: all ranks, all steps"
    is "$(sqlite3 "$db" "select count(*) from (select distinct set_name, step from eval where step in (4, 8))")" 4 "$t: both domains are evaluated at every checkpoint"
    run tern ckpt verify twin/checkpoints/latest; status 0 "$t: its checkpoint verifies"
    run tern ckpt export twin/checkpoints/latest -o twin/out-hf; status 0 "$t: and is exported"
    cluster_down; mv twin "twin-$t"
}
tiny_make || exit 1
shape Llama-2-7b-hf 8 32
mkdir twin; cp -r Llama-2-7b-hf twin/
twin trn1n-16-llama2-7b-cpt 2 8 llama2-7b-pubmed 's/global: 2048/global: 8/; s/seq_len: 4096/seq_len: 32/; s/^tokens: .*/steps: 8/; s/warmup: 100/warmup: 2/; s/every: 500/every: 4/; s/ranks_per_node: 32/ranks_per_node: 8, threads: 1/'
run tern run --check -N 16 -c "$dir/cluster.yaml" "twin-trn1n-16-llama2-7b-cpt/nxd.yaml"; status 0 "the same by NeuronX Distributed: its recipe is good on 16 nodes"
run tern run --explain -N 16 -c "$dir/cluster.yaml" "twin-trn1n-16-llama2-7b-cpt/nxd.yaml"; out_has '= 512: tensor 8 '
! grep -q '{[a-z_]*}' out; ok $? "every word of its command is filled in"
if long; then
    shape SmolLM-135M 9 30
    mkdir twin; cp -r SmolLM-135M twin/
    twin cpu-efa 4 4 smollm-cpt 's/global: 256/global: 64/; s/seq_len: 1024/seq_len: 32/; s/^steps: .*/steps: 8/; s/warmup: 100/warmup: 2/; s/every: 200/every: 4/; s/every: auto/every: 4/; s/ranks_per_node: 4/ranks_per_node: 4, threads: 1/'
fi
tap_done
