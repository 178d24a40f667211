"""Arrow files by pyarrow, folders of datasets and Megatron's files, beside tern.

  export.py arrow DIR                      write files; with each the cells that arrow-cat must print
  export.py set SET                        the ids and the mask of a .tds, read by numpy: counts
  export.py rows SET DIR LENGTH            a folder of rows against the set
  export.py run DIR SAMPLES LENGTH         a folder's rows against `tern data sample --json`
  export.py megatron SET PREFIX [READER]   .bin and .idx against the set's documents; READER is
                                           megatron-core's indexed_dataset.py
  export.py split NAME STATUS DIR          --split-name against the names that datasets takes
  export.py make SET DIR LENGTH            save_to_disk and Megatron's builder write what tern reads
"""
import json
import os
import struct
import sys

import numpy as np


class Set:
    """A .tds, by its own description (core/data/format.h)."""

    def __init__(self, path):
        raw = open(path, "rb").read()
        assert raw[:8] == b"ternTDS\n"
        n_tokens, n_docs, _, width, self.vocab, self.eos, self.bos = struct.unpack_from("<QQQIIIi", raw, 24)
        n_sections, = struct.unpack_from("<I", raw, 100)
        part = {}
        for i in range(n_sections):
            kind, _, offset, n = struct.unpack_from("<IIQQ", raw, 104 + 24 * i)
            part[kind] = raw[offset:offset + n]
        self.ids = np.frombuffer(part[1], "<u2" if width == 2 else "<u4").astype(np.int64)
        assert len(self.ids) == n_tokens
        self.first = np.frombuffer(part[2], "<u8")[::2]
        assert len(self.first) == n_docs + 1 and self.first[-1] == n_tokens
        self.mask = np.ones(n_tokens, bool)
        if 3 in part:
            self.mask = np.unpackbits(np.frombuffer(part[3], np.uint8), bitorder="little")[:n_tokens].astype(bool)

    def documents(self):
        return [self.ids[a:b] for a, b in zip(self.first[:-1].astype(int), self.first[1:].astype(int))]


def check(good, name):
    print(("ok - " if good else "not ok - ") + name)


# ---------------------------------------------------------------- files of pyarrow

def plain(pa, column):
    """A cell as arrow-cat prints it."""
    kind = column.type
    out = []
    for v in column.to_pylist():
        if v is None:
            out.append(None)
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            out.append(v.hex())
        elif pa.types.is_floating(kind) and v != v:
            out.append("NaN")
        elif pa.types.is_floating(kind) and v in (float("inf"), float("-inf")):
            out.append("Infinity" if v > 0 else "-Infinity")
        elif kind == pa.uint64() and v >= 1 << 63:
            out.append(v - (1 << 64))
        else:
            out.append(v)
    return out


