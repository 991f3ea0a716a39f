/* Options that follow others, and the rules between options. */
#include "helper.h"

static mt_config c;

TEST(zeros_follow_other_options)
{
    CHECK_STR(OVERRIDE(&c, "model.head_dim=48"), "");
    CHECK_INT(c.model_v_head_dim, 48);
    CHECK_INT(c.model_rotary_dims, 48);
    CHECK_INT(c.model_first_dense, c.model_layers);
    CHECK_INT(c.origin[MT_OPTION_model_v_head_dim].from, MT_FROM_OTHER);
    CHECK_STR(OVERRIDE(&c, "model.head_dim=48", "model.v_head_dim=32", "model.rotary_dims=16"), "");
    CHECK_INT(c.model_v_head_dim, 32);
    CHECK_INT(c.model_rotary_dims, 16);
    CHECK_STR(OVERRIDE(&c, "model.experts=4", "model.top_k=2", "model.expert_ffn=8"), "");
    CHECK_INT(c.model_first_dense, 0);
}

static const struct {
    const char *text, *message;
} refused[] = {
    {"ckpt.export_dir: hf\nwatchdog.save: 10s\n",
     "ckpt.export_wait (default): 300 s is not less than watchdog.save, which is 10 s"},
    {"model.heads: 6\nmodel.kv_heads: 4\n",
     "t.yaml:2:17: model.kv_heads: 4 does not divide model.heads, which is 6"},
    {"model.heads: 2\n", "model.kv_heads (default): 4 does not divide model.heads, which is 2"},
    {"model.rotary_dims: 7\n", "t.yaml:1:20: model.rotary_dims: 7 is odd: dimensions are rotated in pairs"},
    {"model.head_dim: 7\n",
     "model.rotary_dims (from another option): 7 is odd: dimensions are rotated in pairs"},
    {"model.rotary_dims: 66\n",
     "t.yaml:1:20: model.rotary_dims: 66 is more than model.head_dim, which is 64"},
    {"model.attention: mla\n",
     "model.kv_lora_rank (default): needs 1 or more, as model.attention is mla: 512 in DeepSeek-V3"},
    {"model.kv_lora_rank: 8\n",
     "t.yaml:1:21: model.kv_lora_rank: 8, but model.attention is gqa: set it to mla, or this to 0"},
    {"model.q_lora_rank: 8\n",
     "t.yaml:1:20: model.q_lora_rank: 8, but model.attention is gqa: set it to mla, or this to 0"},
    {"model: {attention: mla, kv_lora_rank: 8, kv_heads: 2}\n",
     "t.yaml:1:52: model.kv_heads: 2, but with model.attention: mla every query head has a key of its own: "
     "set it "
     "to model.heads, 4"},
    {"model: {attention: mla, kv_lora_rank: 8}\n",
     "model.rotary_dims (from another option): 64 leaves nothing of model.head_dim, which is 64, for what "
     "mla "
     "projects from the compressed state: set this to the width of the shared key"},
    {"model: {attention: mla, kv_lora_rank: 8, rotary_dims: 8, qk_norm: true}\n",
     "t.yaml:1:67: model.qk_norm: true, but model.attention is mla, which has norms of its compressed states "
     "instead: set this to false"},
    {"model: {attention: mla, kv_lora_rank: 8, rotary_dims: 8, attn_bias: true}\n",
     "t.yaml:1:69: model.attn_bias: true, but model.attention is mla, whose projections have no biases here: "
     "set "
     "this to false"},
    {"model.rope_beta_slow: 40\n",
     "model.rope_beta_fast (default): 32 is not above model.rope_beta_slow, which is 40"},
    {"model: {rope_factor: 2, rope_theta: 1}\n",
     "t.yaml:1:22: model.rope_factor: 2, but model.rope_theta is 1: all frequencies are equal"},
    {"model.window_full_first: 1\n", "t.yaml:1:26: model.window_full_first: 1, but model.window is 0: no "
                                     "layer has a window; set both or neither"},
    {"model: {window: 8, window_full_first: 4}\n",
     "t.yaml:1:39: model.window_full_first: 4 leaves no layer with a window: there are 4"},
    {"model.window_full_every: 2\n", "t.yaml:1:26: model.window_full_every: 2, but model.window is 0: no "
                                     "layer has a window; set both or neither"},
    {"model: {window: 8, window_full_every: 1}\n", "t.yaml:1:39: model.window_full_every: 1 leaves no layer "
                                                   "with a window: set model.window to 0, or this to 2 "
                                                   "or more"},
    {"model.first_dense: 5\n", "t.yaml:1:20: model.first_dense: 5 is more than model.layers, which is 4"},
    {"model: {experts: 8, top_k: 2, expert_ffn: 8, first_dense: 4}\n",
     "t.yaml:1:59: model.first_dense: all 4 layers are dense, so nothing uses model.experts: 8; lower one or "
     "set "
     "experts to 0"},
    {"model.first_dense: 2\n",
     "t.yaml:1:20: model.first_dense: 2 of 4 layers are dense and the rest have no experts: "
     "set model.experts, or this to 0"},
    {"wire.gather_experts: f32\n", "t.yaml:1:22: wire.gather_experts: f32, but the working weights are "
                                   "train.dtype: bf16; set it to auto or fp8"},
    {"train.dtype: f32\nwire.gather_dense: bf16\n", "t.yaml:2:20: wire.gather_dense: bf16, but the working "
                                                    "weights are train.dtype: f32; set it to auto or fp8"},
    {"muon.coefficients: cans\n",
     "t.yaml:1:20: muon.coefficients: cans diverges with muon.dtype: bf16, whose rounding "
     "leads out of where it contracts; set muon.dtype: f32, or polar_express here"},
    {"model.experts: 8\n", "model.top_k (default): needs 1 or more, as model.experts is 8"},
    {"model: {experts: 8, top_k: 9, expert_ffn: 8}\n",
     "t.yaml:1:28: model.top_k: 9 is more than model.experts, which is 8"},
    {"model.top_k: 2\n", "t.yaml:1:14: model.top_k: 2 is more than model.experts, which is 0"},
    {"model: {experts: 8, top_k: 2}\n", "model.expert_ffn (default): needs 1 or more, as model.experts is 8"},
    {"model.expert_ffn: 2\n",
     "t.yaml:1:19: model.expert_ffn: 2, but model.experts is 0: set both or neither"},
    {"model.shared_ffn: 2\n",
     "t.yaml:1:19: model.shared_ffn: 2, but model.experts is 0: a shared expert stands beside routed ones"},
    {"model.bias_rate: 0.1\n", "t.yaml:1:18: model.bias_rate: 0.1, but model.experts is 0"},
    {"moe.z_loss: 0.1\n", "t.yaml:1:13: moe.z_loss: 0.1, but model.experts is 0"},
    {"moe.aux_loss_sequence: 0.1\n", "t.yaml:1:24: moe.aux_loss_sequence: 0.1, but model.experts is 0"},
    {"moe.aux_loss_global: 0.1\n", "t.yaml:1:22: moe.aux_loss_global: 0.1, but model.experts is 0"},
    {"moe.capacity_factor: 2\n", "t.yaml:1:22: moe.capacity_factor: 2, but model.experts is 0"},
    {"model.n_group: 2\n", "t.yaml:1:16: model.n_group: 2, but model.experts is 0: set it to 1"},
    {"model: {experts: 8, top_k: 2, expert_ffn: 8, n_group: 3}\n",
     "t.yaml:1:55: model.n_group: 3 does not divide model.experts, which is 8"},
    {"model: {experts: 8, top_k: 2, expert_ffn: 8, n_group: 2, topk_group: 3}\n",
     "t.yaml:1:70: model.topk_group: 3 is more than model.n_group, which is 2"},
    {"model: {experts: 8, top_k: 5, expert_ffn: 8, n_group: 4, topk_group: 2}\n",
     "t.yaml:1:70: model.topk_group: 2 groups of 2 experts are fewer than model.top_k, which is 5"},
    {"model: {experts: 8, top_k: 2, expert_ffn: 8, n_group: 8, topk_group: 4}\n",
     "model.group_score (default): top2, but model.n_group: 8 leaves groups of one of the 8 experts; set it "
     "to max"},
    {"model: {experts: 64Ki, top_k: 2, expert_ffn: 1Mi, dim: 128Ki}\n",
     "t.yaml:1:18: model.experts: the experts have more than 1e15 parameters: check model.layers, model.dim "
     "and "
     "model.expert_ffn"},
    {"train: {seq_len: 1Mi, global_batch: 2Ki, micro_batch: 2Ki}\n",
     "t.yaml:1:18: train.seq_len: 1048576 times train.micro_batch, which is 2048, is more than 1Gi tokens at "
     "a time"},
    {"train: {global_batch: 8, micro_batch: 3}\n",
     "t.yaml:1:23: train.global_batch: 8 is no multiple of train.micro_batch, which is 3"},
    {"mesh.ep: 2\n", "t.yaml:1:10: mesh.ep: 2, but model.experts is 0: set it to 1"},
    {"model: {experts: 8, top_k: 2, expert_ffn: 8}\nmesh.ep: 3\n",
     "t.yaml:2:10: mesh.ep: 3 does not divide model.experts, which is 8"},
    {"train.steps: 50\n",
     "optim.warmup_steps (default): 100 and the decay (optim.decay_ratio: 0.2) take more than "
     "train.steps, which is 50"},
    {"data.eod: 256\n", "t.yaml:1:11: data.eod: 256 is no token: model.vocab is 256"},
    {"data.valid_fraction: 0\n",
     "t.yaml:1:22: data.valid_fraction: 0 leaves nothing to validate on: set it, set "
     "data.valid, or set train.eval_interval (100) to 0"},
    {"run.dir: ''\n", "t.yaml:1:10: run.dir: is empty: name the folder the run writes to"},
};

