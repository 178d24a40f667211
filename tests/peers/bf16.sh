#!/bin/bash
# precision: bf16 against PyTorch: in double, rounding where we say that we round, to the last digits;
# and a model of bf16 tensors.
. "$(dirname "$0")/../lib/tap.sh"
PYTHON=${PYTHON:-/usr/bin/python3}
TOOLS=${TERN_BUILD:-$ROOT/build}/tests/tools

compare() { # TOOL HOW SETTINGS NAME
    # -I: beside it lies a token.py, which is also a module of Python's.
    "$PYTHON" -I "$ROOT/tests/peers/bf16.py" "$WORK/$4-$2" "$2" "{$3}" 2>ref.err || { ok 1 "$4: reference"; cat ref.err; return; }
    run "$TOOLS/$1" "$WORK/$4-$2"
    status 0 "$4, $2: within the bounds" || { cat err; grep -A4 '"ok": false' out; }
    sed -n '/largest_differences/,/^ }/p' out | awk '$1 ~ /"difference"/ {print "# ", n, $2} {n = $1}'
}

# Without AVX-512 PyTorch 1.13 rounds each partial sum of some of its products to bf16, and so has the
# larger error of the two: 4096 ones are 256 then.
adds_up() { "$PYTHON" -c 'import sys, torch; a = torch.ones(64, 4096).bfloat16(); sys.exit((a @ a.t().contiguous()).min() != 4096)'; }

while read -r name settings; do
    if ! "$PYTHON" -c 'import torch' 2>/dev/null; then skip "$name: no PyTorch (apt-get install python3-torch)"; continue; fi
    compare check_reference-f64 float64 "$settings,\"steps\":10" "$name"
    adds_up || { skip "$name, bfloat16: PyTorch adds up in bf16 on this CPU"; continue; }
    compare check_reference bfloat16 "$settings,\"steps\":1" "$name"
done <<'END'
gqa "dim":64,"layers":2,"heads":4,"kv_heads":2,"ffn":192,"vocab":256,"seq":33,"batch":2
deep "dim":48,"layers":6,"heads":6,"kv_heads":6,"ffn":100,"vocab":301,"seq":130,"batch":3
END
tap_done
