#!/bin/bash
# Words, and texts in NFC, equal those of tokenizers, tiktoken and unicodedata2.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
venv split 'tiktoken, tokenizers, unicodedata2' tiktoken==0.14.0 tokenizers==0.23.3 unicodedata2==16.0.0 ||
    skip_all "no tiktoken, tokenizers and unicodedata2 (PyPI, with a network)"
python="$VENV/bin/python -I"

size="5000 101"; long && size="200000 7"
$python "$ROOT/tests/peers/split.py" "$TOOLS/split-pipe" $size >result 2>err
rc=$?
while IFS= read -r line; do
    case $line in
    ok*) ok 0 "${line#ok - }" ;;
    "not ok"*) ok 1 "${line#not ok - }" ;;
    *) echo "$line" ;;
    esac
done <result
[ $rc = 0 ] || { sed 's/^/# /' err; ok 1 "the comparison ran to its end"; }
$python "$ROOT/core/token/unicode.py" | cmp -s - "$ROOT/core/token/unicode_tables.inc"
ok $? "unicode.py makes the tables as they are committed"
tap_done
