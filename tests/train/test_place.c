/* test: timeout=240 variants=release,asan-slow
 *
 * Where a dense parameter lies, and how it is gathered, by pattern: the same bits for every placement, checkpoints between
 * them, fp8 by pattern as by the switch, and what it costs on the wire. */
#include <unistd.h>

#include "check.h"
#include "ckpt/ckpt.h"
#include "train/session.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { BRIEF = 1 };
#else
enum { BRIEF = 0 };
#endif
enum { STEPS = 5, SEQ = 16 };

#define ANY                                                                                           \
    "train.seq_len=16", "train.global_batch=16", "model.vocab=61", "optim.warmup_steps=0",            \
        "train.loss_chunk=20", "optim.decay_ratio=0", "optim.lr=0.01", "model.init_std=0.1",          \
        "train.steps=5", "mesh.ranks_per_node=4", "model.dim=40", "model.layers=3", "model.heads=4",  \
        "model.kv_heads=2", "model.head_dim=32", "model.ffn=72", "model.experts=12", "model.top_k=3", \
        "model.expert_ffn=24", "model.shared_ffn=136", "model.first_dense=1", "model.qk_norm=true",   \
        "model.score=sigmoid", "model.bias_rate=0.01", "model.attn_bias=true"

/* Everything dense, one way; and a mixture in which every kind of unit has several buckets. */
#define EXPERTS "{match: '*.experts.*', placement: owned}"
#define BLOCKS "shard.groups=[" EXPERTS ", {match: '*', placement: block}]"
#define OWNED "shard.groups=[" EXPERTS ", {match: '*', placement: owned}]"
#define MIXED                                                                                      \
    "shard.groups=[{match: 'layers.*.attn.o.weight', placement: owned}, "                          \
    "{match: 'layers.*.attn.*', placement: block}, {match: '*.shared.*', placement: owned}, "      \
    "{match: '*.mlp.down.weight', placement: owned}, {match: 'layers.1.*norm*', placement: flat}," \
    "{match: '*norm.weight', placement: owned}, {match: embed.weight, placement: block}]"

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t hash[STEPS]; /* of masters and moments, in the order of a checkpoint */
};

