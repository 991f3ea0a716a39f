/* test: timeout=120 variants=release,asan-slow
 *
 * The bytes of a step on every rank against the closed formulas of docs/communication.md, written here again from the numbers of
 * the configuration: cuts, groups and parameters are not asked of the program, only how many rows were routed where. */
#include <unistd.h>

#include "check.h"
#include "train/session.h"
#include "train/wire.h"
#include "words.h"

enum { WORLD_MOST = 8, PANEL = 32, ALIGN = 64 };

struct numbers {
    int world, per_node, replicas, ep;
    int64_t D, L, H, G, A, F, Fd, Fs, E, V, first_dense, micro, dtype, k_align;
    bool qk_norm, bias, tied, balance, flat, global,
        aux;           /* aux: the router learns something besides; global: by all ranks' counts */
    enum mt_kept kept; /* of blocks, from forward to backward */
    bool host_dense, host_experts; /* what is gathered once is had from the host afterwards */
    const int *owner; /* of each dense matrix of Muon's, in the model's order; NULL: all are gathered */
};

/* Bytes from rank i to rank j, and how many of them are padding. */
struct table {
    int64_t bytes[WORLD_MOST][WORLD_MOST], pad[WORLD_MOST][WORLD_MOST];
};
struct tables {
    struct table t[MT_N_GROUPS][MT_N_COMM_OPS];
    int n_owned; /* dense matrices of Muon's so far */
};
static struct table *table_of(struct tables *x, enum mt_group_id g, enum mt_op op)
{
    return &x->t[g][op - MT_COMM_FIRST];
}

/* ---- groups ---- */
/* Members of a group that moves in two levels on each node; else 0. */
static int near(const struct numbers *c, enum mt_group_id g)
{
    int per = c->world / c->replicas, n = g == MT_GROUP_SLOT ? c->per_node / c->ep : c->per_node;
    return !c->flat && n > 1 && per > c->per_node && per % c->per_node == 0 ? n : 0;
}
static bool together(const struct numbers *c, enum mt_group_id g, int a, int b)
{
    int per = c->world / c->replicas;
    switch (g) {
    case MT_GROUP_SHARD: return a / per == b / per;
    case MT_GROUP_SLOT: return a / per == b / per && a % c->ep == b % c->ep;
    case MT_GROUP_EP: return a / c->ep == b / c->ep;
    case MT_GROUP_REPLICA: return a % per == b % per;
    case MT_GROUP_SHARD_NODE: return a / c->per_node == b / c->per_node;
    case MT_GROUP_SLOT_NODE: return a / c->per_node == b / c->per_node && a % c->ep == b % c->ep;
    case MT_GROUP_SHARD_RAIL:
    case MT_GROUP_SLOT_RAIL: return a / per == b / per && a % c->per_node == b % c->per_node;
    default: return true;
    }
}
static int members(const struct numbers *c, enum mt_group_id g, int rank, int *me)
{
    int n = 0;
    *me = 0;
    for (int r = 0; r < c->world; r++) {
        if (r < rank) *me += together(c, g, rank, r);
        n += together(c, g, rank, r);
    }
    return n;
}
/* Which piece a rank has: those of the ranks at one place of their nodes lie together. */
static int place(const struct numbers *c, enum mt_group_id g, int rank, int *me)
{
    int n = members(c, g, rank, me), on_node = near(c, g);
    if (on_node) *me = *me % on_node * (n / on_node) + *me / on_node;
    return n;
}

/* ---- pieces ---- */
enum form { PACKED, ROWS, F32 };
struct matrix {
    enum form form;
    int64_t rows, cols;
};
static int64_t up(int64_t x, int64_t m)
{
    return (x + m - 1) / m * m;
}
static int64_t packed(const struct numbers *c, int64_t rows, int64_t cols)
{
    return up(rows, PANEL) * up(cols, c->k_align) * c->dtype;
}
static int64_t stored(const struct numbers *c, struct matrix m)
{
    return m.form == F32    ? 4 * m.rows * m.cols
           : m.form == ROWS ? up(m.rows * m.cols * c->dtype, ALIGN)
                            : packed(c, m.rows, m.cols);
}

