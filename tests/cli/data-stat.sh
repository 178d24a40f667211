#!/bin/bash
# tern data stat, plan, overlap and info: lengths of documents, what packings waste, how long a
# recipe's run is, and what a held-out set shares with training sets.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make
narrow() { [ -z "$(wider 80 "${1:-out}")" ]; ok $? "${2:-$cmd: at most 80 columns}" || wider 80 "${1:-out}" | sed 's/^/# /'; }
field() { jq -r "$1" out; }

# ---- info
run tern data info data/train.tds --seq-len 32
status 0; narrow
out_has 'documents    50'
out_has 'made from    train.jsonl'
awk '/^tokens/ {exit $2 ~ /^[0-9],[0-9][0-9][0-9]$/ ? 0 : 1}' out
ok $? "info: thousands are parted by commas" || sed 's/^/# /' out

# ---- stat
run tern data stat data/train.tds data/test.tds -L 128
status 0; narrow
is "$(grep -c '^path ' out)" 2 "stat: each set that is named"
is "$(grep -c '^best-fit ' out)" 2 "stat: best-fit in rows of each"
run tern data stat data/train.tds -L 128 --json
status 0
is "$(field '.[0].documents')" 50 "stat counts the documents"
is "$(field '[.[0].histogram[].documents] | add')" 50 "stat: every document is in the histogram once"
is "$(field '[.[0].packings[] | .rows * 128 - .padding + .dropped_tokens] | unique | length')" 1 \
    "stat: rows hold every token but padding and what is dropped, in all packings"
is "$(field '.[0] | .packings[0].rows * 128 - .packings[0].padding == .tokens')" true "stat: concat holds every token"
long_docs() { tern data stat data/train.tds -L "$1" --json | jq '.[0].longer_documents'; }
is "$(long_docs 1048576)" 0 "stat: no document is longer than a row of 2^20"
is "$(long_docs 1)" 50 "stat: every document is longer than a row of 1"
is "$(tern data stat data/train.tds -L 1 --json | jq '[.[0].packings[] | select(.longer == "drop") | .rows] | add')" 0 \
    "stat: dropping them leaves no row"
run tern data stat data/train.tds
status 0
grep -q 'packing' out; [ $? = 1 ]; ok $? "stat: no packing without -L"
run tern data stat data/train.tds -t model
status 0; narrow; out_has 'unknown      0 '
printf 'the \360\237\246\224 a\n' >odd.txt
tern data build --tokenizer "$ROOT/tests/golden/spm-map.model" -o odd.tds odd.txt 2>/dev/null
run tern data stat odd.tds -t "$ROOT/tests/golden/spm-map.model" --json
status 0
[ "$(field '.[0].unknown')" -ge 1 ]; ok $? "stat: -t counts tokens that are unknown" || sed 's/^/# /' out
run tern data stat data/train.tds -t "$ROOT/tests/golden/spm-map.model"
status 2; one_error; err_has 'another vocabulary'
run tern data stat run.yaml
status 2; one_error
run tern data stat data/train.tds -L 2000000
status 2; one_error; err_has '--seq-len 2000000'
head -c 5000 data/train.tds >cut.tds
run tern data stat cut.tds
status 2; one_error; err_has 'cut.tds: damaged'
COLUMNS=60 run tern data stat data/train.tds
grep '#' out | grep -qE '^.{60}$' && ! grep '#' out | grep -qE '^.{61}'
ok $? "stat: bars end at the terminal's width" || sed 's/^/# /' out

# ---- plan
run tern data plan run.yaml --set steps= --set tokens=88e9 --set batch.global=2048 --set batch.seq_len=4096
status 2 # steps= is no length
sed '/^steps:/d' run.yaml >none.yaml
run tern data plan none.yaml --set tokens=88e9 --set batch.global=2048 --set batch.seq_len=4096
status 0; narrow
out_has 'steps        10,491 (8.8e+10 tokens = 10490.4 steps)' "plan: 88e9 tokens at 2048 x 4096 are 10,491 steps" ||
    sed 's/^/# /' out
run tern data plan run.yaml --json
status 0
rows=$(tern data info data/train.tds --seq-len 32 --json | jq .rows)
is "$(field .steps)" 8 "plan: the recipe's steps"
is "$(field '.sources[0].samples')" 64 "plan: samples are steps x batch.global"
is "$(field ".sources[0].epochs * $rows | round")" 64 "plan: epochs are samples over rows"
run tern data plan run.yaml --set data.train='[{path: gone.tds}]'
status 2; one_error; err_has 'gone.tds: cannot open'

