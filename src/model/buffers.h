/* buffers.h: the buffers inside a layer as rows of the ledger: those that layers share, and those of what a layer keeps. */
#ifndef MT_MODEL_BUFFERS_H
#define MT_MODEL_BUFFERS_H
#include "model/model.h"

/* One buffer of struct mt_buffers; d0 0: there is none. */
struct mt_buffer_info {
    const char *name;
    size_t slot; /* of its view in struct mt_buffers */
    int keep;
    mt_dtype dtype;
    int64_t d0, d1, ld; /* ld elements from row to row, 0: d1 */
};
enum { MT_MAX_BUFFERS = 96 };
/* Those of layer l, or, l -1, what all layers together need; those of backward only if asked for. Returns how many. */
int mt_buffers_of(const struct mt_model *m, int l, bool backward, struct mt_buffer_info out[MT_MAX_BUFFERS]);
/* Bytes that a class of results takes in layer l. */
int64_t mt_keep_bytes(const struct mt_model *m, int l, int keep);

/* Elements between rows of d1 elements in activations that products read: a target may want longer ones. */
int64_t mt_padded(const struct mt_target *t, mt_dtype dtype, int64_t d1);

/* Rows for what all layers share: of a class that every layer keeps there is none, but for the rows of dispatch rounds. */
void mt_buffers_rows(struct mt_model *m, struct mt_ledger *g);
/* Rows for what layer l saves: its input and the results it keeps. */
void mt_saved_rows(struct mt_model *m, struct mt_ledger *g, int l);
#endif
