#!/bin/bash
# tern ledger why, compare, best, goodput, cost, tag, note and export.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/ledger; mkdir ledger
# make NAME LR SEED SECONDS-A-STEP TO: a run that is done, its id in $id.
make() {
    id=$(WRITER_NAME=$1 WRITER_SPEED=$4 WRITER_TRAINABLE=${6-6815744} WRITER_RECIPE=$(printf 'version: 1\nname: %s\nsteps: 400\nbatch: {global: 8, seq_len: 64}\noptimizer: {lr: %s}\ndata:\n  seed: %s\n  train: [{path: a.tds}]\ncheckpoint: {dir: %s}\n' "$1" "$2" "$3" "$1") \
        "$W" ledger new 1 0 1 "$5" done); id=${id%%[!0-9A-Z]*}
}
make lora 1e-4 1 2 400; lora=$id
make lora-2 1e-4 2 3 400; make full 1e-5 1 4 300 8030261248
export WRITER_NAME=crash WRITER_SPEED=2
id=$(WRITER_EVENT="rank 3 reported: the device is gone" WRITER_HEALTH="3 uncorrected errors" WRITER_CAUSE="node trn1-2 is down" "$W" ledger new 1 0 1 330 node_fail); crash=${id%%[!0-9A-Z]*}
"$W" ledger "$crash" 2 300 301 350 >/dev/null; unset WRITER_NAME WRITER_SPEED
narrow() { [ -z "$(wider 80 out)" ]; ok $? "$1 fits 80 columns" || cat out; }

# ---- why
run tern ledger why crash; status 0; narrow "why"
for text in "run $crash  crash: running" "attempt 1, job 4711, " "ended     node_fail: node trn1-2 is down" \
    "check neuron-ecc of trn1-2: node_bad (3 errors): 3 uncorrected" "error fault on trn1-2: rank 3 reported: the" \
    "30 steps, 60 s: attempt 2 began again with step 301" "ended     it is running" "tern logs $crash --attempt 1"; do
    out_has "$text"
