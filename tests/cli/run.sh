#!/bin/bash
# tern run on one machine, with a workload's trainer; the command line of tern submit.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done

# recipe NAME 'SCRIPT' [TASKS] [MORE]: NAME.yaml, whose workload is a shell's script, tried once.
recipe() {
    printf 'version: 1\nname: %s\nledger: {dir: ledger}\nworkload: {command: [bash, %s.sh], tasks_per_node: %s}\n%s\n' \
        "$1" "$1" "${3:-1}" "${4-launch: {restarts: 0\}}" >"$1.yaml"
    printf '%s\n' "$2" >"$1.sh"
}
attempts() { sqlite3 -separator ' ' ledger/ledger.db "select $1 from attempt where run_id in (select id from run where name = '$2') order by begin_ns"; }
last() { attempts "$1" "$2" | tail -1; }
# Background jobs of a shell ignore SIGINT; those of a terminal do not.
supervise() { rm -f pid; env --default-signal=INT tern run "$@" >out 2>err & sup=$!; until_true test -s pid; }
ended() { # its status in $rc; nothing hangs here
    until_true sh -c "! kill -0 $sup" || { kill -9 $sup; echo "# had to be killed"; }
    { wait $sup; rc=$?; } 2>/dev/null; }

# ---- a run, its rows, its environment
recipe good 'echo "rank $SLURM_PROCID of $SLURM_NTASKS"; test -d "$TERN_RUN_SPOOL" && test -d "$TERN_LEDGER" && echo "$TERN_RECIPE" >seen' 3
run tern run good.yaml; status 0
for r in 0 1 2; do out_has "rank $r of 3"; done
is "$(cat seen)" "$WORK/good.yaml" "recipe, ledger and spool are in the ranks' environment"
is "$(last 'outcome, exit_code, world, attempt' good)" "done 0 3 1" "the ledger has the attempt with its outcome"
is "$(sqlite3 ledger/runs/*/run.db 'select recipe from run' | head -1)" "version: 1" "the ledger has the recipe's text"
run tern run good.yaml --ranks 2; status 0
out_has 'rank 1 of 2'
is "$(last world good)" 2 "--ranks sets the number of ranks"

recipe shell 'echo "rank $SLURM_PROCID: ${PMIX_RANK-}${PMIX_NAMESPACE-}${OMPI_COMM_WORLD_RANK-}"' 2
PMIX_RANK=7 PMIX_NAMESPACE=shell OMPI_COMM_WORLD_RANK=7 run tern run shell.yaml
is "$(sort out | grep -o 'rank .*' | tr '\n' ';')" "rank 0: ;rank 1: ;" "ranks do not inherit a rank's variables of PMIx or mpirun"

# ---- metrics of a trainer that is not tern's
recipe metric 'tern metric step=7 loss=2.31 && tern metric step=8 loss=nan'
run tern run metric.yaml; status 0
run tern ledger sql "select step, value from step where name = 'loss' order by step" --ledger ledger --run metric
out_has 2.31 "tern metric records from the workload"
is "$(last 'first_step, last_step' metric)" "7 8" "the attempt has the steps of recorded values"

# ---- how it ends
recipe ends 'case $1 in "") ;; esac; exit $CODE'
for pair in '1 failed' '3 failed' '2 refused' '75 fault' '76 stopped' '77 halted'; do
    set -- $pair
    CODE=$1 run tern run ends.yaml; status "$1" "status $1 of a workload is tern run's"
    is "$(last 'outcome, exit_code' ends)" "$2 $1" "exit status $1: the ledger calls it $2"
