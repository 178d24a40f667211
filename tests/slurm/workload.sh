#!/bin/bash
# Somebody else's trainer in real jobs: torchrun with a PyTorch DDP script, a lost node, its
# checkpoints, compiling beforehand, and pyxis's options.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/vcluster.sh"
torch= torchrun=
/usr/bin/python3 -c 'import torch' 2>/dev/null && [ -x /usr/bin/torchrun ] && torch=1
# Without libuv, as in Debian 13, no agent of torchrun comes beyond its store.
[ -n "$torch" ] && /usr/bin/python3 -c 'import torch.distributed as d; d.TCPStore("127.0.0.1", 0, 1, True)' 2>store.err && torchrun=1
cluster_up
rows() { sqlite3 -separator ' ' ledger/ledger.db "select $1 from attempt where run_id in (select id from run where name = '$name') order by begin_ns"; }
printf '#!/bin/bash\nexec tern run\n' >job.sbatch
job() { name=$1; shift; submit --exclusive -o "$name.out" --tern="$name.yaml" "$@" job.sbatch; }
over() { await_job "${1:-1}"; ok $? "$name: the job ends" || tail -20 "$name.out"; }

# ---- words that differ from node to node
cat >words.yaml <<'Y'
version: 1
name: words
ledger: {dir: ledger}
launch: {health: off}
workload:
  command: [echo, "it's node {node_index} of {nodes}", "{master_addr}", "$HOME", "w{workers}x{world}"]
  workers_per_node: 32
Y
job words -N3; over
is "$(grep -c "^it's node [012] of 3 trn1-st-trn1-1 \$HOME w32x96\$" words.out) $(grep -c "it's node 1 of" words.out)" "3 1" "each node has its index, quotes and dollars stay what they are"
is "$(rows world)" 96 "the world is nodes x workers"

# ---- pyxis: its options, taken by a plugin that notes them
so=${TERN_BUILD:-$ROOT/build}/tests/pyxis_stub.so
if [ -e "$so" ]; then
    conf=$TERN_CLUSTER_HOME/$CLUSTER/etc/plugstack.conf
    cp "$conf" conf.before; echo "required $so" >>"$conf"
    touch image.sqsh
    sed 's/name: words/name: boxed/' words.yaml >boxed.yaml
    printf '  container: ./image.sqsh\n  progress: {glob: far/o/step_*, marker: done}\ncheckpoint: {dir: ck}\n' >>boxed.yaml
    job boxed -N2; over
    real=$(realpath .)
    mounted= inside=$(realpath "$BIN")/tern-inside
    [ -e "$inside" ] && mounted=,$inside:$inside:ro
    has boxed.out "pyxis_stub: container-image=./image.sqsh container-mounts=$real:$real$mounted container-workdir=$real" "srun gets image, mounts of all that is written, and folder"
    sed -i 's,far/o/,/dev/shm/tern-far-'$$'/o/,; s,name: boxed$,name: boxed2,' boxed.yaml; cp boxed.yaml boxed2.yaml
    job boxed2 -N2; over
    has boxed2.out "container-mounts=$real:$real,/dev/shm/tern-far-$$/o:/dev/shm/tern-far-$$/o$mounted " "a folder elsewhere is mounted, too"
    # In an image that has nothing of tern.
    if [ -n "$mounted" ]; then
        mkdir image
        cat >inimage.sh <<'S'
echo "sees" $(ls / "$1")
for i in 1 2 3; do echo "step $i: loss 2.$i"; done
[ "$SLURM_PROCID" = 0 ] || echo step=3 told=7 >$TERN_METRIC_FILE
S
        cat >inimage.yaml <<Y