done
run tern ledger why crash --json; python3 - out <<'P'; ok $? "why --json: ends, evidence and loss of each attempt"
import json, sys
r = json.load(open(sys.argv[1]))
a, b = r["attempt_rows"]
assert (r["lost_steps"], r["lost_seconds"]) == (30, 60.0), r
assert (a["outcome"], a["cause"], a["lost_steps"], a["lost_seconds"]) == ("node_fail", "node trn1-2 is down", 30, 60.0), a
assert [e["type"] for e in a["evidence"]] == ["check", "event"] and a["evidence"][0]["verdict"] == "node_bad", a
assert (b["lost_steps"], b["evidence"], b["ended"]) == (0, [], "it is running"), b
P
run tern ledger why lora; out_has "ended     done: the test said so"; ! grep -q "lost\|evidence" out; ok $? "why of a run without a fault has no loss and no evidence"
id=$(WRITER_NAME=half "$W" ledger new 1 0 1 250 failed); run tern ledger why half; out_has "lost      50 steps, behind the newest checkpoint, of step 200"
id=$(WRITER_NAME=early "$W" ledger new 1 0 1 50 failed); run tern ledger why early; out_has "lost      50 steps: there is no checkpoint"
WRITER_NAME=early "$W" ledger "${id%%[!0-9A-Z]*}" 2 0 1 20 >/dev/null; touch -d '1 hour ago' ledger/runs/"${id%%[!0-9A-Z]*}"/spool/2/*; run tern ledger why early; out_has "no end is recorded, and its owner is silent"
WRITER_NAME=$(printf '%039d\303\244\303\244nd more' 0) "$W" ledger new 1 0 1 1 failed >/dev/null
run tern ledger why latest; has out "$(printf '%039d\303\244+: failed' 0)" "why: a long name is cut between two characters" || head -1 out
run tern ledger why crsh; status 2; err_has "did you mean 'crash'?"; one_line

# ---- compare
run tern ledger compare lora lora-2 full --usd-hour 10; status 0; narrow "compare"
grep -qE "^data.seed +1 +2 +1$" out && grep -qE "^optimizer.lr +1e-4 +1e-4 +1e-5$" out; ok $? "compare begins with the keys that differ"
! grep -qE "^(name|checkpoint.dir|batch.global)" out; ok $? "names, folders and equal keys are no differences"
has out "size, speed and cost (8,030,261,248 parameters)"; grep -qE "^lora +400 +6,815,744 +4 +20 +13.333 " out; ok $? "compare: trainable parameters, rows and records a second, minutes" || cat out
grep -qE "^full +300 +8,030,261,248 +2 +10 +20 " out; ok $? "compare: those of a slower run"
grep -qE "^mean of 2: lora +400 +6,815,744 +3.333±0.9 +16.67±5 +16.67±5 " out; ok $? "compare: mean and deviation of runs that differ in the seed" || cat out
has out "at equal steps: 300"; has out "at equal tokens: 300,000"; has out "at equal seconds: 800"
sed -n '/at equal seconds/,$p' out >last; grep -qE "^lora +400 +0.41491 +9.4877$" last && grep -qE "^lora-2 +266 .* 12.182@200$" last && grep -qE "^full +200 " last; ok $? "compare: each run's step at equal seconds, an earlier evaluation is marked" || cat last
run tern ledger compare lora full -m general --json; python3 - out <<'P'; ok $? "ledger compare --json has the values"
import json, sys
r = json.load(open(sys.argv[1]))
assert r["recipe"] == {"optimizer.lr": ["1e-4", "1e-5"]}, r["recipe"]
assert r["equal"] == {"steps": 300, "tokens": 300000, "seconds": 800}, r["equal"]
a, b = r["runs"]
assert (a["rows_per_second"], a["records_per_second"], a["trainable_parameters"], b["parameters"]) == (4, 20, 6815744, 8030261248)
assert abs(a["at_equal_seconds"]["general"] - 9.4877) < 1e-3 and abs(b["at_equal_seconds"]["general"] - 12.182) < 1e-3 and list(a["at_equal_steps"]) == ["general"]
P
run tern ledger compare lora crash; status 0; out_has "at equal steps: 350"
run tern ledger compare lora half; out_has "at equal tokens: a run has no metric 'tokens'"
run tern ledger compare lora; status 2; one_line
run tern ledger compare lora full -m genral; status 2; err_has "did you mean 'general'?"; one_line
run tern ledger compare lora fulll; status 2; one_line
run env LC_ALL=C tern ledger compare lora lora-2; ! LC_ALL=C grep -q '[^ -~]' out; ok $? "compare is plain ASCII in a plain locale"

# ---- best
run tern ledger best general; status 0; narrow "best"; is "$(awk 'NR == 2 {print $1, $2, $4}' out)" "9.48774 400 lora" "best: over all runs by a held-out set"
has out "step-00000400" "best: with the checkpoint of that step"
run tern ledger best loss lora full -P -n -o value,step,name; is "$(cut -d'|' -f2,3 out | paste -sd' ')" "394|lora 300|full" "best: a step of each of several runs"
run tern ledger best loss lora -c 2 -P -n -o step; is "$(paste -sd' ' <out)" "394 388" "best: the best steps of one run"
run tern ledger best loss --max -c 1 -P -n -o step; is "$(cat out)" 1 "best --max: the greatest"
run tern ledger best general --json -c 1; python3 -c 'import json; r, = json.load(open("out")); assert r["step"] == 400 and r["checkpoint"].endswith("step-00000400"), r'; ok $? "ledger best --json has the step and its checkpoint"
run tern ledger best los; status 2; err_has "did you mean 'loss'?"; one_line
run tern ledger best; status 2; one_line

# ---- goodput and cost
run tern ledger goodput crash lora; status 0; narrow "goodput"; out_has total
run tern ledger goodput crash --json; python3 - out <<'P'; ok $? "goodput: the parts add up to the whole"
import json, sys
r, = json.load(open(sys.argv[1]))
parts = [r[k + "_seconds"] for k in ("training", "repeated", "checkpoint", "startup", "waiting", "other")]
assert r["training_seconds"] == 700 and r["repeated_seconds"] == 60 and r["repeated_steps"] == 30, r
assert abs(sum(parts) - r["wall_seconds"]) < 1e-6 and abs(r["goodput"] - 700 / r["wall_seconds"]) < 1e-9, r
P
run tern ledger goodput half --json; python3 -c 'import json; r, = json.load(open("out")); assert r["goodput"] is None and r["training_seconds"] is None, r'; ok $? "goodput: unknown without the seconds of steps"
run tern ledger cost lora full --usd-hour 3600 --json; python3 - out <<'P'; ok $? "cost: node-hours times the price, by tokens"
import json, sys
a, b = json.load(open(sys.argv[1]))
assert a["nodes"] == 2 and abs(a["usd"] - a["node_hours"] * 3600) < 1e-9 and a["tokens"] == 400000, a
assert abs(a["usd_per_million_tokens"] - a["usd"] / 0.4) < 1e-9 and abs(a["rank_hours"] - 2 * a["node_hours"]) < 1e-12, a
P
run tern ledger cost lora; status 0; narrow "cost"
run tern ledger cost lora --instance trn1.32xlarge -P -n -o usd; [ -n "$(cat out)" ]; ok $? "cost: the price of an instance type is known"
run tern ledger cost lora --instance trn1.32xlarg; status 2; err_has "did you mean 'trn1.32xlarge'?"; one_line

# ---- tags and notes
touch -d '2 hours ago' ledger/runs/"$crash"/spool/*/*
run tern ledger tag crash paper v1.0:base; status 0; [ ! -s err ]; ok $? "tag says nothing"
run tern ledger tag crash; is "$(paste -sd' ' <out)" "paper v1.0:base" "tag: a run's tags"
run tern ledger list -t paper,v1.0:base -P -n -o name,tags,state; is "$(cat out)" "crash|paper v1.0:base|silent" "list -t: a tag makes no run look alive"
is "$(sqlite3 ledger/ledger.db "SELECT name, tags FROM run WHERE tags NOT NULL")" "crash|paper v1.0:base" "plain sqlite3 has the tags"
run tern ledger list -t papr; status 2; err_has "no run has the tag 'papr'; did you mean 'paper'?"; one_line
run tern ledger tag crash -r papr; status 2; err_has "did you mean 'paper'?"; one_line
run tern ledger tag crash -r paper; run tern ledger tag crash --json; is "$(tr -d ' \n' <out)" '["v1.0:base"]' "tag -r takes one away"
run tern ledger tag crash paper; run tern ledger tag crash; is "$(paste -sd' ' <out)" "paper v1.0:base" "a tag that was taken away can be given again"
run tern ledger tag crash good 'two words'; status 2; err_has "a tag is 1 to 64"; one_line; run tern ledger tag crash; ! grep -q good out; ok $? "of several tags with a bad one none is given"
run tern ledger tag nobody x; status 2; one_line
run tern ledger note crash the drive was full; status 0; run tern ledger note crash "$(printf 'second\nline|x')"; status 0
run tern ledger note crash -P -n -o note,text; is "$(cat out)" '1|the drive was full
2|second\nline\x7cx' "note: those of a run"
run tern ledger note crash -r 1; status 0; run tern ledger note crash third; run tern ledger note crash -n -P -o note; is "$(paste -sd' ' <out)" "2 3" "note -r takes one away, numbers stay"
run tern ledger note crash -r 1; status 2; err_has "has no note 1"; one_line
run tern ledger note crash --json; python3 -c 'import json; r = json.load(open("out")); assert [n["text"] for n in r] == ["second\nline|x", "third"], r'; ok $? "ledger note --json has the notes"
run tern ledger note crash "$(printf '\033[2J')"; status 2; one_line; run tern ledger note crash "$(head -c 5000 /dev/zero | tr '\0' x)"; status 2; one_line
run tern ledger verify crash; status 0 "tags and notes are sound records"
run tern ledger fold --rebuild "$crash"; status 0; run tern ledger tag crash; is "$(paste -sd' ' <out)" "paper v1.0:base" "a rebuild has the tags"
run tern ledger note crash -P -n -o note; is "$(paste -sd' ' <out)" "2 3" "a rebuild has the notes"

