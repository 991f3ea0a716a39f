/* Which parameters the patterns of shard.groups place and gather how, and what they cannot ask for. */
#include "check.h"
#include "device/cpu/isa.h"
#include "model/param.h"

struct fixture {
    mt_config cfg;
    struct mt_store s;
    mt_err e;
    mt_status st;
};

static void place(struct fixture *f, const char *groups, const char *dtype)
{
    char shard[1024], type[32],
        *arg[] = {(char[]){"model.layers=3"},
                  (char[]){"model.experts=4"},
                  (char[]){"model.top_k=2"},
                  (char[]){"model.expert_ffn=16"},
                  (char[]){"model.first_dense=1"},
                  (char[]){"model.shared_ffn=24"},
                  (char[]){"model.attn_bias=true"},
                  shard,
                  type};
    memset(f, 0, sizeof *f);
    snprintf(shard, sizeof shard, "shard.groups=[%s]", groups);
    snprintf(type, sizeof type, "train.dtype=%s", dtype);
    if (!CHECK(mt_config_load(&f->cfg, NULL, 9, arg, &f->e) == MT_OK)) printf("  %s\n", f->e.msg);
    struct mt_shape shape = mt_shape_of(&f->cfg);
    mt_store_init(&f->s, f->cfg.train_dtype, mt_target_cpu(MT_ISA_SCALAR),
                  &(struct mt_mesh){.world = 4, .replicas = 1, .ep = 1}, 0);
    mt_params_declare(&f->s, &shape, 0.02);
    f->st = mt_params_place(&f->s, f->cfg.shard_groups, f->cfg.shard_groups_count, &f->e);
}

static const struct mt_matrix *find(const struct fixture *f, const char *name)
{
    char got[96];
    for (int t = 0; t < f->s.n_tensors; t++) {
        mt_param_name(&f->s.tensor[t], 0, got);
        if (!strcmp(got, name)) return &f->s.matrix[f->s.tensor[t].matrix];
    }
    printf("  no parameter %s\n", name);
    CHECK(false);
    return &f->s.matrix[0];
}
static void is(const struct fixture *f, const char *name, enum mt_placement placement,
               enum mt_gathered gather)
{
    const struct mt_matrix *m = find(f, name);
    if (!CHECK(m->placement == placement && m->gather == gather)) printf("  %s\n", name);
}

TEST(without_groups)
{
    struct fixture f;
    place(&f, "", "bf16");
    CHECK_INT(f.st, MT_OK);
    is(&f, "embed.weight", MT_PLACED_FLAT, MT_GATHERED_AS_ALL);
    is(&f, "layers.0.attn.q.weight", MT_PLACED_FLAT, MT_GATHERED_AS_ALL);
    is(&f, "layers.1.moe.experts.0.down.weight", MT_PLACED_OWNED, MT_GATHERED_AS_ALL);
    mt_store_release(&f.s);
}

TEST(the_first_that_matches_counts)
{
    struct fixture f;
    place(&f,
          "{match: 'layers.1.attn.q.weight', placement: flat, gather: bf16}, "
          "{match: 'layers.*.attn.q.weight', placement: owned, gather: fp8}, "
          "{match: '*.experts.*', gather: fp8}, {match: '*.shared.gate.weight', placement: block}, "
          "{match: '*.shared.up.weight', placement: block}, {match: '*', gather: auto}, "
          "{match: 'head.weight', placement: owned, optional: true}",
          "bf16");
    CHECK_STR(f.e.msg, "");
    is(&f, "layers.0.attn.q.weight", MT_PLACED_OWNED, MT_GATHERED_FP8);
    is(&f, "layers.1.attn.q.weight", MT_PLACED_FLAT, MT_GATHERED_WORK);
    is(&f, "layers.2.attn.q.weight", MT_PLACED_OWNED, MT_GATHERED_FP8);
    is(&f, "layers.2.attn.k.weight", MT_PLACED_FLAT, MT_GATHERED_AS_ALL);
    is(&f, "layers.1.moe.experts.0.down.weight", MT_PLACED_OWNED, MT_GATHERED_FP8);
    is(&f, "layers.1.moe.shared.up.weight", MT_PLACED_BLOCK, MT_GATHERED_AS_ALL);
    is(&f, "head.weight", MT_PLACED_FLAT, MT_GATHERED_AS_ALL);
    mt_store_release(&f.s);
}

/* Rows that stay together: heads, else tiles. */
TEST(blocks)
{
    struct fixture f;
    place(&f, "", "bf16");
    CHECK_INT(find(&f, "layers.0.attn.q.weight")->block, 64);
    CHECK_INT(find(&f, "layers.0.attn.v.bias")->block, 64);
    CHECK_INT(find(&f, "layers.0.attn.o.weight")->block, 128);
    CHECK_INT(find(&f, "embed.weight")->block, 128);
    mt_store_release(&f.s);
}

static void refused(const char *groups, const char *dtype, const char *message)
{
    struct fixture f;
    place(&f, groups, dtype);
    CHECK_INT(f.st, MT_CONFIG);
    CHECK_STR(f.e.msg, message);
    mt_store_release(&f.s);
}
TEST(refusals)
{
    refused("{match: 'layers.0.*', placement: owned}, {match: '*', placement: block}", "bf16",
            "shard.groups[1] ('*') places 'layers.1.moe.experts.0.gate.weight' block, but a routed expert is "
            "always "
            "owned, whole; set placement: owned, or leave it out");
    refused("{match: '*.experts.*', placement: flat}", "bf16",
            "shard.groups[0] ('*.experts.*') places 'layers.1.moe.experts.0.gate.weight' flat, but a routed "
            "expert is "
            "always owned, whole; set placement: owned, or leave it out");
    refused("{match: '*.attn.*', gather: fp8}", "bf16",
            "shard.groups[0] ('*.attn.*') gathers 'layers.0.attn.q.bias' as fp8, which only matrices of "
            "blocks can be; "
            "give a narrower pattern, or one for this parameter before it");
    refused("{match: 'embed.*', gather: fp8}", "bf16",
            "shard.groups[0] ('embed.*') gathers 'embed.weight' as fp8, which only matrices of blocks can "
            "be; give a "
            "narrower pattern, or one for this parameter before it");
    refused("{match: 'head.*', gather: fp8}", "f32",
            "shard.groups[0] ('head.*') gathers 'head.weight' as fp8, which only matrices of blocks can be; "
            "give a "
            "narrower pattern, or one for this parameter before it");
    refused("{match: 'head.*', gather: f32}", "bf16",
            "shard.groups[0] ('head.*') gathers 'head.weight' as f32, but what is gathered of it is bf16; "
            "set gather: "
            "auto");
    refused("{match: '*norm.weight', gather: bf16}", "bf16",
            "shard.groups[0] ('*norm.weight') gathers 'layers.0.attn_norm.weight' as bf16, but what is "
            "gathered of it "
            "is f32; set gather: auto");
    refused("{match: '*.gate.weight', gather: fp8}", "bf16",
            "shard.groups: 'layers.0.mlp.up.weight' is one matrix with the parameter before it (gate and "
            "up), which "
            "lies and travels as one; give both the same placement and gather");
    refused("{match: '*'}, {match: 'embed.weight', placement: owned}", "bf16",
            "shard.groups[1]: pattern 'embed.weight' takes no parameter of this model (an earlier pattern "
            "may take "
            "them all); remove it, or set optional: true");
}

int main(void)
{
    RUN(without_groups);
    RUN(the_first_that_matches_counts);
    RUN(blocks);
    RUN(refusals);
    return DONE();
}
