#!/bin/bash
# tern ledger plot --held-out: pictures at 80 columns, each a file of tests/golden/plot.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
export TERN_LEDGER=$WORK/ledger; mkdir ledger
# make NAME SECONDS-A-STEP EVERY DOMAIN ATTEMPT RESUMED FROM TO [END]: $id stays with attempt 2.
make() {
    WRITER_NAME=$1 WRITER_SPEED=$2 WRITER_EVERY=$3 WRITER_DOMAIN=$4 \
        "$TOOLS/ledger-writer" ledger "$([ "$5" = 1 ] && echo new || echo "$id")" "$5" "$6" "$7" "$8" "$9" >made
    [ "$5" != 1 ] || id=$(head -n 1 made)
}
make lora 1 50 1.6 1 0 1 400 done
make full 4 100 1.3 1 0 1 300 node_fail; make full 4 100 1.3 2 200 201 400 done
make base 2 100 1.2 1 0 1 300 done
# picture NAME: the output is that file, byte for byte.
picture() {
    status 0; [ -z "$(wider 79 out)" ]; ok $? "$1 leaves the last of 80 columns free" || cat out
    cmp -s "$ROOT/tests/golden/plot/$1.txt" out; ok $? "the picture is tests/golden/plot/$1.txt" || diff "$ROOT/tests/golden/plot/$1.txt" out
}
run tern ledger plot lora --held-out; picture one-run
run tern ledger plot lora full --held-out --log; picture two-runs-log
run tern ledger plot lora full --held-out --set general --against tokens --baseline base; picture baseline-tokens
run tern ledger plot lora full --held-out --set domain --against seconds --smooth 3 --ascii --rows 14; picture seconds-ascii
run tern ledger plot lora full --held-out --byte --set general --set domain; picture a-byte
run tern ledger plot lora loss tokens_per_second --rows 14; picture metrics
run env LC_ALL=C tern ledger plot lora full --held-out --baseline base; ! LC_ALL=C grep -q '[^ -~]' out; ok $? "plain ASCII in a plain locale"
run tern ledger plot lora full --held-out --against dollars --usd-hour 36; status 0; has out "      USD"; [ -z "$(wider 79 out)" ]; ok $? "dollars fit 80 columns"
run tern ledger plot full --held-out --against dollars --usd-hour 3600 --json; python3 - out <<'P'; ok $? "dollars: of all attempts so far, more at each evaluation"
import json, sys
curves = json.load(open(sys.argv[1]))
assert {c["set"] for c in curves} == {"general", "domain"} and all(c["against"] == "dollars" and not c["baseline"] for c in curves)
x = [p["x"] for p in curves[0]["points"]]
assert [p["step"] for p in curves[0]["points"]] == [100, 200, 300, 400] and x[0] > 0 and all(a < b for a, b in zip(x, x[1:])), x
P
run tern ledger plot lora full --held-out --against seconds --set general --baseline base --json; python3 - out <<'P'; ok $? "--json: points with their step, place and value; the baseline's newest"
import json, math, sys
lora, full, base = json.load(open(sys.argv[1]))
at = {(p["step"], p["attempt"]): p for p in full["points"]}
assert full["name"] == "full" and [p["x"] for p in full["points"]] == [400, 800, 1200, 1600], full
assert abs(at[(300, 2)]["value"] - math.exp(2 + 1e5 / 300 / 1000)) < 1e-9 and (300, 1) not in at
assert base["baseline"] and [p["step"] for p in base["points"]] == [300] and len(lora["points"]) == 8
P
run tern ledger plot full --held-out --all --set general --json; python3 -c 'import json; c, = json.load(open("out")); assert [(p["step"], p["attempt"]) for p in c["points"]] == [(100, 1), (200, 1), (300, 1), (300, 2), (400, 2)], c'; ok $? "--all: superseded results, too"
run tern ledger plot --held-out; out_has "base  perplexity a token"
run tern ledger plot lora loss --against tokens --json; python3 - out <<'P'; ok $? "--json of metrics: points have their place on the axis"
import json, sys
points = json.load(open(sys.argv[1]))["loss"]
assert len(points) == 400 and all(p["x"] == 1000 * p["step"] for p in points), points[:2]
P
run tern ledger plot lora loss --json; python3 -c 'import json; assert all(p["x"] == p["step"] for p in json.load(open("out"))["loss"])'; ok $? "--json of metrics: x is the step of each point"
# An even number of values has no middle.
run tern ledger plot lora loss --smooth 3; status 0; mv out odd; [ ! -s err ]; ok $? "--smooth 3 says nothing"; has odd "loss, means of 3"
run tern ledger plot lora loss --smooth 2; status 0; cmp odd out; ok $? "--smooth 2 draws what --smooth 3 draws"; err_has "means of 3 values"; one_line
run tern ledger plot lora --held-out --smooth 2; out_has "means of 3"
# Names are other people's: they are shown, and command nothing.
make "$(printf 'evil\033[2J\xe2\x80\xae')" 1 100 1.2 1 0 1 200 done
run tern ledger plot latest lora --held-out; status 0; ! LC_ALL=C grep -qE "$(printf '[\001-\010\013-\037\177]|\342\200\256')" out; ok $? "a run's name is no command of a terminal"

run tern ledger plot lora --held-out --set genral; status 2; err_has "no held-out set of these runs is 'genral'; did you mean 'general'?"; one_line
run tern ledger plot lora fulll --held-out; status 2; err_has "did you mean 'full'?"; one_line
run tern ledger plot lora --held-out --baseline bas; status 2; err_has "did you mean 'base'?"; one_line
run tern ledger plot lora --held-out --against token; status 2; err_has "did you mean 'tokens'?"; one_line
run tern ledger plot lora --held-out --against dollars; status 2; err_has "Give --instance TYPE or --usd-hour USD"; one_line
run tern ledger plot lora --baseline base; status 2; err_has "give --held-out"; one_line
"$TOOLS/ledger-writer" ledger new 1 0 1 50 done >/dev/null
run tern ledger plot --held-out; status 2; err_has "no held-out set was evaluated in this run"; one_line
run tern ledger plot tried --against seconds; status 2; err_has "run tried has no metric 'step_seconds'"; one_line
run tern ledger plot lora tried --held-out --against tokens; status 2; err_has "run tried has no metric 'tokens'"; one_line
tap_done
