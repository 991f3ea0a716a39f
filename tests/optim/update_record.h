/* update_record.h: a rank's step, or its optimizers' part, as a record, and what that moves between ranks. */
#ifndef MT_TESTS_UPDATE_RECORD_H
#define MT_TESTS_UPDATE_RECORD_H
#include "check.h"
#include "train/session.h"

static inline void update_answer(void *arg, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    static const double one = 1;
    (void)arg, (void)index;
    memset(dst, 0, (size_t)src.bytes);
    if (kind == MT_READ_LOSS || kind == MT_READ_NORM) memcpy(dst, &one, sizeof one);
}
/* One rank's part of a step, on its own record: all of it, or the optimizers' update alone. */
static inline void update_record(const struct mt_session *s, int rank, bool all, struct mt_recording *q)
{
    struct mt_ctx ctx;
    mt_err e = {0};
    struct mt_step t = {.optim = &s->rank[rank].optim,
                        .cfg = s->cfg,
                        .lr_factor = 1,
                        .micro = s->rank[rank].model.opt.micro_batches};
    mt_ctx_init(&ctx, rank, s->world, &mt_device_sim, &s->ledger);
    ctx.answer = update_answer;
    *q = (struct mt_recording){0};
    ctx.recording = q;
    if (!CHECK(mt_rank_init(&t.rank, &ctx, &s->rank[rank].model, &e) == MT_OK)) return;
    t.rank.force_rounds = 2;
    if (all) {
        mt_train_step(&ctx, &t);
        mt_streams_meet(&ctx);
        mt_eval_step(&ctx, &t);
    } else {
        mt_optim_update(t.optim, &t.rank, s->cfg, 0, 1);
    }
    mt_rank_release(&t.rank);
}

/* Bytes that all ranks receive in an update: each matrix once to its owner and once home, without what stays where it is;
 * or, where everyone gathers, ranks - 1 times. */
static inline int64_t update_received(const struct mt_session *s)
{
    int64_t sum = 0;
    for (int r = 0; r < s->world; r++) {
        struct mt_recording q;
        const struct mt_store *st = &s->rank[r].model.store;
        update_record(s, r, false, &q);
        for (int64_t i = 0; i < q.n; i++) {
            const struct mt_rec *c = &q.rec[i];
            if (c->op != MT_OP_collect_cut && c->op != MT_OP_spread_cut && c->op != MT_OP_gather_cut)
                continue;
            int64_t in = q.arg[c->arg].bytes, root = c->op == MT_OP_gather_cut ? -1 : c->scalar[2].i;
            const struct mt_cut *cut = &st->cut[c->scalar[1].i];
            if (c->op == MT_OP_spread_cut)
                sum += r == root ? 0 : in;
            else
                sum += in ? in - (mt_cut_to(cut, r) - mt_cut_from(cut, r)) : 0;
        }
        mt_recording_release(&q);
    }
    return sum;
}
#endif
