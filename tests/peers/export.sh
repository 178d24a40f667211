#!/bin/bash
# Arrow files of pyarrow are read equal; what tern exports is what datasets and Megatron read, and what
# they write is read back.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
. "$ROOT/tests/lib/tiny.sh"
venv export-5.2.0-26.0.1 'datasets, pyarrow, numpy' datasets==5.2.0 pyarrow==26.0.1 numpy ||
    skip_all "no datasets and pyarrow (PyPI)"
python="$VENV/bin/python -I"
export HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 HF_HOME=$WORK/hf

tap() { # COMMAND...: its lines, numbered
    while IFS= read -r line; do
        case $line in
        ok*) ok 0 "${line#ok - }" ;;
        "not ok"*) ok 1 "${line#not ok - }" ;;
        *) echo "# $line" ;;
        esac
    done < <("$@" 2>&1 || echo "not ok - $*: ran to its end")
}
peer() { tap $python "$ROOT/tests/peers/export.py" "$@"; }

# ---- files of pyarrow
mkdir arrow
peer arrow arrow
for f in arrow/*.want; do
    # Columns in the order of .want's first line.
    mapfile -t names < <(head -n 1 "$f" | tr -d '[]" ' | tr , '\n')
    run "$TOOLS/arrow-cat" "${f%.want}" "${names[@]}"; status 0 "${f%.want} is read"
    cp out got
    peer compare got "$f"
done
run "$TOOLS/arrow-cat" arrow/lz4.arrow utf8; status 2; err_has 'compressed by LZ4'
for c in when code chat map view strings union ends nothing; do
    run "$TOOLS/arrow-cat" arrow/stream.arrow $c; status 2 "column $c is refused"; err_has "column '$c' is of type"
done

run "$TOOLS/arrow-cat" arrow/stream.arrow holes; status 2; err_has 'nulls among their numbers'

# ---- rows
tiny_make 2>/dev/null
S=data/train.tds
for L in 32 128; do
    run tern data export $S -L $L -o rows$L --split-name train --max-shard 20K; status 0
    peer rows $S rows$L $L
done
tern data export run.yaml -o run 2>/dev/null
tern data sample --json run.yaml 0-63 >samples.json
peer run run samples.json 32

# ---- names of splits
for name in train a.b x_1 'a b' '' a-b a. .a a..b 'train[:10]' a+b; do
    run tern data export $S -L 64 -o "named" --split-name "$name"
    peer split "$name" "$rc" named
    rm -rf named
done

# ---- documents
run tern data export $S --to megatron -o mega; status 0
reader=
venv megatron-0.16.1 'numpy' numpy >/dev/null &&
    { [ -d "$VENV/megatron" ] || { "$VENV/bin/pip" download -q --disable-pip-version-check --no-deps -d "$VENV" megatron-core==0.16.1 >/dev/null 2>&1 &&
        "$VENV/bin/python" -m zipfile -e "$VENV"/megatron_core-*.whl "$VENV"; }; } &&
    reader=$VENV/megatron/core/datasets/indexed_dataset.py
[ -f "$reader" ] || { skip "no megatron-core (PyPI)"; reader=; }
peer megatron $S mega/tokens $reader

# ---- what others write
mkdir theirs
$python "$ROOT/tests/peers/export.py" make $S theirs 32 >/dev/null 2>err; ok $? "datasets and numpy write rows and documents" || cat err
run tern data import theirs/grouped -t model -o grouped.tds; status 0
peer same grouped.tds $S 32
run tern data import theirs/bare -t model -o bare.tds --documents rows; status 0
peer same bare.tds $S
for kind in int8 int16 int32 int64 uint8; do
    run tern data import theirs/attention-$kind -t model -o attention.tds; status 0 "an attention_mask of $kind is read"
    err_has 'places where attention_mask is 0 were left out'
    peer same attention.tds $S
done
for kind in bool float32; do
    run tern data import theirs/attention-$kind -t model -o x.tds; status 2 "an attention_mask of $kind is refused"
    err_has "column 'attention_mask' is of type"; one_line
done
run tern data import theirs/labels-float32 -t model -o x.tds; status 2 "labels of float32 are refused"; err_has "column 'labels' is of type"; one_line
run tern data import theirs/classes -t model -o classes.tds; status 0 "a class beside the ids is no label of tokens"
peer same classes.tds $S
for kind in i4 i8 u2; do
    run tern data import theirs/$kind -t model -o $kind.tds; status 0
    peer same $kind.tds $S
done
tap_done
