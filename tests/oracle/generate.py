"""Writes the golden files of tests/golden. Usage: generate.py [OUT_DIR]. See README.md beside it."""
import os

# Before torch is imported: the same sums in the same order whatever instructions the machine has.
os.environ["MKL_CBWR"] = "COMPATIBLE"
os.environ["ATEN_CPU_CAPABILITY"] = "default"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"

import dataclasses
import json
import struct
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import safetensors.numpy
import torch
import torch.optim._muon as torch_muon

import moe_reference as ref
from moe_reference import Config

MARGIN = 1e-3  # between the K-th and the next choice score: far above what float32 can move it
F32_BOUND = 5e-6  # float32 run of the reference against its float64 run, per tensor; C is held to 1e-5

FIXTURES = [
    Config("dense", V=96, D=32, L=3, H=4, G=2, A=8, B=8, R=8, first_dense=3, Fd=64, qkv_bias=True, tied=True,
           theta=100.0, seed=1, max_norm=0.5, muon_scale="match_rms_adamw"),
    Config("moe_softmax", V=64, D=32, L=2, H=4, G=2, A=8, B=8, R=8, E=8, K=2, F=12, norm=True, qk_norm=True,
           seed=2, max_norm=100.0),
    Config("moe_sigmoid", V=64, D=32, L=3, H=4, G=1, A=12, B=12, R=4, first_dense=1, Fd=48, E=8, K=2, F=8,
           Fs=20, score="sigmoid", norm=True, scale=2.5, qk_norm=True, eps=1e-5, theta=500.0, seed=3,
           max_norm=0.5),
    Config("moe_widths", V=67, D=40, L=2, H=3, G=1, A=12, B=20, R=12, E=6, K=3, F=14, theta=500.0, seed=4,
           N=37, max_norm=0.5, muon_scale="spectral"),
    Config("window", V=48, D=24, L=3, H=4, G=2, A=8, B=8, R=8, first_dense=3, Fd=32, theta=100.0, seed=5,
           window=5, full_first=1, full_every=3, qk_norm=True),
    Config("mla", V=64, D=32, L=2, H=3, G=3, A=14, B=10, R=8, first_dense=1, Fd=40, E=6, K=2, F=8, Fs=12,
           score="sigmoid", norm=True, scale=1.5, theta=100.0, seed=6, Ck=12, Cq=16, rope_factor=4.0,
           rope_original=16, beta_fast=2.0, beta_slow=0.25, mscale=0.7, mscale_all=1.2,
           muon_scale="match_rms_adamw"),
    Config("mla_window", V=48, D=24, L=2, H=2, G=2, A=12, B=8, R=4, first_dense=2, Fd=32, theta=100.0, seed=7,
           Ck=10, window=6, full_every=2),
    Config("moe_balance", V=48, D=24, L=3, H=2, G=1, A=8, B=8, R=8, first_dense=1, Fd=32, E=8, K=2, F=12, score="sigmoid",
           norm=True, scale=1.5, seed=5, max_norm=100.0, n_group=4, topk_group=2, capacity_factor=1.25,
           aux_loss_sequence=0.3, aux_loss_global=0.7, z_loss=0.05),
    Config("moe_limits", V=48, D=24, L=2, H=2, G=1, A=8, B=8, R=8, E=9, K=2, F=12, scale=2.0, seed=6, max_norm=100.0, N=24,
           n_group=3, topk_group=1, group_score="max", capacity_factor=0.75, drop="position", aux_loss_global=0.4,
           z_loss=0.02),
    Config("qk_clip", V=48, D=24, L=2, H=4, G=2, A=8, B=8, R=8, first_dense=2, Fd=32, theta=100.0, seed=8, qkv_bias=True,
           init_std=0.3, qk_clip=2.5),
    Config("qk_clip_mla", V=48, D=24, L=2, H=3, G=3, A=12, B=8, R=4, first_dense=2, Fd=32, theta=100.0, seed=9, Ck=10, Cq=14,
           init_std=0.3, rope_factor=4.0, rope_original=16, beta_fast=2.0, beta_slow=0.25, mscale=0.7, mscale_all=1.2, qk_clip=3.0),
]
# Not written into fixtures that do not have them.
OPTIONAL = ("window", "full_first", "full_every", "Ck", "Cq", "rope_factor", "rope_original", "beta_fast",
            "beta_slow", "mscale", "mscale_all", "qk_clip")