done
recipe killed '[ $SLURM_PROCID = 1 ] && kill -9 $$; exec sleep 3000' 2
start=${EPOCHREALTIME/./}
run timeout 600 tern run killed.yaml; status 75 "a killed rank gives 75"
err_has 'rank 1 ended by signal 9' "the killed rank is named"
bound $(((${EPOCHREALTIME/./} - start) / 1000)) 5000 "milliseconds until the other ranks end with a killed rank"
is "$(last 'outcome, signal' killed)" "killed 9" "the ledger has outcome and signal of a killed rank"
recipe leaves 'sleep 300 & echo $! >left; exit 3'
run tern run leaves.yaml; status 3
until_true sh -c '! kill -0 $(cat left)'; ok $? "processes that a rank has started end with it"
recipe said 'i=0; while [ $i -lt 20 ]; do sleep 0.05; i=$((i + 1)); done; tern metric step=1 loss=2; exit 76'
(tern run said.yaml 2>&1; echo $? >rc) | head -n 1 >/dev/null
is "$(cat rc)" 76 "a run outlives the reader of its output"
if long; then # the ledger is folded every few seconds
    recipe folds 'rm -rf vanish; sleep 7'; sed -i 's/dir: ledger/dir: vanish/' folds.yaml
    run tern run folds.yaml; status 0 "a ledger that vanishes does not end a run"
    is "$(grep -c 'the ledger is behind' err)" 1 "a ledger that cannot be folded is logged once, not at every fold"
    is "$(sqlite3 vanish/ledger.db 'select outcome from attempt')" done "a ledger that vanished is complete at the run's end"
fi
recipe tries 'echo x >>tries; [ $(wc -l <tries) = 3 ] || kill -9 $$' 1 ' '
run tern run tries.yaml; status 0 "a rank that is killed is started again"
is "$(attempts outcome tries | paste -sd,)" "killed,killed,done" "each restart is an attempt"
rm tries; run tern run tries.yaml --restarts 1; status 75 "--restarts 1 makes two attempts"
err_has 'no restart is left of 1'
recipe edited 'echo x >>edits; echo "steps: [" >edited.yaml; [ $(wc -l <edits) = 2 ] || kill -9 $$' 1 ' '
run tern run edited.yaml; status 0 "a recipe that is edited while it is used"
err_has 'this attempt uses the old one' "a recipe changed after the job read it is logged"
is "$(sqlite3 ledger/ledger.db "select recipe from run where name = 'edited'" | head -2 | tail -1)" "name: edited" "the ledger keeps the recipe that was used"
recipe absent '' 1; sed -i 's/bash, absent.sh/no-such-program/' absent.yaml
run tern run absent.yaml; status 2 "a program that does not exist is refused"
err_has "absent.yaml:4: workload.command: 'no-such-program' is not on the PATH of this node"

# ---- signals
# The ranks wait without children: when bash's child ends as SIGINT comes, bash takes the signal for the
# child's and runs no trap.
mkfifo never
waits='exec 3<>never; while :; do read -t 0.05 -u 3; done'
recipe stops 'trap "echo got TERM; exit 76" TERM; trap "echo got INT; exit 77" INT; echo $$ >pid; '"$waits"
for pair in 'TERM 76 stopped' 'INT 77 halted'; do
    set -- $pair
    supervise stops.yaml; kill -"$1" $sup; ended
    is $rc "$2" "SIG$1 is passed on; the workload's status comes back"
    out_has "got $1" "the workload got SIG$1"
    is "$(last outcome stops)" "$3" "outcome $3"