/* Where the k-th of n pieces of a bucket begins: the last panel, row or element at or below an even share. */
static void edge(const struct numbers *c, const struct matrix *m, int n_m, int64_t n, int64_t k,
                 int64_t *elements, int64_t *bytes)
{
    int64_t all = 0, all_bytes = 0, at = 0, at_bytes = 0;
    for (int i = 0; i < n_m; i++) all += m[i].rows * m[i].cols, all_bytes += stored(c, m[i]);
    *elements = *bytes = 0;
    for (int i = 0; i < n_m; i++) {
        int64_t step = m[i].form == PACKED ? PANEL : 1, e = m[i].form == F32 ? 4 : c->dtype;
        for (int64_t r = 0; r < m[i].rows; r += step)
            if (at + r * m[i].cols <= all * k / n) {
                *elements = at + r * m[i].cols;
                *bytes = at_bytes + r * (m[i].form == PACKED ? up(m[i].cols, c->k_align) : m[i].cols) * e;
            }
        at += m[i].rows * m[i].cols;
        at_bytes += stored(c, m[i]);
    }
    if (k == n) *elements = all, *bytes = all_bytes;
}

/* What each rank has of a unit's bucket: elements, and bytes of the working copy. */
struct held {
    int64_t elements[WORLD_MOST], bytes[WORLD_MOST];
};
static struct held held_dense(const struct numbers *c, const struct matrix *m, int n_m)
{
    struct held h = {{0}, {0}};
    for (int r = 0; r < c->world; r++) {
        int64_t e0, b0, e1, b1;
        int me, n = place(c, MT_GROUP_SHARD, r, &me);
        edge(c, m, n_m, n, me, &e0, &b0);
        edge(c, m, n_m, n, me + 1, &e1, &b1);
        h.elements[r] = e1 - e0;
        h.bytes[r] = b1 - b0;
    }
    return h;
}
/* Whole experts; what does not divide goes round from layer to layer. */
static struct held held_experts(const struct numbers *c, int64_t layer)
{
    struct held h = {{0}, {0}};
    int64_t own = c->E / c->ep;
    for (int r = 0; r < c->world; r++) {
        int me, n = place(c, MT_GROUP_SLOT, r, &me);
        int64_t experts = (layer + me + 1) * own / n - (layer + me) * own / n;
        h.elements[r] = experts * 3 * c->D * c->F;
        h.bytes[r] = experts * (packed(c, 2 * c->F, c->D) + packed(c, c->D, c->F));
    }
    return h;
}

/* ---- collectives ---- */
static void gather(struct tables *x, const struct numbers *c, enum mt_group_id g, enum mt_op op,
                   const int64_t *bytes, const int64_t *content, int64_t times)
{
    struct table *t = table_of(x, g, op);
    for (int i = 0; i < c->world; i++)
        for (int j = 0; j < c->world; j++) {
            if (i == j || !together(c, g, i, j)) continue;
            t->bytes[i][j] += times * bytes[i];
            t->pad[i][j] += content ? times * (bytes[i] - content[i]) : 0;
        }
}
static void gather_alike(struct tables *x, const struct numbers *c, enum mt_group_id g, int64_t bytes,
                         int64_t times)
{
    int64_t all[WORLD_MOST] = {0};
    for (int i = 0; i < c->world; i++) all[i] = bytes;
    gather(x, c, g, MT_OP_gather, all, NULL, times);
}

/* What rank i sends to j of a scatter: j's piece. */
static void scatter(struct tables *x, const struct numbers *c, enum mt_group_id g, const int64_t *bytes,
                    int64_t times)
{
    struct table *t = table_of(x, g, MT_OP_scatter_cut);
    for (int i = 0; i < c->world; i++)
        for (int j = 0; j < c->world; j++)
            if (i != j && together(c, g, i, j)) t->bytes[i][j] += times * bytes[j];
}
/* What the ranks at each rank's place of their nodes have together. */
static void regions(const struct numbers *c, enum mt_group_id rail, const int64_t *bytes, int64_t *region)
{
    for (int i = 0; i < c->world; i++) {
        region[i] = 0;
        for (int j = 0; j < c->world; j++) region[i] += together(c, rail, i, j) ? bytes[j] : 0;
    }
}
/* In two levels: to the ranks at one's place of other nodes, and from these to the neighbours; gradients back. */
static void two_levels(struct tables *x, const struct numbers *c, enum mt_group_id g, const int64_t *bytes,
                       const int64_t *content, const int64_t *f32, int64_t gathers, int64_t fetches)
{
    enum mt_group_id node = g == MT_GROUP_SLOT ? MT_GROUP_SLOT_NODE : MT_GROUP_SHARD_NODE,
                     rail = g == MT_GROUP_SLOT ? MT_GROUP_SLOT_RAIL : MT_GROUP_SHARD_RAIL;
    int64_t all[WORLD_MOST], all_content[WORLD_MOST], all_f32[WORLD_MOST];
    regions(c, rail, bytes, all);
    regions(c, rail, content, all_content);
    regions(c, rail, f32, all_f32);
    bool apart = c->kept == MT_KEPT_REGION && gathers == 2 * c->micro;
    gather(x, c, rail, MT_OP_gather_cut, bytes, content, fetches);
    gather(x, c, node, apart ? MT_OP_gather_cut : MT_OP_gather_rest, all, all_content, gathers);
    scatter(x, c, node, all_f32, c->micro);
    scatter(x, c, rail, f32, c->micro);
}

