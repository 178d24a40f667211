#!/bin/bash
# tern ledger compare beside names that are alike, names of a sweep and long runs; totals of goodput and
# cost; what best, cost and sql refuse.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/ledger; mkdir ledger
# make NAME LR FROM TO: a run that is done.
make() { WRITER_NAME=$1 WRITER_RECIPE=$(printf 'version: 1\nsteps: 100\noptimizer: {lr: %s}\n' "$2") "$W" "$TERN_LEDGER" new 1 0 "$3" "$4" done >/dev/null; }

# ---- names that are alike are columns of their own
export WRITER_SETS=step,run,Loss,loss,a,A
make cpt 1 1 100; make CPT 2 1 100; make key 3 1 100; make a,b 4 1 100; make a%b 5 1 100
run tern ledger compare cpt CPT key a,b a%b -P; status 0
has out "key|cpt|CPT|key|a,b|a%b" "compare: runs cpt, CPT, key, a,b and a%b have columns under their own names"
has out "optimizer.lr|1|2|3|4|5" "compare: each run's value stands in its own column"
run tern ledger compare cpt CPT -P; python3 - out <<'P'; ok $? "compare: sets called step, run, Loss, loss, a and A have columns of their own beside the metric loss"
import math, sys
lines = open(sys.argv[1]).read().split("at equal steps: 100\n")[1].split("\n")
names, values = lines[0].split("|"), lines[1].split("|")
sets = {name: math.exp(3 + k / 10) for k, name in enumerate(("step", "run", "Loss", "loss (held-out)", "a", "A"))}
assert names[:3] == ["run", "step", "loss"] and values[:2] == ["cpt", "100"] and abs(float(values[2]) - 0.949363) < 1e-5, lines
got = dict(zip(names[3:], map(float, values[3:])))
assert set(got) == set(sets) and all(abs(got[n] - sets[n]) < 1e-6 for n in sets), (got, sets)
P
run tern ledger compare cpt CPT --json; python3 - out <<'P'; ok $? "compare --json: a set called loss does not hide the metric"
import json, sys
at = json.load(open(sys.argv[1]))["runs"][0]["at_equal_steps"]
assert len(at) == 7 and abs(at["loss"] - 0.949363) < 1e-5 and abs(at["loss (held-out)"] - 27.1126) < 1e-3, at
P

# ---- names of a sweep differ where they are cut
export TERN_LEDGER=$WORK/sweep WRITER_SETS=general,domain,pubmed,perl,code; mkdir sweep
for i in 1 2 3 4 5 6; do make "a-very-long-name-of-a-sweep-lr-$i" $i 1 100; done
run tern ledger compare $(for i in 1 2 3 4 5 6; do echo "a-very-long-name-of-a-sweep-lr-$i"; done); status 0
[ -z "$(wider 80 out)" ]; ok $? "compare of six runs and five sets fits 80 columns" || cat out
sed -n '/^at equal steps/,/^$/p' out | awk 'NR > 2 && NF {print $1}' >names
is "$(sort -u names | wc -l) $(grep -c '+' names)" "6 6" "compare: names of a sweep that are cut differ still" || cat out
is "$(sed -n 2p out | tr -s ' ' '\n' | grep -v key | sort -u | wc -l)" 6 "compare: so do they as headings" || cat out

# ---- long runs: numbers are written out
export TERN_LEDGER=$WORK/far WRITER_SPEED=1000000; mkdir far; unset WRITER_SETS
make far 1 100001 100010; make farther 2 100001 100020
run tern ledger compare far farther; grep -q '^far  *100010 ' out && grep -q '^farther  *100020 ' out; ok $? "compare: steps beyond 100,000 are whole numbers" || cat out
has out "at equal seconds: 10,000,000"; ! grep -q 'e+' out; ok $? "compare: no number of a long run has an exponent" || cat out
unset WRITER_SPEED

# ---- many metrics and sets: none is left out
export TERN_LEDGER=$WORK/many; mkdir many
WRITER_SETS=$(seq -s, -f set%.0f 40) WRITER_METRICS=$(seq -s, -f metric%.0f 64) make one 1 1 100
WRITER_SETS=$(seq -s, -f set%.0f 40) WRITER_METRICS=$(seq -s, -f metric%.0f 64) make two 2 1 100
run tern ledger compare one two -P; status 0
has out "|set39|set4|set40|" "compare: forty held-out sets are columns, all of them"
run tern ledger compare one two --json; python3 - out <<'P'; ok $? "compare --json: forty held-out sets have a value each"
import json, sys
at = json.load(open(sys.argv[1]))["runs"][1]["at_equal_steps"]
assert len(at) == 41 and all(at["set%d" % k] > 1 for k in range(1, 41)), at
P
run tern ledger compare one two -P $(seq -f '-m metric%.0f' 64); status 0
sed -n '/^at equal steps/,/^at equal tokens/p' out | grep '^run|' | tr '|' '\n' | grep -c metric >n
is "$(cat n)" 64 "compare: 64 metrics, more than a table has columns, are all in tables"
is "$(sed -n '/^at equal steps/,/^at equal tokens/p' out | grep -c '^two|100|1.0')" 2 "compare: each of these tables has every run's values" || cat out

# ---- totals: a run whose times are not known is no waste
export TERN_LEDGER=$WORK/timed; mkdir timed
WRITER_SPEED=2 make timed 1 1 100; make other 1 1 100; make another 1 1 100
tern ledger goodput timed -P -n -o wall,goodput,other >one; run tern ledger goodput timed other -P -n -o wall,goodput,other
is "$(tail -1 out)" "$(cat one)" "goodput: the total's times are those of the runs that have them"
run tern ledger goodput other another -P -n -o id,wall,goodput; is "$(tail -1 out)" "total||" "goodput: without any such run the total has no times"
run tern ledger goodput other another; status 0; grep -q '^total *$' out; ok $? "goodput: the table's total has no times either" || cat out
tern ledger cost timed -P -n -o wasted >one; run tern ledger cost timed other -P -n -o wasted; is "$(tail -1 out)" "$(cat one)" "cost: the total's waste is that of the runs whose times are known"

# ---- numbers that make no sense
run tern ledger cost timed --usd-hour 0 -P -n -o usd; is "$(cat out)" 0.0 "cost: a price of 0 is one"
for words in "cost timed" "compare timed other" "plot timed --against dollars" "report timed -o x.html"; do
    run tern ledger $words --usd-hour -3; status 2 "tern ledger $words: a negative price is refused"; err_has "a price is 0 or more"; one_line
done
run tern ledger best loss timed -c 0; status 2; err_has "--count 0: wanted 1 row or more"; one_line
run tern ledger sql --json "select 1 as a, 2 as b, 3 as a"; status 2; err_has "columns 1 and 3 are both called 'a'"; err_has "with AS"; one_line
[ ! -s out ]; ok $? "sql --json prints nothing where it would drop a column"
run tern ledger sql -P "select 1 as a, 2 as a"; is "$(cat out)" "a|a
1|2" "sql -P has both columns of one name"
tap_done
