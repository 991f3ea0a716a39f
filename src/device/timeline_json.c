/* timeline_json.c: timelines as Chrome trace events, which Perfetto and chrome://tracing show: one JSON object, an event a
 * line. Of the format: X is an operation with its duration, s and f the two ends of an arrow, M a name; pid is the rank, tid
 * the stream; times are microseconds. */
#include <inttypes.h>

#include "device/order.h"
#include "device/timeline.h"

struct json {
    FILE *f;
    const char *const *groups;
    bool more;      /* an event stands before the next one */
    int64_t arrows; /* ids given */
};

static void put_text(FILE *f, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', f);
        if ((unsigned char)*s >= ' ') fputc(*s, f);
    }
}

static void event(struct json *j, const char *phase, int rank, int row)
{
    fprintf(j->f, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", j->more ? "," : "", phase, rank, row);
    j->more = true;
}
static void put_time(FILE *f, const char *key, int64_t ns)
{
    fprintf(f, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

/* ---- rows ---- */
static void put_name(struct json *j, int rank, int row, const char *what, const char *name)
{
    event(j, "M", rank, row);
    fprintf(j->f, ",\"name\":\"%s\",\"args\":{\"name\":\"", what);
    put_text(j->f, name);
    fprintf(j->f, "\"}}");
}
static void put_place(struct json *j, int rank, int row, const char *what, int place)
{
    event(j, "M", rank, row);
    fprintf(j->f, ",\"name\":\"%s\",\"args\":{\"sort_index\":%d}}", what, place);
}
static void put_rows(struct json *j, const struct mt_timeline *t)
{
    char name[32];
    snprintf(name, sizeof name, "rank %d", t->rank);
    put_name(j, t->rank, 0, "process_name", name);
    put_place(j, t->rank, 0, "process_sort_index", t->rank);
    for (int s = 0; s < MT_N_STREAMS + (t->n_host > 0); s++) {
        put_name(j, t->rank, s, "thread_name", s < MT_N_STREAMS ? mt_stream_name(s) : "host code");
        put_place(j, t->rank, s, "thread_sort_index", s);
    }
}

/* ---- operations ---- */
static void put_dims(FILE *f, const struct mt_rec *r)
{
    const struct mt_op_info *o = &mt_op_info[r->op];
    bool done[MT_LETTERS] = {['Z' - 'A'] = true};
    for (int i = 0; i < o->n_args; i++)
        for (const char *c = o->arg[i].shape; *c; c++) {
            int k = *c == '?' ? 'E' - 'A' : *c - 'A';
            if (*c == '*' || done[k]) continue;
            done[k] = true;
            fprintf(f, ",\"%c\":%" PRId64, 'A' + k, r->dim[k]);
        }
}

static void put_args(FILE *f, const struct mt_timeline *t, const struct mt_rec *r)
{
    static const char *const dir[] = {"in", "in", "out", "some out", "part out", "in out", "scratch"};
    for (int k = 0; k < r->n_args; k++) {
        const struct mt_rec_arg *a = &t->q->arg[r->arg + (uint32_t)k];
        fprintf(f, ",\"%s %s\":\"", dir[a->dir], mt_op_info[r->op].arg[a->place].name);
        put_text(f, t->ledger->row[a->row].name);
        if (a->whole)
            fprintf(f, ", %" PRId64 " bytes\"", a->bytes);
        else
            fprintf(f, ", bytes [%" PRId64 ", %" PRId64 ")\"", a->off, a->off + a->bytes);
    }
}

/* What it costs by the op table, and the rates it came to. */
static void put_costs(FILE *f, const struct mt_timeline *t, int64_t i)
{
    double flops = mt_record_flops(t->q, i), bytes = mt_record_bytes(t->q, i),
           ns = (double)(t->end[i] - mt_timeline_moved(t, i));
    fprintf(f, ",\"bytes\":%.0f,\"flops\":%.0f", bytes, flops);
    if (ns > 0 && bytes > 0) fprintf(f, ",\"GB/s\":%.4g", bytes / ns);
    if (ns > 0 && flops > 0) fprintf(f, ",\"GFLOP/s\":%.4g", flops / ns);
}

static void put_op(struct json *j, const struct mt_timeline *t, int64_t i)
{
    static const char *const kind[] = {"kernel", "copy", "read", "collective"};
    const struct mt_rec *r = &t->q->rec[i];
    const struct mt_op_info *o = &mt_op_info[r->op];
    FILE *f = j->f;
    fprintf(f, ",\"name\":\"%s\",\"cat\":\"%s\",\"args\":{\"seq\":%" PRId64, o->name, kind[o->kind], r->seq);
    if (r->round) fprintf(f, ",\"round\":%d", r->round);
    put_dims(f, r);
    fprintf(f, ",\"dtype\":\"%s\"", mt_dtype_name((mt_dtype)r->dtype));
    if (o->kind == MT_COMM) {
        if (j->groups)
            fprintf(f, ",\"group\":\"%s\"", j->groups[r->scalar[0].i]);
        else
            fprintf(f, ",\"group\":%" PRId64, r->scalar[0].i);
        if (t->ready) put_time(f, "waited_us", mt_timeline_moved(t, i) - t->begin[i]);
    } else if (t->ready && t->ready[i] < t->begin[i]) {
        put_time(f, "queued_us", t->begin[i] - t->ready[i]);
    }
    put_costs(f, t, i);
    put_args(f, t, r);
    fprintf(f, "}}");
}

static void put_wait(struct json *j, const struct mt_timeline *t, int64_t i, int64_t awaited)
{
    const struct mt_rec *r = &t->q->rec[i];
    fprintf(j->f,
            ",\"name\":\"wait for %s\",\"cat\":\"wait\",\"args\":{\"seq\":%" PRId64
            ",\"stream\":\"%s\",\"awaited_seq\":%" PRId64 ",\"awaited\":\"%s\"}}",
            mt_stream_name(r->ev.stream), r->seq, mt_stream_name(r->ev.stream), r->ev.seq,
            awaited < 0 ? "nothing" : mt_rec_name(&t->q->rec[awaited]));
}

/* ---- arrows ---- */
/* An arrow's end belongs to the event that is open on its row at that time: a nanosecond inside. */
static void put_end(struct json *j, const struct mt_timeline *t, int64_t i, bool from, int64_t id)
{
    int64_t took = t->end[i] - t->begin[i];
    event(j, from ? "s" : "f", t->rank, t->q->rec[i].stream);
    put_time(j->f, "ts", from ? t->end[i] - (took > 0) : t->begin[i] + (took > 1));
    fprintf(j->f, ",\"id\":%" PRId64 ",\"name\":\"wait\",\"cat\":\"wait\"%s}", id,
            from ? "" : ",\"bp\":\"e\"");
}
/* From what was awaited to the operation behind the wait; to the wait itself if there is none. */
static void put_arrow(struct json *j, const struct mt_timeline *t, const struct mt_places *p, int64_t i,
                      int64_t awaited)
{
    const struct mt_rec *rec = t->q->rec;
    int64_t to = i, id = j->arrows++;
    while (to >= 0 && rec[to].op == MT_OP_wait)
        to = mt_places_find(p, (mt_event){rec[to].stream, rec[to].seq + 1});
    put_end(j, t, awaited, true, id);
    put_end(j, t, to < 0 ? i : to, false, id);
}

static void put_records(struct json *j, const struct mt_timeline *t, const struct mt_places *p)
{
    for (int64_t i = 0; i < t->q->n; i++) {
        const struct mt_rec *r = &t->q->rec[i];
        int64_t awaited = r->op == MT_OP_wait ? mt_places_find(p, r->ev) : -1;
        event(j, "X", t->rank, r->stream);
        put_time(j->f, "ts", t->begin[i]);
        put_time(j->f, "dur", t->end[i] - t->begin[i]);
        if (r->op != MT_OP_wait)
            put_op(j, t, i);
        else
            put_wait(j, t, i, awaited);
    }
    for (int64_t i = 0; i < t->q->n; i++) {
        if (t->q->rec[i].op != MT_OP_wait) continue;
        int64_t awaited = mt_places_find(p, t->q->rec[i].ev);
        if (awaited >= 0) put_arrow(j, t, p, i, awaited);
    }
}

/* ---- host code ---- */
static void put_host_span(struct json *j, int rank, int64_t begin, int64_t end, const char *name)
{
    event(j, "X", rank, MT_N_STREAMS);
    put_time(j->f, "ts", begin);
    put_time(j->f, "dur", end - begin);
    fprintf(j->f, ",\"name\":\"%s\",\"cat\":\"host\"}", name);
}
static void put_host(struct json *j, const struct mt_timeline *t)
{
    static const char *const read[MT_N_READ_KINDS] = {"counts", "norm", "loss", "state"};
    char name[64];
    for (int64_t i = 0; i < t->n_host; i++) {
        const struct mt_host_span *s = &t->host[i];
        put_host_span(j, t->rank, s->begin, s->end, "enqueues");
        if (s->left == MT_LEFT_END || i + 1 == t->n_host) continue;
        snprintf(name, sizeof name, "reads %s %d", read[s->kind], s->index);
        put_host_span(j, t->rank, s->end, s[1].begin, s->left == MT_LEFT_READ ? name : "queue full");
    }
}

mt_status mt_timeline_write(const struct mt_timeline *t, int n, const char *const *groups, const char *title,
                            FILE *f, mt_err *e)
{
    struct json j = {.f = f, .groups = groups};
    fprintf(f, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":\"");
    put_text(f, title);
    fprintf(f, "\"},\"traceEvents\":[");
    for (int i = 0; i < n; i++) {
        struct mt_places p;
        MT_TRY(mt_places_init(&p, t[i].q, e));
        put_rows(&j, &t[i]);
        put_records(&j, &t[i], &p);
        put_host(&j, &t[i]);
        mt_places_release(&p);
    }
    fprintf(f, "\n]}\n");
    return MT_OK;
}
