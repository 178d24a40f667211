"""The vocabulary's hash (core/token/token.c) made from a Hugging Face tokenizer.json of the Llama
kind: it must be the one that tern makes from the tokenizer.model beside it."""
import hashlib
import json
import re
import struct
import sys

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6

with open(sys.argv[1], encoding="utf-8") as f:
    j = json.load(f)
model = j["model"]
steps = {s["type"]: s for s in j["normalizer"]["normalizers"]}
vocab = model["vocab"]
special = {t["content"] for t in j["added_tokens"] if t["special"]}
order = {}
for merge in model["merges"]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    order.setdefault(left + right, len(order))


def kind(piece):
    if piece == model["unk_token"]:
        return UNKNOWN
    if piece in special:
        return CONTROL
    return BYTE if re.fullmatch("<0x[0-9A-F]{2}>", piece) else NORMAL


h = hashlib.sha256(b"tern vocabulary 1\n")
h.update(struct.pack("<6I", len(vocab), model["byte_fallback"], "Prepend" in steps, False,
                     steps["Replace"]["content"] == "\u2581", False))
for piece, _ in sorted(vocab.items(), key=lambda item: item[1]):
    text = piece.encode()
    h.update(struct.pack("<3I", kind(piece), order.get(piece, 2**32 - 1), len(text)) + text)
print(h.hexdigest())
