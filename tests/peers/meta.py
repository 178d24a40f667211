# meta.py WHAT...: with torch, and transformers that has convert_llama_weights_to_hf
#   make: folders as Meta's, and the script's result of each beside it, NAME-hf; prints the names
#   config A B: do two config.json agree in all that makes the model?
#   bins: a small model in safetensors, in pytorch_model.bin, and in several
import inspect, json, os, sys

def make():
    import torch
    from transformers.models.llama import convert_llama_weights_to_hf as script
    now = set(inspect.signature(script.write_model).parameters)
    # (The older script cannot do fewer key heads in one file.)
    cases = [("one", 1, 1, dict(norm_eps=1e-5)), ("two-by-columns", 2, 1, dict(n_kv_heads=2, norm_eps=1e-5)),
             ("all-heads", 2, 1, dict(norm_eps=1e-6)), ("wide-context", 1, 1, dict(norm_eps=1e-5, rope_theta=1e6, ffn_dim_multiplier=1.3))]
    versions = {"one": 2, "two-by-columns": 2, "all-heads": 1, "wide-context": 2}
    if "num_shards" in now:  # a script that knows Llama 3
        three = dict(n_kv_heads=2, norm_eps=1e-5, rope_theta=500000.0, ffn_dim_multiplier=1.3, multiple_of=16)
        cases = [("llama-3", 2, 0, three), ("llama-3.1", 2, 0, dict(three, use_scaled_rope=True)), ("llama-3-one", 1, 0, three)]
        versions = {"llama-3": "3", "llama-3.1": "3.1", "llama-3-one": "3"}
    for name, shards, axis, more in cases:
        torch.manual_seed(len(name))
        params = dict(dict(dim=32, n_layers=2, n_heads=4, multiple_of=16, vocab_size=-1), **more)
        dim, head, vocab = 32, 8, 32000
        kv = params.get("n_kv_heads", 4)
        ffn = script.compute_intermediate_size(dim, params.get("ffn_dim_multiplier", 1), params["multiple_of"])
        files = [{} for _ in range(shards)]
        def add(key, shape, cut):
            w = torch.randn(*shape).bfloat16()
            for f, part in zip(files, torch.chunk(w, shards, cut) if cut is not None else [w] * shards):
                f[key] = part.clone()
        add("tok_embeddings.weight", (vocab, dim), axis)
        for i in range(params["n_layers"]):
            l = "layers.%d." % i
            for key, rows, columns, cut in (("attention.wq", dim, dim, 0), ("attention.wk", kv * head, dim, 0), ("attention.wv", kv * head, dim, 0),
                                            ("attention.wo", dim, dim, 1), ("feed_forward.w1", ffn, dim, 0), ("feed_forward.w3", ffn, dim, 0),
                                            ("feed_forward.w2", dim, ffn, 1)):
                add(l + key + ".weight", (rows, columns), cut)
            add(l + "attention_norm.weight", (dim,), None)
            add(l + "ffn_norm.weight", (dim,), None)
        add("norm.weight", (dim,), None)
        add("output.weight", (vocab, dim), 0)
        files[0]["rope.freqs"] = torch.randn(4)
        os.makedirs(name)
        for i, f in enumerate(files):
            torch.save(f, "%s/consolidated.%02d.pth" % (name, i))
        json.dump(params, open(name + "/params.json", "w"))
        if "num_shards" in now:
            options = dict(num_shards=shards, vocab_size=vocab, llama_version=versions[name], model_size=None)
            if "special_tokens" in now:
                options["special_tokens"] = None
            script.write_model(name + "-hf", name, **{k: v for k, v in options.items() if k in now})
        else:
            script.NUM_SHARDS["7B"] = shards
            script.write_model(name + "-hf", name, "7B", llama_version=versions[name])
        print("made", name)

def config(ours, theirs):
    a, b = json.load(open(ours + "/config.json")), json.load(open(theirs + "/config.json"))
    keys = ["hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "vocab_size",
            "rope_theta", "max_position_embeddings", "bos_token_id", "eos_token_id", "tie_word_embeddings", "rope_scaling"]
    if "3.1" in ours and b.get("rope_scaling") is None:  # the script leaves it out; as Meta's own Hugging Face folder has it:
        b["rope_scaling"] = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
                             "rope_type": "llama3"}
    for k in keys:
        if a.get(k) != b.get(k):
            print(k, "is", a.get(k), "and", b.get(k))

def bins():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    for tied in False, True:
        torch.manual_seed(3)
        m = LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                                         vocab_size=300, tie_word_embeddings=tied)).bfloat16()
        name = "tied" if tied else "plain"
        m.save_pretrained(name + "-st", safe_serialization=True)
        m.save_pretrained(name + "-bin", safe_serialization=False)
        m.save_pretrained(name + "-bins", safe_serialization=False, max_shard_size="30KB")
        assert os.path.exists(name + "-bins/pytorch_model.bin.index.json")

{"make": make, "config": config, "bins": bins}[sys.argv[1]](*sys.argv[2:])
