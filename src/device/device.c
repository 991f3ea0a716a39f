#include "device/device.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/record.h"
#include "device/traffic.h"

void mt_ctx_init(struct mt_ctx *c, int rank, int world, const struct mt_device_ops *dev,
                 const struct mt_ledger *g)
{
    *c = (struct mt_ctx){
        .rank = rank, .world = world, .dev = dev, .ledger = g, .scratch = MT_NONE, .skip_wait = -1};
    for (int s = 0; s < MT_N_STREAMS; s++) c->stream[s] = (struct mt_stream){.ctx = c, .id = s};
}

void mt_streams_restart(struct mt_ctx *c)
{
    for (int s = 0; s < MT_N_STREAMS; s++) {
        c->stream[s].seq = 0;
        memset(c->stream[s].known, 0, sizeof c->stream[s].known);
    }
    c->n_waits = 0;
    c->round = 0;
    mt_trace_restart(&c->trace);
    if (c->traffic) mt_traffic_restart(c->traffic);
}

void mt_streams_meet(struct mt_ctx *c)
{
    mt_event last[MT_N_STREAMS];
    for (int s = 0; s < MT_N_STREAMS; s++) last[s] = mt_event_record(&c->stream[s]);
    for (int s = 0; s < MT_N_STREAMS; s++)
        for (int k = 0; k < MT_N_STREAMS; k++) mt_stream_wait(&c->stream[s], last[k]);
}

const char *mt_stream_name(int stream)
{
    static const char *const name[MT_N_STREAMS] = {"compute", "gather", "reduce", "d2h", "h2d", "host"};
    return name[stream];
}

void *mt_address(const struct mt_ctx *c, mt_view v)
{
    if (!mt_view_given(v)) return NULL;
    const struct mt_row *r = &c->ledger->row[v.row];
    return c->arena[r->arena] + r->off + v.off;
}

mt_status mt_copy_now(const struct mt_ctx *c, void *to, const void *from, int64_t bytes, mt_err *e)
{
    if (c && c->dev->copy) return c->dev->copy(c, to, from, bytes, e);
    if (bytes) memcpy(to, from, (size_t)bytes);
    return MT_OK;
}

/* A call that does not fit is a bug of the schedule: no rank can go on, so the program ends here. */
static void __attribute__((noreturn, cold)) call_refused(const struct mt_stream *s, const char *why)
{
    fprintf(stderr, "moetitan: internal error: rank %d, stream %d, operation %lld: %s\n", s->ctx->rank, s->id,
            (long long)s->seq + 1, why);
    fflush(stderr);
    exit(MT_INTERNAL);
}

static void check_bounds(const struct mt_stream *s, enum mt_op op, const mt_view *v)
{
    const struct mt_op_info *f = &mt_op_info[op];
    const struct mt_ledger *g = s->ctx->ledger;
    for (int i = 0; i < f->n_args; i++) {
        if (!mt_view_given(v[i])) continue;
        bool known = v[i].row < g->n;
        if (known && v[i].off >= 0 && v[i].bytes >= 0 && v[i].off + v[i].bytes <= g->row[v[i].row].bytes)
            continue;
        char msg[256];
        snprintf(msg, sizeof msg, "%s: argument %s is bytes [%lld, %lld) of row %d, %s, of %lld bytes",
                 f->name, f->arg[i].name, (long long)v[i].off, (long long)(v[i].off + v[i].bytes), v[i].row,
                 known ? g->row[v[i].row].name : "not in the ledger",
                 known ? (long long)g->row[v[i].row].bytes : 0LL);
        call_refused(s, msg);
    }
}

/* The arena that an argument must lie in. */
static enum mt_arena arena_of(const struct mt_stream *s, enum mt_op op, int arg)
{
    switch (op) {
    case MT_OP_copy_h2d: return arg == 0 ? MT_DEVICE_ARENA : MT_HOST_ARENA;
    case MT_OP_copy_d2h: return arg == 0 ? MT_HOST_ARENA : MT_DEVICE_ARENA;
    default: return s->id == MT_HOST ? MT_HOST_ARENA : MT_DEVICE_ARENA;
    }
}

