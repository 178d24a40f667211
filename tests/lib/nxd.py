"""Small Llamas for tests of exports to NxD, and NxD's files read without torch.

make(DIR, heads, kv_heads, layers, tied=False, dtype="F32", half=None, seed=1): a Hugging Face folder;
    tensors with `half` in their name are BF16
source(DIR): {name: (dtype, shape, bytes)} of it
write(FILE, {name: (dtype, shape, bytes)}): a safetensors file
load(FILE): the object in a file of PyTorch; a tensor is (dtype, shape, bytes)
save(FILE, object): such a file
"""
import json, os, pickle, random, struct, zipfile

SIZE = {"F32": 4, "BF16": 2}
FFN, VOCAB, HEAD = 48, 40, 4


def shapes(heads, kv_heads, layers, tied):
    dim = heads * HEAD
    yield "model.embed_tokens.weight", [VOCAB, dim]
    for i in range(layers):
        at = f"model.layers.{i}."
        yield at + "self_attn.q_proj.weight", [heads * HEAD, dim]
        yield at + "self_attn.k_proj.weight", [kv_heads * HEAD, dim]
        yield at + "self_attn.v_proj.weight", [kv_heads * HEAD, dim]
        yield at + "self_attn.o_proj.weight", [dim, heads * HEAD]
        yield at + "mlp.gate_proj.weight", [FFN, dim]
        yield at + "mlp.up_proj.weight", [FFN, dim]
        yield at + "mlp.down_proj.weight", [dim, FFN]
        yield at + "input_layernorm.weight", [dim]
        yield at + "post_attention_layernorm.weight", [dim]
    yield "model.norm.weight", [dim]
    if not tied:
        yield "lm_head.weight", [VOCAB, dim]


def make(path, heads, kv_heads, layers, tied=False, dtype="F32", half=None, seed=1):
    os.makedirs(path)
    json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": heads * HEAD,
               "intermediate_size": FFN, "num_hidden_layers": layers, "num_attention_heads": heads,
               "num_key_value_heads": kv_heads, "vocab_size": VOCAB, "max_position_embeddings": 64,
               "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": tied,
               "bos_token_id": 1, "eos_token_id": 2}, open(f"{path}/config.json", "w"))
    rng, tensors = random.Random(seed), {}
    for name, shape in shapes(heads, kv_heads, layers, tied):
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        near = 1.0 if len(shape) == 1 else 0.0
        values = struct.pack(f"<{n}f", *(rng.uniform(near - 0.3, near + 0.3) for _ in range(n)))
        own = "BF16" if half and half in name else dtype
        if own == "BF16":
            values = b"".join(values[i + 2:i + 4] for i in range(0, 4 * n, 4))
        tensors[name] = own, shape, values
    write(f"{path}/model.safetensors", tensors)


def write(path, tensors):
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, values) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(values)]}
        at += len(values)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def source(path, file="model.safetensors"):
    raw = open(f"{path}/{file}", "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (t["dtype"], tuple(t["shape"]), raw[8 + n:][t["data_offsets"][0]:t["data_offsets"][1]])
            for k, t in head.items()}


class Storage:
    def __init__(self, kind):
        self.kind = kind


class TensorReference:
    def __init__(self, tid=None):
        self.tid = tid


KINDS = {"FloatStorage": "F32", "BFloat16Storage": "BF16", "HalfStorage": "F16"}


def rebuild(storage, offset, size, stride, grad, hooks):
    want = []
    for n in reversed(size):
        want.insert(0, 1 if not want else want[0] * last)
        last = n
    assert offset == 0 and tuple(want) == stride and not grad and not hooks, "a plain, contiguous tensor"
    return storage[0], size, storage[1]