# ---- Files ----------------------------------------------------------------------------------------------


def write_safetensors(path, tensors, meta):
    """The library's own writer orders metadata at random; this one always gives the same bytes."""
    kinds = {"float32": "F32", "int32": "I32"}
    header, offset, parts = {"__metadata__": {k: str(v) for k, v in meta.items()}}, 0, []
    for name, value in tensors.items():
        raw = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": kinds[value.dtype.name], "shape": list(value.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        parts.append(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    back = safetensors.numpy.load_file(path)
    assert back.keys() == tensors.keys() and all(np.array_equal(back[k], v) for k, v in tensors.items())
    print(f"{path}: {len(tensors)} tensors, {path.stat().st_size} bytes")


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


def f32(value):
    return torch.as_tensor(value).detach().to(torch.float32).numpy().copy()


def i32(value):
    return np.asarray(value, dtype=np.int32)


# ---- Fixtures -------------------------------------------------------------------------------------------


def extra_init(c):
    """Norm weights and biases, which a fresh model has at 1 and 0, moved so that tests see them."""
    out = {}
    for name, shape in ref.shapes(c).items():
        z = ref.rng_normal(ref.rng_key(c.seed, "init/" + name), 0, int(np.prod(shape)))
        if ref.is_buffer(name):
            if c.fixture == "moe_sigmoid":
                out[name] = (0.05 * z).astype(np.float32)
                out[name][5] = -2.0  # below every score: an expert without a token
        elif len(shape) == 1:
            out[name] = ((1 if "norm" in name else 0) + 0.1 * z).astype(np.float32)
    return out


def make_batch(c, step, micro, attempt):
    """One micro-batch: documents of 1 to 17 tokens packed into N; labels are next tokens, some ignored."""
    words = ref.rng_blocks(ref.rng_key(c.seed, f"data/{step}/{micro}/{attempt}"), 0, 2 * c.N)
    stream = iter(np.stack(words, 1).ravel().tolist())
    tokens, labels, begin, pos = [], [], [], []
    while len(tokens) < c.N:
        length, first = min(1 + next(stream) % 17, c.N - len(tokens)), len(tokens)
        document = [next(stream) % c.V for _ in range(length + 1)]
        tokens += document[:-1]
        labels += [-1 if next(stream) % (10 - 6 * micro) == 0 else t for t in document[1:]]
        begin += [first] * length
        pos += range(length)
    return dict(tokens=tokens, labels=labels, begin=begin, pos=pos)


def run_batch(c, params, batch, before=None, tops=None):
    t = {k: torch.tensor(v) for k, v in batch.items()}
    logits, routing = ref.forward(c, params, t["tokens"], t["begin"], t["pos"], before, tops)
    return ref.loss_sum(logits, t["labels"]), routing


def choose_batch(c, params, step, micro):
    """The first candidate whose routing has the margin in every layer and token."""
    for attempt in range(10000):
        batch = make_batch(c, step, micro, attempt)
        with torch.no_grad():
            _, routing = run_batch(c, params, batch)
        if all(r.margin > MARGIN for r in routing.values()):
            return batch
    raise SystemExit(f"{c.fixture}: no batch with margin {MARGIN} for step {step}, micro-batch {micro}")


