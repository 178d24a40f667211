#!/bin/bash
# DIR/best and DIR/latest: which checkpoint is the best, that it stays, and everything that takes one by these words.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
tiny_make 2>/dev/null || skip_all "cannot make the tiny setting"
# One sentence over and over: the held-out loss falls, and rises again.
printf '{"text": "the cat sees a dog on the old river stone. the cat runs in a house."}\n' >few.jsonl
tern data build --tokenizer model -o data/few.tds few.jsonl 2>/dev/null
sed -i 's,data/train.tds,data/few.tds,; s/^steps: .*/steps: 40/; s/^optimizer: .*/optimizer: {lr: 1.0e-2, weight_decay: 0}/; s/^schedule: .*/schedule: {kind: constant, warmup: 2}/
    s/^checkpoint: .*/checkpoint: {dir: checkpoints, every: 2, keep: 2}\nevaluate: {every: 2}/' run.yaml
best_of() { tern ledger best held latest --ledger "$1" -c 1 -P -n -o "$2"; }
steps_in() { ls "$1" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | sort -n | tr '\n' ' '; }
folder() { printf 'step-%08d' "$1"; }

# ---- it stays, also without evaluate.stop, and so does what a person has named
run tern run run.yaml --ranks 1 --set launch.stop_at=4; status 76 "a run without evaluate.stop is stopped"
ln -s step-00000002 checkpoints/gold
run tern run run.yaml --ranks 1; status 0 "a run with a best checkpoint goes on to its end"
best=$(best_of ledger step)
[ "$best" -gt 2 ] && [ "$best" -lt 36 ]; ok $? "its best evaluation is neither its first nor one of its last" || best_of ledger step
is "$(steps_in checkpoints)" "2 $best 38 40 " "the newest two stay, the checkpoint of the best evaluation, and the one that a symbolic link names"
is "$(best_of ledger checkpoint)" "$WORK/checkpoints/$(folder "$best")" "tern ledger best names a checkpoint that is there"
# A metric is no held-out set: retention does not know what it was asked for.
run tern ledger best held latest -c 1; grep -q retention err; [ $? = 1 ]; ok $? "tern ledger best of a held-out set: the checkpoint stays, and nothing is said" || cat err
run tern ledger best loss latest -c 40; is "$(awk '$2 == 36' out | grep -c '(gone)$')" 1 "tern ledger best of a metric: a checkpoint that retention has removed is gone"
is "$(tern ledger best loss latest -c 40 -P -n -o step,checkpoint | grep '^36|')" "36|" "tern ledger best -P: it is an empty field"
run tern ledger best mix/data/few.tds/tokens latest --max -c 1 -o step; is "$(tail -n 1 out | tr -d " ")" 40 "the greatest number of tokens is the last step's"
err_has "retention may remove the checkpoint of step 40" "tern ledger best of a metric tells that its checkpoint may go"
link=$(sed -n 's/.* keeps it: \(ln -s .*\)NAME$/\1most/p' err); $link; [ "$(readlink -f checkpoints/most)" = "$WORK/checkpoints/step-00000040" ]; ok $? "tern ledger best has the command that keeps the checkpoint, a link to it"
rm checkpoints/most; mv checkpoints/step-00000040 aside
run tern ledger best mix/data/few.tds/tokens latest --max -c 1; out_has '(gone)' "tern ledger best: a checkpoint that was moved away is shown as gone"; err_has "the checkpoint of step 40 is gone"
mv aside checkpoints/step-00000040
run tern ckpt prune --keep 2 checkpoints; status 0; out_has "nothing is to be removed"
rm checkpoints/gold
run tern ckpt prune --keep 2 checkpoints; status 0; is "$(steps_in checkpoints)" "$best 38 40 " "without its link a checkpoint is pruned"

