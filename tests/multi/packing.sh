#!/bin/bash
# Training on packed rows: the same loss on one rank and two, across a restart; the packing is the
# run's for good, and the ledger has the realised mix.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make
sed -i 's/^optimizer: .*/optimizer: {lr: 0, weight_decay: 0}/; s/^schedule: .*/schedule: {kind: constant}/' run.yaml
sed -i '/^checkpoint:/s/keep: 2/keep: 100/' run.yaml
same() { # two files of losses are alike within rounding
    [ "$(wc -l <"$1")" = "$(wc -l <"$2")" ] && [ -s "$1" ] &&
        paste "$1" "$2" | awk '{d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) bad = 1} END {exit bad}'
}
sed 's/^  seed: 5/&\n  packing: concat/; s/seq_len: 32/seq_len: 64/' run.yaml >concat.yaml
for packing in best-fit padded; do
    for isolate in false true; do
        name="$packing, isolate: $isolate"
        sed "s/^  packing: .*/  packing: $packing\n  isolate: $isolate/" concat.yaml >packed.yaml
        rm -rf checkpoints one two
        run tern run packed.yaml --ranks 1 --set ledger.dir=one
        status 0 "$name: the packed run trains"
        err_has "data/train.tds: $packing: " "$name: the log tells of rows and padding"
        tiny_curve one >a
        rm -rf checkpoints
        run tern run packed.yaml --ranks 2 --set ledger.dir=two --set launch.stop_at=3
        status 76
        run tern run packed.yaml --ranks 1 --set ledger.dir=two --set launch.stop_at=5
        run tern run packed.yaml --ranks 2 --set ledger.dir=two
        tiny_curve two >b
        same a b; ok $? "$name: two ranks and a restart on one have the losses of one rank" || paste a b | sed 's/^/# /'
    done
done
rm -rf checkpoints
run tern run concat.yaml --ranks 1 --set ledger.dir=other
tiny_curve other >c
! same a c; ok $? "the losses of padded rows are not those of concat"
run tern run concat.yaml --ranks 1 --set ledger.dir=other --set steps=10 --set data.packing=best-fit
status 2; one_error; err_has 'are not those that checkpoint was trained with'
run tern train concat.yaml --set steps=10 --set data.packing=padded --set data.longer=drop
status 2; one_error

# ---- the realised mix
rm -rf checkpoints
sed 's|^  train: .*|  train: [{path: data/train.tds, weight: 3}, {path: data/test.tds}]|; s/^  packing: .*/  packing: best-fit/' concat.yaml >mix.yaml
run tern run mix.yaml --ranks 2 --set ledger.dir=mix
status 0
run tern ledger show --ledger mix --json
is "$(jq '[.mix[].samples] | add' out)" 64 "the ledger: samples of all sets are the run's"
is "$(jq '.mix[] | select(.set == "data/train.tds").samples' out)" 48 "the ledger: three of four samples are of the set with weight 3"
is "$(jq '.mix[0].step' out)" 8 "the ledger: up to the last checkpoint"
tern ledger sql --ledger mix -r latest -n -P "select sum(value) from step where name = 'tokens'" >step_tokens
is "$(jq '[.mix[].tokens] | add' out)" "$(printf '%.0f' "$(cat step_tokens)")" "the ledger: tokens of all sets are those that steps learnt"
run tern data plan mix.yaml --json
is "$(jq -c '[.sources[] | [.samples, .tokens]] | sort' out)" \
    "$(tern ledger show --ledger mix --json | jq -c '[.mix[] | [.samples, .tokens]] | sort')" "tern data plan predicted it"
tern ledger show --ledger mix --json >mix.json
run tern ledger show --ledger mix --mix
status 0
is "$(head -n 1 out | xargs)" "set samples tokens epochs step" "--mix: a table of sets"
is "$(tail -n +2 out | xargs -n 5 | sort)" \
    "$(jq -r '.mix[] | [.set, .samples, .tokens, .epochs, .step] | @tsv' mix.json | awk '{printf "%s %d %d %.4f %d\n", $1, $2, $3, $4, $5}' | sort)" \
    "--mix, best-fit: samples, tokens, epochs and step of each set are those of --json"
is "$(tail -n +2 out | wc -l)" 2 "--mix: a line a set"
run tern ledger show --ledger mix --mix -o tokens
is "$(tail -n +2 out | awk '{n += $1} END {print n}')" "$(jq '[.mix[].tokens] | add' mix.json)" "--mix -o: one of its parts"
# Tokens up to a checkpoint: filled places of the rows so far, which best-fit leaves short.
awk -v t="$(jq '[.mix[].tokens] | add' mix.json)" 'BEGIN {exit !(t > 0 && t < 64 * 64)}'
ok $? "best-fit: padding is not counted among the tokens"
run tern ledger show --ledger mix
out_has 'training sets'
is "$(tern ledger sql --ledger mix -r latest -n -P "select count(*) from param where name like 'tokenizer/%' and value like '%tokenizer.model (sentencepiece)'")" 2 \
    "the ledger has the tokenizer of each set, its file and its format"
is "$(tern ledger sql --ledger mix -r latest -n -P "select count(*) from param where name like 'packing/%' and value like 'best-fit: %'")" 2 \
    "the ledger: the packing of each set is a parameter"

# ---- a set that is exhausted ends the run
rm -rf checkpoints
sed 's|^  train: .*|  train: [{path: data/train.tds}, {path: data/test.tds, exhausted: stop}]|' concat.yaml >stop.yaml
end=$(tern data plan stop.yaml --set steps=500 --json | jq .steps)
run tern run stop.yaml --ranks 2 --set ledger.dir=stop --set steps=500 --set checkpoint.every=0
status 0; err_has "step $end/$end"
err_has "data/test.tds is exhausted at step $end (1 epoch): the run ends there"
is "$(tern ledger show --ledger stop --json | jq '.mix[] | select(.set == "data/test.tds").epochs <= 1')" true "a set that may be read once is not read twice"
tap_done
