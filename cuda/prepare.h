/* prepare.h: what is chosen at start-up. */
#ifndef MT_CUDA_PREPARE_H
#define MT_CUDA_PREPARE_H
#include <stdarg.h>
#include <stdio.h>

#include "device/record.h"
#include "device_core.h"

/* The choices in words, one behind the other. */
struct mt_chosen {
    char *text; /* size bytes, 0-terminated */
    size_t size, used;
};
static inline MT_PRINTF(2, 3) void mt_chosen_add(struct mt_chosen *c, const char *fmt, ...)
{
    va_list ap;
    if (c->used && c->used + 2 < c->size)
        c->used += (size_t)snprintf(c->text + c->used, c->size - c->used, "; ");
    va_start(ap, fmt);
    int n = vsnprintf(c->text + c->used, c->size - c->used, fmt, ap);
    va_end(ap);
    c->used += n < 0 ? 0 : (size_t)n;
    if (c->used >= c->size) c->used = c->size - 1;
}

/* On a rank's opened device, whose arenas are still empty: their contents are lost. q: what its step will enqueue. sdpa: is given
 * the shapes that cuDNN shall do (NULL: none). Copies: of this rank alone. DEVICE: the GPU failed. */
MT_MUST_USE mt_status mt_cuda_prepare(struct mt_cuda *d, struct mt_sdpa *sdpa, const struct mt_recording *q,
                                      struct mt_chosen *chosen, mt_err *e);
#endif
