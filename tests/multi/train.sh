#!/bin/bash
# The trainer as its user sees it: text in, checkpoints, resume, evaluation, export.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make

# One rank, whole, on its own.
run tern train run.yaml
status 0 "a run of 8 steps"
err_has "step 8/8" "a run's log has its last step"
err_has "perplexity" "held-out sets are evaluated"
run tern ckpt verify --full checkpoints/latest
status 0 "the last checkpoint verifies"
tiny_digests >whole

# Again: nothing is left to do, and it says so without harm.
run env OPENBLAS_CORETYPE=Haswell LD_DEBUG=files LD_DEBUG_OUTPUT="$WORK/loaded" tern train run.yaml
status 0 "a finished run is not run again"
err_has "nothing is left to do"
# Debian's OpenMP build is looked for first. Where OpenBLAS mistakes the CPU, it is loaded anew.
if grep -qh 'calling init:.*openblas-openmp' loaded.*; then
    is "$(cat loaded.* | grep -c 'calling init:.*openblas')" 1 "OpenBLAS is loaded once"
fi

# A damaged newest checkpoint, cut short or with a flipped byte, is set aside and made again.
shard() { ls checkpoints/step-00000008/shard-*; }
truncate -s -1 "$(shard)"
run tern train run.yaml
status 0 "the newest checkpoint is cut short: the run goes on from the one before"
[ -d checkpoints/step-00000008.bad-1 ]; ok $? "the damaged one is kept under another name"
tiny_digests | cmp -s - whole
ok $? "the step of a checkpoint cut short is made again with the same weights, to the last bit"
printf 'flip' | dd of="$(shard)" bs=1 seek=$(($(stat -c %s "$(shard)") - 100)) conv=notrunc 2>/dev/null
run tern train run.yaml
status 0 "the newest checkpoint has flipped bytes: likewise"
err_has "does not match its digest"
tiny_digests | cmp -s - whole
ok $? "the step of a checkpoint with flipped bytes is made again with the same weights"
# A copy under a later step's name, and a link: no command takes them for that step, with a
# supervisor or without one.
for by in train run; do
    for how in "cp -r" "ln -s"; do
        long || [ "$by $how" != "run cp -r" ] || continue
        rm -rf checkpoints/*.bad-*; mv checkpoints/step-00000008 kept8
        $how "$([ "$how" = "ln -s" ] || echo checkpoints/)step-00000007" checkpoints/step-00000008
        run tern ckpt verify checkpoints/step-00000008; [ $rc != 0 ]; ok $? "$by: $how: tern ckpt verify sees it"
        run tern $by run.yaml; status 0 "$by: a run trains where $how"; err_has "going on after step 7 "
        [ -e checkpoints/step-00000008.bad-1 ] || [ -L checkpoints/step-00000008.bad-1 ]; ok $? "$by: $how: the checkpoint under a later step's name is set aside"
        tiny_digests | cmp -s - whole; ok $? "$by: $how: the step is made"
        rm -rf kept8
    done
done
# Where no checkpoint is whole a run does not begin from nothing by itself.
cp -r checkpoints kept
for by in $(long && echo train) run; do
    rm -rf checkpoints; cp -r kept checkpoints; rm -rf checkpoints/*.bad-*
    for s in checkpoints/step-*; do printf 'flip' | dd of="$(ls "$s"/shard-* | head -1)" bs=1 seek=3000 conv=notrunc 2>/dev/null; done
    run tern $by run.yaml; status 1 "$by: all damaged"
    err_has "checkpoints, and none is whole"; err_has "To begin from nothing, remove or move them"
    run tern $by run.yaml; status 1 "$by: all damaged, a second time"; err_has "none is whole"
    rm -rf checkpoints/*.bad-*
    run tern $by run.yaml; status 0 "$by: a person removed them"; err_has "beginning from random weights"
done
rm -rf checkpoints; mv kept checkpoints; rm -rf checkpoints/*.bad-*
# An evaluation that takes long, stopped: the one of step 0 is made up for, from the model that the run
# began with; the one of the last step comes after its checkpoint.
if [ -n "${TERN_SANITIZE-}" ]; then
    skip "evaluations that are held: the sanitizer wants to be loaded first"
else
tiny_make_long
sed 's,data/test.tds,data/long.tds,; s/dir: checkpoints/dir: long/; s/dir: ledger/dir: ledger9/' run.yaml >long.yaml
tern run long.yaml --ranks 1 --set checkpoint.dir=short --set ledger.dir=ledger10 2>/dev/null
step0=$(tern ledger sql -l ledger10 -r latest -n -P "select nll / tokens from eval where step = 0")
for ranks in $(long && echo 1) 2; do
    rm -rf long ledger9
    tiny_hold tern run long.yaml --ranks $ranks
    kill -USR1 $pid; wait $pid; rc=$? cmd="$ranks ranks, SIGUSR1 in the evaluation of step 0"
    status 76; ! grep -q perplexity err; ok $? "$ranks: the evaluation of step 0 is not made to its end" || sed 's/^/# /' err
    [ -d long/step-00000000 ]; ok $? "$ranks: it stops with a checkpoint of step 0" || sed 's/^/# /' err
    HOLD_IF=$PWD/long/step-00000008 tiny_hold tern run long.yaml --ranks $ranks
    [ -d long/step-00000008 ]; ok $? "$ranks: the last step has its checkpoint before its evaluation"
    kill -USR1 $pid; wait $pid; rc=$? cmd="$ranks ranks, SIGUSR1 in the evaluation of the last step"
    status 76 "$ranks: stopped in the last evaluation, whose step has its checkpoint"
    ! grep -q 'step 8: held' err; ok $? "$ranks: the evaluation of the last step is not made to its end" || sed 's/^/# /' err
    run tern run long.yaml --ranks $ranks; status 0; err_has "going on after step 8"; err_has "step 8: held: perplexity"
    is "$(tern ledger sql -l ledger9 -r latest -n -P "select group_concat(step, ' ') from (select step from eval_effective order by step)")" "0 8" "$ranks: both are in the ledger"
    tern ledger sql -l ledger9 -r latest -n -P "select abs(nll / tokens - $step0) < 1e-9 from eval_effective where step = 0" | grep -q 1; ok $? "$ranks: step 0 has the perplexity of the first model"
    run tern run long.yaml --ranks $ranks; status 0; err_has "nothing is left"; grep -q perplexity err; [ $? = 1 ]; ok $? "$ranks: started once more it evaluates nothing"
done
run tern run long.yaml --ranks 2 --set steps=9 --set data.held_out='[{name: held, path: data/test.tds}]'; status 0
grep -q 'step 8: held' err; [ $? = 1 ]; ok $? "a run that goes on from a finished one does not evaluate its last step again"
rm -rf long short ledger9 ledger10
fi
run tern eval run.yaml --set batch.seq_len=128
status 2 "tern eval of rows longer than the model"; err_has "max_position_embeddings"

# Killed at some step by kill -9 and started again: the same bits.
for at in $(long && echo 2 5 7) 3; do
    rm -rf checkpoints
    tern train run.yaml 2>err & pid=$!
    tiny_wait_step $at $pid
    kill -9 $pid; wait $pid 2>/dev/null
    run tern train run.yaml
    tiny_digests >resumed
    [ -s whole ] && cmp -s whole resumed
    ok $? "killed after step $at, resumed: the same weights to the last bit"
done

# Asked to stop: a checkpoint, and 76.
rm -rf checkpoints
tern train run.yaml --set steps=4000 2>err & pid=$!
tiny_wait_step 2 $pid
kill -TERM $pid; wait $pid; rc=$? cmd="tern train, SIGTERM"
status 76
run tern ckpt verify checkpoints/latest
status 0 "a stopped run leaves a verified checkpoint"
rm -rf checkpoints

# Asked to stop in the middle of a long evaluation: it does not wait for its end.
if [ -z "${TERN_SANITIZE-}" ]; then
    tiny_hold tern train run.yaml --set data.held_out='[{name: long, path: data/long.tds}]'
    kill -TERM $pid; wait $pid; rc=$? cmd="tern train, SIGTERM while it evaluates"
    status 76; err_has "stopped after step 0 "
    ! grep -q perplexity err; ok $? "tern train does not wait for the end of an evaluation" || sed 's/^/# /' err
    rm -rf checkpoints
fi

# A look at ranks that are not there yet: nothing to see, and no end.
run env --block-signal=USR2 sh -c 'kill -USR2 $$; exec tern run run.yaml --ranks 1 --set ledger.dir=ledger6 --set steps=2'
status 0 "SIGUSR2 before the ranks were started"
rm -rf checkpoints

# Asked to stop where an evaluation is due: the next attempt makes up for it.
tern run run.yaml --ranks 1 --set ledger.dir=ledger4 --set steps=4000 --set evaluate.every=1 2>err & pid=$!
tiny_wait_step 2 $pid
kill -USR2 $pid # asks for a look, not for an end
tiny_wait_step 4 $pid
kill -USR1 $pid; wait $pid; rc=$? cmd="tern run, SIGUSR2 and then SIGUSR1"
status 76
[ -s "$(echo ledger4/runs/*/logs/1/fabric-rank-00000.tfr)" ]
ok $? "SIGUSR2 leaves the rank's dump beside its log, and the run goes on"
at=$(sed -n 's/.*stopped after step \([0-9]*\) .*/\1/p' err | head -n 1)
run tern run run.yaml --ranks 1 --set ledger.dir=ledger4 --set steps=$((at + 2)) --set evaluate.every=1
n=$(tern ledger sql --ledger ledger4 -r latest -n -P "select count(distinct step) from eval_effective")
[ "$n" = $((at + 3)) ]; ok $? "every step from 0 to $((at + 2)) is evaluated" || echo "# $n"
rm -rf checkpoints