done
n=0; for db in ledger/runs/*/run.db; do
    n=$((n + $(sqlite3 "$db" "select count(*) from event where kind = 'signal'"))); done
is $n 2 "the signals are events in the ledger"
recipe deaf 'trap "" INT TERM; echo $$ >pid; while :; do sleep 0.05; done'
supervise deaf.yaml
again() { kill -INT $sup; grep -q 'again: ending the ranks' err; } # within 2 s it is the same request
until_true again; ended
is $rc 75 "a second Ctrl-C ends ranks that ignore the first"
# A rank that ends slowly, as a trainer that writes its checkpoint: a double press does not end it.
recipe twice 'trap "for i in 1 2 3 4 5 6 7 8; do sleep 0.05; done; echo kept; exit 77" INT; echo $$ >pid; '"$waits"
for _ in 1 2 3; do # on a machine that was busy for 2 s in between, once more
    supervise twice.yaml; kill -INT $sup; until_true grep -q 'passed on' err; kill -INT $sup; ended
    grep -q 'the same stop request' err && break
done
is "$rc $(grep -c kept out)" "77 1" "Ctrl-C pressed twice at once: the checkpoint is kept"
err_has 'within 2 s: the same stop request'
recipe orphan 'echo $$ >pid; exec sleep 300'
supervise orphan.yaml
state() { tern ledger list --ledger ledger -s "$1" -n -P -o name,state; }
quiet() { touch -d '5 minutes ago' "$(ls -td ledger/runs/*/spool | head -1)"/1/*; }
listed() { state running | grep -qx 'orphan|running'; }
until_true listed
silent() { quiet; [ "$(state silent)" = 'orphan|silent' ]; } # the owner's beat may fall between the two
until_true silent; ok $? "a run whose owner records nothing for minutes is listed as silent"
shown() { quiet; tern ledger show orphan --ledger ledger | grep -q '^ *state *silent'; }
until_true shown; ok $? "tern ledger show has the silent run, too"
if long; then until_true listed; ok $? "a silent run is listed as running again at the owner's next heartbeat"; fi
kill -9 $sup; ended; quiet
is "$(state silent)" "orphan|silent" "a run whose owner was killed is listed as silent"
is "$(tern ledger show orphan --ledger ledger --attempts -n -P -o outcome)" "no end" "the attempt of a killed owner has no end"
until_true sh -c '! kill -0 $(cat pid)'; ok $? "when the supervisor is killed, no rank stays"

# ---- the same run again; only one owner
recipe known 'echo >>count; [ -z "$WAIT" ] || { echo $$ >pid; exec sleep 300; }' 1 'checkpoint: {dir: ck}'
run tern run known.yaml; status 0
run tern run known.yaml; status 0
is "$(attempts attempt known | tr '\n' ' ')" "1 2 " "a recipe with a checkpoint folder is one run, with two attempts"
is "$(attempts 'distinct run_id' known | wc -l)" 1 "attempts with one checkpoint folder have one run id"
rm -f count; WAIT=1 supervise known.yaml
run tern run known.yaml
[ $rc != 0 ]; ok $? "a second owner while the first lives is refused"
one_line; [ ! -s count ] || is "$(wc -l <count)" 1 "a refused second owner starts no rank"
kill $sup; ended

# ---- mistakes
rm -rf elsewhere; mkdir elsewhere; cd elsewhere || exit 1
printf 'version: 1\nname: x\nledgr: {dir: ledger}\n' >bad.yaml
for c in "run --check" run submit; do
    run tern $c bad.yaml; status 2 "tern $c: a wrong key"; one_line; err_has 'bad.yaml:3: ledgr'
done
run tern run nothing.yaml; status 2 "a recipe that is not there"; one_line
run tern run; status 2 "tern run without a recipe is refused"; one_line; err_has '--tern=RECIPE'
SLURMD_NODENAME=n1 SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern=x run tern run; status 75 "--tern, and no plugin on the node"
one_line; err_has 'plugstack.conf'
in_job() { run env SLURMD_NODENAME=n1 SLURM_JOB_ID=7 SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern=x "$@" tern run; }
for marker in 7.0.1.1 8.batch.1.1 7.batch 7.batch. 7.batch.1. 7.batch.1.x '7.batch.1.1 ' %s%n ''; do
    in_job TERN_MARKER="$marker"; status 75 "marker '$marker' is of another task, or none"; one_line; err_has 'did not run on node n1'
done
in_job TERN_MARKER=7.batch.2.0; status 75 "a plugin of another major version"; one_line; err_has 'version 2.0'
for marker in 7.batch.1 7.batch.1.0 7.batch.1.9; do
    in_job TERN_MARKER=$marker; status 2 "marker $marker: another minor version is accepted"; err_has 'than this tern'; err_has 'no recipe'
