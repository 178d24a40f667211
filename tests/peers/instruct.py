"""Instruct data beside trl's SFTTrainer and Meta's formula.

    instruct.py make TO SHARED          records, a tokenizer of Llama 3, the list of what to run
    instruct.py check TO SHARED         compares the rows

SFTTrainer prepares a dataset in one method, whose code is run here as trl has it; the class itself
would want PyTorch."""
import ast
import contextlib
import json
import os
import random
import sys
import types

WHAT, TO, SHARED = sys.argv[1:4]
TOKENIZERS = os.path.join(SHARED, "tokenizers")
SPECIALS = ["<|eot_id|>", "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
            "<s>", "</s>", "<unk>", "<|endoftext|>"]
CUT = 48
# template, sections joined by, tokenizer, BOS, loss, longer
FIELDS = [("dolly", "\n\n", "llama2", 1, "response", ""), ("dolly", "\n\n", "gpt2", 0, "response", ""),
          ("dolly", "\n\n", "llama3", 1, "response", ""), ("dolly-lines", "\n", "llama2", 1, "response", ""),
          ("dolly-lines", "\n", "gpt2", 0, "response", ""), ("dolly", "\n\n", "llama2", 1, "all", ""),
          ("dolly", "\n\n", "llama2", 1, "response", "cut"), ("dolly", "\n\n", "llama3", 1, "response", "drop"),
          ("completion", None, "llama2", 1, "response", ""), ("completion", None, "gpt2", 0, "response", ""),
          ("completion", None, "llama3", 1, "response", "")]


def name(template, tokenizer, loss, longer):
    return "-".join(filter(None, (template, tokenizer, loss, longer)))


# ---- records ----

PIECES = ["Why", " is", " the", " sky", " blue", "?", " 42", "...", "\n", "\n\n", "\t", "  ", "don't", "\U0001f600",
          "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\u202e", "\u00e9", "e\u0301", "\u4eca\u5929", "\ud55c\uad6d\uc5b4",
          "\u00a0", "\u3000", "\u200b", "\ufeff", "a\0b", "\0", "\\n", "### Answer", "### Context\n", "{instruction}", "[INST]", "[/INST]",
          "<<SYS>>\n", "\r\n", "\x1c", "ment", "ing", "1234567", "x = y[i];", "\u2581", "\u2028", "\x7f", "\x1b[0m"]


def text(r, most, special):
    kind = r.random()
    if kind < 0.03:
        return r.choice([" ", "\n", "  \n ", "\t", "\u00a0", "\u3000 "])
    s = "".join(r.choice(PIECES) if r.random() < 0.6 else " " + r.choice(PIECES) for _ in range(r.randint(1, most)))
    if kind < 0.15:
        s = r.choice([" ", "\n", "   "]) + s
    if kind > 0.85:
        s = s + r.choice([" ", "\n", "   "])
    if special:
        at = r.randint(0, len(s))
        s = s[:at] + r.choice(SPECIALS) + s[at:]
    return s


def make_records():
    r = random.Random(24)
    real = []
    for f in ("dolly_mini", "self_instruct_seed"):
        with open(f"{SHARED}/instruct/{f}.jsonl", encoding="utf-8") as lines:
            real += [json.loads(line) for line in lines]
    assert len(real) == 578
    fields = [{k: d[k] for k in ("instruction", "context", "response")} for d in real]
    for i in range(1200):
        special = i % 6 == 0
        most = 3000 if i % 100 == 7 else 40
        d = {"instruction": text(r, 20, special), "context": text(r, most, special) if r.random() < 0.6 else "",
             "response": text(r, most, special and r.random() < 0.5)}
        if not d["context"] and r.random() < 0.5:
            d["context"] = None
            if r.random() < 0.5:
                del d["context"]
        fields.append(d)
    chats = []
    for d in fields:
        asked = d["instruction"] + ("\n\n" + d["context"] if d.get("context") else "")
        chat = [{"role": "user", "content": asked}, {"role": "assistant", "content": d["response"]}]
        if len(chats) >= 578:
            for _ in range(r.choice([0, 0, 1, 2, 5])):
                chat += [{"role": "user", "content": text(r, 20, False)},
                         {"role": "assistant", "content": text(r, 20, False)}]
            if r.random() < 0.4:
                chat.insert(0, {"role": "system", "content": text(r, 10, False)})
        chats.append(chat)
    return fields, chats


