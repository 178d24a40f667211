#!/bin/bash
# Records of instruct data by way of tern data build --template: what is learnt, what is left out, what is
# refused, what a set says of it.
. "$(dirname "$0")/../lib/tap.sh"
model=$ROOT/tests/golden/spm-bpe-800.model
export PYTHONPATH=$ROOT/tests/lib PYTHONDONTWRITEBYTECODE=1
build() { run tern data build -t "$model" --threads 1 "$@"; }

cat >dolly.jsonl <<'J'
{"instruction": "What is the government?", "context": "", "response": "Of the people.", "category": "qa"}
{"instruction": "Say it again.", "context": "By the people,\nfor the people.", "response": "So it is."}

{"instruction": "And now?", "response": "It ends with </s> as text."}
J
build -o dolly.tds --template dolly dolly.jsonl
status 0; err_has 'template dolly: 3 records' "records are counted"
run tern data info --json dolly.tds
out_has '"template": "dolly"' "a set has its template's name"
out_has '"loss": "response"' "what is learnt"
out_has "\"template_sha256\": \"$(tern data template dolly | sha256sum | cut -d' ' -f1)\"" "the set has the digest of the template's text"
run tern data head -t "$model" dolly.tds
out_has '### Instruction' "the set holds the template's text"
grep -A1 -e '^--- answer:' out | grep -qx ' \?Of the people.'; ok $? "head shows the answer under its heading"
grep -A1 -e '^--- prompt:' out | grep -qx '### Instruction'; ok $? "prompts stand under theirs"
tern data build -t "$model" --threads 1 -o all.tds --template dolly --loss all dolly.jsonl 2>/dev/null
for _ in $(seq $(long && echo 3000 || echo 1000)); do cat dolly.jsonl; done >many.jsonl
for loss in $(long && echo all) response; do
    for t in 1 3; do tern data build -t "$model" --threads $t -o many.$loss.$t.tds --template dolly --loss $loss many.jsonl 2>/dev/null; done
    [ -s many.$loss.1.tds ] && cmp many.$loss.1.tds many.$loss.3.tds; ok $? "records of several pieces, loss $loss: any number of threads writes the same set"
done
rm -f many*
python3 - <<'P' >said
from tds import read
ids, mask, docs = read("dolly.tds")
same, none, _ = read("all.tds")
print(docs, mask[0], mask[-1], 0 < sum(mask) < len(mask), none, ids == same, ids.count(ids[-1]))
P
is "$(cat said)" "3 0 1 True None True 3" "answers and their EOS are targets; with --loss all there is no mask; </s> in a record is text"

build -o long.tds --template dolly --max-tokens 40 dolly.jsonl
status 2; err_has 'dolly.jsonl:2: has ' "a record above --max-tokens is refused with its line"
err_has '--max-tokens is 40. Say --longer cut or drop.' "a record that is too long: the error says what to do"
[ ! -e long.tds ]; ok $? "input that is refused leaves no set"
build -o cut.tds --template dolly --max-tokens 40 --longer cut dolly.jsonl
status 0; err_has 'above --max-tokens were cut' "cut records are counted"
err_has '1 records were left out: their prompts fill --max-tokens' "records without an answer after the cut are counted"
is "$(python3 -c 'from tds import read
ids, mask, docs = read("cut.tds")
print(docs, [m for i, m in zip(ids, mask) if i == ids[-1]])')" "2 [1, 0]" "the EOS of a cut record is no target"
! grep -q 'left out or cut' err; ok $? "records that were cut: no line says that nothing was"
run tern data info cut.tds; out_has 'template     dolly; --loss response; --max-tokens 40, --longer cut' "tern data info tells how records were read"
! grep -qi 'no document was cut\|left out or cut' out; ok $? "tern data info says of no record that it was not cut"
build -o drop.tds --template dolly --max-tokens 40 --longer drop dolly.jsonl
status 0; err_has '2 records above --max-tokens were left out' "dropped records are counted"
build -o none.tds --template dolly --max-tokens 8 --longer cut dolly.jsonl
status 2; err_has 'nothing was written' "where prompts fill --max-tokens nothing is left"

