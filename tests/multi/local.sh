#!/bin/bash
# checkpoint.local: checkpoints on the nodes first, and flushed to checkpoint.dir while training goes on.  Two
# nodes of two ranks on this machine: each has a folder of its own.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
. "$ROOT/tests/lib/saves.sh"
tiny_make || skip_all "cannot make the tiny setting"
export TERN_FABRIC_SHARE=2 RANKS=4
args=(--set steps=12 --set checkpoint.every=2 --set checkpoint.keep=9 --set "checkpoint.local=$WORK/local")
both() { tern run run.yaml --ranks 4 --set ledger.dir="$@" >out 2>err </dev/null; rc=$? cmd="tern run"; }
steps_in() { ls "$1" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tr '\n' ' '; }

both whole --set steps=12 --set checkpoint.every=2; tiny_digests >weights; tiny_curve whole >curve
rm -rf checkpoints

# ---- the bits of a run without it, whatever is saved
while read -r also sets; do
    [ "$also" = . ] || long || continue
    opts=(); for s in $sets; do opts+=(--set "$s"); done
    unset TERN_FABRIC_SHARE
    both without --set steps=5 --set checkpoint.every=2 --set checkpoint.keep=9 --set checkpoint.dir=ck-without "${opts[@]}"
    export TERN_FABRIC_SHARE=2
    [ -z "$sets" ] || opts+=(--set checkpoint.partner=true)
    both with --set steps=5 --set checkpoint.every=2 --set checkpoint.keep=9 --set checkpoint.keep_every=1 --set checkpoint.dir=ck-with --set checkpoint.local="$WORK/local" "${opts[@]}"
    status 0 "${sets:-as it is}: a run with checkpoint.local ends well"
    same=0 files=0
    for f in ck-without/step-*/*; do
        [ "${f##*/}" != manifest.json ] || continue
        files=$((files + 1)); cmp -s "$f" "ck-with/${f#ck-without/}" && same=$((same + 1))
    done
    [ $files -ge 15 ] && [ $same = $files ]
    ok $? "${sets:-as it is}: every file in checkpoint.dir has the bytes of a run without it" || echo "# $same of $files"
    tern ckpt verify --full ck-with >/dev/null 2>err2; ok $? "${sets:-as it is}: they verify" || cat err2
    is "$(ls local 2>&1)" "" "${sets:-as it is}: a finished run leaves nothing on the nodes"
    rm -rf ck-with ck-without with without
done <<'L'
.
+ checkpoint.async=false
+ parallel.zero=1
+ parallel.tensor=2 parallel.zero=1
+ parallel.pipeline=2
. lora.rank=4 lora.alpha=4 parallel.zero=1 precision=bf16
L

# ---- the levels at a start
# A run that is stopped, to be continued: the nodes keep the newest two, and they are in checkpoint.dir, too.
both stop "${args[@]}" --set checkpoint.keep_every=2 --set launch.stop_at=6
status 76 "a run is stopped after step 6"
run_id=$(ls local); nodes=$(ls local/*); node=${nodes%%
*}
is "$(echo "$nodes" | wc -l)" 2 "each node has a folder of its own in it"
is "$(for n in $nodes; do steps_in "local/$run_id/$n"; done)" "4 6 4 6 " "the last two steps stay on each node"
is "$(ls local/*/*/step-00000006/shard-* | wc -l) $(ls -d local/*/*/step-00000006/manifest.json | wc -l)" "4 2" "each rank's shard is on its own node, and the manifest on each"
is "$(cat local/*/*/step-00000006/manifest.json checkpoints/step-00000006/manifest.json | sort -u | wc -l)" 2 "the manifest is the same on each node and in checkpoint.dir"
run tern ckpt ls -P -n -o step,state,shards "local/$run_id/$node"; status 0 "a node's folder is listed"
is "$(cat out)" "4|part|2/4
6|part|2/4" "each checkpoint there is a part of one, with two of four shards"
err_has "step-00000006: is one node's part (2 of 4 shards) of a local checkpoint" "the refusal explains what a part is"
is "$(cd "local/$run_id/$node" && tern ckpt ls --json . 2>/dev/null | grep -c '"shards_here": 2')" 2 "JSON has the number of a part's shards, too"
run tern ckpt show "local/$run_id/$node/step-00000006"; status 0 "a node's part of a checkpoint is shown"
out_has "one node's part of a local checkpoint: 2 of 4 shards"; is "$(grep -c 'shard of rank [0-3]: not on this node' out) $(grep -c 'shard of rank [0-3]: [0-9]* arrays' out)" "2 2" "the shards of another node are named as such"
is "$(tern ckpt show --json "local/$run_id/$node/step-00000006" | jq '[.folder[] | select(.absent)] | length')" 2 "JSON tells which files of a part are on other nodes"
cp -a checkpoints lacking; rm lacking/step-00000006/shard-00001*; run tern ckpt ls -P -n -o step,state lacking
has out "6|broken" "in a folder of all ranks a checkpoint that lacks a shard is broken"; rm -r lacking
is "$(stat -c %a "local/$run_id/$node")" 700 "no other user reads them"
cp -a local saved-local; cp -a checkpoints saved; cp -a stop saved-stop
back() { rm -rf local checkpoints stop; cp -a saved-local local; cp -a saved checkpoints; cp -a saved-stop stop; }

