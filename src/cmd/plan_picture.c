#include "cmd/plan_picture.h"

#include <stdlib.h>
#include <string.h>

#include "device/lifetimes.h"

/* ---- colours ---- */
int mt_ink_of_work(enum mt_work_kind k)
{
    return k == MT_WORK_COPY ? MT_INK_OF_STANDS + MT_STAND_COPIES : (int)k - 1;
}
const char *mt_ink_text(int ink)
{
    static const char *const moves[MT_N_STANDS] = {
        "weights gathered",  "gradients reduced", "rows of experts",    "matrices of owners",
        "small collectives", "late ranks",        "host-device copies", "the host"};
    return ink < MT_INK_OF_STANDS ? mt_work_kind_name((enum mt_work_kind)(ink + 1))
                                  : moves[ink - MT_INK_OF_STANDS];
}

/* Of a record that is no wait; -1: it takes no time. */
static int ink_of_work(const struct mt_rec *r)
{
    if (mt_op_info[r->op].kind == MT_COMM) return MT_INK_OF_STANDS + (int)mt_stand_of_move(r->op);
    enum mt_work_kind k = mt_work_kind_of((enum mt_op)r->op);
    return k == MT_WORK_NONE ? -1 : mt_ink_of_work(k);
}
/* Of what a wait waits for when nothing of that stream is under way. */
static int ink_of_stream(int stream)
{
    return MT_INK_OF_STANDS + (stream == MT_GATHER   ? MT_STAND_WEIGHTS
                               : stream == MT_REDUCE ? MT_STAND_GRADIENTS
                                                     : MT_STAND_COPIES);
}

/* ---- parts of the step ---- */
/* The k-th record of an operation on the compute stream among the first `n` records; counts them if k is negative. */
static int64_t find(const struct mt_timeline *t, uint16_t op, int64_t n, int64_t k)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if (t->q->rec[i].op == op && t->q->rec[i].stream == MT_COMPUTE && count++ == k) return i;
    return k < 0 ? count : -1;
}

int mt_picture_windows(const struct mt_timeline *t, struct mt_window w[MT_MOST_WINDOWS])
{
    int n = 0;
    const bool tops = find(t, MT_OP_attention_fwd_top, t->q->n, -1) > 0;
    const uint16_t forward = tops ? MT_OP_attention_fwd_top : MT_OP_attention_fwd;
    int64_t length = mt_timeline_length(t), loss = find(t, MT_OP_xent, t->q->n, 0),
            clip = find(t, MT_OP_clip, t->q->n, 0), blocks = find(t, forward, loss < 0 ? 0 : loss, -1),
            back = find(t, MT_OP_attention_bwd, t->q->n, -1);
    w[n++] = (struct mt_window){0, length, "The step"};
    if (blocks > 1)
        w[n++] = (struct mt_window){t->begin[find(t, forward, loss, blocks / 2 - 1)],
                                    t->begin[find(t, forward, loss, blocks / 2)],
                                    "Forward, from one block's attention to the next one's"};
    if (back > 1)
        w[n++] = (struct mt_window){t->begin[find(t, MT_OP_attention_bwd, t->q->n, back / 2 - 1)],
                                    t->begin[find(t, MT_OP_attention_bwd, t->q->n, back / 2)],
                                    "Backward, from one block's attention to the next one's"};
    if (clip >= 0)
        w[n++] =
            (struct mt_window){t->begin[clip], length, "From the gradient's norm to the end: the optimizer"};
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (w[i].to > w[i].from) w[kept++] = w[i];
    return kept;
}

/* ---- streams ---- */
struct share {
    double time, most; /* of the column; of one operation in it */
    int64_t operations, longest;
};
struct columns {
    const struct mt_timeline *t;
    struct mt_places places;
    const struct mt_window *w;
    struct share (*of)[2 * MT_N_INKS]; /* [MT_COLUMNS] */
};

/* A record's stretch [from, to), over the columns that it covers. */
static void add_stretch(struct columns *c, int64_t record, int ink, int64_t from, int64_t to)
{
    double per = (double)(c->w->to - c->w->from) / MT_COLUMNS;
    if (from >= c->w->to || to <= c->w->from || to <= from || ink < 0) return;
    double a = (double)(from - c->w->from) / per, b = (double)(to - c->w->from) / per;
    bool begins = a >= 0;
    if (a < 0) a = 0;
    if (b > MT_COLUMNS) b = MT_COLUMNS;
    for (int i = (int)a; i < MT_COLUMNS && i < b; i++) {
        double lo = a > i ? a : i, hi = b < i + 1 ? b : i + 1;
        struct share *s = &c->of[i][ink];
        s->time += hi - lo;
        if (i == (int)a) s->operations += begins;
        if ((double)(to - from) > s->most) s->most = (double)(to - from), s->longest = record;
    }
}

