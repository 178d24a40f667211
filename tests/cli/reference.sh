#!/bin/bash
# tests/peers/check-reference on the dump that lies in the tree, and on spoilt ones.
. "$(dirname "$0")/../lib/tap.sh"
CHECK=$ROOT/tests/peers/check-reference
GOLDEN=$ROOT/tests/golden/llama-fp64

run "$CHECK" "$GOLDEN"
status 0 "loss, gradients and ten AdamW steps agree with PyTorch's"
out_has '"precision": "fp32"'
out_has '"precision": "fp64"'

# tests/peers/bf16.py tests/golden/llama-bf16 float64 '{"dim":16,"layers":2,"heads":4,"kv_heads":2,"ffn":24,"vocab":40,"seq":17,"batch":2,"steps":10}'
run "${TERN_BUILD:-$ROOT/build}/tests/tools/check_reference-f64" "$ROOT/tests/golden/llama-bf16"
status 0 "bf16: in double, rounded where PyTorch rounds, they agree to the last digits"
for unit in fp32 ''; do
    TERN_BF16_UNIT=$unit run "${TERN_BUILD:-$ROOT/build}/tests/tools/check_reference" "$ROOT/tests/golden/llama-bf16"
    status 0 "bf16: with products by ${unit:-the best unit that the CPU has} they agree within bf16's own error"
    jq -e '.largest_differences.gradients.difference < 1e-5' out >/dev/null; ok $? "bf16: gradients of the first step, by ${unit:-the best unit}, are PyTorch's to five digits"
done

copy() { rm -rf dump; cp -r "$GOLDEN" dump; }
copy; sed -i 's/"rope_theta": 500000.0/"rope_theta": 400000.0/' dump/config.json
run "$CHECK" dump
status 1 "a changed rope_theta fails the reference check"
copy; sed -i 's/"wd": 0.1/"wd": 0.2/' dump/expected.json
run "$CHECK" dump
status 1 "a changed weight decay fails the reference check"
copy; truncate -s -4 dump/model.safetensors
run "$CHECK" dump
status 2 "a dump whose model is cut is refused"
err_has "model.safetensors: "
copy; truncate -s -4 dump/tokens.i32
run "$CHECK" dump
status 2 "a dump whose tokens are cut is refused"
err_has "the settings imply"
run "$CHECK" /nowhere
status 2
tap_done