def prompt_of(d, join):
    """As the examples write it: the context only where it has a character."""
    parts = ["### Instruction\n" + d["instruction"], "### Context\n" + d["context"] if len(d.get("context") or "") > 0 else None]
    return join.join([p for p in parts if p is not None] + ["### Answer\n"])


def has_special(*texts):
    return any(s in t for t in texts for s in SPECIALS)


def tokenizer_of(which):
    from transformers import PreTrainedTokenizerFast
    path, bos, eos = {"llama2": (TOKENIZERS + "/llama2/tokenizer.json", "<s>", "</s>"),
                      "llama3": (TO + "/llama3/tokenizer.json", "<|begin_of_text|>", "<|end_of_text|>"),
                      "gpt2": (TOKENIZERS + "/gpt2/tokenizer.json", "<|endoftext|>", "<|endoftext|>")}[which]
    t = PreTrainedTokenizerFast(tokenizer_file=path, bos_token=bos, eos_token=eos)
    t.pad_token = t.eos_token
    return t


def make_llama3():
    """Llama 3's tokenizer.json: its tiktoken file as transformers converts it, its special tokens, its BOS."""
    from tokenizers import processors
    from transformers.convert_slow_tokenizer import TikTokenConverter
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
             "<|reserved_special_token_2|>", "<|reserved_special_token_3|>", "<|start_header_id|>", "<|end_header_id|>",
             "<|reserved_special_token_4|>", "<|eot_id|>"] + [f"<|reserved_special_token_{i}|>" for i in range(5, 251)]
    t = TikTokenConverter(TOKENIZERS + "/llama3/tokenizer.model", extra_special_tokens=names).converted()
    assert t.token_to_id("<|eot_id|>") == 128009
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 128000)])])
    os.makedirs(TO + "/llama3", exist_ok=True)
    t.save(TO + "/llama3/tokenizer.json")


def write(path, records):
    with open(os.path.join(TO, path), "w", encoding="utf-8") as f:
        for i, d in enumerate(records):
            f.write(json.dumps(d, ensure_ascii=i % 2 == 0) + "\n")


def make():
    make_llama3()
    fields, chats = make_records()
    write("fields.jsonl", fields)
    write("completion.jsonl", [{"prompt": prompt_of(d, "\n\n")[:-1], "completion": d["response"]} for d in fields])
    write("chats.jsonl", [{"messages": c} for c in chats])
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    write("conversations.jsonl", [{"conversations": [{"from": names[m["role"]], "value": m["content"]} for m in c]} for c in chats])
    llama2 = TOKENIZERS + "/llama2/tokenizer.json"
    paths = {"llama2": llama2, "gpt2": TOKENIZERS + "/gpt2/tokenizer.json", "llama3": TOKENIZERS + "/llama3/tokenizer.model"}
    for template, _, tokenizer, bos, loss, longer in FIELDS:
        print(name(template, tokenizer, loss, longer), "completion.jsonl" if template == "completion" else "fields.jsonl",
              paths[tokenizer], template, loss, bos, CUT if longer else 0, longer or "refuse")
    print("llama3-chat chats.jsonl", paths["llama3"], "llama3-chat response 0 0 refuse")
    print("llama3-all chats.jsonl", TO + "/llama3/tokenizer.json", "llama3-chat all 0 0 refuse")
    print("llama3-conversations conversations.jsonl", paths["llama3"], "llama3-chat response 0 0 refuse")
    print("llama2-chat chats.jsonl", TOKENIZERS + "/llama2/tokenizer.model", "llama2-chat response 0 0 refuse")


# ---- theirs ----

