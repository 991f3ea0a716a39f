/* test: timeout=240 variants=release,asan
 *
 * A checkpoint of 8 ranks on 1, 2, 4, 6, 8 and 12, with other expert groups, replicas, placements and places of the state:
 * parameters and optimizer state the same to the bit, and the next step that of the run that went on. */
#include <unistd.h>

#include "check.h"
#include "ckpt/ckpt.h"
#include "train/session.h"

enum { SEQ = 16, BATCH = 48, BEFORE = 2 };

#define ANY                                                                                                  \
    "train.dtype=f32", "train.seq_len=16", "train.global_batch=48", "train.micro_batch=1", "model.vocab=61", \
        "optim.warmup_steps=0", "train.loss_chunk=20", "optim.decay_ratio=0", "optim.lr=0.01",               \
        "model.init_std=0.1", "train.steps=5", "mesh.ranks_per_node=4", "model.dim=40", "model.layers=2",    \
        "model.heads=4", "model.kv_heads=2", "model.head_dim=32", "model.ffn=72", "model.experts=12",        \
        "model.top_k=3", "model.expert_ffn=24", "model.shared_ffn=136", "model.first_dense=1",               \
        "model.qk_norm=true", "model.score=sigmoid", "model.bias_rate=0.01"

/* Of step `step`, the same over any number of ranks: token by token of the whole batch. */
static void batches(struct mt_session *s, int64_t step)
{
    for (int r = 0; r < s->world; r++) {
        const struct mt_model *m = &s->rank[r].model;
        const struct mt_ctx *c = &s->rank[r].ctx;
        int32_t *tok = mt_address(c, m->host.tokens), *lab = mt_address(c, m->host.labels),
                *beg = mt_address(c, m->host.begin), *pos = mt_address(c, m->host.pos);
        int64_t n = m->opt.micro_batches * m->shape.N;
        for (int64_t i = 0; i < n; i++) {
            uint64_t x = (uint64_t)(step * BATCH * SEQ + r * n + i) * 6364136223846793005u +
                         1442695040888963407u;
            tok[i] = (int32_t)((x >> 33) % (uint64_t)m->shape.V);
            lab[i] = (tok[i] * 5 + 2) % (int32_t)m->shape.V;
            beg[i] = (int32_t)(i % m->shape.N / SEQ * SEQ);
            pos[i] = (int32_t)(i % SEQ);
        }
    }
}

static bool open_items(const struct mt_session *s, struct mt_ckpt_items *x)
{
    mt_err e = {0};
    return CHECK(mt_session_items(s, x, &e) == MT_OK);
}

/* Every tensor, whole, one behind the other; what replicas hold is the same. */
struct state {
    char *at;
    int64_t bytes;
};
static void gather(struct mt_session *s, struct state *out)
{
    struct mt_ckpt_items x;
    int64_t at = 0;
    *out = (struct state){0};
    if (!open_items(s, &x)) return;
    for (int64_t i = 0; i < x.n; i++) out->bytes += mt_ckpt_item_bytes(&x.item[i]);
    out->at = malloc((size_t)out->bytes);
    for (int64_t i = 0; i < x.n; i++) {
        int64_t row = mt_ckpt_row_bytes(&x.item[i]), covered = 0;
        for (int64_t k = x.item[i].first; k < x.item[i].first + x.item[i].n; k++) {
            const struct mt_ckpt_piece *p = &x.piece[k];
            char *to = out->at + at + p->row0 * row;
            if (!p->copy) memcpy(to, p->data, (size_t)(p->rows * row));
            covered += p->copy ? 0 : p->rows;
        }
        for (int64_t k = x.item[i].first; k < x.item[i].first + x.item[i].n; k++) {
            const struct mt_ckpt_piece *p = &x.piece[k];
            if (p->copy) CHECK(!memcmp(out->at + at + p->row0 * row, p->data, (size_t)(p->rows * row)));
        }
        CHECK_INT(covered, x.item[i].rows);
        at += mt_ckpt_item_bytes(&x.item[i]);
    }
    mt_ckpt_items_close(&x);
}
static bool same(const struct state *a, const struct state *b)
{
    return a->at && b->at && a->bytes == b->bytes && !memcmp(a->at, b->at, (size_t)a->bytes);
}

struct running {
    mt_config cfg;
    struct mt_session s;
};
static bool open_run(struct running *x, const char *const *options, int world)
{
    static const char *const any[] = {ANY, NULL};
    char *arg[64];
    mt_err e = {0};
    int n = 0;
    for (int i = 0; any[i]; i++) arg[n++] = (char *)(uintptr_t)any[i];
    for (int i = 0; options[i]; i++) arg[n++] = (char *)(uintptr_t)options[i];
    memset(x, 0, sizeof *x);
    mt_status st = mt_config_load(&x->cfg, NULL, n, arg, &e);
    if (st == MT_OK) st = mt_session_open(&x->s, &x->cfg, world, false, &e);
    if (st == MT_OK) st = mt_session_run(&x->s, mt_fill_step, &e);
    if (st != MT_OK) printf("  %d ranks: %s\n", world, e.msg);
    return CHECK(st == MT_OK);
}
/* The loss of a step, per token. */
static double run_step(struct running *x, int64_t step)
{
    mt_err e = {0};
    batches(&x->s, step);
    for (int r = 0; r < x->s.world; r++) x->s.rank[r].step.step = step;
    if (!CHECK(mt_session_run(&x->s, mt_train_step, &e) == MT_OK)) printf("  %s\n", e.msg);
    CHECK(x->s.rank[0].step.updated);
    return x->s.rank[0].step.loss / (double)x->s.rank[0].step.valid;
}

