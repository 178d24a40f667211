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
err_has '2 empty documents were left out'
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
err_has 'no whole number'

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
refused 'llama3.model: a tiktoken file'
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
run tern data build -t "$T" -o x.tds --format csv a.jsonl
refused 'allowed are auto, jsonl and text'
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
    run tern data build -t "$DATA/tokenizers/torchtitan-test-2k" -o x.tds a.jsonl
    refused 'only tokenizer.json'
    run tern data build -t "$DATA/tokenizers/llama3" -o x.tds a.jsonl
    refused 'a tiktoken file, as Llama 3 has'
    while read -r file tokenizer _ _ sum; do
        [ "$tokenizer" = llama2 ] || continue
        got=$(tern data encode -t "$DATA/tokenizers/llama2" "$DATA/$file" | sha256sum | cut -d' ' -f1)
        [ "$got" = "$sum" ]; ok $? "llama2's ids of $file"
    done <"$DATA/tokenizers/vectors/corpus_sha256.tsv"
else
    skip "no shared data"
fi
printf 'a\0b' >binary.txt
run tern data build -t "$ROOT/tests/golden/spm-bpe-800.model" -o binary.tds binary.txt
status 2; err_has "is not text"; one_line
[ ! -e binary.tds ]; ok $? "and makes no set"
tap_done
