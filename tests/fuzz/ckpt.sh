#!/bin/bash
# Hostile safetensors headers and manifests.  Worth most under SANITIZE=address,undefined.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
ROUNDS=${FUZZ_ROUNDS:-$(long && echo 20000 || echo 2500)}
SEED=${FUZZ_SEED:-$RANDOM}
"$T" model hf && "$T" save run 1 2 hf || exit 1
ulimit -t $(long && echo 1500 || echo 300)
run "$TOOLS/ckpt-fuzz" hf run/step-00000001 "$ROUNDS" "$SEED"
status 0 "$ROUNDS mutated headers and manifests, seed $SEED: no crash, one line each"
sed 's/^/# /' out
tap_done
