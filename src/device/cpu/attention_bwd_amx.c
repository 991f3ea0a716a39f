/* Attention backward on tiles of amx: the passes of k_attention_bwd.c, in the forms of attention_amx.h. */
#include "device/cpu/attention_amx.h"

enum {
    UNIT_BLOCKS = 2,
    UNIT_KEYS = UNIT_BLOCKS * ATT_KEYS /* keys for which rows are brought into form once */
};

struct amx_bwd {
    const struct mt_att_bwd *f;
    const struct mt_att *t;
    int64_t ka, kb;               /* steps of the widths */
    int64_t rows, ldp;            /* of a tile; bf16 between keys of p and ds */
    int64_t g, row, n;            /* kv head; the tile's rows */
    mt_bf16 *q_nt, *dout_nt;      /* rows as B of the scores, [panel][step] */
    mt_bf16 *q_tn, *dout_tn;      /* as B of a sum over rows, [32 of the width][panel] */
    mt_bf16 *p, *ds;              /* [64 keys][rows] */
    mt_bf16 *pairs;               /* ds of a panel, interleaved */
    mt_bf16 *line[2], *keys, *kt; /* copied rows; of keys */
    mt_bf16 *values;
    float *base, *delta;
    struct row_keys see;
    float *s[2], *dp[2]; /* of a block, and of the one behind it */
    float *dk, *dv;      /* [key][width] of a unit */
    float *dq;           /* [panel][width][32 rows] */
};

static int64_t wider(const struct amx_bwd *w)
{
    return (w->ka > w->kb ? w->ka : w->kb) * STEP;
}

static void bwd_rows(struct amx_bwd *w, struct mt_att *t)
{
    w->base = mt_att_take(t, w->rows * 4);
    w->delta = mt_att_take(t, w->rows * 4);
    w->see.begin = mt_att_take(t, w->rows * 4);
    w->see.token = mt_att_take(t, w->rows * 4);
    w->q_nt = mt_att_take(t, w->rows * w->ka * STEP * 2);
    w->dout_nt = mt_att_take(t, w->rows * w->kb * STEP * 2);
    w->q_tn = mt_att_take(t, w->rows * w->ka * STEP * 2);
    w->dout_tn = mt_att_take(t, w->rows * w->kb * STEP * 2);
    w->dq = mt_att_take(t, w->rows * w->ka * STEP * 4);
    w->p = mt_att_take(t, ATT_KEYS * w->ldp * 2);
    w->ds = mt_att_take(t, ATT_KEYS * w->ldp * 2);
}

static void bwd_layout(struct amx_bwd *w, struct mt_att *t)
{
    int64_t line = (wider(w) + STEP) * 2, width = w->ka + w->kb;
    for (int i = 0; i < 2; i++) {
        w->line[i] = mt_att_take(t, ATT_ROWS * line);
        w->s[i] = mt_att_take(t, BLOCK * 4);
        w->dp[i] = mt_att_take(t, BLOCK * 4);
    }
    w->pairs = mt_att_take(t, HALVES * STEP_BYTES);
    w->keys = mt_att_take(t, UNIT_KEYS * line);
    w->values = mt_att_take(t, UNIT_KEYS * line);
    w->kt = mt_att_take(t, ATT_KEYS * w->ka * STEP * 2);
    w->dk = mt_att_take(t, UNIT_KEYS * w->ka * STEP * 4);
    w->dv = mt_att_take(t, UNIT_KEYS * w->kb * STEP * 4);
    w->rows = tile_rows(t, width * STEP * 4 + w->ka * STEP * 4 + ATT_KEYS * 4 + 16);
    w->ldp = w->rows + STEP;
    bwd_rows(w, t);
}

/* delta of the rows of a panel: <dO, O> */
static void panel_delta(const struct amx_bwd *w, int64_t at, struct rows_at dout, struct rows_at o, int64_t n)
{
    for (int64_t i = 0; i < ATT_ROWS; i++) {
        lanes16 sum = l_all(0);
        for (int64_t j = 0; i < n && j < w->kb * STEP; j += LANES)
            sum = l_add(sum, l_mul(l_load_bf16(dout.at + i * dout.ld + j), l_load_bf16(o.at + i * o.ld + j)));
        w->delta[at + i] = l_sum(sum);
    }
}

