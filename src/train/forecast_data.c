/* forecast_data.c: what a simulated step is given: which experts its rows go to, and how long its documents are. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "train/forecast.h"
#include "train/parts.h"

/* ---- routing ---- */
struct share {
    double want;
    int64_t e;
};
static int larger_part(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    double fx = x->want - floor(x->want), fy = y->want - floor(y->want);
    return fx > fy ? -1 : fx < fy ? 1 : x->e < y->e ? -1 : x->e > y->e;
}

/* Popularity is a property of an expert: the same on all ranks. A token chooses an expert once, so no expert gets more than N
 * rows of a rank; what is over goes to the others in proportion. */
static void shares(double *p, int64_t E, double most)
{
    for (int64_t pass = 0; pass <= E; pass++) { /* each caps one more, or is the last */
        double rest = 0, capped = 0;
        for (int64_t e = 0; e < E; e++) *(p[e] >= most ? &capped : &rest) += p[e] < most ? p[e] : most;
        double grow = rest > 0 ? (1 - capped) / rest : 1;
        if (fabs(grow - 1) < 1e-12) break;
        for (int64_t e = 0; e < E; e++)
            if (p[e] < most) p[e] *= grow;
    }
    for (int64_t e = 0; e < E; e++)
        if (p[e] > most) p[e] = most;
}

static void layer_rows(const struct mt_forecast *f, int64_t layer, int32_t *rows, struct share *s, double *p)
{
    const struct mt_shape *d = &f->shape;
    int64_t all = d->N * d->K, given = 0;
    uint64_t key = mt_rng_key(f->o.seed, "popularity of experts") +
                   (uint64_t)layer * UINT64_C(0x9E3779B97F4A7C15);
    bool even = f->cfg->moe_routing == MT_ROUTING_BALANCED;
    const double *seen = f->o.shares && !even && layer >= d->first_dense
                             ? f->o.shares + (layer - d->first_dense) * d->E
                             : NULL;
    double sum = 0, skew = even ? 0 : f->o.skew;
    for (int64_t e = 0; e < d->E; e++) sum += p[e] = seen ? seen[e] : exp(skew * mt_rng_normal(key, e));
    for (int64_t e = 0; e < d->E; e++) p[e] /= sum;
    shares(p, d->E, 1.0 / (double)d->K);
    for (int64_t e = 0; e < d->E; e++) {
        s[e] = (struct share){p[e] * (double)all, e};
        rows[e] = (int32_t)s[e].want;
        given += rows[e];
    }
    qsort(s, (size_t)d->E, sizeof *s, larger_part); /* what rounding left over */
    for (int64_t i = 0; given < all; i = (i + 1) % d->E)
        if (rows[s[i].e] < d->N) rows[s[i].e]++, given++;
    int64_t taken = d->capacity * (d->N / d->S);
    for (int64_t e = 0; e < d->E && d->capacity; e++)
        if (rows[e] > taken) rows[e] = (int32_t)taken;
}

mt_status mt_forecast_routing(struct mt_forecast *f, mt_err *e)
{
    const struct mt_shape *d = &f->shape;
    if (!d->E) return MT_OK;
    f->popular = calloc((size_t)(d->L * d->E), sizeof *f->popular);
    struct share *s = calloc((size_t)d->E, sizeof *s);
    double *p = calloc((size_t)d->E, sizeof *p);
    bool ok = f->popular && s && p;
    for (int64_t l = 0; l < d->L && ok; l++) layer_rows(f, l, f->popular + l * d->E, s, p);
    free(s);
    free(p);
    MT_REQUIRE(ok, e, MT_IO, "no memory for the routing of %lld experts", (long long)d->E);
    return MT_OK;
}

/* ---- documents ---- */
struct lengths {
    double mean, sigma;
    uint64_t key;
    int64_t n; /* drawn so far */
};
static int64_t draw(struct lengths *x)
{
    double z = mt_rng_normal(x->key, x->n++), length = x->mean * exp(x->sigma * z - x->sigma * x->sigma / 2);
    return length < 1 ? 1 : length > 1e15 ? (int64_t)1e15 : (int64_t)(length + 0.5);
}
/* Token pairs of a sequence, and those inside the window. */
struct seen {
    double full, near;
};
static void add_document(struct seen *s, int64_t n, int64_t window)
{
    s->full += (double)mt_pairs(n, 0);
    s->near += (double)mt_pairs(n, window);
}
/* A sequence is filled with documents, the last of them cut. */
static void draw_sequence(struct seen *s, struct lengths *x, int64_t S, int64_t window)
{
    for (int64_t left = S, n; left > 0; left -= n) {
        n = draw(x);
        if (n > left) n = left;
        add_document(s, n, window);
    }
}

