/* The parameter table: counts, names, and the reference model. */
#include "check.h"
#include "device/cpu/isa.h"
#include "model/model.h"

static bool load(mt_config *c, const char *path, int n, char *const *arg)
{
    mt_err e = {0};
    if (CHECK(mt_config_load(c, path, n, arg, &e) == MT_OK)) return true;
    printf("  %s\n", e.msg);
    return false;
}

static int64_t count_store(const struct mt_shape *s)
{
    struct mt_store st;
    int64_t n = 0;
    mt_store_init(&st, MT_BF16, mt_target_cpu(MT_ISA_SCALAR),
                  &(struct mt_mesh){.world = 1, .replicas = 1, .ep = 1}, 0);
    mt_params_declare(&st, s, 0.02);
    for (int t = 0; t < st.n_tensors; t++) {
        const struct mt_matrix *m = &st.matrix[st.tensor[t].matrix];
        int64_t experts = st.unit[m->unit].n_experts;
        n += (experts ? experts : 1) * st.tensor[t].rows * (m->cols ? m->cols : 1);
    }
    mt_store_release(&st);
    return n;
}

/* 951.9 billion parameters, 32.8 of them active. */
TEST(reference_model)
{
    mt_config c;
    if (!load(&c, "configs/models/jupiter-952b.yaml", 0, NULL)) return;
    struct mt_shape s = mt_shape_of(&c);
    double total = (double)mt_params_total(&s), active = (double)mt_params_active(&s);
    printf("  total %.4f, active %.4f billion\n", total / 1e9, active / 1e9);
    CHECK_CLOSE(total / 951.9e9, 1, 2e-4);
    CHECK_CLOSE(round(active / 1e8) / 10, 32.8, 1e-9);
    CHECK_INT(s.L, 74);
    CHECK_INT(s.D, 6144);
    CHECK_INT(s.V, 256000);
    CHECK_INT(s.E, 384);
    CHECK_INT(s.K, 8);
    CHECK_INT(s.H, 56);
    CHECK_INT(s.G, 8);
    CHECK_INT(s.A, 128);
    CHECK_INT(s.Fs, 1792);
    /* By hand: attention with its norms, router, shared and routed experts, two norms; embedding, head, norm. */
    int64_t attn = 6144LL * 128 * (56 + 8 + 8 + 56) + 2 * 128, expert = 3LL * 6144 * 1792;
    int64_t layer = attn + 384 * 6144 + 385 * expert + 2 * 6144, ends = 2LL * 256000 * 6144 + 6144;
    CHECK_INT(mt_params_total(&s), 74 * layer + ends);
    CHECK_INT(mt_params_active(&s), 74 * (layer - 376 * expert) + ends);
    CHECK_INT(count_store(&s), mt_params_total(&s));
}

/* Presets against the figures published for these models, in billions; `unit`: of their last digit, to which some are rounded and
 * some cut. ends: are embedding and head counted? GLM-4.5's report leaves both out. */
TEST(presets)
{
    static const struct {
        const char *name;
        double total, active, unit_total, unit_active;
        bool ends;
    } published[] = {
        {"qwen3-30b-a3b", 30.5, 3.3, 0.1, 0.1, true}, {"qwen3-235b-a22b", 235, 22, 1, 1, true},
        {"mixtral-8x7b", 46.7, 12.9, 0.1, 0.1, true}, {"glm-4.5-air", 106, 12, 1, 1, false},
        {"deepseek-v3", 671, 37, 1, 1, true},         {"kimi-k2", 1000, 32, 100, 1, true},
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        char path[96];
        mt_config c;
        snprintf(path, sizeof path, "configs/models/%s.yaml", published[i].name);
        if (!load(&c, path, 0, NULL)) continue;
        struct mt_shape s = mt_shape_of(&c);
        int64_t ends = published[i].ends ? 0 : 2 * s.V * s.D;
        double total = (double)(mt_params_total(&s) - ends) / 1e9,
               active = (double)(mt_params_active(&s) - ends) / 1e9;
        printf("  %s: total %.3f, active %.3f billion\n", published[i].name, total, active);
        CHECK_CLOSE(total, published[i].total, published[i].unit_total);
        CHECK_CLOSE(active, published[i].active, published[i].unit_active);
        CHECK_INT(count_store(&s), mt_params_total(&s));
    }
}

