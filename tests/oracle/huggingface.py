"""Random tiny models of the transformers library as folders, with their logits and loss.

Usage, after pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0 (no network needed):
  huggingface.py golden             writes tests/golden/huggingface
  huggingface.py make FOLDER SEED   each family in several forms, under FOLDER
  huggingface.py check EXPORTED ORIGINAL ...   exported folders, opened by transformers, give the originals' logits
  huggingface.py loss FOLDER TEXT   mean loss of a model whose tokens are bytes, over windows of 64
Each folder holds a model and expected.safetensors: tokens I32 [T], logits F32 [T, V], loss F32 [1], all computed in f32."""
import json
import sys
import warnings
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

TOKENS = 24
SMALL = dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
             intermediate_size=24, max_position_embeddings=64)
LATENT = {k: v for k, v in SMALL.items() if k != "head_dim"} | dict(
    num_key_value_heads=4, kv_lora_rank=10, qk_rope_head_dim=8, qk_nope_head_dim=6, v_head_dim=10, n_routed_experts=6,
    num_experts_per_tok=2, moe_intermediate_size=8, n_group=1, topk_group=1)
FAMILIES = dict(
    qwen3_moe=transformers.Qwen3MoeConfig(**SMALL, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=8,
                                          norm_topk_prob=True, mlp_only_layers=[0]),
    mixtral=transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2),
    glm4_moe=transformers.Glm4MoeConfig(**SMALL, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=8,
                                        n_shared_experts=2, n_group=2, topk_group=1, first_k_dense_replace=1,
                                        routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True),
    qwen3=transformers.Qwen3Config(**SMALL, tie_word_embeddings=True),
    qwen2=transformers.Qwen2Config(**SMALL),
    llama=transformers.LlamaConfig(**SMALL),
    deepseek_v3=transformers.DeepseekV3Config(
        **LATENT, q_lora_rank=12, first_k_dense_replace=1, n_shared_experts=2, routed_scaling_factor=1.5,
        rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16,
                             beta_fast=2.0, beta_slow=0.25, mscale=0.7, mscale_all_dim=1.2)),
    deepseek_v3_plain=transformers.DeepseekV3Config(**LATENT, q_lora_rank=None, first_k_dense_replace=0),
    qwen3_window=transformers.Qwen3Config(
        **SMALL, use_sliding_window=True, sliding_window=7, max_window_layers=1,
        rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=2.0, original_max_position_embeddings=32)),
    mixtral_window=transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2, sliding_window=5))


def old_keys(folder):
    """config.json as transformers 4 writes it."""
    path = folder / "config.json"
    c = json.loads(path.read_text())
    rope = c.pop("rope_parameters")
    scaling = dict(type=rope.pop("rope_type"))
    at_top = {k: rope.pop(k) for k in ("rope_theta", "partial_rotary_factor") if k in rope}
    c |= at_top | dict(torch_dtype=c.pop("dtype"), rope_scaling=scaling | rope if rope else None)
    c.pop("layer_types", None)
    if "num_local_experts" in c and c["model_type"] == "qwen3_moe":
        c["num_experts"] = c.pop("num_local_experts")
    path.write_text(json.dumps(c, indent=2))


def surplus(folder):
    """Tensors that published files hold beside the model: a prediction layer behind the last, rotary frequencies."""
    path = folder / "model.safetensors"
    t = load_file(path)
    t["model.layers.2.eh_proj.weight"] = torch.ones(16, 32)
    t["model.layers.2.self_attn.q_proj.weight"] = torch.ones(32, 16)
    t["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(t, path, metadata=dict(format="pt"))


FORMS = dict(
    shards=(torch.float32, dict(max_shard_size="6KB"), None),
    fused=(torch.float32, dict(save_original_format=False), surplus),
    half=(torch.float16, {}, old_keys),
    bf16=(torch.bfloat16, {}, None))
GOLDEN = dict(qwen3_moe="shards", mixtral="bf16", glm4_moe="fused", qwen3="half", qwen2="bf16", llama="half",
              deepseek_v3="half", deepseek_v3_plain="shards", qwen3_window="bf16")


def random_model(config, dtype):
    """Weights large enough that logits differ and routes are decided; exact in dtype."""
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + list(model.named_buffers()):
            if "inv_freq" in name:
                continue
            if "norm" in name:
                p.copy_(1 + 0.2 * torch.randn_like(p))
            elif "bias" in name:
                p.copy_(0.2 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * (1 if "embed" in name else 1.5 / p.shape[-1] ** 0.5))
            p.copy_(p.to(dtype).float())
    return model.eval()


def answers(model, tokens):
    with torch.no_grad():
        out = model(tokens[None].long(), labels=tokens[None].long())
    return out.logits[0].contiguous(), out.loss.reshape(1)


def make(folder, family, form, seed):
    dtype, options, after = FORMS[form]
    torch.manual_seed(seed)
    model = random_model(FAMILIES[family], dtype)
    tokens = torch.randint(0, SMALL["vocab_size"], (TOKENS,), dtype=torch.int32)
    logits, loss = answers(model, tokens)
    model.to(dtype).save_pretrained(folder, **options)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if after:
        after(folder)
    save_file(dict(tokens=tokens, logits=logits, loss=loss), folder / "expected.safetensors")
    print(f"{folder}: loss {loss.item():.6f}, logits up to {logits.abs().max():.3f}")


def check(exported, original):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        exported, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    left = {k: v for k, v in info.items() if v}
    want = load_file(Path(original) / "expected.safetensors")
    logits, loss = answers(model.eval(), want["tokens"])
    worst = (logits - want["logits"]).abs().max().item()
    print(f"{exported}: {model.config.model_type}, worst logit {worst:.1e}, loading info: {left or 'empty'}")
    return not left and worst <= 1e-4 and abs(loss.item() - want["loss"].item()) <= 1e-4


def loss_of(folder, text):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    data = torch.tensor(list(Path(text).read_bytes()))
    windows = data[:len(data) // 64 * 64].view(-1, 64)
    return sum(answers(model, w)[1].item() for w in windows) / len(windows)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if sys.argv[1:] == ["golden"]:
        for i, (family, form) in enumerate(GOLDEN.items()):
            make(Path(__file__).parent.parent / "golden" / "huggingface" / family, family, form, i)
    elif len(sys.argv) == 4 and sys.argv[1] == "make":
        for i, family in enumerate(FAMILIES):
            for k, form in enumerate(FORMS):
                make(Path(sys.argv[2]) / f"{family}-{form}", family, form, int(sys.argv[3]) + 10 * i + k)
    elif len(sys.argv) >= 4 and sys.argv[1] == "check":
        pairs = list(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
        sys.exit(not all([check(*pair) for pair in pairs]))
    elif len(sys.argv) == 4 and sys.argv[1] == "loss":
        print(f"{loss_of(*sys.argv[2:]):.6f}")
    else:
        sys.exit(__doc__)