def arrow(folder):
    import pyarrow as pa
    rng = np.random.default_rng(1)

    def some(values, kind, n=200):
        return pa.array([None if rng.random() < 0.2 else values[rng.integers(len(values))] for _ in range(n)], kind)

    texts = ["", "plain", "\u00e9\u4e2d\U0001f600", "x" * 5000, "a\nb\tc", "'\"\\"]
    columns = {
        "utf8": some(texts, pa.utf8()), "large_utf8": some(texts, pa.large_utf8()),
        "binary": some([b"", b"\0\xff", b"abc"], pa.binary()), "large_binary": some([b"\x80", b"z" * 99], pa.large_binary()),
        "bool": some([True, False], pa.bool_()),
        "half": some([np.float16(v) for v in (0, 1.5, -2, 65504, 6e-8, float("inf"))], pa.float16()),
        "float": some([0.0, -1.5, 3.4e38, float("-inf")], pa.float32()),
        "double": some([0.0, 1e300, -2.5, float("inf")], pa.float64()),
    }
    for bits in (8, 16, 32, 64):
        columns[f"int{bits}"] = some([0, -1, 2 ** (bits - 1) - 1, -2 ** (bits - 1)], getattr(pa, f"int{bits}")())
        columns[f"uint{bits}"] = some([0, 1, 2 ** bits - 1], getattr(pa, f"uint{bits}")())
        columns[f"list{bits}"] = some([[], [1], [3, -4, 5]], pa.list_(getattr(pa, f"int{bits}")()))
    columns["large_list"] = some([[], [7] * 300], pa.large_list(pa.int32()))
    columns["fixed"] = some([[1, 2, 3], [4, 5, 6]], pa.list_(pa.uint16(), 3))
    struct_type = pa.struct([("a", pa.utf8()), ("b", pa.struct([("c", pa.int32())]))])
    columns["box"] = some([{"a": "x", "b": {"c": 1}}, {"a": None, "b": None}, {"a": "y", "b": {"c": None}}], struct_type)
    others = {
        "holes": pa.array([[1, None]] * 200, pa.list_(pa.int8())),
        "when": some([1, 2], pa.timestamp("us")), "day": some([1, 2], pa.date32()), "exact": pa.array([None] * 200, pa.decimal128(9, 2)),
        "code": some(["a", "b"], pa.dictionary(pa.int8(), pa.utf8())), "nothing": pa.nulls(200),
        "chat": some([[{"r": "u"}], []], pa.list_(pa.struct([("r", pa.utf8())]))), "fixed_binary": some([b"1234"], pa.binary(4)),
        "map": some([[("k", 1)]], pa.map_(pa.utf8(), pa.int8())), "view": some(["short", "longer than twelve bytes"], pa.string_view()),
        "strings": some([["a", "b"]], pa.list_(pa.utf8())),
        "union": pa.UnionArray.from_sparse(pa.array([0, 1] * 100, pa.int8()), [pa.array(range(200)), pa.array(["x"] * 200)]),
        "dense": pa.UnionArray.from_dense(pa.array([0, 1] * 100, pa.int8()), pa.array([i // 2 for i in range(200)], pa.int32()),
                                          [pa.array(range(100)), pa.array(["x"] * 100)]),
        "ends": pa.RunEndEncodedArray.from_arrays(pa.array([50, 200], pa.int32()), pa.array([1, 2])),
    }
    # What cannot be used stands between what can, so that its arrays must be stepped over.
    names = [n for pair in zip(others, columns) for n in pair] + list(columns)[len(others):]
    table = pa.table({n: columns.get(n, others.get(n)) for n in names})
    want = dict(columns)
    box = want.pop("box")
    want["box.a"] = pa.array([v and v["a"] for v in box.to_pylist()], pa.utf8())
    want["box.b.c"] = pa.array([v and v["b"] and v["b"]["c"] for v in box.to_pylist()], pa.int32())

    def write(name, tables, new, **options):
        path = os.path.join(folder, name)
        with pa.OSFile(path, "wb") as f, new(f, tables[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as w:
            for t in tables:
                w.write_table(t, max_chunksize=64)
        return path

    def expect(path, picks):
        rows = [[column[i] for column in part] for part in picks for i in range(len(part[0]))]
        with open(path + ".want", "w") as f:
            f.write(json.dumps(sorted(want)) + "\n")
            for row in rows:
                f.write(json.dumps(row) + "\n")

    def cells(lo, hi):
        return [plain(pa, want[n].slice(lo, hi - lo)) for n in sorted(want)]

    simple = table.select([n for n in names if n not in ("union", "dense", "ends", "view")])
    for name, new in (("stream", pa.ipc.new_stream), ("file", pa.ipc.new_file)):
        expect(write(f"{name}.arrow", [table], new), [cells(0, 200)])
        expect(write(f"{name}-sliced.arrow", [table.slice(13, 71), table.slice(99, 0), table.slice(101, 33)], new), [cells(13, 84), cells(101, 134)])
        expect(write(f"{name}-zstd.arrow", [simple], new, compression="zstd"), [cells(0, 200)])
        expect(write(f"{name}-v4.arrow", [simple], new, metadata_version=pa.ipc.MetadataVersion.V4), [cells(0, 200)])
    write("lz4.arrow", [simple], pa.ipc.new_stream, compression="lz4")
    print("written")


def compare(got, want):
    """The lines of arrow-cat and of .want, as JSON: a real number may be written in two ways."""
    a, b = open(got).read().splitlines()[1:], open(want).read().splitlines()[1:]
    same = len(a) == len(b) and all(json.loads(x) == json.loads(y) for x, y in zip(a, b))
    check(same, f"{os.path.basename(want)[:-5]}: {len(b)} rows of pyarrow's are read equal")
    if not same:
        for x, y in zip(a, b):
            if json.loads(x) != json.loads(y):
                print("# got ", x[:300], "\n# want", y[:300])
                break


# ---------------------------------------------------------------- datasets

def rows(path, folder, length):
    import datasets
    s, length = Set(path), int(length)
    d = datasets.load_from_disk(folder)
    n = -(-len(s.ids) // length)
    fill = n * length - len(s.ids)
    ids = np.concatenate([s.ids, np.full(fill, s.eos)]).reshape(n, length)
    attention = np.concatenate([np.ones(len(s.ids), int), np.zeros(fill, int)]).reshape(n, length)
    labels = np.where(np.concatenate([s.mask, np.zeros(fill, bool)]).reshape(n, length), ids, -100)
    version = datasets.__version__
    check(len(d) == n and d.column_names == ["input_ids", "attention_mask", "labels"], f"datasets {version} opens {n} rows of {length}")
    kinds = {k: d.features[k].feature.dtype for k in d.column_names}
    check(kinds == {"input_ids": "int32", "attention_mask": "int8", "labels": "int64"}, f"datasets {version}: features are those of run_clm")
    got = d.with_format("numpy")[:]
    check((np.stack(got["input_ids"]) == ids).all(), f"datasets {version}: input_ids are the set's ids in order")
    check((np.stack(got["attention_mask"]) == attention).all(), f"datasets {version}: attention_mask is 0 where the last row is filled up")
    check((np.stack(got["labels"]) == labels).all(), f"datasets {version}: labels are the ids, -100 where there is no target")
    check(str(d.split) == "train", f"datasets {version}: the split has its name")
    tail = d.select(range(n - 3, n)).map(lambda row: {"n": len(row["input_ids"])}, load_from_cache_file=False)
    check(tail["n"][:] == [length] * 3, f"datasets {version}: rows are selected and mapped")
    shuffled = d.shuffle(seed=1)
    check(sorted(sum(map(list, shuffled["input_ids"][:]), [])) == sorted(ids.reshape(-1).tolist()), f"datasets {version}: rows are shuffled")
    try:
        import torch
    except ImportError:
        return
    loader = torch.utils.data.DataLoader(d.with_format("torch"), batch_size=2)
    first = next(iter(loader))
    check(first["input_ids"].shape == (2, length) and first["labels"].dtype == torch.int64, f"datasets {version}: torch's DataLoader gives batches")


def run(folder, samples, length):
    """Rows are those that `tern data sample --json` names, taken from their sets by numpy."""
    import datasets
    length, sets, want = int(length), {}, []
    for x in json.load(open(samples)):
        s = sets.setdefault(x["set"], None) or Set(x["set"])
        sets[x["set"]] = s
        row = s.ids[x["row"] * length:(x["row"] + 1) * length].tolist()
        want.append(row + [s.eos] * (length - len(row)))
    got = datasets.load_from_disk(folder)["input_ids"][:]
    check([list(r) for r in got] == want, f"{len(want)} rows of a recipe are the samples of its run in order")


def split(name, rc, folder):
    """tern takes the names that datasets takes, and what it writes is opened."""
    import datasets
    try:
        good = bool(name) and "[" not in name and "+" not in name and bool(datasets.NamedSplit(name))
    except ValueError:
        good = False
    check(good == (rc == "0"), f"--split-name '{name}' is {'taken' if good else 'refused'}, as by datasets")
    if rc == "0":
        check(str(datasets.load_from_disk(folder).split) == name, f"a split named '{name}' is opened")


def make(path, folder, length):
    """What others write: rows of group_texts by datasets, and Megatron's form by its description."""
    import datasets
    s, length = Set(path), int(length)
    n = len(s.ids) // length
    ids = s.ids[:n * length].reshape(n, length)
    d = datasets.Dataset.from_dict({"input_ids": ids.tolist(), "labels": ids.tolist(), "attention_mask": np.ones_like(ids).tolist()})
    d.save_to_disk(os.path.join(folder, "grouped"), num_shards=3)
    # The whole set, filled up; attention_mask in each type.
    fill = -len(s.ids) % length
    whole = np.concatenate([s.ids, np.full(fill, s.eos)]).reshape(-1, length)
    there = np.concatenate([np.ones(len(s.ids)), np.zeros(fill)]).reshape(-1, length)

    def save(name, **columns):
        features = datasets.Features({k: kind for k, (_, kind) in columns.items()})
        data = datasets.Dataset.from_dict({k: v.tolist() for k, (v, _) in columns.items()}, features=features)
        data.save_to_disk(os.path.join(folder, name))

    def lists(kind):
        return datasets.Sequence(datasets.Value(kind))

    ids = (whole, lists("int32"))
    for kind in ("int8", "int16", "int32", "int64", "uint8", "bool", "float32"):
        save("attention-" + kind, input_ids=ids, attention_mask=(there.astype(kind), lists(kind)))
    save("labels-float32", input_ids=ids, labels=(whole.astype("float32"), lists("float32")), attention_mask=(there.astype("int8"), lists("int8")))
    save("classes", input_ids=ids, labels=(np.arange(len(whole)), datasets.Value("int64")), attention_mask=(there.astype("int8"), lists("int8")))
    # Rows of their own lengths, without EOS.
    bare = [x[:-1].tolist() for x in s.documents()]
    datasets.Dataset.from_dict({"input_ids": bare}).save_to_disk(os.path.join(folder, "bare"))
    for name, kind, code in (("i4", "<i4", 4), ("i8", "<i8", 5), ("u2", "<u2", 8)):
        documents = s.documents()
        with open(os.path.join(folder, name + ".bin"), "wb") as f:
            f.write(np.concatenate(documents).astype(kind).tobytes())
        lengths = np.array([len(x) for x in documents], "<i4")
        places = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))[:-1]]) * np.dtype(kind).itemsize
        with open(os.path.join(folder, name + ".idx"), "wb") as f:
            f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1))
            f.write(lengths.tobytes() + places.astype("<i8").tobytes() + np.arange(len(lengths) + 1, dtype="<i8").tobytes())


