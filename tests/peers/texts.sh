#!/bin/bash
# Files of text as Semantic Scholar and Wikicorpus publish them: the ids are those of the texts that
# Python reads in them.
. "$(dirname "$0")/../lib/tap.sh"
T=$ROOT/tests/golden/spm-bpe-800.model
[ -n "$DATA" ] || skip_all "no ../shared/data"

ids() { tern data encode -t "$T" "$@" 2>err | sha256sum; }
python3 "$ROOT/tests/peers/texts.py" . "$DATA"/multilingual/{ca,es}.jsonl "$DATA/pubmed/pubmed_abstracts_val.jsonl" "$DATA/general/general_val.jsonl" >made 2>&1
ok $? "Python writes and reads the files" || { cat made; tap_done; }
for f in s2orc-2020 s2orc-content s2orc-body; do
    is "$(ids --format s2orc $f)" "$(ids $f.want.jsonl)" "$f"
    for n in 1 2; do is "$(ids --format s2orc --threads $n <$f -)" "$(ids $f.want.jsonl)" "$f on standard input with $n threads"; done
done
is "$(ids --format jsonl --field 'body_text[].text' s2orc-2020)" "$(ids s2orc-2020.want.jsonl)" "s2orc-2020 by --field"
for f in articles-latin-1-1 articles-latin-1-2; do is "$(ids $f)" "$(ids $f.want.jsonl)" "$f"; done
for f in articles-utf-8-1 articles-utf-8-2; do is "$(ids --encoding utf-8 $f)" "$(ids $f.want.jsonl)" "$f"; done
[ "$(ids articles-latin-1-1)" != "$(ids s2orc-body)" ]; ok $? "different texts have different ids"

# Folders that datasets saves.
. "$ROOT/tests/lib/venv.sh"
if venv datasets 'datasets, pyarrow' datasets==5.2.0; then
    cat >save.py <<'PY'
import json
from datasets import Dataset, DatasetDict

texts = [json.loads(line)["text"] for line in open("s2orc-2020.want.jsonl")]
rows = Dataset.from_list([{"id": i, "body": {"text": t, "n": i}, "text": t} for i, t in enumerate(texts)])
rows.save_to_disk("saved", num_shards=3)
rows.select(range(len(texts) - 1, -1, -1)).save_to_disk("turned", num_shards=2)
DatasetDict({"train": rows, "test": rows.select([0])}).save_to_disk("both")
PY
    HF_HOME=$WORK/hf "$VENV/bin/python" save.py >made 2>&1; ok $? "datasets saves folders" || cat made
    is "$(ids saved)" "$(ids s2orc-2020.want.jsonl)" "a folder that datasets saved in three files"
    for n in 1 2; do is "$(ids --field body.text --threads $n saved)" "$(ids s2orc-2020.want.jsonl)" "a field of its column with $n threads"; done
    tac s2orc-2020.want.jsonl >turned.jsonl; is "$(ids turned)" "$(ids turned.jsonl)" "chosen rows, in their order"
    is "$(ids both/train)" "$(ids s2orc-2020.want.jsonl)" "one split of several"
    run tern data encode -t "$T" both; status 2 "a data set of several splits is refused"; err_has 'both/train, both/test'
else
    skip "the Python package datasets is not there and cannot be installed"
fi
tap_done
