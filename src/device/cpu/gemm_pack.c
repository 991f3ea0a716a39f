/* Packing of weights: the same code, hence the same bytes, for all instruction sets. */
#include "device/cpu/gemm_kernels.h"
#include "device/cpu/vec.h"

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

/* Four words of four rows, turned: every instruction set has the shuffles. */
typedef uint32_t four __attribute__((vector_size(16), aligned(4), may_alias));
MT_VEC_INLINE void turn_4x4(uint32_t *out, int64_t ldo, const uint32_t *in, int64_t ldi)
{
    four a = *(const four *)in, b = *(const four *)(in + ldi), c = *(const four *)(in + 2 * ldi),
         d = *(const four *)(in + 3 * ldi);
    four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    *(four *)out = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(four *)(out + ldo) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    ab = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(four *)(out + 2 * ldo) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(four *)(out + 3 * ldo) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* A float, or two bf16. */
typedef uint32_t word __attribute__((may_alias));
/* out[c][r] = in[r][c] */
MT_VEC_INLINE void turn_words(word *out, int64_t ldo, const word *in, int64_t ldi, int64_t rows, int64_t cols)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        int64_t c = 0;
        for (; c + 4 <= cols; c += 4) turn_4x4(out + c * ldo + r, ldo, in + r * ldi + c, ldi);
        for (; c < cols; c++)
            for (int64_t i = r; i < r + 4; i++) out[c * ldo + i] = in[i * ldi + c];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) out[c * ldo + r] = in[r * ldi + c];
}

/* Words of a source row at a time: whole lines of it, few enough of the panel for the first-level cache. */
enum { TURNED = 16 };

