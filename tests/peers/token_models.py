"""Models that tokenizers are compared on, made of published shapes: token_models.py TO TEXT [TOKENIZERS]

TEXT: what they learn from, one text a line.  TOKENIZERS: the folder of tokenizers of the shared data.
Prints a line a model: what compares it, its file, its name.  Where a "?" follows, no published model
has the shape, and tern may refuse it by name."""
import base64
import json
import os
import random
import re
import shutil
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPACE = "\u2581"
TO, TEXT, SHARED = (sys.argv + [None])[1:4]
MORE = ["d\u00e9j\u00e0 vu, \u00c5ngstr\u00f6m: na\u00efve fa\u00e7ades; \u4eca\u5929\u5929\u6c14\u5f88\u597d \u00f1and\u00fa",
        "\u041c\u043e\u0441\u043a\u0432\u0430 \u043d\u0435 \u0441\u0440\u0430\u0437\u0443 \u0441\u0442\u0440\u043e\u0438\u043b\u0430\u0441\u044c, \ud55c\uad6d\uc5b4 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "I'll, we've, DON'T 1234567 x = y[i];    \t\treturn (a -> b);"] * 30


def say(format, path, name):
    print(format, path, name, sep="\t")


def save(name, j, refused=""):
    path = os.path.join(TO, name, "tokenizer.json")
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as f:
        json.dump(j, f, ensure_ascii=False)
    say("json" + refused, path, name)


def learnt(pre, normalizer=None, size=1500, model=None, alphabet=()):
    """The JSON of a tokenizer that learnt from TEXT."""
    t = Tokenizer(model or models.BPE())
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    with open(TEXT, encoding="utf-8") as f:
        lines = f.read().split("\n") + MORE
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                                     initial_alphabet=list(alphabet)))
    return json.loads(t.to_str())


def added(content, id, special=False, **how):
    return dict({"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": not special, "special": special}, **how)


def every_added(j, first, mark=""):
    """One added token of each kind."""
    words = ["<|endoftext|>", "[ABC]", "<left>", "<right>", "<both>", "<word>", "ing", "\u00c5ngstrom",
             "<strict>", "New York", "  ", "<s2>", "<word2>", "\u00b7", "\u00e9", "<|end", "<none>"]
    how = [{"special": True, "normalized": False}, {}, {"lstrip": True}, {"rstrip": True},
           {"lstrip": True, "rstrip": True}, {"single_word": True}, {"single_word": True}, {},
           {"normalized": False}, {"normalized": False}, {}, {"lstrip": True, "normalized": False},
           {"single_word": True, "normalized": False, "rstrip": True}, {"normalized": False}, {},
           {"normalized": False}, {"special": True}]
    if mark:
        words.append(mark + "<PRE>")
        how.append({"normalized": False})
    # A token of the vocabulary keeps its id; the others follow one by one.
    ids = {**j["model"]["vocab"], **{t["content"]: t["id"] for t in j["added_tokens"]}}
    old = {t["content"] for t in j["added_tokens"]}
    for word, kind in zip(words, how):
        if word not in old:
            kind = dict(kind)
            id = ids.setdefault(word, max(first, *ids.values()) + (first in ids.values()))
            j["added_tokens"].append(added(word, id, kind.pop("special", False), **kind))


def copy(j):
    return json.loads(json.dumps(j))