/* From `from` to `to` record i waits for an event: for what that event's stream does then, which may be another wait. */
static void add_awaited(struct columns *c, int64_t i, mt_event ev, int64_t from, int64_t to, int depth)
{
    enum { MOST_WAITS = 16 }; /* in a chain */
    const struct mt_timeline *t = c->t;
    int64_t seq = ev.seq, j;
    while (seq > 1 && (j = mt_places_find(&c->places, (mt_event){ev.stream, seq - 1})) >= 0 &&
           t->end[j] > from)
        seq--;
    for (; seq <= ev.seq && from < to; seq++) {
        if ((j = mt_places_find(&c->places, (mt_event){ev.stream, seq})) < 0 || t->end[j] <= from) continue;
        int64_t begin = t->begin[j] > from ? t->begin[j] : from, end = t->end[j] < to ? t->end[j] : to;
        add_stretch(c, i, MT_N_INKS + ink_of_stream(ev.stream), from, begin < to ? begin : to);
        from = end;
        if (t->q->rec[j].op == MT_OP_wait) {
            if (depth < MOST_WAITS) add_awaited(c, i, t->q->rec[j].ev, begin, end, depth + 1);
            continue;
        }
        int64_t moved = mt_timeline_moved(t, j), still = moved < begin ? begin : moved < end ? moved : end;
        int ink = ink_of_work(&t->q->rec[j]);
        add_stretch(c, i, MT_N_INKS + MT_INK_OF_STANDS + MT_STAND_LATE, begin, still);
        add_stretch(c, i, MT_N_INKS + (ink < 0 ? ink_of_stream(ev.stream) : ink), still, end);
    }
    add_stretch(c, i, MT_N_INKS + ink_of_stream(ev.stream), from, to);
}

static void add_record(struct columns *c, int64_t i)
{
    const struct mt_timeline *t = c->t;
    const struct mt_rec *r = &t->q->rec[i];
    if (r->op == MT_OP_wait) {
        /* That the other streams wait for the compute stream is what they are for. */
        if (r->stream == MT_COMPUTE && t->begin[i] < c->w->to && t->end[i] > c->w->from)
            add_awaited(c, i, r->ev, t->begin[i], t->end[i], 0);
        return;
    }
    int64_t moved = mt_timeline_moved(t, i);
    int ink = ink_of_work(r);
    if (moved > t->begin[i]) add_stretch(c, i, MT_N_INKS + ink, t->begin[i], moved);
    add_stretch(c, i, ink, moved, t->end[i]);
}

/* What a column shows: of what is done in it, what takes most; -1: nothing. Of columns that are idle in part so many are filled
 * as there is work in them together: *owed is what those before have not shown. */
static int main_ink(const struct share *s, double *owed)
{
    double busy = 0;
    int best = 0;
    for (int i = 0; i < 2 * MT_N_INKS; i++) {
        busy += s[i].time;
        if (s[i].time > s[best].time) best = i;
    }
    *owed += busy;
    if (!(busy > 0) || *owed < 0.5) return -1;
    *owed -= 1;
    return best;
}

static int find_runs(const struct columns *c, struct mt_run *run)
{
    int n = 0, before = -1;
    double owed = 0;
    for (int i = 0; i < MT_COLUMNS; i++) {
        int ink = main_ink(c->of[i], &owed);
        if (ink >= 0) {
            const struct share *s = &c->of[i][ink];
            if (ink != before) run[n++] = (struct mt_run){.from = i, .ink = ink, .longest = s->longest};
            struct mt_run *r = &run[n - 1];
            double most = c->of[r->from][ink].most;
            if (s->most > most) r->longest = s->longest;
            r->operations += s->operations;
            r->to = i + 1;
        }
        before = ink;
    }
    return n;
}

