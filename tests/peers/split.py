"""Words and composed texts of tern beside those of tokenizers, tiktoken and unicodedata2:
split.py PIPE ROUNDS STEP

Texts are every STEP-th character in several contexts, and ROUNDS random mixtures of characters that
the regular expressions and NFC treat apart.  Prints TAP lines without a number."""
import sys

sys.path.pop(0)  # this folder has a token.py, which is no module of Python's
import random
import struct
import subprocess

import tiktoken
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

SHORT = "'s|'t|'re|'ve|'m|'ll|'d"
LLAMA3 = (r"(?i:" + SHORT + r")|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
WAYS = {
    "gpt2": SHORT + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": LLAMA3,
    "qwen2": LLAMA3.replace("{1,3}", ""),
}
EVERY = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
AROUND = "%s.a%sa %s '%s1%s1%s\n%s\n %s. %s\u00a0%sx'%se 'v%s 'l%s  %s  b%s %s%s!%s's\r%s\t\t%s"
# Apostrophes and what follows them, both cases; U+017F and U+212A fold to s and k; digits and
# letters of several scripts and lengths, marks; every kind of space; characters of no class.
ODD = list("''''''sStTrReEvVmMlLdDkK\u017f\u212aabZ0129 \t\r\n    \n\n\r.,-!_/(\x00\x0b\x1c\x85") + [
    "\u00a0", "\u2028", "\u2003", "\u3000", "\u1680", "\u202f", "\u0663", "\u00b2", "\u2167", "\u0966", "\U0001d7d8",
    "\u00e9", "e\u0301", "\u0e01\u0e33", "\u0915\u093f", "\u4e2d", "\uac00", "\u1100\u1161", "\u200d", "\u200b", "\ufeff",
    "\ufffd", "\ud7ff", "\ue000", "\uffff", "\U0001f600", "\U0001f469\u200d\U0001f4bb", "\U00010400",
    "\U0010ffff", "\u2019", "\u02bc", "\ufb05", "\u00df", "\u0130", "\u180e", "\u0345",
    "'s", "'S", "'ll", "'LL", "'re", "'\u017f", "  ", " \n", "123", "the", " the"]
BYTES = {bytes([i]): i for i in range(256)}


def pipe(program, way, texts):
    out = subprocess.run([program, way], stdout=subprocess.PIPE, check=True,
                         input=b"".join(struct.pack("<I", len(t)) + t for t in texts)).stdout
    at = 0
    for _ in texts:
        n, = struct.unpack_from("<I", out, at)
        size = n if way == "nfc" else 4 * n
        yield out[at + 4:at + 4 + size] if way == "nfc" else struct.unpack_from("<%dI" % n, out, at + 4)
        at += 4 + size
    assert at == len(out)


def ends(words):
    at, out = 0, []
    for word in words:
        at += len(word)
        out.append(at)
    return tuple(out)


def by_split(split):
    def cut(text):
        return ends(word.encode() for word, _ in split.pre_tokenize_str(text))
    return cut


def by_byte_level(text):
    """Each character of the words stands for a byte."""
    return ends(word for word, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text))


def same_by_tiktoken(regex, texts, cuts):
    """tiktoken shows no words.  With a vocabulary of the words that are expected, and of those that
    would come of two to four without a cut between them, it gives other tokens for other words."""
    for first in range(0, len(texts), 20000):
        some, ranks = [], dict(BYTES)
        for text, cut in zip(texts[first:first + 20000], cuts[first:first + 20000]):
            raw, starts = text.encode(), (0,) + cut
            some.append((text, [raw[a:b] for a, b in zip(starts, cut)]))
            for more in range(1, 5):
                for a, b in zip(starts, starts[more:]):
                    ranks.setdefault(raw[a:b], len(ranks))
        peer = tiktoken.Encoding("words", pat_str=regex, mergeable_ranks=ranks, special_tokens={})
        for text, words in some:
            yield peer.encode_ordinary(text) == [ranks[word] for word in words]


def tell(name, texts, got, want):
    bad = 0
    for text, a, b in zip(texts, got, want):
        if a != b:
            bad += 1
            if bad <= 5:
                print("# %s: %r\n#   want %r\n#   got  %r" % (name, text[:200], b[:20], a[:20]))
    print("%sok - %s: %d texts, %d bytes" %
          ("not " if bad else "", name, len(texts), sum(len(t.encode()) for t in texts)))


def main():
    program, rounds, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(20261126)
    every = [AROUND.replace("%s", c) for c in EVERY[::step]]
    mixed = ["".join(rng.choice(ODD) for _ in range(rng.randint(1, 24))) for _ in range(rounds)]
    mixed += ["".join(rng.choice(EVERY) for _ in range(rng.randint(1, 40))) for _ in range(rounds // 10)]
    # Long runs of few characters, for what is scanned in blocks.
    for _ in range(rounds // 100):
        few = rng.sample(ODD, 3)
        mixed.append("".join(rng.choice(few) * rng.randint(1, 70) for _ in range(rng.randint(1, 8))))
    texts = every + mixed
    raw = [t.encode() for t in texts]
    for way, regex in WAYS.items():
        cuts = list(pipe(program, way, raw))
        split = by_split(pre_tokenizers.Split(Regex(regex), "isolated"))
        tell("%s beside tokenizers" % way, texts, cuts, map(split, texts))
        if way == "gpt2":
            tell("gpt2 beside ByteLevel", mixed, cuts[len(every):], map(by_byte_level, mixed))
        tell("%s beside tiktoken" % way, texts, same_by_tiktoken(regex, texts, cuts), [True] * len(texts))
    digits = by_split(pre_tokenizers.Digits(individual_digits=True))
    tell("digits beside tokenizers", texts, pipe(program, "digit", raw), map(digits, texts))


main()
