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
is "$(ids --field 'body_text[].text' s2orc-2020.jsonl)" "$wanted" "--field body_text[].text reads those texts"
is "$(ids --format jsonl --field content.text s2orc-1)" "$wanted" "--field content.text reads that text"
is "$(ids --field body.text s2orc-2)" "$wanted" "--field body.text finds the format, too"
for f in s2orc-2020.jsonl s2orc-1 s2orc-2; do is "$(ids --format s2orc $f)" "$wanted" "--format s2orc: $f"; done
printf '{"corpusid": 1, "content": null}\n' >none
build --format s2orc none; refused "a paper without text" "none:1: no field 'body_text[].text' and no 'content.text' and no 'body.text' (found: corpusid, content)"
build --format s2orc --skip-bad none s2orc-1; status 0 "a paper without text is left out"; err_has 'none: 1 lines that cannot be read were left out: 1'

# ---- folders
mkdir -p corpus/b corpus/a.d corpus/.git
cp plain.jsonl corpus/b/1.jsonl; gzip -c more.jsonl >corpus/a.d/2.jsonl.gz
printf '{"text": "hidden"}\n' | tee corpus/.hidden.jsonl >corpus/.git/x.jsonl
echo 'About this corpus' >corpus/README.md; echo x >corpus/b/1.jsonl.sha256
wanted=$(ids more.jsonl plain.jsonl)
is "$(ids corpus)" "$wanted" "a folder is its JSONL files, in the order of their paths"
is "$(ids corpus/)" "$wanted" "a folder may be named with a slash"
is "$(cd corpus && ids .)" "$wanted" "a folder may be ."
for n in 1 2 3; do is "$(ids --threads $n corpus)" "$wanted" "a folder with $n threads"; done
rm -f corpus.tds; run tern data build -t "$T" corpus/; status 0 "a folder is built"; [ -f corpus.tds ]; ok $? "a folder's set has the folder's name"
err_has 'corpus/: 2 files; left out: README.md, b/1.jsonl.sha256'; is "$(count corpus.tds)" 301 "a folder is read with all documents of its files"
ln -s .. corpus/b/up; ln -s 1.jsonl corpus/b/same.jsonl
is "$(ids corpus)" "$wanted" "links back are not followed, and a file with two names is read once"
build corpus corpus/b; status 0; err_has 'files that were found twice are read once: corpus/b/same.jsonl, corpus/b/1.jsonl, corpus/b/same.jsonl'
is "$(count o.tds)" 301 "a folder inside another is read once"
build corpus/b/1.jsonl corpus/b/1.jsonl; err_has 'corpus/b/1.jsonl: is named twice; its documents are read twice'; is "$(count o.tds)" 600 "a file that is named twice is read twice"
mkdir empty; build empty; refused "an empty folder" "empty: no files of text in this folder"
build nowhere.jsonl plain.jsonl; refused "a missing file" "nowhere.jsonl: cannot open"

