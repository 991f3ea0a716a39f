#include "device/trace.h"

#include <string.h>

#include "base/hash.h"
#include "device/device.h"

_Static_assert((int)MT_TRACE_GROUPS == (int)MT_MAX_GROUPS && (int)MT_TRACE_STREAMS == (int)MT_N_STREAMS,
               "a count for every group and stream");

static uint8_t dtype_of(const mt_view *v)
{
    for (int i = 0; i < 2; i++)
        if (v[i].bytes > 0) return v[i].dtype;
    return MT_NO_DTYPE;
}

/* What is cut, and how. A cut's table was hashed when it was made. */
static void describe(struct mt_collective *what, const struct mt_call *c, const struct mt_cut *cuts)
{
    const union mt_scalar *s = c->scalar;
    switch (c->op) {
    case MT_OP_gather:
    case MT_OP_scatter:
        what->bytes = s[1].i * s[2].i;
        what->pieces = mt_hash_ints(0, (int64_t[]){s[1].i, s[2].i}, 2);
        return;
    case MT_OP_exchange:
    case MT_OP_exchange_home: what->bytes = s[1].i; return; /* each member has its own pieces */
    case MT_OP_collect_cut:
    case MT_OP_spread_cut: what->pieces = mt_hash_mix(1, (uint64_t)s[2].i); break;
    default: break;
    }
    if (!cuts) return; /* a recording */
    const struct mt_cut *cut = &cuts[s[1].i];
    what->bytes = cut->at[cut->n] - cut->at[0];
    what->pieces = mt_hash_mix(what->pieces, cut->hash);
}

void mt_trace_add(struct mt_trace *t, int stream, const struct mt_call *c, const mt_view *v,
                  const struct mt_cut *cuts)
{
    struct mt_collective *what = &t->last[t->n++ % MT_TRACE_LAST];
    int64_t group = c->scalar[0].i;
    MT_ASSERT(group >= 0 && group < MT_TRACE_GROUPS);
    *what = (struct mt_collective){.seq = ++t->seq[group][stream],
                                   .op = c->op,
                                   .group = (uint8_t)group,
                                   .stream = (uint8_t)stream,
                                   .dtype = dtype_of(v)};
    describe(what, c, cuts);
    if (!t->log) return;
    char text[MT_COLLECTIVE_TEXT];
    mt_collective_text(what, text);
    fprintf(t->log, "%s\n", text);
}

void mt_trace_restart(struct mt_trace *t)
{
    memset(t->seq, 0, sizeof t->seq);
}

void mt_trace_dump(const struct mt_trace *t, FILE *out)
{
    char text[MT_COLLECTIVE_TEXT];
    for (int64_t i = t->n > MT_TRACE_LAST ? t->n - MT_TRACE_LAST : 0; i < t->n; i++) {
        mt_collective_text(&t->last[i % MT_TRACE_LAST], text);
        fprintf(out, "%s\n", text);
    }
}

bool mt_collective_same(const struct mt_collective *a, const struct mt_collective *b)
{
    bool types = a->dtype == b->dtype || a->dtype == MT_NO_DTYPE || b->dtype == MT_NO_DTYPE;
    return types && a->seq == b->seq && a->op == b->op && a->group == b->group && a->stream == b->stream &&
           a->bytes == b->bytes && a->pieces == b->pieces;
}

void mt_collective_text(const struct mt_collective *c, char out[MT_COLLECTIVE_TEXT])
{
    bool exchange = c->op == MT_OP_exchange || c->op == MT_OP_exchange_home;
    int n = snprintf(out, MT_COLLECTIVE_TEXT,
                     "%s on group %d, stream %s, number %lld: ", mt_op_info[c->op].name, c->group,
                     mt_stream_name(c->stream), (long long)c->seq);
    n += snprintf(out + n, (size_t)(MT_COLLECTIVE_TEXT - n),
                  exchange ? "units of %lld bytes of %s" : "%lld bytes of %s", (long long)c->bytes,
                  c->dtype == MT_NO_DTYPE ? "any type" : mt_dtype_name((mt_dtype)c->dtype));
    if (!exchange)
        snprintf(out + n, (size_t)(MT_COLLECTIVE_TEXT - n), " in pieces %08x", (unsigned)(c->pieces >> 32));
}