def trainers_method():
    """SFTTrainer._prepare_dataset, a function of (self, dataset, tokenizer, args, packing, formatting, name)."""
    import datasets
    import trl
    from trl import data_utils
    path = os.path.join(os.path.dirname(trl.__file__), "trainer", "sft_trainer.py")
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    found = [n for c in tree.body if isinstance(c, ast.ClassDef) and c.name == "SFTTrainer"
             for n in c.body if isinstance(n, ast.FunctionDef) and n.name == "_prepare_dataset"]
    for a in found[0].args.args:
        a.annotation = None
    found[0].returns = None
    names = dict(vars(data_utils), Dataset=datasets.Dataset, IterableDataset=datasets.IterableDataset, json=json,
                 global_then_local_main_first=contextlib.nullcontext,
                 logger=types.SimpleNamespace(warning=print, warning_once=lambda *a: None))
    exec(compile(ast.Module(found, []), path, "exec"), names)
    return names["_prepare_dataset"]


def prepare(rows, tokenizer, max_length=None, only=True, template=None):
    from datasets import Dataset, disable_progress_bars
    disable_progress_bars()
    args = types.SimpleNamespace(dataset_num_proc=None, dataset_text_field="text", assistant_only_loss=only and template is not None,
                                 max_length=max_length, truncation_mode="keep_start", packing_strategy="bfd", shuffle_dataset=False, seed=0)
    trainer = types.SimpleNamespace(_tokenizer=tokenizer, chat_template=template, completion_only_loss=only)
    out = trainers_method()(trainer, Dataset.from_list(rows), tokenizer, args, False, None, "train")
    return [(ids, [int(label != -100) for label in labels]) for ids, labels in zip(out["input_ids"], out["labels"])]


def plain(tokenizer, s):
    """Ids of a text in which nothing is special."""
    inner = tokenizer.backend_tokenizer
    inner.encode_special_tokens = True
    ids = inner.encode(s, add_special_tokens=False).ids
    inner.encode_special_tokens = False
    return ids


