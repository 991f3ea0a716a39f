/* scalars.h: the numbers of a step as a struct, from scalars.def. */
#ifndef MT_TRAIN_SCALARS_H
#define MT_TRAIN_SCALARS_H
#include <stdint.h>

enum {
#define MT_SCALAR(field, tag, name, doc) MT_SCALAR_##field,
#include "train/scalars.def"
#undef MT_SCALAR
    MT_N_SCALARS
};
struct mt_scalars {
    int64_t step;
    double x[MT_N_SCALARS]; /* NaN: not of this step */
};
void mt_scalars_none(struct mt_scalars *s, int64_t step); /* all NaN */
#endif
