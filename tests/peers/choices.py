"""Items of multiple choice, models, and lm-eval's answers: choices.py make|compare, in the work folder.

make GPT2 LLAMA2    from folders of tokenizers: model-N with random weights in fp32, and items-N.jsonl for it.
                    0: GPT-2's; 1: the same, which puts BOS first; 2: Llama 2's
compare N           lm-eval's log-likelihoods and accuracies of model-N beside tern's in tern-N.json
"""
import json
import os
import random
import shutil
import sys

ITEMS, POSITIONS = 500, 160


def items(path, empty):
    """Empty contexts are `empty`: transformers and sentencepiece encode a text for Llama 2 that begins with a
    blank, as a choice after an empty context does, in two ways."""
    rng = random.Random(13)
    words = "the a river stone old house runs quickly and Müller naïve 東京 Ωmega cell's 3.14 (x) foo_bar dog—cat é".split()
    some = lambda n: " ".join(rng.choice(words) for _ in range(n))
    seams = ["", " ", "  ", "\n", "\n\n", ":", "\t ", "\u00a0", "Answer:", "\u3000 "]
    with open(path, "w", encoding="utf-8") as f:
        for i in range(ITEMS):
            long = i % 50 == 7
            context = some(rng.randint(1, 30) * (20 if long else 1)) + rng.choice(seams)
            if i % 25 == 3:
                context = empty
            n = rng.randint(2, 5)
            choices = [rng.choice(["", "", " ", ",", "-"]) + some(rng.randint(1, 6)) for _ in range(n)]
            f.write(json.dumps({"context": context, "choices": choices, "answer": rng.randrange(n)},
                               ensure_ascii=i % 2 == 0) + "\n")


def bos_of_gpt2(folder, first):
    """A configuration that names BOS; `first`: and a post-processor that puts it before texts."""
    end = "<|endoftext|>"
    with open(f"{folder}/tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": end, "eos_token": end}, f)
    if first:
        tokenizer = json.load(open(f"{folder}/tokenizer.json"))
        sequence = [{"SpecialToken": {"id": end, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": sequence, "pair": sequence + [{"Sequence": {"id": "B", "type_id": 1}}],
                                       "special_tokens": {end: {"id": end, "ids": [50256], "tokens": [end]}}}
        json.dump(tokenizer, open(f"{folder}/tokenizer.json", "w"))


def make(gpt2, llama2):
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    for k, folder in enumerate([gpt2, gpt2, llama2]):
        to = f"model-{k}"
        items(f"items-{k}.jsonl", "Q" if k == 2 else "")
        os.mkdir(to)
        for name in os.listdir(folder):
            if name.startswith(("tokenizer", "special_tokens")):
                shutil.copy(os.path.join(folder, name), to)
        if k < 2:
            bos_of_gpt2(to, first=k == 1)
        vocab = len(AutoTokenizer.from_pretrained(to))
        torch.manual_seed(k)
        config = LlamaConfig(vocab_size=vocab, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=POSITIONS,
                             initializer_range=0.2, tie_word_embeddings=False)
        LlamaForCausalLM(config).float().save_pretrained(to)


def lm_eval_of(folder, path):
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    os.makedirs("tasks", exist_ok=True)
    with open("tasks/items.yaml", "w") as f:
        f.write(json.dumps({
            "task": "items", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": os.path.abspath(path)}},
            "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "context", "doc_to_choice": "choices",
            "doc_to_target": "answer", "metric_list": [{"metric": m} for m in ("acc", "acc_norm", "acc_bytes")]}))
    model = HFLM(pretrained=folder, device="cpu", batch_size=8, dtype="float32")
    result = lm_eval.simple_evaluate(model=model, tasks=["items"], task_manager=TaskManager(include_path="tasks"),
                                     log_samples=True, bootstrap_iters=0)
    return result["results"]["items"], sorted(result["samples"]["items"], key=lambda s: s["doc_id"])


def compare(k):
    import lm_eval

    version = lm_eval.__version__
    print(f"# lm-eval {version}")
    theirs, samples = lm_eval_of(f"model-{k}", f"items-{k}.jsonl")
    ours = json.load(open(f"tern-{k}.json"))
    print("ok" if len(samples) == len(ours["items"]) == ITEMS else "not ok", f"- both have {ITEMS} items")
    worst, where = 0.0, None
    for s, o in zip(samples, ours["items"]):
        for a, b in zip([r[0][0] if isinstance(r[0], (list, tuple)) else r[0] for r in s["resps"]], o["loglikelihoods"]):
            if abs(float(a) - b) > worst:
                worst, where = abs(float(a) - b), (o["line"], s["arguments"])
    print("ok" if worst <= 1e-4 else "not ok", f"- each log-likelihood is within 1e-4 of lm-eval's (the farthest: {worst:.1e})")
    if worst > 1e-4:
        print("# line", str(where)[:1000])
    for m in ("acc", "acc_norm", "acc_bytes"):
        a, b = theirs[f"{m},none"], ours[m]
        print("ok" if a == b else "not ok", f"- {m} is lm-eval's: {b}" + ("" if a == b else f", not {a}"))
    print("ok" if ours["acc_norm"] != ours["acc_bytes"] else "not ok", "- the items tell normalising by characters from by bytes")


if sys.argv[1] == "make":
    make(*sys.argv[2:])
else:
    compare(int(sys.argv[2]))
