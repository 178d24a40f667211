#!/usr/bin/python3
"""bf16.py DIR HOW '{"dim":64,...}': a dump for tests/tools/check_reference of a Llama in bf16, by PyTorch.

HOW float64: computed in double, rounded to bf16 at exactly the points that core/llama/llama.h names, each value and each
gradient: what a trainer in double that rounds there, too, must agree with to the last digits.
HOW bfloat16: tensors of torch.bfloat16 throughout, rounded wherever PyTorch does; one step.
"""
import json, math, os, struct, sys
import torch, torch.nn.functional as F

out, how, c = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
L, C, H, K, V, T, B = (c[k] for k in ("layers", "dim", "heads", "kv_heads", "vocab", "seq", "batch"))
D, FFN, steps, eps = C // H, c["ffn"], c["steps"], 1e-5
exact = how == "float64"
dt = getattr(torch, how)


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.bfloat16().double()

    @staticmethod
    def backward(ctx, g):
        return g.bfloat16().double()


R = Round.apply if exact else lambda x: x


def norm(x, w):
    return R(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w)


angle = torch.outer(torch.arange(T, dtype=torch.float64), 1.0 / 10000.0 ** (torch.arange(0, D, 2, dtype=torch.float64) / D))
cos, sin = torch.cat((angle, angle), -1).cos().to(dt), torch.cat((angle, angle), -1).sin().to(dt)
mask = torch.full((T, T), float("-inf")).triu(1).to(dt)


def rope(x):
    half = x.shape[-1] // 2
    return R(x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin)


def attention(x, w):
    q, k, v = (R(x @ w[n].t()).view(B, T, -1, D).transpose(1, 2) for n in ("q_proj", "k_proj", "v_proj"))
    q, k, v = rope(q), rope(k), R(v)
    k, v = (y.repeat_interleave(H // K, dim=1) for y in (k, v))
    a = F.softmax(q @ k.transpose(2, 3) / math.sqrt(D) + mask, -1) @ v
    return R(a.transpose(1, 2).reshape(B, T, H * D)) @ w["o_proj"].t()


def model(p, ids, targets):
    x = R(F.embedding(ids, p["model.embed_tokens.weight"]))
    for l in range(L):
        at = f"model.layers.{l}."
        w = {n.split(".")[-2]: v for n, v in p.items() if n.startswith(at)}
        x = R(x + attention(norm(x, w["input_layernorm"]), w))
        y = norm(x, w["post_attention_layernorm"])
        h = R(F.silu(R(y @ w["gate_proj"].t())) * R(y @ w["up_proj"].t()))
        x = R(x + h @ w["down_proj"].t())
    logits = R(norm(x, p["model.norm.weight"]) @ p["lm_head.weight"].t())
    return F.cross_entropy(logits.view(-1, V).to(torch.float64 if exact else torch.float32), targets.reshape(-1))


def save(path, tensors):
    head, at = {}, 0
    for n, t in tensors.items():
        head[n] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + 4 * t.numel()]}
        at += 4 * t.numel()
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(out, path), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(t.detach().float().contiguous().numpy().tobytes())


shapes = {"model.embed_tokens.weight": (V, C)}
for l in range(L):
    at = f"model.layers.{l}."
    shapes.update({at + f"self_attn.{n}_proj.weight": s for n, s in
                   (("q", (C, C)), ("k", (K * D, C)), ("v", (K * D, C)), ("o", (C, C)))})
    shapes.update({at + f"mlp.{n}_proj.weight": s for n, s in (("gate", (FFN, C)), ("up", (FFN, C)), ("down", (C, FFN)))})
    shapes.update({at + n + ".weight": (C,) for n in ("input_layernorm", "post_attention_layernorm")})
shapes.update({"model.norm.weight": (C,), "lm_head.weight": (V, C)})
g = torch.Generator().manual_seed(1)
# Floats, not bf16: the master copy is more than the parameters from the first step on.
draw = lambda s: torch.randn(s, generator=g) * 0.1 + (1.0 if len(s) == 1 else 0.0)
master = {n: draw(s).double().requires_grad_() for n, s in shapes.items()}
tokens = torch.randint(0, V, (1, B, T + 1), generator=g)
os.makedirs(out, exist_ok=True)
save("model.safetensors", master)
tokens.to(torch.int32).numpy().tofile(os.path.join(out, "tokens.i32"))
json.dump({"model_type": "llama", "hidden_size": C, "intermediate_size": FFN, "num_hidden_layers": L, "num_attention_heads": H,
           "num_key_value_heads": K, "head_dim": D, "vocab_size": V, "max_position_embeddings": T, "rms_norm_eps": eps,
           "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"}, open(os.path.join(out, "config.json"), "w"))

rounded = lambda: {n: m.detach().bfloat16().to(dt).requires_grad_() for n, m in master.items()}
opt = torch.optim.AdamW([{"params": [m for m in master.values() if m.ndim > 1], "weight_decay": 0.1},
                         {"params": [m for m in master.values() if m.ndim == 1], "weight_decay": 0.0}],
                        lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
losses, norms, first = [], [], {}
ids, targets = tokens[0, :, :-1], tokens[0, :, 1:]
for step in range(steps):
    p = rounded()
    loss = model(p, ids, targets)
    loss.backward()
    losses.append(loss.item())
    for n, m in master.items():
        m.grad = p[n].grad.double()
    if step == 0:
        first = {n: m.grad.norm().item() for n, m in master.items()}
        save("grads0.safetensors", {n: m.grad for n, m in master.items()})
    norms.append(torch.nn.utils.clip_grad_norm_(list(master.values()), 1.0).item())
    opt.step()
save("final.safetensors", master)
with torch.no_grad():
    after = model(rounded(), ids, targets).item()
json.dump({"config": dict(c, dtype=how, precision="bf16", mode="full", lr=1e-2, clip=1.0), "losses": losses, "grad_norms": norms,
           "loss_after": after, "grad_norm_by_tensor_step0": first,
           "param_norm_by_tensor_final": {n: m.detach().norm().item() for n, m in master.items()}},
          open(os.path.join(out, "expected.json"), "w"))