/* What was saved, and what the run that saved it did next. */
struct saved {
    char dir[40], path[MT_CKPT_PATH];
    struct state state;
    double next;
};
static bool save(struct saved *v, const char *const *options, int world)
{
    struct running *x = calloc(1, sizeof *x);
    struct mt_ckpt_items items;
    struct mt_ckpt_meta meta = {.step = BEFORE, .tokens = BEFORE * BATCH * SEQ};
    mt_err e = {0};
    snprintf(v->dir, sizeof v->dir, "/tmp/moetitan-reshape-XXXXXX");
    bool ok = CHECK(mkdtemp(v->dir)) && open_run(x, options, world);
    for (int64_t k = 0; k < BEFORE && ok; k++) run_step(x, k);
    if (ok && open_items(&x->s, &items)) {
        ok = CHECK(mt_ckpt_save(v->dir, &items, &meta, &x->cfg, &e) == MT_OK);
        if (!ok) printf("  %s\n", e.msg);
        mt_ckpt_items_close(&items);
    }
    if (ok) {
        gather(&x->s, &v->state);
        v->next = run_step(x, BEFORE);
    }
    mt_ckpt_folder(v->dir, BEFORE, v->path);
    mt_session_close(&x->s);
    free(x);
    return ok;
}

static void load(const struct saved *v, int world, const char *const *options)
{
    struct running *x = calloc(1, sizeof *x);
    struct mt_ckpt_items items;
    struct mt_job alone = mt_job_alone(world);
    struct mt_ckpt_loaded loaded;
    struct state got = {0};
    mt_err e = {0};
    if (open_run(x, options, world) && open_items(&x->s, &items)) {
        CHECK(mt_ckpt_load(v->path, &items, &alone, false, &loaded, &e) == MT_OK);
        mt_ckpt_items_close(&items);
        gather(&x->s, &got);
        if (!CHECK(same(&got, &v->state))) printf("  %d ranks: other bits. %s\n", world, e.msg);
        CHECK_INT(loaded.read, got.bytes);
        CHECK_INT(loaded.needed, got.bytes);
        CHECK_INT(loaded.meta.tokens, loaded.meta.step * BATCH * SEQ);
        CHECK(mt_session_run(&x->s, mt_pack_step, &e) == MT_OK);
        double loss = run_step(x, loaded.meta.step);
        CHECK_CLOSE(loss / v->next, 1, 1e-6);
    }
    free(got.at);
    mt_session_close(&x->s);
    free(x);
}

#define OPTIONS(...)      \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }
#define OWNED "shard.groups=[{match: '*.experts.*', placement: owned}, {match: '*', placement: owned}]"
#define BLOCKS "shard.groups=[{match: '*.experts.*', placement: owned}, {match: '*', placement: block}]"
TEST(eight_ranks_on_any_other)
{
    struct saved v = {0};
    char command[64];
    if (save(&v, OPTIONS("mesh.ep=4"), 8)) {
        load(&v, 1, OPTIONS("mesh.ep=1"));
        load(&v, 2, OPTIONS("mesh.ep=2", BLOCKS));
        load(&v, 4, OPTIONS("mesh.ep=2", "mesh.replicas=2", "offload.masters=host", "offload.moments=host"));
        load(&v, 6, OPTIONS("mesh.ep=2", "mesh.replicas=3", "mesh.ranks_per_node=2", OWNED));
        load(&v, 8, OPTIONS("mesh.ep=2", "mesh.replicas=4"));
        load(&v, 8, OPTIONS("mesh.ep=4"));
        load(&v, 12, OPTIONS("mesh.ep=4", OWNED, "offload.moments=host"));
    }
    free(v.state.at);
    snprintf(command, sizeof command, "rm -r %s", v.dir);
    CHECK_INT(system(command), 0);
}
/* Saved by replicas whose state is in host memory and whose matrices are owned whole. */
TEST(replicas_and_owners_on_any_other)
{
    struct saved v = {0};
    char command[64];
    if (save(&v,
             OPTIONS("mesh.ep=2", "mesh.replicas=2", OWNED, "offload.masters=host", "offload.moments=host"),
             8)) {
        load(&v, 1, OPTIONS("mesh.ep=1"));
        load(&v, 6, OPTIONS("mesh.ep=2", "mesh.ranks_per_node=2"));
        load(&v, 12, OPTIONS("mesh.ep=4", "mesh.replicas=3", BLOCKS));
    }
    free(v.state.at);
    snprintf(command, sizeof command, "rm -r %s", v.dir);
    CHECK_INT(system(command), 0);
}

int main(void)
{
    RUN(eight_ranks_on_any_other);
    RUN(replicas_and_owners_on_any_other);
    return DONE();
}
