#!/bin/bash
# A workload on one machine: its command, compiling beforehand, its checkpoints.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|C|P)|NEURON|MASTER)'); do unset "$v"; done
last() { sqlite3 -separator ' ' ledger/ledger.db "select $1 from attempt where run_id in (select id from run where name = '$2') order by begin_ns" | tail -1; }
# recipe NAME 'WORKLOAD' [MORE]
recipe() { printf 'version: 1\nname: %s\nledger: {dir: ledger}\nlaunch: {health: off}\nworkload: {%s}\n%s\n' "$1" "$2" "${3-}" >"$1.yaml"; }

# ---- the command
recipe words 'command: [echo, "n={nodes}", "{workers}x{world}", "t={tensor},{data},{accumulate}", "{master_addr}", "i={node_index}", "{{nodes}}", "${nodes}", "{\"a\": 1}", "{attempt}", "p{master_port}", "{run}"], workers_per_node: 8' \
    'parallel: {tensor: 2, pipeline: 2}
batch: {global: 16, micro: 2}'
run tern run words.yaml; status 0
id=$(last run_id words)
is "$(grep -o 'n=1 .* {"a": 1} 1' out) $(grep -c " p[0-9]* $id" out)" 'n=1 8x8 t=2,2,4 127.0.0.1 i=0 {nodes} ${nodes} {"a": 1} 1 1' "every {name} is filled in, other braces stay"
is "$(last world words)" 8 "{world} counts the workers"
recipe typo 'command: [echo, "{node}"]'
run tern run --check typo.yaml; status 2
err_has "typo.yaml:5: workload.command: '{node}': tern fills in no {node}; did you mean {nodes}?"
recipe none 'command: [echo, "{seq_len}"]'
run tern run none.yaml; status 2
err_has "none.yaml:5: workload.command: '{seq_len}': {seq_len} is not known here"
run tern help recipe; out_has '  {master_addr}          name of the first node' "tern help recipe lists the names in braces"
run tern submit --dry-run words.yaml --array batch.micro=1 --array batch.micro=2; status 2 "an array's key twice"; err_has 'batch.micro: given twice: put its values in one list'; one_line

# ---- what cannot work, before anything starts
recipe absent 'command: [no-such-torchrun, x.py]'
run tern run absent.yaml; status 2; one_line
err_has "absent.yaml:5: workload.command: 'no-such-torchrun' is not on the PATH of this node"
[ ! -e ledger/runs ] || [ -z "$(sqlite3 ledger/ledger.db "select 1 from run where name = 'absent'")" ]; ok $? "a refused workload records no run"
run tern run --check absent.yaml; status 0 "at submission it may be absent: the job's PATH is another"
recipe absent 'command: [./train.sh]'
run tern run absent.yaml; err_has "'./train.sh': no such program"
recipe absent 'command: [true], precompile: {command: [no-such-compiler], cache: cache}'
run tern run absent.yaml; err_has "absent.yaml:5: workload.precompile.command: 'no-such-compiler' is not on the PATH"
bad() { # WORKLOAD MESSAGE [MORE]
    recipe bad "$1" "${3-}"; run tern run bad.yaml; status 2 "$2"; err_has "bad.yaml:$4$2"; }
bad 'command: [true], workers_per_node: 8' "parallel: 1 node x 8 ranks are 8, no multiple of parallel.tensor x parallel.pipeline" 'parallel: {tensor: 3}
batch: {global: 8, seq_len: 8}' 6:' '
bad 'command: [true], workers_per_node: 8' "batch.global: 12 sequences do not divide over 8 data-parallel ranks" 'batch: {global: 12}' 6:' '
bad 'command: [true], tasks_per_node: 3, workers_per_node: 8' 'workload.workers_per_node: 8 workers do not divide over 3 tasks a node.' '' 5:' '
bad 'command: [true], container: image.sqsh' "workload.container: 'image.sqsh' would be an image of a registry" '' 5:' '
bad 'command: [true], container: ./image.sqsh' "workload.container: ./image.sqsh: there is no such image." '' 5:' '
bad 'command: [true], progress: {glob: ck/*}' "workload.progress.glob: without 'marker'" '' 5:' '
bad 'command: [true], progress: {glob: ck/*, marker: ../x}' "workload.progress.marker: '../x' is not the name of a file" '' 5:' '
bad 'command: [true]' "checkpoint.mirror: 'https://b/x' is neither a folder nor s3://BUCKET/PREFIX" 'checkpoint: {mirror: "https://b/x"}' 6:' '
bad 'command: [true]' "checkpoint.mirror: 's3://' names no bucket" 'checkpoint: {mirror: "s3://"}' 6:' '

