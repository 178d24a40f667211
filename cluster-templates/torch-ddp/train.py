"""A small data-parallel training as people write it: PyTorch DDP, without --tell with no word of tern.

Fits a two-layer network to a fixed function.  Every `--every` steps rank 0 writes a checkpoint
<out>/step_N: model.pt first, then the file `done` (the layout of NeuronX Distributed); it begins
from the newest complete one.
"""
import argparse
import glob
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def newest(out):
    done = [int(os.path.dirname(d).rsplit("_", 1)[1]) for d in glob.glob(f"{out}/step_*/done")]
    return max(done, default=0)


def save(out, step, model, optimizer):
    path = f"{out}/step_{step}"
    os.makedirs(path, exist_ok=True)
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, f"{path}/model.pt")
    with open(f"{path}/done", "w") as f:
        f.write("1")


def tell(words):
    """Into tern's ledger, by the file that `tern run` gives each rank."""
    with open(os.environ["TERN_METRIC_FILE"], "w") as f:
        f.write(words + "\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--micro", type=int, default=4)
    p.add_argument("--out", required=True)
    p.add_argument("--pause", type=float, default=0)
    p.add_argument("--tell", action="store_true", help="say values and checkpoints to tern, and print none")
    a = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    begin = newest(a.out)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if begin:
        state = torch.load(f"{a.out}/step_{begin}/model.pt")
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    print(f"rank {rank} of {world} on {os.environ.get('SLURMD_NODENAME')} from step {begin}", flush=True)
    for step in range(begin + 1, a.steps + 1):
        # Sample i of step s is a function of (s, i): the same whatever the number of ranks.
        x = torch.stack([torch.randn(16, generator=torch.Generator().manual_seed(step * 1000 + rank * a.micro + i))
                         for i in range(a.micro)])
        loss = ((model(x) - x.sum(1, keepdim=True).sin()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            if a.tell:
                tell(f"step={step} loss={mean.item() / world}")
            else:
                print({"loss": round(mean.item() / world, 4), "step": step}, flush=True)
            if step % a.every == 0:
                save(a.out, step, model, optimizer)
                if a.tell:
                    tell(f"step={step} checkpoint={a.out}/step_{step}")
        dist.barrier()
        time.sleep(a.pause)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
