/* test: timeout=300 variants=release,asan
 *
 * Masters, moments and gradient accumulators in device or host memory, arithmetic on the device or the host: the same bits. */
#include "check.h"
#include "ckpt/ckpt.h"
#include "device/record.h"
#include "train/session.h"
#include "words.h"

/* Sanitizers slow the many small operations down a hundredfold. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STEPS = 2, BRIEF = 1 };
#else
enum { STEPS = 4, BRIEF = 0 };
#endif
enum { SEQ = 24 };

/* ---- runs ---- */
struct run {
    mt_config cfg;
    struct mt_session s;
};

static uint32_t random_of(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(x >> 32);
}

/* Batches of two documents a sequence; some labels do not count. */
static void fill(struct mt_session *s, int64_t step)
{
    for (int r = 0; r < s->world; r++) {
        const struct mt_model *m = &s->rank[r].model;
        const struct mt_ctx *c = &s->rank[r].ctx;
        int32_t *t = mt_address(c, m->host.tokens), *l = mt_address(c, m->host.labels),
                *b = mt_address(c, m->host.begin), *p = mt_address(c, m->host.pos), V = (int32_t)m->shape.V;
        for (int64_t i = 0; i < m->opt.micro_batches * m->shape.N; i++) {
            int64_t at = i % SEQ, cut = 5 + random_of((uint64_t)(step * 1000 + i / SEQ * 10 + r)) % 12;
            t[i] = (int32_t)(random_of((uint64_t)((step * 100 + r) * 9000 + i)) % (uint32_t)V);
            l[i] = at % 7 == 3 ? -1 : (t[i] * 5 + 2) % V;
            b[i] = (int32_t)(i % m->shape.N - at + (at < cut ? 0 : cut));
            p[i] = (int32_t)(at < cut ? at : at - cut);
        }
    }
}

#define BASE                                                                                          \
    "train.seq_len=24 train.global_batch=24 train.steps=5 train.loss_chunk=20 model.vocab=61 "        \
    "model.dim=40 model.layers=3 model.heads=4 model.kv_heads=2 model.head_dim=12 model.ffn=72 "      \
    "model.init_std=0.1 model.attn_bias=true optim.warmup_steps=0 optim.decay_ratio=0 optim.lr=0.01 " \
    "mesh.ranks_per_node=4 "
#define EXPERTS                                                                                   \
    "model.experts=12 model.top_k=3 model.expert_ffn=24 model.shared_ffn=40 model.first_dense=1 " \
    "model.qk_norm=true model.score=sigmoid model.bias_rate=0.01 "
/* Matrices whose tensors begin between the rows at which working copies are cut, strips of one such step, windows of one matrix. */
#define SMALL "offload.slot_bytes=6000 muon.batch_bytes=5KiB "
#define ALL_HOST "offload.masters=host offload.moments=host offload.grads=host "

/* Optimizers other than the default ones, first match first; 0: the default. */
enum mix { DEFAULT, ADAMW, MIXED, MIXES };
static void mix_set(mt_config *c, enum mix mix)
{
    static const mt_optim_group adamw[] = {{"*", MT_OPTIMIZER_ADAMW, 1, -1, false}},
                                mixed[] = {{"*.gate.weight", MT_OPTIMIZER_ADAMW, 0.5, -1, false},
                                           {"*.k.weight", MT_OPTIMIZER_NONE, 1, 0, false},
                                           {"*norm.weight", MT_OPTIMIZER_ADAMW, 1, 0, false},
                                           {"*.bias", MT_OPTIMIZER_ADAMW, 1, 0, true},
                                           {"embed.weight", MT_OPTIMIZER_MUON, 1, -1, false},
                                           {"*.router.weight", MT_OPTIMIZER_ADAMW, 1, -1, true},
                                           {"*", MT_OPTIMIZER_MUON, 1, -1, false}};
    if (mix == DEFAULT) return;
    c->optim_groups_count = mix == ADAMW ? 1 : (int64_t)(sizeof mixed / sizeof *mixed);
    memcpy(c->optim_groups, mix == ADAMW ? adamw : mixed, mix == ADAMW ? sizeof adamw : sizeof mixed);
}