/* One bucket of a unit: its weights, its gradients once a micro-batch, and over the replicas once. */
static void bucket(struct tables *x, const struct numbers *c, enum mt_group_id g, const struct held *h,
                   bool work, bool block)
{
    bool host = g == MT_GROUP_SLOT ? c->host_experts : c->host_dense;
    int64_t gathers = block && c->kept != MT_KEPT_ALL ? 2 * c->micro : c->micro,
            fetches = block && c->kept == MT_KEPT_REGION && near(c, g) ? c->micro : gathers;
    if (host) fetches = 1;
    int64_t content[WORLD_MOST] = {0}, f32[WORLD_MOST] = {0};
    for (int i = 0; i < c->world; i++)
        content[i] = (work ? c->dtype : 4) * h->elements[i], f32[i] = 4 * h->elements[i];
    if (near(c, g)) {
        two_levels(x, c, g, h->bytes, content, f32, gathers, fetches);
    } else {
        gather(x, c, g, MT_OP_gather_cut, h->bytes, content, fetches);
        scatter(x, c, g, f32, c->micro);
    }
    gather(x, c, MT_GROUP_REPLICA, MT_OP_gather, f32, NULL, 1);
}

/* To each matrix's owner and back. Owners, by the matrices' order in the model, are a plan of the program's. */
static void owned(struct tables *x, const struct numbers *c, const int64_t *bytes, int owner)
{
    struct table *to = table_of(x, MT_GROUP_SHARD, MT_OP_collect_cut),
                 *back = table_of(x, MT_GROUP_SHARD, MT_OP_spread_cut);
    for (int r = 0; r < c->world; r++) {
        int root = r / (c->world / c->replicas) * (c->world / c->replicas) + owner;
        if (r == root) continue;
        to->bytes[r][root] += bytes[r];
        back->bytes[root][r] += bytes[r];
    }
}

/* The momentum of one of the matrices of a bucket: rows [row0, row0 + rows) of matrix `which`, by who holds them. */
static void muon(struct tables *x, const struct numbers *c, const struct matrix *m, int n_m, int which,
                 int64_t row0, int64_t rows)
{
    int64_t bytes[WORLD_MOST] = {0}, first = row0 * m[which].cols;
    for (int i = 0; i < which; i++) first += m[i].rows * m[i].cols;
    int64_t last = first + rows * m[which].cols;
    for (int r = 0; r < c->world; r++) {
        int64_t lo, hi, ignored;
        int me, n = place(c, MT_GROUP_SHARD, r, &me);
        edge(c, m, n_m, n, me, &lo, &ignored);
        edge(c, m, n_m, n, me + 1, &hi, &ignored);
        lo = lo > first ? lo : first;
        hi = hi < last ? hi : last;
        bytes[r] = hi > lo ? c->dtype * (hi - lo) : 0;
    }
    if (c->owner)
        owned(x, c, bytes, c->owner[x->n_owned++]);
    else
        gather(x, c, MT_GROUP_SHARD, MT_OP_gather_cut, bytes, NULL, 1);
}

/* ---- the step ---- */
static void embedding_and_head(struct tables *x, const struct numbers *c)
{
    struct matrix embed = {ROWS, c->V, c->D}, head = {PACKED, c->V, c->D}, norm = {F32, c->D, 1};
    struct held h = held_dense(c, &embed, 1);
    bucket(x, c, MT_GROUP_SHARD, &h, true, false);
    h = held_dense(c, &norm, 1);
    bucket(x, c, MT_GROUP_SHARD, &h, false, false);
    h = held_dense(c, &head, 1);
    if (!c->tied) bucket(x, c, MT_GROUP_SHARD, &h, true, false);
}

