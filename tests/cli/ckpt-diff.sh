#!/bin/bash
# tern ckpt diff: what differs between two checkpoints, by digests and by every element.
. "$(dirname "$0")/../lib/tap.sh"
T=$TOOLS/ckpt-tool
"$T" model hf || exit 1
"$T" save run 1 2 hf && "$T" save run 2 2 hf && "$T" save run 3 3 hf || exit 1
arrays=$(tern ckpt show hf | grep -c '^  ')

# One element of one array is doubled, another array is scaled by 1.5, in float32.
edit() { # FILE NAME HOW
    python3 - "$@" <<'P'
import json, struct, sys
path, name, how = sys.argv[1:]
b = bytearray(open(path, "rb").read())
n = struct.unpack("<Q", b[:8])[0]
head = json.loads(bytes(b[8:8 + n]))
first, last = (8 + n + x for x in head[name]["data_offsets"])
v = list(struct.unpack("<%df" % ((last - first) // 4), b[first:last]))
if how == "one":
    v[3] *= 2
elif how == "nan":
    v[3] = float("nan")
else:
    v = [x * 1.5 for x in v]
b[first:last] = struct.pack("<%df" % len(v), *v)
open(path, "wb").write(b)
P
}
cp -r hf other
edit other/model.safetensors model.norm.weight one
edit other/model.safetensors lm_head.weight scaled
"$T" save run 4 2 other || exit 1

# ---- by digests
run tern ckpt diff run/step-00000001 run/step-00000002; status 0 "two checkpoints of the same weights, cut alike"
out_has "$arrays arrays: $arrays same"; is "$(wc -l <out)" 1 "nothing that is the same is listed"
run tern ckpt diff -a run/step-00000001 run/step-00000002; status 0
is "$(grep -c '^same ' out)" "$arrays" "-a lists what is the same"
run tern ckpt diff run/step-00000001 run/step-00000004; status 1 "two arrays differ, by their digests"
is "$(grep -c '^changed ' out)" 2 "diff lists both changed arrays"
out_has 'F32 48 '; out_has 'model.norm.weight'; out_has 'lm_head.weight'
run tern ckpt diff run/step-00000001 run/step-00000003; status 1 "the same weights cut otherwise: digests tell nothing"
out_has ' not read'; out_has '--full compares every element'

# ---- by elements
run tern ckpt diff --full run/step-00000001 run/step-00000003; status 0 "the same weights cut otherwise are the same, read whole"
out_has "$arrays arrays: $arrays same"
run tern ckpt diff --full run/latest hf; status 1 "a checkpoint beside a model folder"
line() { grep " $1\$" out; }
is "$(line model/model.norm.weight; line model.norm.weight | awk '{print $1, $2, $3}')" "changed 2.08 %" "diff shows one element of 48 as changed"
line model.norm.weight | awk '{exit !($4 > 0 && $5 > 0 && $5 < 1)}'; ok $? "diff says how far changed values lie apart" || cat out
line lm_head.weight | awk '{exit !($2 == "100.00" && $5 == "0.333")}'; ok $? "all of a scaled array differs, by a third of it" || cat out
out_has "$((arrays - 2)) same, 2 changed"
run tern ckpt diff --full --json other hf; status 1 "ckpt diff --json works with --full"
is "$(jq -r '[.[] | select(.change == "changed") | .name] | sort | join(" ")' out)" "lm_head.weight model.norm.weight" "JSON: names of what changed"
is "$(jq '[.[] | select(.name == "model.norm.weight")][0] | [.elements, .changed] | join(" ")' -r out)" "48 1" "JSON: elements of a changed array"
run tern ckpt diff --full hf hf; status 0 "a folder beside itself"
edit other/model.safetensors model.norm.weight nan
run tern ckpt diff --full other other; status 0 "NaN is the same as NaN"
run tern ckpt diff --full hf other; status 1; line model.norm.weight | grep -q ' inf '; ok $? "NaN is infinitely far from a number"

# ---- other types and shapes
tern ckpt export run/step-00000001 -o half --dtype bf16 2>/dev/null
run tern ckpt diff hf half; status 1 "diff reports another type as a change"; out_has 'F32 48 -> BF16 48'
run tern ckpt diff --full hf half; status 1
awk '/^changed/ && $5 > 0.01 {exit 1}' out; ok $? "rounding to BF16 is small"
"$T" model wide 300 || exit 1
run tern ckpt diff --full hf wide; status 1; grep -q '^shape .*lm_head.weight$' out; ok $? "diff reports another shape"
python3 - half/model.safetensors <<'P'
import json, struct, sys
b = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", b[:8])[0]
head = b[8:8 + n].replace(b'"lm_head.weight"', b'"lm_tail.weight"')
open(sys.argv[1], "wb").write(b[:8] + head + b[8 + n:])
P
run tern ckpt diff hf half; status 1
grep -q '^only in A .*lm_head.weight$' out && grep -q '^only in B .*lm_tail.weight$' out; ok $? "diff lists arrays of one side alone" || cat out

# ---- types that tern does not read
raw() { # FOLDER TYPE SHAPE BYTES: a tensor x of zeros, of any size
    mkdir -p "$1"
    python3 - "$@" <<'P'
import json, os, struct, sys
folder, dtype, shape, size = sys.argv[1:]
head = json.dumps({"x": {"dtype": dtype, "shape": [int(shape)], "data_offsets": [0, int(size)]}}).encode()
with open(folder + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    f.truncate(8 + len(head) + int(size))
P
}
raw f8 F8_E4M3 64 64; raw f8b F8_E5M2 64 64
run tern ckpt show f8; status 0; out_has 'F8_E4M3' "a type that tern does not read is named"
run tern ckpt diff --full f8 f8; status 0 "bytes of a type that tern does not read are compared"
run tern ckpt diff --full f8 f8b; status 1; out_has 'F8_E4M3 64 -> F8_E5M2 64' "two such types with the same bytes differ"

# ---- Ctrl-C
raw large F32 16000000000 64000000000
tern ckpt diff --full large large >out 2>err & pid=$!
reads() { ls -l /proc/$pid/fd | grep -q large/model.safetensors; }
until_true reads; kill -INT $pid; wait $pid; rc=$?; cmd="an interrupted diff"
status 130 "an interrupted diff does not say that they differ"; one_line; err_has interrupted
rm -r large

# ---- bad input
run tern ckpt diff hf; status 2; one_line
run tern ckpt diff hf nowhere; status 2; one_line
mkdir empty; run tern ckpt diff hf empty; status 2; one_line
cp -r run keep
shard=$(ls keep/step-00000001/shard-00001*)
printf 'flip' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 100)) conv=notrunc 2>/dev/null
run tern ckpt diff --full keep/step-00000001 hf; status 2 "diff reports a damaged checkpoint and does not compare it"; err_has 'does not match its digest'
tap_done