static struct run *run_open_mixed(const char *options, int world, enum mix mix)
{
    struct run *x = calloc(1, sizeof *x);
    mt_err e = {0};
    MT_ASSERT(x);
    bool read = words_load(&x->cfg, options, &e) == MT_OK;
    mix_set(&x->cfg, mix);
    bool ok = read && mt_session_open(&x->s, &x->cfg, world, false, &e) == MT_OK &&
              mt_session_run(&x->s, mt_fill_step, &e) == MT_OK;
    if (!CHECK(ok)) printf("  %s: %s\n", options, e.msg);
    return x;
}
static struct run *run_open(const char *options, int world)
{
    return run_open_mixed(options, world, DEFAULT);
}
static void run_close(struct run *x)
{
    mt_session_close(&x->s);
    free(x);
}

/* FNV-1a over all masters and moments, in the order of a checkpoint. */
static uint64_t hash_bytes(uint64_t h, const void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
    return h;
}
static uint64_t hash_state(struct mt_session *s)
{
    struct mt_ckpt_items x;
    mt_err e = {0};
    uint64_t h = 0xcbf29ce484222325u;
    if (CHECK(mt_session_items(s, &x, &e) == MT_OK)) {
        for (int64_t i = 0; i < x.n; i++)
            for (int64_t k = x.item[i].first; k < x.item[i].first + x.item[i].n; k++)
                h = hash_bytes(h, x.piece[k].data, x.piece[k].rows * mt_ckpt_row_bytes(&x.item[i]));
        mt_ckpt_items_close(&x);
    }
    return h;
}

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t state;
};
static struct outcome train(struct run *x, int64_t from, int64_t to)
{
    struct outcome o = {.state = 0};
    mt_err e = {0};
    for (int64_t step = from; step < to; step++) {
        fill(&x->s, step);
        for (int r = 0; r < x->s.world; r++) x->s.rank[r].step.step = step;
        if (!CHECK(mt_session_run(&x->s, mt_train_step, &e) == MT_OK)) printf("  %s\n", e.msg);
        o.loss[step] = x->s.rank[0].step.loss;
        o.norm[step] = x->s.rank[0].step.norm;
        CHECK(x->s.rank[0].step.updated);
        if (!step && x->cfg.optim_qk_clip > 0) CHECK((double)x->s.rank[0].step.top > x->cfg.optim_qk_clip);
    }
    o.state = hash_state(&x->s);
    return o;
}
static struct outcome outcome_of_mixed(const char *options, int world, enum mix mix)
{
    struct run *x = run_open_mixed(options, world, mix);
    struct outcome o = {.state = 0};
    if (x->s.exec) o = train(x, 0, STEPS);
    run_close(x);
    return o;
}
static struct outcome outcome_of(const char *options, int world)
{
    return outcome_of_mixed(options, world, DEFAULT);
}

static void same_mixed(const char *options, int world, enum mix mix, const struct outcome *want)
{
    struct outcome o = outcome_of_mixed(options, world, mix);
    bool alike = o.state == want->state;
    for (int i = 0; i < STEPS; i++) alike &= o.loss[i] == want->loss[i] && o.norm[i] == want->norm[i];
    if (!CHECK(alike))
        printf("  %d ranks, %s: loss %.17g and %.17g, norm %.17g and %.17g\n", world, options,
               o.loss[STEPS - 1], want->loss[STEPS - 1], o.norm[STEPS - 1], want->norm[STEPS - 1]);
}

static void same(const char *options, int world, const struct outcome *want)
{
    same_mixed(options, world, DEFAULT, want);
}

/* ---- every placement ---- */
static void placement(char out[160], int i)
{
    static const char *const where[] = {"device", "host"};
    snprintf(out, 160, "offload.masters=%s offload.moments=%s offload.grads=%s optim.compute=%s ",
             where[i & 1], where[i >> 1 & 1], where[i >> 2 & 1], where[i >> 3 & 1]);
}
/* Every step-th of the 15 others than all on the device. */
static void placements(const char *options, int world, int step)
{
    struct outcome want = outcome_of(options, world);
    CHECK(want.loss[STEPS - 1] < want.loss[0]);
    for (int i = 1; i < 16; i += step) {
        char place[160], text[2048];
        placement(place, i);
        snprintf(text, sizeof text, "%s%s%s", options, place, i % 3 ? SMALL : "");
        same(text, world, &want);
    }
}
TEST(one_rank)
{
    placements(BASE EXPERTS "train.dtype=f32 ", 1, BRIEF ? 14 : 1);
    if (BRIEF) return;
    placements(BASE EXPERTS "train.dtype=bf16 train.global_batch=2 ", 1, 2);
    placements(BASE "train.dtype=bf16 model.tied=true train.micro_order=layer optim.qk_clip=0.6 ", 1, 2);
}
TEST(four_ranks)
{
    placements(BASE EXPERTS "train.dtype=bf16 mesh.ep=2 ", 4, BRIEF ? 14 : 1);
    if (BRIEF) return;
    placements(BASE EXPERTS "train.dtype=f32 model.qk_norm=false optim.qk_clip=0.6 ", 4, 3);
}

