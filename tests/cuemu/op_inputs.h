/* op_inputs.h: contents of arguments, where random numbers will not do; and what working weights must look like. */
#ifndef MT_TESTS_OP_INPUTS_H
#define MT_TESTS_OP_INPUTS_H
#include "base/fp8.h"
#include "op_check.h"

/* ---- contents ---- */

/* Documents of 1 to 40 tokens: where each begins. */
static inline void begins(struct trial *t)
{
    int32_t *begin = trial_at(t, "begin"), from = 0;
    for (int64_t i = 0, end = 0; i < trial_dim(t, 'N'); i++) {
        if (i == end) from = (int32_t)i, end = i + 1 + trial_below(t, 40);
        begin[i] = from;
    }
}
static inline void numbers(struct trial *t, const char *name, int64_t n, int64_t below)
{
    int32_t *x = trial_at(t, name);
    for (int64_t i = 0; i < n; i++) x[i] = (int32_t)trial_below(t, below);
}
static inline void starts(struct trial *t)
{
    numbers(t, "begin", (trial_dim(t, 'R') - 1) * trial_ld(t, "begin") + trial_dim(t, 'N'),
            trial_dim(t, 'N'));
}
static inline void tokens(struct trial *t)
{
    numbers(t, "tok", trial_dim(t, 'N'), trial_dim(t, 'V'));
}
static inline void positions(struct trial *t)
{
    numbers(t, "pos", trial_dim(t, 'N'), trial_dim(t, 'S'));
}
/* A permutation of 0 .. n - 1, in rows of `row` that lie `ld` apart. */
static inline void shuffled(struct trial *t, const char *name, int64_t n, int64_t row, int64_t ld)
{
    int32_t *x = trial_at(t, name);
    for (int64_t i = 0; i < n; i++) x[i / row * ld + i % row] = (int32_t)i;
    for (int64_t i = 1; i < n; i++) {
        int64_t j = trial_below(t, i + 1), a = i / row * ld + i % row, b = j / row * ld + j % row;
        int32_t o = x[a];
        x[a] = x[b], x[b] = o;
    }
}
static inline void order(struct trial *t)
{
    shuffled(t, "order", trial_dim(t, 'M'), trial_dim(t, 'M') ? trial_dim(t, 'M') : 1, trial_ld(t, "order"));
}
static inline void slots(struct trial *t)
{
    shuffled(t, "slot", trial_dim(t, 'M'), trial_dim(t, 'K'), trial_ld(t, "slot"));
}
/* A row for every second pair; the others are dropped. */
static inline void fewer_slots(struct trial *t)
{
    int32_t *x = trial_at(t, "slot");
    int64_t K = trial_dim(t, 'K');
    for (int64_t i = 0; i < trial_dim(t, 'N') * K; i++)
        x[i / K * trial_ld(t, "slot") + i % K] = (int32_t)(i % 2 ? -1 - i : (trial_dim(t, 'M') - 1) - i / 2);
}
/* K different experts a token. */
static inline void ids(struct trial *t)
{
    int32_t *x = trial_at(t, "ids");
    int64_t E = trial_dim(t, 'E') > 0 ? trial_dim(t, 'E') : 1, K = trial_dim(t, 'K');
    for (int64_t n = 0; n < trial_dim(t, 'N'); n++)
        for (int64_t k = 0, first = trial_below(t, E); k < K; k++)
            x[n * trial_ld(t, "ids") + k] = (int32_t)((first + k * 3) % E);
}
/* Rows of C or M for E experts, none for some. */
static inline void counts(struct trial *t)
{
    int32_t *x = trial_at(t, "counts");
    int64_t E = trial_dim(t, 'E'), left = 37;
    for (int64_t e = 0; e < E; e++) {
        x[e] = (int32_t)(e % 3 == 1 ? 0 : e + 1 == E ? left : trial_below(t, left + 1));
        left -= x[e];
    }
}
static inline void all_counts(struct trial *t)
{
    numbers(t, "all", (trial_dim(t, 'R') - 1) * trial_ld(t, "all") + trial_dim(t, 'W'), 5);
}
/* A label in three does not count. */
static inline void labels(struct trial *t)
{
    int32_t *x = trial_at(t, "labels");
    int64_t V = trial_dim(t, 'V') > 0 ? trial_dim(t, 'V') : 9;
    for (int64_t i = 0; i < trial_dim(t, 'N'); i++) x[i] = i % 3 == 1 ? -1 : (int32_t)trial_below(t, V);
}
static inline void valid_labels(struct trial *t)
{
    labels(t);
    *(int64_t *)trial_at(t, "valid") = 11;
}
/* Logits with a step between any two, so that no rounding changes the order; ties in one row. */
static inline void logits_apart(struct trial *t)
{
    float *x = trial_at(t, "logits"), *bias = trial_at(t, "bias");
    int64_t E = trial_dim(t, 'E'), ld = trial_ld(t, "logits");
    for (int64_t e = 0; e < E; e++) bias[e] = e % 2 ? 0.01f : -0.01f;
    for (int64_t n = 0; n < trial_dim(t, 'N'); n++)
        for (int64_t e = 0; e < E; e++) x[n * ld + e] = n == 1 ? 0.5f : (float)((e * 7 + n) % E) * 0.05f - 1;
}
/* Random ones, but for a row in which all experts of all groups are equal. */
static inline void one_tied(struct trial *t)
{
    float *x = trial_at(t, "logits"), *bias = trial_at(t, "bias");
    for (int64_t e = 0; e < trial_dim(t, 'E'); e++) x[trial_ld(t, "logits") + e] = 0.5f, bias[e] = 0;
}
static inline void positive(struct trial *t, const char *name, int64_t n)
{
    float *x = trial_at(t, name);
    for (int64_t i = 0; i < n; i++) x[i] = fabsf(x[i]) + 0.1f;
}

