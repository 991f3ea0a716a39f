#include "device/poison.h"

#include <stdlib.h>
#include <string.h>

#include "device/lifetimes.h"

struct finder {
    struct mt_poison *p;
    const struct mt_ledger *g;
    const struct mt_recording *q;
    struct mt_lifetimes lives;
    struct mt_order order;
    int64_t *index[MT_N_STREAMS]; /* record at a position */
    int64_t *at;                  /* by lifetime: the record it ends with, -1: none */
};

static void index_fill(struct finder *f)
{
    for (int s = 0; s < MT_N_STREAMS; s++) {
        f->index[s] = calloc((size_t)f->q->n + 1, sizeof *f->index[s]);
        MT_ASSERT(f->index[s]);
    }
    for (int64_t i = 0; i < f->q->n; i++) {
        const struct mt_rec *r = &f->q->rec[i];
        f->index[r->stream][r->seq] = i;
        if (r->seq > f->p->n[r->stream]) f->p->n[r->stream] = r->seq;
    }
}

/* The access that is known to come behind all others of a lifetime; -1: none is. */
static int64_t last_of(const struct finder *f, const struct mt_life *l)
{
    for (int s = 0; s < MT_N_STREAMS; s++) {
        if (!l->end.at[s]) continue;
        int64_t i = f->index[s][l->end.at[s]];
        bool known = true;
        for (int t = 0; t < MT_N_STREAMS; t++) known &= t == s || l->end.at[t] <= f->order.before[i].at[t];
        if (known) return i;
    }
    return -1;
}

/* The access of the same row and stream before record i; -1: there is none in the lifetime. */
static int64_t access_before(const struct finder *f, const struct mt_life *l, int64_t i)
{
    int stream = f->q->rec[i].stream;
    while (--i >= l->def)
        for (uint32_t k = 0; k < f->q->rec[i].n_args; k++)
            if (f->q->rec[i].stream == stream && f->q->arg[f->q->rec[i].arg + k].row == l->row) return i;
    return -1;
}

static bool persistent(const struct finder *f, int32_t row)
{
    return mt_row_persistent((enum mt_row_class)f->g->row[row].row_class);
}

static mt_status ends_find(struct finder *f, int64_t early, mt_err *e)
{
    for (int32_t k = 0; k < f->lives.n; k++) {
        const struct mt_life *l = &f->lives.life[k];
        f->at[k] = -1;
        if (persistent(f, l->row)) continue;
        f->p->lives++;
        int64_t i = last_of(f, l);
        if (i < 0)
            f->p->unordered++;
        else if (f->q->rec[i].op == MT_OP_read_back)
            f->p->read++; /* the host copies when this is over */
        else if (l->next >= 0 && f->lives.life[l->next].def == i)
            f->p->renewed++;
        else
            f->at[k] = i;
        if (k == early && f->at[k] >= 0) f->at[k] = access_before(f, l, i);
        MT_REQUIRE(k != early || f->at[k] >= 0, e, MT_INTERNAL, "lifetime %lld, of row %s, cannot end early",
                   (long long)k, f->g->row[l->row].name);
    }
    return MT_OK;
}

/* Rows by position, in the order of streams and positions. */
static void table_fill(struct finder *f)
{
    struct mt_poison *p = f->p;
    p->row = calloc((size_t)f->lives.n + 1, sizeof *p->row);
    MT_ASSERT(p->row);
    for (int s = 0; s < MT_N_STREAMS; s++) {
        p->first[s] = calloc((size_t)p->n[s] + 2, sizeof *p->first[s]);
        MT_ASSERT(p->first[s]);
    }
    for (int32_t k = 0; k < f->lives.n; k++)
        if (f->at[k] >= 0) p->first[f->q->rec[f->at[k]].stream][f->q->rec[f->at[k]].seq]++;
    for (int s = 0; s < MT_N_STREAMS; s++)
        for (int64_t i = 0; i <= p->n[s] + 1; i++) {
            int32_t here = p->first[s][i];
            p->first[s][i] = (int32_t)p->rows;
            p->rows += here;
        }
    for (int32_t k = f->lives.n - 1; k >= 0; k--) {
        if (f->at[k] < 0) continue;
        const struct mt_rec *r = &f->q->rec[f->at[k]];
        int32_t at = p->first[r->stream][r->seq];
        while (p->row[at]) at++; /* so far the row's number and 1 */
        p->row[at] = f->lives.life[k].row + 1;
    }
    for (int64_t i = 0; i < p->rows; i++) p->row[i]--;
}

mt_status mt_poison_find(struct mt_poison *p, const struct mt_ledger *g, const struct mt_recording *q,
                         int64_t early, mt_err *e)
{
    struct finder f = {.p = p, .g = g, .q = q};
    *p = (struct mt_poison){0};
    mt_status st = mt_lifetimes_find(&f.lives, g, q, e);
    if (st == MT_OK) {
        f.at = malloc(((size_t)f.lives.n + 1) * sizeof *f.at);
        MT_ASSERT(f.at);
        mt_order_init(&f.order, q, -1, false);
        index_fill(&f);
        st = ends_find(&f, early, e);
        if (st == MT_OK) table_fill(&f);
        mt_order_release(&f.order);
    }
    for (int s = 0; s < MT_N_STREAMS; s++) free(f.index[s]);
    free(f.at);
    mt_lifetimes_release(&f.lives);
    return st;
}

void mt_poison_release(struct mt_poison *p)
{
    for (int s = 0; s < MT_N_STREAMS; s++) free(p->first[s]);
    free(p->row);
    *p = (struct mt_poison){0};
}

void mt_poison_apply(const struct mt_poison *p, const struct mt_ctx *c, int stream, int64_t seq)
{
    if (seq > p->n[stream]) return;
    for (int32_t i = p->first[stream][seq]; i < p->first[stream][seq + 1]; i++) {
        const struct mt_row *r = &c->ledger->row[p->row[i]];
        memset(c->arena[r->arena] + r->off, 0xff, (size_t)r->bytes);
    }
}
