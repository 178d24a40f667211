#!/bin/bash
# Instruct data: ids and masks are those of SFTTrainer (trl), row for row, for the records at hand and for
# generated ones; Llama 2's chats are as Meta wrote them.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
[ -n "$DATA" ] || skip_all "no shared data: no tokenizers of Llama"
# Not what trl needs to train, PyTorch above all.
venv instruct 'datasets, jinja2, sentencepiece, tiktoken, tokenizers, transformers' transformers==5.24.0 \
    tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken==0.14.0 datasets==5.2.0 jinja2 &&
    venv instruct trl --no-deps trl==1.16.0 ||
    skip_all "the Python package trl is not there and cannot be installed"
python="$VENV/bin/python -I"
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error HF_HOME=$WORK/hf TOKENIZERS_PARALLELISM=false

$python "$ROOT/tests/peers/instruct.py" make "$WORK" "$DATA" >runs 2>made.err
ok $? "records are made" || tail -5 made.err | sed 's/^/# /'
while read -r name records options; do
    # shellcheck disable=SC2086
    "$TOOLS/instruct-pipe" $options <"$records" >"$name.rows" 2>err
    ok $? "$name: records become rows" || sed 's/^/# /' err
done <runs
[ "$(wc -l <runs)" -gt 10 ]; ok $? "there are rows to compare"
while IFS= read -r line; do
    case $line in
    "ok - "*) ok 0 "${line#ok - }" ;;
    "not ok - "*) ok 1 "${line#not ok - }" ;;
    *) echo "$line" ;;
    esac
done < <($python "$ROOT/tests/peers/instruct.py" check "$WORK" "$DATA" 2>checked.err || { echo "not ok - trl ran to its end"; tail -5 checked.err | sed 's/^/# /'; })
tap_done