static void block(struct tables *x, const struct numbers *c, int64_t l)
{
    bool moe = c->E && l >= c->first_dense;
    int64_t f = moe ? c->Fs : c->Fd;
    struct matrix m[8] = {{PACKED, c->H * c->A, c->D},
                          {PACKED, c->G * c->A, c->D},
                          {PACKED, c->G * c->A, c->D},
                          {PACKED, c->D, c->H * c->A}},
                  v[8] = {{F32, c->D, 1}, {F32, c->D, 1}};
    int n = 4, n_v = 2;
    if (f) m[n++] = (struct matrix){PACKED, 2 * f, c->D}, m[n++] = (struct matrix){PACKED, c->D, f};
    for (int i = 0; i < 2 && c->qk_norm; i++) v[n_v++] = (struct matrix){F32, c->A, 1};
    for (int i = 0; i < 3 && c->bias; i++) v[n_v++] = (struct matrix){F32, (i ? c->G : c->H) * c->A, 1};
    if (moe) v[n_v++] = (struct matrix){F32, c->E, c->D};
    struct held h = held_dense(c, m, n);
    bucket(x, c, MT_GROUP_SHARD, &h, true, true);
    h = held_dense(c, v, n_v);
    bucket(x, c, MT_GROUP_SHARD, &h, false, true);
    for (int i = 0; i < 4; i++) muon(x, c, m, n, i, 0, m[i].rows); /* in the order of their tensors */
    for (int i = 0; i < 2 && f; i++) muon(x, c, m, n, 4, i * f, f);
    if (f) muon(x, c, m, n, 5, 0, c->D);
    if (!moe) return;
    h = held_experts(c, l);
    bucket(x, c, MT_GROUP_SLOT, &h, true, true);
    if (c->ep > 1) gather_alike(x, c, MT_GROUP_EP, 4 * c->E, c->micro);
    if (c->balance) gather_alike(x, c, MT_GROUP_WORLD, 8 * c->E, 1);
    if (c->global) gather_alike(x, c, MT_GROUP_WORLD, 8 * c->E, c->micro);
}

/* Rows that rank i has for the experts of rank j, in all blocks and micro-batches. */
static int64_t routed(const struct numbers *c, const struct mt_session *s, int i, int j)
{
    int64_t n = 0, own = c->E / c->ep;
    for (int64_t l = c->first_dense; l < c->L; l++)
        for (int64_t b = 0; b < c->micro; b++)
            for (int64_t e = 0; e < own; e++)
                n += mt_rank_counts(&s->rank[i].step.rank, b, (int)l)[j % c->ep * own + e];
    return n;
}

static void dispatch(struct tables *x, const struct numbers *c, const struct mt_session *s)
{
    struct table *to = table_of(x, MT_GROUP_EP, MT_OP_exchange),
                 *home = table_of(x, MT_GROUP_EP, MT_OP_exchange_home);
    for (int i = 0; i < c->world; i++)
        for (int j = 0; j < c->world; j++) {
            if (i == j || !c->E || !together(c, MT_GROUP_EP, i, j)) continue;
            int64_t n = routed(c, s, i, j), row = c->D * c->dtype;
            to->bytes[i][j] += n * (3 * row + 4);
            home->bytes[j][i] += n * (2 * row + 4);
        }
}

static void formula(struct tables *x, const struct numbers *c, const struct mt_session *s)
{
    memset(x, 0, sizeof *x);
    embedding_and_head(x, c);
    for (int64_t l = 0; l < c->L; l++) block(x, c, l);
    dispatch(x, c, s);
    gather_alike(x, c, MT_GROUP_SHARD, 160, 1);
    gather_alike(x, c, MT_GROUP_WORLD, 8, 2);
    if (c->aux) gather_alike(x, c, MT_GROUP_WORLD, 24, 1);
}

/* ---- the comparison ---- */
static struct mt_lane counted(const struct mt_session *s, int rank, int group, int op)
{
    struct mt_lane sum = {0};
    for (int stream = 0; stream < MT_N_STREAMS; stream++)
        mt_lane_sum(&sum, &s->rank[rank].traffic.lane[group][stream][op - MT_COMM_FIRST]);
    return sum;
}

