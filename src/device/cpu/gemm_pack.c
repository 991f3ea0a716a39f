/* Packing of weights: the same code, hence the same bytes, for all instruction sets. */
#include "device/cpu/gemm_kernels.h"

struct range {
    int64_t lo, hi;
};
static struct range panels_of(int64_t n, int part, int parts)
{
    int64_t p = (n + MT_PANEL - 1) / MT_PANEL;
    return (struct range){p * part / parts, p * (part + 1) / parts};
}
static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t padded(int64_t k, int64_t align)
{
    return (k + align - 1) / align * align;
}

static inline float read_f32(const void *w, mt_dtype t, int64_t i)
{
    return t == MT_F32 ? ((const float *)w)[i] : mt_f32_of(((const mt_bf16 *)w)[i]);
}
static inline mt_bf16 read_bf16(const void *w, mt_dtype t, int64_t i)
{
    return t == MT_F32 ? mt_bf16_of(((const float *)w)[i]) : ((const mt_bf16 *)w)[i];
}

void mt_gemm_pack_nt_f32(void *out, const void *w, mt_dtype w_dtype, int64_t ldw, int64_t o, int64_t i,
                         int part, int parts)
{
    struct range r = panels_of(o, part, parts);
    for (int64_t p = r.lo; p < r.hi; p++) {
        float *d = (float *)out + p * MT_PANEL * i;
        int64_t rows = least(o - p * MT_PANEL, MT_PANEL);
        if (rows < MT_PANEL) memset(d, 0, (size_t)(MT_PANEL * i) * sizeof *d);
        for (int64_t k0 = 0; k0 < i; k0 += 16) /* a line of each source row at a time */
            for (int64_t j = 0; j < rows; j++)
                for (int64_t k = k0; k < least(k0 + 16, i); k++)
                    d[k * MT_PANEL + j] = read_f32(w, w_dtype, (p * MT_PANEL + j) * ldw + k);
    }
}

void mt_gemm_unpack_nt_f32(void *w, const void *nt, int64_t ldw, int64_t o, int64_t i, int part, int parts)
{
    struct range r = panels_of(o, part, parts);
    for (int64_t p = r.lo; p < r.hi; p++) {
        const float *s = (const float *)nt + p * MT_PANEL * i;
        int64_t rows = least(o - p * MT_PANEL, MT_PANEL);
        for (int64_t k0 = 0; k0 < i; k0 += 16)
            for (int64_t j = 0; j < rows; j++)
                for (int64_t k = k0; k < least(k0 + 16, i); k++)
                    ((float *)w)[(p * MT_PANEL + j) * ldw + k] = s[k * MT_PANEL + j];
    }
}

/* Panel q of the result holds columns 32q.. of W; its k is o. */
void mt_gemm_pack_nn_f32(void *out, const void *nt, int64_t o, int64_t i, int part, int parts)
{
    struct range r = panels_of(i, part, parts);
    for (int64_t q = r.lo; q < r.hi; q++) {
        float *d = (float *)out + q * MT_PANEL * o;
        int64_t cols = least(i - q * MT_PANEL, MT_PANEL);
        if (cols < MT_PANEL) memset(d, 0, (size_t)(MT_PANEL * o) * sizeof *d);
        for (int64_t p = 0; p * MT_PANEL < o; p++) {
            const float *s = (const float *)nt + (p * i + q * MT_PANEL) * MT_PANEL;
            for (int64_t j = 0; j < least(o - p * MT_PANEL, MT_PANEL); j++)
                for (int64_t c = 0; c < cols; c++) d[(p * MT_PANEL + j) * MT_PANEL + c] = s[c * MT_PANEL + j];
        }
    }
}

/* Two bf16 as one word, the lower k first in memory (both architectures are little-endian). */
static inline uint32_t pair(mt_bf16 k0, mt_bf16 k1)
{
    return (uint32_t)k1 << 16 | k0;
}

