"""tern generate beside transformers: `make`, `compare MODEL`, `text FOLDER`, `bench THREADS` (see generate.sh)."""
import inspect
import json
import os
import random
import shutil
import subprocess
import sys
import time

import torch
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

PROMPTS, TOKENS, VOCAB, GAP = 50, 256, 320, 1e-4
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
# Of each: its config, the ids that end a text, the type of its weights.
MODELS = {
    "untied": (dict(), [7, 11, 13], "float32"),
    "tied": (dict(tie_word_embeddings=True, num_key_value_heads=4), 5, "float32"),
    "stretched": (dict(rope_scaling=LLAMA3, rope_theta=500000.0, num_key_value_heads=1, head_dim=32), [3, 9], "float32"),
    "half": (dict(), [7], "bfloat16"),
    "f16": (dict(), [7], "float16"),
}


def make():
    for seed, (name, (more, eos, dtype)) in enumerate(MODELS.items()):
        torch.manual_seed(seed)
        config = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
                      num_key_value_heads=2, vocab_size=VOCAB, max_position_embeddings=1024, initializer_range=0.15,
                      tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
        model = LlamaForCausalLM(LlamaConfig(**{**config, **more}))
        model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=eos, pad_token_id=0)
        model.to(getattr(torch, dtype)).save_pretrained(name)
    random.seed(1)
    with open("prompts", "w") as f:
        for _ in range(PROMPTS):
            # Some are longer than a piece of tern's.
            n = random.choice([1, 2, 7, 8, 63, 64, 65, 600, random.randrange(1, 300)])
            f.write(" ".join(str(random.randrange(20, VOCAB)) for _ in range(n)) + "\n")


def tern(model, *more):
    done = subprocess.run(["tern", "generate", model, "--json", "--logprobs", "--ids", *more], capture_output=True,
                          text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def ok(good, name):
    print(("ok" if good else "not ok") + " - " + name, flush=True)


def compare(name):
    model = LlamaForCausalLM.from_pretrained(name, dtype=torch.float32).eval()
    answers, _ = tern(name, "--prompt-ids", "prompts", "-n", str(TOKENS), "--batch", "7")
    prompts = [[int(w) for w in line.split()] for line in open("prompts")]
    steps = near = ended = 0
    worst, wrong = 0.0, []
    for i, (prompt, answer) in enumerate(zip(prompts, answers)):
        with torch.no_grad():
            out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                                 do_sample=False, max_new_tokens=TOKENS, return_dict_in_generate=True,
                                 output_logits=True)
        ids, got = out.sequences[0, len(prompt):].tolist(), answer["ids"]
        logits = torch.stack(out.logits)[:, 0]
        top = logits.topk(2).values
        gaps = (top[:, 0] - top[:, 1]).tolist()
        first = next((k for k, gap in enumerate(gaps) if gap < GAP), len(ids))
        near += first < len(ids)
        steps += first
        same = ids[:first] == got[:first] and (first < len(ids) or len(ids) == len(got))
        if not same:
            wrong.append(i)
        n = min(first, len(ids))
        mine = torch.tensor(answer["logprobs"][:n])
        theirs = logits.log_softmax(-1)[range(n), ids[:n]]
        if same and n:
            worst = max(worst, (mine - theirs).abs().max().item())
        ended += same and answer["end"] == "eos"
    ok(len(answers) == PROMPTS and not wrong,
       f"{name}: transformers' greedy tokens of {PROMPTS} prompts ({steps} steps; {near} prompts are compared up to a "
       f"step whose first two logits are nearer than {GAP:g})" + (f"; other ones: {wrong}" if wrong else ""))
    ok(ended > 0, f"{name}: {ended} answers end at an EOS of generation_config.json, where transformers ends")
    ok(worst < 1e-4, f"{name}: logarithms of the tokens' probabilities differ by {worst:.2g} at most")