/* Rows [row, row + n) in all their forms; `sums`: those of a sum over rows too. */
static void load_rows(struct amx_bwd *w, int64_t row, int64_t n, bool sums)
{
    const struct mt_att *t = w->t;
    w->row = row;
    w->n = n;
    int64_t panels = (n + ATT_ROWS - 1) / ATT_ROWS;
    for (int64_t p = 0; p < panels; p++) {
        int64_t at = p * ATT_ROWS, r = row + at, m = lesser(n - at, ATT_ROWS);
        struct rows_at q = panel_rows(w->line[0], &w->f->q, t->per, w->g, r, m);
        turn_panel(w->q_nt + p * w->ka * STEP_VALUES, q, w->ka);
        for (int64_t c = 0; sums && c < w->ka; c++)
            interleave(w->q_tn + (c * panels + p) * STEP_VALUES, q.at + c * STEP, q.ld);
        struct rows_at dout = panel_rows(w->line[0], &w->f->dout, t->per, w->g, r, m);
        turn_panel(w->dout_nt + p * w->kb * STEP_VALUES, dout, w->kb);
        for (int64_t c = 0; sums && c < w->kb; c++)
            interleave(w->dout_tn + (c * panels + p) * STEP_VALUES, dout.at + c * STEP, dout.ld);
        panel_delta(w, at, dout, panel_rows(w->line[1], &w->f->o, t->per, w->g, r, m), m);
        load_row_keys(&w->see, at, t, r, m);
        for (int64_t i = 0; i < ATT_ROWS; i++)
            w->base[at + i] =
                i < m ? w->f->lse[(w->g * t->per + (r + i) % t->per) * t->tokens + (r + i) / t->per] : 0;
    }
}

/* Of 16 rows and a key: p, and ds. */
LANES_INLINE lanes16 gradient(lanes16 s, lanes16 dp, lanes16 base, lanes16 delta, lanes16 scale, lanes16 *ds)
{
    lanes16 e = l_exp(l_sub(l_mul(s, scale), base));
    *ds = l_mul(l_mul(e, l_sub(dp, delta)), scale);
    return e;
}

/* p and ds of a block: 32 keys from ks of the panel at row `at`. whole: no key is masked. Rows of p and ds, ldp apart, or
 * (p NULL) ds interleaved in pairs. */
LANES_INLINE void gradients(const struct amx_bwd *w, int buffer, int64_t at, int64_t ks, bool whole,
                            mt_bf16 *p, mt_bf16 *ds)
{
    const float *s = w->s[buffer], *dp = w->dp[buffer], *base = w->base + at, *delta = w->delta + at;
    const lanes16 scale = l_all(w->t->scale), none = l_all(0);
    lanes16 base0 = l_load(base), base1 = l_load(base + LANES), delta0 = l_load(delta),
            delta1 = l_load(delta + LANES);
    lanes16 before0 = none, before1 = none;
    for (int32_t j = 0; j < ATT_ROWS; j++, s += ATT_ROWS, dp += ATT_ROWS) {
        lanes16 d0, d1, p0 = gradient(l_load(s), l_load(dp), base0, delta0, scale, &d0),
                        p1 = gradient(l_load(s + LANES), l_load(dp + LANES), base1, delta1, scale, &d1);
        if (!whole) {
            const int32_t *begin = w->see.begin + at, *token = w->see.token + at, key = (int32_t)ks + j;
            seen16 m0 = l_seen(begin, token, key), m1 = l_seen(begin + LANES, token + LANES, key);
            p0 = l_pick(m0, p0, none), p1 = l_pick(m1, p1, none);
            d0 = l_pick(m0, d0, none), d1 = l_pick(m1, d1, none);
        }
        if (p) {
            l_put_row(p + j * w->ldp, p0, p1);
            l_put_row(ds + j * w->ldp, d0, d1);
        } else if (j % 2) {
            l_put_pairs(ds + j / 2 * 2 * ATT_ROWS, before0, d0);
            l_put_pairs(ds + j / 2 * 2 * ATT_ROWS + ATT_ROWS, before1, d1);
        }
        before0 = d0, before1 = d1;
    }
}

/* A block of scores in turn: half h of a key block, panel p of the tile. Its products are made before the vectors
 * work on the block before it, so that neither waits for the other. */
struct turn {
    int64_t p, h, ks;
    bool any;
};
static struct turn turn_of(const struct amx_bwd *w, int64_t i, int64_t ks)
{
    struct turn b = {.p = i / HALVES, .h = i % HALVES};
    b.ks = ks + b.h * ATT_ROWS;
    b.any = panel_sees(&w->see, b.p * ATT_ROWS, lesser(w->n - b.p * ATT_ROWS, ATT_ROWS), b.ks);
    return b;
}
static void turn_products(const struct amx_bwd *w, int64_t i, int64_t ks, struct rows_at keys,
                          struct rows_at values)
{
    struct turn b = turn_of(w, i, ks);
    if (!b.any) return;
    block_scores(w->s[i % 2], keys, b.h, w->q_nt + b.p * w->ka * STEP_VALUES, w->ka);
    block_scores(w->dp[i % 2], values, b.h, w->dout_nt + b.p * w->kb * STEP_VALUES, w->kb);
}