done
in_job TERN_MARKER=7.batch.1.1; status 2; one_line "a plugin of the same version is not logged"
in_job TERN_RECEIPT=7.batch.1.1; status 2; one_line "TERN_RECEIPT, the marker of a plugin before 0.4, is accepted"
in_job TERN_MARKER=8.batch.1.1 TERN_RECEIPT=7.batch.1.1; status 2; one_line "a marker that another job left does not hide TERN_RECEIPT"
in_job TERN_MARKER=7.3.1.1 SLURM_STEP_ID=3; status 2; one_line "the marker of a step"
in_job TERN_MARKER=7.batch.1.1 SLURM_STEP_ID=4294967290; status 2; one_line "the marker of salloc's interactive step"
in_rank() { run env SLURMD_NODENAME=n1 SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern=x "$@" tern train ../good.yaml; }
in_rank; status 75 "tern train asks for the marker itself"; one_line; err_has 'did not run on node n1'
in_rank TERN_MARKER=7.batch.1.1; status 75 "the batch script's marker is not a rank's"; one_line; err_has 'did not run on node n1'
in_rank TERN_MARKER=7.0.1.1; status 2 "with a marker of its own the rank reads the recipe"; one_line; err_has 'workload.command'
SLURM_JOB_ID=1 run tern run ../good.yaml; status 2 "a job without its node list"; one_line
run tern run --set name=bad/name ../good.yaml; status 2; one_line
printf 'version: 1\nname: t\nmodel: {config: none.json}\ndata: {train: [{path: t.tds}]}\nbatch: {global: 8, seq_len: 16}\nsteps: 2\noptimizer: {lr: 1e-3}\ncheckpoint: {dir: ck}\nledger: {dir: ledger}\n' >bad.yaml
for c in "run --check" run submit; do
    run tern $c bad.yaml; [ $rc != 0 ]; ok $? "tern $c: a model that is not there"; one_line; err_has none.json
done
[ "$(ls)" = "$(printf 'bad.yaml\nerr\nout')" ]; ok $? "a refused run writes no file" || ls
cd ..
touch file; run tern run good.yaml --set ledger.dir=file; [ $rc != 0 ]; ok $? "a ledger folder that is a file"; one_line

# ---- names that commands would take for options
for name in latest Latest best BEST -x .x; do
    recipe "n$name" true; sed -i "s/^name: .*/name: '$name'/" "n$name.yaml"
    run tern run --check "n$name.yaml"; status 2 "a run called '$name'"; one_line
done
recipe bestof true; run tern run --check bestof.yaml; status 0 "a run may be called 'bestof'"

# ---- what --check costs sbatch
start=$(date +%s%N); for _ in 1 2 3 4 5; do tern run --check good.yaml; done
echo "# tern run --check takes $((($(date +%s%N) - start) / 5000000)) ms"

# ---- tern submit
run tern submit good.yaml -N 4 --set 'name=a-b' --dry-run -- --time=8:00:00
status 0
out_has "sbatch --job-name=a-b --nodes=4 --ntasks-per-node=3 --exclusive --requeue --open-mode=append"
out_has "'--comment=<new id>' --tern=$WORK/good.yaml --time=8:00:00 '--wrap=exec" "a new run's id is in the job's Comment"
out_has "/tern run --set name=a-b $WORK/good.yaml'"
for form in --comment=mine '--comment mine' --com=mine; do
    run tern submit good.yaml --dry-run -- -p x $form --time=8:00:00
    out_has "'--comment=<new id> mine' --tern=$WORK/good.yaml -p x --time=8:00:00 '--wrap=exec" "$form stands behind the run's id"
