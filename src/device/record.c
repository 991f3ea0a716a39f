#include "device/record.h"

#include <stdlib.h>
#include <string.h>

void mt_recording_release(struct mt_recording *q)
{
    free(q->rec);
    free(q->arg);
    *q = (struct mt_recording){0};
}

bool mt_recording_reserve(struct mt_recording *q, int64_t records, int64_t args)
{
    *q = (struct mt_recording){.cap = records, .cap_args = args, .fixed = true};
    q->rec = calloc((size_t)records, sizeof *q->rec);
    q->arg = calloc((size_t)args, sizeof *q->arg);
    return q->rec && q->arg;
}

/* NULL: it is fixed, and full. */
static struct mt_rec *rec_new(struct mt_recording *q, const struct mt_stream *s, int n_args)
{
    if (q->fixed && (q->lost || q->n == q->cap || q->n_args + n_args > q->cap_args)) {
        q->lost++;
        return NULL;
    }
    if (q->n == q->cap) {
        q->cap = q->cap ? 2 * q->cap : 1024;
        q->rec = realloc(q->rec, (size_t)q->cap * sizeof *q->rec);
        MT_ASSERT(q->rec);
    }
    if (q->n_args + n_args > q->cap_args) {
        q->cap_args = q->cap_args ? 2 * q->cap_args : 4096;
        q->arg = realloc(q->arg, (size_t)q->cap_args * sizeof *q->arg);
        MT_ASSERT(q->arg);
    }
    struct mt_rec *r = &q->rec[q->n++];
    *r = (struct mt_rec){
        .stream = (uint8_t)s->id, .arg = (uint32_t)q->n_args, .round = s->ctx->round, .seq = s->seq};
    return r;
}

void mt_record_op(struct mt_recording *q, const struct mt_stream *s, const struct mt_call *c,
                  const mt_view *v, const struct mt_ledger *g)
{
    const struct mt_op_info *f = &mt_op_info[c->op];
    struct mt_rec *r = rec_new(q, s, f->n_args);
    if (!r) return;
    r->op = c->op;
    r->dtype = c->dtype;
    memcpy(r->dim, c->dim, sizeof r->dim);
    memcpy(r->scalar, c->scalar, sizeof r->scalar);
    for (int i = 0; i < f->n_args; i++) {
        if (!mt_view_given(v[i])) continue;
        q->arg[q->n_args++] = (struct mt_rec_arg){.row = v[i].row,
                                                  .dir = f->arg[i].dir,
                                                  .whole = v[i].bytes == g->row[v[i].row].bytes,
                                                  .place = (uint8_t)i,
                                                  .off = v[i].off,
                                                  .bytes = v[i].bytes};
        r->n_args++;
    }
}

void mt_record_wait(struct mt_recording *q, const struct mt_stream *s, mt_event ev, bool throttle)
{
    struct mt_rec *r = rec_new(q, s, 0);
    if (!r) return;
    r->op = MT_OP_wait;
    r->ev = ev;
    r->throttle = throttle;
}

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}
uint64_t mt_recording_hash(const struct mt_recording *q)
{
    uint64_t h = 1;
    for (int64_t i = 0; i < q->n; i++) {
        const struct mt_rec *r = &q->rec[i];
        h = mix(h, (uint64_t)r->op << 40 | (uint64_t)r->stream << 32 | (uint64_t)r->dtype << 24 | r->n_args);
        h = mix(h, (uint64_t)r->seq);
        if (r->op == MT_OP_wait) {
            h = mix(mix(h, (uint64_t)r->ev.stream), (uint64_t)r->ev.seq);
            continue;
        }
        for (int k = 0; k < MT_LETTERS; k++) h = mix(h, (uint64_t)r->dim[k]);
        for (int k = 0; k < r->n_args; k++) {
            const struct mt_rec_arg *a = &q->arg[r->arg + (uint32_t)k];
            h = mix(mix(mix(h, (uint64_t)a->row << 8 | a->dir), (uint64_t)a->off), (uint64_t)a->bytes);
        }
    }
    return h;
}
