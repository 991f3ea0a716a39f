/* Between processes the carrier has it. A collective between ranks of one process, which may share a device: each member's host code arrives and parks; the last
 * one enqueues everybody's share. A member's stream waits until all members' streams have come to the collective, pulls its
 * pieces, and goes on when all have pulled: then its buffers are its own again. */
#include <string.h>

#include "device/group.h"
#include "device/traffic.h"
#include "device_core.h"

struct arrival {
    struct mt_cuda *cuda;
    struct mt_call *call;
    struct mt_collective what;
    int stream;
    struct mt_move *move; /* one a member */
    bool over;
    mt_err err; /* of the member that enqueued it */
};

static bool names_cut(int op)
{
    return op == MT_OP_gather_cut || op == MT_OP_gather_rest || op == MT_OP_scatter_cut ||
           op == MT_OP_collect_cut || op == MT_OP_spread_cut;
}

/* Binds what mt_moves_of wants: members, this one, the cut. */
static mt_status bind(const struct mt_ctx *ctx, const struct mt_group *g, int member, struct mt_call *c,
                      mt_err *e)
{
    c->dim['R' - 'A'] = g->n;
    c->dim['I' - 'A'] = member;
    if (!names_cut(c->op)) return MT_OK;
    const struct mt_cut *cut = &ctx->cut[c->scalar[1].i];
    MT_REQUIRE(cut->n == g->n, e, MT_INTERNAL, "%s: a cut for %lld members, in a group of %d",
               mt_op_info[c->op].name, (long long)cut->n, g->n);
    c->scalar[1].i = (int64_t)(intptr_t)cut;
    return MT_OK;
}

static mt_status agree(const struct mt_group *g, struct arrival *const *at, mt_err *e)
{
    for (int i = 1; i < g->n; i++) {
        if (mt_collective_same(&at[0]->what, &at[i]->what)) continue;
        char first[MT_COLLECTIVE_TEXT], other[MT_COLLECTIVE_TEXT];
        mt_collective_text(&at[0]->what, first);
        mt_collective_text(&at[i]->what, other);
        MT_FAIL(e, MT_RANKS, "rank %d is at %s, rank %d at %s", g->rank[0], first, g->rank[i], other);
    }
    return MT_OK;
}

/* Every member's stream waits for event `which` of all of them. */
static mt_status meet(const struct mt_group *g, struct arrival *const *at, int which, mt_err *e)
{
    for (int i = 0; i < g->n; i++) {
        struct mt_cuda *d = at[i]->cuda;
        cudaSetDevice(d->device);
        MT_CUDA_TRY(cudaEventRecord(d->meet[at[i]->stream][which], d->queue[at[i]->stream].lane.stream), e,
                    MT_DEVICE, "recording an event");
    }
    for (int i = 0; i < g->n; i++) {
        struct mt_cuda *d = at[i]->cuda;
        cudaSetDevice(d->device);
        for (int k = 0; k < g->n; k++)
            if (k != i)
                MT_CUDA_TRY(cudaStreamWaitEvent(d->queue[at[i]->stream].lane.stream,
                                                at[k]->cuda->meet[at[k]->stream][which], 0),
                            e, MT_DEVICE, "waiting for rank %d", g->rank[k]);
    }
    return MT_OK;
}

static struct mt_moved counted(const struct mt_ctx *ctx, const struct mt_call *c, int stream)
{
    const int group = (int)c->scalar[0].i;
    if (!ctx->traffic) return (struct mt_moved){.lane = NULL};
    return (struct mt_moved){.lane = mt_traffic_lane(ctx->traffic, group, stream, c->op),
                             .near = &ctx->traffic->near[group]};
}

