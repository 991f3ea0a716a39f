/* k_embed.c: token embedding. */
#include <string.h>

#include "base/status.h"
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

void mt_cpu_embed_fwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_embed_fwd *a = MT_ARGS(embed_fwd, c);
    const int32_t *tok = a->tok;
    int64_t el = mt_dtype_bytes((mt_dtype)c->dtype), V = mt_dim(c, 'V'), D = mt_dim(c, 'D'), lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        MT_ASSERT(tok[n] >= 0 && tok[n] < V);
        memcpy((char *)a->x + n * c->ld[0] * el, (const char *)a->w + tok[n] * c->ld[2] * el,
               (size_t)(D * el));
    }
}

/* Parts own columns, so that every row of dw adds its tokens in order. */
MT_VEC void mt_cpu_embed_bwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_embed_bwd *a = MT_ARGS(embed_bwd, c);
    const int32_t *tok = a->tok;
    int64_t N = mt_dim(c, 'N'), V = mt_dim(c, 'V'), lo, hi;
    mt_share(mt_dim(c, 'D'), 64, part, parts, &lo, &hi);
    for (int64_t n = 0; n < N && lo < hi; n++) {
        MT_ASSERT(tok[n] >= 0 && tok[n] < V);
        for (int64_t j = lo; j < hi; j += MT_CHUNK) {
            float buf[MT_CHUNK], *dw = (float *)a->dw + tok[n] * c->ld[0] + j;
            int64_t m = mt_min64(MT_CHUNK, hi - j);
            const float *dx = mt_vec_in(a->dx, c->dtype, n * c->ld[1] + j, m, buf);
            MT_VEC_LOOP
            for (int64_t i = 0; i < m; i++) dw[i] += dx[i];
        }
    }
}
