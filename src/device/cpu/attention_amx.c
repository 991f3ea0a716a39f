/* Attention forward on tiles of amx, in the forms of attention_amx.h: output and sums of a row are a lane. */
#include "device/cpu/attention_amx.h"

#include <float.h>

struct amx_fwd {
    const struct mt_att_fwd *f;
    const struct mt_att *t;
    int64_t ka, kb;    /* steps of the widths */
    int64_t rows;      /* of a tile */
    int64_t g, row, n; /* kv head; the tile's rows */
    mt_bf16 *q_nt;     /* rows as B of the scores, [panel][step] */
    mt_bf16 *pairs;    /* p of a panel, interleaved */
    mt_bf16 *line, *keys, *values, *vt;
    struct row_keys see;
    float *s[2]; /* scores of a panel, and of the one behind it: [64 keys][32 rows] */
    float *acc;  /* [panel][width][32 rows] */
    float *top, *sum;
};

static void fwd_layout(struct amx_fwd *w, struct mt_att *t)
{
    for (int i = 0; i < 2; i++) w->s[i] = mt_att_take(t, HALVES * BLOCK * 4);
    w->pairs = mt_att_take(t, HALVES * STEP_BYTES);
    w->line = mt_att_take(t, ATT_ROWS * row_ld(t->a) * 2);
    w->keys = mt_att_take(t, ATT_KEYS * row_ld(t->a) * 2);
    w->values = mt_att_take(t, ATT_KEYS * row_ld(t->b) * 2);
    w->vt = mt_att_take(t, ATT_KEYS * w->kb * STEP * 2);
    w->rows = tile_rows(t, w->ka * STEP * 2 + w->kb * STEP * 4 + 16);
    w->q_nt = mt_att_take(t, w->rows * w->ka * STEP * 2);
    w->acc = mt_att_take(t, w->rows * w->kb * STEP * 4);
    w->top = mt_att_take(t, w->rows * 4);
    w->sum = mt_att_take(t, w->rows * 4);
    w->see.begin = mt_att_take(t, w->rows * 4);
    w->see.token = mt_att_take(t, w->rows * 4);
}

/* The scaled score of key `key`, or the least there is where it is not seen. */
LANES_INLINE lanes16 score(const struct row_keys *see, const float *s, lanes16 scale, int64_t at, int32_t key,
                           bool whole)
{
    lanes16 x = l_mul(l_load(s), scale);
    return whole ? x : l_pick(l_seen(see->begin + at, see->token + at, key), x, l_all(-FLT_MAX));
}

/* 16 rows from `at`, `half` of their panel, whose scores against `halves` half blocks of keys begin at s: maximum, sum and
 * what was summed before go on; p is written interleaved. */
LANES_INLINE void softmax(const struct amx_fwd *w, const float *s, int64_t at, int64_t half, int32_t ks,
                          bool whole)
{
    const struct row_keys *see = &w->see;
    const lanes16 scale = l_all(w->t->scale), none = l_all(0);
    lanes16 before = l_load(w->top + at), most = before, more = before;
    for (int32_t j = 0; j < ATT_KEYS; j += 2) {
        most = l_max(score(see, s + j * ATT_ROWS, scale, at, ks + j, whole), most);
        more = l_max(score(see, s + (j + 1) * ATT_ROWS, scale, at, ks + j + 1, whole), more);
    }
    most = l_max(more, most);
    lanes16 sum0 = none, sum1 = none;
    for (int32_t j = 0; j < ATT_KEYS; j += 2) {
        lanes16 p0 = l_exp(l_sub(score(see, s + j * ATT_ROWS, scale, at, ks + j, whole), most)),
                p1 = l_exp(l_sub(score(see, s + (j + 1) * ATT_ROWS, scale, at, ks + j + 1, whole), most));
        if (!whole) {
            p0 = l_pick(l_seen(see->begin + at, see->token + at, ks + j), p0, none);
            p1 = l_pick(l_seen(see->begin + at, see->token + at, ks + j + 1), p1, none);
        }
        sum0 = l_add(sum0, p0);
        sum1 = l_add(sum1, p1);
        l_put_pairs(w->pairs + j * ATT_ROWS + half * 2 * LANES, p0, p1);
    }
    lanes16 fade = l_exp(l_sub(before, most)), sum = l_load(w->sum + at);
    l_store(w->sum + at, l_add(l_mul(sum, fade), l_add(sum0, sum1)));
    l_store(w->top + at, most);
    if (!l_any_less(before, most)) return;
    float *acc = w->acc + (at - half * LANES) * w->kb * STEP + half * LANES;
    for (int64_t c = 0; c < w->kb * STEP; c++, acc += ATT_ROWS) l_store(acc, l_mul(l_load(acc), fade));
}

