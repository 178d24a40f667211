"""Folders of tokenizers as transformers' AutoTokenizer reads them, beside tern.

auto.py make TO TEXT MODEL TOKENIZERS
    Folders as PyPI's tokenizers and transformers write them.  TEXT: what they learn from.  MODEL: of
    sentencepiece.  TOKENIZERS: the folder of tokenizers of the shared data.
auto.py compare PIPE WARNINGS FOLDER...
    PIPE: the program token-pipe.  WARNINGS/NAME: what tern data build says of folder NAME.  Where
    AutoTokenizer gives other ids, the warning names one of the texts that it does so for.  A folder with
    a "!" behind it must differ: the check would otherwise pass by comparing nothing.  Prints TAP lines
    without a number."""
import json
import os
import re
import shutil
import struct
import subprocess
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

# Spaces, line ends, digits, and what is rare; as core/token/auto.c has them.
PROBES = [" ", "  ", " a", "a  b", "\n", "a\n b", "a\n\nb", "\t", "12345", "it's", "\u00e9", "e\u0301", "\u2581",
          "\U0001f600", "<s>", "Hello, world!", "a"]
NAMED = r'(?:differ, first in the ids of|gives other ids to) ("(?:[^"\\]|\\.)*")'


def write(folder, name, j):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(j, f)


def make(to, text, model, shared):
    llama = os.path.join(shared, "llama2")
    llama_model = os.path.join(llama, "tokenizer.model")

    def folder(name, *files):
        path = os.path.join(to, name)
        os.makedirs(path)
        for f in files:
            shutil.copy(f, os.path.join(path, "tokenizer.model"))
        return path

    def learnt(path):
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = decoders.ByteLevel()
        t.train([text], trainers.BpeTrainer(vocab_size=900, show_progress=False, special_tokens=["</s>"],
                                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        t.save(os.path.join(path, "tokenizer.json"))
        write(path, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"})

    def of(name, base, tokenizer, config, **changes):
        path = folder(name)
        with open(os.path.join(shared, base, "tokenizer.json"), encoding="utf-8") as f:
            write(path, "tokenizer.json", {**json.load(f), **changes})
        end = "</s>" if base == "llama2" else "<|endoftext|>"
        write(path, "tokenizer_config.json", {"eos_token": end, "unk_token": "<unk>" if base == "llama2" else end, **tokenizer})
        write(path, "config.json", config)

    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    smol = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, level]}
    for name, of_class, kind, pre in (
            ("smol", "GPT2Tokenizer", "llama", smol), ("neox", "GPTNeoXTokenizer", "llama", smol),
            ("qwen", "LlamaTokenizerFast", "qwen2", smol), ("by-kind", None, "gpt2", smol),
            ("olmo", "GPT2Tokenizer", "olmo2", smol), ("plain", "PreTrainedTokenizerFast", "gpt2", smol),
            ("gpt2-own", "GPT2Tokenizer", "gpt2", level), ("llama-of-bytes", "LlamaTokenizer", "llama", smol)):
        of(name, "gpt2", {"tokenizer_class": of_class} if of_class else {}, {"model_type": kind}, pre_tokenizer=pre)
    of("prefix", "gpt2", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, {})
    of("code", "llama2", {"tokenizer_class": "CodeLlamaTokenizer"}, {"model_type": "llama"})
    of("no-prefix", "llama2", {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}, {"model_type": "llama"})
    of("mistral", "llama2", {"tokenizer_class": "LlamaTokenizer"}, {"model_type": "mistral"})
    learnt(folder("learnt"))
    learnt(folder("other-json", model))
    for name, files in (("saved", [llama_model]), ("saved-json", [])):
        AutoTokenizer.from_pretrained(llama).save_pretrained(folder(name, *files))
    for name, of in (("never", "PreTrainedTokenizerFast"), ("never-llama", "LlamaTokenizer")):
        path = folder(name, llama_model)
        with open(os.path.join(llama, "tokenizer.json"), encoding="utf-8") as f:
            j = json.load(f)
        j.update(normalizer=None, pre_tokenizer={"type": "Metaspace", "replacement": "\u2581",
                                                 "prepend_scheme": "never", "split": False})
        write(path, "tokenizer.json", j)
        write(path, "tokenizer_config.json", {"tokenizer_class": of, "eos_token": "</s>", "unk_token": "<unk>"})


def ours(pipe, folder):
    sent = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in PROBES)
    got = subprocess.run([pipe, folder], input=sent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout
    at, rows = 0, []
    for _ in PROBES:
        n, = struct.unpack_from("<I", got, at)
        rows.append(list(struct.unpack_from(f"<{n}I", got, at + 4)))
        at += 4 + 4 * n
        at += 4 + struct.unpack_from("<I", got, at)[0]  # the ids' text
    return rows


def theirs(folder):
    auto = AutoTokenizer.from_pretrained(folder)
    return [auto(t, add_special_tokens=False, split_special_tokens=True).input_ids for t in PROBES]


def say(good, what):
    print(("" if good else "not ") + "ok - " + what)


def compare(pipe, warnings, folder, must):
    name = os.path.basename(folder)
    with open(os.path.join(warnings, name), encoding="utf-8") as f:
        found = re.search(NAMED, f.read())
    named = json.loads(found[1]) if found else None
    rows = [row for row in zip(PROBES, ours(pipe, folder), theirs(folder)) if row[1] != row[2]]
    if must:
        say(rows, f"{name}: AutoTokenizer has other ids than tern")
    if rows:
        say(named in [row[0] for row in rows],
            f"{name}: AutoTokenizer has other ids for {len(rows)} texts, and a warning names one ({json.dumps(named)})")
    else:
        say(True, f"{name}: AutoTokenizer gives {len(PROBES)} texts tern's ids (warning: {json.dumps(named)})")
    for t, a, b in rows:
        print(f"# {json.dumps(t)}: tern {a}, AutoTokenizer {b}")


if sys.argv[1] == "make":
    make(*sys.argv[2:6])
else:
    for each in sys.argv[4:]:
        compare(sys.argv[2], sys.argv[3], each.rstrip("!"), each.endswith("!"))
