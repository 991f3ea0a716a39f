/* training.h: small sessions for the tests of the train step, without files. */
#ifndef MT_TESTS_TRAINING_H
#define MT_TESTS_TRAINING_H
#include "check.h"
#include "ckpt/items.h"
#include "train/session.h"
#include "words.h"

struct training {
    mt_config cfg;
    struct mt_session s;
};

/* Options of all of these tests: three layers, two sequences of 40 tokens a micro-batch, three micro-batches, a loss chunk
 * that does not divide. */
#define TRAINING_BASE                                                                                     \
    "model.vocab=97 model.dim=48 model.layers=3 model.heads=4 model.kv_heads=2 model.head_dim=16 "        \
    "model.ffn=80 "                                                                                       \
    "train.seq_len=40 train.micro_batch=2 train.global_batch=6 train.loss_chunk=28 optim.warmup_steps=0 " \
    "optim.lr=2e-3 "                                                                                      \
    "optim.decay_ratio=0 train.dtype=f32 "
#define TRAINING_MOE                                                                             \
    "model.experts=6 model.top_k=2 model.expert_ffn=24 model.shared_ffn=40 model.first_dense=1 " \
    "model.qk_norm=true "                                                                        \
    "model.score=sigmoid model.bias_rate=0.01 "

/* Reads options, "key=value key=value ...", later ones win. */
static inline bool training_config(mt_config *cfg, const char *options)
{
    mt_err e = {0};
    if (words_load(cfg, options, &e) == MT_OK) return true;
    printf("  %s\n", e.msg);
    return false;
}

static inline bool training_open_config(struct training *t)
{
    mt_err e = {0};
    if (mt_session_open(&t->s, &t->cfg, 1, false, &e) == MT_OK) return true;
    printf("  %s\n", e.msg);
    return false;
}

static inline bool training_open(struct training *t, const char *options)
{
    *t = (struct training){0};
    return CHECK(training_config(&t->cfg, options) && training_open_config(t));
}

static inline void training_close(struct training *t)
{
    mt_session_close(&t->s);
}

static inline bool training_run(struct training *t, void (*host)(struct mt_ctx *, void *))
{
    mt_err e = {0};
    if (mt_session_run(&t->s, host, &e) == MT_OK) return true;
    printf("  %s\n", e.msg);
    return CHECK(false);
}

static inline uint32_t training_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Documents of 1 to 24 tokens, each counting up from a random token, so that there is something to learn; labels do not
 * reach over their ends. */
static inline void training_batch(struct training *t, uint64_t seed)
{
    const struct mt_model *m = &t->s.rank[0].model;
    int32_t *tok = mt_address(&t->s.rank[0].ctx, m->host.tokens),
            *lab = mt_address(&t->s.rank[0].ctx, m->host.labels),
            *beg = mt_address(&t->s.rank[0].ctx, m->host.begin),
            *pos = mt_address(&t->s.rank[0].ctx, m->host.pos);
    int64_t n = m->opt.micro_batches * m->shape.N, S = m->shape.S, V = m->shape.V, end = 0;
    uint64_t state = seed * 7919 + 17;
    for (int64_t i = 0, begin = 0; i < n; i++) {
        if (i == end || i % S == 0) {
            begin = i;
            end = i + 1 + training_random(&state) % 24;
            tok[i] = (int32_t)(training_random(&state) % (uint64_t)V);
        } else {
            tok[i] = (int32_t)((tok[i - 1] + 1) % V);
        }
        beg[i] = (int32_t)(begin % m->shape.N);
        pos[i] = (int32_t)(i - begin);
        lab[i] = i + 1 == end || (i + 1) % S == 0 ? -1 : (int32_t)((tok[i] + 1) % V);
    }
    mt_mtp_batch(&t->s.rank[0].ctx, m);
}

/* Train steps [from, to), each on its own batch. */
static inline bool training_steps(struct training *t, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        training_batch(t, (uint64_t)i);
        t->s.rank[0].step.step = i;
        if (!training_run(t, mt_train_step) || !CHECK(t->s.rank[0].step.updated)) return false;
    }
    return true;
}

static inline double training_loss(const struct training *t)
{
    return t->s.rank[0].step.loss / (double)t->s.rank[0].step.valid;
}

/* FNV-1a over loss, norm, masters and moments: equal for equal bits. */
static inline uint64_t training_hash_bytes(uint64_t h, const void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
    return h;
}
static inline uint64_t training_hash(struct training *t)
{
    struct mt_ckpt_items items;
    mt_err e = {0};
    uint64_t h = 0xcbf29ce484222325u;
    if (!CHECK(mt_ckpt_items_open(&items, &(struct mt_ckpt_rank){&t->s.rank[0].model, &t->s.rank[0].ctx}, 1,
                                  &e) == MT_OK))
        return 0;
    h = training_hash_bytes(h, &t->s.rank[0].step.loss, 8);
    h = training_hash_bytes(h, &t->s.rank[0].step.norm, 8);
    for (int64_t i = 0; i < items.n; i++)
        h = training_hash_bytes(h, items.piece[items.item[i].first].data, mt_ckpt_item_bytes(&items.item[i]));
    mt_ckpt_items_close(&items);
    return h;
}
#endif
