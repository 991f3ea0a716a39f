#include "device/lifetimes.h"

#include <stdlib.h>

struct walk {
    struct mt_lifetimes *f;
    const struct mt_ledger *g;
    const struct mt_recording *q;
    int32_t *open; /* by row: the lifetime at the present record */
};

static bool persistent(const struct mt_ledger *g, int32_t row)
{
    return mt_row_persistent((enum mt_row_class)g->row[row].row_class);
}

static void life_begin(struct walk *w, int32_t row, int64_t i)
{
    int32_t k = w->f->n++;
    w->f->life[k] = (struct mt_life){.row = row, .next = -1, .def = i};
    if (w->open[row] < 0)
        w->f->first[row] = k;
    else
        w->f->life[w->open[row]].next = k;
    w->open[row] = k;
}

static mt_status access_note(struct walk *w, int64_t i, const struct mt_rec_arg *a, mt_err *e)
{
    const struct mt_rec *r = &w->q->rec[i];
    bool lasting = persistent(w->g, a->row), defines = a->whole && !mt_dir_needs(a->dir);
    MT_REQUIRE(lasting || defines || w->open[a->row] >= 0, e, MT_INTERNAL,
               "planning memory: %s (record %lld, stream %d, position %lld): row %s is %s before it is "
               "written whole; the schedule should "
               "write it, or say mt_fresh, first",
               mt_rec_name(r), (long long)i, r->stream, (long long)r->seq, w->g->row[a->row].name,
               mt_dir_writes(a->dir) ? "written in part" : "read");
    if (w->open[a->row] < 0 || (defines && !lasting)) life_begin(w, a->row, i);
    struct mt_life *l = &w->f->life[w->open[a->row]];
    l->last = i;
    l->end.at[r->stream] = r->seq;
    return MT_OK;
}

/* Contents that matter are used before the same operation begins new lifetimes. */
static mt_status record_note(struct walk *w, int64_t i, mt_err *e)
{
    const struct mt_rec *r = &w->q->rec[i];
    for (int needs = 1; needs >= 0; needs--)
        for (int k = 0; k < r->n_args; k++) {
            const struct mt_rec_arg *a = &w->q->arg[r->arg + (uint32_t)k];
            if (mt_dir_needs(a->dir) == needs) MT_TRY(access_note(w, i, a, e));
        }
    return MT_OK;
}

mt_status mt_lifetimes_find(struct mt_lifetimes *f, const struct mt_ledger *g, const struct mt_recording *q,
                            mt_err *e)
{
    size_t rows = (size_t)g->n + 1;
    struct walk w = {f, g, q, malloc(rows * sizeof *w.open)};
    *f = (struct mt_lifetimes){.life = malloc((size_t)(q->n_args + 1) * sizeof *f->life),
                               .first = malloc(rows * sizeof *f->first)};
    MT_ASSERT(w.open && f->life && f->first);
    for (int32_t i = 0; i < g->n; i++) w.open[i] = f->first[i] = -1;
    mt_status st = MT_OK;
    for (int64_t i = 0; i < q->n && st == MT_OK; i++) st = record_note(&w, i, e);
    free(w.open);
    return st;
}

void mt_lifetimes_release(struct mt_lifetimes *f)
{
    free(f->life);
    free(f->first);
    *f = (struct mt_lifetimes){0};
}

/* Everything of `a` is done when the record that defines `b` starts. */
static bool ends_before(const struct mt_life *a, const struct mt_life *b, const struct mt_recording *q,
                        const struct mt_order *o)
{
    const struct mt_rec *def = &q->rec[b->def];
    for (int s = 0; s < MT_N_STREAMS; s++) {
        bool known = a->end.at[s] <= o->before[b->def].at[s];
        if (!known && !(s == def->stream && a->end.at[s] < def->seq)) return false;
    }
    return true;
}

bool mt_lifetimes_clash(const struct mt_lifetimes *f, const struct mt_ledger *g, const struct mt_recording *q,
                        const struct mt_order *o, int32_t a, int32_t b)
{
    if (g->row[a].arena != g->row[b].arena) return false;
    if (persistent(g, a) || persistent(g, b)) return true;
    /* Merged in order of the record, every lifetime must end before the other row's next one begins. */
    const struct mt_life *x = f->first[a] < 0 ? NULL : &f->life[f->first[a]],
                         *y = f->first[b] < 0 ? NULL : &f->life[f->first[b]];
    const struct mt_life *prev = NULL;
    while (x || y) {
        if (prev && ((prev->row == a && !y) || (prev->row == b && !x)))
            return false; /* the rest is one row's own */
        const struct mt_life **pick = !y || (x && x->def < y->def) ? &x : &y, *l = *pick;
        if (prev && prev->row != l->row && !ends_before(prev, l, q, o)) return true;
        prev = l;
        *pick = l->next < 0 ? NULL : &f->life[l->next];
    }
    return false;
}