/* acc[64 keys][width] += p[64 keys][rows] x over panels [p0, p1): x in the form of a sum over rows. */
static void add_outer(const struct amx_bwd *w, float *acc, const mt_bf16 *p, const mt_bf16 *x, int64_t p0,
                      int64_t p1, int64_t steps)
{
    int64_t ld = steps * STEP, panels = (w->n + ATT_ROWS - 1) / ATT_ROWS, row = 2 * w->ldp;
    for (int64_t c = 0; c < steps; c++)
        for (int64_t h = 0; h < HALVES; h++) {
            float *to = acc + h * ATT_ROWS * ld + c * STEP;
            const char *a = (const char *)(p + h * ATT_ROWS * w->ldp),
                       *b = (const char *)(x + c * panels * STEP_VALUES);
            amx_load(to, to + 16 * ld, ld);
            for (int64_t s = p0; s < p1; s++)
                amx_step(a + 64 * s, a + 16 * row + 64 * s, row, b + s * STEP_BYTES);
            amx_store(to, to + 16 * ld, ld);
        }
}

static void keys_turn(const struct amx_bwd *w, int64_t i, int64_t ks)
{
    struct turn b = turn_of(w, i, ks);
    int64_t at = b.p * ATT_ROWS, n = lesser(w->n - at, ATT_ROWS);
    mt_bf16 *p = w->p + b.h * ATT_ROWS * w->ldp + at, *ds = w->ds + b.h * ATT_ROWS * w->ldp + at;
    if (!b.any) {
        for (int64_t j = 0; j < ATT_ROWS; j++) {
            memset(p + j * w->ldp, 0, ATT_ROWS * sizeof *p);
            memset(ds + j * w->ldp, 0, ATT_ROWS * sizeof *ds);
        }
    } else if (panel_whole(&w->see, at, n, b.ks)) {
        gradients(w, (int)(i % 2), at, b.ks, true, p, ds);
    } else {
        gradients(w, (int)(i % 2), at, b.ks, false, p, ds);
    }
}

/* Panels of the tile some of whose rows are those of tokens [lo, hi). */
struct panels {
    int64_t lo, hi;
};
static struct panels panels_of(const struct amx_bwd *w, const struct mt_att_range *r)
{
    int64_t per = w->t->per, lo = r->lo * per - w->row, hi = lesser(r->hi * per - w->row, w->n);
    if (lo < 0) lo = 0;
    return lo < hi ? (struct panels){lo / ATT_ROWS, (hi + ATT_ROWS - 1) / ATT_ROWS} : (struct panels){0, 0};
}

/* What the tile's rows add to dk and dv of the unit's block b. */
static void keys_block(const struct amx_bwd *w, const struct mt_att_range *r, int64_t b)
{
    struct panels p = panels_of(w, r);
    if (p.lo == p.hi) return;
    int64_t ldk = row_ld(w->t->a), ldv = row_ld(w->t->b);
    struct rows_at keys = {w->keys + b * ATT_KEYS * ldk, ldk}, values = {w->values + b * ATT_KEYS * ldv, ldv};
    for (int64_t i = p.lo * HALVES; i <= p.hi * HALVES; i++) {
        if (i < p.hi * HALVES) turn_products(w, i, r->ks, keys, values);
        if (i > p.lo * HALVES) keys_turn(w, i - 1, r->ks);
    }
    add_outer(w, w->dv + b * ATT_KEYS * w->kb * STEP, w->p, w->dout_tn, p.lo, p.hi, w->kb);
    add_outer(w, w->dk + b * ATT_KEYS * w->ka * STEP, w->ds, w->q_tn, p.lo, p.hi, w->ka);
}

/* Rows of sums to keys [ks, ke) of x. */
static void spread_keys(const struct mt_att_arg *x, const float *acc, int64_t ld, int64_t g, int64_t ks,
                        int64_t ke)
{
    for (int64_t i = ks; i < ke; i++, acc += ld)
        for (int64_t at = 0; at < x->width; at += STEP)
            put_row(x->at + i * x->token + g * x->head + at * 2, acc + at, x->width - at);
}

