"""nxd.py ROOT NXD OPTIMUM: exports to NxD's ranks beside other converters, and put to use rank by rank.

torch.load(weights_only=True) reads each file.  The tensors are those of NxD's converter (in the folder
NXD, with torch_xla stubbed) where it works.  Query and key heads are where Optimum Neuron (the folder
OPTIMUM) has them on trn1.  And in every layout the ranks together compute the logits of the whole
model, as NxD's Llama does: what NxD's converter gets wrong is right here.
"""
import ast, collections, contextlib, importlib, io, json, math, os, pickle, subprocess, sys, types

root, nxd_source, optimum_source = sys.argv[1:4]
sys.path.insert(0, root + "/tests/lib")
import nxd
import torch

TORCH = {"F32": torch.float32, "BF16": torch.bfloat16}
worst = {"logits": 0.0}
count = {"compared": 0, "tensors": 0, "layouts": 0, "heads": 0}


def say(good, what):
    print(("" if good else "not ") + "ok", what, flush=True)


def module(name, **members):
    m = sys.modules[name] = types.ModuleType(name)
    m.__dict__.update(members)
    return m


class TensorReference:
    def __init__(self, tid):
        self.tid = tid


TensorReference.__module__ = "torch_xla.utils.serialization"


def converter():
    """NxD's converter without the rest of NxD, or None."""
    src = nxd_source + "/src/neuronx_distributed"
    if not os.path.exists(src + "/scripts/checkpoint_converter.py"):
        return None
    for name in ("neuronx_distributed", "neuronx_distributed.scripts", "neuronx_distributed.pipeline"):
        module(name, __path__=[src + name[len("neuronx_distributed"):].replace(".", "/")])
    module("torch_xla"), module("torch_xla.utils"), module("torch_xla.utils.serialization", TensorReference=TensorReference)
    logger = types.SimpleNamespace(info=print, debug=print, warning=print)
    nothing = lambda *args, **kw: None
    module("neuronx_distributed.utils")
    module("neuronx_distributed.utils.logger", get_logger=lambda *a: logger)
    module("neuronx_distributed.utils.serialization", TensorMeta=object)
    module("neuronx_distributed.parallel_layers")
    module("neuronx_distributed.parallel_layers.parallel_state", rmsg=nothing,
           get_pipeline_model_parallel_rank=nothing, get_pipeline_model_parallel_size=nothing)
    module("neuronx_distributed.trainer")
    module("neuronx_distributed.trainer.checkpoint", _xser_load_data=nothing)
    module("neuronx_distributed.trainer.checkpoint_storage", BaseCheckpointStorage=object, create_checkpoint_storage=nothing)
    module("neuronx_distributed.scripts.yaml_converter", convert_yaml_to_json=nothing)
    return importlib.import_module("neuronx_distributed.scripts.checkpoint_converter").CheckpointConverterBase()


def optimum():
    """Optimum Neuron's order of query heads: compute_query_indices_for_rank alone, or None."""
    path = optimum_source + "/optimum/neuron/models/training/transformations_utils.py"
    if not os.path.exists(path):
        return None
    for node in ast.walk(ast.parse(open(path).read())):
        if isinstance(node, ast.FunctionDef) and node.name == "compute_query_indices_for_rank":
            node.decorator_list = []
            names = {"torch": torch}
            exec(compile(ast.Module([node], []), path, "exec"), names)
            return names[node.name]


# ---------------------------------------------------------------- the model

def whole(path):
    state = {k: torch.frombuffer(bytearray(b), dtype=TORCH[t]).reshape(shape) for k, (t, shape, b) in nxd.source(path).items()}
    state.setdefault("lm_head.weight", state["model.embed_tokens.weight"].clone())
    return state


