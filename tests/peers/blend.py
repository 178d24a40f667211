"""Blends beside mergekit's: blend.py make; blend.py compare NAME (blends made by tern lie in NAME.tern)."""
import hashlib, json, os, sys
import numpy, torch
from safetensors.torch import load_file, save_file

BLENDS = {  # name: mergekit's config, by folder; the same as blend.sh asks of tern
    "linear": dict(merge_method="linear", models=[("one", dict(weight=0.7)), ("two", dict(weight=0.45)), ("base", dict(weight=-0.1))]),
    "sum": dict(merge_method="linear", models=[("one", dict(weight=0.7)), ("two", dict(weight=0.3))], parameters=dict(normalize=False)),
    "slerp": dict(merge_method="slerp", models=[("one", {}), ("two", {})], base_model="one", parameters=dict(t=0.35)),
    "apart": dict(merge_method="slerp", models=[("one", {}), ("far", {})], base_model="one", parameters=dict(t=0.35)),
    "ties": dict(merge_method="ties", models=[("one", dict(weight=1.0, density=0.3)), ("two", dict(weight=0.6, density=0.55)), ("three", dict(weight=0.8, density=1.0))]),
    "ties-sum": dict(merge_method="ties", models=[("one", dict(weight=0.5, density=0.2)), ("two", dict(weight=0.5, density=0.2))], parameters={"normalize": False, "lambda": 0.7, "int8_mask": True}),
    "dare_linear": dict(merge_method="dare_linear", models=[("one", dict(weight=0.6, density=0.4)), ("two", dict(weight=0.5, density=0.7))]),
    "dare_ties": dict(merge_method="dare_ties", models=[("one", dict(weight=0.6, density=0.4)), ("two", dict(weight=0.5, density=0.7)), ("three", dict(weight=1.0, density=0.9))], parameters={"normalize": True, "lambda": 1.2}),
    "dare_plain": dict(merge_method="dare_linear", models=[("one", dict(weight=0.6, density=0.4)), ("two", dict(weight=0.5, density=0.7))], parameters=dict(rescale=False, normalize=True)),
}
SEED = 11


def shapes(tied):
    hidden, ffn, heads, kv, dim, vocab, layers = 64, 96, 4, 2, 16, 160, 2
    yield "model.embed_tokens.weight", (vocab, hidden)
    for i in range(layers):
        p = f"model.layers.{i}."
        yield from ((p + f"self_attn.{n}_proj.weight", s) for n, s in
                    dict(q=(heads * dim, hidden), k=(kv * dim, hidden), v=(kv * dim, hidden), o=(hidden, heads * dim)).items())
        yield from ((p + f"mlp.{n}_proj.weight", s) for n, s in dict(gate=(ffn, hidden), up=(ffn, hidden), down=(hidden, ffn)).items())
        yield from ((p + f"{n}_layernorm.weight", (hidden,)) for n in ("input", "post_attention"))
    yield "model.norm.weight", (hidden,)
    if not tied:
        yield "lm_head.weight", (vocab, hidden)


def make():
    for tied in (False, True):
        g = torch.Generator().manual_seed(3)
        normal = lambda s, by: by * torch.randn(s, generator=g)
        base = {n: normal(s, 0.3) + (1 if len(s) == 1 else 0) for n, s in shapes(tied)}
        for model, by in dict(base=0, one=0.02, two=0.05, three=0.03, far=None).items():
            w = {n: normal(x.shape, 0.3) if by is None else x + normal(x.shape, by) if by else x for n, x in base.items()}
            if model == "two":  # another type than the others'
                w = {n: x.to(torch.bfloat16) for n, x in w.items()}
            folder = ("tied/" if tied else "") + model
            os.makedirs(folder)
            save_file(w, folder + "/model.safetensors", {"format": "pt"})
            json.dump(dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                           num_key_value_heads=2, vocab_size=160, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
                           tie_word_embeddings=tied, bos_token_id=1, eos_token_id=2, torch_dtype="float32"), open(folder + "/config.json", "w"))


def mix(z):
    z = z + numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


def mask(tensor, model, like, density):
    """What stays, as tern's page says: by the seed, the tensor's name, the model's place and the element."""
    stream = numpy.uint64(int.from_bytes(hashlib.sha256(f"{tensor} {model}".encode()).digest()[:8], "big"))
    with numpy.errstate(over="ignore"):
        z = mix(mix(mix(numpy.array([SEED], numpy.uint64)) ^ stream) ^ numpy.arange(like.numel(), dtype=numpy.uint64))
    unit = (z >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53
    return torch.from_numpy((unit < density).astype(numpy.float32)).reshape(like.shape)


def merge(name, out):
    from mergekit.config import MergeConfiguration
    from mergekit.merge import MergeOptions, run_merge
    from mergekit.merge_methods import generalized_task_arithmetic as gta
    from mergekit import sparsify

    spec = dict(BLENDS[name])
    config = dict(spec, dtype="float32", models=[dict(model=m, parameters=p) for m, p in spec["models"]])
    if not spec["merge_method"] in ("linear", "slerp"):
        config["base_model"] = "base"
    at = {}
    kept = {m: [0, 0] for m, _ in spec["models"]}
    whole, drawn = gta.GeneralizedTaskArithmeticMerge.merge_group, torch.bernoulli

    def merge_group(self, group, /, **parameters):
        at["tensor"], at["model"] = group.metadata.name, 0
        return whole(self, group, **parameters)

    def bernoulli(p, *more, **options):
        model, density = spec["models"][at["model"]][0], spec["models"][at["model"]][1]["density"]
        m = mask(at["tensor"], at["model"], p, density)
        kept[model][0] += int(m.sum())
        kept[model][1] += m.numel()
        at["model"] += 1
        return m.to(p.dtype)

    gta.GeneralizedTaskArithmeticMerge.merge_group, sparsify.torch.bernoulli = merge_group, bernoulli
    run_merge(MergeConfiguration.model_validate(config), out, MergeOptions(copy_tokenizer=False, write_model_card=False, quiet=True))
    gta.GeneralizedTaskArithmeticMerge.merge_group, sparsify.torch.bernoulli = whole, drawn
    for m, p in spec["models"]:
        if kept[m][1]:
            n, d = kept[m][1], p["density"]
            off = abs(kept[m][0] - n * d) / (n * d * (1 - d)) ** 0.5
            print(f"kept {name} {m} {kept[m][0]} of {n} at {d}: {off:.2f} sigma", "within" if off < 3 else "beyond")


def compare(name):
    merge(name, name + ".mergekit")
    theirs, ours = {}, load_file(name + ".tern/model.safetensors")
    for file in os.listdir(name + ".mergekit"):
        if file.endswith(".safetensors"):
            theirs.update(load_file(f"{name}.mergekit/{file}"))
    if set(theirs) != set(ours):
        print("names", name, sorted(set(theirs) ^ set(ours)))
    worst = max((float((theirs[k].double() - ours[k].double()).abs().max()), k) for k in ours)
    print("difference", name, f"{worst[0]:.3g}", worst[1], "equal" if set(theirs) == set(ours) and worst[0] <= 1e-6 else "differs")


if sys.argv[1] == "make":
    make()
else:
    compare(sys.argv[2])