# ---- each command and key that takes a checkpoint knows both words
printf '{"context": "the cat", "choices": ["sees a dog", "a on the"], "answer": 0}\n' >items.jsonl
for word in best latest; do
    step=$best; [ $word = best ] || step=40
    at=checkpoints/$(folder "$step") typed=checkpoints/$word
    run tern ckpt show $typed; status 0 "tern ckpt show $word"; out_has "step $step,"
    run tern ckpt verify --full $typed; status 0 "tern ckpt verify $word"; out_has "$at"
    run tern ckpt diff --full $typed "$at"; status 0 "tern ckpt diff $word"
    run tern ckpt export $typed -o hf-$word; status 0 "tern ckpt export $word"
    run tern ckpt diff --full hf-$word "$at"; status 0 "tern ckpt export $word takes that checkpoint"
    run tern ckpt blend $typed "$at" -o mean-$word --base $typed --method ties; status 0 "tern ckpt blend $word"
    run tern ckpt reshard $typed -o shards-$word --shards 2; status 0 "tern ckpt reshard $word"; is "$(steps_in shards-$word)" "$step " "tern ckpt reshard $word takes that checkpoint"
    run tern generate $typed --ids -n 2 -p "the cat"; status 0 "tern generate $word"
    run tern eval $typed --choices items.jsonl; status 0 "tern eval $word --choices"
    for c in $word $typed; do
        run tern eval run.yaml -c $c --json; status 0 "tern eval -c $c"; has out "$at\""
    done
    run tern eval run.yaml --checkpoints $word; status 0 "tern eval --checkpoints $word"; is "$(awk 'NR == 2 {print $1}' out)" "$step" "tern eval --checkpoints $word takes that checkpoint"
    # model.from
    sed "s,^model: .*,model: {from: $typed},; s/^name: .*/name: next/; s/^checkpoint: .*/checkpoint: {dir: next-$word}/; s/^steps: .*/steps: 2/" run.yaml >next.yaml
    run tern run --check next.yaml; status 0 "a recipe whose model.from is $word passes --check"
    run tern train --explain next.yaml; status 0 "tern train --explain knows model.from: $word"
    run tern data sample --text next.yaml 0; status 0 "tern data sample finds the tokenizer of model.from: $word"
    run tern run next.yaml --ranks 2 --set ledger.dir=ledger-$word; status 0 "a run begins with model.from: $word"
    err_has "beginning from $WORK/$at"
    is "$(tern ledger sql --ledger ledger-$word -r latest -n -P "select printf('%.4f', ppl_token) from eval where step = 0")" "$(tern ledger sql --ledger ledger -r latest -n -P "select printf('%.4f', ppl_token) from eval where step = $step")" "the model that model.from: $word names begins with the perplexity of that checkpoint"
    run tern run next.yaml --ranks 1 --set ledger.dir=ledger-$word --set steps=3; status 0 "a run that began with model.from: $word goes on"
    run tern eval next.yaml -c latest; status 0; out_has "before" "tern eval compares with model.from: $word"
done
mkdir kept; mv checkpoints/$(folder 40) kept/latest
run tern ckpt show kept/latest; status 0 "a folder that is called latest is that folder"; out_has "step 40,"
mv kept/latest "checkpoints/$(folder 40)"

# ---- ranks that see different newest checkpoints, as while that run goes on: all take that of rank 0
if unshare -m true 2>/dev/null; then
    sed -i 's/dir: next-latest/dir: two/' next.yaml
    cp -r checkpoints behind; rm -r "behind/$(folder 40)"
    views() { # COMMAND...: two ranks of it, with rank 0 behind; their words go into two.0 and two.1
        "$TOOLS/fabric-faults" meet 2 127.0.0.1 >address & meet=$!
        until_true [ -s address ]
        ranks=()
        for r in 0 1; do
            view=(); [ $r = 1 ] || view=(unshare -m sh -c 'mount --bind behind checkpoints && exec "$@"' sh)
            "${view[@]}" env SLURMD_NODENAME=n SLURM_PROCID=$r SLURM_LOCALID=$r SLURM_NTASKS=2 TERN_RUN_SOCKET="$(cat address)" TERN_DEADLINE=20 \
                timeout 600 "$@" >two.$r 2>two.$r.err & ranks+=($!)
        done
        wait "${ranks[@]}"; kill $meet 2>/dev/null; rm address
    }
    views tern train next.yaml
    has two.0.err "beginning from checkpoints/$(folder 38)"
    run tern run next.yaml --ranks 2 --set checkpoint.dir=one --set ledger.dir=ledger-one --set "model={from: checkpoints/$(folder 38), tokenizer: model}"; status 0
    digests() { tern ckpt show $1/latest --json | grep '"sha256"' | sort; }
    digests one >one.digests; digests two | cmp -s - one.digests; ok $? "ranks that see different newest checkpoints begin with the weights of one" || cat two.*
    at=checkpoints/$(folder 38)
    one_of() { # NAME COMMAND...: checkpoints/latest in it means what rank 0's newest one means
        local name=$1; shift
        views "${@//checkpoints\/latest/$at}"; mv two.0 one.0
        views "$@"
        [ -s one.0 ] && cmp -s one.0 two.0; ok $? "$name, of ranks that see different newest checkpoints, reads one" || cat one.0 two.*
    }
    one_of "tern eval beside model.from" tern eval next.yaml -c two/latest --set model.from=checkpoints/latest --json
    one_of "tern eval -c" tern eval next.yaml --only -c checkpoints/latest --json
    one_of "tern eval --choices" tern eval checkpoints/latest --choices items.jsonl --json
