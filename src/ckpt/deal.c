#include "ckpt/deal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What all processes have to read so far, and where each one's waves stand. */
struct load {
    int64_t bytes;
    int64_t alone_fill, staged_fill;
    int32_t alone_wave, staged_wave;
};
struct dealing {
    struct mt_deal *d;
    const struct mt_ckpt_items *items;
    const struct mt_job *job;
    const struct mt_deal_need *need;
    struct mt_deal_budget budget;
    struct mt_deal_holders holders;
    int64_t *overlap; /* the needs that have rows of the piece at hand */
    int64_t n_overlap;
    int64_t *rows; /* [processes] of it; zero between pieces */
    struct load *load;
    bool ok; /* memory has been enough so far */
};

/* Room for one more behind n. */
static void *one_more(struct dealing *g, void *array, int64_t n, int64_t *room, size_t size)
{
    if (n < *room) return array;
    int64_t more = *room ? 2 * *room : 64;
    void *p = realloc(array, (size_t)more * size);
    g->ok = g->ok && p;
    if (!p) return array;
    *room = more;
    return p;
}

static void add_move(struct dealing *g, struct mt_deal_moves *m, struct mt_deal_move x)
{
    m->x = one_more(g, m->x, m->n, &m->room, sizeof *m->x);
    if (!g->ok) return;
    x.order = m->n;
    m->x[m->n++] = x;
}
static void add_copy(struct dealing *g, struct mt_deal_copy x)
{
    struct mt_deal *d = g->d;
    d->copy = one_more(g, d->copy, d->n_copies, &d->copy_room, sizeof *d->copy);
    if (g->ok) d->copy[d->n_copies++] = x;
}
static void add_span(struct dealing *g, struct mt_deal_span x)
{
    struct mt_deal *d = g->d;
    d->span = one_more(g, d->span, d->n_spans, &d->span_room, sizeof *d->span);
    if (g->ok) d->span[d->n_spans++] = x;
}

/* Whether a process reads the piece at hand rather than another: it needs more of its rows, else has less to read so far, else
 * comes first. */
static bool rather(const struct dealing *g, int p, int other)
{
    if (g->rows[p] != g->rows[other]) return g->rows[p] > g->rows[other];
    if (g->load[p].bytes != g->load[other].bytes) return g->load[p].bytes < g->load[other].bytes;
    return p < other;
}

/* Of those that can read the piece's file: of all, where all can, one that needs it. */
static int reader_of(struct dealing *g, int64_t file)
{
    const int64_t *has = g->holders.has ? g->holders.has + file * g->job->n : NULL;
    int best = has ? -1 : g->need[g->overlap[0]].process;
    for (int64_t i = 0; i < g->n_overlap && !has; i++)
        if (rather(g, g->need[g->overlap[i]].process, best)) best = g->need[g->overlap[i]].process;
    for (int p = 0; has && p < g->job->n; p++)
        if (has[p] && (best < 0 || rather(g, p, best))) best = p;
    for (int64_t i = 0; i < g->n_overlap; i++) g->rows[g->need[g->overlap[i]].process] = 0;
    MT_ASSERT(best >= 0);
    return best;
}

/* How many of the rows that are left go into the reader's wave; a wave that has no room for one is over. */
static int64_t rows_now(int64_t left, int64_t row_bytes, int64_t budget, int64_t *fill, int32_t *wave)
{
    int64_t rows = (budget - *fill) / row_bytes;
    if (rows < 1 && *fill > 0) {
        ++*wave;
        *fill = 0;
        rows = budget / row_bytes;
    }
    if (rows < 1) rows = 1;
    return rows < left ? rows : left;
}

/* The part of a need that lies in [row0, row0 + *rows); false: none. */
static bool cut(const struct mt_deal_need *n, int64_t row0, int64_t *from, int64_t *rows)
{
    int64_t end = row0 + *rows;
    *from = n->row0 > row0 ? n->row0 : row0;
    *rows = (n->row0 + n->rows < end ? n->row0 + n->rows : end) - *from;
    return *rows > 0;
}

/* What each process that needs rows of the span does with them. */
static void deal_span(struct dealing *g, struct mt_deal_span s, int reader, int64_t row_bytes)
{
    int me = g->job->me;
    s.copy = g->d->n_copies;
    for (int64_t i = 0; i < g->n_overlap && g->ok; i++) {
        const struct mt_deal_need *n = &g->need[g->overlap[i]];
        int64_t from, rows = s.rows;
        if ((reader != me && n->process != me) || !cut(n, s.row0, &from, &rows)) continue;
        struct mt_deal_move move = {.wave = s.wave, .bytes = rows * row_bytes};
        if (reader == me && n->process == me) {
            add_copy(g, (struct mt_deal_copy){n->to + (from - n->row0) * row_bytes / 4, from, rows});
        } else if (reader == me) {
            move.process = n->process;
            move.staged = s.staged + (from - s.row0) * row_bytes;
            add_move(g, &g->d->send, move);
            g->d->passed += move.bytes;
        } else {
            move.process = reader;
            move.to = n->to + (from - n->row0) * row_bytes / 4;
            add_move(g, &g->d->arrive, move);
        }
    }
    s.n_copies = g->d->n_copies - s.copy;
    if (reader == me) add_span(g, s);
}