/* ---- with everything else ---- */
#define FP8                                                                                           \
    "train.dtype=bf16 model.dim=136 model.layers=2 model.head_dim=40 model.kv_heads=2 model.ffn=300 " \
    "model.expert_ffn=72 model.shared_ffn=160 wire.gather_experts=fp8 wire.gather_dense=fp8 "
/* Without a blank, so that it is one word: dense matrices whole on one rank, but for those of feed-forwards. */
#define OWNED                                                                                               \
    "shard.groups=[{\"match\":\"*.experts.*\"},{\"match\":\"*.mlp.*\",\"placement\":\"block\"},{\"match\":" \
    "\"*\",\"placement\":\"owned\"}] "
static const struct {
    const char *options;
    int world;
} shape[] = {{BASE EXPERTS FP8 "mesh.ep=2 ", 4},
             {BASE EXPERTS FP8 "train.global_batch=6 ", 1},
             {BASE EXPERTS "mesh.replicas=2 mesh.ep=2 wire.reduce=bf16 ", 4},
             {BASE EXPERTS "mesh.replicas=4 ", 4},
             {BASE EXPERTS "mesh.ep=4 train.dtype=bf16 ", 4},
             {BASE EXPERTS "model.experts=5 muon.dense=gather ", 8},
             {BASE EXPERTS OWNED "mesh.ep=2 ", 4},
             {BASE EXPERTS OWNED "muon.per_head=true ", 2},
             {BASE EXPERTS FP8 OWNED, 2},
             {BASE EXPERTS "mesh.ep=2 mesh.ranks_per_node=2 wire.reduce=bf16 shard.host_weights=all ", 8},
             {BASE "train.micro_order=layer model.tied=true optim.qk_clip=0.6 ", 4}};
static const char *const place[] = {ALL_HOST, ALL_HOST "optim.compute=host ",
                                    "offload.masters=host optim.compute=host ",
                                    "offload.moments=host offload.grads=host offload.slots=3 "};

TEST(every_feature)
{
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        struct outcome want = outcome_of(shape[i].options, shape[i].world);
        for (size_t k = 0; k < sizeof place / sizeof *place; k++) {
            char text[2048];
            snprintf(text, sizeof text, "%s%s%s", shape[i].options, place[k], (i + k) % 2 ? SMALL : "");
            same(text, shape[i].world, &want);
        }
    }
}

/* Tensors of one matrix with different optimizers: some of it is updated on one side and some on the other, or not at all. */
TEST(any_optimizer)
{
    for (int mix = ADAMW; mix < MIXES; mix++)
        for (int world = 1; world <= 4; world += 3) {
            struct outcome want = outcome_of_mixed(BASE EXPERTS, world, (enum mix)mix);
            for (size_t k = 0; k < sizeof place / sizeof *place; k++) {
                char text[2048];
                snprintf(text, sizeof text, "%s%s%sdevice.order_seed=%d ", BASE EXPERTS, place[k],
                         k % 2 ? SMALL : "", (int)k + 1);
                same_mixed(text, world, (enum mix)mix, &want);
            }
        }
}

/* A router's matrix stays on the device, so Muon cannot iterate on it with what the host iterates on. */
TEST(one_batch_is_on_one_side)
{
    static mt_config cfg;
    struct mt_session s = {0};
    mt_err e = {0};
    CHECK(words_load(&cfg, BASE EXPERTS "optim.compute=host ", &e) == MT_OK);
    for (int64_t i = 0; i < cfg.optim_groups_count; i++)
        if (strstr(cfg.optim_groups[i].match, "router")) cfg.optim_groups[i].optimizer = MT_OPTIMIZER_MUON;
    CHECK_INT(mt_session_open(&s, &cfg, 1, false, &e), MT_CONFIG);
    CHECK(strstr(e.msg, "optim.compute: host") && strstr(e.msg, "layers.1.moe.router.weight"));
    mt_session_close(&s);
}