static void pack_nt_bf16(uint32_t *out, const void *w, mt_dtype w_dtype, int64_t ldw, int64_t o, int64_t i,
                         struct range r, int64_t align)
{
    int64_t words = padded(i, align) / 2;
    for (int64_t p = r.lo; p < r.hi; p++) {
        uint32_t *d = out + p * MT_PANEL * words;
        int64_t rows = least(o - p * MT_PANEL, MT_PANEL);
        if (rows < MT_PANEL)
            memset(d, 0, (size_t)(MT_PANEL * words) * sizeof *d);
        else
            memset(d + i / 2 * MT_PANEL, 0, (size_t)(MT_PANEL * (words - i / 2)) * sizeof *d);
        for (int64_t k0 = 0; k0 < i / 2; k0 += 16)
            for (int64_t j = 0; j < rows; j++) {
                int64_t at = (p * MT_PANEL + j) * ldw;
                for (int64_t k = k0; k < least(k0 + 16, i / 2); k++)
                    d[k * MT_PANEL + j] =
                        pair(read_bf16(w, w_dtype, at + 2 * k), read_bf16(w, w_dtype, at + 2 * k + 1));
            }
        for (int64_t j = 0; i % 2 && j < rows; j++)
            d[i / 2 * MT_PANEL + j] = read_bf16(w, w_dtype, (p * MT_PANEL + j) * ldw + i - 1);
    }
}

static void unpack_nt_bf16(mt_bf16 *w, const uint32_t *nt, int64_t ldw, int64_t o, int64_t i, struct range r,
                           int64_t align)
{
    int64_t words = padded(i, align) / 2;
    for (int64_t p = r.lo; p < r.hi; p++) {
        const uint32_t *s = nt + p * MT_PANEL * words;
        for (int64_t j = 0; j < least(o - p * MT_PANEL, MT_PANEL); j++) {
            mt_bf16 *row = w + (p * MT_PANEL + j) * ldw;
            for (int64_t k = 0; k < i; k++) row[k] = (mt_bf16)(s[k / 2 * MT_PANEL + j] >> (k % 2 ? 16 : 0));
        }
    }
}

/* A 2x2 block of W: words (o, i..i+1) and (o+1, i..i+1) become words (o..o+1, i) and (o..o+1, i+1). Padding
 * of the source is zero, so whole blocks may be turned up to the padded edges. */
static void pack_nn_bf16(uint32_t *out, const uint32_t *nt, int64_t o, int64_t i, struct range r,
                         int64_t align)
{
    int64_t sw = padded(i, align) / 2, dw = padded(o, align) / 2;
    for (int64_t q = r.lo; q < r.hi; q++) {
        uint32_t *d = out + q * MT_PANEL * dw;
        int64_t pairs = least(sw - q * MT_PANEL / 2, MT_PANEL / 2);
        memset(d + (o + 1) / 2 * MT_PANEL, 0, (size_t)((dw - (o + 1) / 2) * MT_PANEL) * sizeof *d);
        for (int64_t k = 0; k < (o + 1) / 2; k++) {
            const uint32_t *s = nt + (2 * k / MT_PANEL * sw + q * MT_PANEL / 2) * MT_PANEL + 2 * k % MT_PANEL;
            uint32_t *t = d + k * MT_PANEL;
            for (int64_t c = 0; c < pairs; c++) {
                uint32_t a = s[c * MT_PANEL], b = s[c * MT_PANEL + 1];
                t[2 * c] = (a & 0xffffu) | b << 16;
                t[2 * c + 1] = a >> 16 | (b & 0xffff0000u);
            }
            for (int64_t c = 2 * pairs; c < MT_PANEL; c++) t[c] = 0;
        }
    }
}

#define DEFINE_BF16(form, align)                                                                        \
    void mt_gemm_pack_nt_##form(void *out, const void *w, mt_dtype w_dtype, int64_t ldw, int64_t o,     \
                                int64_t i, int part, int parts)                                         \
    {                                                                                                   \
        struct range r = panels_of(o, part, parts);                                                     \
        if (w_dtype == MT_F32)                                                                          \
            pack_nt_bf16(out, w, MT_F32, ldw, o, i, r, align);                                          \
        else                                                                                            \
            pack_nt_bf16(out, w, MT_BF16, ldw, o, i, r, align);                                         \
    }                                                                                                   \
    void mt_gemm_pack_nn_##form(void *out, const void *nt, int64_t o, int64_t i, int part, int parts)   \
    {                                                                                                   \
        pack_nn_bf16(out, nt, o, i, panels_of(i, part, parts), align);                                  \
    }                                                                                                   \
    void mt_gemm_unpack_nt_##form(void *w, const void *nt, int64_t ldw, int64_t o, int64_t i, int part, \
                                  int parts)                                                            \
    {                                                                                                   \
        unpack_nt_bf16(w, nt, ldw, o, i, panels_of(o, part, parts), align);                             \
    }
DEFINE_BF16(bf16_pairs, 2)
DEFINE_BF16(bf16_tiles, 32)