n=0
bad() { # RECORD WORDS
    n=$((n + 1))
    { head -1 dolly.jsonl; echo "$1"; } >bad.jsonl
    build -o bad.tds --template dolly bad.jsonl
    status 2 "bad record $n: exit status 2"
    err_has "bad.jsonl:2: $2" "bad record $n is refused: $2"
    one_error "bad record $n: one error"
    [ ! -e bad.tds ]; ok $? "bad record $n leaves no set"
}
bad '{"instruction": "a", "context": "b"}' "no field 'response', which template dolly wants (found: instruction, context)"
bad '{"instruction": "a", "response": 7}' "field 'response' is a number; a string is wanted"
bad '{"instruction": "a", "response": ""}' "field 'response' is empty"
bad '{"instruction": "a", "response": "b"' "not a JSON object on one line"
bad '["a"]' "not a JSON object"
bad '{"messages": [{"role": "user", "content": "a"}]}' "has a list of messages, and template dolly is of fields"
{ cat dolly.jsonl; echo '{"instruction": "a"}'; echo 'x'; } >some.jsonl
build -o some.tds --template dolly --skip-bad some.jsonl
status 0; err_has '2 lines that cannot be read were left out: 5, 6' "with --skip-bad they are left out and counted"
cmp -s <(tail -c +4097 some.tds | head -c 200) <(tail -c +4097 dolly.tds | head -c 200); ok $? "records beside those that are left out stay"

echo '{"conversations": [{"from": "system", "value": "Be kind."}, {"from": "human", "value": " Why? "}, {"from": "gpt", "value": "So."}, {"from": "human", "value": "And?"}, {"from": "gpt", "value": "So."}]}' >chat.jsonl
build -o chat.tds --template llama2-chat chat.jsonl
status 0; [ "$(tern data info --json chat.tds | jq .documents)" = 1 ]; ok $? "Llama 2's chats: EOS between turns parts no document"
run tern data head -t "$model" chat.tds
has out '[INST] <<SYS>>' "Llama 2's chats: the system's message inside the first"
build -o c3.tds --template llama3-chat chat.jsonl
status 2; err_has 'has no special token <|start_header_id|>' "a template of another tokenizer is refused"

cat >own.yaml <<'Y'
# Questions with an optional hint.
prompt:
  - "Q: {question}"
  - "Hint: {hint?}"
  - "A:"
join: "\n"
answer: " {answer}"
Y
echo '{"question": "Why?", "hint": null, "answer": "The people."}' >own.jsonl
build -o own.tds --template own.yaml own.jsonl
status 0; run tern data head -t "$model" own.tds
out_has 'Q: Why?' "an own template"
grep -q Hint out; [ $? = 1 ]; ok $? "a field of null leaves no section"
run tern data info --json own.tds; out_has '"template": "own.yaml"' "its file's name is noted"
echo 'answr: x' >>own.yaml
build -o own2.tds --template own.yaml own.jsonl
status 2; err_has 'own.yaml:8: ' "a mistake in a template is reported with its line"
build -o own2.tds --template dollly own.jsonl
status 2; err_has 'Did you mean dolly?' "a typo in a template's name"

run tern data template
status 0; is "$(tr '\n' ' ' <out)" "dolly dolly-lines alpaca completion llama2-chat llama3-chat " "the templates that have names"
tern data template dolly >mine.yaml
build -o mine.tds --template mine.yaml dolly.jsonl
status 0; cmp -s <(tail -c +4097 mine.tds | head -c 200) <(tail -c +4097 dolly.tds | head -c 200); ok $? "a printed template builds the same set"
run tern data template -h; tr -s ' \n' ' ' <out >flat; has flat 'llama2-chat is [INST] and <<SYS>> as Meta wrote it' "the help of templates says whose form llama2-chat is"
run tern data template nothing; status 2; err_has "is no template's name" "another name is refused"

build -o x.tds --loss all dolly.jsonl; status 2; err_has 'say which --template' "--loss without --template"
build -o x.tds --template dolly --format text dolly.jsonl; status 2; err_has 'with a --template it is auto or jsonl' "another format"
cp dolly.jsonl plain.txt; sed -i '1i hello' plain.txt
build -o x.tds --template dolly plain.txt; status 2; err_has 'plain.txt: is not JSONL' "a file that is no JSONL"
run tern data export dolly.tds -L 16 --to datasets -o saved
build -o x.tds --template dolly saved; status 2; one_error "a folder of Arrow files without records: one error"
err_has 'none of its columns is a field of records (found: input_ids, attention_mask, labels)'
build -o x.tds --template dolly --loss some dolly.jsonl; status 2; err_has '--loss some: is none of response, all' "another loss"
build -o x.tds --template dolly --longer cut dolly.jsonl; status 2; err_has 'Say --max-tokens' "--longer without --max-tokens"
for i in $(seq 300); do cat dolly.jsonl; done >many.jsonl
for threads in 2 5; do
    run tern data build -t "$model" --threads 1 -o one.tds --template dolly many.jsonl; status 0
    run tern data build -t "$model" --threads $threads -o more.tds --template dolly many.jsonl; status 0
    cmp -s one.tds more.tds; ok $? "$threads threads write the same set"