TEST(contrary_orders)
{
    static const char *const base = BASE EXPERTS "train.dtype=bf16 mesh.ep=2 ";
    struct outcome want = outcome_of(base, 4), alone = outcome_of(BASE EXPERTS, 1);
    for (int seed = 1; seed <= (BRIEF ? 1 : 5); seed++)
        for (size_t k = 0; k < sizeof place / sizeof *place; k++) {
            char text[2048];
            const char *slots = seed % 3 ? SMALL : SMALL "offload.slots=1 ";
            snprintf(text, sizeof text, "%s%s%sdevice.order_seed=%d device.workers=%d ", base, place[k],
                     slots, seed, 1 + seed % 3);
            same(text, 4, &want);
            snprintf(text, sizeof text, "%s%s%sdevice.order_seed=%d ", BASE EXPERTS, place[k], slots, seed);
            if ((size_t)seed % 4 == k || seed == 5) same(text, 1, &alone);
        }
}

/* ---- one memory plan for all ranks ---- */
/* The train step of one rank of a session, recorded. */
static void record(const struct run *x, int rank, int rounds, struct mt_recording *q)
{
    struct mt_ctx ctx;
    struct mt_step step = x->s.rank[rank].step;
    mt_err e = {0};
    *q = (struct mt_recording){0};
    mt_ctx_init(&ctx, rank, x->s.world, &mt_device_sim, &x->s.ledger);
    ctx.cut = x->s.rank[rank].model.store.cut;
    ctx.recording = q;
    if (CHECK(mt_rank_init(&step.rank, &ctx, &x->s.rank[rank].model, &e) == MT_OK)) {
        step.rank.force_rounds = rounds;
        mt_train_step(&ctx, &step);
        mt_streams_meet(&ctx);
        mt_eval_step(&ctx, &step);
    }
    mt_rank_release(&step.rank);
}

/* Kernels and collectives are on device rows unless they are the host's, and copies alone are on both. */
static void check_arenas(const struct run *x, const struct mt_recording *q)
{
    int64_t host_ops = 0, wrong = 0;
    for (int64_t i = 0; i < q->n; i++) {
        const struct mt_rec *r = &q->rec[i];
        if (r->op == MT_OP_wait || r->op == MT_OP_fresh || r->op == MT_OP_keep) continue;
        for (int k = 0; k < r->n_args; k++) {
            bool host = x->s.ledger.row[q->arg[r->arg + (uint32_t)k].row].arena == MT_HOST_ARENA,
                 want = mt_op_info[r->op].kind == MT_COPY ? (r->op == MT_OP_copy_h2d) == (k == 1)
                                                          : r->stream == MT_HOST;
            wrong += host != want;
        }
        host_ops += r->stream == MT_HOST;
        if (r->op == MT_OP_copy_h2d) wrong += r->stream != MT_H2D;
        if (r->op == MT_OP_copy_d2h) wrong += r->stream != MT_D2H;
    }
    CHECK_INT(wrong, 0);
    CHECK((host_ops > 0) == (x->cfg.optim_compute == MT_PLACE_HOST));
}

