/* k_fp8.c: packed weights to their fp8 form and back.
 *
 * In a panel the elements of a tile lie in one run, whatever the type: [k][32] and [k/2][32][2] both go
 * through k in order. */
#include "base/fp8.h"
#include "base/status.h"
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"
#include "device/fp8_form.h"

struct band {
    unsigned char *scales, *codes; /* of the wire */
    char *w;                       /* the band's first panel */
    int64_t rows;
};

/* Arguments `wire` and `w` of the call: its form, and band i of all its matrices. */
static struct mt_fp8_form form_of(const struct mt_call *c, const void *dev, int w)
{
    const struct mt_gemm *gemm = ((const struct mt_cpu_dev *)dev)->gemm[c->dtype];
    int64_t k = mt_fp8_up(mt_dim(c, 'I'), gemm->k_align);
    struct mt_fp8_form f = mt_fp8_form_of(mt_fp8_up(mt_dim(c, 'O'), MT_PANEL), k);
    MT_ASSERT(mt_dim(c, 'W') == f.bytes &&
              (mt_dim(c, 'E') == 1 || c->stride[w] >= f.rows * k * mt_dtype_bytes((mt_dtype)c->dtype)));
    return f;
}
static struct band band_of(const struct mt_call *c, const struct mt_fp8_form *f, int64_t i, int wire, int w)
{
    int64_t e = i / f->bands, b = i % f->bands;
    unsigned char *at = (unsigned char *)c->arg[wire] + e * c->ld[wire] + b * f->band_bytes;
    return (struct band){at, at + f->scale_bytes,
                         (char *)c->arg[w] + e * c->stride[w] +
                             b * MT_FP8_TILE * f->k * mt_dtype_bytes((mt_dtype)c->dtype),
                         mt_fp8_band_rows(f, b)};
}

/* lane[i mod MT_LANES] rises to the magnitude of element i of n, a multiple of MT_LANES, as bits of an
 * f32, whose order is that of the magnitudes; NaNs are passed over. */
MT_VEC_INLINE void raise_to(uint32_t *lane, const void *w, int dtype, int64_t at, int64_t n)
{
    float buf[MT_CHUNK];
    for (int64_t j = 0; j < n; j += MT_CHUNK) {
        int64_t m = mt_min64(MT_CHUNK, n - j);
        const float *x = mt_vec_in(w, dtype, at + j, m, buf);
        for (int64_t i = 0; i < m; i += MT_LANES)
            for (int k = 0; k < MT_LANES; k++) {
                uint32_t u = mt_bits_of_f32(x[i + k]) & 0x7fffffffu;
                u &= (uint32_t)(u > 0x7f800000u) - 1u;
                lane[k] = u > lane[k] ? u : lane[k];
            }
    }
}
MT_VEC_INLINE void encode(unsigned char *code, const void *w, int dtype, int64_t at, int64_t n, float scale)
{
    float buf[MT_CHUNK];
    for (int64_t j = 0; j < n; j += MT_CHUNK) {
        int64_t m = mt_min64(MT_CHUNK, n - j);
        const float *x = mt_vec_in(w, dtype, at + j, m, buf);
        for (int64_t i = 0; i < m; i++) code[at + j + i] = mt_fp8_of(x[i] / scale);
    }
}
MT_VEC_INLINE void decode(void *w, int dtype, const unsigned char *code, int64_t at, int64_t n, float scale)
{
    float buf[MT_CHUNK];
    for (int64_t j = 0; j < n; j += MT_CHUNK) {
        int64_t m = mt_min64(MT_CHUNK, n - j);
        float *y = mt_vec_out(w, dtype, at + j, buf);
        for (int64_t i = 0; i < m; i++) y[i] = mt_f32_of_fp8(code[at + j + i]) * scale;
        mt_vec_put(w, dtype, at + j, buf, m);
    }
}

/* Tiles below the bound are taken as zeros: their scale, and what is divided by it, would be too near to
 * the numbers that some threads flush to zero and others don't. */
static float scale_of(const uint32_t *lane)
{
    uint32_t top = 0;
    for (int k = 0; k < MT_LANES; k++) top = lane[k] > top ? lane[k] : top;
    float scale = mt_f32_of_bits(top) / MT_FP8_MAX;
    return scale >= 0x1p-100f ? scale : 1;
}

MT_VEC void mt_cpu_fp8_pack(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch;
    const struct mt_fp8_form f = form_of(c, dev, 1);
    int64_t lo, hi;
    mt_share(mt_dim(c, 'E') * f.bands, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        struct band b = band_of(c, &f, i, 0, 1);
        int64_t codes = b.rows * f.k, end = mt_fp8_band_bytes(&f, i % f.bands) - f.scale_bytes;
        memset(b.scales, 0, (size_t)f.scale_bytes);
        memset(b.codes + codes, 0, (size_t)(end - codes));
        for (int64_t t = 0; t < f.tiles; t++) {
            int64_t first = t * MT_FP8_TILE * MT_PANEL,
                    n = mt_min64(MT_FP8_TILE * MT_PANEL, f.k * MT_PANEL - first);
            uint32_t lane[MT_LANES] = {0};
            for (int64_t p = 0; p < b.rows / MT_PANEL; p++)
                raise_to(lane, b.w, c->dtype, p * MT_PANEL * f.k + first, n);
            float scale = scale_of(lane);
            memcpy(b.scales + 4 * t, &scale, 4);
            for (int64_t p = 0; p < b.rows / MT_PANEL; p++)
                encode(b.codes, b.w, c->dtype, p * MT_PANEL * f.k + first, n, scale);
        }
    }
}

MT_VEC void mt_cpu_fp8_unpack(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch;
    const struct mt_fp8_form f = form_of(c, dev, 0);
    int64_t lo, hi;
    mt_share(mt_dim(c, 'E') * f.bands, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        struct band b = band_of(c, &f, i, 1, 0);
        for (int64_t t = 0; t < f.tiles; t++) {
            int64_t first = t * MT_FP8_TILE * MT_PANEL,
                    n = mt_min64(MT_FP8_TILE * MT_PANEL, f.k * MT_PANEL - first);
            float scale;
            memcpy(&scale, b.scales + 4 * t, 4);
            for (int64_t p = 0; p < b.rows / MT_PANEL; p++)
                decode(b.w, c->dtype, b.codes, p * MT_PANEL * f.k + first, n, scale);
        }
    }
}