# ---- compiling beforehand
cat >compile.sh <<'S'
echo "compile $TERN_PRECOMPILE_STEPS steps={$1} into $NEURON_COMPILE_CACHE_URL"
[ ! -e broken ] || exit 3
touch "$TERN_COMPILE_CACHE/MODULE_1"
S
recipe pre 'command: [bash, -c, "test -e $TERN_COMPILE_CACHE/MODULE_1 && echo trained with {cache}"], precompile: {command: [bash, compile.sh, "{steps}"], steps: 7, cache: cache}' 'steps: 100'
touch broken
run tern run pre.yaml; status 3 "a compilation that fails ends the run"
is "$(last 'kind, outcome, exit_code' pre)" "precompile precompile_failed 3" "a failed compilation has an outcome of its own"
err_has 'workload.precompile.command: '
is "$(ls cache/*/complete.json 2>/dev/null)" "" "a failed compilation leaves no mark"
rm broken
run tern run pre.yaml; status 0
out_has "compile 7 steps={7} into $WORK/cache/"; out_has "trained with $WORK/cache/"
is "$(sqlite3 -separator ' ' ledger/ledger.db "select attempt, kind, outcome from attempt where run_id = '$(last run_id pre)' order by attempt" | tr '\n' ,)" "1 precompile done,2 train done," "compiling is an attempt of its own kind, before the first"
has "$(ls cache/*/complete.json)" '"nodes 1"' "the mark of a compilation has the parts of its key"
run tern run pre.yaml; status 0
err_has "cache found: $WORK/cache/" "another run finds the cache"
is "$(last 'attempt, kind' pre)" "1 train" "a run that finds the cache compiles nothing"
recipe nocache 'command: [sh, -c, "echo graphs in {cache}"], precompile: {command: [bash, compile.sh, "{steps}"], steps: 10}'
run tern run --explain nocache.yaml; out_has "Compiled beforehand into a folder below $WORK/ledger/graphs" "without workload.precompile.cache it is below the ledger, as in --explain"
run tern run nocache.yaml; status 0; out_has "graphs in $WORK/ledger/graphs/"
run tern run nocache.yaml; err_has "cache found: $WORK/ledger/graphs/" "a cache below the ledger is found again"
run tern ledger list --ledger ledger; status 0; [ "$(grep -c nocache out)" = 2 ]; ok $? "a cache below the ledger is no run" || cat out
llama() { printf '{"model_type": "llama", "hidden_size": %s, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 800, "max_position_embeddings": 512, "hidden_act": "silu"}\n' "$1" >model.json; }
for change in steps=8 'model.config=model.json' batch.seq_len=128 parallel.tensor=1 workload.workers_per_node=2; do
    llama 32
    case $change in parallel*) export NEURON_CC_FLAGS=--model-type=transformer ;; esac
    run tern run pre.yaml --set "$change"; unset NEURON_CC_FLAGS
    case $change in steps=8) is "$(grep -c compile out)" 0 "$change: the same graphs" ;; *) is "$(grep -c ^compile out)" 1 "${change/parallel.tensor=1/NEURON_CC_FLAGS}: other graphs" ;; esac