# A rank on another node dies: the others' dumps name the rank that they waited for.
TERN_FABRIC_SHARE=1 tern run run.yaml --ranks 2 --set ledger.dir=ledger5 --set steps=4000 --set launch.restarts=0 2>err & pid=$!
tiny_wait_step 2 $pid
victim=$(for p in /proc/[0-9]*; do # of the run's ranks, that with number 1
    [ "$(tr '\0' '\n' 2>/dev/null <$p/environ | grep -c "^SLURM_PROCID=1$\|^TERN_RUN_LOGS=$PWD/ledger5/")" = 2 ] &&
        [ "$(cat $p/comm 2>/dev/null)" = tern-train ] && echo "${p#/proc/}"
done)
kill -9 $victim; wait $pid; rc=$? cmd="tern run, a rank killed"
status 75
err_has 'reports which rank was missing where'
run tern fabric flight-report ledger5/runs/*/logs/1
status 0
head -n 1 out | grep -q 'for rank 1 (.*), which has no dump: it died or was cut off'
ok $? "tern fabric flight-report names the rank" || sed 's/^/# /' out
rm -rf checkpoints

# Another learning rate is another run.
run tern train run.yaml --set steps=2
run tern train run.yaml --set optimizer.lr=2e-3
status 2 "another learning rate in the same folder is refused"
err_has "are not those" && one_error
run tern train run.yaml --set optimizer.lr=2e-3 --accept
status 0 "--accept goes on"
rm -rf checkpoints

# So is other text under the same name; the same text, built again, is not.
run tern train run.yaml --set steps=2
cp data/train.tds was.tds; rm data/train.tds
run tern data build --tokenizer model -o data/train.tds test.jsonl
run tern train run.yaml --set steps=3
status 2 "another token set under the same name is refused"
err_has "data/train.tds is another set than the one that" && one_error
run tern train run.yaml --set steps=3 --accept
status 0 "--accept goes on with it"
rm -rf checkpoints data/train.tds
run tern data build --tokenizer model -o data/train.tds train.jsonl
cmp -s data/train.tds was.tds; ok $? "a set built again is the same"
rm -rf checkpoints

# And another model: the checkpoint's goes on only when somebody says so.
run tern train run.yaml --set steps=2
cp model/config.json was.json
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 4/' model/config.json
run tern train run.yaml --set steps=3
status 2 "a model of another shape under the same name is refused"
err_has "model.config: " && err_has "is another model than" && one_error
sed 's/"llama"/"mistral"/' was.json >model/config.json
run tern train run.yaml --set steps=3
status 2 "a config of another model than Llama is refused"; err_has "mistral"
echo '{' >model/config.json
run tern train run.yaml --set steps=3
status 2 "a config that cannot be read is refused"; err_has "model/config.json"
sed 's/10000.0/10000.00000000001/' was.json >model/config.json
run tern train run.yaml --set steps=2
status 0 "a config whose numbers have other digits is no other model"
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 4/' was.json >model/config.json
run tern train run.yaml --set steps=3 --accept
status 0 "--accept goes on with the checkpoint's"; err_has "step 3/3"
run tern train run.yaml --set steps=4
status 0 "the attempt after --accept goes on without it"
cp was.json model/config.json
run tern run run.yaml --ranks 1 --set ledger.dir=ledger9 --set steps=5
status 2 "the one that it began with is another by now"
[ ! -e ledger9 ] || [ "$(tern ledger sql --ledger ledger9 -n -P "select count(*) from attempt")" = 0 ]
ok $? "refused before there is an attempt"
rm model/config.json
run tern train run.yaml --set steps=5
status 0 "a run whose config.json is gone goes on with the checkpoint's"; err_has "step 5/5"
cp was.json model/config.json
rm -rf checkpoints

# Where the rate falls to the last step, another last step is reported, also where tern run goes on
# with what tern train began.
run tern train run.yaml --set steps=4
run tern run run.yaml --ranks 2 --set ledger.dir=ledger10 --set steps=8
status 0 "a run begun by tern train goes on under tern run"
err_has "the run had 4 steps and has 8 now: step 5 goes on at a learning rate of 0.00055, where it had ended at 0.0001"
[ "$(grep -c 'the run had' err)" = 1 ]; ok $? "one of the ranks reports another last step"
rm -rf checkpoints
if long; then
    run tern train run.yaml --set steps=2 --set schedule.kind=constant --set schedule.min_lr=0
    run tern train run.yaml --set steps=4 --set schedule.kind=constant --set schedule.min_lr=0
    err_has "step 4/4"; ! grep -q 'the run had' err; ok $? "a constant rate: nothing to tell"
    rm -rf checkpoints
    run tern train run.yaml --set steps=4 --set checkpoint.keep=9
    rm -rf checkpoints/step-0000000[34]
    run tern run run.yaml --ranks 2 --set ledger.dir=ledger10 --set steps=6
    err_has "the run had 4 steps and has 6 now: step 3 goes on" && err_has "where it was to be"
    rm -rf checkpoints
fi

# What is refused before it begins takes no attempt's number: the ledger's have no hole.
run tern run run.yaml --ranks 1 --set ledger.dir=ledger7 --set steps=2
run tern run run.yaml --ranks 1 --set ledger.dir=ledger7 --set optimizer.lr=2e-3
status 2 "the recipe of another run is refused"; err_has "are not those" && one_error
run tern train run.yaml --set optimizer.lr=2e-3
status 2 "another run's recipe is refused by the trainer alone"
run tern run run.yaml --ranks 1 --set ledger.dir=ledger7 --set steps=3
status 0
n=$(tern ledger sql --ledger ledger7 -r latest -n -P "select group_concat(attempt) from attempt")
[ "$n" = 1,2 ]; ok $? "attempts 1 and 2, though two were refused between them" || echo "# $n"

rm -rf checkpoints

# Bad input: one line each, nothing half-written.
run tern train run.yaml --set data.train='[{path: none.tds}]' --set checkpoint.dir=new
status 2; err_has "none.tds"; one_error
head -c 300 data/train.tds >data/cut.tds
run tern train run.yaml --set data.train='[{path: data/cut.tds}]' --set checkpoint.dir=new
status 2; err_has "cut.tds"; one_error
[ ! -e new/step-00000001 ]; ok $? "a run with a damaged token set writes no checkpoint"

# Two ranks see the same samples as one: the same curve within rounding, and the same bits twice.
rm -rf checkpoints
run tern run run.yaml --ranks 2 --set ledger.dir=ledger2
status 0 "tern run trains on two ranks"
tiny_curve ledger2 >two
rm -rf checkpoints
run tern run run.yaml --ranks 1 --set ledger.dir=ledger1
status 0 "tern run trains on one rank"
tiny_curve ledger1 >one
[ "$(wc -l <one)" = 8 ] && paste one two | awk '{d = $1 - $2; if (d < 0) d = -d; if (!($1 > 0) || d > 1e-4 * $1) bad = 1} END {exit bad}'
ok $? "1 and 2 ranks: the same 8 losses within 1e-4" || paste one two | sed 's/^/# /'
rm -rf checkpoints
run tern run run.yaml --ranks 2 --set ledger.dir=ledger3
tiny_curve ledger3 | cmp -s - two
ok $? "2 ranks twice: the same losses to the last bit"

run tern eval run.yaml
status 0; out_has "held"
printf 'version: 1\nname: w\nledger: {dir: l}\nworkload: {command: ["true"]}\n' >workload.yaml
run tern eval workload.yaml
status 2 "tern eval of somebody else's trainer"; one_error
run tern ckpt export checkpoints/latest -o hf
status 0
for f in config.json model.safetensors tokenizer.model; do [ -s hf/$f ]; ok $? "the export has $f"; done
tern eval run.yaml --json 2>/dev/null | grep '"nll"' >a
tern eval run.yaml --checkpoint hf --json 2>/dev/null | grep '"nll"' >b
[ -s a ] && cmp -s a b
ok $? "the export is a model again, of the same perplexity"
run tern train run.yaml --set model.from=hf --set checkpoint.dir=more --set steps=2
status 2 "model.from and model.config together are refused"
sed 's/^model: .*/model: {from: hf}/; s/dir: checkpoints/dir: more/' run.yaml >cpt.yaml
run tern train cpt.yaml --set steps=2
status 0 "training goes on from the export"
tap_done
