"""Texts that tokenizers are compared on: token_texts.py OUT MEGABYTES [FILE...], or OUT long BYTES

Writes them to OUT, each after its length (u32): documents and lines of FILE..., then MEGABYTES of
random Unicode, of a tenth as many random bytes and of crafted strings.  Always the same.  With "long",
words of BYTES each."""
import json
import random
import struct
import sys
import unicodedata

ODD = [" ", "  ", "\u2581", "the", "e", "\u00e9", "e\u0301", "\n", "\t", "\r\n", "12", "\u65e5\u672c",
       "\0", "<s>", "</s>", "<unk>", "<0x0A>", "<sep>", "<s2>", "\U0001f600", "ing", "a" * 20, " " * 17,
       ".", ",", "\u00a0", "\ufffd", "\ufeff", "xx", "th", "<|endoftext|>", "<|begin_of_text|>",
       "<|eot_id|>", "\u2581<PRE>", " <PRE>", "<|im_start|>", "[ABC]", "<left>", "<right>", "<both>",
       "<word>", "\u00c5ngstrom", "A\u030angstrom", "don't", "I'LL", "\n\n", " \n", "\n ", "  \n  \n",
       "!!!", "...\n", "('", "')", "//", "3.14", "1,000", "a1b2", "_", "__init__", "\u00b7"]
# What characters of other planes and classes are made of: [first, last] of whole blocks.
BLOCKS = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x2FF), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F),
          (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x8FF), (0x900, 0x97F), (0x980, 0xDFF), (0xE00, 0xFFF),
          (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x139F), (0x13A0, 0x17FF),
          (0x1800, 0x1CFF), (0x1D00, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F),
          (0x2190, 0x27FF), (0x2C00, 0x2FFF), (0x3000, 0x30FF), (0x3100, 0x33FF), (0x3400, 0x4DBF),
          (0x4E00, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7FF), (0xE000, 0xE0FF), (0xF900, 0xFDFF),
          (0xFE00, 0xFFFF), (0x10000, 0x10FFF), (0x11000, 0x12FFF), (0x13000, 0x16FFF),
          (0x17000, 0x1BFFF), (0x1D000, 0x1D7FF), (0x1D800, 0x1EFFF), (0x1F000, 0x1FAFF),
          (0x1FB00, 0x1FBFF), (0x20000, 0x323AF), (0xE0000, 0xE01EF), (0x100000, 0x10FFFF)]


def scalars():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def of_category(*names):
    return [chr(c) for c in scalars() if unicodedata.category(chr(c)) in names]


SPACES = list("\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
              "\u200a\u2028\u2029\u202f\u205f\u3000\u200b\u180e\u2060\ufeff\x1c\x1d\x1e\x1f")
DIGITS = of_category("Nd", "Nl", "No")
MARKS = of_category("Mn", "Mc", "Me")
LETTERS = of_category("Lu", "Ll", "Lo", "Lt", "Lm")
OTHERS = of_category("Po", "Ps", "Pe", "Pd", "Pc", "Sm", "Sc", "Sk", "So", "Cf", "Cc")
COMPOSED = [chr(c) for c in scalars() if unicodedata.decomposition(chr(c))]
EMOJI = [chr(c) for c in (*range(0x1F300, 0x1F650), *range(0x1F900, 0x1FA00), 0x2764, 0x1F9D1)]
JOINERS = ["\u200d", "\ufe0f", "\ufe0e", "\U0001f3fb", "\U0001f3ff", "\u20e3"]
ENDINGS = ["s", "t", "re", "ve", "m", "ll", "d", "S", "\u017f", "T", "RE", "rE", "VE", "vE", "M", "LL",
           "lL", "D", "\u212a", "x", "ss", "\u017f\u017f"]


def characters(rng, n):
    first, last = rng.choice(BLOCKS)
    return "".join(chr(rng.randint(first, last)) for _ in range(n))


def marked(rng, n):
    return "".join(rng.choice(LETTERS if rng.random() < 0.3 else "aeiounAEIOUNy") +
                   "".join(rng.choice(MARKS if rng.random() < 0.3 else
                                      "\u0300\u0301\u0302\u0303\u0308\u030a\u0323\u0327\u0328\u0345")
                           for _ in range(rng.randint(0, 4))) for _ in range(n))


def normalisable(rng, n):
    text = "".join(rng.choice(COMPOSED) for _ in range(n))
    return unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKD"]), text) if rng.random() < 0.7 else text


def hangul(rng, n):
    return "".join(chr(rng.randint(*rng.choice([(0x1100, 0x1112), (0x1161, 0x1175), (0x11A7, 0x11C2),
                                                (0xAC00, 0xD7A3)]))) for _ in range(n))


