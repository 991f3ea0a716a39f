#include "device/timeline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t mt_timeline_length(const struct mt_timeline *t)
{
    int64_t last = t->length;
    for (int64_t i = 0; i < t->q->n && !t->length; i++)
        if (t->end[i] > last) last = t->end[i];
    return last;
}

/* ---- measuring ---- */
/* Host code leaves off at a read, or when its queue is full, which many operations later it is again. */
enum { HOST_EACH = 4, HOST_LEAST = 256 };

mt_status mt_times_open(struct mt_times *t, int64_t records, int64_t args, mt_err *e)
{
    size_t n = (size_t)records;
    *t = (struct mt_times){.cap_host = records / HOST_EACH + HOST_LEAST};
    t->begin = calloc(n, sizeof *t->begin);
    t->end = calloc(n, sizeof *t->end);
    t->ready = calloc(n, sizeof *t->ready);
    t->host = calloc((size_t)t->cap_host, sizeof *t->host);
    bool recorded = mt_recording_reserve(&t->q, records, args);
    MT_REQUIRE(t->begin && t->end && t->ready && t->host && recorded, e, MT_IO,
               "no memory for a trace of %lld operations", (long long)records);
    mt_times_clear(t);
    return MT_OK;
}

void mt_times_close(struct mt_times *t)
{
    mt_recording_release(&t->q);
    free(t->begin);
    free(t->end);
    free(t->ready);
    free(t->host);
    *t = (struct mt_times){0};
}

/* All of it is written, so that no page comes into being in a step. */
void mt_times_clear(struct mt_times *t)
{
    size_t bytes = (size_t)t->q.cap * sizeof *t->begin;
    memset(t->begin, 0, bytes);
    memset(t->end, 0, bytes);
    memset(t->ready, 0, bytes);
    memset(t->q.rec, 0, (size_t)t->q.cap * sizeof *t->q.rec);
    memset(t->q.arg, 0, (size_t)t->q.cap_args * sizeof *t->q.arg);
    memset(t->host, 0, (size_t)t->cap_host * sizeof *t->host);
    t->q.n = t->q.n_args = t->q.lost = 0;
    t->n_host = t->host_lost = 0;
}

void mt_times_begin(struct mt_times *t, struct mt_ctx *c, int64_t origin)
{
    if (t->q.n || t->n_host) mt_times_clear(t);
    t->origin = origin;
    c->recording = &t->q;
    c->times = t;
}

void mt_times_end(struct mt_times *t, struct mt_ctx *c, int64_t now)
{
    c->recording = NULL;
    c->times = NULL;
    t->length = now - t->origin;
    for (int64_t i = 0; i < t->q.n; i++) {
        if (!t->end[i]) t->end[i] = t->begin[i] = now; /* never ran: the step failed */
        if (!t->begin[i]) t->begin[i] = t->end[i];
        if (!t->ready[i]) t->ready[i] = t->begin[i];
        t->begin[i] -= t->origin;
        t->end[i] -= t->origin;
        t->ready[i] -= t->origin;
    }
    for (int64_t i = 0; i < t->n_host; i++) {
        t->host[i].begin -= t->origin;
        t->host[i].end -= t->origin;
    }
}

void mt_times_host_left(struct mt_times *t, enum mt_host_left why, enum mt_read_kind kind, int64_t index)
{
    if (t->n_host == t->cap_host) {
        t->host_lost++;
        return;
    }
    t->host[t->n_host++] = (struct mt_host_span){.begin = t->host_since,
                                                 .end = mt_now_ns(),
                                                 .left = (uint8_t)why,
                                                 .kind = (uint8_t)kind,
                                                 .index = (int32_t)index};
}

struct mt_timeline mt_times_timeline(const struct mt_times *t, int rank, const struct mt_ledger *ledger)
{
    return (struct mt_timeline){.rank = rank,
                                .q = &t->q,
                                .ledger = ledger,
                                .begin = t->begin,
                                .end = t->end,
                                .ready = t->ready,
                                .host = t->host,
                                .n_host = t->n_host,
                                .length = t->length};
}

/* ---- places ---- */
mt_status mt_places_init(struct mt_places *p, const struct mt_recording *q, mt_err *e)
{
    *p = (struct mt_places){0};
    size_t total = 0;
    for (int64_t i = 0; i < q->n; i++)
        if (q->rec[i].seq > p->n[q->rec[i].stream]) p->n[q->rec[i].stream] = q->rec[i].seq;
    for (int s = 0; s < MT_N_STREAMS; s++) total += (size_t)p->n[s];
    int64_t *at = malloc((total + 1) * sizeof *at);
    MT_REQUIRE(at, e, MT_IO, "no memory to look at %lld operations", (long long)q->n);
    for (size_t i = 0; i < total; i++) at[i] = -1;
    for (int s = 0; s < MT_N_STREAMS; at += p->n[s++]) p->of[s] = at;
    for (int64_t i = 0; i < q->n; i++) p->of[q->rec[i].stream][q->rec[i].seq - 1] = i;
    return MT_OK;
}

void mt_places_release(struct mt_places *p)
{
    free(p->of[0]);
    *p = (struct mt_places){0};
}

/* ---- costs ---- */
static void bytes_of(const struct mt_recording *q, const struct mt_rec *r, int64_t b[MT_MAX_ARGS])
{
    memset(b, 0, MT_MAX_ARGS * sizeof *b);
    for (int k = 0; k < r->n_args; k++) {
        const struct mt_rec_arg *a = &q->arg[r->arg + (uint32_t)k];
        b[a->place] = a->bytes;
    }
}

double mt_record_flops(const struct mt_recording *q, int64_t i)
{
    const struct mt_rec *r = &q->rec[i];
    int64_t b[MT_MAX_ARGS];
    if (r->op >= MT_N_OPS) return 0;
    bytes_of(q, r, b);
    return mt_op_info[r->op].flops(r->dim, b, r->scalar);
}

double mt_record_bytes(const struct mt_recording *q, int64_t i)
{
    const struct mt_rec *r = &q->rec[i];
    int64_t b[MT_MAX_ARGS];
    if (r->op >= MT_N_OPS) return 0;
    if (r->op == MT_OP_exchange || r->op == MT_OP_exchange_home) {
        const struct mt_exchange_peer *peer = (const struct mt_exchange_peer *)(const void *)&r->scalar[2];
        int64_t units = 0, sent = 0;
        for (int p = 0; p < MT_MAX_EP; p++) units += peer[p].recv_n, sent += peer[p].send_n;
        if (units + sent > 0) return (double)units * (double)r->scalar[1].i;
    }
    bytes_of(q, r, b);
    return mt_op_info[r->op].bytes(r->dim, b, r->scalar);
}