/* ---- working weights: this device's form is row-major, so loops tell what to expect ---- */
enum { WO = 130, WI = 136, WE = 2 };
static inline float rounded(mt_dtype t, float x)
{
    return t == MT_BF16 ? mt_f32_of(mt_bf16_of(x)) : x;
}
static inline float element(const void *p, mt_dtype t, int64_t i)
{
    return t == MT_BF16 ? mt_f32_of(((const mt_bf16 *)p)[i]) : ((const float *)p)[i];
}
static inline bool form_is(const char *got, int64_t stride, mt_dtype t, const float *want, int64_t n)
{
    bool same = true;
    for (int64_t e = 0; e < WE; e++)
        for (int64_t i = 0; i < n; i++) same &= element(got + e * stride, t, i) == want[e * n + i];
    return same;
}
static inline bool packed_is(const struct side *s, mt_view v, mt_dtype t, const float *want, int64_t n)
{
    return form_is(mt_address(&s->ctx, v), v.stride, t, want, n);
}
/* Every tile of 128 x 128: its largest magnitude over 448 is its scale. */
static inline void through_fp8(float *w, mt_dtype t)
{
    for (int64_t r0 = 0; r0 < WO; r0 += MT_FP8_TILE)
        for (int64_t c0 = 0; c0 < WI; c0 += MT_FP8_TILE) {
            int64_t r1 = r0 + MT_FP8_TILE < WO ? r0 + MT_FP8_TILE : WO,
                    c1 = c0 + MT_FP8_TILE < WI ? c0 + MT_FP8_TILE : WI;
            float top = 0;
            for (int64_t r = r0; r < r1; r++)
                for (int64_t c = c0; c < c1; c++) top = fmaxf(top, fabsf(w[r * WI + c]));
            const float scale = top / MT_FP8_MAX;
            for (int64_t r = r0; r < r1; r++)
                for (int64_t c = c0; c < c1; c++)
                    w[r * WI + c] = rounded(t, mt_f32_of_fp8(mt_fp8_of(w[r * WI + c] / scale)) * scale);
        }
}
/* master -> nt -> nn; and fp8 there and back. Memory of the emulated device is looked at in place. */
static inline void forms(mt_dtype t)
{
    struct side s;
    static float want[WE * WO * WI];
    struct trial p = {.side = &s, .dtype = t};
    const int64_t oi[] = {WO, WI}, n = WO * WI;
    side_init(&s, CUDA);
    struct tensor master = trial_tensor(&s, MT_F32, 3, (int64_t[]){WE, WO, WI}, 0, 0);
    mt_view nt = trial_packed(&p, MT_PACKED_NT, WE, oi, "nt"),
            nn = trial_packed(&p, MT_PACKED_NN, WE, oi, "nn"),
            back = trial_packed(&p, MT_PACKED_NT, WE, oi, "back"),
            form = trial_packed(&p, MT_PACKED_NT, -1, oi, "form");
    struct mt_fp8_form f = mt_fp8_form(s.target, t, WO, WI);
    struct tensor rows = trial_tensor(&s, t, 2, oi, 8, 0);
    int32_t wire_row = mt_row_add(&s.ledger, MT_DEVICE_ARENA, MT_ROW_WEIGHT, f.bytes * WE, "wire");
    mt_view wire = mt_view_of(wire_row, MT_U8, 0, WE, f.bytes, 0);
    struct mt_stream *q = &s.ctx.stream[MT_COMPUTE];
    side_open(&s);
    trial_random(&p, &master.host), trial_random(&p, &rows.host);
    upload(&s, &master, MT_COMPUTE), upload(&s, &rows, MT_COMPUTE);
    mt_weight_pack(q, nt, master.dev);
    mt_weight_turn(q, nn, nt);
    mt_weight_form(q, form, rows.dev);
    mt_fp8_pack(q, wire, nt);
    mt_fp8_unpack(q, back, wire);
    side_finish(&s);
    const float *from = mt_address(&s.ctx, master.host);
    for (int64_t i = 0; i < WE * n; i++) want[i] = rounded(t, from[i]);
    CHECK(packed_is(&s, nt, t, want, n));
    CHECK(packed_is(&s, nn, t, want, n));
    bool same = true;
    for (int64_t i = 0; i < n; i++)
        same &= element(mt_address(&s.ctx, form), t, i) ==
                element(mt_address(&s.ctx, rows.host), t, i / WI * (WI + 8) + i % WI);
    CHECK(same);
    for (int64_t e = 0; e < WE; e++) through_fp8(want + e * n, t);
    CHECK(packed_is(&s, back, t, want, n));
    side_close(&s);
}
#endif
