"""Stand-in of Optimum Neuron's LoRA trainer: its options, its lines, its checkpoints; the adapters are random.

They have the shapes of the model at --model_path.
"""
import argparse
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import nxd
import optimum

p = argparse.ArgumentParser()
p.add_argument("--model_path", required=True)
p.add_argument("--tp_size", type=int, required=True)
p.add_argument("--epochs", type=int, required=True)
p.add_argument("--max_steps", type=int, required=True)
p.add_argument("--train_batch_size", type=int, required=True)
p.add_argument("--gradient_accumulation_steps", type=int, required=True)
p.add_argument("--checkpoint_frequency", type=int, required=True)
p.add_argument("--model_checkpoint_path", required=True)
p.add_argument("--model_final_path", required=True)
a, _ = p.parse_known_args()
config = json.load(open(f"{a.model_path}/config.json"))
heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
nxd.HEAD, nxd.FFN = config["hidden_size"] // heads, config["intermediate_size"]
rows, replicas = 15011, 32 // a.tp_size # dolly-15k
epoch = -(-rows // (replicas * a.train_batch_size * a.gradient_accumulation_steps))
steps = a.max_steps if a.max_steps > 0 else a.epochs * epoch


def save(path, step):
    made = f"{path}.made"
    optimum.make(made, heads, kv_heads, config["num_hidden_layers"], a.tp_size, 1, 1, "separate", rank=16, seed=step, modules="qkv")
    shutil.rmtree(f"{made}-peft")
    os.rename(made, path)
    json.dump({"global_step": step, "max_steps": steps}, open(f"{path}/trainer_state.json", "w"))


def bar(step):
    return f"\r{100 * step // steps:3}%|####      | {step}/{steps} [00:01<00:00, 9.90it/s]"


# A bar that is cleared for each line and drawn again behind it, as tqdm's.
os.makedirs(a.model_checkpoint_path, exist_ok=True)
print(bar(0), end="", flush=True)
for step in range(1, steps + 1):
    if step % 100 == 0 or step == steps:
        values = {"loss": round(1 + 1 / step, 4), "learning_rate": 2e-05, "epoch": round(step / epoch, 2)}
        print(f"\r{' ' * 60}\r{values}\n{bar(step)}", end="", flush=True)
    if "NEURON_EXTRACT_GRAPHS_ONLY" not in os.environ and (step % a.checkpoint_frequency == 0 or step == steps):
        save(f"{a.model_checkpoint_path}/checkpoint-{step}", step)
print()
