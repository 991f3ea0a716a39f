#include "data/corpus.h"

#include <stdlib.h>

static mt_status open_source(mt_corpus_source *s, const mt_corpus_options *o, const char *path, mt_err *e)
{
    MT_TRY(mt_index_open(&s->index, path, e));
    if (o->packed) MT_TRY(mt_bins_open(&s->bins, &s->index, path, o->rules.seq_len, e));
    return mt_split_cut(&s->train, &s->valid, &s->index, o->packed ? &s->bins : NULL, &o->rules,
                        o->valid_fraction, e);
}

/* Without weights a part's share is what it has, so that all end an epoch together. */
static mt_status open_blends(mt_corpus *c, const mt_corpus_options *o, mt_err *e)
{
    double *weight = malloc((size_t)c->n * sizeof *weight);
    MT_REQUIRE(weight, e, MT_IO, "data.blend: no memory");
    for (int i = 0; i < c->n; i++)
        weight[i] = o->part[i].weight > 0 ? o->part[i].weight : (double)c->source[i].train.count;
    mt_status st = mt_blend_open(&c->train, c->n, weight, !(o->part[0].weight > 0), o->most, e);
    for (int i = 0; i < c->n; i++) weight[i] = (double)c->source[i].valid.count;
    if (st == MT_OK && c->n_valid) st = mt_blend_open(&c->valid, c->n, weight, true, c->n_valid, e);
    free(weight);
    return st;
}

mt_status mt_corpus_open(mt_corpus *c, const mt_corpus_options *o, mt_err *e)
{
    *c = (mt_corpus){.rules = o->rules, .seed = o->seed};
    c->source = calloc((size_t)o->n, sizeof *c->source);
    MT_REQUIRE(c->source, e, MT_IO, "data: no memory for %d token files", o->n);
    c->n = o->n;
    for (int i = 0; i < c->n; i++) MT_TRY(open_source(&c->source[i], o, o->part[i].path, e));
    for (int i = 0; i < c->n; i++) {
        MT_REQUIRE((o->part[i].weight > 0) == (o->part[0].weight > 0), e, MT_CONFIG,
                   "data.blend: '%s' has %s weight and '%s' has %s: give one to each, or to none",
                   o->part[0].path, o->part[0].weight > 0 ? "a" : "no", o->part[i].path,
                   o->part[i].weight > 0 ? "one" : "none");
        c->n_train += c->source[i].train.count;
        c->n_valid += c->source[i].valid.count;
    }
    return c->n > 1 ? open_blends(c, o, e) : MT_OK;
}

void mt_corpus_close(mt_corpus *c)
{
    for (int i = 0; c->source && i < c->n; i++) {
        mt_bins_close(&c->source[i].bins);
        mt_index_close(&c->source[i].index);
    }
    mt_blend_close(&c->train);
    mt_blend_close(&c->valid);
    free(c->source);
    *c = (mt_corpus){0};
}

mt_status mt_corpus_check(const mt_corpus *c, mt_err *e)
{
    for (int i = 0; i < c->n; i++) {
        const mt_corpus_source *s = &c->source[i];
        if (s->index.idx_file.at) MT_TRY(mt_mapped_check(&s->index.idx_file, s->index.idx_path, e));
        MT_TRY(mt_mapped_check(&s->index.bin_file, s->index.bin_path, e));
        if (s->train.bins) MT_TRY(mt_mapped_check(&s->bins.file, s->bins.path, e));
    }
    return MT_OK;
}

const mt_split *mt_corpus_train(mt_corpus *c, int64_t sample, int64_t *unit)
{
    int i = c->n > 1 ? mt_blend_at(&c->train, sample, &sample) : 0;
    const mt_split *split = &c->source[i].train;
    *unit = mt_split_shuffled(split, c->seed + (uint64_t)i * UINT64_C(0x9E3779B97F4A7C15), sample);
    return split;
}
const mt_split *mt_corpus_valid(mt_corpus *c, int64_t sample, int64_t *unit)
{
    int i = c->n > 1 ? mt_blend_at(&c->valid, sample, &sample) : 0;
    *unit = sample;
    return &c->source[i].valid;
}
