/* items.h: what a checkpoint of a rank consists of: named f32 tensors in its arena. */
#ifndef MT_CKPT_ITEMS_H
#define MT_CKPT_ITEMS_H
#include "model/model.h"

struct mt_ckpt_item {
    char name[112];
    float *data;        /* in the arena */
    int64_t rows, cols; /* cols 0: a vector */
    bool moment;
};
struct mt_ckpt_items {
    struct mt_ckpt_item *item; /* owned */
    int64_t n;
};
/* Masters, moments (unless the model is for inference) and router biases of the model in ctx's arenas, in the
 * order of the parameter table: the same on every start from the same configuration. */
MT_MUST_USE mt_status mt_ckpt_items_open(struct mt_ckpt_items *x, const struct mt_model *m,
                                         const struct mt_ctx *ctx, mt_err *e);
void mt_ckpt_items_close(struct mt_ckpt_items *x);
static inline int64_t mt_ckpt_item_bytes(const struct mt_ckpt_item *i)
{
    return 4 * i->rows * (i->cols ? i->cols : 1);
}
#endif
