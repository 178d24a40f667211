#!/bin/bash
# The ledger's storage fails while a run goes on: training does not mind, and what is missing is in
# the end record, list, show, verify and the log.
. "$(dirname "$0")/../lib/tap.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
. "$ROOT/tests/lib/tiny.sh"
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^steps:.*/steps: 1500/; s/every: 1, keep: 2/every: 500, keep: 2/' run.yaml
losses() { tern ledger sql -l "$1" -r latest -n -P "select count(distinct step) from step where name = 'loss'"; }

# Moved away in the middle, and removed: it is there again, with all that was recorded before.
for how in 'rm -rf ledger' 'mv ledger away'; do
    # The ranks are held meanwhile.  On a busy machine a short run is over before that: a longer one, then.
    for n in 400 800 1600 3200 6400; do
        sed "s/^steps:.*/steps: $n/; s/every: 500/every: $n/" run.yaml >moved.yaml
        rm -rf ledger away checkpoints err # the next run empties it only when it begins
        tern run moved.yaml --ranks 2 2>err & pid=$!
        until_true grep -q 'step [1-9]' err
        ranks=$(pgrep -P $pid tern-task | sed 's/^/-/') # each is the leader of its trainer's group
        [ "$(echo $ranks | wc -w)" = 2 ] && kill -STOP -- $ranks 2>/dev/null && [ "$(losses ledger)" -lt $n ] && break
        kill -CONT -- $ranks 2>/dev/null; wait $pid
    done
    $how; kill -CONT -- $ranks; wait $pid; rc=$? cmd="$how in the middle of a run"
    status 0; err_has "is not there any more"
    is "$(losses ledger)" $n "every step is in the ledger that is there now"
    run tern ledger verify -l ledger; status 0
    is "$(tern ledger list -l ledger -n -P -o state,step,ckpt,lost)" "done|$n|$n|0" "the run's end is in the ledger that is there now"
    long || break
done
# Another ledger than the one that knows the run's checkpoints.
run tern run moved.yaml --ranks 2 --set ledger.dir=other --set steps=$((n + 1)); status 0; err_has "which had some before"

if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then skip "a full disk: only root can mount one"; tap_done; exit; fi
rm -rf ledger checkpoints; mkdir small
cat >inside.sh <<S
mount -t tmpfs -o size=600k none small && tern run run.yaml --ranks 2 --set ledger.dir=small/l >out 2>err; echo \$? >rc
tern ledger list -l small/l >list; tern ledger show -l small/l >show; tern ledger verify -l small/l >verify; echo \$? >>verify
tern ledger sql -l small/l -r latest -n -P "select count(distinct step) from step where name = 'loss'" >steps
tern ledger sql -l small/l -r latest -n -P "select text from event where kind = 'gap' and writer = 'rank0'" >gap
tern ledger sql -l small/l -r latest -n -P "select cause from attempt" >cause
S
unshare -m bash inside.sh
rc=$(cat rc) cmd="a ledger on a disk that fills up"; status 0; [ -d checkpoints/step-00001500 ]; ok $? "training on a full disk ends well"
kept=$(cat steps); [ "$kept" -gt 0 ] && [ "$kept" -lt 1500 ]; ok $? "the ledger has $kept steps of 1500"
grep -qx "[0-9]* records lost (steps $((kept + 1)) to 1500): No space left on device" gap; ok $? "a gap event has the steps that the ledger lacks" || sed 's/^/# /' gap
err_has "records lost (steps $((kept + 1)) to 1500): No space left on device"
has cause "the ledger lacks records that rank0 could not write: " "so does the end record"
has list " lost " "list has a column for it then"; has show "records that the storage did not take" "show a line"
has verify "records lost (steps $((kept + 1)) to 1500)" "verify names the lost steps"; is "$(tail -n 1 verify)" 0 "verify finds no damage after a full disk"
tap_done
