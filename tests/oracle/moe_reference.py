"""The mathematics of moetitan's model and optimizer in plain PyTorch: slow, eager, written to be read.

Nothing here is tuned, fused or sharded, and no tensor is laid out in another way than a checkpoint holds it.
Parameters are a dict from canonical name to tensor; the dtype of the dict is the dtype of the computation.
Legend: N tokens, D width, H/G query/kv heads, A/B key/value head widths, R rotated part of A, E experts,
K experts per token, F/Fd/Fs hidden widths (expert, dense, shared), V vocabulary, L layers.
"""
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as nnf

NS_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NS_STEPS = 5
NS_EPS = 1e-7


@dataclass(frozen=True)
class Config:
    fixture: str
    V: int
    D: int
    L: int
    H: int
    G: int
    A: int
    B: int
    R: int
    first_dense: int = 0  # layers below it are dense, the others MoE
    Fd: int = 0
    E: int = 0
    K: int = 0
    F: int = 0
    Fs: int = 0  # 0: no shared expert
    score: str = "softmax"  # or "sigmoid"
    norm: bool = False  # gates divided by their sum
    scale: float = 1.0
    qk_norm: bool = False
    qkv_bias: bool = False
    tied: bool = False
    eps: float = 1e-6
    theta: float = 10000.0
    seed: int = 0
    init_std: float = 0.1
    steps: int = 3
    micro: int = 2
    N: int = 48
    max_norm: float = 1.0
    bias_rate: float = 0.01
    lr: float = 0.01  # AdamW
    beta1: float = 0.9
    beta2: float = 0.95
    adam_eps: float = 1e-8
    muon_lr: float = 0.02
    mu: float = 0.95
    muon_scale: str = "original"  # match_rms_adamw, spectral
    weight_decay: float = 0.1  # of matrices; vectors have none
    window: int = 0  # tokens a token sees at most, itself included; 0: all of its document
    full_first: int = 0  # so many layers without a window, and every full_every-th
    full_every: int = 0
    Ck: int = 0  # multi-head latent attention: width of compressed keys and values; 0: grouped queries
    Cq: int = 0  # width of compressed queries; 0: they are not compressed
    rope_factor: float = 1.0  # YaRN
    rope_original: int = 4096
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0
    mscale_all: float = 0.0
    n_group: int = 1  # groups of experts, of which a token's best `topk_group` are chosen from
    topk_group: int = 1
    group_score: str = "top2"  # or "max"
    capacity_factor: float = 0.0  # 0: nothing is dropped
    drop: str = "probs"  # or "position"
    aux_loss_sequence: float = 0.0  # coefficients
    aux_loss_global: float = 0.0
    z_loss: float = 0.0
    qk_clip: float = 0.0  # largest attention score that is left as it is; 0: all are


# Fields that files written before them do not have.
LATER = ("n_group", "topk_group", "group_score", "capacity_factor", "drop", "aux_loss_sequence", "aux_loss_global",
         "z_loss")


# ---- Random numbers -------------------------------------------------------------------------------------

M64 = (1 << 64) - 1


def philox4x32(counter, key):
    """Philox4x32-10. counter: four 32-bit values or arrays of them, key: two; gives four uint64 arrays."""
    mask = np.uint64(0xFFFFFFFF)
    x0, x1, x2, x3 = (np.asarray(c, dtype=np.uint64) for c in counter)
    k0, k1 = key
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * x0, np.uint64(0xCD9E8D57) * x2
        hi0, hi1 = p0 >> np.uint64(32), p1 >> np.uint64(32)
        x0, x1, x2, x3 = hi1 ^ x1 ^ np.uint64(k0), p1 & mask, hi0 ^ x3 ^ np.uint64(k1), p0 & mask
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return x0, x1, x2, x3


def mix(x):
    z = (x + 0x9E3779B97F4A7C15) & M64
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & M64
    return z ^ z >> 31


