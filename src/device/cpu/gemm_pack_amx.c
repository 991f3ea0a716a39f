/* Packing of bf16 weights for tiles, as gemm_pack.c has it, to the same bytes: whole blocks of 32 by 32 with wide
 * registers. A form is larger than L2 and read long after it is written, so lines go past the caches, which
 * saves reading them first; rows are read in the order in which they lie. */
#include "device/cpu/amx_copy.h"
#include "device/cpu/gemm_kernels.h"

enum {
    PIECE = 256,          /* values of a row that are rounded before the rows are turned */
    LEAST_BYTES = 1 << 17 /* of a matrix, often one of many */
};

#if AMX_VECTORS
/* As mt_bf16_of rounds: to nearest even, NaN quiet. Denormals stay. */
static inline __m512i rounded(const float *x)
{
    __m512i u = _mm512_loadu_si512(x), one = _mm512_set1_epi32(1);
    __mmask16 nan = _mm512_cmpgt_epu32_mask(_mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff)),
                                            _mm512_set1_epi32(0x7f800000));
    __m512i high = _mm512_srli_epi32(u, 16), even = _mm512_and_si512(high, one);
    __m512i up =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, even), _mm512_set1_epi32(0x7fff)), 16);
    return _mm512_mask_or_epi32(up, nan, high, _mm512_set1_epi32(0x40));
}
static inline void round_16(mt_bf16 *to, const float *x)
{
    _mm256_store_si256((void *)to, _mm512_cvtepi32_epi16(rounded(x)));
}
/* 32 rows of `n` values from k on, turned: n / 2 lines of 32 words. */
static void pack_piece(uint32_t *out, const float *w, int64_t ldw, int64_t n)
{
    _Alignas(64) mt_bf16 row[MT_PANEL][PIECE];
    for (int64_t r = 0; r < MT_PANEL; r++)
        for (int64_t c = 0; c < n; c += 16) round_16(&row[r][c], w + r * ldw + c);
    for (int64_t c = 0; c < n; c += STEP)
        for (int64_t h = 0; h < 2; h++)
            stream_turned(out + c / 2 * MT_PANEL + 16 * h, MT_PANEL, &row[16 * h][c], PIECE);
}

/* [16 pairs of i][32 o][2] to [16 pairs of o][32 i][2]: pairs of words are turned in themselves, then as 64 bits. */
static void turn_block(uint32_t *out, const uint32_t *in)
{
    const __m512i pair =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    for (int64_t o = 0; o < 16; o += 2)
        for (int64_t i = 0; i < 16; i += 8) {
            const mt_bf16 *p = (const mt_bf16 *)(const void *)(in + i * MT_PANEL + 2 * o);
            __m512i even = _mm512_shuffle_epi8(lanes(p, 4 * MT_PANEL), pair),
                    odd = _mm512_shuffle_epi8(lanes(p + 2 * MT_PANEL, 4 * MT_PANEL), pair);
            uint32_t *to = out + o * MT_PANEL + 2 * i;
            _mm512_stream_si512((void *)to, _mm512_unpacklo_epi64(even, odd));
            _mm512_stream_si512((void *)(to + MT_PANEL), _mm512_unpackhi_epi64(even, odd));
        }
}

static bool whole(const void *out, int64_t o, int64_t i)
{
    return o % MT_PANEL == 0 && i % MT_PANEL == 0 && o * i * 2 >= LEAST_BYTES && (uintptr_t)out % 64 == 0;
}

void mt_gemm_pack_nt_amx(void *out, const void *w, mt_dtype w_dtype, int64_t ldw, int64_t o, int64_t i,
                         int part, int parts)
{
    if (w_dtype != MT_F32 || !whole(out, o, i)) {
        mt_gemm_pack_nt_bf16_tiles(out, w, w_dtype, ldw, o, i, part, parts);
        return;
    }
    int64_t panels = o / MT_PANEL;
    for (int64_t p = panels * part / parts; p < panels * (part + 1) / parts; p++)
        for (int64_t k = 0; k < i; k += PIECE)
            pack_piece((uint32_t *)out + (p * i + k) / 2 * MT_PANEL,
                       (const float *)w + p * MT_PANEL * ldw + k, ldw, lesser(PIECE, i - k));
    _mm_sfence();
}

void mt_gemm_pack_nn_amx(void *out, const void *nt, int64_t o, int64_t i, int part, int parts)
{
    if (!whole(out, o, i)) {
        mt_gemm_pack_nn_bf16_tiles(out, nt, o, i, part, parts);
        return;
    }
    int64_t panels = i / MT_PANEL, words = MT_PANEL * MT_PANEL / 2;
    for (int64_t p = 0; p < o / MT_PANEL; p++)
        for (int64_t q = panels * part / parts; q < panels * (part + 1) / parts; q++)
            turn_block((uint32_t *)out + (q * (o / MT_PANEL) + p) * words,
                       (const uint32_t *)nt + (p * panels + q) * words);
    _mm_sfence();
}
#endif
