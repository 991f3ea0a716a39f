/* test: timeout=120 variants=release,asan,aarch64,tsan
 *
 * The whole step against PyTorch: loss, gradient norm, every gradient of the first step and every parameter after three
 * steps of Muon and AdamW, f32, for a dense model and three mixtures of experts (tests/oracle). */
#include "check.h"
#include "ckpt/items.h"
#include "golden.h"
#include "train/session.h"

struct fixture {
    struct golden g;
    mt_config cfg;
    struct mt_session s;
    struct mt_ckpt_items masters;
};

static void put(char *out, size_t size, const char *key, const char *value)
{
    snprintf(out, size, "%s=%s", key, value);
}

/* The fixture's metadata as overrides of the configuration. */
static mt_status configure(struct fixture *f, const char *isa, const char *factor, mt_err *e)
{
    static const struct {
        const char *option, *meta;
    } number[] = {
        {"model.vocab", "V"},
        {"model.dim", "D"},
        {"model.layers", "L"},
        {"model.heads", "H"},
        {"model.kv_heads", "G"},
        {"model.head_dim", "A"},
        {"model.v_head_dim", "B"},
        {"model.rotary_dims", "R"},
        {"model.rope_theta", "theta"},
        {"model.norm_eps", "eps"},
        {"model.experts", "E"},
        {"model.top_k", "K"},
        {"model.expert_ffn", "F"},
        {"model.ffn", "Fd"},
        {"model.shared_ffn", "Fs"},
        {"model.first_dense", "first_dense"},
        {"model.route_scale", "scale"},
        {"model.init_std", "init_std"},
        {"model.bias_rate", "bias_rate"},
        {"train.seq_len", "N"},
        {"train.global_batch", "micro"},
        {"train.seed", "seed"},
        {"optim.lr", "lr"},
        {"adamw.beta1", "beta1"},
        {"adamw.beta2", "beta2"},
        {"adamw.eps", "adam_eps"},
        {"muon.momentum", "mu"},
        {"optim.weight_decay", "weight_decay"},
        {"optim.clip", "max_norm"},
        {"muon.scale", "muon_scale"},
        {"model.score", "score"},
    };
    /* In fixtures that have them. */
    static const struct {
        const char *option, *meta;
    } optional[] = {{"model.window", "window"},
                    {"model.window_full_first", "full_first"},
                    {"model.window_full_every", "full_every"},
                    {"model.kv_lora_rank", "Ck"},
                    {"model.q_lora_rank", "Cq"},
                    {"model.rope_factor", "rope_factor"},
                    {"model.rope_original", "rope_original"},
                    {"model.rope_beta_fast", "beta_fast"},
                    {"model.rope_beta_slow", "beta_slow"},
                    {"model.rope_mscale", "mscale"},
                    {"model.rope_mscale_all", "mscale_all"},
                    {"optim.qk_clip", "qk_clip"}};
    static const struct {
        const char *option, *meta;
    } flag[] = {{"model.qk_norm", "qk_norm"},
                {"model.attn_bias", "qkv_bias"},
                {"model.route_norm", "norm"},
                {"model.tied", "tied"}};
    static char text[80][160];
    char *arg[80];
    int n = 0;
    bool moe = golden_meta_int(&f->g, "E") > 0;
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++) {
        const char *value = golden_meta(&f->g, number[i].meta);
        if ((!strcmp(number[i].option, "model.ffn") && !strcmp(value, "0")) ||
            (!strcmp(number[i].option, "model.bias_rate") && !moe))
            continue;
        put(text[n++], sizeof text[0], number[i].option, value);
    }
    for (size_t i = 0; i < sizeof flag / sizeof flag[0]; i++)
        put(text[n++], sizeof text[0], flag[i].option,
            golden_meta(&f->g, flag[i].meta)[0] == '1' ? "true" : "false");
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        if (golden_has_meta(&f->g, optional[i].meta))
            put(text[n++], sizeof text[0], optional[i].option, golden_meta(&f->g, optional[i].meta));
    put(text[n++], sizeof text[0], "model.attention", golden_has_meta(&f->g, "Ck") ? "mla" : "gqa");
    static const char *const router[][2] = {{"model.n_group", "n_group"},
                                            {"model.topk_group", "topk_group"},
                                            {"model.group_score", "group_score"},
                                            {"moe.capacity_factor", "capacity_factor"},
                                            {"moe.drop", "drop"},
                                            {"moe.aux_loss_sequence", "aux_loss_sequence"},
                                            {"moe.aux_loss_global", "aux_loss_global"},
                                            {"moe.z_loss", "z_loss"}};
    for (int i = 0; i < 8 && golden_find(&f->g, "aux/step0"); i++)
        put(text[n++], sizeof text[0], router[i][0], golden_meta(&f->g, router[i][1]));
    put(text[n++], sizeof text[0], "train.dtype", "f32");
    put(text[n++], sizeof text[0], "device.isa", isa);
    put(text[n++], sizeof text[0], "moe.buffer_factor", factor);
    put(text[n++], sizeof text[0], "train.loss_chunk", "20"); /* does not divide the tokens */
    put(text[n++], sizeof text[0], "optim.warmup_steps", "0");
    put(text[n++], sizeof text[0], "optim.decay_ratio", "0");
    for (int i = 0; i < n; i++) arg[i] = text[i];
    MT_TRY(mt_config_load(&f->cfg, NULL, n, arg, e));
    /* The oracle decays every matrix and no vector, and Muon has a rate of its own. */
    static const struct {
        const char *match;
        mt_choice_optimizer optimizer;
        double decay;
    } group[] = {{"*norm.weight", MT_OPTIMIZER_ADAMW, 0},     {"*.bias", MT_OPTIMIZER_ADAMW, 0},
                 {"embed.weight", MT_OPTIMIZER_ADAMW, -1},    {"head.weight", MT_OPTIMIZER_ADAMW, -1},
                 {"*.router.weight", MT_OPTIMIZER_ADAMW, -1}, {"*", MT_OPTIMIZER_MUON, -1}};
    f->cfg.optim_groups_count = 6;
    for (int i = 0; i < 6; i++) {
        f->cfg.optim_groups[i] = (mt_optim_group){
            .optimizer = group[i].optimizer, .lr_scale = 1, .weight_decay = group[i].decay, .optional = true};
        snprintf(f->cfg.optim_groups[i].match, sizeof f->cfg.optim_groups[i].match, "%s", group[i].match);
    }
    f->cfg.optim_groups[5].lr_scale = golden_meta_num(&f->g, "muon_lr") / golden_meta_num(&f->g, "lr");
    return MT_OK;
}