def norm(x, w):
    return w.double() * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def attention(q, k, v):
    """[T, heads * D] of one rank: as many queries as fit share a key head, in their order."""
    n = q.shape[0]
    q, k, v = (x.reshape(n, -1, nxd.HEAD).transpose(0, 1) for x in (q, k, v))
    angle = torch.outer(torch.arange(n, dtype=torch.double), 10000.0 ** -(torch.arange(0, nxd.HEAD, 2, dtype=torch.double) / nxd.HEAD))
    cos, sin = (torch.cat((f, f), -1) for f in (angle.cos(), angle.sin()))
    half = nxd.HEAD // 2
    turn = lambda x: x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin
    q, k = turn(q), turn(k)
    k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
    scores = (q @ k.transpose(1, 2) / math.sqrt(nxd.HEAD)).masked_fill(torch.triu(torch.ones(n, n, dtype=torch.bool), 1), -math.inf)
    return (torch.softmax(scores, -1) @ v).transpose(0, 1).reshape(n, -1)


def qkv(x, s, at, keys):
    """q, k and v of one rank, whatever the form; `keys`: rows of its k."""
    names = [n for n in ("q_proj.weight", "k_proj.weight", "v_proj.weight", "qkv_proj.weight_q", "qkv_proj.weight_k",
                         "qkv_proj.weight_v", "qkv_proj.weight", "qkv_proj.weight_qkv") if at + n in s]
    y = x @ torch.cat([s[at + n] for n in names]).double().T
    return y.split([y.shape[1] - 2 * keys, keys, keys], -1)


def forward(ids, stages, layers_of, keys):
    """Logits; stages[pipeline rank][tensor rank] are state dicts, layers_of(i) the stage of layer i."""
    tp = len(stages[0])
    rows = nxd.VOCAB // tp
    x = 0
    for r, s in enumerate(stages[0]):
        here = (ids >= r * rows) & (ids < (r + 1) * rows)
        x = x + s["model.embed_tokens.weight"].double()[(ids - r * rows).clamp(0, rows - 1)] * here[:, None]
    for i, stage in enumerate(layers_of):
        at, y = f"model.layers.{i}.", norm(x, stages[stage][0][f"model.layers.{i}.input_layernorm.weight"])
        for s in stages[stage]:
            x = x + attention(*qkv(y, s, at + "self_attn.", keys)) @ s[at + "self_attn.o_proj.weight"].double().T
        y = norm(x, stages[stage][0][at + "post_attention_layernorm.weight"])
        for s in stages[stage]:
            gate, up = (y @ s[at + "mlp.gate_up_proj.weight"].double().T).chunk(2, -1)
            x = x + torch.nn.functional.silu(gate) * up @ s[at + "mlp.down_proj.weight"].double().T
    last = stages[-1]
    return torch.cat([norm(x, last[0]["model.norm.weight"]) @ s["lm_head.weight"].double().T for s in last], -1)


def expected_logits(ids, state, layers, keys):
    one = {k: v for k, v in state.items()}
    for i in range(layers):
        at = f"model.layers.{i}.mlp."
        one[at + "gate_up_proj.weight"] = torch.cat((one[at + "gate_proj.weight"], one[at + "up_proj.weight"]))
    return forward(ids, [[one]], [0] * layers, keys)


# ---------------------------------------------------------------- files

def load_rank(path, files, xser, tp, pp):
    at = f"{path}/{nxd.rank_file(files, xser, tp, pp)}"
    if not xser:
        return torch.load(at, weights_only=True)
    sys.modules.pop("torch_xla.utils.serialization", None)
    try:
        torch.load(at, weights_only=True)
        say(False, at + ": a class of torch_xla's, and weights_only takes it")
    except pickle.UnpicklingError:
        pass
    module("torch_xla"), module("torch_xla.utils")
    module("torch_xla.utils.serialization", TensorReference=TensorReference)
    references = torch.load(at, weights_only=False)
    # PyTorch 1.13 takes no torch.bfloat16 with weights_only, where it is no tensor's.
    info = torch.load(at + ".info.pt", weights_only=False)
    state = {}
    for name, reference in references.items():
        assert type(reference) is TensorReference
        t = state[name] = torch.load(f"{at}.tensors/tensor_{reference.tid}.pt", weights_only=True)
        one = info[reference.tid]
        assert one == {"dtype": t.dtype, "shape": t.shape, "expert_model_parallel": False} and type(one["shape"]) is torch.Size
    assert len(info) == len(state)
    return state


