/* races.c: the check of a laid-out record. Both arenas are cut wherever an argument begins or ends; of each
 * cell the last access of every stream is kept. A race is a conflict of two accesses that streams and events
 * do not order. Contents are lost when what an operation reads through a row was last written through another
 * one, ordered or not. */
#include <stdlib.h>

#include "device/order.h"

struct cell {
    int64_t at;
    int32_t arena, owner;                                  /* row it was last written through, -1: none */
    int64_t owner_at;                                      /* record */
    int64_t wrote[MT_N_STREAMS], read[MT_N_STREAMS];       /* positions */
    int64_t wrote_at[MT_N_STREAMS], read_at[MT_N_STREAMS]; /* records */
};
struct finder {
    const struct mt_recording *q;
    const struct mt_ledger *g;
    struct mt_order order;
    struct cell *cell;
    int64_t n_cells;
    struct mt_race *out;
    int n, max;
};

static int by_place(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;
    return x->arena != y->arena ? x->arena - y->arena : (x->at > y->at) - (x->at < y->at);
}

/* First cell at or behind a place; every argument begins at one. */
static int64_t cell_find(const struct finder *f, int32_t arena, int64_t at)
{
    const struct cell key = {.arena = arena, .at = at};
    int64_t lo = 0, hi = f->n_cells;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (by_place(&f->cell[mid], &key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void cells_cut(struct finder *f)
{
    const struct mt_recording *q = f->q;
    f->cell = calloc((size_t)(2 * q->n_args + 1), sizeof *f->cell);
    MT_ASSERT(f->cell);
    int64_t n = 0;
    for (int64_t i = 0; i < q->n_args; i++) {
        const struct mt_row *w = &f->g->row[q->arg[i].row];
        int64_t begin = w->off + q->arg[i].off;
        f->cell[n++] = (struct cell){.at = begin, .arena = w->arena, .owner = -1};
        f->cell[n++] = (struct cell){.at = begin + q->arg[i].bytes, .arena = w->arena, .owner = -1};
    }
    qsort(f->cell, (size_t)n, sizeof *f->cell, by_place);
    for (int64_t i = 0; i < n; i++)
        if (!f->n_cells || by_place(&f->cell[f->n_cells - 1], &f->cell[i]))
            f->cell[f->n_cells++] = f->cell[i];
}

static void found(struct finder *f, struct mt_race race)
{
    const struct mt_race *last = f->n ? &f->out[f->n - 1] : NULL;
    if (f->n == f->max ||
        (last && last->first == race.first && last->second == race.second && last->lost == race.lost))
        return;
    f->out[f->n++] = race;
}

static void cell_access(struct finder *f, struct cell *c, int64_t i, const struct mt_rec_arg *a)
{
    const struct mt_rec *r = &f->q->rec[i];
    const struct mt_clock *known = &f->order.before[i];
    bool writes = mt_dir_writes(a->dir);
    if (mt_dir_needs(a->dir) && c->owner >= 0 && c->owner != a->row)
        found(f, (struct mt_race){.first = c->owner_at, .second = i, .row = a->row, .lost = true});
    for (int s = 0; s < MT_N_STREAMS; s++) {
        if (s == r->stream) continue;
        if (c->wrote[s] > known->at[s])
            found(f, (struct mt_race){.first = c->wrote_at[s], .second = i, .row = a->row});
        else if (writes && c->read[s] > known->at[s])
            found(f, (struct mt_race){.first = c->read_at[s], .second = i, .row = a->row});
    }
    if (writes) {
        c->owner = a->row;
        c->owner_at = i;
        c->wrote[r->stream] = r->seq;
        c->wrote_at[r->stream] = i;
    } else {
        c->read[r->stream] = r->seq;
        c->read_at[r->stream] = i;
    }
}

/* needs: arguments whose contents matter come before those of the same operation that begin a lifetime. */
static void args_access(struct finder *f, int64_t i, bool needs)
{
    const struct mt_rec *r = &f->q->rec[i];
    for (int k = 0; k < r->n_args; k++) {
        const struct mt_rec_arg *a = &f->q->arg[r->arg + (uint32_t)k];
        if (mt_dir_needs(a->dir) != needs) continue;
        const struct mt_row *w = &f->g->row[a->row];
        int64_t begin = w->off + a->off;
        for (int64_t x = cell_find(f, w->arena, begin); x < f->n_cells; x++) {
            if (f->cell[x].arena != w->arena || f->cell[x].at >= begin + a->bytes) break;
            cell_access(f, &f->cell[x], i, a);
        }
    }
}

int mt_races_find(const struct mt_recording *q, const struct mt_ledger *g, int64_t skip_wait,
                  bool host_orders, struct mt_race *out, int max)
{
    struct finder f = {.q = q, .g = g, .out = out, .max = max};
    mt_order_init(&f.order, q, skip_wait, host_orders);
    cells_cut(&f);
    for (int64_t i = 0; i < q->n && f.n < max; i++) {
        args_access(&f, i, true);
        args_access(&f, i, false);
    }
    free(f.cell);
    mt_order_release(&f.order);
    return f.n;
}