static void drawn_sequences(const struct mt_forecast *f, struct seen *seen, int64_t n)
{
    int64_t S = f->shape.S;
    struct lengths x = {f->o.mean, f->o.sigma, mt_rng_key(f->o.seed, "lengths of documents"), 0};
    bool whole = f->o.documents == MT_DOCUMENTS_FULL || !f->cfg->data_document_mask;
    for (int64_t i = 0; i < n; i++) {
        if (whole)
            add_document(&seen[i], S, f->shape.W);
        else
            draw_sequence(&seen[i], &x, S, f->shape.W);
    }
}

/* Those of the run's first step, as its loader would have them. */
static mt_status real_sequences(const struct mt_forecast *f, struct seen *seen, int64_t n, mt_err *e)
{
    const mt_config *c = f->cfg;
    mt_corpus corpus;
    mt_corpus_part part[MT_CONFIG_GROUPS];
    mt_corpus_options o = {.part = part,
                           .n = mt_parts_of(c, part),
                           .valid_fraction = c->data_valid[0] ? 0 : c->data_valid_fraction,
                           .packed = c->data_mode == MT_DATA_MODE_PACKED,
                           .seed = (uint64_t)c->train_seed,
                           .most = n,
                           .rules = {.seq_len = c->train_seq_len,
                                     .vocab = c->model_vocab,
                                     .eod = c->data_eod,
                                     .document_mask = c->data_document_mask,
                                     .reset_positions = c->data_reset_positions}};
    MT_REQUIRE(part[0].path[0], e, MT_CONFIG,
               "--documents index needs data.train, the PREFIX of a PREFIX.idx");
    mt_status st = mt_corpus_open(&corpus, &o, e);
    for (int64_t i = 0; i < n && st == MT_OK; i++) {
        int64_t unit;
        const mt_split *split = mt_corpus_train(&corpus, i, &unit);
        seen[i] = (struct seen){(double)mt_sample_pairs(split, &o.rules, unit, 0),
                                (double)mt_sample_pairs(split, &o.rules, unit, f->shape.W)};
    }
    mt_corpus_close(&corpus);
    return st;
}

/* Which rank and micro-batch gets which sequence: data.balance, by the loader's code. */
static mt_status place(struct mt_forecast *f, const struct seen *seen, mt_err *e)
{
    const struct mt_shape *d = &f->shape;
    mt_balance b;
    mt_balance_layout at = {.n_ranks = f->o.world,
                            .n_micro = f->micro,
                            .micro_batch = d->N / d->S,
                            .together = f->cfg->train_micro_order == MT_MICRO_ORDER_LAYER &&
                                        f->cfg->mesh_ep == 1};
    mt_balance_price price = mt_price_of(d);
    MT_TRY(mt_balance_open(&b, &at, e));
    for (int64_t i = 0; i < b.n; i++) b.cost[i] = mt_balance_cost(&price, d->S, seen[i].full, seen[i].near);
    f->imbalance = f->cfg->data_balance == MT_BALANCE_ATTENTION ? mt_balance_place(&b) : mt_balance_keep(&b);
    for (int64_t i = 0; i < b.n; i++) {
        int64_t m = i / (at.n_ranks * at.micro_batch), r = i / at.micro_batch % at.n_ranks;
        f->pairs[r * f->micro + m] += seen[b.place[i]].full;
        f->near[r * f->micro + m] += seen[b.place[i]].near;
        f->mean_pairs += seen[i].full / (double)(f->o.world * f->micro);
        f->mean_near += seen[i].near / (double)(f->o.world * f->micro);
    }
    mt_balance_close(&b);
    return MT_OK;
}

mt_status mt_forecast_documents(struct mt_forecast *f, mt_err *e)
{
    int64_t n = f->cfg->train_global_batch;
    size_t micro = (size_t)(f->o.world * f->micro);
    f->pairs = calloc(micro, sizeof *f->pairs);
    f->near = calloc(micro, sizeof *f->near);
    struct seen *seen = calloc((size_t)n, sizeof *seen);
    mt_status st = f->pairs && f->near && seen
                       ? MT_OK
                       : mt_err_set(e, MT_IO, "no memory for %lld sequences", (long long)n);
    if (st == MT_OK && f->o.documents == MT_DOCUMENTS_INDEX)
        st = real_sequences(f, seen, n, e);
    else if (st == MT_OK)
        drawn_sequences(f, seen, n);
    if (st == MT_OK) st = place(f, seen, e);
    free(seen);
    return st;
}