static void deal_piece(struct dealing *g, int64_t index)
{
    const struct mt_deal_piece *p = &g->d->piece[index];
    int64_t row_bytes = mt_ckpt_row_bytes(&g->items->item[p->item]);
    int reader = reader_of(g, p->file);
    struct load *l = &g->load[reader];
    bool passed = false;
    for (int64_t i = 0; i < g->n_overlap; i++) passed |= g->need[g->overlap[i]].process != reader;
    int64_t *fill = passed ? &l->staged_fill : &l->alone_fill;
    int32_t *wave = passed ? &l->staged_wave : &l->alone_wave;
    for (int64_t row = p->row0, end = p->row0 + p->rows; row < end;) {
        int64_t rows =
            rows_now(end - row, row_bytes, passed ? g->budget.staged : g->budget.alone, fill, wave);
        struct mt_deal_span s = {
            .piece = index, .row0 = row, .rows = rows, .staged = passed ? *fill : -1, .wave = *wave};
        deal_span(g, s, reader, row_bytes);
        *fill += rows * row_bytes;
        if (passed && reader == g->job->me && *fill > g->d->staging) g->d->staging = *fill;
        if (*wave + 1 > g->d->waves) g->d->waves = *wave + 1;
        row += rows;
    }
    l->bytes += p->rows * row_bytes;
    if (reader == g->job->me) g->d->read += p->rows * row_bytes;
}

/* Pieces and needs are both in the order of items and rows. */
static void deal_all(struct dealing *g, int64_t n_needs)
{
    int64_t from = 0;
    for (int64_t i = 0; i < g->d->n_pieces && g->ok; i++) {
        const struct mt_deal_piece *p = &g->d->piece[i];
        while (from < n_needs &&
               (g->need[from].item < p->item ||
                (g->need[from].item == p->item && g->need[from].row0 + g->need[from].rows <= p->row0)))
            from++;
        g->n_overlap = 0;
        for (int64_t k = from;
             k < n_needs && g->need[k].item == p->item && g->need[k].row0 < p->row0 + p->rows; k++) {
            int64_t row, rows = p->rows;
            if (!cut(&g->need[k], p->row0, &row, &rows)) continue;
            g->overlap[g->n_overlap++] = k;
            g->rows[g->need[k].process] += rows;
        }
        if (g->n_overlap) deal_piece(g, i);
    }
}

static int by_rows(const void *a, const void *b)
{
    const struct mt_deal_need *x = a, *y = b;
    if (x->item != y->item) return x->item < y->item ? -1 : 1;
    if (x->row0 != y->row0) return x->row0 < y->row0 ? -1 : 1;
    if (x->rows != y->rows) return x->rows < y->rows ? -1 : 1;
    if (x->process != y->process) return x->process < y->process ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static int by_place(const void *a, const void *b, void *piece)
{
    const struct mt_deal_span *x = a, *y = b;
    const struct mt_deal_piece *p = (const struct mt_deal_piece *)piece + x->piece,
                               *q = (const struct mt_deal_piece *)piece + y->piece;
    if (x->wave != y->wave) return x->wave < y->wave ? -1 : 1;
    if (p->file != q->file) return p->file < q->file ? -1 : 1;
    return p->at < q->at ? -1 : p->at > q->at;
}

static int by_message(const void *a, const void *b)
{
    const struct mt_deal_move *x = a, *y = b;
    if (x->wave != y->wave) return x->wave < y->wave ? -1 : 1;
    if (x->process != y->process) return x->process < y->process ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void sort_moves(struct mt_deal *d, struct mt_deal_moves *m)
{
    int64_t bytes = 0;
    if (m->n) qsort(m->x, (size_t)m->n, sizeof *m->x, by_message);
    for (int64_t i = 0; i < m->n; i++) {
        bool more = i && m->x[i - 1].wave == m->x[i].wave && m->x[i - 1].process == m->x[i].process;
        bytes = (more ? bytes : 0) + m->x[i].bytes;
        if (bytes > d->message) d->message = bytes;
    }
}

mt_status mt_deal_make(struct mt_deal *d, const struct mt_ckpt_items *items, const struct mt_job *job,
                       struct mt_deal_piece *piece, int64_t n_pieces, struct mt_deal_need *need,
                       int64_t n_needs, struct mt_deal_budget budget, struct mt_deal_holders holders,
                       mt_err *e)
{
    *d = (struct mt_deal){.piece = piece, .n_pieces = n_pieces};
    struct dealing g = {.d = d,
                        .items = items,
                        .job = job,
                        .need = need,
                        .budget = budget,
                        .holders = holders,
                        .overlap = malloc((size_t)(n_needs + 1) * sizeof *g.overlap),
                        .rows = calloc((size_t)job->n, sizeof *g.rows),
                        .load = calloc((size_t)job->n, sizeof *g.load)};
    g.ok = g.overlap && g.rows && g.load;
    if (n_needs) qsort(need, (size_t)n_needs, sizeof *need, by_rows);
    if (g.ok) deal_all(&g, n_needs);
    free(g.overlap);
    free(g.rows);
    free(g.load);
    MT_REQUIRE(g.ok, e, MT_IO, "no memory to deal %" PRId64 " pieces of a checkpoint", n_pieces);
    if (d->n_spans) qsort_r(d->span, (size_t)d->n_spans, sizeof *d->span, by_place, d->piece);
    sort_moves(d, &d->send);
    sort_moves(d, &d->arrive);
    return MT_OK;
}

void mt_deal_close(struct mt_deal *d)
{
    free(d->piece);
    free(d->span);
    free(d->copy);
    free(d->send.x);
    free(d->arrive.x);
    *d = (struct mt_deal){0};
}
