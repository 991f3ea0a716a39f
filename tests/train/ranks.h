/* ranks.h: sessions of several ranks in one process, without files: what each step gets does not depend on the layout. */
#ifndef MT_TESTS_RANKS_H
#define MT_TESTS_RANKS_H
#include "training.h"

/* Sequence q of a step: two documents, some labels that do not count. */
static inline uint32_t ranks_hash(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(x >> 32);
}
static inline void ranks_sequence(int64_t step, int64_t q, const struct mt_shape *d, int64_t base,
                                  int32_t *tokens, int32_t *labels, int32_t *begin, int32_t *pos)
{
    int64_t cut = 1 + ranks_hash((uint64_t)(step * 1000 + q)) % (uint64_t)(d->S - 1);
    for (int64_t i = 0; i < d->S; i++) {
        int64_t first = i < cut ? 0 : cut;
        tokens[i] = (int32_t)(ranks_hash((uint64_t)(((step * 100 + q) * d->S + i) * 7 + 1)) % (uint64_t)d->V);
        labels[i] = (i + cut) % 7 == 3 ? -1 : (tokens[i] * 5 + 2) % (int32_t)d->V;
        begin[i] = (int32_t)(base + first);
        pos[i] = (int32_t)(i - first);
    }
}
static inline void ranks_batch(struct training *t, int64_t step)
{
    for (int i = 0; i < t->s.n_local; i++) {
        const struct mt_model *m = &t->s.rank[i].model;
        const struct mt_ctx *c = &t->s.rank[i].ctx;
        int64_t r = t->s.first + i;
        int64_t S = m->shape.S, B = m->shape.N / S, M = m->opt.micro_batches;
        int32_t *k = mt_address(c, m->host.tokens), *l = mt_address(c, m->host.labels),
                *b = mt_address(c, m->host.begin), *p = mt_address(c, m->host.pos);
        for (int64_t q = 0; q < M * B; q++)
            ranks_sequence(step, q / B * t->s.world * B + r * B + q % B, &m->shape, q % B * S, k + q * S,
                           l + q * S, b + q * S, p + q * S);
        mt_mtp_batch(c, m);
    }
}

static inline bool ranks_open(struct training *t, const char *options, int world)
{
    mt_err e = {0};
    *t = (struct training){0};
    if (!CHECK(training_config(&t->cfg, options))) return false;
    bool ok = mt_session_open(&t->s, &t->cfg, world, false, &e) == MT_OK;
    if (!CHECK(ok)) printf("  %d ranks, %s: %s\n", world, options, e.msg);
    return ok;
}
/* Another executor for the same ranks. */
static inline bool ranks_executor(struct training *t, struct mt_exec_options o)
{
    struct mt_ctx *ctxs[64];
    mt_err e = {0};
    mt_exec_close(t->s.exec);
    t->s.exec = NULL;
    MT_ASSERT(t->s.world <= 64);
    for (int r = 0; r < t->s.world; r++) ctxs[r] = &t->s.rank[r].ctx;
    bool ok = mt_exec_open(&t->s.exec, o, ctxs, t->s.world, &t->s.dev, &e) == MT_OK;
    if (!CHECK(ok)) printf("  %s\n", e.msg);
    return ok;
}
static inline bool ranks_step(struct training *t, int64_t step)
{
    ranks_batch(t, step);
    for (int r = 0; r < t->s.world; r++) t->s.rank[r].step.step = step;
    return training_run(t, mt_train_step);
}

/* FNV-1a over a rank's rows that persist, but for what libraries leave in theirs, and loss and norm: equal for equal bits. */
static inline uint64_t ranks_bits_of(uint64_t h, const struct training *t, int local)
{
    const struct mt_session_rank *k = &t->s.rank[local];
    h = training_hash_bytes(h, &k->step.loss, 8);
    h = training_hash_bytes(h, &k->step.norm, 8);
    for (int32_t i = 0; i < t->s.ledger.n; i++) {
        const struct mt_row *w = &t->s.ledger.row[i];
        if (mt_row_persistent((enum mt_row_class)w->row_class) && w->row_class != MT_ROW_LIBRARY)
            h = training_hash_bytes(h, k->ctx.arena[w->arena] + w->off, w->bytes);
    }
    return h;
}
#define RANKS_NO_BITS 0xcbf29ce484222325u
/* Of all ranks. */
static inline uint64_t ranks_bits(const struct training *t)
{
    uint64_t h = RANKS_NO_BITS;
    for (int r = 0; r < t->s.world; r++) h = ranks_bits_of(h, t, r);
    return h;
}