class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return rebuild
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) == ("torch_xla.utils.serialization", "TensorReference"):
            return TensorReference
        if (module, name) == ("torch", "Size"):
            return tuple
        if module == "torch" and name in KINDS:
            return Storage(KINDS[name])
        if module == "torch":
            return name
        raise pickle.UnpicklingError(f"{module}.{name} has no place here")

    def persistent_load(self, pid):
        word, kind, key, place, n = pid
        data = self.zip.read(f"{self.archive}/data/{key}")
        assert word == "storage" and place == "cpu" and len(data) == n * {"F32": 4}.get(kind.kind, 2)
        return kind.kind, data


def load(path):
    with zipfile.ZipFile(path) as z:
        archive = z.namelist()[0].split("/")[0]
        assert z.testzip() is None and archive == os.path.splitext(os.path.basename(path))[0]
        assert z.read(archive + "/version") == b"3\n" and z.read(archive + "/byteorder") == b"little"
        with z.open(archive + "/data.pkl") as f:
            reader = Reader(f)
            reader.zip, reader.archive = z, archive
            return reader.load()


def pickled(o, storages):
    """Protocol 2; the bytes of tensors are appended to `storages`."""
    several = lambda items: b"".join(pickled(i, storages) for i in items)
    if isinstance(o, TensorReference):
        return b"ctorch_xla.utils.serialization\nTensorReference\n)\x81" + pickled({"tid": o.tid}, storages) + b"b"
    if isinstance(o, dict):
        return b"}(" + several(x for kv in o.items() for x in kv) + b"u"
    if isinstance(o, tuple) and len(o) == 3 and o[0] in SIZE:
        kind = {v: k for k, v in KINDS.items()}[o[0]].encode()
        storages.append(o[2])
        stride = [1]
        for n in reversed(o[1][1:]):
            stride.insert(0, stride[0] * n)
        storage = b"(X\x07\0\0\0storagectorch\n" + kind + b"\n" + several((str(len(storages) - 1), "cpu", len(o[2]) // SIZE[o[0]])) + b"tQ"
        return (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + several((0, tuple(o[1]), tuple(stride), False))
                + b"ccollections\nOrderedDict\n)RtR")
    if isinstance(o, (tuple, list)):
        return b"(" + several(o) + (b"t" if isinstance(o, tuple) else b"l")
    if isinstance(o, bool) or o is None:
        return {True: b"\x88", False: b"\x89", None: b"N"}[o]
    if isinstance(o, int):
        return b"J" + struct.pack("<i", o)
    return b"X" + struct.pack("<I", len(o.encode())) + o.encode()


def save(path, o):
    storages, archive = [], os.path.splitext(os.path.basename(path))[0]
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with zipfile.ZipFile(path, "w") as z:
        z.writestr(archive + "/data.pkl", b"\x80\x02" + pickled(o, storages) + b".")
        z.writestr(archive + "/byteorder", "little")
        for i, data in enumerate(storages):
            z.writestr(f"{archive}/data/{i}", data)
        z.writestr(archive + "/version", "3\n")


def rank_file(files, xser, tp, pp):
    if files == "v1":
        return f"tp_rank_{tp:02d}_pp_rank_{pp:02d}" + ("" if xser else "/checkpoint.pt")
    return "model/dp_rank_00_" + ("ep_rank_00_" if files == "v3" else "") + f"tp_rank_{tp:02d}_pp_rank_{pp:02d}.pt"


def rank_state(path, files="v2", xser=False, tp=0, pp=0):
    at = f"{path}/{rank_file(files, xser, tp, pp)}"
    state = load(at)
    if not xser:
        return state
    info = load(at + ".info.pt")
    names = {}
    for name, reference in state.items():
        t = load(f"{at}.tensors/tensor_{reference.tid}.pt")
        one = info[reference.tid]
        assert one["shape"] == t[1] and one["dtype"] == {"F32": "float32", "BF16": "bfloat16"}[t[0]]
        assert one["expert_model_parallel"] is False
        names[name] = t
    assert sorted(info) == list(range(len(names)))
    return names
