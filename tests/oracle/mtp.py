"""Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, equations 21 to 25) in plain PyTorch, and its golden files:

    python tests/oracle/mtp.py [folder]

One step of two micro-batches: losses of the model and of its modules, and the gradient of every parameter of
loss + weight / depth * (sum of the modules' losses). Blocks and names are those of moe_reference.py.
"""
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as nnf

import moe_reference as ref
from generate import F32_BOUND, MARGIN, f32, i32, make_batch, relative, write_safetensors
from moe_reference import Config

OPTIONS = ("model.vocab={V} model.dim={D} model.layers={L} model.heads={H} model.kv_heads={G} model.head_dim={A} "
           "model.ffn={Fd} model.experts={E} model.top_k={K} model.expert_ffn={F} model.shared_ffn={Fs} "
           "model.score={score} model.rope_theta={theta} model.init_std={init_std} train.seq_len={N} "
           "train.global_batch={micro} train.seed={seed}")
FIXTURES = [  # configuration of the model without modules, their number, the weight of their losses
    (Config("mtp", V=41, D=20, L=2, H=2, G=1, A=10, B=10, R=10, first_dense=1, Fd=28, E=4, K=2, F=10, Fs=12,
            score="sigmoid", norm=True, qk_norm=True, seed=11, N=40), 2, 0.7),
    (Config("mtp_tied", V=41, D=24, L=1, H=3, G=1, A=8, B=8, R=8, first_dense=1, Fd=28, tied=True, qkv_bias=True,
            seed=12, N=36), 1, 0.3),
]


def shapes(c, depth):
    """Those of a model whose last `depth` blocks are the modules', and what a module has besides its block."""
    whole = dict(c.__dict__, L=c.L + depth)
    if not c.E:
        whole["first_dense"] = c.L + depth
    out = ref.shapes(Config(**whole))
    for l in range(c.L, c.L + depth):
        out[f"layers.{l}.mtp.eh_proj.weight"] = (c.D, 2 * c.D)
        for norm in ("enorm", "hnorm", "norm"):
            out[f"layers.{l}.mtp.{norm}.weight"] = (c.D,)
    return out


def init(c, depth):
    """Every parameter, and apart those that a fresh model has at 1 or 0, moved from there."""
    params, moved = {}, {}
    for name, shape in shapes(c, depth).items():
        z = ref.rng_normal(ref.rng_key(c.seed, name), 0, math.prod(shape))
        if len(shape) == 2:
            std = c.init_std / math.sqrt(2 * c.L) if name.endswith((".o.weight", ".down.weight")) else c.init_std
            value = (std * z).astype(np.float32)
        else:
            value = ((1 if "norm" in name else 0) + 0.1 * z).astype(np.float32)
            moved[name] = value
        params[name] = value.reshape(shape)
    return params, moved


def block(c, w, l, x, begin, pos):
    p = f"layers.{l}"
    x = x + ref.attention(c, w, f"{p}.attn", ref.rms_norm(x, w[f"{p}.attn_norm.weight"], c.eps), begin, pos)
    h = ref.rms_norm(x, w[f"{p}.ffn_norm.weight"], c.eps)
    if not c.E or l < c.first_dense:
        return x + ref.swiglu(w, f"{p}.mlp", h), math.inf
    y, routing = ref.moe(c, w, f"{p}.moe", h)
    return x + y, routing.margin


def further(b, k):
    """The token k further, and the label there, if everything up to it is one document whose labels count."""
    n = len(b["tokens"])
    tokens = [b["tokens"][i + k] if i + k < n else 0 for i in range(n)]
    one = [i + k < n and b["begin"][i + k] == b["begin"][i] and min(b["labels"][i:i + k]) >= 0 for i in range(n)]
    return tokens, [b["labels"][i + k] if one[i] else -1 for i in range(n)]