/* All masters, in the order of a checkpoint, and where each tensor of them begins. */
struct ranks_values {
    float *at;                  /* owned */
    int64_t n, tensors, *begin; /* tensors + 1; owned */
    bool *bias;                 /* by tensor: of a projection of attention; owned */
};
static inline void ranks_values_release(struct ranks_values *v)
{
    free(v->at);
    free(v->begin);
    free(v->bias);
    *v = (struct ranks_values){0};
}
static inline void ranks_values_put(struct ranks_values *v, const struct mt_ckpt_items *x, int64_t i)
{
    mt_err e = {0};
    float *piece = malloc((size_t)mt_ckpt_item_bytes(&x->item[i]));
    MT_ASSERT(piece);
    for (int64_t k = x->item[i].first; k < x->item[i].first + x->item[i].n; k++) {
        float *to = v->at + v->n + x->piece[k].row0 * mt_ckpt_row_bytes(&x->item[i]) / 4;
        int64_t bytes = x->piece[k].rows * mt_ckpt_row_bytes(&x->item[i]);
        CHECK(mt_copy_now(x->reach, piece, x->piece[k].data, bytes, &e) == MT_OK);
        if (x->piece[k].copy)
            CHECK(!memcmp(to, piece, (size_t)bytes)); /* replicas hold equal bits */
        else
            memcpy(to, piece, (size_t)bytes);
    }
    free(piece);
    v->n += mt_ckpt_item_bytes(&x->item[i]) / 4;
}
static inline bool ranks_values_take(struct ranks_values *v, const struct training *t)
{
    struct mt_ckpt_items x;
    MT_ASSERT(t->s.world > 0);
    struct mt_ckpt_rank *rank = calloc((size_t)t->s.world, sizeof *rank);
    mt_err e = {0};
    int64_t n = 0;
    MT_ASSERT(rank);
    *v = (struct ranks_values){0};
    for (int i = 0; i < t->s.world; i++)
        rank[i] = (struct mt_ckpt_rank){&t->s.rank[i].model, &t->s.rank[i].ctx};
    if (!CHECK(mt_ckpt_items_open(&x, rank, t->s.world, &e) == MT_OK)) return false;
    for (int64_t i = 0; i < x.n; i++) n += x.item[i].moment ? 0 : mt_ckpt_item_bytes(&x.item[i]) / 4;
    v->at = calloc((size_t)n, sizeof *v->at);
    v->begin = calloc((size_t)x.n + 1, sizeof *v->begin);
    v->bias = calloc((size_t)x.n + 1, sizeof *v->bias);
    MT_ASSERT(v->at && v->begin && v->bias);
    for (int64_t i = 0; i < x.n; i++) {
        if (x.item[i].moment) continue;
        ranks_values_put(v, &x, i);
        v->bias[v->tensors] = strstr(x.item[i].name, ".attn.") && strstr(x.item[i].name, ".bias");
        v->begin[++v->tensors] = v->n;
    }
    mt_ckpt_items_close(&x);
    free(rank);
    return true;
}

/* Rank r's train step on sim, with so many dispatch rounds everywhere. */
static inline void ranks_answer(void *arg, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    (void)arg, (void)index;
    memset(dst, 0, (size_t)src.bytes);
    if (kind == MT_READ_LOSS || kind == MT_READ_NORM) memcpy(dst, &(double){1}, 8);
    if (kind == MT_READ_STATE && src.bytes == 8) memcpy(dst, &(int64_t){1}, 8);
}
static inline bool ranks_record(const struct training *t, int r, int rounds, int64_t skip_wait,
                                struct mt_recording *q)
{
    struct mt_ctx ctx;
    struct mt_step step = t->s.rank[r].step;
    mt_err e = {0};
    *q = (struct mt_recording){0};
    mt_ctx_init(&ctx, r, t->s.world, &mt_device_sim, &t->s.ledger);
    ctx.answer = ranks_answer;
    ctx.cut = t->s.rank[r].ctx.cut;
    ctx.recording = q;
    ctx.skip_wait = skip_wait;
    if (!CHECK(mt_rank_init(&step.rank, &ctx, &t->s.rank[r].model, &e) == MT_OK)) return false;
    step.rank.force_rounds = rounds;
    mt_train_step(&ctx, &step);
    mt_rank_release(&step.rank);
    return true;
}
#endif
