"""Ids and texts of tern beside those of the library of each format: token.py PIPE LIST

PIPE: the program token-pipe.  A line of LIST: library, model, name, file of texts (token_texts.py),
parted by tabs.  A model whose library has a "?" behind it may be refused.  Models are compared side by
side, one a core.  Prints TAP lines without a number, and the speed of both.  A text whose ids differ is
made as short as it can be, and printed."""
import base64
import codecs
import multiprocessing
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
IDS = 0x80000000
SHOWN = 4
codecs.register_error("each", lambda e: ("\ufffd", e.start + 1))


def utf8(text):
    """As --invalid=replace does: each bad byte is one U+FFFD."""
    return text.decode("utf-8", "each")


class SentencePiece:
    batch = 1 << 20

    def __init__(self, path):
        from sentencepiece import SentencePieceProcessor
        self.peer = SentencePieceProcessor(model_file=path)
        self.ids = range(self.peer.vocab_size())

    def encode(self, texts):
        return [self.peer.encode(t) for t in texts]

    def decode(self, rows):
        return [self.peer.decode(r) for r in rows]


class Tokenizers:
    batch = 1 << 22

    def __init__(self, path):
        from tokenizers import Tokenizer
        self.peer = Tokenizer.from_file(path)
        self.peer.encode_special_tokens = True
        self.ids = range(self.peer.get_vocab_size(with_added_tokens=True))

    def encode(self, texts):
        rows = self.peer.encode_batch_fast([utf8(t) for t in texts], add_special_tokens=False)
        return [r.ids for r in rows]

    def decode(self, rows):
        return self.peer.decode_batch(rows, skip_special_tokens=True)


