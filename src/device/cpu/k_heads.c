/* k_heads.c: keys of multi-head latent attention, from a part that all heads share and a part of each. */
#include <string.h>

#include "base/status.h"
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

void mt_cpu_key_join(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_key_join *a = MT_ARGS(key_join, c);
    int64_t el = mt_dtype_bytes((mt_dtype)c->dtype), H = mt_dim(c, 'H'), R = mt_dim(c, 'R') * el,
            own = mt_dim(c, 'C') * el, lo, hi;
    MT_ASSERT(mt_dim(c, 'A') * el == R + own);
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++)
        for (int64_t h = 0; h < H; h++) {
            char *k = (char *)a->k + n * c->stride[0] + h * c->ld[0] * el;
            memcpy(k, (const char *)a->shared + n * c->ld[1] * el, (size_t)R);
            memcpy(k + R, (const char *)a->own + n * c->stride[2] + h * c->ld[2] * el, (size_t)own);
        }
}

/* Heads are added in order. */
MT_VEC static void add_heads(const struct mt_call *c, const char *dk, void *to, int64_t at, int64_t n)
{
    float sum[MT_CHUNK] = {0}, buf[MT_CHUNK];
    for (int64_t h = 0; h < mt_dim(c, 'H'); h++) {
        const float *x = mt_vec_in(dk, c->dtype, h * c->ld[2] + at, n, buf);
        MT_VEC_LOOP
        for (int64_t i = 0; i < n; i++) sum[i] += x[i];
    }
    float *y = mt_vec_out(to, c->dtype, at, buf);
    for (int64_t i = 0; i < n; i++) y[i] = sum[i];
    mt_vec_put(to, c->dtype, at, buf, n);
}

void mt_cpu_key_split(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_key_split *a = MT_ARGS(key_split, c);
    int64_t el = mt_dtype_bytes((mt_dtype)c->dtype), H = mt_dim(c, 'H'), R = mt_dim(c, 'R'),
            own = mt_dim(c, 'C') * el, lo, hi;
    MT_ASSERT(mt_dim(c, 'A') * el == R * el + own);
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        const char *dk = (const char *)a->dk + n * c->stride[2];
        for (int64_t at = 0; at < R; at += MT_CHUNK)
            add_heads(c, dk, (char *)a->dshared + n * c->ld[0] * el, at, mt_min64(MT_CHUNK, R - at));
        for (int64_t h = 0; h < H; h++)
            memcpy((char *)a->dpart + n * c->stride[1] + h * c->ld[1] * el, dk + (h * c->ld[2] + R) * el,
                   (size_t)own);
    }
}