static void compare(const struct numbers *c, const struct mt_session *s, const struct tables *x, int rank,
                    int group, int op)
{
    struct mt_lane l = counted(s, rank, group, op);
    for (int link = 0; link < MT_N_LINKS; link++) {
        struct mt_flow w = {0};
        const struct mt_flow *f = &l.flow[link];
        const struct table *t = &x->t[group][op - MT_COMM_FIRST];
        for (int p = 0; p < c->world; p++) {
            if ((p / c->per_node == rank / c->per_node) != (link == MT_LINK_NODE)) continue;
            w.sent += t->bytes[rank][p], w.sent_pad += t->pad[rank][p];
            w.received += t->bytes[p][rank], w.received_pad += t->pad[p][rank];
        }
        bool same = f->sent == w.sent && f->received == w.received && f->sent_pad == w.sent_pad &&
                    f->received_pad == w.received_pad;
        if (!CHECK(same))
            printf("  rank %d, %s %s, link %d: sent %lld, formula %lld; received %lld, formula %lld; padding "
                   "%lld %lld, formula %lld %lld\n",
                   rank, mt_mesh_group_name((enum mt_group_id)group), mt_op_info[op].name, link,
                   (long long)f->sent, (long long)w.sent, (long long)f->received, (long long)w.received,
                   (long long)f->sent_pad, (long long)f->received_pad, (long long)w.sent_pad,
                   (long long)w.received_pad);
        CHECK_INT(atomic_load(&l.moved[link]), w.received);
    }
}

static void batches(struct mt_session *s, uint64_t seed)
{
    for (int r = 0; r < s->world; r++) {
        const struct mt_model *m = &s->rank[r].model;
        const struct mt_ctx *c = &s->rank[r].ctx;
        int32_t *tok = mt_address(c, m->host.tokens), *lab = mt_address(c, m->host.labels),
                *beg = mt_address(c, m->host.begin), *pos = mt_address(c, m->host.pos);
        for (int64_t i = 0; i < m->opt.micro_batches * m->shape.N; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            tok[i] = (int32_t)((seed >> 33) % (uint64_t)m->shape.V);
            lab[i] = (tok[i] + 1) % (int32_t)m->shape.V;
            beg[i] = (int32_t)(i % m->shape.N / m->shape.S * m->shape.S);
            pos[i] = (int32_t)(i % m->shape.S);
        }
    }
}

static bool open_session(struct mt_session *s, mt_config *cfg, const char *options, int world)
{
    mt_err e = {0};
    mt_status st = words_load(cfg, options, &e);
    if (st == MT_OK) st = mt_session_open(s, cfg, world, false, &e);
    if (st == MT_OK) st = mt_session_run(s, mt_fill_step, &e);
    if (st != MT_OK) printf("  %s\n", e.msg);
    return CHECK(st == MT_OK);
}
static bool step(struct mt_session *s, int64_t number)
{
    mt_err e = {0};
    batches(s, (uint64_t)number + 5);
    for (int r = 0; r < s->world; r++) s->rank[r].step.step = number;
    if (CHECK(mt_session_run(s, mt_train_step, &e) == MT_OK)) return CHECK(s->rank[0].step.updated);
    printf("  %s\n", e.msg);
    return false;
}

#define COMMON                                                                     \
    "device.isa=scalar train.seq_len=16 optim.warmup_steps=0 optim.decay_ratio=0 " \
    "train.loss_chunk=16 "

enum { OWNED_MOST = 64 };
static int by_tensor(const void *a, const void *b)
{
    return ((const struct mt_muon_dense *)a)->tensor - ((const struct mt_muon_dense *)b)->tensor;
}
static const int *owners_of(const struct mt_muon *u, int owner[OWNED_MOST])
{
    struct mt_muon_dense d[OWNED_MOST];
    if (!CHECK(u->n_dense > 0 && u->n_dense <= OWNED_MOST)) return NULL;
    memcpy(d, u->dense, (size_t)u->n_dense * sizeof *d);
    qsort(d, (size_t)u->n_dense, sizeof *d, by_tensor);
    for (int i = 0; i < u->n_dense; i++) owner[i] = d[i].owner;
    return owner;
}

static void check_config(const char *options, const struct numbers *c)
{
    static struct tables want;
    struct mt_session s = {0};
    mt_config *cfg = calloc(1, sizeof *cfg);
    bool ok = open_session(&s, cfg, options, c->world);
    for (int64_t k = 0; k < 2 && ok; k++) { /* a step's bytes are its own, not those since the start */
        ok = step(&s, k);
        struct numbers with = *c;
        int owner[OWNED_MOST];
        if (cfg->muon_dense == MT_MUON_DENSE_EXCHANGE) with.owner = owners_of(&s.rank[0].optim.muon, owner);
        formula(&want, &with, &s);
        for (int r = 0; r < c->world && ok; r++)
            for (int g = 0; g < MT_N_GROUPS; g++)
                for (int op = MT_COMM_FIRST; op < MT_COMM_FIRST + MT_N_COMM_OPS; op++)
                    compare(c, &s, &want, r, g, op);
    }
    mt_session_close(&s);
    free(cfg);
}

