/* ledger.h: every byte a run uses is a named row, and rows get their places before step 1. */
#ifndef MT_DEVICE_LEDGER_H
#define MT_DEVICE_LEDGER_H
#include <stdint.h>

#include "base/status.h"
#include "device/view.h"

enum mt_arena { MT_DEVICE_ARENA, MT_HOST_ARENA, MT_N_ARENAS };
const char *mt_arena_name(int arena); /* "device" */

/* What a row is for; the report sums by class. PERSISTENT classes keep their contents from step to step and share
 * bytes with nothing; the others live from a full definition to the last access before the next one. */
#define MT_ROW_CLASSES(X)                             \
    X(WEIGHT, "working weights", true)                \
    X(MASTER, "f32 masters", true)                    \
    X(MOMENT, "optimizer moments", true)              \
    X(GRAD, "gradient accumulators", true)            \
    X(TABLE, "tables and router state", true)         \
    X(BATCH, "tokens and labels", true)               \
    X(ACTIVATION, "saved activations", false)         \
    X(ROUTING, "stored routing", false)               \
    X(GATHERED, "gathered and turned weights", false) \
    X(STAGING, "reduction staging", false)            \
    X(SCRATCH, "recomputed inside a layer", false)    \
    X(LOSS, "logits and their gradient", false)       \
    X(OPTIM, "optimizer workspace", false)            \
    X(SAVE, "checkpoint writers", true)               \
    X(LIBRARY, "scratch of kernels and libraries", true)

enum mt_row_class {
#define X(name, text, persistent) MT_ROW_##name,
    MT_ROW_CLASSES(X)
#undef X
        MT_N_ROW_CLASSES
};
const char *mt_row_class_text(enum mt_row_class c);
bool mt_row_persistent(enum mt_row_class c);

struct mt_row {
    char name[40];
    uint8_t arena, row_class;
    int64_t bytes;
    int64_t off; /* place in the arena: unshared when added, final after mt_plan */
};
struct mt_ledger {
    struct mt_row *row; /* owned */
    int32_t n, cap;
    int64_t align;             /* of every row, bytes: the target's */
    int64_t size[MT_N_ARENAS]; /* bytes of each arena in the present layout */
};
void mt_ledger_init(struct mt_ledger *g, int64_t align);
void mt_ledger_release(struct mt_ledger *g);

/* A new row of at least one byte, at the end of the arena. Never fails: out of memory here aborts. */
int32_t mt_row_add(struct mt_ledger *g, enum mt_arena a, enum mt_row_class c, int64_t bytes, const char *fmt,
                   ...) MT_PRINTF(5, 6);
/* A row that holds one contiguous tensor; d1, d2 0 if absent. */
mt_view mt_tensor_add(struct mt_ledger *g, enum mt_arena a, enum mt_row_class c, mt_dtype t, int64_t d0,
                      int64_t d1, int64_t d2, const char *fmt, ...) MT_PRINTF(8, 9);
/* A 2-D activation whose rows are `ld` elements apart. */
mt_view mt_tensor_add_ld(struct mt_ledger *g, enum mt_arena a, enum mt_row_class c, mt_dtype t, int64_t d0,
                         int64_t d1, int64_t ld, const char *name);
#endif
