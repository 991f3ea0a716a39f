/* small_model.h: what the steps of the small model get. */
#ifndef MT_TESTS_SMALL_MODEL_H
#define MT_TESTS_SMALL_MODEL_H
#include "small.h"
#include "tests/train/ranks.h"

enum { SMALL_SEQUENCES = 4 };

/* ---- a step's sequences, in any order ---- */
/* Two documents, each counting up by its own step from a random token: there is something to learn. */
static inline void small_sequence(int64_t step, int64_t q, const struct mt_shape *d, int32_t at, int32_t *tok,
                                  int32_t *lab, int32_t *beg, int32_t *pos)
{
    int64_t cut = 1 + ranks_hash((uint64_t)(step * 100 + q)) % (uint64_t)(d->S - 1);
    for (int64_t i = 0; i < d->S; i++) {
        int64_t first = i < cut ? 0 : cut;
        int64_t from = ranks_hash((uint64_t)((step * 100 + q) * 2 + (first > 0) + 7)), by = 1 + from % 3;
        tok[i] = (int32_t)((from + (i - first) * by) % d->V);
        lab[i] = i + 1 == cut || i + 1 == d->S ? -1 : (int32_t)((tok[i] + by) % d->V);
        beg[i] = at + (int32_t)first;
        pos[i] = (int32_t)(i - first);
    }
}
static inline void small_batch(const struct training *t, int64_t step, int shuffled)
{
    for (int r = 0; r < t->s.world; r++) {
        const struct mt_model *m = &t->s.rank[r].model;
        const struct mt_ctx *c = &t->s.rank[r].ctx;
        int32_t *tok = mt_address(c, m->host.tokens), *lab = mt_address(c, m->host.labels),
                *beg = mt_address(c, m->host.begin), *pos = mt_address(c, m->host.pos);
        int64_t S = m->shape.S;
        for (int64_t i = 0; i < m->opt.micro_batches; i++) {
            int64_t q = (i * t->s.world + r) * (1 + 2 * shuffled) % SMALL_SEQUENCES;
            small_sequence(step, q, &m->shape, 0, tok + i * S, lab + i * S, beg + i * S, pos + i * S);
        }
        mt_mtp_batch(c, m);
    }
}

static inline bool small_open(struct training *t, const char *options, int world)
{
    char text[2048];
    mt_err e = {0};
    snprintf(text, sizeof text, MODEL "%s", options);
    if (!CHECK(training_config(&t->cfg, text))) return false;
    mt_status st = mt_session_open(&t->s, &t->cfg, world, false, &e);
    if (st == MT_OK) st = mt_session_run(&t->s, mt_fill_step, &e);
    if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
    return st == MT_OK;
}
#endif
