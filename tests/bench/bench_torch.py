"""PyTorch's side of `make bench`: the same model, tokens and optimizer, steps on demand (the protocol of bench_step.c).

bench_torch.py SHAPE   SHAPE: a JSON object of bench.py's shape fields, and dtype, threads, optimizer, form (loop: an expert's
matrices are parameters of their own; grouped: stacked, by F.grouped_mm), compiled; device, if not the cpu. With RANK and WORLD_SIZE set: FSDP2 over gloo.
"""
import json
import os
import resource
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as nnf


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q = nn.Linear(s["dim"], s["heads"] * s["head_dim"], bias=False)
        self.k = nn.Linear(s["dim"], s["kv_heads"] * s["head_dim"], bias=False)
        self.v = nn.Linear(s["dim"], s["kv_heads"] * s["head_dim"], bias=False)
        self.o = nn.Linear(s["heads"] * s["head_dim"], s["dim"], bias=False)
        if s["qk_norm"]:
            self.q_norm, self.k_norm = nn.RMSNorm(s["head_dim"], 1e-6), nn.RMSNorm(s["head_dim"], 1e-6)

    def forward(self, x, cos, sin):
        s, (b, n, _) = self.s, x.shape
        q, k = self.q(x).view(b, n, s["heads"], -1), self.k(x).view(b, n, s["kv_heads"], -1)
        v = self.v(x).view(b, n, s["kv_heads"], -1).transpose(1, 2)
        if s["qk_norm"]:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, cos, sin).transpose(1, 2), rotate(k, cos, sin).transpose(1, 2)
        y = nnf.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s["heads"] != s["kv_heads"])
        return self.o(y.transpose(1, 2).reshape(b, n, -1))


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = nn.Linear(dim, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, -1)
        return self.down(nnf.silu(gate) * up)


class Experts(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.router = nn.Linear(s["dim"], s["experts"], bias=False)
        if s["form"] == "loop":
            self.expert = nn.ModuleList(SwiGLU(s["dim"], s["expert_ffn"]) for _ in range(s["experts"]))
        else:
            self.up = nn.Parameter(torch.empty(s["experts"], 2 * s["expert_ffn"], s["dim"]))
            self.down = nn.Parameter(torch.empty(s["experts"], s["dim"], s["expert_ffn"]))

    def forward(self, x):
        s, shape = self.s, x.shape
        x = x.reshape(-1, s["dim"])
        gates, ids = self.router(x).float().softmax(-1).topk(s["top_k"], -1)
        gates = gates / gates.sum(-1, keepdim=True)
        order = ids.flatten().argsort(stable=True)
        counts = torch.bincount(ids.flatten(), minlength=s["experts"])
        rows = x[order // s["top_k"]]
        if s["form"] == "loop":
            parts = rows.split(counts.tolist())
            y = torch.cat([f(p) for f, p in zip(self.expert, parts)])
        else:
            offs = counts.cumsum(0).to(torch.int32)
            gate, up = nnf.grouped_mm(rows, self.up.transpose(1, 2), offs=offs).chunk(2, -1)
            y = nnf.grouped_mm(nnf.silu(gate) * up, self.down.transpose(1, 2), offs=offs)
        y = y * gates.flatten()[order, None].to(y.dtype)
        return torch.zeros_like(x).index_add(0, order // s["top_k"], y).view(shape)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.RMSNorm(s["dim"], 1e-6), nn.RMSNorm(s["dim"], 1e-6)
        self.attn = Attention(s)
        self.ffn = Experts(s) if s["experts"] else SwiGLU(s["dim"], s["ffn"])

    def forward(self, x, cos, sin):
        x = x + self.attn(self.attn_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s["vocab"], s["dim"])
        self.layers = nn.ModuleList(Block(s) for _ in range(s["layers"]))
        self.norm = nn.RMSNorm(s["dim"], 1e-6)
        self.head = nn.Linear(s["dim"], s["vocab"], bias=False)

    def forward(self, tokens, labels, cos, sin):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.head(self.norm(x)).float()
        return nnf.cross_entropy(logits.flatten(0, 1), labels.flatten())


def build(s):
    torch.manual_seed(0)
    model = Model(s).to(getattr(torch, {"bf16": "bfloat16", "f32": "float32"}[s["dtype"]]))
    for p in model.parameters():
        nn.init.normal_(p, std=0.02) if p.ndim > 1 else nn.init.ones_(p)
    if dist.is_initialized():
        from torch.distributed.fsdp import fully_shard
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    return model


def optimizers(s, model):
    """As moetitan's default groups: Muon for matrices of blocks but the router, AdamW for the rest; or AdamW for all."""
    muon = [p for n, p in model.named_parameters()
            if s["optimizer"] == "muon" and p.ndim == 2 and n.startswith("layers.") and "router" not in n]
    rest = [p for p in model.parameters() if all(p is not q for q in muon)] if muon else list(model.parameters())
    out = [torch.optim.AdamW(rest, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)]
    if muon:
        out.append(torch.optim.Muon(muon, lr=3e-4, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"))
    return out


class Worker:
    def __init__(self, s):
        torch.set_num_threads(s["threads"])
        self.device = torch.device(s.get("device", "cpu"))
        self.s, self.model = s, build(s).to(self.device)
        self.opt = optimizers(s, self.model)
        self.call = torch.compile(self.model) if s["compiled"] else self.model
        shape = (s["batch"] // int(os.environ.get("WORLD_SIZE", 1)), s["seq"])
        self.tokens, self.labels = (torch.randint(s["vocab"], shape).to(self.device) for _ in range(2))
        angle = torch.arange(s["seq"])[:, None] * 10000.0 ** (-torch.arange(0, s["head_dim"], 2) / s["head_dim"])
        dtype = next(self.model.parameters()).dtype
        self.cos, self.sin = (f(angle)[:, None, :].to(self.device, dtype) for f in (torch.cos, torch.sin))

    def update(self):
        for o in self.opt:
            o.step()

    def step(self):
        for o in self.opt:
            o.zero_grad(set_to_none=True)
        self.call(self.tokens, self.labels, self.cos, self.sin).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.update()

    def answer(self, command):
        wall, cpu, before = time.monotonic(), time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        if command == "memory":
            return str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        self.step() if command == "step" else self.update()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        preempted = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before
        return f"{time.monotonic() - wall:.6f} {time.process_time() - cpu:.6f} {preempted}"


def main():
    s = json.loads(sys.argv[1])
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank = int(os.environ.get("RANK", 0))
    w = Worker(s)
    w.step()
    if rank == 0:
        print(f"ready {time.process_time():.6f} torch-{torch.__version__}", flush=True)
    while True:
        command = [sys.stdin.readline().strip() if rank == 0 else None]
        if dist.is_initialized():
            dist.broadcast_object_list(command, 0)
        if not command[0]:
            return
        line = w.answer(command[0])
        if rank == 0:
            print(line, flush=True)


main()
