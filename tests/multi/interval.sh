#!/bin/bash
# checkpoint.every: auto: the first save measures, the ranks agree, and log and ledger have the choice.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make || exit 1
sql() { tern ledger sql --ledger "$1" -r latest -n -P "$2"; }
published() { sql "$1" "select step from checkpoint where state = 'published' order by step" | tr '\n' ' '; }

for async in true false; do
    for ranks in 1 2; do
        l=ledger-$async-$ranks
        run tern run run.yaml --ranks $ranks --set steps=30 --set checkpoint.every=auto --set checkpoint.keep=9 \
            --set checkpoint.async=$async --set checkpoint.dir=ck-$async-$ranks --set ledger.dir=$l --set launch.health=off
        status 0 "$ranks ranks, async $async: a run with checkpoint.every: auto"
        # A save of a millisecond pays each 200 s and more at a failure in 6300 h.
        # In the background it may have ended only as the next one was due.
        case $async-$(published $l) in "true-10 20 30 "|*-"10 30 ") true ;; *) false ;; esac
        ok $? "$ranks ranks, async $async: one save measures, and the next is due after the end" || echo "# $(published $l)"
        grep -qE 'checkpoint.every: auto: a checkpoint each [0-9]+ steps .*one of 1 nodes fails each 6300 h' err
        ok $? "$ranks ranks, async $async: the log has the choice and its reasons" || sed 's/^/# /' err
        said=$(sql $l "select count(*) from event where kind = 'checkpoint' and text like 'checkpoint.every: auto: %'")
        [ "$said" -ge 1 ] && { [ $async = true ] || [ "$said" = 1 ]; }
        ok $? "$ranks ranks, async $async: the ledger has it, once for a save" || echo "# $said"
    done
done
# Where failures are frequent beyond measure a save begins when the last has ended.
run tern run run.yaml --ranks 2 --set steps=24 --set checkpoint.every=auto --set checkpoint.mtbf=0.001 --set checkpoint.async=false \
    --set checkpoint.keep=99 --set checkpoint.dir=often --set ledger.dir=often-ledger --set launch.health=off
status 0 "every: auto with failures each 3.6 s"
first=$(published often-ledger); [ "${first%% *}" = 10 ]; ok $? "the first save comes after 10 steps" || echo "# $first"
run tern run run.yaml --ranks 2 --set steps=40 --set checkpoint.every=auto --set checkpoint.dir=ck-false-2 --set ledger.dir=ledger-false-2 \
    --set checkpoint.async=false --set checkpoint.keep=9 --set launch.health=off
status 0; is "$(published ledger-false-2)" "10 30 40 " "an attempt's first save counts from its own first step"
tap_done