for packing in concat best-fit padded; do
    is "$(tern data plan run.yaml --set data.packing=$packing --set batch.seq_len=128 --json | jq '.sources[0].rows')" \
        "$(tern data stat data/train.tds -L 128 --json | jq "[.[0].packings[] | select(.packing == \"$packing\") | .rows][0]")" \
        "plan: a recipe's $packing has the rows that stat says"
done

# ---- a set that is exhausted
is "$(tern data plan run.yaml --set data.train='[{path: data/train.tds, exhausted: stop}]' --set batch.global=1 --set batch.micro=1 \
    --set steps=9999 --json | jq .steps)" "$rows" "exhausted: with one sample a step, each row is a step"
cat >mixed.yaml <<'Y'
version: 1
name: mixed
model: {config: model/config.json, tokenizer: model}
data:
  train:
    - {path: data/train.tds, weight: 0.5}
    - {path: data/test.tds, weight: 0.5, exhausted: stop}
batch: {global: 8, micro: 2, seq_len: 32}
steps: 100
checkpoint: {dir: checkpoints}
ledger: {dir: ledger}
Y
test_rows=$(tern data info data/test.tds --seq-len 32 --json | jq .rows)
run tern data plan mixed.yaml --json
status 0
end=$(field .steps)
is "$(field .asked_steps)" 100 "plan: the steps that were asked"
awk -v e="$end" -v r="$test_rows" 'BEGIN {exit !(e * 4 <= r + 1 && (e + 1) * 4 >= r)}'
ok $? "exhausted: the run ends with the last whole step before $test_rows rows are over (step $end)"
is "$(field ".sources[1].samples <= $test_rows")" true "exhausted: no row comes a second time"
run tern data plan mixed.yaml
status 0; out_has "exhausted    data/test.tds at step $end of 100"
run tern data plan mixed.yaml --set data.train='[{path: data/train.tds}, {path: data/test.tds, epochs: 3}]' --json
awk -v e="$(field .steps)" -v one="$end" 'BEGIN {exit !(e > 2.5 * one && e < 3.5 * one)}'
ok $? "epochs: 3 lasts three times as long" || sed 's/^/# /' out err
run tern data plan mixed.yaml --set data.train='[{path: data/train.tds}, {path: data/test.tds, exhausted: repeat}]' --json
is "$(field .steps)" 100 "exhausted: repeat does not end the run"
run tern run --check mixed.yaml
err_has "100 steps asked, but data/test.tds is exhausted at step $end (1 epoch): the run ends there"
run tern data plan mixed.yaml --set batch.global=4096
status 2; one_error; err_has 'is exhausted before the first step'

# ---- wrong words name their line
wrong() { # LINE TEXT SED
    sed "$3" mixed.yaml >wrong.yaml
    run tern data plan wrong.yaml
    status 2; one_error; err_has "wrong.yaml:$1:"; err_has "$2"
}
wrong 7 "'end' is not one of: repeat, stop" 's/exhausted: stop/exhausted: end/'
wrong 7 "'repeat' beside 'epochs'" 's/exhausted: stop/exhausted: repeat, epochs: 2/'
wrong 7 'epochs' 's/exhausted: stop/epochs: 0/'
wrong 8 "'fit' is not one of: concat, best-fit, padded" 's/^batch:/  packing: fit\n&/'
wrong 8 'is for packing best-fit and padded' 's/^batch:/  longer: drop\n&/'
wrong 9 "'keep' is not one of: cut, drop" 's/^batch:/  packing: padded\n  longer: keep\n&/'

# ---- overlap
run tern data overlap data/train.tds --held-out data/test.tds
status 0; narrow
out_has 'held-out     data/test.tds'
head -n 3 train.jsonl >leak.jsonl; tail -n 7 text.jsonl | sed 's/the/sees/g; s/ a / tree /g' >>leak.jsonl
tern data build --tokenizer model -o leak.tds leak.jsonl 2>/dev/null
run tern data overlap data/test.tds data/train.tds --held-out leak.tds --json
status 0
is "$(field '[.worst[] | select(.share == 1) | .document] | sort | join(" ")')" '0 1 2' "overlap: the documents that are in training are found whole"
is "$(field '.found <= .ngrams')" true "overlap: no more found than there are"
got=$(field .found)
for threads in 1 3; do
    is "$(tern data overlap data/test.tds data/train.tds --held-out leak.tds --json --threads $threads | jq .found)" "$got" \
        "overlap: $threads threads find the same"
done
is "$(tern data overlap leak.tds --held-out leak.tds --json | jq '.share == 1')" true "overlap: a set is in itself"
run tern data overlap leak.tds --held-out leak.tds --fail-above 0.5
status 1; one_error; err_has 'above --fail-above 0.5'; out_has 'found '
run tern data overlap leak.tds --held-out leak.tds --fail-above 2
status 2; one_error
run tern data overlap leak.tds
status 2; one_error; err_has '--held-out is missing'
run tern data overlap leak.tds --held-out leak.tds -N 0
status 2; one_error
printf 'other words\n' >o.txt
tern data build --tokenizer "$ROOT/tests/golden/spm-map.model" -o other.tds o.txt 2>/dev/null
run tern data overlap other.tds --held-out leak.tds
status 2; one_error; err_has 'another vocabulary'
for v in stat plan overlap info; do run tern data $v -h; status 0; narrow; done
tap_done