/* Every tensor's size, layer by layer. */
static int64_t count_sizes(const struct mt_shape *s)
{
    int64_t n = 0;
    for (int64_t l = -1; l < s->L; l++)
        for (int k = 0; k < MT_N_TENSOR_KINDS; k++) {
            struct mt_param_size x = mt_param_size(s, k, l);
            n += x.rows * (x.cols ? x.cols : 1) * (mt_param_of_expert(k) ? s->E : 1);
        }
    return n;
}

TEST(counts)
{
    char *const option[] = {(char[]){"model.qk_norm=true"},  (char[]){"model.attn_bias=true"},
                            (char[]){"model.tied=true"},     (char[]){"model.v_head_dim=24"},
                            (char[]){"model.experts=5"},     (char[]){"model.top_k=2"},
                            (char[]){"model.expert_ffn=7"},  (char[]){"model.shared_ffn=9"},
                            (char[]){"model.first_dense=2"}, (char[]){"model.mtp_depth=2"}};
    for (int n = 0; n <= 10; n++) {
        mt_config c;
        if (n > 4 && n < 7) continue; /* experts without their width are no configuration */
        if (!load(&c, NULL, n, option)) return;
        struct mt_shape s = mt_shape_of(&c);
        CHECK_INT(count_store(&s), mt_params_total(&s));
        CHECK_INT(count_sizes(&s), mt_params_total(&s));
        CHECK(n >= 7 ? mt_params_active(&s) < mt_params_total(&s)
                     : mt_params_active(&s) == mt_params_total(&s));
    }
}

/* Names are all different, and those that checkpoints are written with. */
TEST(names)
{
    char *const option[] = {(char[]){"model.layers=2"},     (char[]){"model.experts=3"},
                            (char[]){"model.top_k=2"},      (char[]){"model.expert_ffn=8"},
                            (char[]){"model.shared_ffn=8"}, (char[]){"model.first_dense=1"},
                            (char[]){"model.qk_norm=true"}, (char[]){"model.attn_bias=true"}};
    static const char *const want[] = {"embed.weight",
                                       "layers.0.attn.q.weight",
                                       "layers.0.attn.v.bias",
                                       "layers.0.mlp.gate.weight",
                                       "layers.1.moe.shared.down.weight",
                                       "layers.1.moe.router.weight",
                                       "layers.1.moe.experts.0.gate.weight",
                                       "layers.1.moe.experts.2.down.weight",
                                       "layers.1.attn.k_norm.weight",
                                       "norm.weight",
                                       "head.weight"};
    static char name[256][96];
    mt_config c;
    int n = 0;
    if (!load(&c, NULL, 8, option)) return;
    struct mt_shape s = mt_shape_of(&c);
    struct mt_store st;
    mt_store_init(&st, MT_F32, mt_target_cpu(MT_ISA_SCALAR),
                  &(struct mt_mesh){.world = 1, .replicas = 1, .ep = 1}, 0);
    mt_params_declare(&st, &s, 0.02);
    for (int t = 0; t < st.n_tensors; t++)
        for (int64_t i = 0, e = st.unit[st.matrix[st.tensor[t].matrix].unit].n_experts;
             i < (e ? e : 1) && n < 256; i++)
            mt_param_name(&st.tensor[t], i, name[n++]);
    CHECK_INT(n, 1 + 2 * 11 + 3 + 4 + 3 * 3 +
                     2); /* embedding; attention and norms; dense; shared and router; experts; ends */
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) CHECK(strcmp(name[i], name[k]) != 0);
    for (int w = 0; w < 11; w++) {
        int i = 0;
        while (i < n && strcmp(name[i], want[w])) i++;
        if (!CHECK(i < n)) printf("  no parameter %s\n", want[w]);
    }
    mt_store_release(&st);
}