def byte_level():
    alphabet = pre_tokenizers.ByteLevel.alphabet()

    def split(regex):
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    gpt2 = learnt(pre_tokenizers.ByteLevel(add_prefix_space=False), alphabet=alphabet)
    gpt2["decoder"] = json.loads(decoders.ByteLevel().__getstate__())
    n = len(gpt2["model"]["vocab"])
    shapes = {
        "llama3-like": (split(LLAMA3), None),
        "smollm-like": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False)]), None),
        "qwen2-like": (split(QWEN2), normalizers.NFC()),
        "gpt2-regex": (split(GPT2), None),
    }
    save("gpt2-like", gpt2)
    strings = copy(gpt2)
    strings["model"]["merges"] = [" ".join(m) for m in gpt2["model"]["merges"]]
    strings["pre_tokenizer"]["add_prefix_space"] = True
    save("gpt2-prefix-space", strings)
    for name, (pre, normalizer) in shapes.items():
        j = learnt(pre, normalizer, alphabet=alphabet)
        j["decoder"] = gpt2["decoder"]
        j["model"]["ignore_merges"] = name == "llama3-like"
        j["added_tokens"] = [added("<|endoftext|>", len(j["model"]["vocab"]), special=True)]
        save(name, j)
        if name in ("llama3-like", "qwen2-like"):
            j = copy(j)
            every_added(j, len(j["model"]["vocab"]))
            save(name + "-added", j)
            # Pieces that no merge makes: found whole, or never.
            j = copy(j)
            rng = random.Random(7)
            merges = j["model"]["merges"]
            j["model"]["merges"] = [m for m in merges if rng.random() < 0.9 or len("".join(m)) < 3]
            save(name + "-holes", j)
    j = copy(gpt2)
    every_added(j, n)
    save("gpt2-added", j)
    j = copy(gpt2)
    for letter in "qQ\u0122":
        j["model"]["vocab"].pop(letter)
    j["model"]["merges"] = [m for m in j["model"]["merges"] if not re.search("[qQ\u0122]", "".join(m))]
    for piece in [p for p in j["model"]["vocab"] if re.search("[qQ\u0122]", p)]:
        j["model"]["vocab"].pop(piece)
    j["model"]["vocab"] = {p: i for i, p in enumerate(j["model"]["vocab"])}
    save("gpt2-no-q", j)
    path = os.path.join(TO, "made.tiktoken")
    ranks = {bytes_of(p): i for p, i in gpt2["model"]["vocab"].items()}
    with open(path, "wb") as f:
        for piece, rank in sorted(ranks.items(), key=lambda x: x[1]):
            f.write(base64.b64encode(piece) + b" %d\n" % rank)
    say("tiktoken?", path, "made-tiktoken")


