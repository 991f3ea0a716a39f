/* attention_amx.h: what forward and backward share on tiles of amx.
 *
 * Scores are computed turned, S^T = K Q^T, with keys along the rows of a tile and queries along its columns.
 * What belongs to a query is then one lane of a vector: its maximum, its sums, lse and delta need no sums across lanes
 * and no broadcasts; and P^T and dS^T, rounded, are operands as they stand, the A of P^T dO and dS^T Q (k runs
 * over queries), and with their rows interleaved in pairs the B of V^T P^T and K^T dS^T (k over keys). So no probability
 * is ever turned, only rows of q, k, v and dO.
 *
 * Rows (token, query head of the kv head) are worked on in panels of 32, a panel's scores in blocks of 32 keys;
 * a block is 4 KiB, which stay in L1. */
#ifndef MT_DEVICE_CPU_ATTENTION_AMX_H
#define MT_DEVICE_CPU_ATTENTION_AMX_H
#include "device/cpu/amx_lanes.h"
#include "device/cpu/attention.h"

#ifdef MT_AMX_SOFT
#define AMX_ATTENTION(name) mt_att_soft_##name
#else
#define AMX_ATTENTION(name) mt_att_amx_##name
#endif
void AMX_ATTENTION(fwd)(struct mt_att_fwd *f, int part, int parts);
void AMX_ATTENTION(bwd)(struct mt_att_bwd *f, int part, int parts);

enum {
    ATT_WIDEST = 512, /* of a head: the scratch holds 32 rows and more of it, and a unit of keys */
    ATT_ROWS = MT_PANEL,
    BLOCK = ATT_ROWS * ATT_ROWS,  /* scores of a panel and 32 keys */
    HALVES = ATT_KEYS / ATT_ROWS, /* such blocks of a key block */
    STEP_VALUES = STEP_BYTES / 2  /* bf16 of a step of a panel of B */
};

/* Steps of 32 that cover a width. */
static inline int64_t steps_of(int64_t width)
{
    return (width + STEP - 1) / STEP;
}
/* bf16 between copied rows: multiples of 512 bytes share few cache sets. */
static inline int64_t row_ld(int64_t width)
{
    int64_t ld = steps_of(width) * STEP;
    return ld % 256 ? ld : ld + STEP;
}

struct rows_at {
    const mt_bf16 *at;
    int64_t ld;
};
/* Copies of known size are a load and a store; others are a call, or eight bytes at a time. */
static inline void copy_row(mt_bf16 *to, const mt_bf16 *from, int64_t width)
{
    int64_t i = 0;
    for (; i + STEP <= width; i += STEP) memcpy(to + i, from + i, STEP * sizeof *to);
    if (i < width) memcpy(to + i, from + i, (size_t)(width - i) * sizeof *to);
}
static inline void put_row(void *to, const float *x, int64_t width)
{
    mt_bf16 line[STEP];
    if (width >= STEP) {
        l_put_row(to, l_load(x), l_load(x + LANES));
    } else {
        l_put_row(line, l_load(x), l_load(x + LANES));
        memcpy(to, line, (size_t)width * sizeof *line);
    }
}
/* Rows [row, row + n) of x, `per` heads a token, copied to buf[want][row_ld], filled up with zeros. */
static inline struct rows_at copied_rows(mt_bf16 *buf, const struct mt_att_arg *x, int64_t per, int64_t g,
                                         int64_t row, int64_t n, int64_t want)
{
    int64_t ld = row_ld(x->width);
    if (n < want || x->width % STEP) memset(buf, 0, (size_t)(want * ld) * sizeof *buf);
    for (int64_t i = 0; i < n; i++) {
        int64_t token = (row + i) / per, head = g * per + (row + i) % per;
        copy_row(buf + i * ld, (const mt_bf16 *)(const void *)(x->at + token * x->token + head * x->head),
                 x->width);
    }
    return (struct rows_at){buf, ld};
}
/* A panel of rows, where they lie if that is as good. */
static inline struct rows_at panel_rows(mt_bf16 *buf, const struct mt_att_arg *x, int64_t per, int64_t g,
                                        int64_t row, int64_t n)
{
    if (per > 1 || n < ATT_ROWS || x->width % STEP) return copied_rows(buf, x, per, g, row, n, ATT_ROWS);
    return (struct rows_at){(const mt_bf16 *)(void *)(x->at + row * x->token + g * x->head),
                            x->token / (int64_t)sizeof(mt_bf16)};
}

