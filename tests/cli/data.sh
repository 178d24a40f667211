#!/bin/bash
# tern data: text in, token set out; what is wrong is said in one line and nothing is left behind.
. "$(dirname "$0")/../lib/tap.sh"
T=$ROOT/tests/golden/spm-bpe-800.model

left() { ls -A | grep -vxE 'out|err|text.*|.*\.jsonl(\.gz)?|.*\.model|good.*|model' | tr '\n' ' '; }
clean() { [ -z "$(left)" ]; ok $? "${1:-$cmd: leaves nothing}" || left; }

printf '{"text":"We the people."}\n{"text":"Of the United States\\n"}\n{"text":""}\n' >a.jsonl
printf 'We the people.' >text1.txt
gzip -c a.jsonl >b.jsonl.gz

# ---- build, info, verify, head
run tern data build --tokenizer "$T" -o good.tds a.jsonl b.jsonl.gz text1.txt
status 0
err_has '5 documents'
err_has 'left out: 2 empty; no document was cut'
[ ! -s out ]; ok $? "build prints nothing to stdout"
run tern data info good.tds --seq-len 8
status 0
out_has 'documents    5'
out_has 'vocabulary   800 pieces'
run tern data info --json good.tds
status 0
out_has '"text_bytes": 84'
out_has '"documents": 5'
run tern data verify good.tds
status 0
out_has 'good.tds: ok'
run tern data head good.tds -t "$T" -n 1
status 0
out_has 'We the people.'
cp good.tds good2.tds
run tern data build --tokenizer "$T" -o good2.tds a.jsonl b.jsonl.gz text1.txt
cmp -s good.tds good2.tds; ok $? "the same text gives the same file"
(mkdir model && cp "$T" model/tokenizer.model)
run tern data build -t model -o good2.tds - <<<''
status 2
err_has 'nothing was written'
cmp -s good.tds good2.tds; ok $? "a failed build leaves the old set"
rm good2.tds
run tern data build -t model a.jsonl
status 0
[ -f a.tds ]; ok $? "without -o the set is named for its text"
rm -f a.tds

# ---- encode and decode
run tern data encode --tokenizer "$T" text1.txt
status 0
cp out good.ids
[ $(($(wc -c <good.ids) % 4)) = 0 ] && [ -s good.ids ]; ok $? "encode writes u32"
run tern data decode --tokenizer "$T" good.ids
status 0
cmp -s out text1.txt; ok $? "decode gives the text back"
run tern data encode --tokenizer "$T" a.jsonl
first=$(head -c "$(wc -c <good.ids)" out | sha256sum)
[ "$first" = "$(sha256sum <good.ids)" ]; ok $? "JSONL gives the ids of its texts in order, no BOS and EOS"
printf 'abc' >good.ids
run tern data decode --tokenizer "$T" good.ids
status 2
err_has 'not a whole number'