both stop "${args[@]}"; status 0 "a stopped run goes on from the nodes' files"
err_has "checkpoint level local: the nodes have step 6, the newest of $WORK/checkpoints" "the log says that the nodes have the checkpoint"
is "$(sql stop "select count(*) from event where kind = 'checkpoint' and text like 'checkpoint level local: %'")" 1 "so does an event in the ledger"
tiny_digests | cmp -s - weights; ok $? "from the nodes' files it gets the weights of a run that was never stopped"
tiny_curve stop | cmp -s - curve; ok $? "the run from the nodes' files has the same losses"

back; rm -rf "checkpoints/step-00000006"
both stop "${args[@]}"; status 0 "its newest checkpoint is removed from checkpoint.dir by hand"
err_has "the nodes' checkpoint of step 6 is passed over: it was in $WORK/checkpoints, and is not there any more" "the nodes' copy of a checkpoint that a person removed is not taken"
err_has "going on after step 4 " "but the one before it"
tiny_digests | cmp -s - weights; ok $? "one removed by hand: the weights are right in the end"

back; printf x | dd of=checkpoints/step-00000006/shard-00001-of-00004.safetensors bs=1 seek=2000 conv=notrunc 2>/dev/null
both stop "${args[@]}"; status 0 "its newest checkpoint is damaged in checkpoint.dir, not on the nodes"
err_has "checkpoint level local: the nodes have step 6, and $WORK/checkpoints has step 4; it was copied there" "the nodes' copy takes its place"
err_has "going on after step 6 "
tiny_digests | cmp -s - weights; ok $? "one damaged in checkpoint.dir: the weights are right in the end"

back
rm -rf checkpoints/step-*
both stop "${args[@]}" --set data.seed=6; status 2 "the nodes alone have checkpoints, of another recipe: the run does not begin anew"
grep -q "are not those that checkpoint was trained with.*--accept" err
ok $? "another recipe: it says so, and what to do" || cat err
is "$(for n in $nodes; do steps_in "local/$run_id/$n"; done)" "4 6 4 6 " "another recipe: the nodes keep their checkpoints"
both stop "${args[@]}"; status 0 "with its own recipe again it goes on"
err_has "going on after step 6 " "from what the nodes have, though checkpoint.dir has lost all"
tiny_digests | cmp -s - weights; ok $? "checkpoint.dir has lost all: the weights are right in the end"

# Damaged on the nodes and in checkpoint.dir, which have older ones: the mirror's copy is newer.
harm() { printf x | dd of="$1" bs=1 seek=2000 conv=notrunc 2>/dev/null; }
back; mkdir mirror; cp -a checkpoints/step-0000000[46] mirror/
rm -rf checkpoints/step-00000004; rm -f local/*/*/*/flushed
harm checkpoints/step-00000006/manifest.json; harm "$(ls local/*/*/step-00000006/shard-00001*)"
both stop "${args[@]}" --set checkpoint.mirror=mirror; status 0 "the newest is damaged everywhere but in the mirror"
err_has "has no good checkpoint of run $run_id after step 2: that of step 6 comes back from " "the mirror's copy comes back"
err_has "going on after step 6 " "from that step, and not from the older one that the nodes have"
tiny_digests | cmp -s - weights; ok $? "damaged everywhere but in the mirror: the weights are right in the end"
rm -rf mirror
back; mkdir mirror; cp -a checkpoints/step-0000000[46] mirror/; rm -rf checkpoints/step-0000000[46] local
both stop "${args[@]}" --set checkpoint.mirror=mirror; status 0 "a person removed the newest, which the mirror has"
err_has "going on after step 2 " "the mirror's copies of what a person removed do not come back"
rm -rf mirror