mt_status mt_picture_stream(const struct mt_timeline *t, int stream, const struct mt_window *w,
                            struct mt_run run[MT_COLUMNS], int *n, mt_err *e)
{
    struct columns c = {.t = t, .w = w, .of = calloc(MT_COLUMNS, sizeof *c.of)};
    mt_status st = c.of ? MT_OK : mt_err_set(e, MT_IO, "no memory for a picture");
    if (st == MT_OK) st = mt_places_init(&c.places, t->q, e);
    *n = 0;
    if (st == MT_OK) {
        for (int64_t i = 0; i < t->q->n; i++)
            if (t->q->rec[i].stream == stream) add_record(&c, i);
        *n = find_runs(&c, run);
        mt_places_release(&c.places);
    }
    free(c.of);
    return st;
}

/* ---- memory ---- */
struct change {
    int64_t time, bytes;
    int32_t row_class;
};
/* By time; what is let go comes first, as the layout gives its bytes to what begins then. */
static int earlier(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->row_class - y->row_class;
}

static int64_t over(const struct mt_timeline *t, const struct mt_places *p, const struct mt_life *l)
{
    int64_t last = 0;
    for (int s = 0; s < MT_N_STREAMS; s++) {
        int64_t i = mt_places_find(p, (mt_event){s, l->end.at[s]});
        if (i >= 0 && t->end[i] > last) last = t->end[i];
    }
    return last;
}

static int64_t find_changes(const struct mt_timeline *t, enum mt_arena arena, const struct mt_lifetimes *f,
                            const struct mt_places *p, struct change *out)
{
    int64_t n = 0;
    for (int32_t i = 0; i < f->n; i++) {
        const struct mt_row *row = &t->ledger->row[f->life[i].row];
        int64_t from = t->begin[f->life[i].def], to = over(t, p, &f->life[i]);
        if (row->arena != arena || mt_row_persistent((enum mt_row_class)row->row_class) || to <= from)
            continue;
        out[n++] = (struct change){from, row->bytes, row->row_class};
        out[n++] = (struct change){to, -row->bytes, row->row_class};
    }
    qsort(out, (size_t)n, sizeof *out, earlier);
    return n;
}

static void fill_column(struct mt_filling *m, int column, const int64_t *now, int64_t at)
{
    int64_t sum = 0, before = 0;
    for (int c = 0; c < MT_N_ROW_CLASSES; c++) sum += now[c], before += m->held[column][c];
    if (sum > before) memcpy(m->held[column], now, sizeof m->held[column]);
    if (sum > m->most) m->most = sum, m->at = at, m->fullest = column;
}

/* Each column has what is held at its begin, or the most that is in it. */
static void fill(struct mt_filling *m, const struct mt_ledger *g, enum mt_arena arena, const struct change *x,
                 int64_t n, int64_t length)
{
    int64_t now[MT_N_ROW_CLASSES] = {0};
    for (int32_t i = 0; i < g->n; i++)
        if (g->row[i].arena == arena && mt_row_persistent((enum mt_row_class)g->row[i].row_class))
            now[g->row[i].row_class] += g->row[i].bytes;
    int64_t k = 0;
    for (int i = 0; i < MT_COLUMNS; i++) {
        int64_t from = (int64_t)((double)length * i / MT_COLUMNS),
                to = i + 1 < MT_COLUMNS ? (int64_t)((double)length * (i + 1) / MT_COLUMNS) : INT64_MAX;
        for (; k < n && x[k].time <= from; k++) now[x[k].row_class] += x[k].bytes;
        fill_column(m, i, now, from);
        for (; k < n && x[k].time < to; k++) {
            now[x[k].row_class] += x[k].bytes;
            fill_column(m, i, now, x[k].time);
        }
    }
}

mt_status mt_picture_memory(const struct mt_timeline *t, enum mt_arena arena, struct mt_filling *m, mt_err *e)
{
    struct mt_lifetimes f = {0};
    struct mt_places p;
    *m = (struct mt_filling){.most = -1};
    MT_TRY(mt_places_init(&p, t->q, e));
    mt_status st = mt_lifetimes_find(&f, t->ledger, t->q, e);
    if (st == MT_OK) {
        struct change *x = malloc(2 * (size_t)f.n * sizeof *x + 1);
        if (x)
            fill(m, t->ledger, arena, x, find_changes(t, arena, &f, &p, x), mt_timeline_length(t));
        else
            st = mt_err_set(e, MT_IO, "no memory for a picture");
        free(x);
    }
    mt_lifetimes_release(&f);
    mt_places_release(&p);
    return st;
}