/* Laid out for the first rank, and free of races for all of them, who have other pieces of other sizes. */
TEST(one_plan_serves_all_ranks)
{
    static const struct {
        const char *options;
        int world;
    } odd[] = {{BASE EXPERTS, 1},
               {BASE EXPERTS "mesh.ep=2 ", 12},
               {BASE EXPERTS "model.experts=5 ", 8},
               {BASE EXPERTS FP8 "mesh.ep=2 ", 8},
               {BASE "model.tied=true ", 12},
               {BASE EXPERTS OWNED "mesh.ep=2 ", 8},
               {BASE EXPERTS FP8 OWNED, 8},
               {BASE EXPERTS "mesh.ranks_per_node=2 shard.reshard_dense=node ", 8},
               {BASE EXPERTS "mesh.replicas=2 ", 8}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (size_t k = 0; k < sizeof place / sizeof *place; k++) {
            char text[2048];
            snprintf(text, sizeof text, "%s%s%s", odd[i].options, place[k], k % 2 ? SMALL : "");
            struct run *x = run_open(text, odd[i].world);
            for (int r = 0; r < x->s.world && x->s.exec; r++) {
                struct mt_recording q;
                mt_err e = {0};
                record(x, r, 1 + r % 3, &q);
                if (!CHECK_INT(mt_plan_check(&x->s.ledger, &q, &e), MT_OK))
                    printf("  rank %d of %d, %s: %s\n", r, x->s.world, text, e.msg);
                check_arenas(x, &q);
                mt_recording_release(&q);
            }
            run_close(x);
        }
}

/* ---- how many bytes ---- */
/* Rows in whole steps of every packed format, so that no strip has rows of its neighbours. */
#define EVEN                                                                                         \
    BASE EXPERTS                                                                                     \
        "model.dim=64 model.head_dim=16 model.kv_heads=4 model.heads=4 model.ffn=96 model.vocab=64 " \
        "muon.batch_bytes=8KiB model.expert_ffn=32 model.shared_ffn=64 model.attn_bias=false "       \
        "train.global_batch=3 train.dtype=bf16 "

/* Elements of matrices with a working copy, and those of them on an optimizer. */
static int64_t elements(const struct mt_store *s, enum mt_optimizer o)
{
    int64_t n = 0;
    for (int t = 0; t < s->n_tensors; t++) {
        const struct mt_matrix *m = &s->matrix[s->tensor[t].matrix];
        struct mt_local l = mt_store_local(s, t);
        if (m->form != MT_FORM_F32 && s->tensor[t].optimizer == o) n += l.parts * l.rows * m->cols;
    }
    return n;
}
static int64_t copied(const struct mt_recording *q, enum mt_op op)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < q->n; i++)
        if (q->rec[i].op == op) bytes += q->arg[q->rec[i].arg].bytes;
    return bytes;
}

/* Over the link go: tokens of a train step and a validation; accumulators out for each micro-batch and in for all but the
 * first; then what the arithmetic reads and what it changes. Working weights are made on the way. */
TEST(nothing_crosses_twice)
{
    static const char *const options[] = {EVEN, EVEN ALL_HOST, EVEN ALL_HOST "optim.compute=host ",
                                          EVEN "optim.compute=host ",
                                          EVEN "offload.moments=host offload.slot_bytes=3KiB "};
    for (int k = 0; k < 5; k++) {
        struct run *x = run_open(options[k], 1);
        struct mt_recording q;
        const struct mt_model *m = &x->s.rank[0].model;
        record(x, 0, 1, &q);
        int64_t a = elements(&m->store, MT_ADAMW), u = elements(&m->store, MT_MUON), p = a + u,
                tokens = 2 * 4 * 4 * m->opt.micro_batches * m->shape.N, M = m->opt.micro_batches;
        const int64_t in[] = {0, 4 * (M - 1) * p + 16 * a + 12 * u, 4 * (M - 1) * p + 4 * p, 12 * a + 8 * u,
                              8 * a + 4 * u},
                      out[] = {0, 4 * M * p + 12 * a + 8 * u, 4 * M * p + 4, 16 * a + 12 * u + 4,
                               8 * a + 4 * u};
        CHECK(a > 0 && u > a && M == 3);
        CHECK_INT(copied(&q, MT_OP_copy_h2d), tokens + in[k]);
        CHECK_INT(copied(&q, MT_OP_copy_d2h), out[k]);
        mt_recording_release(&q);
        run_close(x);
    }
}

static int64_t row_bytes(const struct run *x, enum mt_arena arena, bool (*is)(const struct mt_row *))
{
    int64_t bytes = 0, align = x->s.ledger.align;
    for (int32_t i = 0; i < x->s.ledger.n; i++)
        if (x->s.ledger.row[i].arena == arena && is(&x->s.ledger.row[i]))
            bytes += (x->s.ledger.row[i].bytes + align - 1) / align * align;
    return bytes;
}
static bool is_state(const struct mt_row *r)
{
    return r->row_class == MT_ROW_MASTER || r->row_class == MT_ROW_MOMENT || r->row_class == MT_ROW_GRAD;
}
static bool passes(const struct mt_row *r)
{
    return strstr(r->name, "lane.") || !strncmp(r->name, "grad.full", 9) || !strncmp(r->name, "acc.", 4);
}