# ---- show
run tern ledger show crash; status 0; narrow "show"
for text in "run $crash  crash" "silent, step 350 of 400, loss 0.4386" "tags      paper v1.0:base" "notes     2: second line|x" "metrics   loss lr step_seconds tokens" \
    "1 ended   node trn1-2 is down" "checkpoints in ledger/" "step-00000300" "attempt 1 2"; do out_has "$text"; done
out_has "error fault on trn1-2: rank 3"
run tern ledger show crash --metrics; status 0; narrow "show --metrics"; grep -qE "^step_seconds +2 +350 +2 +2 +350$" out; ok $? "show --metrics: newest, step, least, greatest, how many" || cat out
run tern ledger show crash -m -P -n -o metric,n; has out "loss|350"
run tern ledger show crash -m -o help; has out "greatest effective value"
run tern ledger show crash --attempts -P -n -o attempt,cause; has out "1|node trn1-2 is down"

# ---- export
run tern ledger export lora full --csv -m loss -m general; status 0; python3 - out <<'P'; ok $? "export --csv: a line a value, as Python's csv reads it"
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert list(rows[0]) == ["run", "name", "kind", "metric", "attempt", "step", "value", "time"], rows[0]
assert len(rows) == 400 + 4 + 300 + 3 and {r["name"] for r in rows} == {"lora", "full"}
assert [r["step"] for r in rows if r["kind"] == "held_out" and r["name"] == "lora"] == ["100", "200", "300", "400"]
assert abs(float(rows[0]["value"]) - 10.0841) < 1e-3, rows[0]
P
run tern ledger export crash --csv -m loss; is "$(wc -l <out)" 351 "export: superseded values are left out"
run tern ledger export crash --csv -m loss --all; is "$(wc -l <out)" 381 "export --all: they are there"
run tern ledger export crash --json -m '*_seconds'; python3 - out <<'P'; ok $? "export --json: metrics by a pattern"
import json, sys
r, = json.load(open(sys.argv[1]))
assert list(r["metrics"]) == ["step_seconds"] and len(r["metrics"]["step_seconds"]) == 350 and r["held_out"] == {} and r["tags"] == ["paper", "v1.0:base"]
assert r["metrics"]["step_seconds"][0]["value"] == 2 and r["metrics"]["step_seconds"][0]["class"] == 0
P
export TERN_RUN_SPOOL=$WORK/ledger/runs/$lora/spool/1; tern metric step=401 'loss=nan' '+cmd|x=inf' 'a"b,c=-inf'; unset TERN_RUN_SPOOL
run tern ledger export lora --csv; python3 - out <<'P'; ok $? "export --csv: values that are not finite, names with commas, quotes and formulas"
import csv, sys
rows = {r["metric"]: r["value"] for r in csv.DictReader(open(sys.argv[1])) if r["step"] == "401"}
assert rows == {"loss": "nan", 'a"b,c': "-inf", "'+cmd|x": "inf"}, rows
P
run tern ledger export lora --csv -m los; status 2; one_line; run tern ledger export lora; status 2; one_line

