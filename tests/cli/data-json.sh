#!/bin/bash
# JSON under other names or on standard input is tokenised as its texts, or the build asks for --format:
# it never becomes plain text in silence.  Joined files, other encodings.
. "$(dirname "$0")/../lib/tap.sh"
T=$ROOT/tests/golden/spm-bpe-800.model
build() { rm -f o.tds; run tern data build -t "$T" -o o.tds "$@"; }
ids() { tern data encode -t "$T" "$@" 2>/dev/null | sha256sum; }
is() { [ "$1" = "$2" ]; ok $? "$3" || echo "# got '$1', wanted '$2'"; }
asks() { status 2 "$1: the format is asked for"; err_has 'Say --format jsonl'; err_has '--format text'; one_line; [ ! -e o.tds ]; ok $? "$1: nothing is written"; }

both() { # NAME: as a file and on standard input
    build "$1"; asks "$1"
    rm -f o.tds; run bash -c 'tern data build -t "$0" -o o.tds - <"$1"' "$T" "$1"; asks "$1 on standard input"
    build --format text "$1"; status 0 "$1: --format text settles it"
}
printf '[{"text": "one"},\n{"text": "two"}]\n' >a.json.bak; both a.json.bak
printf '[{"text": "one"},{"text": "two"}]\n' >b.json-00001-of-00002; both b.json-00001-of-00002
printf '{\n  "text": "one"\n}\n' >indented; both indented
printf '{"text":"document one\n{"text":"two"}\n' >torn; both torn
printf '{"text":"a\tb"}\n{"text":"two"}\n' >tab; both tab
printf '{"text":"one"}{"text":"two"}\n' >one-line; both one-line
printf '{"text":"one"},\n{"text":"two"},\n' >commas; both commas
printf '{"text":"one"}\r{"text":"two"}\r' >cr; both cr
printf '// a comment\n{"text":"two"}\n' >comment; both comment
printf '"document one"\n"document two"\n' >strings; both strings
{ printf '{ "text": "'; head -c 300000 /dev/zero | tr '\0' x; printf '"}\n'; } >long; both long
build --format jsonl long; status 0 "a long first line is read as JSONL where that is said"
printf '\036{"text": "one"}\n\036{"text": "two"}\n' >records; printf '{"text": "one"}\n{"text": "two"}\n' >plain.jsonl
is "$(ids records)" "$(ids plain.jsonl)" "records of RFC 7464 are read as their texts"

# Files that were joined.
printf '\357\273\277one\n\357\273\277two\n' >joined.txt; printf 'one\ntwo\n' >apart.txt
is "$(ids joined.txt)" "$(ids apart.txt)" "byte order marks before lines are no text"
build joined.txt; status 0; err_has 'joined.txt: 1 byte order marks at the beginning of lines were left out'; err_has 'left out: 1 byte order mark; no document was cut'
tern data info --json o.tds | tr -d ' \n' >info; has info '"byte_order_marks":1'
{ printf '\357\273\277\357\273\277'; head -1 plain.jsonl; printf '\357\273\277'; tail -1 plain.jsonl; } >joined.jsonl
is "$(ids joined.jsonl)" "$(ids plain.jsonl)" "byte order marks before lines of JSONL are no text"
build joined.jsonl; cp o.tds whole.tds; for k in 1 2; do run tern data build -t "$T" --part $k/2 -o part$k joined.jsonl; status 0; done
rm -f o.tds; run tern data merge -o o.tds part1 part2; status 0; cmp -s o.tds whole.tds; ok $? "parts count them as the whole does" || { tern data info --json o.tds; cat err; }
for n in 1 2 3; do rm -f n.tds; tern data build -t "$T" --threads $n -o n.tds joined.jsonl 2>err; cmp -s n.tds whole.tds; ok $? "the set of a joined file is the same with $n threads"; done

# Other encodings.
printf '\037\004\100\004\070\004\062\004\065\004\102\004' >wide.txt
build wide.txt; status 2 "UTF-16 without a mark and without NUL"; err_has 'wide.txt: is UTF-16 without a mark, not text in UTF-8: 0x04 at byte 1. Convert it: iconv -f UTF-16LE -t UTF-8.'; one_line
printf '\033[31mred\033[0m \033[32mgreen\033[0m\n' >log.txt; build log.txt; status 0 "a log with colours is text"
tap_done
