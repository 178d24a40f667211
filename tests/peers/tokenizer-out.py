"""Tokenizers of exported folders, as transformers loads them, beside the library of the source's
format: tokenizer-out.py FOLDER LIBRARY SOURCE TEXTS [plain]

TEXTS is a file of token_texts.py.  With "plain", texts that transformers' own conversion of a
SentencePiece model reads otherwise (runs of spaces, control characters) are left out.
Prints TAP lines without a number."""
import importlib.util
import os
import sys

from transformers import AutoTokenizer

spec = importlib.util.spec_from_file_location("token_peers", os.path.join(os.path.dirname(os.path.abspath(__file__)), "token.py"))
peers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peers)


def say(good, what):
    print(("" if good else "not ") + "ok - " + what)


def main():
    folder, library, source, texts = sys.argv[1:5]
    plain = sys.argv[5:] == ["plain"]
    peer = peers.PEERS[library](source)
    auto = AutoTokenizer.from_pretrained(folder)
    auto.backend_tokenizer.encode_special_tokens = True
    rows, differ = [t for t in peers.read_texts(texts) if len(t) < 100000], []
    if plain:
        rows = [t for t in rows if t.isascii() and t.decode().isprintable() and t.strip() == t and b"  " not in t and t]
    theirs = peer.encode(rows)
    ours = auto.backend_tokenizer.encode_batch_fast([peers.utf8(t) for t in rows], add_special_tokens=False)
    differ = [t for t, a, b in zip(rows, theirs, ours) if list(a) != list(b.ids)]
    say(not differ and len(rows) > 20, f"{folder}: transformers gives {len(rows)} texts the ids of {library}")
    for text in differ[:4]:
        print(f"# {text[:60]!r}")
    ids = auto("the cat").input_ids
    say(ids[0] == auto.bos_token_id and ids.count(auto.bos_token_id) == 1, f"{folder}: BOS stands before a text")
    say(auto.eos_token_id is not None and auto.eos_token_id not in ids, f"{folder}: EOS is known and not put behind a text")
    print(f"# {folder}: {type(auto).__name__} BOS {auto.bos_token!r} EOS {auto.eos_token!r} unknown {auto.unk_token!r}")


main()