version: 1
name: inimage
ledger: {dir: ledger}
launch: {health: off}
workload:
  command: [bash, $real/inimage.sh, ${inside%/*}]
  container: $real/image
  metrics: [{pattern: "step ([0-9]+): loss ([0-9.]+)", names: [step, loss]}]
Y
        job inimage -N2; over
        is "$(rows outcome)" done "a container is entered and left"
        # The image's own folders, where the test lies, and where tern is mounted.
        top=$(printf '%s\n' bin dev lib lib64 proc tmp usr "$(cut -d/ -f2 <<<"$WORK")" "$(cut -d/ -f2 <<<"$inside")" | sort -u | paste -sd' ')
        is "$(grep -c "^sees /: $top ${inside%/*}: tern-inside$" inimage.out)" 2 "a container has nothing of tern's but tern-inside"
        run tern logs inimage --ledger ledger --no-time; status 0; is "$(grep -c 'step 3: loss 2.3' out)" 2 "every rank in a container has its log"
        id=$(rows run_id); run tern ledger sql --ledger ledger -r "$id" -n -P "select name, step, value from step order by name, step"
        is "$(tr '\n' , <out)" "loss|1|2.1,loss|2|2.2,loss|3|2.3,told|3|7.0," "values of the workload are in the ledger, printed ones and those of the descriptor"
    else
        skip "no tern-inside: no static libc here"
    fi
    rm -rf "/dev/shm/tern-far-$$"
    sed 's/name: words/name: boxpre/' words.yaml >boxpre.yaml
    printf '  container: ./image.sqsh\n  precompile: {command: [echo, compiled], cache: cache}\n' >>boxpre.yaml
    for content in one one another; do echo $content >image.sqsh; job boxpre -N2; over; done
    is "$(rows kind | tr '\n' ,)" "precompile,train,train,precompile,train," "graphs are those of an image, not of its name alone"
    cp conf.before "$conf"
    sed "s/name: boxed2/name: boxed3/; s/name: boxed$/name: boxed3/" boxed2.yaml >boxed3.yaml; job boxed3 -N2; over
    has boxed3.out "container-image" "without pyxis srun says which option it does not know"
    is "$(rows outcome | tail -1)" failed "the attempt with a rank that fails has failed"
else
    skip "no pyxis_stub.so"
fi

# ---- compiling beforehand: on the same nodes, once
cat >pre.yaml <<'Y'
version: 1
name: pre
ledger: {dir: ledger}
launch: {health: off}
parallel: {tensor: 2}
workload:
  command: [bash, -c, 'cat "$TERN_COMPILE_CACHE"/graph.* | sort']
  workers_per_node: 2
  precompile: {command: [bash, -c, 'echo "graph of $SLURM_PROCID, {tensor}x{data}, {steps}" >"$NEURON_COMPILE_CACHE_URL"/graph.$SLURM_PROCID'], cache: cache}
Y
job pre -N2; over
is "$(rows 'attempt, kind, outcome, nodes' | tr '\n' ,)" "1 precompile done trn1-st-trn1-[1-2],2 train done trn1-st-trn1-[1-2]," "two attempts on the same nodes"
is "$(grep ^graph pre.out | sort -u | tr '\n' ,)" "graph of 0, 2x2, 10,graph of 1, 2x2, 10," "training finds what every node compiled"
job pre -N2; over
has pre.out "cache found: $(realpath .)/cache/" "the next job finds it"
job pre -N4; over
is "$(rows 'kind, nodes' | tail -2 | tr '\n' ,)" "precompile trn1-st-trn1-[1-4],train trn1-st-trn1-[1-4]," "more nodes are another layout"

# ---- torchrun, and a node that goes down
if [ -z "$torch" ]; then
    skip "python3-torch is not installed"
    tap_done
fi
T=$ROOT/cluster-templates/torch-ddp
kept() { sqlite3 -separator ' ' "ledger/runs/$id/run.db" "select step, state from checkpoint where path like '%/$1/%' order by step" | tr '\n' ,; }
if [ -n "$torchrun" ]; then
    cp "$T/train.py" .
    sed 's/^name:.*/name: ddp/; s/^launch:.*/launch: {health: off, restarts: 2, spares: 1}/; s/--out=ck/--out=ck, --pause=0.15/' "$T/run.yaml" >ddp.yaml
    job ddp -N3 --no-kill --no-requeue
    step_there() { ls -d ck/step_"$1" >/dev/null 2>&1; }
    until_true step_there 20
    step_there 20; ok $? "torchrun trains on two nodes with two workers each" || tail -40 ddp.out
    run tern cluster node --power off -c $CLUSTER trn1-st-trn1-2; status 0
    over 2
    is "$(rows 'attempt, outcome, nodes, world' | tr '\n' ,)" "1 node_fail trn1-st-trn1-[1-2] 4,2 done trn1-st-trn1-[1,3] 4," "the workload goes on on the spare node"
    # Processes that print at once may share a line.
    is "$(grep -oE "rank [0-3] of 4 on trn1-st-trn1-[13] from step [2-5]0" ddp.out | sort -u | wc -l)" 4 "every rank goes on from its own newest checkpoint"
    id=$(rows run_id | tail -1)
    is "$(sqlite3 "ledger/runs/$id/run.db" "select count(*), min(step), max(step) from step where name = 'loss'")" "60|1|60" "its printed loss is in the ledger, one of each step"
    is "$(kept ck)" "10 deleted,20 deleted,30 deleted,40 verified,50 verified,60 verified," "its checkpoints: verified, mirrored, pruned"
    is "$(kept mirror)" "10 verified,20 verified,30 verified,40 verified,50 verified,60 verified," "the mirror has a copy of each checkpoint"
    run tern ckpt verify mirror/step_60 --run "$id" --ledger ledger; status 0
    is "$(ls -d ck/step_*/ | wc -l)" 3 "three are left"
else
    skip "torchrun does not start here: $(tail -n 1 store.err)"
fi

# ---- the same script as Slurm starts it, which speaks for itself; the template as it lies
mkdir ranks; cp "$T"/* ranks; cd ranks || exit 1
name=torch-ranks; submit -o torch-ranks.out --tern=ranks.yaml --export="ALL,PATH=$BIN:$PATH" train.sbatch; over 2
is "$(rows 'outcome, world')" "done 4" "ranks of Slurm, without torchrun"
id=$(rows run_id | tail -1)
is "$(sqlite3 "ledger/runs/$id/run.db" "select count(*), min(step), max(step) from step where name = 'loss'")" "60|1|60" "the workload recorded its own loss"
is "$(kept ck)" "10 deleted,20 deleted,30 deleted,40 deleted,50 verified,60 verified," "the workload's checkpoints are verified and pruned"
tap_done
