"""Words and composed texts of tern beside those of tokenizers, tiktoken and unicodedata2:
split.py PIPE ROUNDS STEP

Texts are every STEP-th character in several contexts, and ROUNDS random mixtures of characters that
the regular expressions and NFC treat apart.  Prints TAP lines without a number."""
import itertools
import random
import struct
import subprocess
import sys

import tiktoken
import unicodedata2
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

SHORT = "'s|'t|'re|'ve|'m|'ll|'d"
LLAMA3 = (r"(?i:" + SHORT + r")|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
WAYS = {
    "gpt2": SHORT + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": LLAMA3,
    "qwen2": LLAMA3.replace("{1,3}", ""),
}
SPELLINGS = {
    "gpt2": [[SHORT, "'(?:[sdmt]|ll|ve|re)"], [r" ?\p{L}+", r" ?\p{L}++", r" ?[\p{L}]+"],
             [r" ?\p{N}+", r" ?\p{N}++", r" ?[\p{N}]+"],
             [r" ?[^\s\p{L}\p{N}]+", r" ?[^\s\p{L}\p{N}]++"], [r"\s+(?!\S)"], [r"\s+", r"\s"]],
    "llama3": [["(?i:" + SHORT + ")", "'(?i:[sdmt]|ll|ve|re)"],
               [r"[^\r\n\p{L}\p{N}]?\p{L}+", r"[^\r\n\p{L}\p{N}]?+\p{L}+", r"[^\r\n\p{L}\p{N}]?+\p{L}++"],
               [r"\p{N}{1,3}"],
               [r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}]++[\r\n]*", r" ?[^\s\p{L}\p{N}]++[\r\n]*+"],
               [r"\s*[\r\n]+", r"\s*[\r\n]"], [r"\s+(?!\S)"], [r"\s+", r"\s"]],
}
SPELLINGS["qwen2"] = SPELLINGS["llama3"][:2] + [[r"\p{N}"]] + SPELLINGS["llama3"][3:]
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
# Characters since Unicode 9.0 that move or compose.
NEW_RANGES = [
    (0x7FD, 0x7FD), (0x897, 0x89F), (0x8CA, 0x8D3), (0x9FE, 0x9FE), (0xC3C, 0xC3C), (0xD3B, 0xD3C),
    (0xEBA, 0xEBA), (0x1715, 0x1715), (0x1ABF, 0x1ACE), (0x1DF6, 0x1DFA), (0xA82C, 0xA82C),
    (0x105C9, 0x105C9), (0x105E4, 0x105E4), (0x10D24, 0x10D27), (0x10D69, 0x10D6D),
    (0x10EAB, 0x10EAC), (0x10EFD, 0x10EFF), (0x10F46, 0x10F50), (0x10F82, 0x10F85),
    (0x11070, 0x11070), (0x1133B, 0x1133B), (0x11383, 0x11383), (0x11385, 0x11385),
    (0x1138E, 0x1138E), (0x11391, 0x11391), (0x113C5, 0x113C5), (0x113C7, 0x113C8),
    (0x113CE, 0x113D0), (0x1145E, 0x1145E), (0x11839, 0x1183A), (0x11938, 0x11938),
    (0x1193D, 0x1193E), (0x11943, 0x11943), (0x119E0, 0x119E0), (0x11A34, 0x11A34),
    (0x11A47, 0x11A47), (0x11A99, 0x11A99), (0x11D42, 0x11D42), (0x11D44, 0x11D45),
    (0x11D97, 0x11D97), (0x11F41, 0x11F42), (0x16121, 0x16128), (0x1612F, 0x1612F),
    (0x16D68, 0x16D6A), (0x16FF0, 0x16FF1), (0x1E08F, 0x1E08F), (0x1E130, 0x1E136),
    (0x1E2AE, 0x1E2AE), (0x1E2EC, 0x1E2EF), (0x1E4EC, 0x1E4EF), (0x1E5EE, 0x1E5EF)]
NEW = {chr(c) for first, last in NEW_RANGES for c in range(first, last + 1)}
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
                print("# %s: %r\n#   want %r\n#   got  %r" % (name, text[:60], b[:20], a[:20]))
    print("%sok - %s: %d texts, %d bytes" %
          ("not " if bad else "", name, len(texts), sum(len(t.encode()) for t in texts)))


def interesting():
    """Characters that NFC may move or change, those that they are made of, and some others."""
    found = set("a1 \u00a0\u1100\u1112\u1161\u1175\u11a7\u11a8\u11c2\uac00\uac01\uac1c\ud7a3\u0344")
    for c in EVERY:
        if unicodedata2.combining(c) or unicodedata2.decomposition(c)[:1] not in ("", "<"):
            found.update(c, unicodedata2.normalize("NFD", c))
    return sorted(found)


def compare_nfc(program, every, rounds, step, rng):
    some = interesting()
    texts = list(every)
    for second in ([c for c in some if c not in NEW], [c for c in some if c in NEW]):
        texts += ["\n".join(a + b for b in second[i % step::step]) for i, a in enumerate(some)]
    texts += ["".join(rng.choice(some) for _ in range(rng.randint(1, 12))) for _ in range(rounds)]
    texts += ["e" + "".join(rng.choice(some) for _ in range(n)) + "x" for n in range(1, 400, 7)]
    got = [t.decode() for t in pipe(program, "nfc", [t.encode() for t in texts])]
    tell("NFC beside tokenizers", texts, got, map(normalizers.NFC().normalize_str, texts))
    # tokenizers has no newer data; Unicode's newest is the same for what was there before.
    peer = [unicodedata2.normalize("NFC", t) for t in texts]
    old = [i for i, t in enumerate(texts) if not NEW.intersection(t + peer[i])]
    tell("NFC beside unicodedata2", [texts[i] for i in old], [got[i] for i in old], [peer[i] for i in old])


def compare_words(program, every):
    """The characters that \\w matches: an added token beside one is no token."""
    peer = Tokenizer(models.BPE({"<unk>": 0}, [], unk_token="<unk>"))
    peer.add_tokens([AddedToken("qq", single_word=True, normalized=False)])
    got = list(pipe(program, "word", [c.encode() for c in every]))
    tell("\\w beside tokenizers", every, got, ((int("qq" not in peer.encode("qq" + c).tokens),) for c in every))


def compare_spellings(program, texts):
    """Every spelling of a regular expression that has a name finds the words of the first."""
    for way, parts in SPELLINGS.items():
        want = list(pipe(program, way, [t.encode() for t in texts]))
        regexes = ["|".join(choice) for choice in itertools.product(*parts)]
        named = list(pipe(program, "named", [r.encode() for r in regexes]))
        tell("names of %s" % way, regexes, named, [(1 + list(SPELLINGS).index(way),)] * len(regexes))
        got = [tuple(map(by_split(pre_tokenizers.Split(Regex(r), "isolated")), texts)) for r in regexes]
        tell("%s in all spellings" % way, regexes, [tuple(want)] * len(regexes), got)


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
    compare_spellings(program, mixed[:200])
    every = EVERY[::max(1, step // 10)]
    compare_nfc(program, every, rounds, step, rng)
    compare_words(program, every)
    tell("digits beside tokenizers", texts, pipe(program, "digit", raw), map(digits, texts))


main()