static void check_arenas(const struct mt_stream *s, enum mt_op op, const mt_view *v)
{
    static const char *const name[MT_N_ARENAS] = {"device", "host"};
    const struct mt_op_info *f = &mt_op_info[op];
    const struct mt_ledger *g = s->ctx->ledger;
    if (op == MT_OP_fresh || op == MT_OP_keep) return;
    for (int i = 0; i < f->n_args; i++) {
        enum mt_arena want = arena_of(s, op, i);
        if (!mt_view_given(v[i]) || g->row[v[i].row].arena == want) continue;
        char msg[256];
        snprintf(msg, sizeof msg,
                 "%s: argument %s is row %s of the %s arena; on the stream `%s` it must be in the %s arena",
                 f->name, f->arg[i].name, g->row[v[i].row].name, name[g->row[v[i].row].arena],
                 mt_stream_name(s->id), name[want]);
        call_refused(s, msg);
    }
}

static void note_collective(const struct mt_stream *s, const struct mt_call *c, const mt_view *v)
{
    struct mt_ctx *ctx = s->ctx;
    mt_trace_add(&ctx->trace, s->id, c, v, ctx->cut);
    if (ctx->traffic) mt_traffic_add(ctx->traffic, s->id, c, ctx->cut);
}

/* A call of the library's: in its place the compiler would put one instruction that takes several times as long. */
static void __attribute__((noipa)) clear(void *p, size_t bytes)
{
    memset(p, 0, bytes);
}

void mt_enqueue(struct mt_stream *s, enum mt_op op, const mt_view *v, const union mt_scalar *scalars)
{
    struct mt_ctx *ctx = s->ctx;
    struct mt_call c;
    char msg[256];
    clear(&c, offsetof(struct mt_call, scalar));
    const char *why = mt_op_bind(op, v, &c, msg);
    if (why) call_refused(s, why);
    check_bounds(s, op, v);
    check_arenas(s, op, v);
    memcpy(c.scalar, scalars, sizeof c.scalar);
    s->seq++;
    if (ctx->recording) mt_record_op(ctx->recording, s, &c, v, ctx->ledger);
    if (mt_op_info[op].kind == MT_COMM) note_collective(s, &c, v);
    ctx->dev->enqueue(s, &c, v);
}

static void wait_for(struct mt_stream *s, mt_event ev, bool throttle)
{
    struct mt_ctx *ctx = s->ctx;
    if (ev.stream == s->id || ev.seq <= s->known[ev.stream]) return;
    s->known[ev.stream] = ev.seq;
    if (ctx->n_waits++ == ctx->skip_wait) return;
    s->seq++;
    if (ctx->recording) mt_record_wait(ctx->recording, s, ev, throttle);
    ctx->dev->wait(s, ev);
}

void mt_stream_wait(struct mt_stream *s, mt_event ev)
{
    wait_for(s, ev, false);
}
void mt_stream_throttle(struct mt_stream *s, mt_event ev)
{
    if (!s->ctx->no_throttles) wait_for(s, ev, true);
}

void mt_host_read(struct mt_stream *s, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    mt_read_back(s, src, kind, index);
    s->ctx->dev->host_read(s, kind, index, src, dst);
}

void mt_exchange_units(struct mt_stream *s, bool home, mt_view recv, mt_view send, int64_t comm, int64_t unit,
                       const struct mt_exchange_peer *peer, int n)
{
    union mt_scalar scalars[MT_MAX_SCALARS] = {{.i = comm}, {.i = unit}};
    MT_ASSERT(n <= MT_MAX_EP);
    memcpy(&scalars[2], peer, (size_t)n * sizeof *peer);
    mt_enqueue(s, home ? MT_OP_exchange_home : MT_OP_exchange, (mt_view[]){recv, send}, scalars);
}