def bytes_of(piece):
    """The bytes that a piece of GPT-2's alphabet stands for."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in shown}
    table.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in shown)})
    return bytes(table[c] for c in piece)


def characters():
    """Vocabularies of characters with byte pieces, in the shapes of the Llama 2 family."""
    made = learnt(pre_tokenizers.Metaspace(SPACE, prepend_scheme="always"), size=1200)
    pieces = ["<unk>", "<s>", "</s>", *("<0x%02X>" % b for b in range(256)),
              *(p for p in made["model"]["vocab"]), SPACE * 2, SPACE * 4]
    merges = made["model"]["merges"] + [[SPACE, SPACE], [SPACE * 2, SPACE * 2]]
    old = copy(made)
    old["model"].update(unk_token="<unk>", fuse_unk=True, byte_fallback=True, merges=merges,
                        vocab={p: i for i, p in enumerate(dict.fromkeys(pieces))})
    n = len(old["model"]["vocab"])
    old["added_tokens"] = [added(t, i, special=True) for i, t in enumerate(pieces[:3])]
    old["pre_tokenizer"] = None
    old["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": SPACE},
        {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]}
    back = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    old["decoder"] = {"type": "Sequence", "decoders": back + [strip]}
    save("tinyllama-like", old)
    every = copy(old)
    every_added(every, n, mark=SPACE)
    save("tinyllama-added", every)
    for name, change in {"no-unk": {"unk_token": None, "byte_fallback": False},
                         "unk-each": {"byte_fallback": False, "fuse_unk": False},
                         "unk-fused": {"byte_fallback": False},
                         "whole-first": {"ignore_merges": True}}.items():
        j = copy(old)
        j["model"].update(change)
        save("tinyllama-" + name, j, refused="?" if name == "whole-first" else "")
    holes = copy(old)
    for piece in ("<0x0A>", "<0xE4>", "<0xC3>"):
        holes["model"]["vocab"].pop(piece)
    holes["model"]["vocab"] = {p: i for i, p in enumerate(holes["model"]["vocab"])}
    save("tinyllama-bytes-lacking", holes, refused="?")
    for scheme in ("first", "always", "never"):
        for split in (True, False):
            j = copy(old)
            j["normalizer"] = None
            j["pre_tokenizer"] = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme,
                                  "split": split}
            # As transformers 5 saves it.
            j["decoder"] = {"type": "Sequence", "decoders": back + ([] if scheme == "never" else [strip])}
            name = "metaspace-%s%s" % (scheme, "-split" if split else "")
            save(name, j)
            every = copy(j)
            every_added(every, n, mark=SPACE)
            save(name + "-added", every)
    j = copy(j)
    j["decoder"] = dict(j["pre_tokenizer"], prepend_scheme="always")
    save("metaspace-decoder", j, refused="?")


def from_shared():
    with open(os.path.join(SHARED, "llama2/tokenizer.json"), encoding="utf-8") as f:
        llama2 = json.load(f)
    pieces = ["<SU", "<SUF", "<PRE", "<M", "<MID", "<E", "<EOT"]
    marks = ["<PRE>", "<SUF>", "<MID>", "<EOT>"]
    j = copy(llama2)
    for i, piece in enumerate(pieces + marks + ["<EOT>" * 2, "<FILL>", "<X1>", "<X2>", "<X3>"]):
        j["model"]["vocab"][SPACE + piece] = 32000 + i
    for i, mark in enumerate(marks):
        j["added_tokens"].append(added(SPACE + mark, 32000 + len(pieces) + i, special=True,
                                       normalized=False, lstrip=i % 2 == 1))
    j["model"]["merges"] += [SPACE + "< SU", SPACE + "<SU F", SPACE + "< M", SPACE + "<M ID",
                             SPACE + "< E", SPACE + "<E OT"]
    save("codellama-like", j)
    j = copy(j)
    for t in j["added_tokens"][3:]:
        t["special"] = False
    save("codellama-marks-found", j)
    try:
        import transformers
        from transformers.convert_slow_tokenizer import TikTokenConverter
    except ImportError:
        print("# no transformers: nothing is saved again", file=sys.stderr)
        return
    five = os.path.join(TO, "five")
    os.mkdir(five)
    for name in ("tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copyfile(os.path.join(SHARED, "llama2", name), os.path.join(five, name))
    transformers.LlamaTokenizerFast.from_pretrained(five).save_pretrained(os.path.join(TO, "saved"))
    say("json", os.path.join(TO, "saved/tokenizer.json"), "llama2-saved-by-transformers")
    t = TikTokenConverter(os.path.join(SHARED, "llama3/tokenizer.model"), pattern=LLAMA3).converted()
    j = json.loads(t.to_str())
    j["model"]["ignore_merges"] = True
    j["added_tokens"] = [added("<|begin_of_text|>", 128000, special=True),
                         added("<|end_of_text|>", 128001, special=True),
                         added("<|reserved_special_token_0|>", 128002, special=True)]
    save("llama3-converted", j)


def sentences():
    def train(name, pieces=1000, **how):
        prefix = os.path.join(TO, name)
        how = dict({"normalization_rule_name": "identity"}, **how)
        sentencepiece.SentencePieceTrainer.train(
            input=TEXT, model_prefix=prefix, model_type="bpe", vocab_size=pieces, hard_vocab_limit=False,
            minloglevel=2, **how)
        say("sentencepiece", prefix + ".model", name)
        return prefix + ".model"

    def edit(path, name, change):
        m = sentencepiece_model_pb2.ModelProto()
        with open(path, "rb") as f:
            m.ParseFromString(f.read())
        change(m)
        to = os.path.join(TO, name + ".model")
        with open(to, "wb") as f:
            f.write(m.SerializeToString())
        say("sentencepiece", to, name)

    def no_escapes(m):
        m.normalizer_spec.escape_whitespaces = False

    def unused(m):
        rng = random.Random(11)
        for piece in m.pieces:
            if piece.type == 1 and rng.random() < 0.2:
                piece.type = 5

    plain = train("plain-unk", remove_extra_whitespaces=True, character_coverage=0.99)
    suffix = train("suffix", remove_extra_whitespaces=False, byte_fallback=True,
                   treat_whitespace_as_suffix=True)
    across = train("across-words", remove_extra_whitespaces=False, split_by_whitespace=False,
                   add_dummy_prefix=False, user_defined_symbols="<sep>,the,ing,<s2>,\u2581and",
                   control_symbols="<c>")
    train("suffix-squeezed", remove_extra_whitespaces=True, byte_fallback=True, split_by_whitespace=False,
          treat_whitespace_as_suffix=True, user_defined_symbols="xx,th,the", bos_id=-1)
    nfkc = train("nfkc", normalization_rule_name="nfkc", remove_extra_whitespaces=False, byte_fallback=True,
                 split_digits=True)
    nmt = train("nmt-nfkc", normalization_rule_name="nmt_nfkc", character_coverage=0.9995)
    train("nfkc-cf", normalization_rule_name="nfkc_cf", byte_fallback=True,
          user_defined_symbols="<sep>,New York,\ufb01")
    train("nmt-nfkc-suffix", normalization_rule_name="nmt_nfkc_cf", treat_whitespace_as_suffix=True,
          byte_fallback=True)
    edit(plain, "plain-unk-unescaped", no_escapes)
    edit(suffix, "suffix-unescaped", no_escapes)
    edit(nmt, "nmt-nfkc-unescaped", no_escapes)
    edit(plain, "plain-unused", unused)
    edit(across, "across-unused", unused)
    edit(nfkc, "nfkc-unused", unused)


os.makedirs(TO, exist_ok=True)
sentences()
byte_level()
characters()
if SHARED:
    from_shared()
