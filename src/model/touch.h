/* touch.h: what an optimizer step overwrites of a rank's lasting state, by number: a state of a tensor, or the router bias of a
 * block. Whoever reads that state meanwhile is told first. */
#ifndef MT_MODEL_TOUCH_H
#define MT_MODEL_TOUCH_H
#include "model/model.h"

static inline int mt_touch_state(int tensor, enum mt_state what)
{
    return tensor * MT_N_STATES + (int)what;
}
static inline int mt_touch_bias(const struct mt_model *m, int layer)
{
    return m->store.n_tensors * MT_N_STATES + layer;
}
static inline int mt_touches(const struct mt_model *m)
{
    return mt_touch_bias(m, (int)m->shape.L);
}
/* In host code, in front of the first operation of the step that overwrites it. */
static inline void mt_touch(const struct mt_rank *r, int what)
{
    if (r->touch.before) r->touch.before(r->touch.arg, what);
}
#endif
