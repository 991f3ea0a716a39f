/* Which optimizer takes which parameter. */
#include "check.h"
#include "device/cpu/isa.h"
#include "model/param.h"
#include "optim/assign.h"

struct fixture {
    mt_config cfg;
    struct mt_store store;
};

static void open_fixture(struct fixture *f)
{
    char *arg[] = {(char[]){"model.layers=3"},      (char[]){"model.experts=4"},
                   (char[]){"model.top_k=2"},       (char[]){"model.expert_ffn=16"},
                   (char[]){"model.first_dense=1"}, (char[]){"model.qk_norm=true"},
                   (char[]){"model.attn_bias=true"}};
    mt_err e = {0};
    memset(f, 0, sizeof *f);
    CHECK_INT(mt_config_load(&f->cfg, NULL, 7, arg, &e), MT_OK);
    struct mt_shape shape = mt_shape_of(&f->cfg);
    mt_store_init(&f->store, MT_F32, mt_target_cpu(MT_ISA_SCALAR),
                  &(struct mt_mesh){.world = 1, .replicas = 1, .ep = 1}, 0);
    mt_params_declare(&f->store, &shape, 0.02);
}

static void groups(struct fixture *f, int n, const mt_optim_group *g)
{
    f->cfg.optim_groups_count = n;
    for (int i = 0; i < n; i++) f->cfg.optim_groups[i] = g[i];
}

static const struct mt_tensor *find(const struct fixture *f, const char *name)
{
    char got[96];
    for (int t = 0; t < f->store.n_tensors; t++) {
        mt_param_name(&f->store.tensor[t], 0, got);
        if (!strcmp(got, name)) return &f->store.tensor[t];
    }
    printf("  no parameter %s\n", name);
    CHECK(false);
    return &f->store.tensor[0];
}

TEST(defaults)
{
    struct fixture f;
    mt_err e = {0};
    open_fixture(&f);
    CHECK_INT(mt_optim_assign(&f.store, &f.cfg, &e), MT_OK);
    static const char *const adamw[] = {"embed.weight",
                                        "head.weight",
                                        "norm.weight",
                                        "layers.0.attn_norm.weight",
                                        "layers.2.moe.router.weight",
                                        "layers.1.attn.q.bias",
                                        "layers.1.attn.q_norm.weight"};
    static const char *const muon[] = {"layers.0.attn.q.weight", "layers.2.attn.o.weight",
                                       "layers.0.mlp.gate.weight", "layers.1.moe.experts.0.up.weight",
                                       "layers.2.moe.experts.0.down.weight"};
    for (int i = 0; i < 7; i++) CHECK_INT(find(&f, adamw[i])->optimizer, MT_ADAMW);
    for (int i = 0; i < 5; i++) CHECK_INT(find(&f, muon[i])->optimizer, MT_MUON);
    CHECK_CLOSE(find(&f, "norm.weight")->weight_decay, 0, 0);
    CHECK_CLOSE(find(&f, "layers.1.attn.q.bias")->weight_decay, 0, 0);
    CHECK_CLOSE(find(&f, "layers.0.attn.q.weight")->weight_decay, f.cfg.optim_weight_decay, 0);
    mt_store_release(&f.store);
}

TEST(first_match_wins)
{
    struct fixture f;
    mt_err e = {0};
    open_fixture(&f);
    groups(&f, 4,
           (mt_optim_group[]){
               {.match = "layers.1.attn.q.weight",
                .optimizer = MT_OPTIMIZER_NONE,
                .lr_scale = 1,
                .weight_decay = -1},
               {.match = "layers.1.*", .optimizer = MT_OPTIMIZER_ADAMW, .lr_scale = 3, .weight_decay = 0.5},
               {.match = "*.attn.q.weight", .optimizer = MT_OPTIMIZER_MUON, .lr_scale = 2, .weight_decay = 0},
               {.match = "*", .optimizer = MT_OPTIMIZER_ADAMW, .lr_scale = 1, .weight_decay = -1}});
    CHECK_INT(mt_optim_assign(&f.store, &f.cfg, &e), MT_OK);
    CHECK_INT(find(&f, "layers.1.attn.q.weight")->optimizer, MT_FROZEN);
    const struct mt_tensor *t = find(&f, "layers.1.attn.k.weight");
    CHECK_INT(t->optimizer, MT_ADAMW);
    CHECK_CLOSE(t->lr_scale, 3, 0);
    CHECK_CLOSE(t->weight_decay, 0.5, 0);
    t = find(&f, "layers.2.attn.q.weight");
    CHECK_INT(t->optimizer, MT_MUON);
    CHECK_CLOSE(t->lr_scale, 2, 0);
    CHECK_CLOSE(t->weight_decay, 0, 0);
    CHECK_CLOSE(find(&f, "head.weight")->weight_decay, f.cfg.optim_weight_decay, 0);
    CHECK_CLOSE(find(&f, "head.weight")->lr_scale, 1, 0);
    mt_store_release(&f.store);
}

/* n groups are refused; the message names what is to blame. */
static void refused(int n, const mt_optim_group *g, const char *group, const char *name)
{
    struct fixture f;
    mt_err e = {0};
    open_fixture(&f);
    groups(&f, n, g);
    CHECK_INT(mt_optim_assign(&f.store, &f.cfg, &e), MT_CONFIG);
    if (!CHECK(strstr(e.msg, group) && strstr(e.msg, name))) printf("  %s\n", e.msg);
    mt_store_release(&f.store);
}

TEST(a_parameter_that_nobody_takes)
{
    refused(2,
            (mt_optim_group[]){{.match = "*.weight", .optimizer = MT_OPTIMIZER_ADAMW},
                               {.match = "*.k.bias", .optimizer = MT_OPTIMIZER_ADAMW}},
            "optim.groups", "layers.0.attn.q.bias");
    refused(0, NULL, "optim.groups", "embed.weight");
}
TEST(a_pattern_that_takes_nothing)
{
    refused(2,
            (mt_optim_group[]){{.match = "*.attention.*", .optimizer = MT_OPTIMIZER_ADAMW},
                               {.match = "*", .optimizer = MT_OPTIMIZER_ADAMW}},
            "optim.groups[0]", "*.attention.*");
    refused(2,
            (mt_optim_group[]){{.match = "*", .optimizer = MT_OPTIMIZER_ADAMW},
                               {.match = "embed.weight", .optimizer = MT_OPTIMIZER_ADAMW}},
            "optim.groups[1]", "embed.weight");
}
TEST(muon_on_a_vector)
{
    refused(2,
            (mt_optim_group[]){{.match = "embed.weight", .optimizer = MT_OPTIMIZER_ADAMW},
                               {.match = "*", .optimizer = MT_OPTIMIZER_MUON}},
            "optim.groups[1]", "layers.0.attn_norm.weight");
}
TEST(optional)
{
    struct fixture f;
    mt_err e = {0};
    open_fixture(&f);
    groups(&f, 2,
           (mt_optim_group[]){{.match = "nothing", .optional = true},
                              {.match = "*", .optimizer = MT_OPTIMIZER_ADAMW}});
    CHECK_INT(mt_optim_assign(&f.store, &f.cfg, &e), MT_OK);
    mt_store_release(&f.store);
}

int main(void)
{
    RUN(defaults);
    RUN(first_match_wins);
    RUN(a_parameter_that_nobody_takes);
    RUN(a_pattern_that_takes_nothing);
    RUN(muon_on_a_vector);
    RUN(optional);
    return DONE();
}