def same(a, b, part=None):
    x, y = Set(a), Set(b)
    n = len(y.ids) // int(part) * int(part) if part else len(y.ids)
    check(x.ids[:n].tolist() == y.ids[:n].tolist() and len(x.ids) - n in ((0, 1) if part else (0,)),
          f"{os.path.basename(a)}: read back, the ids are those of the set")
    if not part:
        check(x.first.tolist() == y.first.tolist(), f"{os.path.basename(a)}: and so are the documents")


# ---------------------------------------------------------------- Megatron

def megatron_reader(path):
    """megatron-core's own file, without the rest of it and without torch."""
    import importlib.util
    import types
    try:
        import torch  # noqa: F401
    except ImportError:
        torch = types.ModuleType("torch")
        torch.Tensor = object
        torch.distributed = types.SimpleNamespace(is_available=lambda: False, is_initialized=lambda: False)
        torch.utils = types.ModuleType("torch.utils")
        torch.utils.data = types.ModuleType("torch.utils.data")
        torch.utils.data.Dataset = object
        sys.modules.update({"torch": torch, "torch.utils": torch.utils, "torch.utils.data": torch.utils.data})
    for name in ("megatron", "megatron.core", "megatron.core.datasets"):
        module = types.ModuleType(name)
        module.__path__ = []
        sys.modules[name] = module
    quiet = types.ModuleType("megatron.core.utils")
    quiet.log_single_rank = lambda *a, **k: None
    sys.modules["megatron.core.utils"] = quiet
    folder = os.path.dirname(path)
    for name in ("msc_utils", "datasets.object_storage_utils", "datasets.indexed_dataset"):
        full = "megatron.core." + name
        spec = importlib.util.spec_from_file_location(full, os.path.join(folder, "..", name.replace(".", "/") + ".py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules["megatron.core.datasets.indexed_dataset"].IndexedDataset


def megatron(path, prefix, reader=None):
    documents = Set(path).documents()
    raw = open(prefix + ".idx", "rb").read()
    assert raw[:9] == b"MMIDIDX\0\0"
    version, code, n, d = struct.unpack_from("<QBQQ", raw, 9)
    kind = {4: "<i4", 8: "<u2"}[code]
    lengths = np.frombuffer(raw, "<i4", n, 34)
    places = np.frombuffer(raw, "<i8", n, 34 + 4 * n)
    index = np.frombuffer(raw, "<i8", d, 34 + 12 * n)
    ids = np.fromfile(prefix + ".bin", kind)
    width = np.dtype(kind).itemsize
    good = version == 1 and n == len(documents) and index.tolist() == list(range(n + 1)) and 34 + 12 * n + 8 * d == len(raw)
    good = good and all((ids[p // width:p // width + k] == x).all() and k == len(x) for k, p, x in zip(lengths, places, documents))
    check(good and lengths.sum() == len(ids), f"numpy reads {n} documents of {prefix}, each with its EOS")
    if reader:
        m = megatron_reader(reader)(prefix)
        check(len(m) == n and all((m[i] == x).all() for i, x in enumerate(documents)), f"megatron-core reads the same {n} documents")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
