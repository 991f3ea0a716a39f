/* k_memory.c: filling, copying and casting of whole buffers. */
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

enum { GRAIN = 4096 };

/* What no second-level cache holds is written past the caches, which saves reading it first. */
enum { STREAM_BYTES = 2 << 20 };
static void fill_zeros(char *x, int64_t bytes)
{
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__) /* which does not see such stores */
    int64_t skip = -(int64_t)(uintptr_t)x & 63, i = skip;
    if (bytes >= STREAM_BYTES) {
        memset(x, 0, (size_t)skip);
        for (; i + 64 <= bytes; i += 64)
            for (int j = 0; j < 64; j += 16)
                _mm_stream_si128((__m128i *)(void *)(x + i + j), _mm_setzero_si128());
        _mm_sfence();
        x += i;
        bytes -= i;
    }
#endif
    memset(x, 0, (size_t)bytes);
}

void mt_cpu_fill0(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    int64_t lo, hi;
    mt_share(c->bytes[0], GRAIN, part, parts, &lo, &hi);
    if (hi > lo) fill_zeros((char *)MT_ARGS(fill0, c)->x + lo, hi - lo);
}

MT_VEC void mt_cpu_fill_f32(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_scalars_fill_f32 *s = MT_SCALARS(fill_f32, c);
    float *x = MT_ARGS(fill_f32, c)->x, value = (float)s->value;
    int64_t lo, hi;
    mt_share(c->bytes[0] / 4, GRAIN, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) x[i] = value;
}

static void copy(const struct mt_call *c, int part, int parts)
{
    int64_t lo, hi;
    mt_share(c->bytes[0], GRAIN, part, parts, &lo, &hi);
    if (hi > lo) memcpy((char *)c->arg[0] + lo, (const char *)c->arg[1] + lo, (size_t)(hi - lo));
}

void mt_cpu_copy_h2d(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    copy(c, part, parts);
}

void mt_cpu_copy_d2h(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    copy(c, part, parts);
}

/* Argument 1, f32, to argument 0, T. */
MT_VEC_INLINE void cast(const struct mt_call *c, int part, int parts)
{
    const float *x = c->arg[1];
    int64_t lo, hi;
    mt_share(c->bytes[1] / 4, GRAIN, part, parts, &lo, &hi);
    if (hi <= lo) return;
    if (c->dtype == MT_F32)
        memcpy((float *)c->arg[0] + lo, x + lo, (size_t)(hi - lo) * 4);
    else
        mt_vec_put(c->arg[0], c->dtype, lo, x + lo, hi - lo);
}

MT_VEC void mt_cpu_weight_cast(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    cast(c, part, parts);
}

MT_VEC void mt_cpu_grad_cast(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    cast(c, part, parts);
}
