#include "device/ledger.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *text;
    bool persistent;
} row_class[MT_N_ROW_CLASSES] = {
#define X(name, text, persistent) {text, persistent},
    MT_ROW_CLASSES(X)
#undef X
};

const char *mt_arena_name(int arena)
{
    static const char *const name[MT_N_ARENAS] = {"device", "host"};
    return name[arena];
}
const char *mt_row_class_text(enum mt_row_class c)
{
    return row_class[c].text;
}
bool mt_row_persistent(enum mt_row_class c)
{
    return row_class[c].persistent;
}

void mt_ledger_init(struct mt_ledger *g, int64_t align)
{
    MT_ASSERT(align > 0);
    *g = (struct mt_ledger){.align = align};
}
void mt_ledger_release(struct mt_ledger *g)
{
    free(g->row);
    *g = (struct mt_ledger){.align = g->align};
}

static struct mt_row *row_new(struct mt_ledger *g, enum mt_arena a, enum mt_row_class c, int64_t bytes)
{
    if (g->n == g->cap) {
        g->cap = g->cap ? 2 * g->cap : 256;
        g->row = realloc(g->row, (size_t)g->cap * sizeof *g->row);
        MT_ASSERT(g->row);
    }
    if (bytes < 1) bytes = 1;
    int64_t off = (g->size[a] + g->align - 1) / g->align * g->align;
    struct mt_row *r = &g->row[g->n++];
    *r = (struct mt_row){.arena = (uint8_t)a, .row_class = (uint8_t)c, .bytes = bytes, .off = off};
    g->size[a] = off + bytes;
    return r;
}

#define ROW_NAME(r, fmt)                                 \
    do {                                                 \
        va_list ap_;                                     \
        va_start(ap_, fmt);                              \
        vsnprintf((r)->name, sizeof(r)->name, fmt, ap_); \
        va_end(ap_);                                     \
    } while (0)

int32_t mt_row_add(struct mt_ledger *g, enum mt_arena a, enum mt_row_class c, int64_t bytes, const char *fmt,
                   ...)
{
    struct mt_row *r = row_new(g, a, c, bytes);
    ROW_NAME(r, fmt);
    return g->n - 1;
}

mt_view mt_tensor_add(struct mt_ledger *g, enum mt_arena a, enum mt_row_class c, mt_dtype t, int64_t d0,
                      int64_t d1, int64_t d2, const char *fmt, ...)
{
    mt_view v = mt_view_of(g->n, t, 0, d0, d1, d2);
    struct mt_row *r = row_new(g, a, c, v.bytes);
    ROW_NAME(r, fmt);
    return v;
}

mt_view mt_tensor_add_ld(struct mt_ledger *g, enum mt_arena a, enum mt_row_class c, mt_dtype t, int64_t d0,
                         int64_t d1, int64_t ld, const char *name)
{
    MT_ASSERT(ld >= d1);
    mt_view v = mt_view_of(g->n, t, 0, d0, d1, 0);
    v.ld = ld;
    v.bytes = d0 ? ((d0 - 1) * ld + d1) * mt_dtype_bytes(t) : 0;
    mt_row_add(g, a, c, v.bytes, "%s", name);
    return v;
}
