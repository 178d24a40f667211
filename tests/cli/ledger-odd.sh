#!/bin/bash
# A ledger of an older tern, which took any step, is shown as it is.  No writer takes names that are not UTF-8 any more.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
export TERN_LEDGER=$WORK/ledger; mkdir ledger
last=9223372036854775806
WRITER_EVERY=2 WRITER_SETS=$'s\xe9,s\xea' WRITER_METRICS=$'caf\xe9,caf\xea,caf\\xe9' "$TOOLS/ledger-writer" ledger new 1 0 $last $last done >made
run tern ledger verify; status 0
for view in "export --csv" "export --json" "plot latest loss --json" "best loss latest --json" "show --metrics --json" "list --json"; do
    run tern ledger $view; status 0; grep -q 92233720368547 out; ok $? "tern ledger $view has the step"
    ! grep -q '[ ,|]-92233720368547' out; ok $? "tern ledger $view: a step above 2^53 is not negative" || grep -e ' -92233' out
done
run tern ledger export --json; python3 - out <<'P'; ok $? "export --json has the metrics and sets whose names are UTF-8, and no other"
import json, sys
r, = json.load(open(sys.argv[1]))
assert sorted(r["metrics"]) == ["caf\\x5cxe9", "loss", "lr"], r["metrics"].keys()
assert all(len(m) == 1 for m in r["metrics"].values()), r["metrics"]
assert not r["held_out"], r["held_out"].keys()
P
tap_done