static mt_status open_fixture(struct fixture *f, const char *name, const char *isa, const char *factor,
                              mt_err *e)
{
    memset(f, 0, sizeof *f);
    MT_REQUIRE(golden_open(&f->g, name), e, MT_DATA, "cannot open %s", name);
    MT_TRY(configure(f, isa, factor, e));
    MT_TRY(mt_session_open(&f->s, &f->cfg, 1, false, e));
    MT_TRY(mt_session_run(&f->s, mt_fill_step, e));
    MT_TRY(mt_session_items(&f->s, &f->masters, e));
    for (int64_t i = 0; i < f->masters.n; i++) {
        char init[160];
        snprintf(init, sizeof init, "init/%s", f->masters.item[i].name);
        const struct golden_tensor *t = golden_find(&f->g, init);
        if (t)
            memcpy(f->masters.piece[f->masters.item[i].first].data, t->data,
                   (size_t)mt_ckpt_item_bytes(&f->masters.item[i]));
    }
    return mt_session_run(&f->s, mt_pack_step, e);
}

static void close_fixture(struct fixture *f)
{
    mt_ckpt_items_close(&f->masters);
    mt_session_close(&f->s);
    golden_close(&f->g);
}

static void batch(struct fixture *f, int64_t step)
{
    const struct mt_batch *h = &f->s.rank[0].model.host;
    static const char *const name[] = {"tokens", "labels", "begin", "pos"};
    mt_view v[] = {h->tokens, h->labels, h->begin, h->pos};
    int64_t n = h->tokens.dim[0];
    for (int i = 0; i < 4; i++) {
        int32_t *out = mt_address(&f->s.rank[0].ctx, v[i]);
        memcpy(out, golden_i32(&f->g, name[i], 3 * n) + step * n, (size_t)n * 4);
    }
}

/* Every tensor of the fixture whose name begins with `front`, against state `what`. */
static int compare(struct fixture *f, const char *front, enum mt_state what, double tol)
{
    const struct mt_store *s = &f->s.rank[0].model.store;
    int n = 0;
    for (int t = 0; t < s->n_tensors; t++)
        for (int64_t i = 0; i < mt_store_local(s, t).parts; i++, n++) {
            char name[96], full[128];
            mt_view v = mt_view_part(mt_store_local_state(s, t, what), i, 1);
            mt_param_name(&s->tensor[t], i, name);
            snprintf(full, sizeof full, "%s/%s", front, name);
            const float *want = golden_f32(&f->g, full, mt_view_count(v));
            double rel = want ? check_rel(mt_address(&f->s.rank[0].ctx, v), want, mt_view_count(v))
                              : (double)NAN;
            if (!(rel <= tol)) printf("  %s: %.3g\n", full, rel);
            CHECK(rel <= tol);
        }
    return n;
}

/* What routers learn besides, as means; those without a coefficient are not computed. */
static void check_aux(const struct fixture *f, int64_t step)
{
    char key[32];
    const struct mt_model *m = &f->s.rank[0].model;
    double n = (double)(m->opt.micro_batches * m->shape.N * (m->shape.L - m->shape.first_dense));
    snprintf(key, sizeof key, "aux/step%lld", (long long)step);
    const float *want = golden_find(&f->g, key) ? golden_f32(&f->g, key, MT_N_AUX) : NULL;
    for (int i = 0; i < MT_N_AUX && want; i++)
        CHECK_CLOSE(f->s.rank[0].step.aux[i] / n, m->opt.aux[i] > 0 ? (double)want[i] : 0, 1e-5);
}

