#!/bin/bash
# A model that two runs continued on a domain each: their blend, evaluated on both domains.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tiny.sh"
tiny_make 2>/dev/null || skip_all "cannot make the tiny setting"

# Domains of other words, and of one grammar.
text() { # SEED WORDS
    awk -v seed="$1" -v words="$2" 'BEGIN {srand(seed); n = split(words, w, " ");
        for (d = 0; d < 60; d++) {s = ""; for (i = 0; i < 60; i++) s = s w[1 + int(rand() * n)] (i % 9 == 8 ? ". " : " "); printf "{\"text\": \"%s\"}\n", s}}'
}
text 3 'the cat dog sees runs on in house tree river' >general.jsonl
text 4 'print sort keys hash list each split join open close' >domain.jsonl
for d in general domain; do
    head -n 50 $d.jsonl >$d-train.jsonl; tail -n 10 $d.jsonl >$d-test.jsonl
    tern data build -t model -o data/$d.tds $d-train.jsonl 2>/dev/null && tern data build -t model -o data/$d-test.tds $d-test.jsonl 2>/dev/null || exit 1
done
run tern run run.yaml --ranks 2 --set steps=4 --set optimizer.lr=1e-2; status 0 "a base is trained"
run tern ckpt export checkpoints/latest -o base; status 0 "the base is exported"
for d in general domain; do
    run tern run run.yaml --ranks 2 --set name=$d --set "model={from: base, tokenizer: model}" --set "data.train=[{path: data/$d.tds}]" \
        --set checkpoint.dir=ck-$d --set steps=30 --set checkpoint.every=30 --set optimizer.lr=1e-2
    status 0 "a run continues on $d"
done
run tern ckpt blend ck-general/latest ck-domain/latest -o mean --verify; status 0 "both continued models are blended"
run tern ckpt blend ck-general/latest ck-domain/latest -m ties --base base --density 0.6 -o ties; status 0 "both are blended by ties, too"

# One command evaluates a model on both held-out sets.
both=(--set 'data.held_out=[{name: general, path: data/general-test.tds}, {name: domain, path: data/domain-test.tds}]')
for m in ck-general/latest ck-domain/latest base mean ties; do
    run tern eval run.yaml --only --checkpoint $m --json "${both[@]}"; status 0 "tern eval takes $m and two held-out sets"
    jq -r '"\(.general.after.ppl_token) \(.domain.after.ppl_token)"' out >"${m%%/*}.ppl"
    echo "# $m: perplexity on general and domain $(cat "${m%%/*}.ppl")"
done
below() { # A B COLUMN NAME: A's perplexity is that of B times 0.8 at most
    paste "$1.ppl" "$2.ppl" | awk -v k="$3" '{exit !(NF == 4 && $k > 1 && $k < 0.8 * $(k + 2))}'; ok $? "$4"
}
below ck-general ck-domain 1 "the run on general knows general better than the run on domain"
below ck-domain ck-general 2 "the run on domain knows domain better than the run on general"
for m in mean ties; do
    below $m ck-domain 1 "$m: on general the blend is better than the model of the other domain"
    below $m ck-general 2 "$m: on domain the blend is better than the model of the other domain"
done
below mean base 1 "on general the mean of both is better than the base"
below mean base 2 "on domain the mean of both is better than the base"
run tern eval run.yaml --only --checkpoint mean "${both[@]}"; status 0
grep -q '^general .* [0-9]' out && grep -q '^domain .* [0-9]' out; ok $? "the table of a blend's perplexities has a row for each domain" || cat out
tap_done