TEST(rules)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK_STR(parse(&c, refused[i].text), refused[i].message);
    CHECK_STR(OVERRIDE(&c, "model.kv_heads=3"),
              "command line: model.kv_heads: 3 does not divide model.heads, which is 4");
}

/* Just inside of each rule. */
TEST(limits_of_rules)
{
    /* Without exports their deadline binds nobody. */
    static mt_config none;
    CHECK_STR(parse(&none, "watchdog.save: 10s\n"), "");

    CHECK_STR(OVERRIDE(&c, "train.steps=125"), "");
    CHECK_STR(OVERRIDE(&c, "data.eod=255"), "");
    CHECK_STR(OVERRIDE(&c, "data.valid_fraction=0", "train.eval_interval=0"), "");
    CHECK_STR(OVERRIDE(&c, "data.valid_fraction=0", "data.valid=x"), "");
    CHECK_STR(OVERRIDE(&c, "model.first_dense=4"), "");
    CHECK_STR(OVERRIDE(&c, "model.experts=8", "model.top_k=8", "model.expert_ffn=1", "model.first_dense=3",
                       "mesh.ep=8", "model.shared_ffn=1", "model.bias_rate=0.1"),
              "");
}

static const char *world(int64_t n)
{
    static mt_err e;
    e = (mt_err){0};
    mt_status s = mt_config_check_world(&c, n, &e);
    CHECK_INT(s, e.code);
    return e.msg;
}

TEST(rules_of_the_world)
{
    CHECK_STR(OVERRIDE(&c, "train.global_batch=24", "train.micro_batch=2", "model.experts=8", "model.top_k=1",
                       "model.expert_ffn=8", "mesh.ep=2", "mesh.replicas=2"),
              "");
    CHECK_STR(world(4), "");
    CHECK_STR(world(12), "");
    CHECK_STR(world(1), "command line: mesh.replicas: 2 does not divide the 1 ranks");
    CHECK_STR(world(6), "command line: mesh.ep: 2 does not divide the 3 ranks of a replica");
    CHECK_STR(
        world(8),
        "command line: train.global_batch: 24 is no multiple of train.micro_batch * ranks, which is 2 * 8");
}

int main(void)
{
    RUN(zeros_follow_other_options);
    RUN(rules);
    RUN(limits_of_rules);
    RUN(rules_of_the_world);
    return DONE();
}
