#!/bin/bash
# make figures in miniature: a base model, four continued runs of a few steps, three pictures, the
# spread over two seeds, and a page.
. "$(dirname "$0")/../lib/tap.sh"
long || skip_all "the long list alone makes the figures in miniature"
[ -n "$DATA" ] || skip_all "no ../shared/data, the texts"
unset TERN_LEDGER COLUMNS
runs="cpt0-s1 cpt0-s2 cpt1-s1 cpt1-s2"
figures() { run env FIGURES_THREADS=1 FIGURES_STEPS=4 FIGURES_LINES=12 "$ROOT/cluster-templates/figures/figures" work "$BIN" "$DATA"; }
sql() { tern ledger sql -l work/ledger -r "$1" -n -P "$2"; }

figures; status 0 "the figures are made"
[ $rc = 0 ] || { cat out; tap_done; exit; }
for n in 1 2 3; do
    f=work/figure-$n.txt
    [ "$(wc -l <$f)" -gt 15 ] && grep -q '^ *tokens ' $f; ok $? "figure $n is a picture against tokens" || cat $f
    [ -z "$(wider 79 $f)" ]; ok $? "figure $n fits 80 columns" || cat $f
    has $f "baseline base" "figure $n has the baseline"
    has out "$(head -n 1 $f)" "figure $n is shown"
done
for r in $runs; do
    has work/figure-1.txt "$r" "figure 1 has $r"
    has work/figure-2.txt "$r" "figure 2 has $r"
    has work/figures.html "$r" "the page has $r"
    is "$(sql $r "select max(step) from eval_effective where set_name = 'general'")" 4 "$r is evaluated at its end"
done
is "$(sql cpt0-s2 "select count(*) from step where name like 'mix/%/general.tds/%'")" 0 "cpt0 has no general text"
[ "$(sql cpt1-s2 "select count(*) from step where name like 'mix/%/general.tds/%'")" -gt 0 ]; ok $? "cpt1 has some"
is "$(sed -n '/^at equal tokens/,/^$/s/^mean of 2: \(cpt[01]\)-s1 .*±.*/\1/p' work/spread.txt | tr '\n' ' ')" "cpt0 cpt1 " "the spread over seeds at equal tokens is printed for both mixes" || cat work/spread.txt

mkdir first; cp work/figure-?.txt first
figures; status 0 "make figures runs a second time"
is "$(cd first && cat figure-?.txt | cksum)" "$(cd work && cat figure-?.txt | cksum)" "the figures stay as they are"
is "$(for r in base $runs; do sql $r "select count(*) from attempt"; done | tr '\n' ' ')" "1 1 1 1 1 " "what is done is not trained again"
tap_done