class Tiktoken:
    batch = 1 << 22

    def __init__(self, path):
        import tiktoken
        with open(path, "rb") as f:
            ranks = {base64.b64decode(piece): int(rank) for piece, rank in (line.split() for line in f)}
        self.peer = tiktoken.Encoding("peer", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
        self.ids = range(len(ranks))

    def encode(self, texts):
        return self.peer.encode_ordinary_batch([utf8(t) for t in texts], num_threads=1)

    def decode(self, rows):
        return [self.peer.decode(r) for r in rows]


PEERS = {"sentencepiece": SentencePiece, "json": Tokenizers, "tiktoken": Tiktoken}


def read_texts(path):
    with open(path, "rb") as f:
        data = f.read()
    at, texts = 0, []
    while at < len(data):
        n, = struct.unpack_from("<I", data, at)
        texts.append(data[at + 4:at + 4 + n])
        at += 4 + n
    return texts


def packed_text(text):
    return struct.pack("<I", len(text)) + text


def packed_ids(ids):
    return struct.pack("<%dI" % (len(ids) + 1), IDS | len(ids), *ids)


class Ours:
    """token-pipe, a text or a row of ids at a time."""

    def __init__(self, pipe, model):
        self.child = subprocess.Popen([pipe, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL)

    def read(self, size):
        n, = struct.unpack("<I", self.child.stdout.read(4))
        return self.child.stdout.read(n * size)

    def ask(self, packed):
        self.child.stdin.write(packed)
        self.child.stdin.flush()

    def encode(self, text):
        self.ask(packed_text(text))
        data = self.read(4)
        self.read(1)
        return list(struct.unpack("<%dI" % (len(data) // 4), data))

    def decode(self, ids):
        self.ask(packed_ids(ids))
        return self.read(1)

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def shortest(whole, differs):
    """A part of `whole` (bytes or list) that still differs, from which nothing can be left out."""
    step = max(len(whole) // 2, 1)
    tries = 0
    while step and tries < 2000:
        at, before = 0, len(whole)
        while at < len(whole) and tries < 2000:
            less = whole[:at] + whole[at + step:]
            tries += 1
            if less and differs(less):
                whole = less
            else:
                at += step
        if step == 1 and len(whole) == before:
            break
        step = max(step // 2, 1) if step > 1 or len(whole) < before else 0
    return whole


class Comparison:
    def __init__(self, pipe, library, model, name, texts):
        self.pipe, self.model, self.name = pipe, model, name
        self.peer = PEERS[library.rstrip("?")](model)
        self.refusable = library.endswith("?")
        rng = random.Random(5)
        self.texts = read_texts(texts)
        self.rows = [[rng.choice(self.peer.ids) for _ in range(rng.choice([1, 2, 3, 8, 40]))]
                     for _ in range(4000)]
        # Texts of pieces side by side meet every merge of a small vocabulary.
        self.texts += [t.encode("utf-8", "replace") for t in self.peer.decode(self.rows[:3000])]
        self.lines, self.seconds, self.different = [], 0.0, {"ids": 0, "text": 0, "decoded": 0}

    def say(self, line):
        self.lines.append(line)

    def differ(self, what, text, want, got, differs):
        self.different[what] += 1
        if self.different[what] > SHOWN:
            return
        ours = Ours(self.pipe, self.model)
        try:
            text = shortest(text, lambda t: differs(ours, t))
            want, got = self.both(what, ours, text)
        except (struct.error, OSError):
            self.say("# %s: token-pipe ended while a difference was made shorter" % self.name)
        finally:
            ours.end()
        self.say("# %s: %s of %r (hex %s)\n#   want %r\n#   got  %r" %
                 (self.name, what, text[:200], text[:200].hex() if isinstance(text, bytes) else "-",
                  want[:60], got[:60]))

    def both(self, what, ours, text):
        if what == "ids":
            return self.peer.encode([text])[0], ours.encode(text)
        ids = self.peer.encode([text])[0] if what == "text" else text
        return self.peer.decode([ids])[0].encode(), ours.decode(ids)

    def ids_differ(self, ours, text):
        return self.peer.encode([text])[0] != ours.encode(text)

    def text_differs(self, ours, text):
        want, got = self.both("text", ours, text)
        return want != got

    def decoded_differs(self, ours, ids):
        return self.peer.decode([ids])[0].encode() != ours.decode(ids)

    def batches(self):
        batch, size = [], 0
        for text in self.texts:
            batch.append(text)
            size += len(text)
            if size > self.peer.batch or len(batch) == 4096:
                yield batch
                batch, size = [], 0
        yield batch

    def compare(self, out):
        def item(size):
            n, = struct.unpack("<I", out.read(4))
            return out.read(n * size)

        for batch in self.batches():
            start = time.process_time()
            want = self.peer.encode(batch)
            self.seconds += time.process_time() - start
            back = self.peer.decode(want)
            for text, ids, words in zip(batch, want, back):
                data = item(4)
                got, got_words = list(struct.unpack("<%dI" % (len(data) // 4), data)), item(1)
                if got != ids:
                    self.differ("ids", text, ids, got, self.ids_differ)
                elif got_words != words.encode():
                    self.differ("text", text, words.encode(), got_words, self.text_differs)
        for ids, words in zip(self.rows, self.peer.decode(self.rows)):
            got = item(1)
            if got != words.encode():
                self.differ("decoded", ids, words.encode(), got, self.decoded_differs)

    def run(self):
        with tempfile.TemporaryFile() as into, tempfile.TemporaryFile() as out:
            for text in self.texts:
                into.write(packed_text(text))
            for ids in self.rows:
                into.write(packed_ids(ids))
            into.seek(0)
            ours = subprocess.run([self.pipe, self.model], stdin=into, stdout=out, stderr=subprocess.PIPE)
            out.seek(0)
            words = ours.stderr.decode().strip()
            if self.refusable and ours.returncode == 1 and self.model in words:
                return ["ok - %s: refused by name" % self.name, "# %s" % words]
            try:
                self.compare(out)
                self.report(words)
            except struct.error:
                self.say("not ok - %s: token-pipe answers for every text" % self.name)
                self.say("# %s" % words)
        return self.lines

    def report(self, words):
        texts = len(self.texts)
        for what, label in {"ids": "ids of %d texts" % texts, "text": "texts of those ids",
                            "decoded": "texts of %d random rows of ids" % len(self.rows)}.items():
            bad = self.different[what]
            self.say("%sok - %s: %s%s" % ("not " if bad else "", self.name, label,
                                          ": %d differ" % bad if bad else ""))
        size = sum(map(len, self.texts)) / 1e6
        mine = float(words.split("\n")[-1])
        self.say("# %s: %.1f MB; tern %.1f MB/s, its peer %.1f MB/s: %.1f times as fast" %
                 (self.name, size, size / mine, size / self.seconds, self.seconds / mine))


def one(row):
    name = row[3]
    try:
        return Comparison(*row).run()
    except Exception as e:  # one model's failure is one line of the whole
        return ["not ok - %s: the comparison ran" % name, "# %r" % e]


def main():
    pipe, path = sys.argv[1:]
    with open(path, encoding="utf-8") as f:
        rows = [[pipe, *line.rstrip("\n").split("\t")] for line in f]
    with multiprocessing.Pool(min(os.cpu_count(), 8), maxtasksperchild=1) as pool:
        for lines in pool.imap_unordered(one, rows, chunksize=1):
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