done
for part in 1 2 3; do
    run tern data build -t "$model" --part $part/3 -o part$part.tds --template dolly many.jsonl; status 0
done
run tern data merge -o merged.tds part?.tds; status 0
cmp -s one.tds merged.tds; ok $? "parts become the same set, with its mask and its template"

# ---- records in Arrow files, as datasets saves them: what the same records in JSONL give
G=$ROOT/tests/golden
words() { sed -E 's/[a-z-]+\.(jsonl|arrow)//g; s/(arrow|jsonl)\.tds//' "$1"; } # without names
same() { # NAME OPTIONS...
    local name=$1 form; shift
    for form in jsonl arrow; do
        tern data build -t "$model" -o $form.tds "$@" "$G/$name.$form" 2>$form.err; rc=$?; cmd="$name.$form $*"
        status 0 "$name.$form is built: $*"
    done
    is "$(python3 -c 'import tds; print(tds.same("arrow.tds", "jsonl.tds"))')" True "$name: rows of Arrow give the documents and targets of JSONL: $*"
    is "$(words arrow.err | grep -v documents)" "$(words jsonl.err | grep -v documents)" "$name: and the same words: $*"
}
same records-chat --template llama2-chat
same records-chat --template llama2-chat --threads 3 --loss all
same records-chat --template llama2-chat --dedup
grep -q '1 duplicate' arrow.err; ok $? "a record that differs in a field which the template does not read is a duplicate" || cat arrow.err
same records-sharegpt --template llama2-chat --threads 1
same records-sharegpt --template llama2-chat --max-tokens 100 --longer cut
same records-alpaca --template alpaca
same records-alpaca --template dolly --dedup --min-length 100
same records-alpaca --template dolly --max-tokens 60 --longer drop
same records-completion --template completion --bos
mkdir data; cp $G/records-alpaca.arrow data/data-0.arrow; cp $G/records-alpaca.arrow data/data-1.arrow
printf '{"_data_files": [{"filename": "data-0.arrow"}, {"filename": "data-1.arrow"}]}' >data/state.json
build -o data.tds --template alpaca data; status 0 "a folder that datasets saved"
tern data build -t "$model" -o twice.tds --template alpaca $G/records-alpaca.jsonl $G/records-alpaca.jsonl 2>/dev/null
is "$(python3 -c 'import tds; print(tds.same("data.tds", "twice.tds"))')" True "its files hold the records of JSONL"
for part in 1 2; do tern data build -t "$model" --part $part/2 -o p$part.tds --template alpaca data 2>/dev/null; done
tern data merge -o merged.tds p1.tds p2.tds 2>/dev/null; cmp -s data.tds merged.tds; ok $? "parts of files of Arrow become the same set"
build -o x.tds --template llama2-chat $G/arrow-records.arrow
status 2 "a bad row"; err_has 'arrow-records.arrow:2: has 0 messages; 2 to 4096 are wanted'; one_error
build -o x.tds --template llama2-chat --skip-bad $G/arrow-records.arrow
status 0; err_has '3 lines that cannot be read were left out: 2, 3, 4' "bad rows are left out, by their numbers"
printf 'prompt: ["{kind}"]\nanswer: "{response}"\n' >kind.yaml; rm -f x.tds
build -o x.tds --template kind.yaml $G/arrow-records.arrow
status 2; err_has "column 'kind' is of type dictionary<utf8>, which this tern does not read" "a field of a type that is not read is named"
[ ! -e x.tds ]; ok $? "input that is refused leaves no set"
head -c 3000 $G/records-chat.arrow >cut.arrow; build -o x.tds --template llama2-chat cut.arrow
status 2; err_has 'cut.arrow: '; one_error "an Arrow file that was cut off: one error"; [ ! -e x.tds ]; ok $? "an Arrow file that was cut off leaves no set"
tap_done