# ---- bad input
refused() { # TEXT: one line, usage status, nothing left
    status 2
    err_has "$1"
    one_line
    clean
}
head -c 5000 "$T" >cut.model
run tern data build -t cut.model -o x.tds a.jsonl
refused 'cut.model: damaged'
printf 'IQ== 0\nIg== 1\nIw== 2\n' >llama3.model
run tern data build -t llama3.model -o x.tds a.jsonl
refused 'llama3.model: no piece for the byte'
run tern data build -t nowhere.model -o x.tds a.jsonl
refused 'nowhere.model'
run tern data build -o x.tds a.jsonl
refused '--tokenizer is missing'
run tern data build -t "$T" -o x.tds a.jsonl nowhere.jsonl
refused 'nowhere.jsonl'
run tern data build -t "$T" -o x.tds --field body a.jsonl
refused "a.jsonl:1: no field 'body' (found: text)"
printf '{"text":"x"}\n{"text":\n' >torn.jsonl
run tern data build -t "$T" -o x.tds torn.jsonl
refused 'torn.jsonl:2: not a JSON object'
head -c 60 b.jsonl.gz >torn.jsonl.gz
run tern data build -t "$T" -o x.tds torn.jsonl.gz
refused 'torn.jsonl.gz: damaged gzip'
: >text0.txt
run tern data build -t "$T" -o x.tds text0.txt
refused 'no text in the files given'
printf '{"text":\n{"txt":"x"}\n{"text":"a text"}\n{"text":"\377"}\n' >none.jsonl
run tern data build -t "$T" -o x.tds --skip-bad --invalid skip --min-length 1000 none.jsonl
refused 'nothing was written: 2 lines cannot be read; the first is none.jsonl:1, and without --skip-bad its error says why'
grep -q '1 documents are not UTF-8. 1 documents are below --min-length' err; ok $? "an error that no text is left counts what was left out" || cat err
run tern data build -t "$T" -o x.tds --format csv a.jsonl
refused 'allowed are auto, jsonl, s2orc, wikicorpus and text'
run tern data build -t "$T" -o nowhere/x.tds a.jsonl
status 1
err_has 'nowhere/x.tds: cannot create'
one_line

# ---- damaged sets
for n in 0 100 4096 $(($(stat -c %s good.tds) - 1)); do
    head -c "$n" good.tds >good-cut.tds
    run tern data info good-cut.tds
    status 2 "a set cut at byte $n is refused"
    one_line