def shared(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def formula(prompt, answer, tokenizer, bos):
    begin = [tokenizer.bos_token_id] * bos
    ids = begin + plain(tokenizer, prompt + answer)
    n = shared(begin + plain(tokenizer, prompt), ids)
    return ids + [tokenizer.eos_token_id], [0] * n + [1] * (len(ids) - n + 1)


def llama3_formula(chat, tokenizer):
    special = tokenizer.convert_tokens_to_ids
    head, end, eot = (special(s) for s in ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"))
    ids, mask = [tokenizer.bos_token_id], [0]
    for m in chat:
        before = [head] + plain(tokenizer, m["role"]) + [end] + plain(tokenizer, "\n\n")
        whole = [head] + plain(tokenizer, m["role"]) + [end] + plain(tokenizer, "\n\n" + m["content"].strip()) + [eot]
        assert whole[:len(before)] == before
        ids += whole
        mask += [0] * len(before) + [int(m["role"] == "assistant")] * (len(whole) - len(before))
    return ids, mask


def llama2_formula(chat, sp):
    """llama/generation.py, chat_completion; the answers are targets, their end included."""
    if chat[0]["role"] == "system":
        chat = [{"content": "<<SYS>>\n" + chat[0]["content"] + "\n<</SYS>>\n\n" + chat[1]["content"]}] + chat[2:]
    ids, mask = [], []
    for asked, answer in zip(chat[::2], chat[1::2]):
        prompt = f"[INST] {asked['content'].strip()} [/INST]"
        whole = sp.encode(f"{prompt} {answer['content'].strip()} ")
        n = shared(sp.encode(prompt), whole)
        ids += [sp.bos_id()] + whole + [sp.eos_id()]
        mask += [0] * (n + 1) + [1] * (len(whole) - n + 1)
    return ids, mask


# ---- ours ----

def read_rows(what):
    """Ids and masks, as instruct-pipe wrote them."""
    with open(os.path.join(TO, what + ".rows"), encoding="ascii") as f:
        pairs = [[tuple(map(int, p.split(":"))) for p in line.split()] for line in f]
    return [([i for i, _ in row], [m for _, m in row]) for row in pairs]


def say(good, what):
    print(("" if good else "not ") + "ok - " + what)


def compare(what, mine, theirs):
    """Row for row; says which differs first."""
    wrong = [i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b]
    say(len(mine) == len(theirs) and not wrong, f"{what}: {len(theirs)} rows, ids and masks are equal")
    if wrong or len(mine) != len(theirs):
        print(f"# {len(mine)} of ours, {len(theirs)} of theirs; {len(wrong)} differ")
    for i in wrong[:2]:
        k = min(shared(mine[i][0], theirs[i][0]), shared(mine[i][1] or [], theirs[i][1] or []))
        print(f"# row {i}, token {k}: ours {mine[i][0][k:k + 8]} {(mine[i][1] or [])[k:k + 8]}, "
              f"theirs {theirs[i][0][k:k + 8]} {(theirs[i][1] or [])[k:k + 8]}")


def check_fields(fields, template, join, tokenizer, bos, loss, longer):
    what = name(template, tokenizer, loss, longer)
    mine = read_rows(what)
    t = tokenizer_of(tokenizer)
    pairs = [(prompt_of(d, join or "\n\n")[:-1 if template == "completion" else None], d["response"]) for d in fields]
    special = [has_special(*p) for p in pairs]
    usual = iter(prepare([{"prompt": p, "completion": c} for (p, c), s in zip(pairs, special) if not s], t, only=loss == "response"))
    theirs = [formula(p, c, t, bos) if s else next(usual) for (p, c), s in zip(pairs, special)]
    if longer == "drop":
        keep = [i for i, (ids, _) in enumerate(theirs) if len(ids) <= CUT]
    elif longer == "cut":
        # As trl, with an EOS in the place of the last token, which is no target; without a target they go.
        theirs = [(ids, m) if len(ids) <= CUT else (ids[:CUT - 1] + [t.eos_token_id], m[:CUT - 1] + [0]) for ids, m in theirs]
        keep = [i for i, (_, m) in enumerate(theirs) if any(m)]
    else:
        keep = range(len(theirs))
    for kind, which in (("SFTTrainer", False), ("special tokens in text", True)):
        rows = [theirs[i] for i in keep if special[i] == which]
        ours = [row for row, i in zip(mine, keep) if special[i] == which]
        if loss == "all":
            rows = [(ids, [1] * len(ids)) for ids, _ in rows]
        compare(f"{what}, {kind}", ours, rows)
    say(len(mine) == len(keep), f"{what}: {len(mine)} rows in the set, {len(keep)} expected")
    if longer == "cut":
        theirs = prepare([{"prompt": p, "completion": c} for (p, c), s in zip(pairs, special) if not s], t, max_length=CUT)
        ours = {tuple(ids[:-1]) for ids, m in mine if len(ids) == CUT}
        cut = [ids for ids, m in theirs if len(ids) == CUT and (ids[-1] != t.eos_token_id) and any(m[:-1])]
        say(cut and all(tuple(ids[:-1]) in ours for ids in cut), f"{what}: {len(cut)} rows that SFTTrainer cuts at {CUT} have the same tokens here")


def check_chats(chats):
    t = tokenizer_of("llama3")
    special = [has_special(*(m["content"] for m in c)) for c in chats]
    import trl
    with open(os.path.join(os.path.dirname(trl.__file__), "chat_templates", "llama3_training.jinja"), encoding="utf-8") as f:
        template = f.read()
    usual = iter(prepare([{"messages": c} for c, s in zip(chats, special) if not s], t, template=template))
    theirs = [llama3_formula(c, t) if s else next(usual) for c, s in zip(chats, special)]
    theirs = [(ids + [t.eos_token_id], mask + [0]) for ids, mask in theirs]  # the set ends its documents
    for file, what in (("llama3-chat", "messages"), ("llama3-conversations", "conversations")):
        mine = read_rows(file)
        for kind, which in (("SFTTrainer's assistant masks", False), ("special tokens in text", True)):
            compare(f"llama3-chat, {what}, {kind}", [a for a, s in zip(mine, special) if s == which],
                    [b for b, s in zip(theirs, special) if s == which])
    compare("llama3-chat, loss on all, tokenizer.json", read_rows("llama3-all"), [(ids, [1] * len(ids)) for ids, _ in theirs])

    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(TOKENIZERS + "/llama2/tokenizer.model")
    compare("llama2-chat, as Meta wrote it", read_rows("llama2-chat"), [llama2_formula(c, sp) for c in chats])


if WHAT == "make":
    make()
else:
    everything, conversations = make_records()
    for row in FIELDS:
        check_fields(everything, *row)
    check_chats(conversations)