/* Odd widths: panels are padded, cuts fall at panels, rows and elements. */
TEST(dense)
{
    check_config(COMMON
                 "muon.dense=gather train.dtype=f32 model.vocab=61 model.dim=40 model.layers=3 model.heads=4 "
                 "model.kv_heads=2 model.head_dim=12 model.ffn=72 "
                 "model.tied=true model.attn_bias=true train.global_batch=6 mesh.ranks_per_node=2",
                 &(struct numbers){.world = 6,
                                   .per_node = 2,
                                   .replicas = 1,
                                   .ep = 1,
                                   .D = 40,
                                   .L = 3,
                                   .H = 4,
                                   .G = 2,
                                   .A = 12,
                                   .Fd = 72,
                                   .V = 61,
                                   .micro = 1,
                                   .dtype = 4,
                                   .k_align = 1,
                                   .bias = true,
                                   .tied = true});
}

#define MIXED                                                                                     \
    "train.dtype=bf16 model.vocab=64 model.dim=64 model.layers=3 model.heads=2 model.kv_heads=1 " \
    "model.head_dim=32 model.ffn=96 "                                                             \
    "model.experts=10 model.top_k=3 model.expert_ffn=32 model.shared_ffn=64 model.first_dense=1 " \
    "model.qk_norm=true model.score=sigmoid "                                                     \
    "model.bias_rate=0.01 moe.buffer_factor=0.3 mesh.ep=2 mesh.replicas=2 train.global_batch=16 " \
    "mesh.ranks_per_node=2 "

static struct numbers mixed(int64_t experts)
{
    return (struct numbers){.world = 8,
                            .per_node = 2,
                            .replicas = 2,
                            .ep = 2,
                            .D = 64,
                            .L = 3,
                            .H = 2,
                            .G = 1,
                            .A = 32,
                            .F = 32,
                            .Fd = 96,
                            .Fs = 64,
                            .E = experts,
                            .V = 64,
                            .first_dense = 1,
                            .micro = 2,
                            .dtype = 2,
                            .k_align = 2,
                            .qk_norm = true,
                            .balance = true};
}

/* Experts that do not divide, further rounds, replicas, two micro-batches. */
TEST(experts_and_replicas)
{
    struct numbers n = mixed(10);
    check_config(COMMON MIXED, &n);
}

/* Balance by all ranks' counts, in every micro-batch; fewer rows for a capacity. */
TEST(balance_of_the_global_batch)
{
    struct numbers n = mixed(8);
    n.aux = n.global = true;
    check_config(COMMON MIXED "model.experts=8 moe.aux_loss_global=0.1 moe.z_loss=0.1 moe.capacity_factor=1",
                 &n);
}

#define NODES_OF_FOUR                                                                            \
    "train.dtype=f32 model.vocab=50 model.dim=24 model.layers=2 model.heads=2 model.kv_heads=2 " \
    "model.head_dim=12 model.experts=8 model.top_k=2 model.expert_ffn=20 train.global_batch=8 "  \
    "mesh.ranks_per_node=4 "
static const struct numbers nodes_of_four = {.world = 8,
                                             .per_node = 4,
                                             .replicas = 1,
                                             .ep = 4,
                                             .D = 24,
                                             .L = 2,
                                             .H = 2,
                                             .G = 2,
                                             .A = 12,
                                             .F = 20,
                                             .E = 8,
                                             .V = 50,
                                             .micro = 1,
                                             .dtype = 4,
                                             .k_align = 1};

/* Nodes of four, expert groups of four: dispatch stays inside, expert weights all go between nodes. */
TEST(expert_groups_of_a_node)
{
    check_config(COMMON NODES_OF_FOUR "train.global_batch=8 mesh.ep=4", &nodes_of_four);
}
/* Two expert groups a node: experts, too, come from outside once a node. */
TEST(two_expert_groups_of_a_node)
{
    struct numbers c = nodes_of_four;
    c.ep = 2;
    check_config(COMMON NODES_OF_FOUR "train.global_batch=8 mesh.ep=2", &c);
}
TEST(one_level)
{
    struct numbers c = nodes_of_four;
    c.ep = 2;
    c.flat = true;
    check_config(COMMON NODES_OF_FOUR "train.global_batch=8 mesh.ep=2 shard.hierarchy=flat", &c);
}