/* The device's peak falls by what has moved to the host, less at most what it takes to pass through; that shares its bytes with
 * what else comes and goes, so masters and moments cost nothing at all. */
TEST(the_peak_falls_by_what_has_moved)
{
    static const char *const options[] = {"", "offload.masters=host offload.moments=host ", ALL_HOST,
                                          ALL_HOST "optim.compute=host "};
    int64_t device = 0, host = 0;
    for (int world = 1; world <= 4; world += 3)
        for (int k = 0; k < 4; k++) {
            char text[2048];
            snprintf(text, sizeof text, EVEN "train.global_batch=12 offload.slot_bytes=8KiB %s", options[k]);
            struct run *x = run_open(text, world);
            int64_t d = x->s.plan.peak[MT_DEVICE_ARENA], h = x->s.plan.peak[MT_HOST_ARENA],
                    moved = row_bytes(x, MT_HOST_ARENA, is_state);
            if (!k) device = d, host = h;
            CHECK((moved > 0) == (k > 0));
            printf("  %d ranks, %s: %lld of %lld bytes have moved, %lld and %lld are taken\n", world,
                   options[k], (long long)moved, (long long)device, (long long)d, (long long)h);
            if (k < 2) CHECK_INT(device - d, moved);
            CHECK(device - d <= moved && device - d + row_bytes(x, MT_DEVICE_ARENA, passes) >= moved);
            if (k < 3) CHECK(h >= host + moved && h < host + moved + x->s.ledger.align);
            run_close(x);
        }
}

/* ---- checkpoints ---- */
static void ckpt(struct run *x, const char *folder, bool save)
{
    struct mt_ckpt_items items;
    struct mt_ckpt_meta meta = {.step = 2};
    char path[MT_CKPT_PATH];
    mt_err e = {0};
    mt_status st = mt_session_items(&x->s, &items, &e);
    mt_ckpt_folder(folder, 2, path);
    if (st == MT_OK && save) st = mt_ckpt_save(folder, &items, &meta, &x->cfg, &e);
    struct mt_job alone = mt_job_alone(x->s.world);
    struct mt_ckpt_loaded loaded;
    if (st == MT_OK && !save) st = mt_ckpt_load(path, &items, &alone, false, &loaded, &e);
    if (st == MT_OK && !save) st = mt_session_run(&x->s, mt_pack_step, &e);
    if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
    mt_ckpt_items_close(&items);
}

/* Saved under one placement, resumed under another: as if it had never stopped. */
TEST(checkpoints_do_not_know_where_state_lives)
{
    static const char *const base = BASE EXPERTS "train.dtype=bf16 mesh.ep=2 ";
    char folder[] = "/tmp/moetitan-offload-XXXXXX", command[64];
    if (!CHECK(mkdtemp(folder))) return;
    struct outcome want = outcome_of(base, 4);
    for (int k = 0; k < 3; k++) {
        const char *first = k == 1 ? "" : place[0], *then = k == 0 ? "" : place[1];
        char text[2048];
        snprintf(text, sizeof text, "%s%s", base, first);
        struct run *x = run_open(text, 4);
        train(x, 0, 2);
        ckpt(x, folder, true);
        run_close(x);
        snprintf(text, sizeof text, "%strain.seed=77 %s", base, then);
        x = run_open(text, 4);
        ckpt(x, folder, false);
        struct outcome o = train(x, 2, 4);
        CHECK(o.state == want.state && o.loss[3] == want.loss[3] && o.norm[3] == want.norm[3]);
        run_close(x);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_INT(system(command), 0);
}

int main(void)
{
    RUN(one_rank);
    RUN(four_ranks);
    if (!BRIEF) RUN(every_feature);
    RUN(contrary_orders);
    if (BRIEF) return DONE();
    RUN(one_plan_serves_all_ranks);
    RUN(any_optimizer);
    RUN(one_batch_is_on_one_side);
    RUN(nothing_crosses_twice);
    RUN(the_peak_falls_by_what_has_moved);
    RUN(checkpoints_do_not_know_where_state_lives);
    return DONE();
}
