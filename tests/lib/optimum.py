"""Adapters (LoRA) as Optimum Neuron saves them from its ranks, and the same as PEFT has them.

make(DIR, heads, kv_heads, layers, tp, pp, copies, form, adapter="default", xser=False, rank=2, seed=1,
     modules="qkv o gate_up down", old=False): DIR/adapter_ADAPTER (old: DIR, as releases before 0.2, whose
     metadata is a pickle, or "json"), and the adapters of the whole model in DIR-peft.  form: fused, split (grouped queries), coalesced, separate
"""
import json, os, random, struct

import nxd

TOP = "base_model.model."
GROUPS = {"qkv": ("self_attn", ["q_proj", "k_proj", "v_proj"]), "o": ("self_attn", ["o_proj"]),
          "gate_up": ("mlp", ["gate_proj", "up_proj"]), "down": ("mlp", ["down_proj"])}


class Matrix:
    """Rows of floats, kept as bytes of four."""
    def __init__(self, rows):
        self.rows = rows

    @staticmethod
    def random(rng, n, m):
        return Matrix([[struct.pack("<f", rng.uniform(-1, 1)) for _ in range(m)] for _ in range(n)])

    def take(self, rows):
        return Matrix([self.rows[i] for i in rows])

    def columns(self, columns):
        return Matrix([[r[i] for i in columns] for r in self.rows])

    def __add__(self, other):
        return Matrix(self.rows + other.rows)

    def tensor(self):
        return "F32", (len(self.rows), len(self.rows[0])), b"".join(b"".join(r) for r in self.rows)


