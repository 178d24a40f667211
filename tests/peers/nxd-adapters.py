"""nxd-adapters.py ROOT OPTIMUM: Optimum Neuron's own transformations beside ours.

What tests/lib/optimum.py makes are folders as Optimum Neuron (the folder OPTIMUM, with NxD stubbed)
makes them: its _lora_adapt_state_dict takes PEFT's adapters to each rank, and its to_original_weights
takes the ranks' tensors back.  `tern ckpt export --from nxd` gives the arrays of the latter.
"""
import contextlib, importlib, io, json, os, subprocess, sys, types

root, source = sys.argv[1:3]
sys.path.insert(0, root + "/tests/lib")
import nxd, optimum
import torch

rank = {"tp": 0, "of": 1}


def say(good, what):
    print(("" if good else "not ") + "ok", what, flush=True)


def module(name, **members):
    m = sys.modules[name] = types.ModuleType(name)
    m.__dict__.update(members)
    return m


def transformations():
    training = source + "/optimum/neuron/models/training"
    if not os.path.exists(training + "/transformations_utils.py"):
        return None
    for name, path in (("optimum", ""), ("optimum.neuron", "/neuron"), ("optimum.neuron.models", "/neuron/models"),
                       ("optimum.neuron.models.training", "/neuron/models/training")):
        module(name, __path__=[source + "/optimum" + path])
    quiet = types.SimpleNamespace(warning=lambda *a: None)
    module("optimum.utils", logging=types.SimpleNamespace(get_logger=lambda: quiet))
    module("optimum.neuron.utils", __path__=[])
    module("optimum.neuron.utils.import_utils", is_peft_available=lambda: False)
    module("neuronx_distributed"), module("neuronx_distributed.parallel_layers")
    module("neuronx_distributed.parallel_layers.layers", create_local_weight=None)
    module("neuronx_distributed.parallel_layers.parallel_state", get_tensor_model_parallel_rank=lambda: rank["tp"],
           get_tensor_model_parallel_size=lambda: rank["of"])
    return importlib.import_module("optimum.neuron.models.training.transformations_utils")


def load(path, xser):
    tensor = lambda t: torch.frombuffer(bytearray(t[2]), dtype=torch.float32).reshape(t[1])
    state = nxd.load(path)
    return {k: tensor(nxd.load(f"{path}.tensors/tensor_{t.tid}.pt") if xser else t) for k, t in state.items()}