def save_as_trainer(path, case, got):
    """The ranks' tensors as NxD's trainer saves them, by torch.save."""
    for p, stage in enumerate(got):
        for t, state in enumerate(stage):
            at = f"{path}/{nxd.rank_file(case['files'], case['xser'], t, p)}"
            os.makedirs(os.path.dirname(at), exist_ok=True)
            state = collections.OrderedDict(state)
            if case["xser"]:
                os.makedirs(at + ".tensors")
                torch.save({i: {"dtype": x.dtype, "shape": x.shape, "expert_model_parallel": False} for i, x in enumerate(state.values())}, at + ".info.pt")
                for i, (name, x) in enumerate(state.items()):
                    torch.save(x, f"{at}.tensors/tensor_{i}.pt")
                    state[name] = TensorReference(i)
            # Older trainers keep more in the file.
            torch.save({"model": state, "epoch": 2, "cli_args": {"lr": 1e-4}} if case["files"] == "v1" else state, at)


def back(case, what, got):
    """What the trainer saves becomes the model again."""
    save_as_trainer("saved", case, got)
    done = subprocess.run(["tern", "ckpt", "export", "saved", "-o", "again", "--from", "nxd", "--config", case["model"], "--hw", case["hw"]], capture_output=True, text=True)
    same = done.returncode == 0 and nxd.source("again") == nxd.source(case["model"])
    say(same, f"{what}: what the trainer saves is the model again {done.stderr.strip() if done.returncode else ''}")
    subprocess.run(["rm", "-rf", "saved", "again"], check=True)


# ---------------------------------------------------------------- cases

def converter_errs(case):
    """Why the converter's tensors are not to be compared, or None."""
    if case["form"] in ("separate", "coalesced"):
        return None
    if case["hw"] == "trn1" and case["kv"] * case["copies"] != case["tp"]:
        return "it takes one key head a rank for granted"
    if case["hw"] == "trn2" and case["copies"] > 1:
        return "it deals key heads as on trn1, and queries as on trn2"
    return None


def convert(c, case, state, config):
    args = ["--output_dir", "none", "--hw_backend", case["hw"], "--tp_size", str(case["tp"]), "--pp_size", str(case["pp"]),
            "--virtual_pp_size", str(case["parts"]), "--kv_size_multiplier", str(case["copies"]), "--convert_from_full_state"]
    args += {"fused": ["--qkv_linear", "1", "--fuse_qkv", "1"], "split": ["--qkv_linear", "1"], "coalesced": ["--coalesce_qkv", "1"], "separate": []}[case["form"]]
    args = c.get_arg_parser().parse_args(args)
    partition = importlib.import_module("neuronx_distributed.pipeline.partition")
    cuts = partition.create_partitions(case["pp"] * case["parts"], [f"model.layers.{i}" for i in range(config["num_hidden_layers"])])
    full = {k: v.clone() for k, v in state.items()}
    if args.coalesce_qkv:
        full = c.coalesce_qkv(full, config, case["tp"])
    return [[c.convert_full_state_to_tp(full, args, t, p, 0, cuts, config) for t in range(case["tp"])] for p in range(case["pp"])]