if long; then
    # Of another run, under this one's id.
    back; rm -rf checkpoints
    both other "${args[@]}" --set checkpoint.keep_every=2 --set launch.stop_at=2; status 76 "a first run stops with exit status 76"
    other=$(ls local | grep -v "$run_id"); rm -rf "local/$other"; mv "local/$run_id" "local/$other"
    both other "${args[@]}"; status 0 "the nodes have checkpoints of another run"
    err_has "the nodes' checkpoint of step 6 is passed over: it is of another run" "they are not taken"
    err_has "going on after step 2 "; tiny_digests | cmp -s - weights; ok $? "checkpoints of another run: the weights are right in the end"
    rm -rf local checkpoints
fi

# A folder that others can write to is not trusted.
back; chmod a+w "local/$run_id/$node"; rm -rf checkpoints/step-00000006
both stop "${args[@]}"; err_has "is no folder that its user alone can write to" "a node's folder that others can write to is not read"
rm -rf local checkpoints

# Links that another user of the node may have put there lead nowhere.
back; rm -rf checkpoints/step-00000006; mv "local/$run_id" elsewhere; ln -s "$PWD/elsewhere" "local/$run_id"
both stop "${args[@]}"; status 0 "a link in place of the run's folder: the run ends well"
err_has "is no folder that its user alone can write to" "a link in place of the run's folder: the log says so"
is "$(for n in $nodes; do steps_in "elsewhere/$n"; done)" "4 6 4 6 " "a link in place of the run's folder: nothing behind it is removed"
tiny_digests | cmp -s - weights; ok $? "a link in place of the run's folder: the weights are right in the end"
rm -rf local checkpoints elsewhere

if long; then
    # Other ranks: nodes that have all files serve them, too.
    back; rm -rf checkpoints/step-0000000[46]; rm -f local/*/*/*/flushed
    TERN_FABRIC_SHARE=4 both stop "${args[@]}" ; rm -rf local checkpoints # one node, which lacks the other's shards
    err_has "checkpoint level shared: $WORK/checkpoints has step 2" "with other nodes those of before do not count"
fi

if long; then
    # The mirror gets what checkpoint.dir gets.
    both mirrored "${args[@]}" --set checkpoint.mirror=mirror; status 0 "a run with local folders and a mirror ends well"
    tern ckpt verify --full mirror/step-00000012 >/dev/null 2>err2; ok $? "the last checkpoint is in the mirror, too" || cat err2
    rm -rf checkpoints mirror
fi

# ---- what a recipe may say
run tern run run.yaml --set checkpoint.local=s3://bucket/x; status 2; err_has "is no folder on a node's own storage" "a URL is no node's storage"
run tern run run.yaml --set checkpoint.partner=true; status 2; err_has "without checkpoint.local there is nothing to copy" "a partner without checkpoint.local"
run tern run run.yaml --set checkpoint.local=checkpoints; status 2; err_has "is checkpoint.dir or checkpoint.mirror itself"

if [ -n "${TERN_SANITIZE-}" ]; then
    skip "writers that are held: the sanitizer wants to be loaded first"
    tap_done; exit
fi

# ---- checkpoint.dir is slow: nothing waits for it
saves_make
here=/checkpoints/
for s in 2 4 6 8 10; do hold $s $here; done; hold 12 /local/
begin slow "${args[@]}" --set steps=20
until_true reached slow 13
ok $? "training goes on while nothing reaches checkpoint.dir"
until_true [ -d "local/$(ls local)/$node/step-00000012.tmp-1" ]
is "$(published slow)" "" "the ledger has none as published"
for n in $nodes; do
    is "$(steps_in "local/$(ls local)/$n")" "2 10 " "node $n keeps the newest, and the one that is being copied"
done
is "$(ls checkpoints | grep step)" step-00000002.tmp-1 "one checkpoint is copied at a time"
let_go; ended; status 0 "the run with slow storage ends well"
case $(published slow) in "2 "*"20 ") ;; *) false ;; esac
ok $? "the one that was being copied is published, and the last one" || published slow
tern ckpt verify --full checkpoints >/dev/null 2>err2; ok $? "all published checkpoints verify" || cat err2
rm -rf checkpoints

if long; then
    # checkpoint.keep_every: those steps are waited for.
    hold 4 $here
    begin every "${args[@]}" --set checkpoint.keep_every=4
    until_true [ -d checkpoints/step-00000004.tmp-1 ]; ok $? "a step that stays for good is copied"
    let_go; ended; status 0 "checkpoint.keep_every: the run ends well"
    for s in 4 8 12; do [ -d "checkpoints/step-$(printf %08d $s)" ]; ok $? "step $s, which stays for good, is in checkpoint.dir"; done
    rm -rf checkpoints
fi
tap_done