/* Scores of panel p, turned; those of a half that no row sees are never looked at. */
static void panel_scores(const struct amx_fwd *w, int64_t p, struct rows_at keys)
{
    for (int64_t h = 0; h < HALVES; h++)
        block_scores(w->s[p % 2] + h * BLOCK, keys, h, w->q_nt + p * w->ka * STEP_VALUES, w->ka);
}
static void panel_softmax(const struct amx_fwd *w, int64_t p, int64_t ks)
{
    int64_t at = p * ATT_ROWS, n = lesser(w->n - at, ATT_ROWS);
    bool whole = panel_whole(&w->see, at, n, ks) && panel_whole(&w->see, at, n, ks + ATT_ROWS);
    for (int64_t half = 0; half < 2; half++) {
        const float *s = w->s[p % 2] + half * LANES;
        if (whole)
            softmax(w, s, at + half * LANES, half, (int32_t)ks, true);
        else
            softmax(w, s, at + half * LANES, half, (int32_t)ks, false);
    }
    add_turned(w->acc + p * w->kb * BLOCK, w->vt, w->pairs, w->kb);
}

static void load_tile(struct amx_fwd *w, int64_t row, int64_t n)
{
    w->row = row;
    w->n = n;
    for (int64_t p = 0; p * ATT_ROWS < n; p++) {
        int64_t at = p * ATT_ROWS, m = lesser(n - at, ATT_ROWS);
        turn_panel(w->q_nt + p * w->ka * STEP_VALUES,
                   panel_rows(w->line, &w->f->q, w->t->per, w->g, row + at, m), w->ka);
        load_row_keys(&w->see, at, w->t, row + at, m);
        for (int64_t i = at; i < at + ATT_ROWS; i++) {
            w->top[i] = -FLT_MAX;
            w->sum[i] = 0;
        }
    }
    memset(w->acc, 0, (size_t)((n + ATT_ROWS - 1) / ATT_ROWS * w->kb * BLOCK) * 4);
}

static void add_keys(struct amx_fwd *w, int64_t t0, int64_t t1, int64_t ks)
{
    const struct mt_att *t = w->t;
    struct mt_att_range r = mt_att_seen(t, t0, t1, ks);
    int64_t lo = r.lo * t->per - w->row, hi = lesser(r.hi * t->per - w->row, w->n);
    if (lo < 0) lo = 0;
    if (lo >= hi) return;
    struct rows_at keys = copied_rows(w->keys, &w->f->k, 1, w->g, ks, r.ke - ks, ATT_KEYS);
    turn_keys(w->vt, copied_rows(w->values, &w->f->v, 1, w->g, ks, r.ke - ks, ATT_KEYS), w->kb);
    int64_t p0 = lo / ATT_ROWS, p1 = (hi + ATT_ROWS - 1) / ATT_ROWS;
    for (int64_t p = p0; p <= p1; p++) {
        if (p < p1) panel_scores(w, p, keys);
        if (p > p0) panel_softmax(w, p - 1, ks);
    }
}

/* Sums divide what was summed; lse and the greatest scores are written. */
static void finish_tile(struct amx_fwd *w)
{
    const struct mt_att *t = w->t;
    for (int64_t i = 0; i < w->n; i++) {
        int64_t token = (w->row + i) / t->per, head = w->g * t->per + (w->row + i) % t->per;
        w->f->lse[head * t->tokens + token] = w->top[i] + logf(w->sum[i]);
        if (w->f->most) w->f->most[head * t->tokens + token] = w->top[i];
        w->sum[i] = 1 / w->sum[i];
    }
    for (int64_t at = 0; at < w->n; at += ATT_ROWS) {
        float *acc = w->acc + at * w->kb * STEP;
        lanes16 f0 = l_load(w->sum + at), f1 = l_load(w->sum + at + LANES);
        for (int64_t c = 0; c < w->kb * STEP; c++) {
            l_store(acc + c * ATT_ROWS, l_mul(l_load(acc + c * ATT_ROWS), f0));
            l_store(acc + c * ATT_ROWS + LANES, l_mul(l_load(acc + c * ATT_ROWS + LANES), f1));
        }
        spread_panel(&w->f->out, acc, t->per, w->g, w->row + at, lesser(w->n - at, ATT_ROWS));
    }
}

void AMX_ATTENTION(fwd)(struct mt_att_fwd *f, int part, int parts)
{
    struct mt_att *t = &f->t;
    struct amx_fwd w = {.f = f, .t = t, .ka = steps_of(t->a), .kb = steps_of(t->b)};
    fwd_layout(&w, t);
    int64_t rows = t->tokens * t->per, tiles = (rows + w.rows - 1) / w.rows;
    const struct tile_config config = tile_config_of(16);
    TILE_CONFIG(&config);
    /* Dealt in turn: later tiles see more keys. */
    for (int64_t u = part; u < t->groups * tiles; u += parts) {
        int64_t row = u / t->groups * w.rows, n = lesser(w.rows, rows - row);
        w.g = u % t->groups;
        load_tile(&w, row, n);
        int64_t t0 = row / t->per, t1 = (row + n - 1) / t->per + 1;
        for (int64_t ks = mt_att_block(t->begin[t0]); ks < t1; ks += ATT_KEYS) add_keys(&w, t0, t1, ks);
        finish_tile(&w);
    }
    TILE_RELEASE();
}