def fnv1a64(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & M64
    return h


def rng_key(seed, name):
    return mix(fnv1a64(name) ^ mix(seed))


def rng_blocks(key, first, n):
    """Blocks first .. first + n - 1 of a stream: four arrays of n words."""
    block = np.arange(first, first + n, dtype=np.uint64)
    counter = (block & np.uint64(0xFFFFFFFF), block >> np.uint64(32), 0, 0)
    return philox4x32(counter, (key & 0xFFFFFFFF, key >> 32))


def rng_normal(key, first, n):
    """Elements first .. first + n - 1 of the standard normal stream, float64, by the C library."""
    pair0, pair1 = first >> 1, (first + n + 1) >> 1
    out = []
    for r0, r1, r2, r3 in zip(*(word.tolist() for word in rng_blocks(key, pair0, pair1 - pair0))):
        u1 = (float((r1 << 32 | r0) >> 11) + 0.5) * 2.0**-53
        u2 = (float((r3 << 32 | r2) >> 11) + 0.5) * 2.0**-53
        radius, angle = math.sqrt(-2 * math.log(u1)), 2 * math.pi * u2
        out += [radius * math.cos(angle), radius * math.sin(angle)]
    return np.array(out[first & 1:][:n], dtype=np.float64)


# ---- Parameters -----------------------------------------------------------------------------------------


def swiglu_shapes(prefix, width, hidden):
    return {f"{prefix}.gate.weight": (hidden, width), f"{prefix}.up.weight": (hidden, width),
            f"{prefix}.down.weight": (width, hidden)}


def latent_shapes(c, p):
    q = {f"{p}.q_a.weight": (c.Cq, c.D), f"{p}.q_a_norm.weight": (c.Cq,),
         f"{p}.q_b.weight": (c.H * c.A, c.Cq)} if c.Cq else {f"{p}.q.weight": (c.H * c.A, c.D)}
    return q | {f"{p}.kv_a.weight": (c.Ck, c.D), f"{p}.k_rope.weight": (c.R, c.D),
                f"{p}.kv_a_norm.weight": (c.Ck,), f"{p}.k_b.weight": (c.H * (c.A - c.R), c.Ck),
                f"{p}.v_b.weight": (c.H * c.B, c.Ck)}


def shapes(c):
    """Canonical name -> shape, in checkpoint order."""
    out = {"embed.weight": (c.V, c.D)}
    for l in range(c.L):
        p = f"layers.{l}"
        out[f"{p}.attn_norm.weight"] = (c.D,)
        out.update(latent_shapes(c, f"{p}.attn") if c.Ck else {})
        for x, rows in () if c.Ck else (("q", c.H * c.A), ("k", c.G * c.A), ("v", c.G * c.B)):
            out[f"{p}.attn.{x}.weight"] = (rows, c.D)
            if c.qkv_bias:
                out[f"{p}.attn.{x}.bias"] = (rows,)
        if c.qk_norm:
            out[f"{p}.attn.q_norm.weight"] = out[f"{p}.attn.k_norm.weight"] = (c.A,)
        out[f"{p}.attn.o.weight"] = (c.D, c.H * c.B)
        out[f"{p}.ffn_norm.weight"] = (c.D,)
        if l < c.first_dense:
            out.update(swiglu_shapes(f"{p}.mlp", c.D, c.Fd))
            continue
        out[f"{p}.moe.router.weight"] = (c.E, c.D)
        out[f"{p}.moe.router.bias"] = (c.E,)
        for e in range(c.E):
            out.update(swiglu_shapes(f"{p}.moe.experts.{e}", c.D, c.F))
        if c.Fs:
            out.update(swiglu_shapes(f"{p}.moe.shared", c.D, c.Fs))
    out["norm.weight"] = (c.D,)
    if not c.tied:
        out["head.weight"] = (c.V, c.D)
    return out


def is_buffer(name):
    """The selection bias is state of the model, but no gradient reaches it and no optimizer holds it."""
    return name.endswith("router.bias")


def by_muon(name, tensor):
    return tensor.ndim == 2 and not name.startswith(("embed.", "head.")) and ".router." not in name


def init_params(c, overrides, dtype):
    """Matrices by the counter-based generator, norms 1, biases 0; but `overrides` (name -> array) first."""
    params = {}
    for name, shape in shapes(c).items():
        if name in overrides:
            value = overrides[name]
        elif len(shape) == 2:
            deep = name.endswith((".o.weight", ".down.weight"))
            std = c.init_std / math.sqrt(2 * c.L) if deep else c.init_std
            value = (std * rng_normal(rng_key(c.seed, name), 0, math.prod(shape))).astype(np.float32)
        else:
            value = np.full(shape, 1.0 if "norm" in name else 0.0, dtype=np.float32)
        params[name] = torch.tensor(value).reshape(shape).to(dtype).requires_grad_(not is_buffer(name))
    return params


# ---- Model ----------------------------------------------------------------------------------------------


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def temperature(c, weight):
    """YaRN's attention temperature as DeepSeek-V3 has it."""
    return 0.1 * weight * math.log(c.rope_factor) + 1 if c.rope_factor > 1 else 1.0


def frequencies(c):
    """theta^(-2i/R); with YaRN those below beta_slow turns in the original positions divided by the factor."""
    i = torch.arange(c.R // 2, dtype=torch.float64)
    freq = c.theta ** (-i * 2 / c.R)
    if c.rope_factor <= 1:
        return freq
    low, high = (c.R * math.log(c.rope_original / (turns * 2 * math.pi)) / (2 * math.log(c.theta))
                 for turns in (c.beta_fast, c.beta_slow))
    low, high = max(math.floor(low), 0), min(math.ceil(high), c.R - 1)
    share = ((i - low) / (high - low if high != low else 0.001)).clamp(0, 1)
    return freq * (1 - share) + freq / c.rope_factor * share


def rope(c, x, pos):
    """x [N, heads, A]: rotates the pairs (i, i + R/2) of the first R elements by pos times their frequency."""
    half, rotated, gain = c.R // 2, c.R, temperature(c, c.mscale) / temperature(c, c.mscale_all)
    angle = (pos.double()[:, None] * frequencies(c))[:, None, :]
    cos, sin = (gain * angle.cos()).to(x.dtype), (gain * angle.sin()).to(x.dtype)
    a, b, rest = x[..., :half], x[..., half:rotated], x[..., rotated:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def window_of(c, layer):
    near = layer >= c.full_first and not (c.full_every and (layer + 1) % c.full_every == 0)
    return c.window if near else 0


def grouped(c, w, p, x, pos):
    """Queries [N, H, A], keys [N, G, A] and values [N, G, B]."""
    n = x.shape[0]
    q, k, v = (nnf.linear(x, w[f"{p}.{y}.weight"], w.get(f"{p}.{y}.bias")) for y in "qkv")
    q, k, v = q.view(n, c.H, c.A), k.view(n, c.G, c.A), v.view(n, c.G, c.B)
    if c.qk_norm:
        q, k = rms_norm(q, w[f"{p}.q_norm.weight"], c.eps), rms_norm(k, w[f"{p}.k_norm.weight"], c.eps)
    return rope(c, q, pos), rope(c, k, pos), v


def latent(c, w, p, x, pos):
    """The same of multi-head latent attention; norms of compressed states have their own epsilon."""
    n = x.shape[0]
    if c.Cq:
        cq = rms_norm(nnf.linear(x, w[f"{p}.q_a.weight"]), w[f"{p}.q_a_norm.weight"], 1e-6)
        q = nnf.linear(cq, w[f"{p}.q_b.weight"])
    else:
        q = nnf.linear(x, w[f"{p}.q.weight"])
    ckv = rms_norm(nnf.linear(x, w[f"{p}.kv_a.weight"]), w[f"{p}.kv_a_norm.weight"], 1e-6)
    shared = rope(c, nnf.linear(x, w[f"{p}.k_rope.weight"]).view(n, 1, c.R), pos)
    own = nnf.linear(ckv, w[f"{p}.k_b.weight"]).view(n, c.H, c.A - c.R)
    k = torch.cat([shared.expand(n, c.H, c.R), own], -1)
    return rope(c, q.view(n, c.H, c.A), pos), k, nnf.linear(ckv, w[f"{p}.v_b.weight"]).view(n, c.H, c.B)


def attention(c, w, layer, x, begin, pos, tops=None):
    """Causal inside each document; begin[i] is the first token of token i's document. tops: layer -> largest score of each head."""
    n, p, window = x.shape[0], f"layers.{layer}.attn", window_of(c, layer)
    q, k, v = (latent if c.Ck else grouped)(c, w, p, x, pos)
    k, v = (y.repeat_interleave(c.H // c.G, dim=1) for y in (k, v))
    at = torch.arange(n)
    visible = (at[None, :] <= at[:, None]) & (at[None, :] >= begin[:, None])
    if window:
        visible &= at[None, :] > at[:, None] - window
    scores = torch.einsum("iha,jha->hij", q, k) * (c.A**-0.5 * temperature(c, c.mscale_all) ** 2)
    scores = scores.masked_fill(~visible, -math.inf)
    if tops is not None:
        tops[layer] = torch.maximum(scores.detach().amax((1, 2)), tops.get(layer, torch.tensor(-math.inf)))
    weights = scores.softmax(-1)
    return nnf.linear(torch.einsum("hij,jhb->ihb", weights, v).reshape(n, c.H * c.B), w[f"{p}.o.weight"])


def swiglu(w, p, x):
    return nnf.linear(nnf.silu(nnf.linear(x, w[f"{p}.gate.weight"])) * nnf.linear(x, w[f"{p}.up.weight"]),
                      w[f"{p}.down.weight"])


@dataclass
class Routing:
    ids: torch.Tensor  # [N, K], best choice first
    counts: torch.Tensor  # [E] assignments
    margin: float  # least distance between what is chosen and what comes next, over all that is chosen
    aux: dict  # option -> loss without its coefficient, mean over these tokens
    top: torch.Tensor  # [E] tokens that score an expert among their K best, in this step up to here
    seen: int  # tokens that `top` counts


def gap(values, k):
    """Least distance between the k-th largest and the next, along the last dimension."""
    ranked = values.sort(dim=-1, descending=True).values
    return (ranked[..., k - 1] - ranked[..., k]).min().item() if k < values.shape[-1] else math.inf


def limit_groups(c, choice):
    """Experts outside of a token's best groups cannot be chosen (DeepSeek-V3: the sum of the two best; V2: the best)."""
    groups = choice.view(choice.shape[0], c.n_group, -1)
    best = groups.topk(2 if c.group_score == "top2" else 1, dim=-1).values.sum(-1)
    keep = torch.zeros_like(best).scatter(1, best.topk(c.topk_group, dim=-1).indices, 1.0)
    return groups.masked_fill(keep[..., None] == 0, -math.inf).reshape(choice.shape), gap(best, c.topk_group)


def drop_mask(c, ids, gates):
    """1 for the pairs an expert keeps of this sequence; capacity as Megatron's, of the tokens here."""
    n = ids.shape[0]
    capacity = math.ceil(n * c.K / c.E * c.capacity_factor)
    mask, margin = torch.zeros_like(gates), math.inf
    for e in range(c.E):
        token, slot = (ids == e).nonzero(as_tuple=True)
        value = gates[token, slot].detach()
        order = value.argsort(descending=True, stable=True) if c.drop == "probs" else torch.arange(len(token))
        kept = order[:capacity]
        mask[token[kept], slot[kept]] = 1
        if c.drop == "probs" and len(token) > capacity:
            margin = min(margin, gap(value, capacity))
    return mask, margin


def balance_loss(c, counts, tokens, scores):
    """E / (K T) sum_e counts_e mean_t scores_te: 2412.19437 eq. 17 to 20; 2501.11873 where counts are of more tokens."""
    return c.E / (c.K * tokens) * (counts * scores.mean(0)).sum()


def aux_losses(c, logits, scores, before):
    """before: counts of the step's earlier micro-batches and their tokens. Counts are of the scores, without bias and groups."""
    n = logits.shape[0]
    chosen = torch.zeros_like(scores).scatter(1, scores.topk(c.K, dim=-1).indices, 1.0).sum(0).detach()
    top, seen = (before[0] + chosen, before[1] + n) if before else (chosen, n)
    shares = scores / (scores.sum(-1, keepdim=True) + 1e-20)
    aux = {"aux_loss_sequence": balance_loss(c, chosen, n, shares), "aux_loss_global": balance_loss(c, top, seen, shares),
           "z_loss": logits.logsumexp(-1).square().mean()}
    return aux, top, seen


def moe(c, w, p, x, before=None):
    logits = nnf.linear(x, w[f"{p}.router.weight"])
    scores = logits.softmax(-1) if c.score == "softmax" else logits.sigmoid()
    choice, margin = (scores + w[f"{p}.router.bias"]).detach(), math.inf
    if c.n_group > 1:
        choice, margin = limit_groups(c, choice)
    ranked, order = choice.sort(dim=-1, descending=True, stable=True)
    ids = order[:, :c.K]
    aux, top, seen = aux_losses(c, logits, scores, before)
    if c.aux_loss_sequence or c.aux_loss_global:
        margin = min(margin, gap(scores.detach(), c.K))
    gates = scores.gather(-1, ids)
    if c.norm:
        gates = gates / (gates.sum(-1, keepdim=True) + 1e-20)
    gates = gates * c.scale
    if c.capacity_factor:
        mask, least = drop_mask(c, ids, gates)
        gates, margin = gates * mask, min(margin, least)
    y = swiglu(w, f"{p}.shared", x) if c.Fs else torch.zeros_like(x)
    for e in range(c.E):
        token, slot = (ids == e).nonzero(as_tuple=True)
        y = y.index_add(0, token, gates[token, slot, None] * swiglu(w, f"{p}.experts.{e}", x[token]))
    margin = min(margin, (ranked[:, c.K - 1] - ranked[:, c.K]).min().item())
    return y, Routing(ids, torch.bincount(ids.flatten(), minlength=c.E), margin, aux, top, seen)


def forward(c, w, tokens, begin, pos, before=None, tops=None):
    """Logits [N, V] of one micro-batch of packed documents, and the routing of each MoE layer. before: that of the step's last."""
    x = w["embed.weight"][tokens]
    routing = {}
    for l in range(c.L):
        p = f"layers.{l}"
        x = x + attention(c, w, l, rms_norm(x, w[f"{p}.attn_norm.weight"], c.eps), begin, pos, tops)
        h = rms_norm(x, w[f"{p}.ffn_norm.weight"], c.eps)
        if l < c.first_dense:
            x = x + swiglu(w, f"{p}.mlp", h)
        else:
            y, routing[l] = moe(c, w, f"{p}.moe", h, before and (before[l].top, before[l].seen))
            x = x + y
    x = rms_norm(x, w["norm.weight"], c.eps)
    return nnf.linear(x, w["embed.weight" if c.tied else "head.weight"]), routing


def loss_sum(logits, labels):
    """Cross-entropy summed over labels >= 0."""
    return nnf.cross_entropy(logits, labels.long(), ignore_index=-1, reduction="sum")


# ---- Optimizer ------------------------------------------------------------------------------------------


def clip(grads, max_norm):
    """Scales all gradients by min(1, max_norm / (norm + 1e-6)); returns the norm before."""
    norm = torch.sqrt(sum(g.square().sum() for g in grads.values()))
    factor = min(1.0, max_norm / (norm.item() + 1e-6))
    for g in grads.values():
        g *= factor
    return norm.item()


def adamw(p, g, state, step, lr, beta1, beta2, eps, decay):
    """One step; step counts from 1."""
    m, v = state.setdefault("m", torch.zeros_like(p)), state.setdefault("v", torch.zeros_like(p))
    p *= 1 - lr * decay
    m.mul_(beta1).add_(g * (1 - beta1))
    v.mul_(beta2).add_(g * g * (1 - beta2))
    p -= lr * (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + eps)


def newton_schulz(u):
    a, b, c = NS_COEFFICIENTS
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / max(torch.linalg.norm(x).item(), NS_EPS)
    for _ in range(NS_STEPS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if u.shape[0] > u.shape[1] else x


def muon_scale(mode, rows, cols):
    return {"original": math.sqrt(max(1, rows / cols)), "match_rms_adamw": 0.2 * math.sqrt(max(rows, cols)),
            "spectral": math.sqrt(rows / cols)}[mode]


def muon_direction(g, state, mu):
    """The orthogonalised Nesterov momentum of one matrix."""
    m = state.setdefault("m", torch.zeros_like(g))
    m.mul_(mu).add_(g * (1 - mu))
    return newton_schulz((1 - mu) * g + mu * m)


def muon(p, g, state, lr, mu, decay, mode):
    o = muon_direction(g, state, mu)
    p *= 1 - lr * decay
    p -= lr * muon_scale(mode, *p.shape) * o


@torch.no_grad()
def qk_clip(c, params, tops):
    """Kimi K2, arXiv 2507.20534, algorithm 1; heads that share a key have the largest score among them."""
    for l, top in tops.items():
        shared = top.view(c.G, -1).amax(1)
        g = (c.qk_clip / shared).clamp(max=1)  # [G]; with latent attention G is H
        q = g.repeat_interleave(c.H // c.G)[:, None, None]
        for name, p in params.items():
            if name in (f"layers.{l}.attn.q.weight", f"layers.{l}.attn.q.bias", f"layers.{l}.attn.q_b.weight"):
                rows = p.view(c.H, c.A, -1)
                rotated = c.R if c.Ck else 0
                rows[:, :rotated] *= q
                rows[:, rotated:] *= q.sqrt()
            elif name in (f"layers.{l}.attn.k.weight", f"layers.{l}.attn.k.bias", f"layers.{l}.attn.k_b.weight"):
                p.view(c.G, -1).mul_(g[:, None].sqrt())


def update_bias(bias, counts, rate):
    """Auxiliary-loss-free balancing, once a step, on the assignments of the whole step."""
    d = rate * torch.sign(counts.double().mean() - counts.double())
    bias += (d - d.mean()).to(bias.dtype)


@torch.no_grad()
def optimizer_step(c, params, grads, state, step, counts):
    """Updates params in place from clipped gradients. step: from 1; counts: layer -> assignments [E]."""
    for name, p in params.items():
        if is_buffer(name):
            update_bias(p, counts[int(name.split(".")[1])], c.bias_rate)
            continue
        own = state.setdefault(name, {})
        if by_muon(name, p):
            muon(p, grads[name], own, c.muon_lr, c.mu, c.weight_decay, c.muon_scale)
        else:
            decay = c.weight_decay if p.ndim == 2 else 0.0
            adamw(p, grads[name], own, step, c.lr, c.beta1, c.beta2, c.adam_eps, decay)


def lr_factor(s, total, warmup, decay_ratio, shape, floor):
    """Warmup, stable, decay. s: step from 0; decay_ratio None: everything after the warmup decays."""
    decay = total - warmup if decay_ratio is None else round(total * decay_ratio)
    stable = total + 1 - warmup - decay  # one step more than there are, so that the last rate is not 0
    if s < warmup:
        return (s + 1) / warmup
    if s < warmup + stable:
        return 1.0
    p = (s + 1 - (warmup + stable)) / decay
    f = {"linear": 1 - p, "sqrt": 1 - math.sqrt(p), "cosine": (1 + math.cos(math.pi * p)) / 2}[shape]
    return floor + (1 - floor) * f
