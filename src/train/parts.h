/* parts.h: the token files of a configuration, and what a model makes of their lengths. */
#ifndef MT_TRAIN_PARTS_H
#define MT_TRAIN_PARTS_H
#include "config/config.h"
#include "data/balance.h"
#include "data/corpus.h"
#include "model/param.h"

/* data.blend, or data.train, which may be empty: how many; paths stay the configuration's. */
static inline int mt_parts_of(const mt_config *c, mt_corpus_part part[MT_CONFIG_GROUPS])
{
    part[0] = (mt_corpus_part){c->data_train, 0};
    for (int i = 0; i < c->data_blend_count; i++)
        part[i] = (mt_corpus_part){c->data_blend[i].path, c->data_blend[i].weight};
    return c->data_blend_count ? (int)c->data_blend_count : 1;
}
/* What a sequence costs a model. */
static inline mt_balance_price mt_price_of(const struct mt_shape *d)
{
    int64_t near = mt_near_layers(d);
    return mt_balance_price_of(&(mt_balance_model){.parameters = mt_flops_per_token(d, 0) / 6,
                                                   .full = d->L - near,
                                                   .near = near,
                                                   .window = d->W,
                                                   .heads = d->H,
                                                   .key = d->A,
                                                   .value = d->B});
}
#endif
