#!/bin/bash
# Records of instruct data as datasets saves them give the documents and targets of the same records in
# JSONL, bit for bit.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
venv export-5.2.0-26.0.1 'datasets, pyarrow, numpy' datasets==5.2.0 pyarrow==26.0.1 numpy ||
    skip_all "no datasets and pyarrow (PyPI)"
export HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 HF_HOME=$WORK/hf
T=$ROOT/tests/golden/spm-bpe-800.model

"$VENV/bin/python" -I "$ROOT/tests/peers/records.py" . ${DATA:+"$DATA"/instruct/*.jsonl} >kinds 2>made
ok $? "records are made" || tail -5 made | sed 's/^/# /'
export PYTHONPATH=$ROOT/tests/lib PYTHONDONTWRITEBYTECODE=1
build() { tern data build -t "$T" "$@" 2>err; rc=$?; cmd="build $*"; }
same() { # KIND OPTIONS...
    local kind=$1 form; shift; rm -f jsonl.tds
    build -o jsonl.tds "$@" $kind.jsonl; status 0 "tern data build reads $kind.jsonl $*"
    for form in saved large.arrow datasets.jsonl; do
        rm -f other.tds; build -o other.tds "$@" $kind.$form; status 0 "$kind.$form is read: $*"
        is "$(python3 -c 'import tds; print(tds.same("jsonl.tds", "other.tds"))')" True "$kind.$form gives what JSONL gives: $*"
    done
}
read -r kinds <kinds
for kind in $kinds; do
    case $kind in
    chat | sharegpt) templates='llama2-chat' ;;
    completion) templates=completion ;;
    *) templates='dolly alpaca llama2-chat' ;;
    esac
    for t in $templates; do
        same $kind --template $t
        same $kind --template $t --loss all --dedup
        same $kind --template $t --max-tokens 400 --longer cut --min-length 40 --threads 3
    done
done
tap_done