/* Largest scores of heads, and that of all. Some heads are above the bound, some below. */
static void check_tops(const struct fixture *f, int64_t step)
{
    char key[32];
    const struct mt_model *m = &f->s.rank[0].model;
    const int64_t n = m->shape.L * m->shape.H;
    int64_t above = 0;
    float most = -INFINITY;
    snprintf(key, sizeof key, "tops/step%lld", (long long)step);
    const float *want = golden_find(&f->g, key) ? golden_f32(&f->g, key, n) : NULL;
    if (!CHECK_INT(m->opt.tops, want != NULL) || !want) return;
    const float *got = mt_address(&f->s.rank[0].ctx, m->top_most);
    for (int64_t i = 0; i < n; i++) {
        CHECK_CLOSE((double)got[i] / (double)want[i], 1, 1e-5);
        above += (double)want[i] > f->cfg.optim_qk_clip;
        most = want[i] > most ? want[i] : most;
    }
    CHECK(above > 0 && (step == 0 || above < n));
    CHECK_CLOSE((double)f->s.rank[0].step.top / (double)most, 1, 1e-5);
}

static void run_fixture(const char *name, const char *isa, const char *factor)
{
    struct fixture f;
    mt_err e = {0};
    if (!CHECK(open_fixture(&f, name, isa, factor, &e) == MT_OK)) {
        printf("  %s\n", e.msg);
        return;
    }
    for (int64_t step = 0; step < 3; step++) {
        char key[32];
        batch(&f, step);
        f.s.rank[0].step.step = step;
        CHECK_INT(mt_session_run(&f.s, mt_train_step, &e), MT_OK);
        CHECK(f.s.rank[0].step.updated);
        snprintf(key, sizeof key, "loss/step%lld", (long long)step);
        CHECK_CLOSE(f.s.rank[0].step.loss / (double)f.s.rank[0].step.valid, golden_f32(&f.g, key, 1)[0],
                    1e-5);
        snprintf(key, sizeof key, "grad_norm/step%lld", (long long)step);
        CHECK_CLOSE(f.s.rank[0].step.norm / (double)golden_f32(&f.g, key, 1)[0], 1, 1e-5);
        check_aux(&f, step);
        check_tops(&f, step);
        if (step == 0) CHECK(compare(&f, "grad", MT_STATE_GRAD, 1e-5) > 10);
    }
    compare(&f, "after", MT_STATE_MASTER, 1e-5);
    for (int64_t i = 0; i < f.masters.n; i++)
        if (strstr(f.masters.item[i].name, "moe.router.bias")) {
            char full[160];
            snprintf(full, sizeof full, "after/%s", f.masters.item[i].name);
            CHECK_REL(f.masters.piece[f.masters.item[i].first].data,
                      golden_f32(&f.g, full, f.masters.item[i].rows), f.masters.item[i].rows, 1e-5);
        }
    close_fixture(&f);
}

TEST(dense)
{
    run_fixture("dense.safetensors", "auto", "1");
}
TEST(moe_softmax)
{
    run_fixture("moe_softmax.safetensors", "auto", "1");
}
TEST(moe_sigmoid)
{
    run_fixture("moe_sigmoid.safetensors", "auto", "1");
}
TEST(moe_widths)
{
    run_fixture("moe_widths.safetensors", "auto", "1");
}
/* Three layers, of which the second has a window shorter than most documents. */
TEST(window)
{
    run_fixture("window.safetensors", "auto", "1");
}
/* Multi-head latent attention: with compressed queries and YaRN, on experts; without both, with a window. */
TEST(mla)
{
    run_fixture("mla.safetensors", "auto", "0.5");
}
TEST(mla_window)
{
    run_fixture("mla_window.safetensors", "auto", "1");
}
/* Heads whose scores are too large: keys shared by two heads, with biases; and multi-head latent attention. */
TEST(qk_clip)
{
    run_fixture("qk_clip.safetensors", "auto", "1");
    run_fixture("qk_clip_mla.safetensors", "auto", "1");
}
TEST(moe_balance)
{
    run_fixture("moe_balance.safetensors", "auto", "1");
    run_fixture("moe_balance.safetensors", "auto", "0.3");
}
TEST(moe_limits)
{
    run_fixture("moe_limits.safetensors", "auto", "1");
    run_fixture("moe_limits.safetensors", "auto", "0.3");
}
/* Several dispatch rounds, and every instruction set this machine has. */
TEST(rounds)
{
    run_fixture("moe_sigmoid.safetensors", "auto", "0.3");
}
TEST(every_isa)
{
    for (int isa = 0; isa < MT_N_ISAS; isa++)
        if (mt_isa_available((enum mt_isa)isa, NULL))
            run_fixture("moe_softmax.safetensors", mt_isa_name((enum mt_isa)isa), "0.5");
}

int main(void)
{
    RUN(dense);
    RUN(moe_softmax);
    RUN(moe_sigmoid);
    RUN(moe_widths);
    RUN(window);
    RUN(mla);
    RUN(mla_window);
    RUN(qk_clip);
    RUN(moe_balance);
    RUN(moe_limits);
    RUN(rounds);
    RUN(every_isa);
    return DONE();
}