static void keys_pass(struct amx_bwd *w, int64_t ks)
{
    const struct mt_att *t = w->t;
    int64_t ke = lesser(ks + UNIT_KEYS, t->tokens), lda = w->ka * STEP, ldb = w->kb * STEP;
    struct mt_att_range r[UNIT_BLOCKS];
    int64_t blocks = (ke - ks + ATT_KEYS - 1) / ATT_KEYS;
    for (int64_t b = 0; b < blocks; b++) r[b] = mt_att_seen(t, ks, t->tokens, ks + b * ATT_KEYS);
    copied_rows(w->keys, &w->f->k, 1, w->g, ks, ke - ks, UNIT_KEYS);
    copied_rows(w->values, &w->f->v, 1, w->g, ks, ke - ks, UNIT_KEYS);
    memset(w->dk, 0, (size_t)(UNIT_KEYS * lda) * 4);
    memset(w->dv, 0, (size_t)(UNIT_KEYS * ldb) * 4);
    int64_t end = r[blocks - 1].hi * t->per;
    for (int64_t row = r[0].lo * t->per; row < end; row += w->rows) {
        load_rows(w, row, lesser(w->rows, end - row), true);
        for (int64_t b = 0; b < blocks; b++) keys_block(w, &r[b], b);
    }
    spread_keys(&w->f->dk, w->dk, lda, w->g, ks, ke);
    spread_keys(&w->f->dv, w->dv, ldb, w->g, ks, ke);
}

static void queries_turn(const struct amx_bwd *w, int64_t i, int64_t ks)
{
    struct turn b = turn_of(w, i, ks);
    int64_t at = b.p * ATT_ROWS, n = lesser(w->n - at, ATT_ROWS);
    mt_bf16 *pairs = w->pairs + b.h * STEP_VALUES;
    if (!b.any)
        memset(pairs, 0, STEP_BYTES);
    else if (panel_whole(&w->see, at, n, b.ks))
        gradients(w, (int)(i % 2), at, b.ks, true, NULL, pairs);
    else
        gradients(w, (int)(i % 2), at, b.ks, false, NULL, pairs);
    if (b.h == HALVES - 1) add_turned(w->dq + b.p * w->ka * BLOCK, w->kt, w->pairs, w->ka);
}

static void queries_pass(struct amx_bwd *w, int64_t row, int64_t n)
{
    const struct mt_att *t = w->t;
    int64_t t0 = row / t->per, t1 = (row + n - 1) / t->per + 1;
    load_rows(w, row, n, false);
    memset(w->dq, 0, (size_t)((n + ATT_ROWS - 1) / ATT_ROWS * w->ka * BLOCK) * 4);
    for (int64_t ks = mt_att_block(t->begin[t0]); ks < t1; ks += ATT_KEYS) {
        struct mt_att_range r = mt_att_seen(t, t0, t1, ks);
        struct panels p = panels_of(w, &r);
        if (p.lo == p.hi) continue;
        struct rows_at keys = copied_rows(w->keys, &w->f->k, 1, w->g, ks, r.ke - ks, ATT_KEYS);
        struct rows_at values = copied_rows(w->values, &w->f->v, 1, w->g, ks, r.ke - ks, ATT_KEYS);
        turn_keys(w->kt, keys, w->ka);
        for (int64_t i = p.lo * HALVES; i <= p.hi * HALVES; i++) {
            if (i < p.hi * HALVES) turn_products(w, i, ks, keys, values);
            if (i > p.lo * HALVES) queries_turn(w, i - 1, ks);
        }
    }
    for (int64_t at = 0; at < n; at += ATT_ROWS)
        spread_panel(&w->f->dq, w->dq + at * w->ka * STEP, t->per, w->g, row + at, lesser(n - at, ATT_ROWS));
}

void AMX_ATTENTION(bwd)(struct mt_att_bwd *f, int part, int parts)
{
    struct mt_att *t = &f->t;
    struct amx_bwd w = {.f = f, .t = t, .ka = steps_of(t->a), .kb = steps_of(t->b)};
    bwd_layout(&w, t);
    int64_t rows = t->tokens * t->per, tiles = (rows + w.rows - 1) / w.rows,
            units = (t->tokens + UNIT_KEYS - 1) / UNIT_KEYS;
    const struct tile_config config = tile_config_of(16);
    TILE_CONFIG(&config);
    for (int64_t u = part; u < t->groups * (tiles + units); u += parts) {
        int64_t i = u / t->groups;
        w.g = u % t->groups;
        if (i < units)
            keys_pass(&w, i * UNIT_KEYS);
        else
            queries_pass(&w, (i - units) * w.rows, lesser(w.rows, rows - (i - units) * w.rows));
    }
    TILE_RELEASE();
}
