#!/bin/bash
# tern data build on several cores: the set, the messages and the exit status are those of one core.
. "$(dirname "$0")/../lib/tap.sh"
T=$ROOT/tests/golden/spm-bpe-800.model

# Pieces of 256 KiB: short lines, escapes, lines of a third of a piece, one of two pieces.
awk 'BEGIN {
    for (i = 1; i <= 3000; i++) {
        s = "We the people of " i ", in order to form \\u00e9 more\\nperfect union.";
        n = i % 1000 == 500 ? 6000 : i == 1700 ? 40000 : i % 7;
        for (k = 0; k < n; k++) s = s " caf\303\251 " k * i;
        printf "{\"id\": %d, \"text\": \"%s\"}%s\n", i, s, i % 11 ? "" : "\r";
    }
}' >text.jsonl
size=$(stat -c %s text.jsonl)
[ "$size" -gt 1150000 ]; ok $? "the text has more than four pieces"
gzip -c text.jsonl >zipped.jsonl.gz
sed 's/{"id": \([0-9]*\), "text": "\(.*\)"}/%\n\2/' text.jsonl >parts.txt
head -c -1 text.jsonl >torn.jsonl

all="text.jsonl zipped.jsonl.gz torn.jsonl"
tern data build -t "$T" --threads 1 -o one.tds $all 2>/dev/null
tern data build -t "$T" --threads 1 -o parts.tds --split % parts.txt 2>/dev/null
tern data build -t "$T" --threads 1 -o whole.tds --format text parts.txt text.jsonl 2>/dev/null
is "$(tern data info --json one.tds | sed -n 's/^ *"documents": \([0-9]*\).*/\1/p' | head -n 1)" 9000 "one thread: every document"
is "$(tern data info --json parts.tds | sed -n 's/^ *"documents": \([0-9]*\).*/\1/p' | head -n 1)" 3000 "one thread: every part"
for n in $(long && echo 2 5 8) 3 0; do
    run tern data build -t "$T" --threads $n -o new.tds $all; status 0
    cmp -s one.tds new.tds; ok $? "--threads $n: the set of one thread"
    tern data build -t "$T" --threads $n -o new.tds --split % parts.txt 2>/dev/null
    cmp -s parts.tds new.tds; ok $? "--threads $n: the parts of one thread"
    tern data build -t "$T" --threads $n -o new.tds --format text parts.txt text.jsonl 2>/dev/null
    cmp -s whole.tds new.tds; ok $? "--threads $n: the whole files of one thread"
    cat text.jsonl | tern data build -t "$T" --threads $n --format jsonl -o new.tds - torn.jsonl 2>/dev/null
    tern data build -t "$T" --threads 1 --format jsonl -o piped.tds - torn.jsonl 2>/dev/null <text.jsonl
    cmp -s piped.tds new.tds; ok $? "--threads $n: the pipe of one thread"
done
sum=$(tern data encode -t "$T" --threads 1 $all | sha256sum)
is "$(tern data encode -t "$T" --threads 4 $all | sha256sum)" "$sum" "encode: the ids of one thread"

# ---- bad input: the first of the files' order counts
sed '2100s/text/tex/; 2999s/.*/[/' text.jsonl >bad.jsonl
sed '2500s/"id"/"id/' text.jsonl >worse.jsonl
printf 'caf\351' >latin1.txt
message() { rm -f out.tds; tern data build -t "$T" --threads "$1" -o out.tds "${@:2}" 2>&1; echo "exit $?"; ls out.tds* 2>/dev/null; }
check() { # WORD FILE...: every number of threads says the same, with the word, and leaves nothing
    local one n; one=$(message 1 "${@:2}")
    [[ $one == *"$1"*"exit 2" ]]; ok $? "one thread says '$1'" || echo "# $one"
    for n in $(long && echo 2 3) 8; do is "$(message $n "${@:2}")" "$one" "--threads $n says '$1'"; done
}
check "bad.jsonl:2100: no field 'text' (found: id, tex)" text.jsonl bad.jsonl worse.jsonl
check "worse.jsonl:2500: not a JSON object" worse.jsonl bad.jsonl
check "nowhere.jsonl: cannot open" text.jsonl nowhere.jsonl bad.jsonl
check "latin1.txt: is not UTF-8: 0xe9 at byte 3" zipped.jsonl.gz latin1.txt bad.jsonl
head -c 30000 zipped.jsonl.gz >cut.jsonl.gz
check "damaged gzip" cut.jsonl.gz bad.jsonl
sed 's/"text"/"tex"/' text.jsonl | head -n 1500 >many.jsonl
sed -n '1501,$p' text.jsonl >>many.jsonl
for n in $(long && echo 1 3) 8; do
    run tern data build -t "$T" --threads $n --skip-bad -o out.tds bad.jsonl many.jsonl; status 0
    err_has 'bad.jsonl: 2 lines that cannot be read were left out: 2100, 2999'
    err_has 'many.jsonl: 1500 lines that cannot be read were left out: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ...'
done
run tern data build -t "$T" --threads 513 -o out.tds text.jsonl; status 2; err_has 'allowed are 0 to 512'; one_line

# ---- stopped while a pipe gives nothing
for n in 1 3; do
    rm -f out.tds pipe; mkfifo pipe
    tern data build -t "$T" --threads $n -o out.tds --format jsonl - <pipe 2>err &
    pid=$!
    exec 7>pipe
    cat text.jsonl >&7
    until_true compgen -G 'out.tds.tmp-*'
    kill -INT $pid
    wait $pid; rc=$?; cmd="a build of $n threads that is stopped"
    exec 7>&-
    status 1
    err_has 'interrupted (signal 2); nothing was written'
    one_line
    is "$(ls out.tds* 2>/dev/null)" "" "$cmd leaves nothing"
done
tap_done
