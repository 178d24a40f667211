# hf.py make | compare: with torch and transformers 5
import json, os, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LIMIT = "20KB"  # of a file: the embedding and each MLP matrix are larger in float32
MODELS = {
    "plain": (torch.float32, {"tie_word_embeddings": False}),
    "tied": (torch.bfloat16, {"tie_word_embeddings": True}),
    "stretched": (torch.float16, {"tie_word_embeddings": False, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
}
TYPES = {"as-is": None, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
IDS = torch.arange(2 * 24).reshape(2, 24) * 7 % 300

def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(["the cat sat on the mat, and the dog did not"] * 4, trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>",
                                   chat_template="{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}")

def make():
    for name, (dtype, more) in MODELS.items():
        torch.manual_seed(5)
        m = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                                         vocab_size=300, initializer_range=0.2, bos_token_id=0, eos_token_id=1, **more)).to(dtype)
        m.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=[1, 2], do_sample=True, temperature=0.6, top_p=0.9)
        m.save_pretrained(name)
        m.save_pretrained(name + "-theirs", max_shard_size=LIMIT)
        tokenizer().save_pretrained(name)
        assert os.path.exists(name + "-theirs/model.safetensors.index.json")

def say(good, what):
    print(("" if good else "not ") + "ok - " + what)

def logits(m):
    with torch.no_grad():
        return m(IDS).logits.float()

def compare():
    worst = 0.0
    for name, (dtype, _) in MODELS.items():
        source = AutoModelForCausalLM.from_pretrained(name, dtype="auto")
        for word, wanted in TYPES.items():
            wanted, out = wanted or dtype, f"{name}-{word}"
            ours = AutoModelForCausalLM.from_pretrained(out, dtype="auto")
            say(ours.dtype == wanted and all(p.dtype == wanted for p in ours.parameters()), f"{out}: transformers loads it as {wanted}")
            same = AutoModelForCausalLM.from_pretrained(name, dtype=wanted)
            apart = (logits(ours) - logits(same)).abs().max().item()
            worst = max(worst, apart)
            mine, theirs = ours.state_dict(), same.state_dict()
            say(mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine), f"{out}: every weight is the source's, rounded once")
            say(apart == 0, f"{out}: the largest difference of a logit is {apart:.1e}")
            say(ours.generation_config.to_dict() == source.generation_config.to_dict(), f"{out}: generation_config.json came along")
            text = "the dog sat on a mat"
            a, b = AutoTokenizer.from_pretrained(name), AutoTokenizer.from_pretrained(out)
            say(a(text).input_ids == b(text).input_ids and len(a(text).input_ids) > 5, f"{out}: the tokenizer came along")
            say(a.chat_template == b.chat_template and a.chat_template, f"{out}: the chat template came along")
        index = "/model.safetensors.index.json"
        ours, theirs = open(name + "-as-is" + index).read(), open(name + "-theirs" + index).read()
        say(ours == theirs, f"{name}: the index of files of {LIMIT} is transformers', byte for byte")
        say(len(set(json.loads(ours)["weight_map"].values())) > 5, f"{name}: there are several files")
    print(f"# largest difference of a logit {worst:.1e}")

{"make": make, "compare": compare}[sys.argv[1]]()
