#!/bin/bash
# Pages of tern ledger report in Chromium: nothing in its console, values under the pointer, names that
# hide, zoom, three widths, the dark, print.
. "$(dirname "$0")/../lib/tap.sh"
python3 -c 'import sys; sys.path.insert(0, "'"$ROOT"'/tests/tools"); from browser import Browser; sys.exit(not Browser.find())' ||
    skip_all "there is no Chromium (Debian: chromium)"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/ledger; mkdir ledger odd
export WRITER_PHASES=1 WRITER_SETS=general,perl,pubmed
made() { # NAME LR SPEED TO [OUTCOME]
    WRITER_NAME=$1 WRITER_SPEED=$3 WRITER_RECIPE=$(printf 'version: 1\nname: %s\nsteps: 400\nbatch: {global: 8}\noptimizer: {lr: %s}\ndata:\n  train: [{path: a.tds, weight: 0.8}, {path: b.tds, weight: 0.2}]\n' "$1" "$2") \
        "$W" ledger new 1 0 1 "$4" "${5-done}" | { read -r id; cat >/dev/null; echo "$id"; }
}
made full 1e-5 4 400 >/dev/null; made lora 1e-4 2 300 >/dev/null
crash=$(WRITER_EVENT="rank 3 reported: the device is gone" WRITER_HEALTH="3 uncorrected errors" WRITER_CAUSE="node trn1-2 is down" made crash 1e-4 2 330 node_fail)
WRITER_NAME=crash WRITER_SPEED=2 "$W" ledger "$crash" 2 300 301 380 >/dev/null
tern ledger report lora crash --baseline full --usd-hour 20 -o page.html >/dev/null; ok $? "a page of three runs"
name=$(printf '</script x><img src=x onerror=alert(1)><b>&lt;"\342\200\256\033[31m\001')
WRITER_NAME=$name WRITER_SETS="</script><b>,__proto__,constructor" WRITER_SPEED=1 WRITER_CAUSE=$name WRITER_EVENT=$name WRITER_HEALTH=$name "$W" odd new 1 0 1 101 failed >/dev/null
TERN_LEDGER=$WORK/odd tern ledger report -o odd.html >/dev/null; ok $? "a page of odd names"
mkdir bare; bare=$(env -u WRITER_PHASES -u WRITER_SETS WRITER_NAME=bare "$W" bare new 1 0 1 150 failed | { read -r id; cat >/dev/null; echo "$id"; })
env -u WRITER_PHASES WRITER_NAME=empty "$W" bare new 1 0 1 0 failed >/dev/null
TERN_LEDGER=$WORK/bare tern ledger report "$bare" empty -o bare.html >/dev/null; ok $? "a page of a run without tokens and times, and one without steps"
# Values from one end of the doubles to the other, and a loss that stands still.
mkdir ends; ends=$(env -u WRITER_PHASES WRITER_NAME=ends "$W" ends new 1 0 1 1 | { read -r id; cat >/dev/null; echo "$id"; })
for i in $(seq 500); do echo "step=$i loss=2.5 grad_norm=$([ $((i % 2)) = 0 ] && echo 1e300 || echo 1e-300) lr=$([ $((i % 2)) = 0 ] && echo -1.7e308 || echo 1.7e308)"; done |
    TERN_RUN_SPOOL=$WORK/ends/runs/$ends/spool/1 tern metric --stdin; ok $? "values of a run without end"
TERN_LEDGER=$WORK/ends tern ledger report "$ends" -o ends.html >/dev/null; ok $? "a page of extreme values"
steps=$(long && echo 1000000 || echo 100000)
id=$(made long 1e-4 0.1 "$steps"); tern ledger fold "$id"
begun=$(date +%s); tern ledger report long -o long.html >/dev/null; ok $? "a page of $steps steps"
bound $(($(date +%s) - begun)) 40 "seconds for the page of a run of $steps steps"
[ "$(stat -c %s long.html)" -lt 1000000 ]; ok $? "the page has less than a million bytes" || stat -c %s long.html
python3 "$ROOT/tests/peers/report.py" page.html odd.html bare.html ends.html long.html "$steps" . >lines 2>problems; ok $? "the browser went through all of it" || tail -5 problems
while read -r line; do
    case $line in "ok "*) ok 0 "${line#ok }" ;; "not ok "*) ok 1 "${line#not ok }" ;; *) echo "$line" ;; esac
done <lines
tap_done
