#!/bin/bash
# Makes old-run.tar.gz with the programs of this tree: once a release, before anything is renamed.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/old-run.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L|C|P)|OPENBLAS)'); do unset "$v"; done
set -e
old_place

# tern's own trainer on two ranks: stopped behind step 4, then killed behind step 6.
mkdir $OLD/own; cd $OLD/own
tiny_make
rm ./*.jsonl
sed -i 's/"hidden_size": 32/"hidden_size": 8/; s/"intermediate_size": 64/"intermediate_size": 16/
    s/"num_hidden_layers": 2/"num_hidden_layers": 1/; s/"num_attention_heads": 4/"num_attention_heads": 2/
    s/"num_key_value_heads": 2/"num_key_value_heads": 1/' model/config.json
sed -i 's/^name: .*/name: own/; s/^steps: .*/steps: 1000/; s/threads: 1/threads: 1, ranks_per_node: 2, health: off/
    s/^checkpoint: .*/checkpoint: {dir: checkpoints, every: 2, keep: 2}\nevaluate: {every: 2}/' run.yaml
tern run run.yaml --set launch.stop_at=4 || [ $? = 76 ]
setsid tern run run.yaml & pid=$!
tiny_wait_step 6 $pid
kill -9 -- -$pid; wait $pid || true
while pgrep -r DRST -s $pid; do sleep 0.1; done
rm -rf checkpoints/.trash-* checkpoints/*.tmp-* ledger/runs/*/*.tmp-*

# Another trainer: checkpoints found, verified, copied, pruned.
mkdir $OLD/other; cd $OLD/other
cat >train.sh <<'E'
for s in 10 20 30; do
    mkdir -p ck/step_$s; echo "weights $s" >ck/step_$s/r0.pt; echo 1 >ck/step_$s/done
    tern metric step=$s loss=$((100 - s)).5; echo "wrote step $s"; sleep 0.1
done
E
cat >run.yaml <<'Y'
version: 1
name: other
ledger: {dir: ledger}
launch: {health: off}
workload: {command: [bash, train.sh], progress: {glob: ck/step_*, marker: done}}
checkpoint: {dir: run, keep: 2, mirror: mirror}
Y
tern run run.yaml

# Two ranks that called different collectives.
cd $OLD
TERN_FABRIC_DUMP=$OLD/dumps TERN_FABRIC_SHARE=1 timeout 60 "$TOOLS/fabric-faults" differ 2 op || true
[ -e dumps/fabric-rank-00001.tfr ]

# What this tern says of all that, and the losses with which it goes on.
cp -a $OLD "$WORK/old"
mkdir "$WORK/old/then"
cd "$WORK/old/then"
old_answers
(cd $OLD/own && tern run run.yaml --set launch.stop_at=12) || [ $? = 76 ]
old_next >next
cd "$WORK"
tar -C old --owner=0 --group=0 --sort=name -cf - . | gzip -9n >"$ROOT/tests/golden/old-run.tar.gz"
rm -rf $OLD
ls -l "$ROOT/tests/golden/old-run.tar.gz"