static void batches(struct mt_session *s, int64_t step)
{
    for (int r = 0; r < s->world; r++) {
        const struct mt_model *m = &s->rank[r].model;
        const struct mt_ctx *c = &s->rank[r].ctx;
        int32_t *tok = mt_address(c, m->host.tokens), *lab = mt_address(c, m->host.labels),
                *beg = mt_address(c, m->host.begin), *pos = mt_address(c, m->host.pos);
        uint64_t x = (uint64_t)(step * 1000 + r);
        for (int64_t i = 0; i < m->opt.micro_batches * m->shape.N; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
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
static uint64_t fnv(uint64_t h, const void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
    return h;
}
/* Every element is somewhere once, but for replicas. */
static uint64_t hash_state(struct mt_session *s)
{
    struct mt_ckpt_items x;
    uint64_t h = 0xcbf29ce484222325u;
    if (!open_items(s, &x)) return 0;
    for (int64_t i = 0; i < x.n; i++) {
        int64_t rows = 0;
        for (int64_t k = x.item[i].first; k < x.item[i].first + x.item[i].n; k++) {
            const struct mt_ckpt_piece *p = &x.piece[k];
            if (p->copy) continue;
            if (!CHECK_INT(p->row0, rows)) printf("  %s\n", x.item[i].name);
            rows += p->rows;
            h = fnv(h, p->data, p->rows * mt_ckpt_row_bytes(&x.item[i]));
        }
        h = fnv(h, x.item[i].name, (int64_t)strlen(x.item[i].name));
    }
    mt_ckpt_items_close(&x);
    return h;
}

struct running {
    mt_config cfg;
    struct mt_session s;
};
static bool open_run(struct running *x, const char *const *options, int world)
{
    char *arg[64];
    mt_err e = {0};
    int n = 0;
    for (; options[n]; n++) arg[n] = (char *)(uintptr_t)options[n];
    memset(x, 0, sizeof *x);
    mt_status st = mt_config_load(&x->cfg, NULL, n, arg, &e);
    if (st == MT_OK) st = mt_session_open(&x->s, &x->cfg, world, false, &e);
    if (st == MT_OK) st = mt_session_run(&x->s, mt_fill_step, &e);
    if (st != MT_OK) printf("  %d ranks: %s\n", world, e.msg);
    return CHECK(st == MT_OK);
}
static void run_steps(struct running *x, int64_t from, int64_t to, struct outcome *o)
{
    mt_err e = {0};
    for (int64_t k = from; k < to; k++) {
        batches(&x->s, k);
        for (int r = 0; r < x->s.world; r++) x->s.rank[r].step.step = k;
        if (!CHECK(mt_session_run(&x->s, mt_train_step, &e) == MT_OK)) {
            printf("  %s\n", e.msg);
            return;
        }
        CHECK(x->s.rank[0].step.updated);
        o->loss[k] = x->s.rank[0].step.loss;
        o->norm[k] = x->s.rank[0].step.norm;
        o->hash[k] = hash_state(&x->s);
    }
}
static void run(const char *const *options, int world, int steps, struct outcome *o)
{
    struct running *x = calloc(1, sizeof *x);
    memset(o, 0, sizeof *o);
    if (open_run(x, options, world)) run_steps(x, 0, steps, o);
    mt_session_close(&x->s);
    free(x);
}
static bool same(const struct outcome *a, const struct outcome *b, int steps)
{
    for (int k = 0; k < steps; k++)
        if (!CHECK(a->loss[k] == b->loss[k] && a->norm[k] == b->norm[k] && a->hash[k] == b->hash[k] &&
                   a->hash[k]))
            return false;
    return true;
}

/* ---- the same bits ---- */
static void compare(const char *const base[4], const char *groups, const char *more, int world)
{
    struct outcome flat, other;
    int steps = BRIEF ? 2 : STEPS;
    run((const char *const[]){ANY, base[0], base[1], base[2], base[3], NULL}, world, steps, &flat);
    run((const char *const[]){ANY, base[0], base[1], base[2], base[3], groups, more, NULL}, world, steps,
        &other);
    if (!same(&flat, &other, steps)) printf("  %d ranks, %s, %s\n", world, base[1], groups);
}
TEST(placements)
{
    static const char *const f32[] = {"train.dtype=f32", "mesh.ep=1", "mesh.replicas=1", "wire.reduce=f32"},
                             *const ep[] = {"train.dtype=bf16", "mesh.ep=2", "mesh.replicas=1",
                                            "wire.reduce=bf16"},
                             *const both[] = {"train.dtype=f32", "mesh.ep=2", "mesh.replicas=2",
                                              "train.micro_order=layer"};
    static const char *const groups[] = {BLOCKS, OWNED, MIXED};
    if (BRIEF) {
        compare(both, MIXED, "device.workers=2", 8);
        return;
    }
    for (int i = 0; i < 3; i++) {
        compare(f32, groups[i], NULL, 2);
        compare(ep, groups[i], "muon.batch_bytes=1", 4);
        compare(both, groups[i], "device.order_seed=4", 8);
    }
    compare(f32, OWNED, "shard.keep_last=2", 8);
    compare(both, MIXED, "muon.dense=gather", 8);
    compare(f32, MIXED, NULL, 1);
}

/* One matrix more than there are ranks, and fewer: some ranks own nothing of a bucket, or of any. */
TEST(few_matrices)
{
    static const char *const one[] = {"train.dtype=f32", "mesh.ep=1", "mesh.replicas=1", "wire.reduce=f32"};
    compare(one, "shard.groups=[{match: 'layers.1.attn.q.weight', placement: owned}]", NULL, 8);
    if (!BRIEF) compare(one, "shard.groups=[{match: head.weight, placement: owned}]", NULL, 4);
}

/* ---- fp8 by pattern ---- */
static void compare_fp8(const char *by_switch, const char *by_pattern, const char *mesh, int world)
{
    struct outcome a, b, plain;
    run((const char *const[]){ANY, "train.dtype=f32", mesh, by_switch, NULL}, world, 3, &a);
    run((const char *const[]){ANY, "train.dtype=f32", mesh, by_pattern, NULL}, world, 3, &b);
    run((const char *const[]){ANY, "train.dtype=f32", mesh, NULL}, world, 3, &plain);
    if (!same(&a, &b, 3)) printf("  %d ranks, %s\n", world, by_pattern);
    CHECK(a.loss[2] != plain.loss[2]); /* it does something */
}
#define DENSE_FP8(placement)                                                                        \
    "shard.groups=[{match: 'layers.*norm.weight'}, {match: '*.bias'}, {match: '*.router.weight'}, " \
    "{match: '*.experts.*'}, {match: 'layers.*', gather: fp8" placement "}]"
TEST(fp8_by_pattern)
{
    compare_fp8("wire.gather_dense=fp8", DENSE_FP8(""), "mesh.ep=2", 4);
    if (BRIEF) return;
    compare_fp8("wire.gather_experts=fp8", "shard.groups=[{match: '*.experts.*', gather: fp8}]", "mesh.ep=2",
                4);
    compare_fp8("wire.gather_dense=fp8", DENSE_FP8(", placement: block"), "mesh.ep=1", 4);
    compare_fp8("wire.gather_dense=fp8", DENSE_FP8(", placement: owned"), "mesh.replicas=2", 8);
    compare_fp8("wire.gather_dense=fp8", DENSE_FP8(", placement: owned"), "mesh.ep=1", 1);
}
/* A pattern also takes a parameter out of what a switch says. */
TEST(a_pattern_goes_before_the_switch)
{
    struct outcome a, b;
    run((const char *const[]){ANY, "train.dtype=f32", NULL}, 2, 2, &a);
    run((const char *const[]){ANY, "train.dtype=f32", "wire.gather_experts=fp8",
                              "shard.groups=[{match: '*.experts.*', gather: f32}]", NULL},
        2, 2, &b);
    same(&a, &b, 2);
}

/* ---- checkpoints ---- */
static void resume(const char *before, const char *after, int world_before, int world_after)
{
    struct running *x = calloc(1, sizeof *x);
    struct mt_ckpt_items items;
    struct mt_ckpt_meta meta = {.step = 3};
    char dir[] = "/tmp/moetitan-place-XXXXXX", path[MT_CKPT_PATH], command[64];
    mt_err e = {0};
    struct outcome o = {0}, whole = {0};
    bool same_world = world_before == world_after;
    if (!CHECK(mkdtemp(dir))) return;
    if (open_run(x, (const char *const[]){ANY, "train.dtype=bf16", before, NULL}, world_before)) {
        run_steps(x, 0, 3, &o);
        if (open_items(&x->s, &items)) {
            CHECK(mt_ckpt_save(dir, &items, &meta, &x->cfg, &e) == MT_OK);
            mt_ckpt_items_close(&items);
        }
        if (same_world) run_steps(x, 3, 5, &whole);
    }
    mt_session_close(&x->s);
    mt_ckpt_folder(dir, 3, path);
    if (open_run(x, (const char *const[]){ANY, "train.dtype=bf16", after, NULL}, world_after) &&
        open_items(&x->s, &items)) {
        struct mt_job alone = mt_job_alone(world_after);
        struct mt_ckpt_loaded loaded;
        CHECK(mt_ckpt_load(path, &items, &alone, false, &loaded, &e) == MT_OK);
        mt_ckpt_items_close(&items);
        CHECK(mt_session_run(&x->s, mt_pack_step, &e) == MT_OK);
        CHECK(hash_state(&x->s) == o.hash[2]);
        run_steps(x, 3, 5, &o);
        if (same_world) CHECK(o.loss[4] == whole.loss[4] && o.hash[4] == whole.hash[4]);
    }
    if (e.msg[0]) printf("  %s\n", e.msg);
    mt_session_close(&x->s);
    free(x);
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK_INT(system(command), 0);
}
TEST(checkpoints)
{
    resume("shard.groups=[]", OWNED, 4, 4);
    if (BRIEF) return;
    resume(MIXED, BLOCKS, 4, 4);
    resume(OWNED, MIXED, 2, 8);
    resume(OWNED, "shard.groups=[]", 8, 1);
}

/* ---- the wire ---- */
/* A bucket of two owned matrices over four ranks: two send theirs to all, and what comes in is what they have, to 2 %. */
TEST(bytes_of_uneven_owners)
{
    struct running *x = calloc(1, sizeof *x);
    struct outcome o;
    int64_t sent = 0, pad = 0, received = 0;
    if (open_run(x,
                 (const char *const[]){ANY, "train.dtype=bf16", "model.dim=64", "model.experts=0",
                                       "model.top_k=0", "model.expert_ffn=0", "model.shared_ffn=0",
                                       "model.first_dense=0", "model.score=softmax", "model.bias_rate=0",
                                       "model.ffn=96", "model.vocab=64",
                                       "shard.groups=[{match: '*', placement: owned}]", NULL},
                 4))
        run_steps(x, 0, 1, &o);
    for (int r = 0; r < 4; r++)
        for (int stream = 0; stream < MT_N_STREAMS; stream++) {
            const struct mt_lane *l =
                mt_traffic_lane(&x->s.rank[r].traffic, MT_GROUP_SHARD, stream, MT_OP_gather_cut);
            for (int link = 0; link < MT_N_LINKS; link++) {
                sent += l->flow[link].sent;
                received += l->flow[link].received;
                pad += l->flow[link].sent_pad;
            }
        }
    CHECK(sent > 0 && sent == received);
    CHECK((double)sent <= 1.02 * (double)(sent - pad));
    bool uneven = false;
    for (int i = 0; i < x->s.rank[0].model.store.n_buckets; i++) {
        const struct mt_bucket *b = &x->s.rank[0].model.store.bucket[i];
        CHECK(b->dealt);
        for (int k = 0; k < 4; k++) uneven |= b->edge[k + 1] == b->edge[k];
    }
    CHECK(uneven);
    mt_session_close(&x->s);
    free(x);
}

/* ---- memory ---- */
/* Owned matrices take what the fullest rank has of all of them, not in each bucket the largest. */
TEST(owned_buckets_share_rows)
{
    struct running *x = calloc(1, sizeof *x);
    int64_t masters = 0, all = 0, most = 0;
    if (open_run(x, (const char *const[]){ANY, "train.dtype=f32", OWNED, NULL}, 4)) {
        const struct mt_store *s = &x->s.rank[0].model.store;
        for (int32_t i = 0; i < x->s.ledger.n; i++)
            if (!strcmp(x->s.ledger.row[i].name, "master.owned")) masters += x->s.ledger.row[i].bytes;
        for (int i = 0; i < s->n_buckets; i++) {
            if (!s->bucket[i].dealt) continue;
            all += 4 * s->bucket[i].elements;
            most += 4 * s->bucket[i].piece;
        }
        CHECK(masters >= all / 4 && masters < all / 4 * 13 / 10);
        CHECK(most > 3 * masters / 2);
    }
    mt_session_close(&x->s);
    free(x);
}

int main(void)
{
    RUN(placements);
    RUN(few_matrices);
    RUN(fp8_by_pattern);
    RUN(a_pattern_goes_before_the_switch);
    RUN(checkpoints);
    RUN(bytes_of_uneven_owners);
    RUN(owned_buckets_share_rows);
    return DONE();
}