class TorchOptimizers:
    """torch.optim on a copy of the parameters, with Newton-Schulz in their dtype instead of bf16."""

    def __init__(self, c, params):
        self.params = {n: p.detach().clone().requires_grad_()
                       for n, p in params.items() if not ref.is_buffer(n)}
        self.max_norm = c.max_norm
        own = self.params.items()
        mode = {"spectral": "spectral_unclamped"}.get(c.muon_scale, c.muon_scale)
        rest = [p for n, p in own if not ref.by_muon(n, p)]
        self.adamw = torch.optim.AdamW(
            [{"params": [p for p in rest if p.ndim == 2], "weight_decay": c.weight_decay},
             {"params": [p for p in rest if p.ndim == 1], "weight_decay": 0.0}],
            lr=c.lr, betas=(c.beta1, c.beta2), eps=c.adam_eps, foreach=False)
        self.muon = torch.optim.Muon([p for n, p in own if ref.by_muon(n, p)], lr=c.muon_lr, momentum=c.mu,
                                     weight_decay=c.weight_decay, adjust_lr_fn=mode)

    def step(self, grads):
        for name, p in self.params.items():
            p.grad = grads[name].clone()
        torch.nn.utils.clip_grad_norm_(self.params.values(), self.max_norm, foreach=False)
        self.adamw.step()
        with patch.object(torch, "bfloat16", grads["embed.weight"].dtype):
            self.muon.step()

    def check(self, params):
        for name, p in self.params.items():
            error = relative(params[name].detach(), p.detach())
            assert error < 1e-12, f"{name}: differs from torch.optim by {error}"


def relative(got, want):
    norm = want.double().norm().item()
    return (got.double() - want.double()).norm().item() / (norm if norm > 0 else 1)


AUX = ("aux_loss_sequence", "aux_loss_global", "z_loss")


def aux_part(c, routing):
    """A micro-batch's share of what routers learn besides: each a mean over the step's tokens, summed over the layers."""
    return sum(getattr(c, k) * r.aux[k] for r in routing.values() for k in AUX if getattr(c, k)) / c.micro


def train(c, dtype, overrides, batches=None):
    """Runs the fixture. Without `batches` they are chosen on the way, and torch.optim runs beside."""
    params, state = ref.init_params(c, overrides, dtype), {}
    out = dict(batches=[], losses=[], norms=[], aux=[], tops=[], valid=[], counts=[], grads=None, ids=None, margin=1.0)
    other = None if batches else TorchOptimizers(c, params)
    for step in range(c.steps):
        mine = batches[step] if batches else [choose_batch(c, params, step, i) for i in range(c.micro)]
        valid = sum(label >= 0 for b in mine for label in b["labels"])
        loss, counts, ids, routing, aux, tops = 0.0, {}, {}, None, dict.fromkeys(AUX, 0.0), {}
        for batch in mine:
            part, routing = run_batch(c, params, batch, routing, tops)
            (part / valid + aux_part(c, routing)).backward()
            for k in AUX:
                aux[k] += sum(r.aux[k].item() for r in routing.values()) / (c.micro * max(len(routing), 1))
            loss += part.item() / valid
            for l, r in routing.items():
                counts[l] = counts.get(l, 0) + r.counts
                ids.setdefault(l, []).append(r.ids)
                out["margin"] = min(out["margin"], r.margin)
        grads = {n: torch.zeros_like(p) if p.grad is None else p.grad
                 for n, p in params.items() if not ref.is_buffer(n)}
        if step == 0:
            out["grads"], out["ids"] = {n: g.clone() for n, g in grads.items()}, ids
        if other:
            other.step(grads)
        out["norms"].append(ref.clip(grads, c.max_norm))
        ref.optimizer_step(c, params, grads, state, step + 1, counts)
        if c.qk_clip:
            for same in (params, other.params) if other else (params,):
                ref.qk_clip(c, same, tops)
        out["tops"].append(torch.stack([tops[l] for l in range(c.L)]))
        for p in params.values():
            p.grad = None
        out["batches"].append(mine)
        out["losses"].append(loss)
        out["aux"].append([aux[k] for k in AUX])
        out["valid"].append(valid)
        out["counts"].append(counts)
    if other:
        other.check(params)
    out["params"] = {n: p.detach() for n, p in params.items()}
    return out