/* Member `me` fetches its pieces from where the others' calls have them. */
static mt_status pull(const struct mt_group *g, struct arrival *const *at, int me, mt_err *e)
{
    const struct arrival *mine = at[me];
    struct mt_moved moved = counted(mine->cuda->ctx, mine->call, mine->stream);
    cudaSetDevice(mine->cuda->device);
    for (int p = 0; p < g->n; p++) {
        const struct mt_move *to = &mine->move[p], *from = &at[p]->move[me];
        MT_REQUIRE(to->in == from->out, e, MT_RANKS, "%s: rank %d sends %lld bytes and rank %d takes %lld",
                   mt_op_info[mine->call->op].name, g->rank[p], (long long)from->out, g->rank[me],
                   (long long)to->in);
        if (!to->in || to->dst == from->src) continue;
        MT_CUDA_TRY(cudaMemcpyAsync(to->dst, from->src, (size_t)to->in, cudaMemcpyDefault,
                                    mine->cuda->queue[mine->stream].lane.stream),
                    e, MT_DEVICE, "%s: %lld bytes from rank %d to rank %d", mt_op_info[mine->call->op].name,
                    (long long)to->in, g->rank[p], g->rank[me]);
        mt_moved_add(&moved, p, to->in);
    }
    mt_moved_end(&moved);
    return MT_OK;
}

static mt_status enqueue_all(const struct mt_group *g, struct arrival *const *at, mt_err *e)
{
    MT_TRY(agree(g, at, e));
    MT_TRY(meet(g, at, 0, e));
    for (int i = 0; i < g->n; i++) MT_TRY(pull(g, at, i, e));
    return meet(g, at, 1, e);
}

/* The meeting's table of members holds the arrivals. */
static void last_one(struct mt_group *g, struct mt_meeting *m)
{
    struct arrival *at[MT_CUDA_RANKS];
    mt_err err = {0};
    for (int i = 0; i < g->n; i++) at[i] = m->at[i].node;
    m->arrived = 0;
    enqueue_all(g, at, &err);
    for (int i = 0; i < g->n; i++) {
        at[i]->over = true;
        at[i]->err = err;
    }
}

/* The group's members are in other processes. */
static mt_status carried(struct mt_cuda *d, const struct mt_stream *s, struct mt_call *c, mt_err *e)
{
    const struct mt_group *g = s->ctx->group[c->scalar[0].i];
    const struct mt_carried x = {.group = (int)c->scalar[0].i,
                                 .stream = s->id,
                                 .n = g->n,
                                 .me = mt_group_member(g, s->ctx->rank),
                                 .move = g->move + (int64_t)s->id * g->n,
                                 .on = d->queue[s->id].lane.stream};
    struct mt_moved moved = counted(s->ctx, c, s->id);
    MT_TRY(bind(s->ctx, g, x.me, c, e));
    mt_moves_of(c, g->move + (int64_t)s->id * g->n);
    mt_status status = mt_carrier_nccl.start(d->carrier, &x, e);
    if (status) {
        char text[MT_COLLECTIVE_TEXT];
        mt_collective_text(mt_trace_last(&s->ctx->trace), text);
        mt_err_while(e, "%s", text);
        return status;
    }
    for (int p = 0; p < g->n; p++) mt_moved_add(&moved, p, x.move[p].in);
    mt_moved_end(&moved);
    return MT_OK;
}

mt_status mt_cuda_collective(struct mt_cuda *d, const struct mt_stream *s, struct mt_call *c, mt_err *e)
{
    struct mt_group *g = s->ctx->group[c->scalar[0].i];
    if (g && g->wire && d->carrier) return carried(d, s, c, e);
    struct mt_move move[MT_CUDA_RANKS];
    struct arrival mine = {
        .cuda = d, .call = c, .what = *mt_trace_last(&s->ctx->trace), .stream = s->id, .move = move};
    MT_REQUIRE(g && !g->wire && g->n <= MT_CUDA_RANKS, e, MT_DEVICE,
               "%s: a group of %d ranks; the cuda device has groups of at most %d ranks of one process",
               mt_op_info[c->op].name, g ? g->n : 0, MT_CUDA_RANKS);
    const int member = mt_group_member(g, s->ctx->rank);
    MT_TRY(bind(s->ctx, g, member, c, e));
    mt_moves_of(c, move);
    struct mt_meeting *m = &g->meet[s->id];
    m->at[member] = (struct mt_member){d, &mine};
    if (++m->arrived == g->n) last_one(g, m);
    mt_cuda_progress(d);
    while (!mine.over)
        MT_REQUIRE(mt_cuda_park(d), e, MT_HANG, "%s on group %lld has %d of its %d members",
                   mt_op_info[c->op].name, (long long)c->scalar[0].i, m->arrived, g->n);
    MT_REQUIRE(!mine.err.code, e, mine.err.code, "%s", mine.err.msg);
    return MT_OK;
}
