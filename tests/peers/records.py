"""Records of instruct data, in JSONL and as Hugging Face's datasets saves them.

records.py FOLDER SOURCE...: for each kind, KIND.jsonl and the folders KIND.saved (save_to_disk), and
KIND.large with the wide types of Arrow; KIND.json is what datasets makes of it.  SOURCE: JSONL of dolly."""
import datetime
import json
import random
import sys

import datasets
import pyarrow as pa

folder, sources = sys.argv[1], sys.argv[2:]
rng = random.Random(11)
PIECES = ["Why", " is", " the", " sky", " blue", "?", " 42", "\n", "\n\n", "\t", "\U0001f600", "\u05e9\u05dc\u05d5\u05dd", "\u00e9", "e\u0301",
          "\u4eca\u5929", "\u00a0", "\u200b", "\0", "\\n", "\\", '"', "### Answer", "[INST]", "<<SYS>>\n", "</s>", "\r\n", "\x1c", "\x7f", "{x}"]


def text(least=1):
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(least, 30))) or "x"


def chat(role, content, names):
    turns = [{role: names[0], content: text()}] if rng.random() < 0.3 else []
    for _ in range(rng.randint(1, 4)):
        turns += [{role: names[1], content: text()}, {role: names[2], content: text()}]
    return turns


def extra(i):
    """Fields that no template reads, of types that tern does not, too."""
    return {"id": i, "when": datetime.datetime(2026, 1, 1, i % 24), "meta": {"tags": [text()], "score": i / 7}, "none": None}


N = 1200
kinds = {
    "chat": [{"messages": chat("role", "content", ("system", "user", "assistant")), **extra(i)} for i in range(N)],
    "sharegpt": [{**extra(i), "conversations": chat("from", "value", ("system", "human", "gpt"))} for i in range(N)],
    "alpaca": [{"instruction": text(), "input": rng.choice([None, "", text()]), "output": text(), **extra(i)} for i in range(N)],
    "completion": [{"prompt": text(0), "completion": text()} for _ in range(N)],
}
if sources:
    kinds["dolly"] = [json.loads(x) for s in sources for x in open(s, encoding="utf-8")]


def wide(t):
    if pa.types.is_string(t):
        return pa.large_string()
    if pa.types.is_list(t):
        return pa.large_list(wide(t.value_type))
    if pa.types.is_struct(t):
        return pa.struct([(f.name, wide(f.type)) for f in t])
    return t


for kind, rows in kinds.items():
    with open(f"{folder}/{kind}.jsonl", "w", encoding="utf-8") as f:
        for r in rows:
            f.write(json.dumps(r, ensure_ascii=rng.random() < 0.5, default=str) + "\n")
    d = datasets.Dataset.from_list(rows)
    d.save_to_disk(f"{folder}/{kind}.saved", num_shards=3)
    d.remove_columns([c for c in ("when",) if c in d.column_names]).to_json(f"{folder}/{kind}.datasets.jsonl", force_ascii=False)
    t = pa.Table.from_pylist(rows)
    t = t.cast(pa.schema([(f.name, wide(f.type)) for f in t.schema]))
    with pa.OSFile(f"{folder}/{kind}.large.arrow", "wb") as f, pa.ipc.new_file(f, t.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as w:
        w.write_table(t, max_chunksize=100)
print(" ".join(kinds))