def check_float32(c, overrides, exact):
    """How far plain float32 is from the stored numbers: the room a C implementation in float32 has."""
    single = train(c, torch.float32, overrides, exact["batches"])
    for l, ids in exact["ids"].items():
        assert torch.equal(torch.stack(ids), torch.stack(single["ids"][l]))
    worst = {}
    for kind in ("grads", "params"):
        errors = {n: relative(single[kind][n], f) for n, f in exact[kind].items()}
        name = max(errors, key=errors.get)
        worst[kind] = f"{errors[name]:.1e} ({name})"
        assert errors[name] < F32_BOUND, f"{c.fixture}: {kind} of {name}: float32 is off by {errors[name]}"
    print(f"{c.fixture}: margin {exact['margin']:.2e}, losses {[round(x, 4) for x in exact['losses']]}, "
          f"norms {[round(x, 3) for x in exact['norms']]}, float32 error {worst}")


def write_fixture(c, folder):
    overrides = extra_init(c)
    run = train(c, torch.float64, overrides)
    check_float32(c, overrides, run)
    tensors = {k: i32([[b[k] for b in step] for step in run["batches"]])
               for k in ("tokens", "labels", "begin", "pos")}
    tensors["valid"] = i32(run["valid"])
    for step in range(c.steps):
        tensors[f"loss/step{step}"] = np.array([run["losses"][step]], dtype=np.float32)
        tensors[f"grad_norm/step{step}"] = np.array([run["norms"][step]], dtype=np.float32)
        if any(getattr(c, k) for k in AUX):
            tensors[f"aux/step{step}"] = np.array(run["aux"][step], dtype=np.float32)
        if c.qk_clip:
            tensors[f"tops/step{step}"] = f32(run["tops"][step])
    for l, ids in run["ids"].items():
        tensors[f"ids/{l}"] = i32(torch.stack(ids))
        tensors[f"counts/{l}"] = i32(torch.stack([counts[l] for counts in run["counts"]]))
    tensors |= {f"init/{n}": v for n, v in overrides.items()}
    tensors |= {f"grad/{n}": f32(g) for n, g in run["grads"].items()}
    tensors |= {f"after/{n}": f32(p) for n, p in run["params"].items()}
    meta = {k: int(v) if isinstance(v, bool) else v for k, v in dataclasses.asdict(c).items()
            if (k not in OPTIONAL or v != Config.__dataclass_fields__[k].default) and
            (k not in ref.LATER or any(getattr(c, x) != getattr(Config, x) for x in ref.LATER))}
    write_safetensors(folder / f"{c.fixture}.safetensors", tensors, meta)


# ---- Parts ----------------------------------------------------------------------------------------------


def write_muon(folder):
    """Newton-Schulz in float64, and two steps of torch.optim.Muon (bf16 inside) on given gradients."""
    tensors, eye = {}, torch.eye(4, dtype=torch.float64)
    inputs = {f"{r}x{k}": random_matrix(f"ns/{r}x{k}", r, k)
              for r, k in ((24, 24), (48, 16), (16, 48), (7, 33), (33, 7), (1, 20), (20, 1))}
    inputs["rank1"] = random_matrix("ns/a", 12, 1) @ random_matrix("ns/b", 1, 16)
    inputs["tiny"] = random_matrix("ns/tiny", 8, 12) * 1e-10  # norm below the clamp of 1e-7
    inputs["zero"] = 0 * eye
    for name, u in inputs.items():
        stored = u.to(torch.float32)
        tensors[f"ns/{name}/in"] = f32(stored)
        tensors[f"ns/{name}/out"] = f32(ref.newton_schulz(stored.double()))
    mu = 0.95
    for rows, cols in ((32, 32), (48, 16), (16, 48)):
        key, state = f"muon/{rows}x{cols}", {}
        grads = [random_matrix(f"{key}/{s}", rows, cols).to(torch.float32) for s in range(2)]
        for s, g in enumerate(grads):
            tensors[f"{key}/grad{s}"] = f32(g)
            tensors[f"{key}/direction{s}"] = f32(ref.muon_direction(g.double(), state, mu))
        for mode in ("original", "match_rms_adamw", "spectral"):
            updates = torch_muon_updates(grads, mu, mode)
            for s, u in enumerate(updates):
                tensors[f"{key}/{mode}/update{s}"] = f32(u)
                exact = torch.tensor(tensors[f"{key}/direction{s}"]) * ref.muon_scale(mode, rows, cols)
                assert relative(u, exact) < 2e-2, (key, mode, s)
    a, b, c = ref.NS_COEFFICIENTS
    write_safetensors(folder / "muon_ns.safetensors", tensors,
                      {"mu": mu, "a": a, "b": b, "c": c, "ns_steps": ref.NS_STEPS, "ns_eps": ref.NS_EPS})