done
run tern submit good.yaml --array data.seed=5,6 --dry-run -- --comment=mine
out_has " --comment=mine '--wrap=exec" "a Comment of an array is the user's alone"
sed 's/^launch:/lanch:/' good.yaml >odd.yaml
run tern submit odd.yaml --dry-run; status 2 "tern submit refuses a recipe with errors"
recipe wrong 'true' 1 'steps: 0'
run tern submit wrong.yaml --dry-run; status 2 "tern submit refuses a recipe with a bad value"
run tern submit wrong.yaml --dry-run --set steps=4; status 0 "a recipe that --set makes valid is accepted"
grep -q -- --tern= out; [ $? = 1 ]; ok $? "a recipe valid only with --set is submitted without --tern" || cat out
err_has 'without --tern'
run tern submit 'good.yaml' --dry-run --no-plugin --set "workload.command=[a, \"it's\"]"
grep -q -- --tern= out; [ $? = 1 ]; ok $? "--no-plugin leaves out --tern"
run env SLURM_CONF=/nonexistent tern submit good.yaml; status 1 "tern submit without Slurm is an error"; one_line; err_has 'tern cluster exec NAME'
export SLURM_CONF=$WORK/slurm.conf; : >slurm.conf
mkdir fake; printf '#!/bin/sh\nprintf "<%%s>\\n" "$@"\nexit 7\n' >fake/sbatch; chmod +x fake/sbatch
PATH=$WORK/fake:$PATH run tern submit known.yaml -N 2
status 7 "tern submit has sbatch's exit status"
out_has "<--comment=$(attempts 'distinct run_id' known)>" "a run that goes on is named in the job's Comment"
PATH=$BIN run "$BIN/tern" submit good.yaml; status 1 "tern submit without sbatch is an error"; one_line; err_has 'sbatch'
# ---- checks before the job is queued
tiny=$ROOT/tests/golden/spm-bpe-800.model
mkdir -p shape; cat >shape/config.json <<'J'
{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
 "num_key_value_heads": 8, "vocab_size": 800, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05}
J
cp "$tiny" shape/tokenizer.model
printf '{"text": "the cat sees the dog"}\n' >t.jsonl
tern data build --tokenizer shape -o t.tds t.jsonl 2>/dev/null
cat >nxd.yaml <<'Y'
version: 1
name: nxd
model: {config: shape/config.json, tokenizer: shape}
data: {train: [{path: t.tds}]}
batch: {global: 512, micro: 1, seq_len: 4096}
parallel: {tensor: 8, pipeline: 8}
ledger: {dir: ledger}
workload: {command: [torchrun, train.py], workers_per_node: 32}
Y
run tern run --check nxd.yaml; status 0 "a workload with model, data and degrees in its recipe is checked"
run tern run --check nxd.yaml --nodes 8 --ntasks 8; status 0 "a workload that fits its nodes and tasks is accepted"
run tern run --check nxd.yaml --nodes 3 --ntasks 3; status 2 "TP x PP that does not divide the ranks is refused"
err_has 'nxd.yaml:6: parallel: 96 ranks are not a multiple of tensor x pipeline (64)'
run tern run --check nxd.yaml --nodes 10; status 2 "a batch that does not divide"; err_has 'nxd.yaml:5: batch.global: 512'
run tern run --check nxd.yaml --nodes 4 --ntasks 6; status 2 "tasks that differ between nodes are refused"; err_has 'every node must have as many'
run tern run --check nxd.yaml --set parallel.tensor=12; status 2 "tensor groups that do not fit a node are refused"
err_has 'parallel.tensor: groups of 12 ranks do not fit nodes of 32'
run tern run --check nxd.yaml --set batch.seq_len=8192; status 2 "rows longer than the model's are refused"
sed 's/"vocab_size": 800/"vocab_size": 700/' shape/config.json >small.json
run tern run --check nxd.yaml --set model.config=small.json; status 2 "a set of another vocabulary"; err_has 't.tds: was tokenised'
sed 's/, tokenizer: shape//' nxd.yaml >blind.yaml
for n in 927 928; do sed "s/\"vocab_size\": 800/\"vocab_size\": $n/" shape/config.json >wide$n.json; done
run tern run --check blind.yaml --set model.config=wide927.json; status 0 "a padded vocabulary without a tokenizer is accepted"
run tern run --check blind.yaml --set model.config=wide928.json; status 2 "a vocabulary with more padding than any tokenizer needs is refused"; one_line
err_has 'blind.yaml:4: data.train: ' "at the line of the data"; err_has 'was tokenised with 800 ids, but the model'; err_has 'has 928, and padding cannot explain 128 more'
run tern run --check nxd.yaml --set model.config=wide928.json; status 0 "the tokenizer of the recipe decides about the vocabulary"
# The same size, another vocabulary, known from tokenizer.json alone.
mkdir other; cp shape/config.json other
awk 'BEGIN {printf "{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {"
    for (i = 0; i < 800; i++) printf "%s\"p%d\": %d", i ? ", " : "", i, i; print "}}}"}' >other/tokenizer.json