def heads_of(t, tp, heads, kv_heads, copies):
    """Query heads of a tensor rank in its order, and its key heads."""
    slots, q, k = kv_heads * copies // tp, [], []
    for row in range(t * slots, (t + 1) * slots):
        head, copy = row % kv_heads, row // kv_heads
        each = heads // kv_heads // copies
        k.append(head)
        q += [head * (heads // kv_heads) + copy * each + i for i in range(each)]
    return q, k


def rows_of(heads):
    return [h * nxd.HEAD + i for h in heads for i in range(nxd.HEAD)]


def part(n, t, tp):
    return range(n // tp * t, n // tp * (t + 1))


class Folder:
    def __init__(self, heads, kv_heads, layers, tp, pp, copies, form, rank, seed, modules):
        self.__dict__.update(locals())
        self.dim, self.rng, self.whole = heads * nxd.HEAD, random.Random(seed), {}
        self.ins = {"o_proj": self.dim, "down_proj": nxd.FFN}
        self.outs = {"q_proj": self.dim, "k_proj": kv_heads * nxd.HEAD, "v_proj": kv_heads * nxd.HEAD,
                     "gate_proj": nxd.FFN, "up_proj": nxd.FFN}
        for i in range(layers):
            for group in modules.split():
                place, names = GROUPS[group]
                a = None
                for name in names:
                    if a is None or not self.fused(group):
                        a = Matrix.random(self.rng, rank, self.ins.get(name, self.dim))
                    at = f"{TOP}model.layers.{i}.{place}.{name}"
                    self.whole[at + ".lora_A"] = a
                    self.whole[at + ".lora_B"] = Matrix.random(self.rng, self.outs.get(name, self.dim), rank)

    def fused(self, group):
        """What takes the group apart."""
        if group == "gate_up" and self.form != "old":
            return "gate_up_proj"
        return "qkv_proj" if group == "qkv" and self.form not in ("separate", "old") else None

    def layer(self, i, t):
        """(parameter, tensor, where it is cut) of tensor rank t."""
        q, k = heads_of(t, self.tp, self.heads, self.kv_heads, self.copies)
        grouped = self.form in ("fused", "split")
        for group in self.modules.split():
            place, names = GROUPS[group]
            at = f"{TOP}model.layers.{i}.{place}."
            a, b = ([self.whole[f"{at}{n}.lora_{x}"] for n in names] for x in "AB")
            fused = self.fused(group)
            if group in ("o", "down"):
                mine = rows_of(q) if group == "o" and grouped else part(len(a[0].rows[0]), t, self.tp)
                yield f"{at}{names[0]}.lora_A", "weight", a[0].columns(mine), 1
                yield f"{at}{names[0]}.lora_B", "weight", b[0], None
                continue
            mine = [x.take(part(len(x.rows), t, self.tp)) for x in b]
            if group == "qkv" and grouped:
                mine = [b[0].take(rows_of(q)), b[1].take(rows_of(k)), b[2].take(rows_of(k))]
            if not fused:
                for n, x, y in zip(names, a, mine):
                    yield f"{at}{n}.lora_A", "weight", x, None
                    yield f"{at}{n}.lora_B", "weight", y, 0
                continue
            yield f"{at}{fused}.lora_A", "weight", a[0], None
            if group == "qkv" and self.form == "split":
                for x, y in zip("qkv", mine):
                    yield f"{at}{fused}.lora_B", f"weight_{x}", y, 0
            else:
                # NxD marks no weight_qkv as cut.
                grouped_here = group == "qkv" and self.form == "fused"
                yield f"{at}{fused}.lora_B", "weight_qkv" if grouped_here else "weight", sum(mine[1:], mine[0]), None if grouped_here else 0

    def specs(self, i):
        fused = lambda name, names, rows: ["FusedLinearsSpec", {
            "fused_linear_name": name, "linear_names": names, "bias": False, "fuse_axis": 0,
            "original_dims": [rows] * len(names), "tp_size": self.tp, "peft_type": "lora"}]
        attention = []
        if self.form in ("fused", "split"):
            attention = [["GQAQKVColumnParallelLinearSpec", {
                "gqa_qkv_projection_name": "qkv_proj", "query_projection_name": "q_proj", "key_projection_name": "k_proj",
                "value_projection_name": "v_proj", "output_projection_name": "o_proj", "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads, "kv_size_multiplier": self.copies,
                "q_output_size_per_partition": self.dim // self.tp,
                "kv_output_size_per_partition": self.kv_heads * self.copies * nxd.HEAD // self.tp,
                "fuse_qkv": self.form == "fused", "bias": False, "tp_size": self.tp, "peft_type": "lora"}]]
        elif self.form == "coalesced":
            attention = [fused("qkv_proj", GROUPS["qkv"][1], self.dim)]
        at = f"{TOP}model.layers.{i}."
        return [{"module_fully_qualified_name": at + "self_attn", "specs": attention},
                {"module_fully_qualified_name": at + "mlp", "specs": [fused("gate_up_proj", GROUPS["gate_up"][1], nxd.FFN)]}]

    def metadata(self, layers, adapters):
        parameters, specs = {TOP + "model.norm.weight": {"tensor_model_parallel": False}}, []
        for i in layers:
            parameters[f"{TOP}model.layers.{i}.self_attn.o_proj.base_layer.weight"] = {
                "tensor_model_parallel": True, "partition_dim": 1, "partition_stride": 1, "num_partitions": self.tp}
            for at, end, _, axis in self.layer(i, 0):
                for name in adapters:
                    parameters[f"{at}.{name}.{end}"] = {"tensor_model_parallel": False} if axis is None else {
                        "tensor_model_parallel": True, "partition_dim": axis, "partition_stride": 1, "num_partitions": self.tp}
            specs += self.specs(i)
        return {"parameters": parameters, "model_weight_transformation_specs": specs}

    def old_metadata(self, layers):
        kinds = {f"{at}.{end}": {"kind": "tied", "partition_dim": None} if axis is None else {"kind": "sharded", "partition_dim": axis}
                 for i in layers for at, end, _, axis in self.layer(i, 0)}
        kinds[TOP + "model.norm.weight"] = {"kind": "tied", "partition_dim": None}
        return {"sharded_metadata": kinds,
                "gqa_qkv_metadata": dict.fromkeys(("num_attention_heads", "num_key_value_heads", "kv_size_multiplier", "fuse_qkv"))
                | {"original_names_to_gqa_qkv_names": {}, "output_projections_names": []}}

    def config(self, fused=False):
        targets = []
        for group in self.modules.split():
            targets += [self.fused(group)] if fused and self.fused(group) else GROUPS[group][1]
        return {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "base", "r": self.rank, "lora_alpha": 5,
                "lora_dropout": 0.0, "target_modules": targets, "bias": "none", "inference_mode": True, "init_lora_weights": True,
                "use_rslora": False, "use_dora": False, "rank_pattern": {}, "alpha_pattern": {}}


def save_rank(path, state, xser):
    if not xser:
        return nxd.save(path, state)
    for i, tensor in enumerate(state.values()):
        nxd.save(f"{path}.tensors/tensor_{i}.pt", tensor)
    nxd.save(path, {name: nxd.TensorReference(i) for i, name in enumerate(state)})
    nxd.save(path + ".info.pt", {i: {"shape": t[1]} for i, t in enumerate(state.values())})


def make(path, heads, kv_heads, layers, tp, pp, copies, form, adapter="default", xser=False, rank=2, seed=1,
         modules="qkv o gate_up down", old=False, fused_config=False):
    f = Folder(heads, kv_heads, layers, tp, pp, copies, "old" if old else form, rank, seed, modules)
    top = path if old else f"{path}/adapter_{adapter}"
    at = f"{top}/adapter_shards"
    os.makedirs(at)
    stages = [[i for i in range(layers) if i * pp // layers == p] for p in range(pp)]
    for p, own in enumerate(stages):
        meta = f.old_metadata(own) if old else f.metadata(own, [adapter, "another"])
        if old and old != "json":
            nxd.save(f"{at}/mp_metadata_pp_rank_{p}.pt", meta)
        else:
            json.dump(meta, open(f"{at}/mp_metadata_pp_rank_{p}.json", "w"), indent=4)
        for t in range(tp):
            # A pipeline rank's model has all names; parameters that are not its own are not trained.
            state = {f"{name}.{end}": m.tensor() if i in own else Matrix([[b"\x55\x55\x55\x55"] * len(m.rows[0])] * len(m.rows)).tensor()
                     for i in range(layers) for name, end, m, _ in f.layer(i, t)}
            save_rank(f"{at}/model/dp_rank_00_tp_rank_{t:02d}_pp_rank_{p:02d}.pt", state, xser)
    for name in ("checkpoint", "done"):
        open(f"{at}/{name}", "w").write("1")
    json.dump(f.config(fused_config), open(f"{top}/adapter_config.json", "w"))
    os.makedirs(f"{path}-peft")
    json.dump(f.config(), open(f"{path}-peft/adapter_config.json", "w"))
    nxd.write(f"{path}-peft/adapter_model.safetensors", {f"{n}.weight": m.tensor() for n, m in f.whole.items()})