/* What backward does not fetch again, and what a step has from the host after the first pass. */
TEST(weights_that_stay)
{
    static const struct {
        const char *options;
        enum mt_kept kept;
        bool dense, experts;
    } x[] = {{"shard.reshard_dense=node shard.reshard_experts=node", MT_KEPT_REGION, false, false},
             {"shard.reshard_dense=none shard.reshard_experts=none", MT_KEPT_ALL, false, false},
             {"shard.host_weights=dense", MT_KEPT_PIECE, true, false},
             {"shard.host_weights=experts", MT_KEPT_PIECE, false, true},
             {"shard.host_weights=all shard.reshard_dense=node shard.reshard_experts=node", MT_KEPT_REGION,
              true, true},
             {"shard.host_weights=all shard.reshard_dense=none shard.reshard_experts=none", MT_KEPT_ALL, true,
              true}};
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        for (int ep = 2; ep <= 4; ep += 2) {
            struct numbers c = nodes_of_four;
            char options[1024];
            c.ep = ep;
            c.micro = 2;
            c.kept = x[i].kept;
            c.host_dense = x[i].dense;
            c.host_experts = x[i].experts;
            snprintf(options, sizeof options, COMMON NODES_OF_FOUR "train.global_batch=16 mesh.ep=%d %s", ep,
                     x[i].options);
            check_config(options, &c);
        }
}

/* Bytes between nodes of the weights and gradients of a step, of groups g and its rail. */
static int64_t between_nodes(const char *options, enum mt_group_id g, enum mt_group_id rail)
{
    struct mt_session s = {0};
    mt_config *cfg = calloc(1, sizeof *cfg);
    int64_t n = 0;
    if (open_session(&s, cfg, options, 8) && step(&s, 0))
        for (int i = 0; i < 2; i++)
            for (int stream = MT_GATHER; stream <= MT_REDUCE; stream++)
                for (int op = MT_OP_gather_cut; op <= MT_OP_scatter_cut; op++) {
                    struct mt_lane l = mt_wire_sum(&s, i ? rail : g, stream, op);
                    n += atomic_load(&l.moved[MT_LINK_NET]);
                }
    mt_session_close(&s);
    free(cfg);
    return n;
}
/* What a node needs, it gets once: the bytes fall by the group's members on a node. */
TEST(two_levels_save_bytes_between_nodes)
{
    int64_t flat = between_nodes(COMMON NODES_OF_FOUR "train.global_batch=8 mesh.ep=2 shard.hierarchy=flat",
                                 MT_GROUP_SHARD, MT_GROUP_SHARD_RAIL),
            two = between_nodes(COMMON NODES_OF_FOUR "train.global_batch=8 mesh.ep=2", MT_GROUP_SHARD,
                                MT_GROUP_SHARD_RAIL);
    CHECK(two > 0);
    CHECK_INT(flat, 4 * two);
    flat = between_nodes(COMMON NODES_OF_FOUR "train.global_batch=8 mesh.ep=2 shard.hierarchy=flat",
                         MT_GROUP_SLOT, MT_GROUP_SLOT_RAIL);
    two = between_nodes(COMMON NODES_OF_FOUR "train.global_batch=8 mesh.ep=2", MT_GROUP_SLOT,
                        MT_GROUP_SLOT_RAIL);
    CHECK(two > 0);
    CHECK_INT(flat, 2 * two);
}