done
: >good-cut.tds
run tern data verify good-cut.tds
status 2
err_has 'not a token set'
flip_bit() { # FILE OFFSET
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
for at in 9 40 300 4096 $(($(stat -c %s good.tds) - 2)); do
    cp good.tds good-flip.tds
    flip_bit good-flip.tds "$at"
    run tern data verify good-flip.tds
    status 2 "a flipped bit at byte $at is noticed"
    one_line
done
run tern data verify a.jsonl
status 2
err_has 'not a token set'

# ---- interrupted: the pipe keeps the build waiting for more text
mkfifo good.pipe
tern data build -t "$T" -o x.tds --format jsonl - <good.pipe 2>err &
pid=$!
exec 7>good.pipe
cat a.jsonl >&7
until_true compgen -G 'x.tds.tmp-*'; ok $? "a build under way writes beside its place"
kill -TERM $pid
exec 7>&-
wait $pid
rc=$? cmd="a build that is stopped"
status 1
err_has 'nothing was written'
clean

# ---- the shared data's trap cases
if [ -n "$DATA" ]; then
    run tern data build -t "$DATA/tokenizers/sentencepiece-test-1k/test_model.model" -o x.tds a.jsonl
    refused 'unigram model'
    for tokenizer in torchtitan-test-2k gpt2 llama3; do
        run tern data build -t "$DATA/tokenizers/$tokenizer" -o x.tds a.jsonl
        status 0
        rm -f x.tds
    done
    while read -r file tokenizer _ _ sum; do
        got=$(tern data encode -t "$DATA/tokenizers/$tokenizer" "$DATA/$file" 2>/dev/null | sha256sum | cut -d' ' -f1)
        [ "$got" = "$sum" ]; ok $? "$tokenizer's ids of $file"
    done < <(tail -n +2 "$DATA/tokenizers/vectors/corpus_sha256.tsv")
else
    skip "no shared data"
fi
printf 'a\0b' >binary.txt
run tern data build -t "$ROOT/tests/golden/spm-bpe-800.model" -o binary.tds binary.txt
status 2; err_has "is not text"; one_line
[ ! -e binary.tds ]; ok $? "a failed build makes no set"
# ---- what is no text, no JSONL, no gzip: told, and never taken for something else
count() { tern data info "$1" --json | sed -n 's/^ *"documents": \([0-9]*\).*/\1/p' | head -n 1; }
docs() { is "$(count o.tds)" "$1" "$1 documents"; }
build() { rm -f o.tds; run tern data build -t model -o o.tds "$@"; }
two='{"text": "Alpha document one."}
{"text": "Beta document two."}'
for name in x.jsonl X.JSONL x.jsonl.bak x.jsonlines x.ndjson shard-00001.jsonl-of-00010 noext x.txt x.log; do
    printf '%s\n' "$two" >"$name"; build "$name"; status 0; is "$(count o.tds)" 2 "$name: two documents"; rm "$name"
done
printf '%s\n' "$two" | gzip >x.JSONL.GZ; build x.JSONL.GZ; is "$(count o.tds)" 2 "JSONL by a name in capitals with .GZ"
printf '%s\n' "$two" | { rm -f o.tds; tern data build -t model -o o.tds - 2>/dev/null; }; is "$(count o.tds)" 2 "JSONL on standard input"
printf '{"body": "x"}\n' >x; build x; status 2 "objects without the field"; err_has 'Say --format jsonl'; one_line
build --format text x; status 0 "--format text reads JSONL as text"
printf '{"a": 1,\n "text": "x"}\n' >x.json; build x.json; status 2; err_has 'Say --format jsonl'
printf '{ this is prose }\n' >x; build x; status 0 "a brace is no JSON"

for line in '{"text": "ab", "x": NaN}' '{"text": "ab", "x": [-Infinity, Infinity]}' '{"text": "ab", "n": 123456789012345678901234567890}' '{"n": 1e999, "text": "ab"}' \
    '{"x": 1, "x": 2, "text": "ab"}' '{"a\u0000b": 1, "text": "ab"}' '{"m": "\ud800", "text": "ab"}' '{"m": {"x": [{"y": NaN}]}, "text": "\u0061\u0062"}' '{"text": "a\u0062", "e": "\ud83d\ude00", "z": NaN}'; do
    printf '%s\n' "$line" >odd.jsonl; build odd.jsonl; status 0 "data build reads $line"
    run tern data encode -t model odd.jsonl; cp out odd.ids; printf '{"text": "ab"}\n' >plain.jsonl; run tern data encode -t model plain.jsonl
    cmp -s out odd.ids; ok $? "an odd JSONL line has its text's ids"
done
for line in '{"text": "ab"' '{"text": "ab", "x": NaNs}' '{"text": "ab" "x": 1}' '["text"]' '{"text": "a	b", "x": NaN}' '{"text": null}' '{"text": 1, "x": NaN}' '{"x": Infinit}' '{"text": "\ud800"}' '{"text": "ab"}}' '{"text": "ab", "x": 01}' '{"text": "ab", "x": NaN,}' '{"te\u0078t"}'; do
    printf '{"text": "good"}\n%s\n{"text": "good too"}\n' "$line" >bad.jsonl
    build bad.jsonl; status 2 "data build refuses $line"; err_has 'bad.jsonl:2: '; one_line; [ ! -e o.tds ]; ok $? "nothing is written"
    build --skip-bad bad.jsonl; status 0 "left out where that is said"; docs 2; err_has '1 lines that cannot be read were left out: 2'
done

printf 'caf\351 au lait, d\351j\340\n' >latin1.txt
build latin1.txt; status 2 "a file in Latin-1 is refused"; err_has 'latin1.txt: is not UTF-8: 0xe9 at byte 3, 3 such bytes'; one_line; [ ! -e o.tds ]; ok $? "nothing is written"
build --invalid replace latin1.txt; status 0; err_has '3 bytes that are not UTF-8 were replaced'
run tern data encode -t model --invalid replace latin1.txt; cp out replaced; printf 'caf\357\277\275 au lait, d\357\277\275j\357\277\275\n' >fffd.txt; run tern data encode -t model fffd.txt; cmp -s out replaced; ok $? "by U+FFFD each"
echo good >good.txt; build --invalid skip latin1.txt good.txt; status 0; is "$(count o.tds)" 1 "left out where that is said"; err_has 'latin1.txt: 1 documents that are not UTF-8 were left out'
build --invalid maybe good.txt; status 2; err_has 'allowed are refuse, replace and skip'
printf 'one\n%%\ntw\303\n%%\nthree\n' >parts.txt; build --split % parts.txt; status 2; err_has 'parts.txt: is not UTF-8: 0xc3 at byte 8, 1 such'
build --split % --invalid skip parts.txt; is "$(count o.tds)" 2 "--invalid skip leaves out one document of several"
for bytes in '\300\257' '\355\240\200' '\364\220\200\200' '\342\202' '\200' '\377' '\360\237\230'; do
    printf "ab$bytes cd" >x.txt; build x.txt; status 2 "no UTF-8: $bytes"; err_has 'at byte 2'
    printf '{"text": "ab'"$bytes"' cd"}\n' >x.jsonl; build x.jsonl; status 2; err_has 'x.jsonl:1: '
done
# A line of JSONL: the byte's place in the file, and how many the file has.
at() { LC_ALL=C grep -obaF "$1" "$2" | head -n 1 | cut -d: -f1; }
E=$(printf '\351')
printf '{"text": "good"}\n{"id": 1, "text": "caf\351 d\351j"}\n{"text": "\351"}\n' >latin1.jsonl
build latin1.jsonl; status 2 "JSONL in Latin-1 is refused"; one_line
err_has "latin1.jsonl:2: is not UTF-8: 0xe9 at byte $(at "$E" latin1.jsonl), 3 such bytes in the file" "a JSONL refusal has line, byte and count of the file"
printf '{"text": "good"}\n{"x": "\303\251", "text": "a\\nb\351"}\n' >escaped.jsonl
build escaped.jsonl; err_has "escaped.jsonl:2: is not UTF-8: 0xe9 at byte $(at "$E" escaped.jsonl), 1 such bytes in the file" "a text with escapes: the byte's place in the file"
printf '{"x": "\350", "text": "a\\nb\351"}\n' >two.jsonl
build two.jsonl; err_has 'two.jsonl:1: is not UTF-8: 0xe9 at byte 3 of the text, 2 such bytes in the file' "of two fields with such bytes none is guessed"
{ for i in $(seq 60000); do echo '{"text": "a line of plain words that fills the file"}'; done; cat latin1.jsonl; } >long.jsonl
build --threads 3 long.jsonl; err_has "long.jsonl:60002: is not UTF-8: 0xe9 at byte $(at "$E" long.jsonl), 3 such bytes in the file" "far behind in a file its byte and line are right"
gzip -kf latin1.jsonl; build latin1.jsonl.gz; err_has 'latin1.jsonl.gz:2: is not UTF-8: 0xe9 at byte'; err_has '3 such bytes in the file' "of a compressed file all such bytes are counted"
tern data build -t model -o o.tds --format jsonl - <latin1.jsonl 2>err; err_has 'standard input:2: is not UTF-8: 0xe9 at byte'; err_has '2 such bytes in its text' "of standard input those of the text are counted"
{ cat latin1.txt latin1.txt; } >twice.txt; build --split % twice.txt; err_has 'twice.txt: is not UTF-8: 0xe9 at byte 3, 6 such bytes in the file' "plain text: all such bytes of the file are counted"
printf '\303\251\342\202\254\360\237\230\200\357\277\275\n' >x.txt; build x.txt; status 0 "UTF-8 of all lengths is read"
printf 'a\0b\0' >x.txt; build x.txt; status 2; err_has 'byte 1 is NUL'
printf '\377\376\100\116\072\123' >x.txt; build x.txt; status 2 "a file in UTF-16 is refused"; err_has 'is UTF-16 or UTF-32, not text in UTF-8'; one_line
for name in bom.txt bom.jsonl bom; do
    if [ $name = bom.txt ]; then printf 'plain words'; else printf '{"text": "plain words"}\n'; fi >without; { printf '\357\273\277'; cat without; } >$name
    run tern data encode -t model --format "$([ $name = bom.txt ] && echo text || echo jsonl)" without; cp out wanted; run tern data encode -t model $name; cmp -s out wanted; ok $? "$name: the mark at its beginning is no text"
done

printf '%s\n' "$two" | gzip >one.gz; printf '{"text": "Gamma."}\n' | gzip >two.gz
good() { build g.jsonl.gz; status 0 "gzip is read: $1"; docs "$2"; }
bad() { build g.jsonl.gz; status 2 "gzip is refused: $1"; err_has 'damaged gzip file'; one_line; [ ! -e o.tds ]; ok $? "nothing is written"; }
cat one.gz two.gz >g.jsonl.gz; good "two members" 3
{ cat one.gz; head -c 512 /dev/zero; } >g.jsonl.gz; good "gzip with NUL bytes behind it" 2
{ cat one.gz; head -c 3 /dev/zero; cat two.gz; } >g.jsonl.gz; good "gzip members with NUL bytes between them" 3
{ cat one.gz; printf '{"text": "plain"}\n'; } >g.jsonl.gz; bad "gzip with plain text behind it"
{ cat one.gz; printf x; } >g.jsonl.gz; bad "gzip with one byte behind it"
{ cat one.gz; printf '\037'; } >g.jsonl.gz; bad "gzip with half a magic number behind it"
{ cat one.gz; head -c 9 /dev/zero; printf x; } >g.jsonl.gz; bad "gzip with NUL bytes and a byte behind it"
size=$(stat -c %s two.gz)
for at in 0 1 2 3; do { cat one.gz; head -c $at two.gz; printf '\252'; tail -c +$((at + 2)) two.gz; } >g.jsonl.gz; [ $at = 3 ] || bad "gzip with a wrong byte $at of the second member"; done
for cut in 1 5 9 12 $((size - 9)) $((size - 1)); do { cat one.gz; head -c $cut two.gz; } >g.jsonl.gz; bad "a second member of $cut bytes"; done
{ cat one.gz; head -c $((size - 5)) two.gz; printf '\252'; tail -c 4 two.gz; } >g.jsonl.gz; bad "a wrong checksum"

# ---- what is written over
mkdir -p g; for i in 1 2 3; do echo '{"text": "document '$i'"}' >g/$i.jsonl; done
run tern data build -t model -o g/*.jsonl; status 2 "-o takes the first of the files"; err_has 'exists and is not a token set'; one_line; has g/1.jsonl 'document 1'
run tern data build -t model -o g/1.jsonl g/1.jsonl; status 2; err_has 'is an input itself'; has g/1.jsonl 'document 1'
cp model/tokenizer.model tk.model; cp tk.model kept.model; run tern data build -t tk.model -o tk.model g/1.jsonl; status 2; err_has 'is the tokenizer itself'; cmp -s tk.model kept.model; ok $? "a build leaves its tokenizer's file"
run tern data build -t model -o model/tokenizer.model g/1.jsonl; status 2; cmp -s model/tokenizer.model kept.model; ok $? "a build leaves the tokenizer in its folder"
ln -s g/2.jsonl link; run tern data build -t model -o link g/1.jsonl; status 2 "a link to somebody's text"; has g/2.jsonl 'document 2'
run tern data build -t model -o g g/1.jsonl; status 2 "a folder is refused as the set's place"
run tern data build -t model -o set.tds g/1.jsonl; status 0; run tern data build -t model -o set.tds g/1.jsonl g/2.jsonl; status 0 "a set takes the place of a set"; is "$(count set.tds)" 2 "the replacing set has two documents"
run tern data build -t model g/3.jsonl; status 0; mkdir h; echo '{"text": "other"}' >h/3.jsonl; cp 3.tds kept.tds
run tern data build -t model h/3.jsonl; status 2 "a name that was not asked for is not written over"; err_has 'Say where to write'; cmp -s 3.tds kept.tds; ok $? "a refused build leaves the old set"
tap_done
