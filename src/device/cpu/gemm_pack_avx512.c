/* Packing of weights as gemm_pack.c has it, to the same bytes: whole blocks of 32 by 32 with wide registers. A form is
 * larger than L2 and read long after it is written, so lines go past the caches, which saves reading them first; rows
 * are read in the order in which they lie. Matrices that are small, or not of whole blocks, go the other way. */
#include "device/cpu/gemm_kernels.h"
#include "device/cpu/turn_avx512.h"

enum {
    PIECE = 256,          /* values of a row that are read before the rows are turned */
    LEAST_BYTES = 1 << 17 /* of a matrix, often one of many */
};

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
static inline void stream_turned(uint32_t *out, const void *in, int64_t ldi)
{
    turn_words_16(out, MT_PANEL, in, ldi, true);
}
/* 32 rows of `n` values from k on, turned: n / 2 lines of 32 words. */
static void pack_piece_bf16(uint32_t *out, const float *w, int64_t ldw, int64_t n)
{
    _Alignas(64) mt_bf16 row[MT_PANEL][PIECE];
    for (int64_t r = 0; r < MT_PANEL; r++)
        for (int64_t c = 0; c < n; c += 16) round_16(&row[r][c], w + r * ldw + c);
    for (int64_t c = 0; c < n; c += 32)
        for (int64_t h = 0; h < 2; h++)
            stream_turned(out + c / 2 * MT_PANEL + 16 * h, &row[16 * h][c], PIECE);
}

static void pack_piece_f32(uint32_t *out, const float *w, int64_t ldw, int64_t n)
{
    _Alignas(64) float row[MT_PANEL][PIECE];
    for (int64_t r = 0; r < MT_PANEL; r++)
        for (int64_t c = 0; c < n; c += 16) _mm512_store_ps(&row[r][c], _mm512_loadu_ps(w + r * ldw + c));
    for (int64_t c = 0; c < n; c += 16)
        for (int64_t h = 0; h < 2; h++)
            stream_turned(out + c * MT_PANEL + 16 * h, &row[16 * h][c], 2 * PIECE);
}

/* [16 pairs of i][32 o][2] to [16 pairs of o][32 i][2]: pairs of words are turned in themselves, then as 64 bits. */
static void turn_block_bf16(uint32_t *out, const uint32_t *in)
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

/* [32 i][32 o] to [32 o][32 i] */
static void turn_block_f32(uint32_t *out, const uint32_t *in)
{
    for (int64_t o = 0; o < MT_PANEL; o += 16)
        for (int64_t i = 0; i < MT_PANEL; i += 16)
            stream_turned(out + o * MT_PANEL + i, in + i * MT_PANEL + o, 2 * MT_PANEL);
}

static inline bool whole(const void *out, int64_t o, int64_t i)
{
    return o % MT_PANEL == 0 && i % MT_PANEL == 0 && o * i * 2 >= LEAST_BYTES && (uintptr_t)out % 64 == 0;
}

/* per_word: values of k in a word. */
static inline void pack_nt(uint32_t *out, const float *w, int64_t ldw, int64_t i, int64_t first, int64_t last,
                           int64_t per_word)
{
    for (int64_t p = first; p < last; p++)
        for (int64_t k = 0; k < i; k += PIECE) {
            uint32_t *to = out + (p * i + k) / per_word * MT_PANEL;
            const float *from = w + p * MT_PANEL * ldw + k;
            int64_t n = i - k < PIECE ? i - k : PIECE;
            if (per_word == 1)
                pack_piece_f32(to, from, ldw, n);
            else
                pack_piece_bf16(to, from, ldw, n);
        }
    _mm_sfence();
}
static inline void pack_nn(uint32_t *out, const uint32_t *nt, int64_t o, int64_t i, int64_t first,
                           int64_t last, int64_t per_word)
{
    int64_t down = o / MT_PANEL, across = i / MT_PANEL, words = MT_PANEL * MT_PANEL / per_word;
    for (int64_t p = 0; p < down; p++)
        for (int64_t q = first; q < last; q++) {
            uint32_t *to = out + (q * down + p) * words;
            if (per_word == 1)
                turn_block_f32(to, nt + (p * across + q) * words);
            else
                turn_block_bf16(to, nt + (p * across + q) * words);
        }
    _mm_sfence();
}

#define DEFINE_WIDE(form, per_word)                                                                          \
    void mt_gemm_pack_nt_##form##_wide(void *out, const void *w, mt_dtype w_dtype, int64_t ldw, int64_t o,   \
                                       int64_t i, int part, int parts)                                       \
    {                                                                                                        \
        int64_t panels = o / MT_PANEL;                                                                       \
        if (w_dtype == MT_F32 && whole(out, o, i))                                                           \
            pack_nt(out, w, ldw, i, panels *part / parts, panels * (part + 1) / parts, per_word);            \
        else                                                                                                 \
            mt_gemm_pack_nt_##form(out, w, w_dtype, ldw, o, i, part, parts);                                 \
    }                                                                                                        \
    void mt_gemm_pack_nn_##form##_wide(void *out, const void *nt, int64_t o, int64_t i, int part, int parts) \
    {                                                                                                        \
        int64_t panels = i / MT_PANEL;                                                                       \
        if (whole(out, o, i))                                                                                \
            pack_nn(out, nt, o, i, panels *part / parts, panels * (part + 1) / parts, per_word);             \
        else                                                                                                 \
            mt_gemm_pack_nn_##form(out, nt, o, i, part, parts);                                              \
    }                                                                                                        \
    void mt_gemm_unpack_nt_##form##_wide(void *w, const void *nt, int64_t ldw, int64_t o, int64_t i,         \
                                         int part, int parts)                                                \
    {                                                                                                        \
        mt_gemm_unpack_nt_##form(w, nt, ldw, o, i, part, parts);                                             \
    }
DEFINE_WIDE(f32, 1)
DEFINE_WIDE(bf16_pairs, 2)
DEFINE_WIDE(bf16_tiles, 2)
