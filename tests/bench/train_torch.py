"""PyTorch's side of `tern bench train --peer torch`: a Llama training step for each line on stdin.

usage: train_torch.py MODEL ATTENTION GRAPH PRECISION

MODEL: JSON; ATTENTION: fused | eager; GRAPH: plain | compile; PRECISION: fp32 | autocast.  A step is
forward, cross entropy, backward, clipping by the global norm, AdamW, on random tokens; parameters and
optimizer are in fp32.  Prints {"version", "compiles", "peak_bytes"} once ready, then {"seconds", "loss",
"peak_bytes"} a step.  PyTorch compiles in the first step.
"""
import json
import math
import os
import resource
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

c = json.loads(sys.argv[1])
FUSED = sys.argv[2] == "fused"
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
torch.manual_seed(1)
DIM, H, K, D, T, V = c["dim"], c["heads"], c["kv_heads"], c["head_dim"], c["seq"], c["vocab"]


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["eps"]) * self.weight


def turned(x):
    return torch.cat((-x[..., D // 2:], x[..., :D // 2]), -1)


def linear(i, o):
    m = nn.Linear(i, o, bias=False)
    nn.init.normal_(m.weight, 0, 0.02)
    return m


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = linear(DIM, H * D), linear(DIM, K * D), linear(DIM, K * D)
        self.o = linear(H * D, DIM)
        self.gate, self.up, self.down = linear(DIM, c["ffn"]), linear(DIM, c["ffn"]), linear(c["ffn"], DIM)
        self.norm, self.post = Norm(), Norm()

    def attend(self, x, cos, sin, mask):
        B = x.shape[0]
        q = self.q(x).view(B, T, H, D).transpose(1, 2)
        k = self.k(x).view(B, T, K, D).transpose(1, 2)
        v = self.v(x).view(B, T, K, D).transpose(1, 2)
        q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
        if K < H:
            k, v = (y[:, :, None].expand(B, K, H // K, T, D).reshape(B, H, T, D) for y in (k, v))
        if FUSED:
            whole = getattr(F, "scaled_dot_product_attention", None)
            y = whole(q, k, v, is_causal=True) if whole else \
                F._scaled_dot_product_attention(q, k, v, None, 0.0, False, True)[0]
        else:
            y = torch.matmul(F.softmax(torch.matmul(q, k.transpose(2, 3)) / math.sqrt(D) + mask, -1), v)
        return self.o(y.transpose(1, 2).reshape(B, T, H * D))

    def forward(self, x, *rope):
        x = x + self.attend(self.norm(x), *rope)
        y = self.post(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(V, DIM)
        nn.init.normal_(self.embed.weight, 0, 0.02)
        self.layers = nn.ModuleList([Layer() for _ in range(c["layers"])])
        self.norm = Norm()
        self.head = linear(DIM, V)
        if c["tied"]:
            self.head.weight = self.embed.weight
        f = 1.0 / (c["theta"] ** (torch.arange(0, D, 2, dtype=torch.float64) / D))
        angles = torch.outer(torch.arange(T, dtype=torch.float64), f)
        angles = torch.cat((angles, angles), -1)
        self.rope = (angles.cos().float(), angles.sin().float(), torch.full((T, T), float("-inf")).triu(1))

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, *self.rope)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, V), targets.reshape(-1))


model = Llama()
params = list(model.parameters())
optimizer = torch.optim.AdamW([{"params": [p for p in params if p.ndim > 1], "weight_decay": 0.1},
                               {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0}],
                              lr=3e-4, betas=(0.9, 0.95), eps=1e-8)
ids = torch.randint(0, V, (c["batch"], T + 1))


def say(**values):
    values["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(values), flush=True)


forward = torch.compile(model) if sys.argv[3] == "compile" else model
AUTOCAST = sys.argv[4] == "autocast"
say(version=torch.__version__, compiles=hasattr(torch, "compile"))
for _ in sys.stdin:
    began = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=AUTOCAST):
        loss = forward(ids[:, :-1], ids[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    say(seconds=time.perf_counter() - began, loss=loss.item())