/* 5 experts of 2 slots over 2 ranks each: what moves is what the experts hold, but for the ranks' own. */
TEST(uneven_owners_cost_nothing)
{
    struct mt_session s = {0};
    mt_config *cfg = calloc(1, sizeof *cfg);
    if (open_session(&s, cfg, COMMON MIXED, 8) && step(&s, 0)) {
        const int64_t expert = 3 * 64 * 32, per_slot = 5, blocks = 2, micro = 2;
        struct mt_lane w = mt_wire_sum(&s, MT_GROUP_SLOT, MT_GATHER, MT_OP_gather_cut),
                       g = mt_wire_sum(&s, MT_GROUP_SLOT, MT_REDUCE, MT_OP_scatter_cut);
        int64_t slots = 4, weights = slots * per_slot * expert * 2 * blocks * 2 * micro,
                grads = slots * per_slot * expert * 4 * blocks * micro;
        int64_t moved_w = atomic_load(&w.moved[0]) + atomic_load(&w.moved[1]),
                moved_g = atomic_load(&g.moved[0]) + atomic_load(&g.moved[1]);
        CHECK(moved_w >= weights && (double)moved_w <= 1.02 * (double)weights);
        CHECK(moved_g >= grads && (double)moved_g <= 1.02 * (double)grads);
        CHECK_INT(mt_lane_padding(&w, MT_LINK_NODE) + mt_lane_padding(&w, MT_LINK_NET), 0);
        int owned[2] = {0, 0};
        for (int r = 0; r < 8; r++)
            for (int i = 0; i < s.rank[r].model.store.n_buckets; i++) {
                const struct mt_bucket *b = &s.rank[r].model.store.bucket[i];
                if (!s.rank[r].model.store.unit[b->unit].experts || !b->elements) continue;
                int64_t experts = (b->edge[b->me + 1] - b->edge[b->me]) / b->elements;
                if (CHECK(experts == 2 || experts == 3)) owned[experts - 2]++;
            }
        CHECK(owned[0] == 8 && owned[1] == 8);
    }
    mt_session_close(&s);
    free(cfg);
}

/* What one rank sends, another receives; the line of metrics has the sums. */
TEST(metrics_have_the_sums)
{
    struct mt_session s = {0};
    mt_config *cfg = calloc(1, sizeof *cfg);
    if (open_session(&s, cfg, COMMON MIXED, 8) && step(&s, 0)) {
        char line[1024], want[128];
        int64_t sent[MT_N_LINKS] = {0}, received[MT_N_LINKS] = {0};
        for (int r = 0; r < 8; r++)
            for (int g = 0; g < MT_N_GROUPS; g++)
                for (int op = MT_COMM_FIRST; op < MT_COMM_FIRST + MT_N_COMM_OPS; op++) {
                    struct mt_lane l = counted(&s, r, g, op);
                    for (int i = 0; i < MT_N_LINKS; i++)
                        sent[i] += l.flow[i].sent, received[i] += l.flow[i].received;
                }
        CHECK(sent[0] > 0 && sent[1] > 0 && sent[0] == received[0] && sent[1] == received[1]);
        int n = mt_wire_fields(&s, true, line, sizeof line);
        snprintf(want, sizeof want,
                 ", \"wire_node_bytes\": %lld, \"wire_net_bytes\": %lld, \"wire_padding_bytes\": 0, "
                 "\"wire_world\": [",
                 (long long)sent[0], (long long)sent[1]);
        CHECK_INT(n, strlen(line));
        if (!CHECK(!strncmp(line, want, strlen(want)))) printf("  %s\n  %s\n", line, want);
        CHECK(strstr(line, "\"wire_shard\": [") && strstr(line, "\"wire_slot\": [0, ") &&
              strstr(line, "\"wire_replica\": [0, "));
    }
    mt_session_close(&s);
    free(cfg);
}

/* After a failure each rank's last collectives are in a file. */
TEST(a_dump_has_every_rank)
{
    struct mt_session s = {0};
    mt_config *cfg = calloc(1, sizeof *cfg);
    char dir[] = "/tmp/traffic-XXXXXX", path[64], line[256];
    if (open_session(&s, cfg, COMMON MIXED, 8) && CHECK(mkdtemp(dir)) && step(&s, 0)) {
        snprintf(cfg->run_dir, sizeof cfg->run_dir, "%s", dir);
        snprintf(path, sizeof path, "%s/collectives.txt", dir);
        mt_wire_dump(&s);
        int ranks = 0, lines = 0;
        FILE *f = fopen(path, "r");
        while (CHECK(f) && fgets(line, sizeof line, f)) {
            if (!strncmp(line, "rank ", 5))
                ranks++;
            else
                lines += strstr(line, " on group ") != NULL;
        }
        if (f) fclose(f);
        CHECK_INT(ranks, 8);
        CHECK_INT(lines, 8 * MT_TRACE_LAST);
        unlink(path);
        rmdir(dir);
    }
    mt_session_close(&s);
    free(cfg);
}

int main(void)
{
    RUN(dense);
    RUN(experts_and_replicas);
    RUN(balance_of_the_global_batch);
    RUN(expert_groups_of_a_node);
    RUN(two_expert_groups_of_a_node);
    RUN(one_level);
    RUN(weights_that_stay);
    RUN(two_levels_save_bytes_between_nodes);
    RUN(uneven_owners_cost_nothing);
    RUN(metrics_have_the_sums);
    RUN(a_dump_has_every_rank);
    return DONE();
}
