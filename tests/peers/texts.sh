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
tap_done