run tern run --check nxd.yaml --set model.tokenizer=other; status 2 "a set of another vocabulary of the same size"; one_line
err_has "nxd.yaml:4: data.train: t.tds: was tokenised with another vocabulary than the model's (tokenizer.json)"
run tern run --check nxd.yaml --set model.tokenizer=other/tokenizer.json; status 2 "tokenizer.json may be named itself"
echo '{' >other/tokenizer.json
run tern run --check nxd.yaml --set model.tokenizer=other; status 0 "a tokenizer that cannot be read refuses nothing"
err_has "by size alone" "a check by size alone is logged"
run tern run --check nxd.yaml --set parallel.pipeline=3 --set batch.global=510; status 2 "a batch that divides over no number of nodes"; one_line
err_has 'batch.global: 510 sequences divide over no number of nodes: with 32 ranks a node and tensor x pipeline (24) the data-parallel ranks are a multiple of 4; times batch.micro, use a multiple of 4.'
run tern run --check nxd.yaml --set parallel.pipeline=3; status 0 "a batch that divides over 3 nodes, 6, 12 ... is accepted"
run tern submit --dry-run nxd.yaml --set parallel.pipeline=3; status 0; out_has '--nodes=3 ' "tern submit takes the fewest nodes that divide"
run tern submit --dry-run nxd.yaml; status 0; out_has '--nodes=2 --ntasks-per-node=1 ' "tern submit: nodes for the degrees"
run tern submit --dry-run nxd.yaml --set launch.spares=1; status 0; out_has '--nodes=3 ' "tern submit adds the nodes in reserve"
run tern submit --dry-run nxd.yaml -N 3; status 2 "tern submit: nodes that do not fit the degrees"
for o in '-N 3' -N3 --nodes=3 '--nodes 3'; do
    run tern submit --dry-run nxd.yaml -N 2 -- --exclusive $o; status 2 "nodes that do not fit are refused also as sbatch's $o"
    err_has '96 ranks are not a multiple of tensor x pipeline (64)'
done
run tern submit --dry-run nxd.yaml -- -N 4; status 0; out_has '--nodes=4 ' "nodes given to sbatch that fit are used"
run tern submit --dry-run nxd.yaml -- -N 2-4; status 0; out_has '--nodes=2 ' "Slurm chooses from a range of nodes"
sed '/^workload/d; /^parallel/d; s/^batch.*/batch: {global: 8, micro: 1, seq_len: 4096}\nsteps: 9\ncheckpoint: {dir: ck}\noptimizer: {lr: 1.0e-4}/' nxd.yaml >big.yaml
run env SLURM_CONF=/nonexistent tern run --check big.yaml; status 2 "a model that does not fit the memory is refused"
err_has 'big.yaml:3: model: 1 rank of 1.' "with the line"; err_has 'this machine has'

# ---- job arrays
run tern submit --dry-run good.yaml --array 'launch.threads=1,2' --array name=a,b; status 0
out_has '--array=0-3 --tern='; out_has "--array launch.threads=1,2 --array name=a,b $WORK/good.yaml'" "the batch script of an array uses its member number"
err_has 'member 2: launch.threads=2,name=a'
run tern submit --dry-run good.yaml --set checkpoint.dir=base --array checkpoint.dir=far/a,far/b; status 0; err_has "member 1: checkpoint.dir=far/b, in $WORK/far/b" "values of checkpoint.dir in an array are used as they are"
run tern submit --dry-run good.yaml --array checkpoint.dir=far/a,far/b --array launch.threads=1,2; status 0; err_has "member 3: checkpoint.dir=far/b,launch.threads=2, in $WORK/far/b/launch.threads=2" "members that share a checkpoint.dir get folders below it"
run tern submit --dry-run good.yaml --array steps=0,3; status 2 "an array with a member that cannot work is refused"; err_has '--array, steps=0: '
for bad in steps 'steps=' 'steps=1,,2' '=1'; do
    run tern submit --dry-run good.yaml --array "$bad"; status 2 "submit refuses --array $bad"; one_line
