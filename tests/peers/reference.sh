#!/bin/bash
# The trainer against PyTorch: the dumps at hand, and fresh ones where PyTorch is installed.
. "$(dirname "$0")/../lib/tap.sh"
REFERENCE=$ROOT/../shared/reference/ref_llama
PYTHON=${PYTHON:-/usr/bin/python3}

compare() { # DIR NAME
    run "$ROOT/tests/peers/check-reference" "$1"
    status 0 "$2: within the bounds" || { cat err; grep -A4 '"ok": false' out; }
    grep -B1 '"bound"' out | sed -n 's/.*"difference": /# difference /p' | sort -g -k3 | tail -1
}

compare "$ROOT/tests/golden/llama-fp64" "golden dump, float64"
if [ -d "$REFERENCE/tiny" ]; then compare "$REFERENCE/tiny" "ref_llama/tiny"; else skip "no ../shared/reference"; fi

# Each dump differs in what the others leave at its default.
while read -r name settings; do
    if ! [ -f "$REFERENCE/ref_llama.py" ]; then skip "$name: no ../shared/reference"; continue; fi
    if ! "$PYTHON" -c 'import torch' 2>/dev/null; then skip "$name: no PyTorch (apt-get install python3-torch)"; continue; fi
    for dtype in float32 float64; do
        "$PYTHON" "$REFERENCE/ref_llama.py" \
            "{$settings,\"dtype\":\"$dtype\",\"norm_jitter\":0.1,\"dump\":\"$WORK/$name-$dtype\",\"dump_grads\":1,\"dump_final\":1}" \
            >/dev/null 2>ref.err || { ok 1 "$name: reference"; cat ref.err; continue; }
        compare "$WORK/$name-$dtype" "$name $dtype"
    done
done <<'END'
gqa "dim":64,"layers":2,"heads":4,"kv_heads":2,"ffn":192,"vocab":256,"seq":33,"batch":2,"steps":10
tied "dim":48,"layers":3,"heads":6,"kv_heads":3,"head_dim":20,"ffn":100,"vocab":301,"seq":65,"batch":3,"tied":true,"rope_theta":500000.0,"steps":10,"batches":2,"accum":3,"decay":"all","clip":0
scaling "dim":64,"layers":2,"heads":4,"kv_heads":1,"head_dim":32,"ffn":96,"vocab":500,"seq":130,"batch":2,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64},"init_std":0.1,"steps":10,"accum":2,"clip":0.5
mid "dim":256,"layers":4,"heads":8,"kv_heads":4,"vocab":4096,"seq":256,"batch":4,"steps":4
S "dim":288,"layers":6,"heads":6,"ffn":768,"vocab":32000,"seq":256,"batch":2,"tied":true,"steps":10
END
tap_done
