#include <stdlib.h>
#include <string.h>

#include "config/expr.h"
#include "config/sweep.h"
#include "config/table.h"
#include "config/tree.h"

const char *mt_sweep_value(const struct mt_sweep_point *p, mt_option_id option)
{
    for (int i = 0; i < p->n; i++)
        if (p->setting[i].option == option) return p->setting[i].text;
    return NULL;
}

char *mt_sweep_words(const struct mt_sweep_point *p, char *out, size_t size)
{
    size_t at = 0;
    snprintf(out, size, "as set");
    for (int i = p->own; i < p->n && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s=%s", at ? " " : "",
                               mt_options[p->setting[i].option].key, p->setting[i].text);
    return out;
}

mt_status mt_sweep_config(const mt_sweep *s, const struct mt_sweep_point *p, bool rules, mt_config *c,
                          mt_err *e)
{
    char *word[MT_SWEEP_SETTINGS];
    mt_status st = MT_OK;
    int n = 0;
    for (; n < p->n && st == MT_OK; n++) {
        const struct mt_setting *x = &p->setting[n];
        size_t size = strlen(mt_options[x->option].key) + strlen(x->text) + 2;
        if (!(word[n] = malloc(size))) {
            st = mt_err_set(e, MT_IO, "no memory for a point of the sweep");
            break;
        }
        snprintf(word[n], size, "%s=%s", mt_options[x->option].key, x->text);
    }
    const char *base = *s->base ? s->base : NULL;
    if (st == MT_OK) st = rules ? mt_config_load(c, base, n, word, e) : mt_config_read(c, base, n, word, e);
    while (n > 0) free(word[--n]);
    return st;
}

/* ---- points ---- */
/* Replaces a setting of `set`, or comes behind all. */
static bool put(struct mt_sweep_point *p, const struct mt_setting *x)
{
    for (int i = 0; i < p->n; i++) {
        if (p->setting[i].option != x->option) continue;
        memmove(&p->setting[i], &p->setting[i + 1], (size_t)(p->n - i - 1) * sizeof *p->setting);
        p->n--;
        if (i < p->own) p->own--;
        break;
    }
    if (p->n == MT_SWEEP_SETTINGS) return false;
    p->setting[p->n++] = *x;
    return true;
}
static bool put_row(struct mt_sweep_point *p, const struct mt_sweep_row *row)
{
    for (int i = 0; i < row->n; i++)
        if (!put(p, &row->setting[i])) return false;
    return true;
}
static struct mt_sweep_point from_set(const mt_sweep *s)
{
    struct mt_sweep_point p = {.n = 0};
    (void)put_row(&p, &s->set); /* its rows are half of what a point has room for */
    p.own = p.n;
    return p;
}

/* Does `where` hold? */
static mt_status wanted(const mt_sweep *s, const struct mt_sweep_point *p, mt_config *c, bool *yes, mt_err *e)
{
    char why[MT_VALUE_WHY];
    *yes = true;
    if (!s->n_where) return MT_OK;
    MT_TRY(mt_sweep_config(s, p, false, c, e));
    for (int i = 0; i < s->n_where && *yes; i++)
        if (!mt_expr_holds(s->where[i], c, yes, why))
            return mt_tree_fail(e, s->name, s->where_line[i], s->where_col[i], "where: %s: %s", s->where[i],
                                why);
    return MT_OK;
}

static mt_status count_points(const mt_sweep *s, int64_t *n, mt_err *e)
{
    *n = 1;
    for (int i = 0; i < s->n_blocks; i++) {
        *n *= s->block[i].n;
        if (*n > MT_SWEEP_POINTS)
            return mt_tree_fail(e, s->name, s->block[i].line, s->block[i].col,
                                "more than %d combinations: take values away, or make several sweeps",
                                MT_SWEEP_POINTS);
    }
    return MT_OK;
}

/* Combination number k: the last block's rows change first. */
static mt_status combine(const mt_sweep *s, int64_t k, struct mt_sweep_point *p, mt_err *e)
{
    int row[MT_SWEEP_BLOCKS];
    for (int i = s->n_blocks - 1; i >= 0; i--) {
        row[i] = (int)(k % s->block[i].n);
        k /= s->block[i].n;
    }
    *p = from_set(s);
    for (int i = 0; i < s->n_blocks; i++)
        MT_REQUIRE(put_row(p, &s->block[i].row[row[i]]), e, MT_CONFIG, "%s: a point has more than %d options",
                   s->name, MT_SWEEP_SETTINGS);
    return MT_OK;
}

/* ---- the baseline ---- */
static bool is_baseline(const mt_sweep *s, const struct mt_sweep_point *p)
{
    for (int i = 0; i < s->baseline.n; i++) {
        const char *text = mt_sweep_value(p, s->baseline.setting[i].option);
        if (!text || strcmp(text, s->baseline.setting[i].text) != 0) return false;
    }
    return true;
}
static void find_baseline(mt_sweep *s)
{
    int i = 0;
    while (i < s->n && !is_baseline(s, &s->point[i])) i++;
    s->at_baseline = i;
    if (i < s->n) return;
    memmove(&s->point[1], &s->point[0], (size_t)s->n++ * sizeof *s->point);
    s->point[0] = from_set(s);
    (void)put_row(&s->point[0], &s->baseline);
    s->at_baseline = 0;
}

static mt_status add_points(mt_sweep *s, int64_t all, mt_config *c, mt_err *e)
{
    bool yes;
    for (int64_t k = 0; k < all; k++) {
        MT_TRY(combine(s, k, &s->point[s->n], e));
        MT_TRY(wanted(s, &s->point[s->n], c, &yes, e));
        if (yes)
            s->n++;
        else
            s->left_out++;
    }
    MT_REQUIRE(s->n, e, MT_CONFIG, "%s: where holds for none of %lld combinations", s->name, (long long)all);
    return MT_OK;
}

mt_status mt_sweep_expand(mt_sweep *s, mt_err *e)
{
    int64_t all;
    MT_TRY(count_points(s, &all, e));
    mt_config *c = malloc(sizeof *c);
    s->point = calloc((size_t)all + 1, sizeof *s->point);
    mt_status st = c && s->point ? MT_OK : mt_err_set(e, MT_IO, "no memory for %lld points", (long long)all);
    if (st == MT_OK) st = add_points(s, all, c, e);
    if (st == MT_OK) find_baseline(s);
    free(c);
    return st;
}