# ---- Wikicorpus
doc() { printf '<doc id="%s" title="T" nonfiltered="1" processed="1" dbindex="0">\r\n%b\r\n\r\n\r\nENDOFARTICLE.\r\n</doc>\r\n' "$1" "$2"; }
mkdir wiki; { doc 1 'El r\xedo &amp; la\r\n\r\n Notas .'; doc 2 'Dos.'; } >wiki/spanishText_0_5000; doc 3 'A\xf1o.' >wiki/spanishText_5000_10000
printf '%s\n' '{"text": "El r\u00edo &amp; la\n\n Notas ."}' '{"text": "Dos."}' '{"text": "A\u00f1o."}' >wiki.jsonl
wanted=$(ids wiki.jsonl)
is "$(ids wiki)" "$wanted" "a folder of Wikicorpus is found by itself"
is "$(ids --format wikicorpus --encoding latin-1 wiki/*)" "$wanted" "text in latin-1 is read as it is said to be"
is "$(cat wiki/* | ids -)" "$wanted" "Wikicorpus on standard input"
gzip -k wiki/*; mkdir wiki.gz; mv wiki/*.gz wiki.gz; is "$(ids wiki.gz)" "$wanted" "a folder of compressed Wikicorpus"
tar -cf raw.es.tar wiki; gzip -c raw.es.tar >raw.es.tgz
for f in raw.es.tar raw.es.tgz; do build $f; refused "$f" "$f: is a tar archive, not text in UTF-8. Unpack it (tar -xf) and name the folder."; done
iconv -f latin1 -t utf-8 wiki/spanishText_0_5000 >utf8; doc 4 '\xc3\xa1\xc3\xa9' >>utf8
build utf8; refused "Wikicorpus in UTF-8" "utf8: is UTF-8, and would be read as Latin-1"
build --encoding utf-8 utf8; status 0 "Wikicorpus in UTF-8 is read when said"; is "$(count o.tds)" 3 "a set of Wikicorpus has all articles"
head -c -8 wiki/spanishText_0_5000 >cut; build cut; refused "Wikicorpus cut off" "cut:9: the article has no line </doc>"
build --skip-bad cut; status 0 "an article cut off is left out"; err_has 'cut: 1 lines that cannot be read were left out: 9'; is "$(count o.tds)" 1 "articles before one that is cut off stay"
printf 'caf\351\n' >latin.txt; printf 'café\n' >utf.txt; is "$(ids --encoding latin-1 latin.txt)" "$(ids utf.txt)" "--encoding latin-1 of plain text"
build --encoding utf-16 latin.txt; refused "another encoding" "--encoding utf-16; allowed are auto, utf-8 and latin-1"

# ---- Arrow
G=$ROOT/tests/golden
for i in 0 1 2 4 5; do printf '{"text": "word %d é😀"}\n' $i; done >file.jsonl
{ cat file.jsonl; for i in 6 7; do printf '{"text": "word %d é😀"}\n' $i; done; } >stream.jsonl
build $G/arrow-file.arrow; refused "a row without text" "arrow-file.arrow:4: the row has no text. --skip-bad leaves such rows out."
build --skip-bad $G/arrow-file.arrow; status 0 "an Arrow file"; is "$(count o.tds)" 5 "a set of an Arrow file has the rows with a text"; err_has 'arrow-file.arrow: 1 lines that cannot be read were left out: 4'
wanted=$(ids file.jsonl); is "$(ids --skip-bad $G/arrow-file.arrow)" "$wanted" "the column text of an Arrow file"
for n in 1 2 3; do is "$(ids --skip-bad --threads $n $G/arrow-stream.arrow)" "$(ids stream.jsonl)" "the column text of an Arrow stream with $n threads"; done
for i in 0 1 3 4 5; do printf '{"text": "b%d"}\n' $i; done >body.jsonl; is "$(ids --skip-bad --field body.text $G/arrow-file.arrow)" "$(ids body.jsonl)" "a field of a column"
build --field ids $G/arrow-file.arrow; refused "a column of numbers" "column 'ids' is list<int32>, not text. Choose another with --field."
build --field none $G/arrow-file.arrow; refused "a missing column" "none"
mkdir saved split; cp $G/arrow-stream.arrow saved/b.arrow; cp $G/arrow-file.arrow saved/a.arrow; cp $G/arrow-file.arrow saved/cache-1.arrow
printf 'one\n%%%%\ntwo\n%%%%\nthree' >lf.txt; printf 'one\r\n%%%%\r\ntwo\r\n%%%%\r\nthree\r\n' >crlf.txt
is "$(ids --format text --split %% crlf.txt)" "$(ids --format text --split %% lf.txt)" "a document of parted text ends before its newline, be it of Windows"
printf 'one\r' >cr.txt; printf 'one' >none.txt; [ "$(ids --format text --split %% cr.txt)" != "$(ids --format text --split %% none.txt)" ]; ok $? "a carriage return that ends no line is a part of its document"
mv saved split/train; is "$(ids --skip-bad split/train)" "$(ids file.jsonl stream.jsonl)" "a folder of Arrow files, in the order of their names, without datasets' caches"
printf '{"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}' >split/train/state.json
is "$(ids --skip-bad split/train)" "$(ids stream.jsonl file.jsonl)" "a folder that datasets saved, in the order of its rows"
echo '{"splits": ["train", "test"]}' >split/dataset_dict.json; build split; refused "several data sets" "split/train, split/test"
gzip -c $G/arrow-file.arrow >x.arrow.gz; build x.arrow.gz; refused "compressed Arrow" "is an Arrow file, not text in UTF-8. Name it decompressed"
build --format jsonl $G/arrow-stream.arrow; refused "Arrow as JSONL" "is an Arrow stream, not text in UTF-8. Name it decompressed, not as standard input, and without --format."
head -c 2000 $G/arrow-stream.arrow >cut.arrow; build --skip-bad cut.arrow; refused "Arrow cut off" "cut.arrow: "

# ---- short documents, files that are no text
printf '{"text": "ab"}\n{"text": "abc"}\n{"text": ""}\n{"text": "abcd"}\n' >short.jsonl
build --min-length 3 short.jsonl; status 0 "--min-length leaves out short texts"; is "$(count o.tds)" 2 "leaves shorter documents out"; err_has 'short.jsonl: 1 documents below --min-length were left out'
printf '%s\n' '{"text": "one"}' '{"text": "two"}' '{"text": "one"}' '{"text": ""}' '{"text": "x"}' 'no JSON' '{"text": "one"}' '{"text": "caf\ud800"}' '{"text": "two"}' >some.jsonl
build --dedup --skip-bad --min-length 2 --invalid skip some.jsonl; status 0 "duplicates, short, empty, bad and wrong documents"; is "$(count o.tds)" 2 "are left out"
words='left out: 3 duplicates, 1 too short, 1 empty, 1 not in UTF-8, 1 bad line; no document was cut'
err_has "$words"; run tern data info o.tds; out_has "$words" "tern data info tells what was left out"
tern data info --json o.tds | tr -d ' \n' >info; for w in '"duplicates":3' '"too_short":1' '"empty":1' '"not_utf8":1' '"bad_lines":1' '"bad":[{"path":"some.jsonl","lines":1,"first":[6]}]'; do has info "$w" "the notes of the set have $w"; done
for n in 1 2 3; do rm -f n.tds; tern data build -t "$T" --dedup --skip-bad --min-length 2 --invalid skip --threads $n -o n.tds some.jsonl 2>err; cmp -s o.tds n.tds; ok $? "the set without duplicates is the same with $n threads"; done
build --dedup plain.jsonl more.jsonl plain.jsonl; err_has 'left out: 300 duplicates; no document was cut'
build --invalid replace latin.txt; err_has '1 byte replaced; no document was cut'
build more.jsonl; err_has "nothing was left out or cut"
cp more.jsonl $'m\xe9.jsonl'; cp "$T" $'t\xe9.model'
run tern data build -t $'t\xe9.model' -o o.tds $'m\xe9.jsonl'; status 0 "names of files that are not UTF-8 are no obstacle"
is "$(tern data info --json o.tds | jq -r .source.files[0].path)" $'m\xef\xbf\xbd.jsonl' "the set's record has file names with U+FFFD"
build --field $'te\xe9xt' more.jsonl; refused "a field's name that is not UTF-8" 'not UTF-8, as names of fields are'
build --part 1/2 --format text --split $'\xe9' $'m\xe9.jsonl'; status 0 "a part notes any --split"
no_text() { printf "$1" >x.bin; build x.bin; refused "$2" "x.bin: is $2, not text in UTF-8. $3"; }
no_text 'PAR1\025\004\025' 'a Parquet file' 'Write its texts as JSONL: '
no_text 'PK\003\004\024' 'a zip archive' 'Unpack it (unzip) and name the folder.'
no_text '%%PDF-1.7\n' 'a PDF file' 'Take its text out of it: pdftotext.'
no_text '\377\376a\0' 'UTF-16 or UTF-32' 'Convert it: iconv -f UTF-16 -t UTF-8.'
cp o.tds set.tds 2>/dev/null || tern data build -t "$T" -o set.tds plain.jsonl 2>/dev/null; build set.tds; refused "a token set" "set.tds: is a token set already"
tap_done