def text(folder):
    """Prompts as ids, and generated ids as text, by Llama 2's tokenizer."""
    config = LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                         vocab_size=32000, max_position_embeddings=1024)
    LlamaForCausalLM(config).save_pretrained("text")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(folder, name), "text")
    tokenizer = AutoTokenizer.from_pretrained("text")
    # (A space at the front is dropped by transformers alone, not by the tokenizers library on the same file.)
    texts = ["Hello there", "two  spaces\nand a line", "Zażółć gęślą jaźń 日本語 😀"]
    how = [x for t in texts for x in ("-p", t)]
    answers, _ = tern("text", *how, "-n", "300", "--temperature", "1", "--seed", "5")
    ok([a["prompt_ids"] for a in answers] == [tokenizer(t).input_ids for t in texts],
       "prompts have the ids of transformers' tokenizer, BOS among them")
    chat = "[INST] <<SYS>>\nBe kind\n<</SYS>>\n\nWhy? [/INST]"
    ok(tern("text", "--chat", "Why?", "--system", "Be kind", "-n", "1")[0][0]["prompt_ids"] == tokenizer(chat).input_ids,
       "a chat has the ids of its text")
    done = subprocess.run(["tern", "generate", "text", *how, "-n", "300", "--temperature", "1", "--seed", "5", "--json"],
                          capture_output=True, text=True, check=True)
    got = [json.loads(line)["text"] for line in done.stdout.splitlines()]
    whole = [tokenizer.decode(a["prompt_ids"] + a["ids"], skip_special_tokens=True, clean_up_tokenization_spaces=False)
             for a in answers]
    ok(all(w == t + g for w, t, g in zip(whole, texts, got)), "text is what transformers decodes behind the prompt")


# Around 150 million parameters.
SIZE = dict(hidden_size=768, intermediate_size=2048, num_hidden_layers=16, num_attention_heads=12,
            num_key_value_heads=4, vocab_size=32000, max_position_embeddings=2048, tie_word_embeddings=False)


def bench(threads, read=512, made=64, turns=3):
    torch.set_num_threads(threads)
    model = LlamaForCausalLM(LlamaConfig(**SIZE)).eval()
    model.save_pretrained("bench")
    params = sum(p.numel() for p in model.parameters())
    weights = 4 * (params - model.model.embed_tokens.weight.numel())  # read for each token
    random.seed(2)
    prompt = [random.randrange(10, 32000) for _ in range(read)]
    with open("bench-prompt", "w") as f:
        f.write(" ".join(map(str, prompt)) + "\n")
    # transformers 5.4x renames it.
    cache = "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"
    ours, theirs = [], []
    for _ in range(turns):
        _, said = tern("bench", "--prompt-ids", "bench-prompt", "-n", str(made + 1), "--ignore-eos", "--threads",
                       str(threads))
        line = said.splitlines()[-1]
        ours.append([float(part.split(" a second")[0].split()[-1]) for part in line.split(";")])
        with torch.no_grad():
            ids = torch.tensor([prompt])
            begin = time.perf_counter()
            out = model(ids, use_cache=True, logits_to_keep=1)
            middle = time.perf_counter()
            for _ in range(made):
                out = model(out.logits[:, -1].argmax(-1, keepdim=True), use_cache=True,
                            **{cache: out.past_key_values})
            end = time.perf_counter()
        theirs.append([read / (middle - begin), made / (end - middle)])
    best = [[max(r[k] for r in side) for k in range(2)] for side in (ours, theirs)]
    x = torch.zeros(64 << 20)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        x.sum()
        times.append(time.perf_counter() - begin)
    rate = x.numel() * 4 / min(times)
    print(f"# {params / 1e6:.0f} M parameters, {threads} threads, best of {turns} turns: reading {read} tokens: tern "
          f"{best[0][0]:.0f} a second, transformers {best[1][0]:.0f}; making {made}: tern {best[0][1]:.1f}, "
          f"transformers {best[1][1]:.1f}")
    print(f"# memory is read at {rate / 1e9:.1f} GB/s: at most {rate / weights:.1f} tokens a second")
    print(f"bound {best[1][0] / best[0][0]:.3f} 1.25 reading a prompt, transformers' rate in tern's")
    print(f"bound {best[1][1] / best[0][1]:.3f} 1 making tokens, transformers' rate in tern's")
    print(f"bound {rate / weights / best[0][1]:.3f} 1.3 making tokens, the rate that memory allows in tern's")


if __name__ == "__main__":
    torch.set_num_threads(2)
    {"make": make, "compare": compare, "text": text, "bench": lambda n: bench(int(n))}[sys.argv[1]](*sys.argv[2:])