def random_matrix(name, rows, cols):
    return torch.tensor(ref.rng_normal(ref.rng_key(0, name), 0, rows * cols)).reshape(rows, cols)


def torch_muon_updates(grads, mu, mode):
    """What torch.optim.Muon subtracts at lr 1 without decay: scale * Newton-Schulz(momentum), in float32."""
    p = torch.zeros_like(grads[0], requires_grad=True)
    fn = {"spectral": "spectral_unclamped"}.get(mode, mode)
    optimizer, out = torch.optim.Muon([p], lr=1.0, momentum=mu, weight_decay=0.0, adjust_lr_fn=fn), []
    for g in grads:
        p.data.zero_()
        p.grad = g
        optimizer.step()
        out.append(-p.detach().clone())
    return out


def write_lr_tables(folder):
    keys = ("total", "warmup", "decay_ratio", "shape", "min")
    settings = [(20, 5, 0.4, "linear", 0.0), (20, 5, 0.4, "sqrt", 0.1), (20, 5, 0.4, "cosine", 0.1),
                (10, 2, None, "linear", 0.0), (10, 2, None, "cosine", 0.0), (12, 0, 0.25, "sqrt", 0.0),
                (8, 3, 0.0, "linear", 0.0), (10, 0, 1.0, "linear", 0.05), (6, 6, None, "cosine", 0.0),
                (1, 0, None, "linear", 0.0)]
    tables = [dict(zip(keys, row)) | {"factor": [ref.lr_factor(s, *row) for s in range(row[0])]}
              for row in settings]
    write_json(folder / "lr_table.json", {"tables": tables})


def write_philox(folder):
    # The known answers published with Random123 for philox4x32, 10 rounds.
    known = [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1")]
    for counter, key, out in known:
        got = ref.philox4x32([int(w, 16) for w in counter.split()], [int(w, 16) for w in key.split()])
        assert " ".join(f"{int(w):08x}" for w in got) == out
    streams = []
    for seed, name, first in ((0, "embed.weight", 0), (1234, "layers.0.attn.q.weight", 7),
                              (2**63 + 5, "layers.73.moe.experts.383.down.weight", 2**33 + 1)):
        key = ref.rng_key(seed, name)
        streams.append({"seed": f"{seed:016x}", "name": name, "key": f"{key:016x}", "first": first,
                        "normal": ref.rng_normal(key, first, 6).tolist()})
    write_json(folder / "philox.json", {
        "philox4x32_10": [dict(zip(("counter", "key", "out"), row)) for row in known], "streams": streams})


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    assert torch_muon.DEFAULT_NS_STEPS == ref.NS_STEPS and torch_muon.EPS == ref.NS_EPS
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden")
    folder.mkdir(parents=True, exist_ok=True)
    for c in FIXTURES:
        write_fixture(c, folder)
    write_muon(folder)
    write_lr_tables(folder)
    write_philox(folder)


if __name__ == "__main__":
    main()
