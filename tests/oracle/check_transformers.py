"""Compares golden loss and gradients with models of the transformers library, which share no code with ours.

Usage: check_transformers.py [GOLDEN_DIR], after pip install transformers==5.24.0. Needs no network.
Not covered: moe_widths, since no family there has separate key and value widths with plain GQA."""
import sys
from pathlib import Path

import safetensors
import torch
import transformers

import moe_reference as ref

BOUND = 1e-5  # float32 on their side


def load(path):
    with safetensors.safe_open(path, "pt") as f:
        meta, tensors = f.metadata(), {k: f.get_tensor(k) for k in f.keys()}
    fields = ref.Config.__dataclass_fields__
    parse = {int: int, float: float, str: str, bool: lambda v: v == "1"}
    c = ref.Config(**{k: parse[fields[k].type](v) for k, v in meta.items()})
    extra = {k[5:]: v.numpy() for k, v in tensors.items() if k.startswith("init/")}
    return c, tensors, ref.init_params(c, extra, torch.float32)


def build(c):
    common = dict(
        vocab_size=c.V, hidden_size=c.D, num_hidden_layers=c.L, num_attention_heads=c.H,
        num_key_value_heads=c.G, head_dim=c.A, rms_norm_eps=c.eps, tie_word_embeddings=c.tied,
        intermediate_size=c.Fd or 1,
        rope_parameters=dict(rope_type="default", rope_theta=c.theta, partial_rotary_factor=c.R / c.A))
    if c.fixture == "dense":
        config = transformers.Qwen2Config(**common)
    elif c.fixture == "window":
        near = [ref.window_of(c, l) > 0 for l in range(c.L)]
        common.pop("head_dim")
        config = transformers.Qwen3Config(
            **common, head_dim=c.A, use_sliding_window=True, sliding_window=c.window,
            layer_types=["sliding_attention" if n else "full_attention" for n in near])
    elif c.fixture == "moe_softmax":
        config = transformers.Qwen3MoeConfig(**common, num_experts=c.E, num_experts_per_tok=c.K,
                                             moe_intermediate_size=c.F, norm_topk_prob=c.norm)
    else:
        config = transformers.Glm4MoeConfig(
            **common, n_routed_experts=c.E, num_experts_per_tok=c.K, moe_intermediate_size=c.F, n_group=1,
            topk_group=1, norm_topk_prob=c.norm, routed_scaling_factor=c.scale, use_qk_norm=c.qk_norm,
            attention_bias=False, first_k_dense_replace=c.first_dense)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32,
                                                          attn_implementation="eager")
    for layer in model.model.layers:
        if c.Fs and hasattr(layer.mlp, "shared_experts"):  # theirs is a multiple of F wide
            layer.mlp.shared_experts = type(layer.mlp.shared_experts)(config, intermediate_size=c.Fs)
    return model


def twins(c, model):
    """Pairs (our name, their tensor, index into it)."""
    for name in ref.shapes(c):
        if ".experts." in name:
            p, e, part = name.split(".experts.")[0], *name.split(".experts.")[1].split(".")[:2]
            experts = model.get_submodule(f"model.{p.replace('.moe', '.mlp')}.experts")
            rows = {"gate": slice(0, c.F), "up": slice(c.F, 2 * c.F), "down": slice(None)}[part]
            yield name, experts.down_proj if part == "down" else experts.gate_up_proj, (int(e), rows)
            continue
        theirs = f"model.{name}" if not name.startswith("head") else name.replace("head", "lm_head")
        for old, new in (("embed.", "embed_tokens."), ("attn_norm", "input_layernorm"),
                         ("ffn_norm", "post_attention_layernorm"), (".attn.", ".self_attn."),
                         (".moe.router.bias", ".mlp.gate.e_score_correction_bias"),
                         (".moe.router.", ".mlp.gate."), (".moe.shared.", ".mlp.shared_experts.")):
            theirs = theirs.replace(old, new)
        if ".router." not in name:
            for x in ("q", "k", "v", "o", "gate", "up", "down"):
                theirs = theirs.replace(f".{x}.", f".{x}_proj.")
        state = dict(model.named_parameters()) | dict(model.named_buffers())
        if theirs in state:
            yield name, state[theirs], ...
        else:
            assert ref.is_buffer(name), f"{name}: no {theirs} in {model.config.model_type}"


def step0(c, t, model):
    """Loss of the first step with each document run alone; leaves the gradients in the model."""
    total = torch.zeros(())
    for i in range(c.micro):
        tokens, labels, begin = (t[k][0, i].long() for k in ("tokens", "labels", "begin"))
        for first in begin.unique():
            of = begin == first
            total = total + ref.loss_sum(model(tokens[of][None]).logits[0], labels[of])
    loss = total / t["valid"][0]
    loss.backward()
    return loss.item()


def check(path):
    c, tensors, params = load(path)
    model = build(c)
    seen = set()
    with torch.no_grad():
        for name, tensor, index in twins(c, model):
            tensor[index] = params[name]
            seen.add(name)
    worst = abs(step0(c, tensors, model) / tensors["loss/step0"].item() - 1)
    for name, tensor, index in twins(c, model):
        if ref.is_buffer(name):
            continue
        want = tensors["grad/" + name]
        norm = want.norm().item()
        worst = max(worst, (tensor.grad[index] - want).norm().item() / (norm if norm > 0 else 1))
    left = [n for n in ref.shapes(c) if n not in seen] or "none"
    print(f"{c.fixture}: {model.config.model_type}, {len(seen)} tensors, worst {worst:.1e}, missing: {left}")
    assert worst < BOUND


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden")
    for fixture in ("dense", "moe_softmax", "moe_sigmoid", "window"):
        check(folder / f"{fixture}.safetensors")
