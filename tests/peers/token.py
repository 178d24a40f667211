"""Ids and texts of tern beside sentencepiece's: token.py PIPE MODEL NAME [FILE...]

Texts are the documents and lines of FILE..., random mixtures of awkward strings, and random bytes.
Prints TAP lines without a number, and the speed of both."""
import json
import random
import struct
import subprocess
import sys
import time

import sentencepiece

ODD = [" ", "  ", "\u2581", "the", "e", "\u00e9", "e\u0301", "\n", "\t", "\r\n", "12", "\u65e5\u672c",
       "\0", "<s>", "</s>", "<unk>", "<0x0A>", "<sep>", "<s2>", "\U0001f600", "ing", "a" * 20, " " * 17,
       ".", ",", "\u00a0", "\ufffd", "\ufeff", "xx", "th"]


def texts(files, rng):
    corpus, odd = [], []
    for name in files:
        if name.endswith(".jsonl"):
            with open(name, encoding="utf-8", newline="\n") as f:
                corpus += [json.loads(line)["text"].encode() for line in f]
        else:
            with open(name, "rb") as f:
                whole = f.read()
            odd += [whole] + whole.split(b"\n")
    for _ in range(2000):
        n = rng.randint(0, 40)
        odd.append("".join(rng.choice(ODD) if rng.random() < 0.7 else
                           chr(rng.choice([rng.randint(32, 126), rng.randint(0, 0x7FF),
                                           rng.randint(0xE000, 0x10FFFF)]))
                           for _ in range(n)).encode())
        odd.append(bytes(rng.randint(0, 255) for _ in range(n)))
    return corpus, odd


def main():
    pipe, model, name, *files = sys.argv[1:]
    corpus, odd = texts(files, random.Random(20261121))
    every = corpus + odd
    ours = subprocess.run([pipe, model], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True,
                          input=b"".join(struct.pack("<I", len(t)) + t for t in every))
    peer = sentencepiece.SentencePieceProcessor(model_file=model)
    at, bad_ids, bad_text, seconds = 0, 0, 0, 0.0
    for text in every:
        n, = struct.unpack_from("<I", ours.stdout, at)
        ids = list(struct.unpack_from("<%dI" % n, ours.stdout, at + 4))
        at += 4 + 4 * n
        n, = struct.unpack_from("<I", ours.stdout, at)
        back = ours.stdout[at + 4:at + 4 + n]
        at += 4 + n
        start = time.perf_counter()
        want = peer.encode(text)
        seconds += time.perf_counter() - start
        if ids != want:
            bad_ids += 1
            print("# %s: ids of %r\n#   want %r\n#   got  %r" % (name, text[:60], want[:20], ids[:20]))
        elif back != peer.decode(want).encode():
            bad_text += 1
            print("# %s: text of %r" % (name, want[:20]))
    size = sum(map(len, every)) / 1e6
    mine = float(ours.stderr)
    print("%sok - %s: ids of %d texts" % ("not " if bad_ids else "", name, len(every)))
    print("%sok - %s: texts of those ids" % ("not " if bad_text else "", name))
    print("# %s: %.1f MB; tern %.1f MB/s, sentencepiece %.1f MB/s: %.1f times as fast" %
          (name, size, size / mine, size / seconds, seconds / mine))


main()