done
llama 64
run tern run pre.yaml --set model.config=model.json; is "$(grep -c ^compile out)" 1 "another config.json has another compile cache"
mkdir -p bin; printf '#!/bin/sh\necho "NeuronX Compiler version 2.16"\n' >bin/neuronx-cc; chmod +x bin/neuronx-cc
PATH=$WORK/bin:$PATH run tern run pre.yaml; is "$(grep -c ^compile out)" 1 "another compiler has another compile cache"
printf 'version: 1\nenv: {NEURON_CC_FLAGS: "--cache_dir=/y"}\n' >site.yaml
TERN_CONFIG=$WORK/site.yaml run tern run pre.yaml; is "$(grep -c ^compile out)" 1 "the site's NEURON_CC_FLAGS have another cache"
err_has 'NEURON_CC_FLAGS has --cache_dir' "the site's NEURON_CC_FLAGS are checked"
TERN_PROFILE=trn1-2.19 run tern run pre.yaml; is "$(grep -c ^compile out)" 1 "the profile's NEURON_CC_FLAGS have another cache"
TERN_PROFILE=trn1-2.19 run tern run pre.yaml; is "$(grep -c ^compile out)" 0 "the same settings find the same cache again"
cut=$(ls -d cache/*/ | head -1)complete.json; for f in cache/*/complete.json; do head -c 20 "$f" >half; cp half "$f"; done
run tern run pre.yaml; is "$(grep -c ^compile out)" 1 "a damaged mark does not count"
NEURON_CC_FLAGS=--cache_dir=/x run tern run pre.yaml; err_has 'NEURON_CC_FLAGS has --cache_dir'

# ---- values, cut and among other lines
cat >cut.sh <<'S'
printf 'step=1 cut=2\nstep=2 cut=12' >$TERN_METRIC_FILE
{ echo step=1 piped=1; echo some warning; head -c 100000 /dev/zero; echo; echo oops; echo step=2 piped=2; echo on >went; } | tern metric --stdin
S
cat >refused.sh <<'S'
{ echo step=1 a=1; echo step=2 a=1e400; echo step=3 a=3 a=4; echo step=4 a=4; echo "epoch 5: loss=2"; printf 'step=6 a=6%100000s\n' ""; } | tern metric --stdin; echo $? >refused.status
tern metric resumed_step=3 resumed_step=5; echo $? >twice.status
S
recipe refused 'command: [bash, refused.sh]'; run tern run refused.yaml
is "$(cat refused.status)" 2 "values that tern metric --stdin cannot take make its status 2"; has err '4 of 6 lines' "tern metric --stdin counts the lines that it took"
id=$(sqlite3 ledger/ledger.db "select id from run where name = 'refused'"); is "$(sqlite3 ledger/runs/$id/run.db "select step from step where name = 'a' order by step" | paste -sd,)" 1,4 "the others are in the ledger, and nothing of a line that is too long"
is "$(cat twice.status)" 2 "resumed_step= twice is refused"
recipe cut 'command: [bash, cut.sh]'
run tern run cut.yaml; is "$(last outcome,exit_code cut) $(cat went)" "done 0 on" "a program that prints other lines into tern metric --stdin goes on"
err_has 'standard input, line 2: '; err_has 'standard input: 3 of 5 lines were no values'; err_has 'TERN_METRIC_FD: a line without its end'
run tern ledger sql "select name, step, value from step order by name, step" --ledger ledger --run cut -n -P
is "$(tr '\n' , <out)" "cut|1|2.0,piped|1|1.0,piped|2|2.0," "whole lines are recorded, also after a cut one"

# ---- its pace, by the times of its values
recipe paced 'command: [sh, -c, "for i in 1 2 3 4 5 6 7; do tern metric step=${i}0 loss=2; done"], workers_per_node: 8' 'checkpoint: {dir: paced}'
run tern run paced.yaml
run tern submit --dry-run paced.yaml -- --time=1; status 0 "a time limit of a minute is enough for quick steps"
forge "ledger/runs/$(last run_id paced)/run.db" "update point set wall_ns = step * 40000000000"
run tern submit --dry-run paced.yaml -- --time=1; status 2 "a time limit of a minute is refused for steps of 40 s"; one_line
err_has '--time=1: not one step of 40' "a workload's measured pace is used"
run tern submit --dry-run paced.yaml -N 2 -- --time=1; status 0 "the pace of another number of workers is not used"
run tern submit --dry-run paced.yaml -- --time=5; status 0 "a step that fits is not refused"

# ---- checkpoints
cat >train.sh <<'S'
for s in 10 20 30 40; do mkdir -p ck/step_$s/model; echo "weights $s" >ck/step_$s/model/r0.pt; sleep 0.1; echo 1 >ck/step_$s/done; done
mkdir -p ck/step_50/model; echo half >ck/step_50/model/r0.pt
mkdir -p other; echo x >other/w; tern metric step=35 checkpoint=other
S
recipe ck 'command: [bash, train.sh], progress: {glob: ck/step_*, marker: done}' 'checkpoint: {keep: 2, keep_every: 10, mirror: mirror}'
sed -i 's/keep_every: 10/keep_every: 40/' ck.yaml
mkdir -p ck/step_5; echo 1 >ck/step_5/done
run tern run ck.yaml; status 0
id=$(last run_id ck)
rows() { sqlite3 -separator ' ' ledger/runs/$id/run.db "select step, state from checkpoint where path like '$WORK/$1/%' order by step" | tr '\n' ,; }
is "$(rows ck)" "10 deleted,20 deleted,30 verified,40 verified," "external checkpoints are found, verified, pruned to the newest two"
is "$(ls -d ck/* | tr '\n' ' ')" "ck/step_30 ck/step_40 ck/step_5 ck/step_50 " "folders of other runs and incomplete ones stay"
is "$(ls -d mirror/* | tr '\n' ' ')" "mirror/other mirror/step_10 mirror/step_20 mirror/step_30 mirror/step_40 " "each checkpoint has a copy, the registered one, too"
is "$(sqlite3 ledger/runs/$id/run.db "select state, bytes, shards from checkpoint where path = '$WORK/other'")" "verified|2|1" "a checkpoint of tern metric is verified, with bytes and files"
diff -r ck/step_40 mirror/step_40; ok $? "a copy has the same bytes"
run tern ckpt verify ck/step_40 --run "$id" --ledger ledger; status 0; out_has "ck/step_40: good, every byte of 2 files"
run tern ckpt verify mirror/step_40 --run "$id" --ledger ledger; status 0 "a copy can be verified by the record"
run tern ckpt verify mirror/step_10 --run ck --ledger ledger; status 0 "a copy of a pruned checkpoint can be verified"
printf W | dd of=ck/step_40/model/r0.pt conv=notrunc status=none
run tern ckpt verify ck/step_40 --run "$id" --ledger ledger; status 1
err_has 'ck/step_40/model/r0.pt: its content has changed'; one_line
run tern ckpt verify ck/step_40 --manifest "$(ls ledger/runs/$id/external/step_40-*.json)"; status 1 "a damaged checkpoint fails by the path of its record, too"
run tern ckpt verify ck/step_5 --run "$id" --ledger ledger; status 2; err_has 'was not verified in run'

# ---- published workflows
for t in llama2-70b-nxd/nxd:32:1024 llama3-8b-lora/optimum:1:32; do
    IFS=: read -r t n world <<<"$t"
    file=$ROOT/cluster-templates/$t.yaml dir=$ROOT/cluster-templates/${t%/*}
    run tern cluster check "$dir/cluster.yaml"; status 0 "$t: the cluster's layout passes the check"
    run tern run --check -N "$n" -c "$dir/cluster.yaml" "$file"; status 0 "$t: the recipe passes the check"
    [ ! -s err ]; ok $? "$t: nothing about it is doubted" || sed 's/^/# /' err
    run tern run --explain -N "$n" -c "$dir/cluster.yaml" "$file"; status 0 "$t: the recipe is explained"
    out_has "= $world: tensor 8 "
    ! grep -q '{[a-z_]*}' out; ok $? "$t: every word is filled in"
    bash -n "$dir/train.sbatch"; ok $? "$t: its batch script"
done
dir=$ROOT/cluster-templates/llama2-70b-nxd fits=
for n in $(seq 32); do tern run --check -N "$n" "$dir/nxd.yaml" >/dev/null 2>&1 && fits="$fits$n "; done
is "$(sed -n 's/.*tern run --check.*# //p' "$dir/README.md" | grep -o '[0-9]*' | tr '\n' ' ')" "$fits" "the README of a published workflow has exactly the numbers of nodes that work"
tap_done
