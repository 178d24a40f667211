# pytorch.py make DIR: files of torch.save in every form, and in DIR/list what is in them.
# pytorch.py compare DIR DUMP...: lines of torch-tool dump against DIR/list.
import collections, hashlib, os, sys
import torch

NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
         torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
for name in "uint16", "uint32", "uint64":  # of later versions
    if hasattr(torch, name):
        NAMES[getattr(torch, name)] = "U" + name[4:]

def raw(t):
    t = t.detach().contiguous()
    size = t.element_size()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return t.view(kind).numpy().tobytes() if t.ndim else t.reshape(1).view(kind).numpy().tobytes()

def line(name, t):
    return "\t".join([name, NAMES[t.dtype], "x".join(map(str, t.shape)), hashlib.sha256(raw(t)).hexdigest()])

def tensors():
    torch.manual_seed(7)
    w = torch.randn(37, 53)
    big = torch.randn(1500, 1100)
    out = collections.OrderedDict(w=w, transposed=w.t(), part=w[3:9, 5:20:3], row=w[4], scalar=torch.tensor(3.5), empty=torch.zeros(0, 3),
                                  expanded=torch.randn(1, 5).expand(4, 5), big=big.t(), deep=torch.randn(2, 3, 4, 5).permute(3, 1, 0, 2),
                                  parameter=torch.nn.Parameter(torch.randn(7)))
    marked = torch.nn.Parameter(torch.randn(5))
    marked.tensor_model_parallel = True  # an attribute, as Megatron and NxD set it
    out["marked"] = marked
    out["dots.in.a.name"] = torch.arange(6).reshape(2, 3)
    for dtype, name in NAMES.items():
        x = torch.arange(24).reshape(4, 6)
        out["of " + name] = (x % 2).to(dtype) if dtype is torch.bool else x.to(torch.int64).to(dtype)
        if dtype in (torch.bfloat16, torch.float16, torch.int64):
            out["of %s, transposed" % name] = out["of " + name].t()
    return out

def make(where):
    os.makedirs(where)
    flat = tensors()
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.LayerNorm(3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(2, 5)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7, "lr": 1e-3, "big": 2 ** 70, "none": None,
             "args": ("a", True, [1, 2.5], {"x": b"bytes"}), "dtype": torch.float16, "size": torch.Size([3, 4]),
             "device": torch.device("cpu"), "set": {1, 2}}
    inside = [("model." + k, v) for k, v in state["model"].items()]
    inside += [("optimizer.state.%d.%s" % (i, k), v) for i, s in state["optimizer"]["state"].items() for k, v in s.items() if torch.is_tensor(v)]
    files = [("flat", flat, list(flat.items())), ("module", {"module": state}, inside)]
    with open(where + "/list", "w") as out:
        for name, what, items in files:
            for form, options in (("zip", {}), ("old", dict(_use_new_zipfile_serialization=False)), ("zip4", dict(pickle_protocol=4))):
                path = "%s/%s-%s.pt" % (where, name, form)
                torch.save(what, path, **options)
                for k, t in items:
                    out.write(path + "\t" + line(k, t) + "\n")

def compare(where):
    want = collections.defaultdict(list)
    for text in open(where + "/list"):
        path, rest = text.rstrip("\n").split("\t", 1)
        want[path].append(rest)
    for path in sorted(want):
        got = open(path + ".dump").read().splitlines()
        bad = sorted(set(want[path]) ^ set(got))
        print("ok" if not bad and len(got) == len(want[path]) else "not ok", "-", os.path.basename(path), "of PyTorch", torch.__version__.split("+")[0],
              "(%d tensors) is read bit for bit" % len(got))
        for b in bad[:6]:
            print("#", b)

{"make": make, "compare": compare}[sys.argv[1]](*sys.argv[2:])