def stages_of(layers, parts, pp):
    sizes = [layers // parts + (i >= parts - layers % parts) for i in range(parts)]
    return [i % pp for i, n in enumerate(sizes) for _ in range(n)]


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def compare(c, case, what, got, state, config):
    """The converter's tensors; and where it errs, that its ranks do not compute the model."""
    why = converter_errs(case)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            theirs = convert(c, case, state, config)
    except Exception as e:
        say(why is not None, f"{what}: NxD's converter fails ({type(e).__name__}): {why}")
        return
    if why:
        say(True, f"{what}: not compared with NxD's converter: {why}")
        return
    bad = [(p, t, n) for p in range(case["pp"]) for t in range(case["tp"])
           for n in got[p][t].keys() | theirs[p][t].keys()
           if n not in got[p][t] or n not in theirs[p][t] or not same(got[p][t][n], theirs[p][t][n])]
    n = sum(len(s) for stage in theirs for s in stage)
    say(not bad, f"{what}: all {n} tensors are those of NxD's converter {bad[:2] if bad else ''}")
    count["compared"] += 1
    count["tensors"] += n


def heads(order, case, what, got, state, config):
    """Query, key and output heads of each rank, as Optimum Neuron orders them."""
    q_heads, tp, dim = config["num_attention_heads"], case["tp"], config["hidden_size"]
    rows, bad = case["kv"] * case["copies"] // tp * nxd.HEAD, 0
    for i, stage in enumerate(stages_of(config["num_hidden_layers"], case["pp"] * case["parts"], case["pp"])):
        at = f"model.layers.{i}.self_attn."
        for t, s in enumerate(got[stage]):
            mine = order(tp, t, q_heads, case["kv"], case["copies"])
            q, k, v = torch.cat([s[n] for n in (at + "qkv_proj.weight_q", at + "qkv_proj.weight_k", at + "qkv_proj.weight_v", at + "qkv_proj.weight_qkv") if n in s]).split([q_heads // tp * nxd.HEAD, rows, rows])
            bad += not same(q, state[at + "q_proj.weight"].view(q_heads, -1, dim)[mine].reshape(-1, dim))
            bad += not same(s[at + "o_proj.weight"], state[at + "o_proj.weight"].T.reshape(q_heads, -1, dim)[mine].reshape(-1, dim).T)
            for x, name in ((k, "k_proj"), (v, "v_proj")):
                bad += not same(x, state[f"{at}{name}.weight"].repeat(case["copies"], 1).split(rows)[t])
    count["heads"] += 1
    say(bad == 0, f"{what}: heads are where Optimum Neuron has them")


def run(c, order, case):
    model = case["model"]
    config = json.load(open(model + "/config.json"))
    case["kv"] = config["num_key_value_heads"]
    layers, state = config["num_hidden_layers"], whole(model)
    what = " ".join(str(case[k]) for k in ("model", "tp", "pp", "form", "hw", "files")) + (" xser" if case["xser"] else "") + (f" x{case['parts']}" if case["parts"] > 1 else "") + (f" {case['least']} copies" if case["least"] else "")
    command = ["tern", "ckpt", "export", model, "-o", "out", "--to", "nxd", "--tensor", str(case["tp"]), "--pipeline", str(case["pp"]),
               "--interleave", str(case["parts"]), "--qkv", case["form"], "--hw", case["hw"], "--files", case["files"], "--kv-replicator", str(case["least"])] + (["--xser"] if case["xser"] else [])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        say(False, f"{what}: {done.stderr.strip()}")
        return
    case["copies"] = int(done.stderr.split("--kv_replicator ")[1])
    got = [[load_rank("out", case["files"], case["xser"], t, p) for t in range(case["tp"])] for p in range(case["pp"])]
    subprocess.run(["rm", "-r", "out"], check=True)
    ids = torch.tensor([1, 39, 7, 20, 5, 33, 12, 2, 18])
    want = expected_logits(ids, state, layers, case["kv"] * nxd.HEAD)
    logits = forward(ids, got, stages_of(layers, case["pp"] * case["parts"], case["pp"]), case["kv"] * case["copies"] // case["tp"] * nxd.HEAD)
    error = (logits - want).abs().max().item()
    worst["logits"] = max(worst["logits"], error)
    count["layouts"] += 1
    say(error < 1e-11, f"{what}: the ranks' logits are the model's ({error:.1e})")
    if c:
        compare(c, case, what, got, state, config)
    if order and case["hw"] == "trn1" and case["form"] in ("fused", "split"):
        heads(order, case, what, got, state, config)
    if case["back"]:
        back(case, what, got)


def cases():
    nxd.make("under", 16, 2, 11)                          # key heads: fewer than eight tensor ranks
    nxd.make("at", 16, 8, 11, tied=True)                  # as many
    nxd.make("over", 16, 16, 11, dtype="BF16")            # more, without grouped queries
    base = {"hw": "trn1", "files": "v2", "xser": False, "parts": 1, "least": 0, "back": False}
    for model, form in (("under", "fused"), ("at", "split"), ("over", "coalesced")):
        for tp in (1, 2, 8):
            for pp in (1, 2, 8):
                yield dict(base, model=model, tp=tp, pp=pp, form=form)
    for model, tp, pp, form, more in (
            ("at", 2, 1, "separate", {}), ("at", 8, 2, "separate", {"files": "v1"}), ("over", 8, 1, "separate", {"xser": True}),
            ("over", 8, 2, "split", {}), ("under", 2, 2, "split", {"xser": True, "files": "v1"}), ("at", 8, 2, "fused", {"xser": True}),
            ("under", 8, 2, "fused", {"xser": True, "files": "v3"}), ("over", 2, 2, "coalesced", {"parts": 2}), ("at", 8, 2, "fused", {"parts": 2}),
            ("under", 2, 1, "fused", {"hw": "trn2"}), ("under", 8, 1, "split", {"hw": "trn2"}), ("at", 2, 2, "fused", {"hw": "trn2"}),
            ("at", 8, 1, "fused", {"hw": "trn2"}), ("over", 4, 1, "split", {"hw": "trn2"}),
            # More copies of key heads than the ranks need.
            ("under", 2, 1, "fused", {"hw": "trn2", "least": 2}), ("under", 4, 2, "split", {"hw": "trn2", "least": 4}),
            ("at", 4, 1, "fused", {"hw": "trn2", "least": 2}), ("under", 2, 1, "split", {"least": 2}), ("at", 2, 2, "fused", {"least": 2})):
        yield dict(base, model=model, tp=tp, pp=pp, form=form, back=True) | more


def samples():
    """Objects of every kind and type, as tests/tools/pytorch-tool.c makes them."""
    for piece in (1, 100, 16384):
        subprocess.run(["pytorch-tool", "sample", "sample.pt", "0", str(piece)], check=True)
        got = torch.load("sample.pt", weights_only=True)
        tensors = {k: v for k, v in got.items() if isinstance(v, torch.Tensor)}
        shapes = [(), (65,), (3, 0), (2, 3, 5), (1, 2, 3, 4)]
        good = len(tensors) == 50
        for k, (name, t) in enumerate(tensors.items()):
            v = (torch.arange(t.numel()) + 7 * k) % 100
            good = good and same(t.flatten(), (v % 2 if t.dtype == torch.bool else v).to(t.dtype)) and t.shape == shapes[k % 5]
            good = good and name.startswith(str(t.dtype)[len("torch."):] + " ")
        good = good and got["größe"] == torch.Size([3, 5]) and got["dtype"] is torch.float16 and got[1] == {"large": -2 ** 63, "yes": True, "no": False}
        say(good, f"torch.load(weights_only=True) reads every type and shape, written {piece} bytes at a time")


samples()
c, order = converter(), optimum()
for case in cases():
    run(c, order, case)
say(count["layouts"] == 46, f"{count['layouts']} layouts; largest difference of a logit {worst['logits']:.1e}")
if c:
    say(count["compared"] == 30, f"{count['tensors']} tensors in {count['compared']} layouts are those of NxD's converter")
else:
    print(f"skip no source of NxD's in {nxd_source} (git clone https://github.com/aws-neuron/neuronx-distributed)")
if order:
    say(count["heads"] == 25, f"heads of {count['heads']} layouts are where Optimum Neuron has them")
else:
    print(f"skip no source of Optimum Neuron's in {optimum_source} (git clone https://github.com/huggingface/optimum-neuron)")
print("end of nxd.py")