/* A panel as B of a product over its width: [step][16 pairs][32 rows][2]. */
static inline void turn_panel(mt_bf16 *out, struct rows_at x, int64_t steps)
{
    for (int64_t s = 0; s < steps; s++, out += STEP_VALUES)
        for (int64_t h = 0; h < 2; h++)
            turn_16((uint32_t *)(void *)out + 16 * h, ATT_ROWS, x.at + 16 * h * x.ld + s * STEP, x.ld);
}
/* 64 keys as A of a product over keys: [16 of the width][half][16][32]. */
static inline void turn_keys(mt_bf16 *out, struct rows_at x, int64_t steps)
{
    for (int64_t i = 0; i < 2 * steps; i++)
        for (int64_t h = 0; h < HALVES; h++, out += STEP_VALUES / 2)
            transpose(out, x.at + h * STEP * x.ld + 16 * i, x.ld);
}

/* s[32 keys][32 rows] of half h of a key block. */
static inline void block_scores(float *s, struct rows_at keys, int64_t h, const mt_bf16 *panel, int64_t steps)
{
    const char *a = (const char *)(keys.at + h * ATT_ROWS * keys.ld), *b = (const char *)panel;
    int64_t row = keys.ld * (int64_t)sizeof(mt_bf16);
    amx_zero();
    for (int64_t i = 0; i < steps; i++) amx_step(a + 64 * i, a + 16 * row + 64 * i, row, b + i * STEP_BYTES);
    amx_store(s, s + 16 * ATT_ROWS, ATT_ROWS);
}

/* acc[width][32 rows] += x^T p for a key block: x by turn_keys, p interleaved, [half][16 pairs][32 rows][2]. */
static inline void add_turned(float *acc, const mt_bf16 *x, const mt_bf16 *p, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++, acc += BLOCK, x += 2 * HALVES * STEP_VALUES / 2) {
        amx_load(acc, acc + 16 * ATT_ROWS, ATT_ROWS);
        for (int64_t h = 0; h < HALVES; h++)
            amx_step((const char *)(x + h * STEP_VALUES / 2),
                     (const char *)(x + (HALVES + h) * STEP_VALUES / 2), 64,
                     (const char *)(p + h * STEP_VALUES));
        amx_store(acc, acc + 16 * ATT_ROWS, ATT_ROWS);
    }
}

/* A panel acc[width][32 rows] to rows [row, row + n) of x. */
static inline void spread_panel(const struct mt_att_arg *x, const float *acc, int64_t per, int64_t g,
                                int64_t row, int64_t n)
{
    _Alignas(64) float part[ATT_ROWS][ATT_ROWS];
    for (int64_t at = 0; at < x->width; at += ATT_ROWS, acc += BLOCK) {
        for (int64_t i = 0; i < 4; i++)
            turn_16(&part[16 * (i / 2)][16 * (i % 2)], ATT_ROWS, acc + 16 * (i % 2) * ATT_ROWS + 16 * (i / 2),
                    2 * ATT_ROWS);
        for (int64_t i = 0; i < n; i++) {
            int64_t token = (row + i) / per, head = g * per + (row + i) % per;
            char *to = x->at + token * x->token + head * x->head + at * (int64_t)sizeof(mt_bf16);
            put_row(to, part[i], x->width - at);
        }
    }
}

/* Which keys the rows of a tile see, by row; rows filled up see none. */
struct row_keys {
    int32_t *begin, *token;
};
static inline void load_row_keys(const struct row_keys *k, int64_t at, const struct mt_att *t, int64_t row,
                                 int64_t n)
{
    for (int64_t i = 0; i < ATT_ROWS; i++) {
        int64_t token = (row + i) / t->per;
        k->begin[at + i] = i < n ? t->begin[token] : INT32_MAX;
        k->token[at + i] = i < n ? (int32_t)token : -1;
    }
}
/* Does any row of the panel at `at` see a key of [ks, ks + 32)? Do all see all of them? Both grow with the row. */
static inline bool panel_sees(const struct row_keys *k, int64_t at, int64_t n, int64_t ks)
{
    return k->begin[at] < ks + ATT_ROWS && k->token[at + n - 1] >= ks;
}
static inline bool panel_whole(const struct row_keys *k, int64_t at, int64_t n, int64_t ks)
{
    return n == ATT_ROWS && k->begin[at + n - 1] <= ks && k->token[at] >= ks + ATT_ROWS - 1;
}

/* Rows of a tile for which there is room. */
static inline int64_t tile_rows(const struct mt_att *t, int64_t row_bytes)
{
    int64_t rows = lesser((t->end - t->free - 64 * 16) / row_bytes, 256) / ATT_ROWS * ATT_ROWS;
    MT_ASSERT(rows >= ATT_ROWS);
    return rows;
}
#endif