/* Spread of the initial values: the outputs of a block are scaled by depth, norms are 1, biases 0. */
TEST(initial_spread)
{
    mt_config c;
    if (!load(&c, NULL, 1, (char *[]){(char[]){"model.attn_bias=true"}})) return;
    struct mt_shape s = mt_shape_of(&c);
    struct mt_store st;
    mt_store_init(&st, MT_F32, mt_target_cpu(MT_ISA_SCALAR),
                  &(struct mt_mesh){.world = 1, .replicas = 1, .ep = 1}, 0);
    mt_params_declare(&st, &s, 0.04);
    for (int t = 0; t < st.n_tensors; t++) {
        char name[96];
        mt_param_name(&st.tensor[t], 0, name);
        double want = 0.04;
        if (strstr(name, ".o.weight") || strstr(name, ".down.weight")) want = 0.04 / sqrt(8);
        if (strstr(name, "norm.weight")) want = -2;
        if (strstr(name, ".bias")) want = -1;
        CHECK_CLOSE(st.tensor[t].init_std, want, 1e-15);
    }
    mt_store_release(&st);
}

TEST(flops)
{
    mt_config c;
    if (!load(&c, NULL, 0, NULL)) return;
    struct mt_shape s = mt_shape_of(&c);
    double met = (double)(mt_params_total(&s) - s.V * s.D);
    CHECK_CLOSE(mt_flops_per_token(&s, 0) / (6 * met), 1, 1e-12);
    /* Scores and their product with V: 2 x 2 x H A for each of context / 2 tokens, three times that with backward. */
    CHECK_CLOSE(mt_flops_per_token(&s, 512) - mt_flops_per_token(&s, 0),
                (double)(s.L * s.H * s.A) * 3 * 4 * 256, 1);
}

/* Every third of six layers, and the first two, see whole documents. */
TEST(windows)
{
    static const bool near[] = {false, false, false, true, true, false};
    mt_config c;
    char *const arg[] = {(char[]){"model.layers=6"}, (char[]){"model.window=100"},
                         (char[]){"model.window_full_first=2"}, (char[]){"model.window_full_every=3"}};
    if (!load(&c, NULL, 4, arg)) return;
    struct mt_shape s = mt_shape_of(&c);
    for (int64_t l = 0; l < 6; l++) CHECK_INT(mt_is_near(&s, l), near[l]);
    CHECK_INT(mt_near_layers(&s), 2);
    /* Blocks of modules are as the last layer. */
    for (int k = 0; k < 2; k++) {
        struct mt_shape more = s;
        more.L += 2, more.mtp = 2;
        more.full_every = k ? 0 : 3;
        for (int64_t l = 6; l < 8; l++) CHECK_INT(mt_is_near(&more, l), k);
        CHECK_INT(mt_near_layers(&more), k ? 6 : 2);
    }
    CHECK_INT(mt_model_pairs(&s, 0), 512 * 513 / 2);
    CHECK_INT(mt_model_pairs(&s, 3), 100 * 101 / 2 + 412 * 100);
    /* As many keys a token as the band of a window has, but for the diagonal. */
    double of_key = 12 * (double)(s.H * s.A), base = mt_flops_per_token(&s, 0);
    CHECK_CLOSE((mt_flops_per_token(&s, 512) - base) / of_key, 4 * 256 + 2 * (100 - 100 * 100 / 1024.), 1e-9);
    CHECK_CLOSE((mt_flops_per_token(&s, 50) - base) / of_key, 6 * 25, 1e-9);
}

int main(void)
{
    RUN(reference_model);
    RUN(presets);
    RUN(counts);
    RUN(names);
    RUN(initial_spread);
    RUN(flops);
    RUN(windows);
    return DONE();
}