def emoji(rng, n):
    return "".join(rng.choice(EMOJI) + rng.choice(JOINERS + ["", ""]) if rng.random() < 0.8 else
                   chr(rng.randint(0x1F1E6, 0x1F1FF)) for _ in range(n))


def spaces(rng, n):
    some = rng.sample(SPACES, 2) + [" ", "\n"]
    return "".join(rng.choice(some) for _ in range(n))


def contractions(rng, n):
    return "".join(rng.choice(["I", "we", " ", "", "1", "\u00e9"]) + rng.choice("''\u2019") +
                   rng.choice(ENDINGS) for _ in range(n))


def run_of_one(rng, n):
    return rng.choice([*ODD, chr(rng.randint(33, 126)), rng.choice(DIGITS), rng.choice(MARKS),
                       rng.choice(OTHERS)]) * rng.choice([n, n, 10 * n])


def code(rng, n):
    return "".join(rng.choice(["if (", "x", "[i]", " = ", ";", "\n", "\n    ", "\t", "{", "}", "->", "//",
                               "camelCase", "SNAKE_CASE", "0x1F", "1e-9", "\"s\"", "\\n", "&&", "  ",
                               "foo.bar()", "#", "\r\n"]) for _ in range(n))


KINDS = [characters, characters, characters, marked, normalisable, hangul, emoji, spaces, spaces,
         contractions, run_of_one, code,
         lambda rng, n: "".join(rng.choice(ODD) for _ in range(n)),
         lambda rng, n: "".join(rng.choice(DIGITS) for _ in range(n)),
         lambda rng, n: "".join(rng.choice(LETTERS) for _ in range(n)),
         lambda rng, n: "".join(rng.choice(OTHERS) for _ in range(n)),
         lambda rng, n: "".join(chr(rng.randint(32, 126)) for _ in range(n)),
         lambda rng, n: "".join(chr(rng.choice([rng.randint(0, 0xD7FF), rng.randint(0xE000, 0x10FFFF)]))
                                for _ in range(n))]


def text_of(rng):
    parts = rng.choice([1, 2, 3, 8, 8, 30])
    some = rng.sample(KINDS, rng.randint(1, 4))
    return "".join(rng.choice(some)(rng, rng.choice([1, 2, 3, 5, 8, 20])) +
                   rng.choice(["", "", " ", "'", "\n", "a"]) for _ in range(parts))


BAD = [b"\x80", b"\xff", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80",
       b"\xed\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80",
       b"\xe2\x96", b"\xf0\x9f\x98", b"\xc3", b"\xef\xbf", b"\xfe\xfe", b"\xf8\x88\x80\x80\x80"]


def bytes_of(rng):
    whole = bytearray(text_of(rng).encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(whole))
        how = rng.random()
        if how < 0.4:
            whole[at:at] = rng.choice(BAD)
        elif how < 0.7:
            del whole[at:at + 1]
        else:
            whole[at:at] = rng.randbytes(rng.randint(1, 9))
    return bytes(whole)


def write_long(out, n):
    rng = random.Random(3)
    with open(out, "wb") as f:
        for unit in ("a", " ", "(", "\n", "7", "'", "e\u0301", "\u3000", "\u0301\u0323", "\u65e5", " \n", "ab1",
                     "\U0001f468\u200d"):
            text = (unit * n).encode()[:n]
            f.write(struct.pack("<I", n) + text)
        text = bytes(rng.choice(b"abcdefghijklmnopqrstuvwxyz") for _ in range(n))
        f.write(struct.pack("<I", n) + text)


def main():
    out, megabytes, *files = sys.argv[1:]
    if megabytes == "long":
        write_long(out, int(files[0]))
        return
    rng = random.Random(20261126)
    with open(out, "wb") as f:
        def put(text):
            f.write(struct.pack("<I", len(text)) + text)

        for name in files:
            with open(name, "rb") as lines:
                whole = lines.read()
            if name.endswith(".jsonl"):
                for line in whole.split(b"\n"):
                    if line:
                        row = json.loads(line)
                        put((row["text"] if "text" in row else "\n".join(map(str, row.values()))).encode())
            else:
                put(whole)
                for line in whole.split(b"\n"):
                    put(line)
        put(b"")
        for make, share in ((lambda: text_of(rng).encode(), 1), (lambda: bytes_of(rng), 0.1)):
            left = float(megabytes) * 1e6 * share
            while left > 0:
                text = make()
                put(text)
                left -= len(text) + 8
        for _ in range(500):
            put(rng.randbytes(rng.randint(0, 40)))


main()
