#!/bin/bash
# tern data build: what texts may lie in.  The same text gives the same set, whatever it lies in.
. "$(dirname "$0")/../lib/tap.sh"
T=$ROOT/tests/golden/spm-bpe-800.model

count() { tern data info "$1" --json | sed -n 's/^ *"documents": \([0-9]*\).*/\1/p' | head -n 1; }
build() { rm -f o.tds; run tern data build -t "$T" -o o.tds "$@"; }
ids() { tern data encode -t "$T" "$@" 2>/dev/null | sha256sum; }
refused() { status 2 "$1 is refused"; err_has "$2"; one_line; [ ! -e o.tds ]; ok $? "$1: nothing is written"; }

# ---- compressed
for i in $(seq 300); do printf '{"id": %d, "text": "We the people, %d, of the United States"}\n' $i $((i * i)); done >plain.jsonl
printf '{"text": "Gamma."}\n' >more.jsonl
wanted=$(ids plain.jsonl more.jsonl)
compressed() { # NAME SUFFIX COMMAND...
    local name=$1 suffix=$2 f; shift 2
    command -v "$1" >/dev/null || { skip "no $1"; return; }
    "$@" <plain.jsonl >one; "$@" <more.jsonl >two
    cat one two >x.jsonl.$suffix
    build x.jsonl.$suffix
    if grep -q 'was built without' err; then
        refused "$name without its library" "is compressed by $name, and this tern was built without lib"
        skip "tern was built without $name"
        return
    fi
    status 0 "$name is read"; is "$(count o.tds)" 301 "$name: the documents of two members"
    is "$(ids x.jsonl.$suffix)" "$wanted" "$name: the ids of the text"
    is "$(ids - <x.jsonl.$suffix)" "$wanted" "$name on standard input"
    f=X.JSONL.${suffix^^}; cp x.jsonl.$suffix $f; is "$(ids $f)" "$wanted" "$name by a name in capitals"
    head -c $(($(stat -c %s one) - 3)) one >x.jsonl.$suffix; build x.jsonl.$suffix; refused "$name cut off" "damaged $name file"
    { cat one; printf 'plain text'; } >x.jsonl.$suffix; build x.jsonl.$suffix; refused "$name with text behind it" "damaged $name file: bytes behind it are of another kind"
    { head -c 60 one; printf '\252\125\252\125'; tail -c +65 one; } >x.jsonl.$suffix; build x.jsonl.$suffix; refused "$name with wrong bytes" "damaged $name file"
    { cat one; head -c 8 /dev/zero; } >x.jsonl.$suffix; build x.jsonl.$suffix; status 0 "$name with NUL bytes behind it"
    printf '{"a": 1}\n' | "$@" >x.json.$suffix; build x.json.$suffix; refused ".json.$suffix" 'Say --format jsonl'
    cp two y.jsonl.$suffix; run tern data build -t "$T" y.jsonl.$suffix; [ -f y.tds ]; ok $? "the set of y.jsonl.$suffix is y.tds"; rm -f y.tds
}
compressed gzip gz gzip -c
compressed Zstandard zst zstd -qc
compressed bzip2 bz2 bzip2 -c
compressed xz xz xz -c

# ---- the text inside a record
printf '{"text": "One.\\nTwo \\u00e9."}\n{"text": ""}\n{"text": "Three."}\n' >flat.jsonl
wanted=$(ids flat.jsonl)
printf '%s\n' '{"paper_id": "1", "abstract": [{"text": "no"}], "body_text": [{"text": "One.", "cite_spans": [{"text": "[1]"}]}, {"section": "", "text": "Two \u00e9."}]}' \
    '{"paper_id": "2", "body_text": []}' '{"body_text": [{"text": "Three."}]}' >s2orc-2020.jsonl
printf '%s\n' '{"corpusid": 1, "content": {"source": {"pdfurls": null}, "text": "One.\nTwo \u00e9.", "annotations": {"paragraph": "[{\"start\":0,\"end\":4}]"}}}' \
    '{"corpusid": 2, "content": {"text": ""}}' '{"content": {"annotations": {"text": "no"}, "text": "Three."}}' >s2orc-1
printf '%s\n' '{"corpusid": 1, "title": "t", "body": {"text": "One.\nTwo \u00e9.", "annotations": {"paragraph": [{"start": 0}]}}}' \
    '{"body": {"text": ""}, "bibliography": {"text": "no"}}' '{"body": {"text": "Three."}}' >s2orc-2
is "$(ids --field 'body_text[].text' s2orc-2020.jsonl)" "$wanted" "--field body_text[].text"
is "$(ids --format jsonl --field content.text s2orc-1)" "$wanted" "--field content.text"
is "$(ids --field body.text s2orc-2)" "$wanted" "--field body.text finds the format, too"
for f in s2orc-2020.jsonl s2orc-1 s2orc-2; do is "$(ids --format s2orc $f)" "$wanted" "--format s2orc: $f"; done
printf '{"corpusid": 1, "content": null}\n' >none
build --format s2orc none; refused "a paper without text" "none:1: no field 'body_text[].text' and no 'content.text' and no 'body.text' (found: corpusid, content)"
build --format s2orc --skip-bad none s2orc-1; status 0 "a paper without text is left out"; err_has 'none: 1 lines that cannot be read were left out: 1'
tap_done
