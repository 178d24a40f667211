#!/bin/bash
# tern eval MODEL --choices: items, options, answers and mistakes.  tests/peers/choices.sh has the numbers.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER COLUMNS
"$TOOLS/ckpt-tool" model m 800 >/dev/null; cp "$ROOT/tests/golden/spm-bpe-800.model" m/tokenizer.model
python3 - <<'P'
import json, random
rng = random.Random(3)
words = "the a cat dog sees runs on in house tree Müller stone".split()
with open("items.jsonl", "w") as f:
    for i in range(40):
        some = lambda n: " ".join(rng.choice(words) for _ in range(n))
        f.write(json.dumps({"context": some(rng.randint(1, 9)), "choices": [some(rng.randint(1, 4)) for _ in range(rng.randint(2, 5))], "answer": rng.randrange(2)}) + "\n")
P
run tern eval m --choices items.jsonl; status 0; [ -z "$(wider 80 out)" ]; ok $? "the answers fit 80 columns"
has out "items.jsonl: 40 items, "; for m in acc acc_norm acc_bytes; do grep -qE "^$m +[01]\.[0-9]{4} +0\.[0-9]{4}$" out; ok $? "$m with its standard error" || cat out; done
run tern eval m --choices items.jsonl --json; cp out one.json; python3 - out <<'P'; ok $? "--json: log-likelihoods, of which acc, acc_norm and acc_bytes follow"
import json, math, sys
r = json.load(open(sys.argv[1]))
docs = [json.loads(line) for line in open("items.jsonl")]
assert [i["line"] for i in r["items"]] == list(range(1, 41)) and [i["gold"] for i in r["items"]] == [d["answer"] for d in docs]
best = lambda v: v.index(max(v))
for name, length in (("acc", lambda c: 1), ("acc_norm", len), ("acc_bytes", lambda c: len(c.encode()))):
    right = [best([x / length(c) for x, c in zip(i["loglikelihoods"], d["choices"])]) == d["answer"] for i, d in zip(r["items"], docs)]
    assert [i[name] for i in r["items"]] == right and r[name] == sum(right) / 40, name
    assert math.isclose(r[name + "_stderr"], math.sqrt(r[name] * (1 - r[name]) / 39)), name
assert all(x < 0 for i in r["items"] for x in i["loglikelihoods"]) and all(n >= 1 for i in r["items"] for n in i["tokens"])
P
run tern eval m --choices items.jsonl --json --ranks 3; status 0; python3 - one.json out <<'P'; ok $? "three ranks have the answers of one"
import json, sys
a, b = ([x for i in json.load(open(f))["items"] for x in i["loglikelihoods"]] for f in sys.argv[1:])
assert len(a) == len(b) and all(abs(x - y) < 1e-4 * abs(x) for x, y in zip(a, b)) # ranks share the threads: sums have another order
P
gzip -k items.jsonl; run tern eval m --choices items.jsonl.gz --json; cmp -s out one.json; ok $? "a compressed file has the same items"

# ---- the same items under other names
sed 's/"context"/"query"/; s/"answer"/"gold"/' items.jsonl >named.jsonl; run tern eval m --choices named.jsonl --json; cmp -s out one.json; ok $? "query and gold"
sed 's/"context"/"ctx"/; s/"choices"/"endings"/; s/"answer": \([0-9]\)/"label": "\1"/' items.jsonl >named.jsonl; run tern eval m --choices named.jsonl --json; cmp -s out one.json; ok $? "ctx, endings and a label that is a number as text"
python3 - <<'P'
import json
with open("named.jsonl", "w") as f:
    for line in open("items.jsonl"):
        d = json.loads(line)
        labels = "54321"[:len(d["choices"])] if d["answer"] else "ABCDE"[:len(d["choices"])]
        f.write(json.dumps({"question": d["context"], "choices": {"text": d["choices"], "label": list(labels)}, "answerKey": labels[d["answer"]]}) + "\n")
P
run tern eval m --choices named.jsonl --json; cmp -s out one.json; ok $? "question, choices with labels, and answerKey"

# ---- the seam
item() { printf '{"context": "%s", "choices": ["%s", "xx"], "answer": 0}\n' "$1" "$2" >seam.jsonl; tern eval m --choices seam.jsonl --json "${@:3}" | python3 -c 'import json, sys; print(json.load(sys.stdin)["items"][0]["loglikelihoods"][0])'; }
a=$(item "the cat" "runs")
is "$(item "the cat " "runs" --delimiter "")" "$a" "a blank at the context's end counts to the choice"
[ "$(item "the cat" "runs" --delimiter "")" != "$a" ]; ok $? "--delimiter '': nothing is put between"
is "$(item "the cat" "runs" --bos)" "$a" "--bos: what this tokenizer does by itself"
[ "$(item "the cat" "runs" --no-bos)" != "$a" ]; ok $? "--no-bos: another context"
is "$(item "" "runs" --no-bos)" "$(item "" "runs")" "an empty context is BOS in any case"
item "$(printf 'the cat %.0s' $(seq 600))" runs >long 2>err; [ -s long ]; ok $? "a context that is too long is cut"; err_has "2 of 2 choices are longer than the"

# ---- mistakes
cp items.jsonl bad.jsonl
while IFS='|' read -r line words; do
    { head -n 3 items.jsonl; echo "$line"; } >bad.jsonl
    run tern eval m --choices bad.jsonl; status 2 "refused: $line"; err_has "bad.jsonl:4"; err_has "$words"; one_line
done <<'L'
{"choices": ["a", "b"], "answer": 0}|no context, query, question or ctx
{"context": 7, "choices": ["a", "b"], "answer": 0}|its context is no text
{"context": "x", "answer": 0}|no choices or endings
{"context": "x", "choices": ["a"], "answer": 0}|no list of two texts or more
{"context": "x", "choices": ["a", ""], "answer": 0}|choice 1 is empty
{"context": "x", "choices": ["a", 3], "answer": 0}|choice 1 is no text
{"context": "x", "choices": ["a", "b"]}|no answer, gold, label or answerKey
{"context": "x", "choices": ["a", "b"], "answer": 2}|its answer is 2; choices are 0 to 1
{"context": "x", "choices": ["a", "b"], "answer": -1}|its answer is -1
{"context": "x", "choices": ["a", "b"], "answer": "B"}|no number of a choice, and no label
{"context": "x", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "C"}|no number of a choice, and no label
["x"]|is no JSON object
{"context": "x"|bad.jsonl:4
L
: >empty.jsonl; run tern eval m --choices empty.jsonl; status 2; err_has "holds no item"; one_line
run tern eval m --choices nowhere.jsonl; status 2; one_line
run tern eval nowhere --choices items.jsonl; status 2; one_line
run tern eval nowhere --choices items.jsonl --ranks 3; status 2 "a mistake of several ranks is reported once"; one_line
for words in "--checkpoints all" "--data a=b.tds" "--set steps=1" --only; do run tern eval m --choices items.jsonl $words; status 2 "--choices with $words is refused"; one_line; done
run tern eval run.yaml --bos; status 2; err_has "are about --choices"; one_line
run tern eval m --choices items.jsonl --bos --no-bos; status 2; one_line
mv m/tokenizer.model .; run tern eval m --choices items.jsonl; status 2 "a model without a tokenizer"; one_line
run tern eval m --choices items.jsonl --tokenizer tokenizer.model --json; cmp -s out one.json; ok $? "--tokenizer FILE gives the same answers"
tap_done
