/* parts.h: the token files of a configuration. */
#ifndef MT_TRAIN_PARTS_H
#define MT_TRAIN_PARTS_H
#include "config/config.h"
#include "data/corpus.h"

/* data.blend, or data.train, which may be empty: how many; paths stay the configuration's. */
static inline int mt_parts_of(const mt_config *c, mt_corpus_part part[MT_CONFIG_GROUPS])
{
    part[0] = (mt_corpus_part){c->data_train, 0};
    for (int i = 0; i < c->data_blend_count; i++)
        part[i] = (mt_corpus_part){c->data_blend[i].path, c->data_blend[i].weight};
    return c->data_blend_count ? (int)c->data_blend_count : 1;
}
#endif
