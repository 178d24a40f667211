"""Another library tokenises JSONL files: token_peers.py PEER MODEL one|all FILE...

MODEL: the file that tern reads; where the library reads another format, the one beside it is taken.
Prints a line of JSON when the ids are there (`seconds`: from loading the model on; `cpu_seconds`: of the
process), and a second one with their number and digest (SHA-256 of u32, little-endian, in the files'
order).  One line with `cannot` where the library does not read the model."""
import base64
import hashlib
import json
import os
import sys
import time
from importlib.metadata import version

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
BATCH = 1024


def format_of(path):
    with open(path, "rb") as f:
        head = f.read(64)
    if path.endswith(".json"):
        return "json"
    word, _, rank = head.split(b"\n")[0].partition(b" ")
    return "tiktoken" if rank.strip().isdigit() and word.isascii() else "sentencepiece"


def find(path, format):
    """The file of that format: `path`, or the one beside it."""
    for name in (path, *(os.path.join(os.path.dirname(path), n) for n in ("tokenizer.json", "tokenizer.model"))):
        if os.path.exists(name) and format_of(name) == format:
            return name
    raise LookupError("no %s file beside %s" % ({"json": "tokenizer.json"}.get(format, format), path))


def texts(files):
    batch = []
    for name in files:
        with open(name, "rb") as f:
            for line in f:
                if line.strip():
                    batch.append(json.loads(line)["text"])
                if len(batch) == BATCH:
                    yield batch
                    batch = []
    yield batch


def gigatoken(model, cores, files):
    import awkward as ak
    import gigatoken as gt
    import numpy as np
    # Llama 3's ranks are more than its reader of tiktoken files takes.
    how = format_of(model)
    path = find(model, "json") if how == "tiktoken" else model
    yield
    t = gt.Tokenizer.from_sentencepiece(path) if how == "sentencepiece" else gt.Tokenizer(path)
    rows = t.encode_files(gt.JsonlFileSource(files, field="text"))
    yield
    yield np.asarray(ak.flatten(rows))


def tokenizers(model, cores, files):
    import numpy as np
    from tokenizers import Tokenizer
    path = find(model, "json")
    yield
    t = Tokenizer.from_file(path)
    t.encode_special_tokens = True
    rows = []
    for batch in texts(files):
        rows += [np.array(e.ids, np.uint32) for e in t.encode_batch_fast(batch, add_special_tokens=False)]
    yield
    yield np.concatenate(rows)


def tiktoken(model, cores, files):
    import numpy as np
    import tiktoken as library
    path = find(model, "tiktoken")
    yield
    with open(path, "rb") as f:
        ranks = {base64.b64decode(piece): int(rank) for piece, rank in (line.split() for line in f)}
    t = library.Encoding("peer", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
    rows = []
    for batch in texts(files):
        rows += [np.array(r, np.uint32) for r in t.encode_ordinary_batch(batch, num_threads=cores)]
    yield
    yield np.concatenate(rows)


def sentencepiece(model, cores, files):
    import numpy as np
    import sentencepiece as library
    path = find(model, "sentencepiece")
    yield
    t = library.SentencePieceProcessor(model_file=path)
    rows = []
    for batch in texts(files):
        rows += [np.array(r, np.uint32) for r in t.encode(batch, num_threads=cores)]
    yield
    yield np.concatenate(rows)


PEERS = {f.__name__: f for f in (gigatoken, tokenizers, tiktoken, sentencepiece)}


def main():
    peer, model, cores, *files = sys.argv[1:]
    cores = 1 if cores == "one" else len(os.sched_getaffinity(0))
    steps = PEERS[peer](model, cores, files)
    try:
        next(steps)
    except LookupError as e:
        print(json.dumps({"version": version(peer), "cannot": str(e)}))
        return
    start = time.perf_counter()
    next(steps)
    print(json.dumps({"version": version(peer), "seconds": time.perf_counter() - start,
                      "cpu_seconds": time.process_time()}), flush=True)
    ids = next(steps).astype("<u4")
    print(json.dumps({"tokens": len(ids), "sha256": hashlib.sha256(ids.tobytes()).hexdigest()}))


main()
