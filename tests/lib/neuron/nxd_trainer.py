"""Stand-in of NeuronX Distributed's pre-training scripts: their options, lines and checkpoints, without training.

Its checkpoints hold the weights that it begins with: those of pretrained_weight, or random ones.
"""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import nxd


def options(*names):
    p = argparse.ArgumentParser(allow_abbrev=False)
    for name in names + ("max_steps", "checkpoint_dir", "checkpoint_freq", "tensor_parallel_size"):
        p.add_argument(f"--{name}")
    a, rest = p.parse_known_args()
    a.pretrained = "--pretrained_weight" in rest
    if os.environ.get("STANDIN_NODE", "0") != "0":
        raise SystemExit(0)
    return a


def random_weights(model, tensor, out):
    config = json.load(open(f"{model}/config.json"))
    heads = config["num_attention_heads"]
    nxd.HEAD, nxd.FFN, nxd.VOCAB = config["hidden_size"] // heads, config["intermediate_size"], config["vocab_size"]
    nxd.make(f"{out}.hf", heads, config["num_key_value_heads"], config["num_hidden_layers"])
    subprocess.run(["tern", "ckpt", "export", f"{out}.hf", "--to", "nxd", "--tensor", tensor, "--qkv", "separate", "-o", out], check=True)
    shutil.rmtree(f"{out}.hf")


def train(a, line):
    """line(STEP): what the script prints at a step."""
    compiling = "NEURON_EXTRACT_GRAPHS_ONLY" in os.environ
    begin = 0
    if not compiling:
        weights = f"{a.checkpoint_dir}/{'pretrained_weight' if a.pretrained else 'random_weight'}"
        if a.pretrained and not glob.glob(f"{weights}/model/dp_rank_00_tp_rank_*.pt"):
            raise SystemExit(f"{weights}: no ranks' weights")
        if not os.path.exists(weights):
            os.makedirs(a.checkpoint_dir, exist_ok=True)
            random_weights(a.model_path, a.tensor_parallel_size, weights)
        begin = max((int(p.split("_")[-1].split("/")[0]) for p in glob.glob(f"{a.checkpoint_dir}/step_*/done")), default=0)
    for step in range(begin + 1, int(a.max_steps) + 1):
        if step % 100 == 0 or step == int(a.max_steps):
            print(line(step), flush=True)
        if compiling or step % int(a.checkpoint_freq):
            continue
        path = f"{a.checkpoint_dir}/step_{step}"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(weights, path)
        for name in ("checkpoint", "done"):
            with open(f"{path}/{name}", "w") as f:
                f.write("1")