done
run tern submit --dry-run good.yaml --array "launch.threads=1,2,1"; status 2 "a value twice"; err_has 'the value 1 is given twice'
long=$(printf '%0300d' 0)
run tern submit --dry-run known.yaml --no-plugin --array "workload.command=[a/b],[a_b],[$long]"; status 0 "values that are no folder names get folders, too"
grep -o ', in .*' err | sed 's/.*,//' | sort -u >dirs; is "$(wc -l <dirs) $(awk -F/ 'length($NF) > 255' dirs | wc -l)" "3 0" "each member of an array has a folder of its own"
run tern submit --dry-run good.yaml --array "steps=$(seq -s, 1001)"; status 2 "an array of 1001 members is refused"; err_has 'more than 1000'
run tern run good.yaml --array steps=1,2; status 2 "outside an array"; err_has 'SLURM_ARRAY_TASK_ID'
SLURM_ARRAY_TASK_ID=2 run tern run good.yaml --array steps=1,2; status 2 "a member number outside the array is refused"
SLURM_ARRAY_TASK_ID=1 run tern run good.yaml --array launch.threads=1,2 --ranks 1; status 0
is "$(last outcome good.threads-2)" done "a member runs under its name"
run tern run --check good.yaml --array steps=1,0; status 2 "tern run --check looks at every member"; err_has 'steps=0: '

# ---- the same run again
run tern ledger reproduce good --ledger ledger; status 0
out_has "#     tern run $PWD/again.yaml" "tern ledger reproduce: the command"; out_has "ranks_per_node: 2"; out_has "# identity $(sqlite3 ledger/ledger.db "select identity_hash from run where name = 'good' limit 1")"
out_has 'workload: {command: [bash, good.sh], tasks_per_node: 3}' "the reproduced recipe is the same"
cp good.yaml kept; echo '# more' >>good.yaml
run tern ledger reproduce good --ledger ledger --check; status 1 "reproduce --check of a recipe that was changed compares nothing"; one_line
cp kept good.yaml
printf 'version: 1\nname: ends\nworkload: {command: [echo, "w{workers} x{world}"], workers_per_node: 4}\nledger: {dir: ledger}' >noeol.yaml
run tern run noeol.yaml --set launch.threads=2 --set name=noeol; status 0 "a recipe without a final newline is reproduced"
run tern ledger reproduce noeol --ledger ledger; status 0
out_has 'launch: {threads: 2}' "is reproduced with its settings"; cp out again.yaml
sh -c "$(sed -n 's/^#     \(tern run.*\)/\1/p' again.yaml)" >out 2>err; has out 'w4 x4' "the reproducing command works with the workload's ranks"
for db in ledger/runs/*/run.db; do forge "$db" "update run set model = 'm' || char(10) || 'touch owned'" 2>/dev/null; done
run tern ledger reproduce good --ledger ledger; status 0
out_has 'm?touch owned'; [ "$(grep -c '^touch' out)" = 0 ]; ok $? "the reproducing command holds no text of the ledger but the recipe"
run tern ledger reproduce nobody --ledger ledger; status 2; one_line
cp -a ledger lists
for text in '- version: 1' 'a scalar'; do
    for db in lists/runs/*/run.db; do forge "$db" "update run set recipe = '$text'; update attempt set recipe = '$text'" 2>/dev/null; done
    run tern ledger reproduce good --ledger lists; status 2 "a recipe in the ledger that is no map is an error"; err_has "where a map (key: value) is expected"; one_line
done
rm -rf lists
run tern ledger show good --ledger ledger --health; status 0
tap_done