# ---- a run whose names command a terminal
export TERN_LEDGER=$WORK/odd; mkdir odd; odd=$(printf 'a|b,"c"\n\033]0;x\007')
WRITER_NAME=$odd WRITER_SPEED=1 WRITER_CAUSE=$odd WRITER_EVENT=$odd WRITER_HEALTH=$odd WRITER_RECIPE="name: 'x'" "$W" odd new 1 0 1 101 failed >/dev/null
WRITER_NAME=$odd WRITER_SPEED=1 WRITER_CAUSE=$odd "$W" odd new 1 0 1 101 failed >/dev/null
ids=$(ls odd/runs)
for words in why "why --json" "compare $(echo $ids)" "compare --json $(echo $ids)" "best loss" "best loss -P" "goodput $(echo $ids)" "cost -P" "cost --json" "export --json" show "show --json"; do
    run tern ledger $words; status 0; ! LC_ALL=C grep -q "$(printf '[\001-\010\013-\037]')" out err; ok $? "tern ledger $words: no command of a terminal" || cat -v out | head -5
done
run tern ledger export --csv $ids; python3 -c 'import csv, sys; assert all(len(r) == 8 for r in csv.reader(open("out", newline="")))'; ok $? "export --csv: such a name stays one cell"

# ---- names that look like something else
export TERN_LEDGER=$WORK/ledger; like=01ARZ3NDEKTSV4RRFFQ69G5FAV
id=$(WRITER_NAME=$like "$W" ledger new 1 0 1 7 done); id=${id%%[!0-9A-Z]*}
run tern ledger show $like; status 0 "a run whose name looks like an id is found by it"; out_has "$id"
id=$(WRITER_NAME=$id "$W" ledger new 1 0 1 9 done); id=${id%%[!0-9A-Z]*}
other=$(tern ledger sql -n -P "select id from run where name = '$like'")
run tern ledger show "$other"; status 0; out_has "$like" "a run's id goes before another run's name"
run tern ledger show 01ARZ3NDEKTSV4RRFFQ69G5FAW; status 2 "an id that no run has is an error"; one_line
id=$(WRITER_NAME=$'=e\e[2Jv\u202eil' "$W" ledger new 1 0 1 3 done); id=${id%%[!0-9A-Z]*}
run tern ledger export "$id" --csv; status 0; grep -q "^[^,]*,\"'=e?\\[2Jv???il\"," out; ok $? "export --csv: a run's name has no command of a terminal, and is no formula" || cat -v out
script -qec "tern ledger export $id --csv" /dev/null >seen 2>&1 </dev/null
grep -q '^[^,]*,"'"'"'=e?\[2Jv???il",metric,"loss",1,1,' seen && ! grep -q $'[\e\u202e]' seen; ok $? "export --csv gives a terminal no control character of a name" || cat -v seen
tap_done