def arrays(path):
    return {k: torch.frombuffer(bytearray(t[2]), dtype=torch.float32).reshape(t[1]) for k, t in nxd.source(path, "adapter_model.safetensors").items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def adapted(u, meta, want, t, tp):
    """PEFT's adapters on tensor rank t, by the transformations; what they do not touch is left out."""
    state, before = dict(want), dict(want)
    rank.update(tp=t, of=tp)
    for m in meta["model_weight_transformation_specs"]:
        for spec in u.ModelWeightTransformationSpecs.from_metadata(json.loads(json.dumps(m))):
            at = m["module_fully_qualified_name"]
            first = getattr(spec, "linear_names", None) or [spec.query_projection_name]
            if f"{at}.{first[0]}.lora_A.weight" in state:
                state = spec._lora_adapt_state_dict(at, {}, state, {})
    # Its name for the B of fused grouped queries is another one than the module's parameter has.
    rename = lambda k: k + "_qkv" if k.endswith("qkv_proj.lora_B.weight") and any(s[0].startswith("GQA") and s[1]["fuse_qkv"] for m in meta["model_weight_transformation_specs"] for s in m["specs"]) else k
    return {rename(k): v for k, v in state.items() if before.get(k) is not v}


def run(u, name, tp, pp, adapter, xser, **more):
    optimum.make(name, more.pop("heads"), more.pop("keys"), more.pop("layers"), tp, pp, more.pop("copies"), more.pop("form"), adapter=adapter, xser=xser, **more)
    at, theirs, good, n = f"{name}/adapter_{adapter}/adapter_shards", {}, True, 0
    want = arrays(name + "-peft")
    for p in range(pp):
        meta = json.load(open(f"{at}/mp_metadata_pp_rank_{p}.json"))
        states = [load(f"{at}/model/dp_rank_00_tp_rank_{t:02d}_pp_rank_{p:02d}.pt", xser) for t in range(tp)]
        own = lambda k: u.remove_adapter_name(k)
        here = {own(k) for k in meta["parameters"]}
        part = {k: v for k, v in want.items() if any(k.startswith(m["module_fully_qualified_name"] + ".") for m in meta["model_weight_transformation_specs"])}
        for t in range(tp):
            for k, v in adapted(u, meta, part, t, tp).items():
                # It takes the mean of q's, k's and v's A, which are one.
                near = torch.allclose if ".lora_A." in k else torch.equal
                good, n = good and k in states[t] and states[t][k].shape == v.shape and near(states[t][k], v), n + 1
                if not good:
                    say(False, f"{name}: {k} on rank {t}"); return
        specs = [u.ModelWeightTransformationSpecs.from_metadata(m) for m in json.loads(json.dumps(meta["model_weight_transformation_specs"]))]
        # It ends where a module without adapters has a transformation.
        for of in specs:
            of.specs = [s for s in of.specs if any(k.startswith(of.module_fully_qualified_name + "." + getattr(s, "fused_linear_name", "") + ".lora") or
                                                   (hasattr(s, "gqa_qkv_projection_name") and k.startswith(of.module_fully_qualified_name)) for k in here)]
        for of in specs:
            for s in of.specs:
                s.peft_type = "lora"
        theirs.update(u.to_original_weights(specs, {k: [s[k] for s in states] for k in states[0]}, meta["parameters"], adapter_name=adapter))
    say(good and n > 0, f"{name}: {n} tensors are on the ranks where Optimum Neuron's transformations put them")
    done = subprocess.run(["tern", "ckpt", "export", name, "-o", name + "-out", "--from", "nxd"], capture_output=True, text=True)
    say(done.returncode == 0, f"{name}: exported {done.stderr.strip() if done.returncode else ''}")
    if done.returncode == 0:
        ours = arrays(name + "-out")
        say(same(ours, theirs), f"{name}: {len(ours)} arrays are those of Optimum Neuron's to_original_weights {sorted(ours.keys() ^ theirs.keys())[:3]}")
        say(same(ours, want), f"{name}: and those that PEFT had")


u = transformations()
if u:
    gqa = dict(heads=8, keys=2, layers=4)
    run(u, "b1", 1, 1, "default", False, **gqa, copies=1, form="fused")
    run(u, "b2", 4, 2, "default", True, **gqa, copies=2, form="fused")
    run(u, "b3", 8, 1, "chat", False, **gqa, copies=4, form="split", rank=3)
    run(u, "b4", 2, 2, "default", True, **gqa, copies=2, form="split")
    run(u, "b5", 2, 1, "default", False, **gqa, copies=2, form="fused", modules="qkv o")
    run(u, "b6", 2, 2, "default", False, **gqa, copies=1, form="separate")
    run(u, "b7", 4, 1, "default", True, heads=4, keys=4, layers=3, copies=1, form="coalesced")
    run(u, "b8", 4, 2, "default", False, heads=16, keys=8, layers=2, copies=2, form="fused")
    # Releases before 0.2: their metadata as torch.save writes it.
    optimum.make("old", 8, 2, 4, 2, 1, 1, "separate", old=True)
    meta = nxd.load("old/adapter_shards/mp_metadata_pp_rank_0.pt")
    meta["gqa_qkv_metadata"]["output_projections_names"] = set()
    torch.save(meta, "old/adapter_shards/mp_metadata_pp_rank_0.pt")
    done = subprocess.run(["tern", "ckpt", "export", "old", "-o", "old-out", "--from", "nxd"], capture_output=True, text=True)
    say(done.returncode == 0 and same(arrays("old-out"), arrays("old-peft")), f"old: metadata that torch.save wrote is read {done.stderr.strip() if done.returncode else ''}")
else:
    print(f"skip no source of Optimum Neuron's in {source} (git clone https://github.com/huggingface/optimum-neuron)")
print("end of nxd-adapters.py")