def losses(c, depth, w, b):
    """Cross-entropy summed over the labels that count, of the model and each module; and the least margin of the routers."""
    begin, pos, tokens = (torch.tensor(b[k]) for k in ("begin", "pos", "tokens"))
    head, x, margin, out = w["embed.weight" if c.tied else "head.weight"], w["embed.weight"][tokens], math.inf, []
    for l in range(c.L):
        x, least = block(c, w, l, x, begin, pos)
        margin = min(margin, least)
    h = ref.rms_norm(x, w["norm.weight"], c.eps)
    out.append(ref.loss_sum(nnf.linear(h, head), torch.tensor(b["labels"])))
    for k in range(1, depth + 1):
        l = c.L + k - 1
        p, (tokens, labels) = f"layers.{l}.mtp", further(b, k)
        e = ref.rms_norm(w["embed.weight"][torch.tensor(tokens)], w[f"{p}.enorm.weight"], c.eps)
        h = ref.rms_norm(h, w[f"{p}.hnorm.weight"], c.eps)
        x, least = block(c, w, l, nnf.linear(torch.cat([e, h], -1), w[f"{p}.eh_proj.weight"]), begin, pos)
        margin = min(margin, least)
        h = ref.rms_norm(x, w[f"{p}.norm.weight"], c.eps)
        out.append(ref.loss_sum(nnf.linear(h, head), torch.tensor(labels)))
    return out, margin


def step(c, depth, weight, values, batches, dtype):
    w = {n: torch.tensor(v, dtype=dtype, requires_grad=not ref.is_buffer(n)) for n, v in values.items()}
    valid = [sum(x >= 0 for b in batches for x in (further(b, k)[1] if k else b["labels"])) for k in range(depth + 1)]
    means = [0.0] * (depth + 1)
    for b in batches:
        sums, _ = losses(c, depth, w, b)
        parts = [s / n for s, n in zip(sums, valid)]
        (parts[0] + weight / depth * sum(parts[1:])).backward()
        means = [m + p.item() for m, p in zip(means, parts)]
    return means, valid, {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in w.items() if not ref.is_buffer(n)}


def choose_batch(c, depth, values, micro):
    w = {n: torch.tensor(v, dtype=torch.float64) for n, v in values.items()}
    for attempt in range(10000):
        batch = make_batch(c, 0, micro, attempt)
        with torch.no_grad():
            if losses(c, depth, w, batch)[1] > MARGIN:
                return batch
    raise SystemExit(f"{c.fixture}: no batch with margin {MARGIN}")


def write(c, depth, weight, folder):
    values, moved = init(c, depth)
    batches = [choose_batch(c, depth, values, i) for i in range(c.micro)]
    means, valid, grads = step(c, depth, weight, values, batches, torch.float64)
    single = step(c, depth, weight, values, batches, torch.float32)[2]
    worst = max(relative(single[n], g) for n, g in grads.items())
    assert worst < F32_BOUND, f"{c.fixture}: float32 is off by {worst}"
    norm = math.sqrt(sum(g.square().sum().item() for g in grads.values()))
    print(f"{c.fixture}: losses {[round(x, 4) for x in means]} of {valid} labels, float32 error {worst:.1e}")
    tensors = {k: i32([b[k] for b in batches]) for k in ("tokens", "labels", "begin", "pos")}
    tensors |= {"loss": np.array(means, dtype=np.float32), "valid": i32(valid), "grad_norm": np.array([norm], dtype=np.float32)}
    tensors |= {f"init/{n}": v for n, v in moved.items()}
    tensors |= {f"grad/{n}": f32(g) for n, g in grads.items()}
    options = OPTIONS.format(**c.__dict__) + f" model.mtp_depth={depth} model.mtp_loss_weight={weight}"
    options += f" model.first_dense={c.first_dense}" if c.E else ""
    for key, value in (("qk_norm", c.qk_norm), ("attn_bias", c.qkv_bias), ("tied", c.tied), ("route_norm", c.norm)):
        options += f" model.{key}={'true' if value else 'false'}"
    write_safetensors(folder / f"{c.fixture}.safetensors", tensors, {"options": options})


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden")
    for fixture in FIXTURES:
        write(*fixture, folder)


if __name__ == "__main__":
    main()
