"""The ids of a text with special tokens in it, as Hugging Face's tokenizers has them by default.

usage: token_specials.py TOKENIZER.json make           prints a text with every special token
       token_specials.py TOKENIZER.json encode FILE    its ids, u32 little-endian, to stdout
"""
import json
import struct
import sys

from tokenizers import Tokenizer

path, verb = sys.argv[1:3]
if verb == "make":
    with open(path, encoding="utf-8") as f:
        special = [t["content"] for t in json.load(f)["added_tokens"] if t["special"]]
    words = ["a word", " two words ", "", "\u00e9t\u00e9", "12", "  ", "x", "<", "|>", "1 < 2"]
    for i, s in enumerate(special[:300]):
        sys.stdout.write(words[i % 10] + s + words[i * 7 % 10] + s + s[:-1] + s + "end. ")
else:
    with open(sys.argv[3], encoding="utf-8", newline="") as f:
        ids = Tokenizer.from_file(path).encode(f.read(), add_special_tokens=False).ids
    sys.stdout.buffer.write(struct.pack("<%dI" % len(ids), *ids))
