/* cpu.c: the device's functions: they write nodes into the rank's ring. */
#include <string.h>

#include "device/cpu/exec_times.h"
#include "device/cpu/exec_watch.h"

/* Positions count on over restarts in the executor: a stream whose count begins again was restarted. Events
 * are of the present count, and a stream that has one has been seen since its restart. */
static int64_t position(struct mt_exec_rank *r, const struct mt_stream *s)
{
    if (s->seq <= r->last[s->id]) r->base[s->id] += r->last[s->id];
    r->last[s->id] = s->seq;
    return r->base[s->id] + s->seq;
}

static bool names_cut(int op)
{
    return op == MT_OP_gather_cut || op == MT_OP_gather_rest || op == MT_OP_scatter_cut ||
           op == MT_OP_collect_cut || op == MT_OP_spread_cut;
}

/* A collective inside this process reads its sources through the table of all members' sources, which fills
 * as they arrive. */
static void join_group(struct mt_node *n, struct mt_stream *s)
{
    struct mt_group *g = s->ctx->group[n->call.scalar[0].i];
    MT_ASSERT(g);
    n->members = g->n;
    n->member = mt_group_member(g, s->ctx->rank);
    MT_ASSERT(n->member >= 0);
    if (g->wire) {
        n->wire = g->wire;
        n->move = g->move + s->id * g->n;
        if (((struct mt_exec_rank *)s->ctx->exec)->exec->o.compare)
            n->greeting = g->greeting + 2 * s->id * g->n;
    } else {
        n->meet = &g->meet[s->id];
        n->src = n->call.arg[1];
        n->call.arg[1] = n->meet->src;
    }
    n->what = *mt_trace_last(&s->ctx->trace);
    if (s->ctx->traffic) {
        n->call.arg[MT_ARG_LANE] =
            mt_traffic_lane(s->ctx->traffic, (int)n->call.scalar[0].i, s->id, n->call.op);
        n->call.arg[MT_ARG_NEAR] = &s->ctx->traffic->near[n->call.scalar[0].i];
    }
    n->call.dim['R' - 'A'] = n->members;
    n->call.dim['I' - 'A'] = n->member;
    if (names_cut(n->call.op)) {
        const struct mt_cut *cut = &s->ctx->cut[n->call.scalar[1].i];
        MT_ASSERT(cut->n == n->members);
        n->call.scalar[1].i = (int64_t)(intptr_t)cut; /* the kernel's, which knows no rank */
    }
}

static void cpu_enqueue(struct mt_stream *s, struct mt_call *c, const mt_view *v)
{
    struct mt_exec_rank *r = s->ctx->exec;
    const struct mt_op_info *f = &mt_op_info[c->op];
    struct mt_node *n = mt_host_node(r);
    for (int i = 0; i < f->n_args; i++) c->arg[i] = mt_address(s->ctx, v[i]);
    n->call = *c;
    n->stream = (uint8_t)s->id;
    n->seq = position(r, s);
    if (f->kind == MT_COMM) join_group(n, s);
    if (!MT_WATCH && !r->exec->o.poison)
        n->parts = n->left = mt_cpu_parts(&n->call, mt_exec_workers(r->exec));
    mt_host_push(r, n);
}

static void cpu_wait(struct mt_stream *s, mt_event ev)
{
    struct mt_exec_rank *r = s->ctx->exec;
    struct mt_node *n = mt_host_node(r);
    n->wait = true;
    n->stream = (uint8_t)s->id;
    n->seq = position(r, s);
    n->ev = (mt_event){ev.stream, r->base[ev.stream] + ev.seq};
    mt_host_push(r, n);
}

/* The read_back in front of this is a place in the stream; when it is reached, the copy happens here, in host
 * code. */
static void cpu_host_read(struct mt_stream *s, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    struct mt_exec_rank *r = s->ctx->exec;
    if (s->ctx->tape[kind]) {
        memcpy(dst, s->ctx->tape[kind] + index * src.bytes, (size_t)src.bytes);
        return;
    }
    mt_time_host_reads(r, kind, index);
    r->want = (mt_event){s->id, r->base[s->id] + s->seq};
    mt_host_park(r, MT_HOST_READ);
    mt_watch_host_read(r, r->want);
    memcpy(dst, mt_address(s->ctx, src), (size_t)src.bytes);
}
const struct mt_device_ops mt_device_cpu = {"cpu", cpu_enqueue, cpu_wait, cpu_host_read, NULL};