MT_VEC void mt_gemm_pack_nt_f32(void *out, const void *w, mt_dtype w_dtype, int64_t ldw, int64_t o, int64_t i,
                                int part, int parts)
{
    struct range r = panels_of(o, part, parts);
    uint32_t line[MT_PANEL][TURNED];
    for (int64_t p = r.lo; p < r.hi; p++) {
        uint32_t *d = (uint32_t *)out + p * MT_PANEL * i;
        int64_t rows = least(o - p * MT_PANEL, MT_PANEL), at = p * MT_PANEL * ldw;
        if (rows < MT_PANEL) memset(d, 0, (size_t)(MT_PANEL * i) * sizeof *d);
        for (int64_t k = 0; k < i; k += TURNED) {
            int64_t n = least(TURNED, i - k);
            const uint32_t *from = (const uint32_t *)w + at + k;
            for (int64_t j = 0; w_dtype == MT_BF16 && j < rows; j++)
                for (int64_t c = 0; c < n; c++)
                    line[j][c] = (uint32_t)((const mt_bf16 *)w)[at + j * ldw + k + c] << 16;
            if (w_dtype == MT_BF16)
                turn_words(d + k * MT_PANEL, MT_PANEL, line[0], TURNED, rows, n);
            else
                turn_words(d + k * MT_PANEL, MT_PANEL, from, ldw, rows, n);
        }
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
MT_VEC void mt_gemm_pack_nn_f32(void *out, const void *nt, int64_t o, int64_t i, int part, int parts)
{
    struct range r = panels_of(i, part, parts);
    for (int64_t q = r.lo; q < r.hi; q++) {
        uint32_t *d = (uint32_t *)out + q * MT_PANEL * o;
        int64_t cols = least(i - q * MT_PANEL, MT_PANEL);
        if (cols < MT_PANEL) memset(d, 0, (size_t)(MT_PANEL * o) * sizeof *d);
        for (int64_t p = 0; p * MT_PANEL < o; p++)
            turn_words(d + p * MT_PANEL * MT_PANEL, MT_PANEL,
                       (const uint32_t *)nt + (p * i + q * MT_PANEL) * MT_PANEL, MT_PANEL, cols,
                       least(o - p * MT_PANEL, MT_PANEL));
    }
}

/* Two bf16 lie as one word, the lower k first in memory (both architectures are little-endian), so rows of bf16 are rows of
 * words. */
MT_VEC static void pack_nt_bf16(uint32_t *out, const void *w, mt_dtype w_dtype, int64_t ldw, int64_t o,
                                int64_t i, struct range r, int64_t align)
{
    int64_t words = padded(i, align) / 2;
    mt_bf16 row[2 * TURNED];
    word line[MT_PANEL][TURNED];
    for (int64_t p = r.lo; p < r.hi; p++) {
        uint32_t *d = out + p * MT_PANEL * words;
        int64_t rows = least(o - p * MT_PANEL, MT_PANEL), at = p * MT_PANEL * ldw;
        if (rows < MT_PANEL)
            memset(d, 0, (size_t)(MT_PANEL * words) * sizeof *d);
        else
            memset(d + i / 2 * MT_PANEL, 0, (size_t)(MT_PANEL * (words - i / 2)) * sizeof *d);
        for (int64_t k = 0; k < i; k += 2 * TURNED) {
            int64_t n = least(2 * TURNED, i - k);
            for (int64_t j = 0; j < rows; j++) {
                const mt_bf16 *from = (const mt_bf16 *)w + at + j * ldw + k;
                for (int64_t c = 0; w_dtype == MT_F32 && c < n; c++)
                    row[c] = mt_bf16_of(((const float *)w)[at + j * ldw + k + c]);
                memcpy(line[j], w_dtype == MT_F32 ? row : from, (size_t)(2 * n));
                if (n % 2) memset((char *)line[j] + 2 * n, 0, 2);
            }
            turn_words(d + k / 2 * MT_PANEL, MT_PANEL, line[0], TURNED, rows, (n + 1) / 2);
        }
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

/* A 2x2 block of W: words (o, i..i+1) and (o+1, i..i+1) become words (o..o+1, i) and (o..o+1, i+1). */
MT_VEC_INLINE void turn_pair(uint32_t *out, const uint32_t *in)
{
    uint32_t a = in[0], b = in[1];
    out[0] = (a & 0xffffu) | b << 16;
    out[1] = a >> 16 | (b & 0xffff0000u);
}

/* Four such blocks: two pairs of i, lines of the source, by two pairs of o. */
typedef uint16_t eight __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint64_t two __attribute__((vector_size(16), aligned(4), may_alias));
MT_VEC_INLINE void turn_four(uint32_t *out, const uint32_t *in)
{
    eight x = *(const eight *)in, y = *(const eight *)(in + MT_PANEL);
    two a = (two)__builtin_shufflevector(x, x, 0, 2, 1, 3, 4, 6, 5, 7),
        b = (two)__builtin_shufflevector(y, y, 0, 2, 1, 3, 4, 6, 5, 7);
    *(two *)out = __builtin_shufflevector(a, b, 0, 2);
    *(two *)(out + MT_PANEL) = __builtin_shufflevector(a, b, 1, 3);
}

/* Padding of the source is zero, so whole blocks may be turned up to the padded edges. */
static void pack_nn_bf16(uint32_t *out, const uint32_t *nt, int64_t o, int64_t i, struct range r,
                         int64_t align)
{
    int64_t sw = padded(i, align) / 2, dw = padded(o, align) / 2, rows = (o + 1) / 2;
    for (int64_t q = r.lo; q < r.hi; q++) {
        uint32_t *d = out + q * MT_PANEL * dw;
        int64_t pairs = least(sw - q * MT_PANEL / 2, MT_PANEL / 2);
        memset(d + rows * MT_PANEL, 0, (size_t)((dw - rows) * MT_PANEL) * sizeof *d);
        for (int64_t k = 0; k < rows; k += 2) {
            const uint32_t *s = nt + (2 * k / MT_PANEL * sw + q * MT_PANEL / 2) * MT_PANEL + 2 * k % MT_PANEL;
            uint32_t *t = d + k * MT_PANEL;
            int64_t both = least(rows - k, 2), c = 0;
            for (; both == 2 && c + 2 <= pairs; c += 2) turn_four(t + 2 * c, s + c * MT_PANEL);
            for (int64_t b = 0; b < both; b++) {
                for (int64_t x = c; x < pairs; x++)
                    turn_pair(t + b * MT_PANEL + 2 * x, s + x * MT_PANEL + 2 * b);
                for (int64_t x = 2 * pairs; x < MT_PANEL; x++) t[b * MT_PANEL + x] = 0;
            }
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