else
    skip "no mount namespaces"
fi

# ---- no checkpoint is the best
rm -rf "checkpoints/$(folder "$best")"
run tern ckpt show checkpoints/best; status 2 "the best checkpoint is gone"; one_line
err_has "the best evaluation was at step $best, and no checkpoint of that step or before it is there"
rm -rf checkpoints
run tern run run.yaml --ranks 1 --set ledger.dir=worse --set optimizer.lr=0 --set steps=4; status 0 "a run that makes nothing better"
for how in "ckpt show checkpoints/best" "eval run.yaml -c best" "generate checkpoints/best --ids -p a"; do
    run tern $how; status 2 "tern $how: the best evaluation is that of step 0"; one_line
    err_has "checkpoints: the best evaluation was that of step 0, before any training: no checkpoint is as good as the random weights, which the run began with"
done
rm -rf checkpoints
run tern run run.yaml --ranks 1 --set ledger.dir=worse-2 --set optimizer.lr=0 --set steps=4 --set "model={from: hf-latest}"; status 0
run tern ckpt show checkpoints/best; status 2; err_has "no checkpoint is as good as $WORK/hf-latest, which the run began with"
rm -rf checkpoints
run tern run run.yaml --ranks 1 --set ledger.dir=none --set steps=2 --set data.held_out='[]' --set evaluate.every=0; status 0
run tern ckpt show checkpoints/best; status 2 "a run without a held-out set has no best checkpoint"; one_line; err_has "no best evaluation is recorded: its run has no data.held_out"
rm -rf checkpoints

# ---- the best evaluation of each held-out set, also of one that DIR/best does not go by
sets=(--set ledger.dir=each --set 'data.held_out=[{name: seen, path: data/few.tds}, {name: held, path: data/test.tds}]')
run tern run run.yaml --ranks 1 "${sets[@]}" --set launch.stop_at=20; status 76
run tern run run.yaml --ranks 1 "${sets[@]}"; status 0
seen=$(tern ledger best seen latest --ledger each -c 1 -P -n -o step) held=$(best_of each step)
[ "$held" -lt 20 ] && [ "$seen" -gt "$held" ]; ok $? "two held-out sets are best at different steps" || tern ledger best held latest --ledger each
all=$(printf '%s\n' "$held" "$seen" 38 40 | sort -nu | tr '\n' ' ')
is "$(steps_in checkpoints)" "$all" "the checkpoint of each held-out set's best evaluation stays"
is "$(best_of each checkpoint)" "$WORK/checkpoints/$(folder "$held")" "tern ledger best of the second set names a checkpoint that is there"
run tern ckpt prune --keep 2 checkpoints; status 0; is "$(steps_in checkpoints)" "$all" "tern ckpt prune keeps them, too"
rm -rf checkpoints

# ---- checkpoints under other steps' names alone: with a supervisor or without one, they keep their names
run tern run run.yaml --ranks 1 --set ledger.dir=copies --set steps=4; status 0
mv checkpoints/step-00000004 checkpoints/step-00000009; rm -r checkpoints/step-00000002
for by in train run; do
    run tern $by run.yaml --set ledger.dir=copies --set steps=4; status 1 "tern $by: the only checkpoint has another step's name"
    err_has "holds 1 checkpoint, and none is whole"; err_has "Name the folder step-00000004"
    is "$(ls checkpoints | grep step-)" step-00000009 "tern $by: the only checkpoint keeps its name"
done
mv checkpoints/step-00000009 checkpoints/step-00000004
run tern train run.yaml --set steps=4; status 0 "named as tern says, it is taken"; err_has "nothing is left to do"
tap_done
