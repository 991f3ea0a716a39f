/* simclock_record.c: programs: what a rank enqueues, reduced to what its time depends on. */
#include <stdlib.h>
#include <string.h>

#include "device/group.h"
#include "device/simclock_core.h"

/* ---- groups ---- */
static int32_t *members_of(const struct mt_simclock *k, int rank, int group, int *n)
{
    int32_t g = k->group_of[rank * k->o.n_groups + group];
    *n = k->n_members[g];
    return k->member + k->first_member[g];
}

static bool room_for_group(struct mt_simclock *k)
{
    if (k->n_all == k->cap_all) {
        k->cap_all = k->cap_all ? 2 * k->cap_all : 64;
        k->first_member = realloc(k->first_member, (size_t)k->cap_all * sizeof *k->first_member);
        k->n_members = realloc(k->n_members, (size_t)k->cap_all * sizeof *k->n_members);
    }
    return k->first_member && k->n_members;
}

/* Members beyond the rank's group of nodes, of those beyond its node. */
static double away(const struct mt_simclock *k, const int *ranks, int n, int rank)
{
    struct mt_near node = mt_near_of(ranks, n, rank, k->o.ranks_per_node),
                   group = mt_near_of(ranks, n, rank, k->o.ranks_per_node * k->o.nodes_per_group);
    int others = n - (node.hi - node.lo);
    return others ? (double)(n - (group.hi - group.lo)) / others : 0;
}

/* The group that a rank is in, for all of its members. */
static mt_status add_group(struct mt_simclock *k, int rank, int id, mt_err *e)
{
    int n = k->o.members(k->o.mesh, id, rank, k->scratch);
    MT_REQUIRE(room_for_group(k), e, MT_IO, "no memory for the groups of %d ranks", k->o.world);
    for (int i = 0; i < n; i++) {
        k->member[k->n_member + i] = k->scratch[i];
        k->group_of[k->scratch[i] * k->o.n_groups + id] = k->n_all;
        k->away[k->scratch[i] * k->o.n_groups + id] = (float)away(k, k->scratch, n, k->scratch[i]);
    }
    k->first_member[k->n_all] = (int32_t)k->n_member;
    k->n_members[k->n_all++] = n;
    k->n_member += n;
    return MT_OK;
}

mt_status mt_simclock_open(struct mt_simclock **clock, const struct mt_simclock_options *o, mt_err *e)
{
    struct mt_simclock *k = calloc(1, sizeof *k);
    size_t world = (size_t)o->world, groups = (size_t)o->n_groups;
    *clock = k;
    MT_ASSERT(o->n_groups <= MT_MAX_GROUPS && o->world > 0);
    MT_REQUIRE(k, e, MT_IO, "no memory for the clock of %d ranks", o->world);
    k->o = *o;
    k->works.size = sizeof(struct mt_work);
    k->transfers.size = sizeof(struct mt_transfer);
    k->programs.size = sizeof(struct mt_program);
    k->program_of = malloc(world * sizeof *k->program_of);
    k->group_of = malloc(world * groups * sizeof *k->group_of);
    k->away = malloc(world * groups * sizeof *k->away);
    k->member = malloc(world * groups * sizeof *k->member);
    k->scratch = malloc(world * sizeof *k->scratch);
    MT_REQUIRE(k->program_of && k->group_of && k->away && k->member && k->scratch, e, MT_IO,
               "no memory for the clock of %d ranks", o->world);
    for (size_t i = 0; i < world; i++) k->program_of[i] = -1;
    for (size_t i = 0; i < world * groups; i++) k->group_of[i] = -1;
    for (int id = 0; id < o->n_groups; id++)
        for (int r = 0; r < o->world; r++)
            if (k->group_of[r * o->n_groups + id] < 0) MT_TRY(add_group(k, r, id, e));
    return MT_OK;
}

void mt_simclock_close(struct mt_simclock *k)
{
    if (!k) return;
    mt_tape_release(&k->now);
    mt_intern_release(&k->works);
    mt_intern_release(&k->transfers);
    mt_intern_release(&k->programs);
    mt_blobs_release(&k->blobs);
    free(k->program_of);
    free(k->group_of);
    free(k->away);
    free(k->first_member);
    free(k->n_members);
    free(k->member);
    free(k->scratch);
    free(k);
}

/* ---- recording ---- */
/* An operation's place on the tape. */
struct place {
    struct mt_simclock_op *op;
    int32_t *what;
};
static void tape_room(struct mt_tape *t, int s)
{
    int32_t cap = t->cap[s];
    t->op[s] = mt_simclock_grown(t->op[s], t->n[s], &t->cap[s], sizeof *t->op[s]);
    t->what[s] = mt_simclock_grown(t->what[s], t->n[s], &cap, sizeof *t->what[s]);
}
static struct place op_new(struct mt_tape *t, const struct mt_stream *s)
{
    int i = s->id, n = t->n[i];
    MT_ASSERT(s->seq == n + 1); /* so that an event's position is an index here */
    if (n == t->cap[i]) tape_room(t, i);
    t->n[i]++;
    t->op[i][n] = (struct mt_simclock_op){.segment = t->n_segments - 1,
                                          .nth = ++t->total - t->first[t->n_segments - 1]};
    t->what[i][n] = 0;
    return (struct place){&t->op[i][n], &t->what[i][n]};
}
static void segment_new(struct mt_tape *t)
{
    t->first = mt_simclock_grown(t->first, t->n_segments, &t->cap_segments, sizeof *t->first);
    t->first[t->n_segments++] = t->total;
}
/* Its room stays: the next rank's step is about as long. */
static void tape_restart(struct mt_tape *t)
{
    memset(t->n, 0, sizeof t->n);
    t->n_segments = t->n_slots = t->total = 0;
    segment_new(t);
}

void mt_simclock_begin(struct mt_simclock *k, struct mt_ctx *ctx)
{
    int r = ctx->rank, rpn = k->o.ranks_per_node, n;
    tape_restart(&k->now);
    memset(&k->traffic, 0, sizeof k->traffic);
    memset(&k->seen, 0, sizeof k->seen);
    for (int id = 0; id < k->o.n_groups; id++) {
        int32_t *m = members_of(k, r, id, &n);
        k->traffic.near[id] = mt_near_of(m, n, r, rpn);
    }
    ctx->traffic = &k->traffic;
    ctx->exec = k;
}

enum mt_stand mt_stand_of_move(int op)
{
    switch (op) {
    case MT_OP_exchange:
    case MT_OP_exchange_home: return MT_STAND_DISPATCH;
    case MT_OP_collect_cut:
    case MT_OP_spread_cut: return MT_STAND_OWNERS;
    case MT_OP_gather_cut:
    case MT_OP_gather_rest: return MT_STAND_WEIGHTS;
    case MT_OP_scatter:
    case MT_OP_scatter_cut: return MT_STAND_GRADIENTS;
    default: return MT_STAND_SMALL;
    }
}

/* What this call added to the byte ledger. */
static int64_t moved(struct mt_simclock *k, int group, int stream, int op, enum mt_link link)
{
    const struct mt_flow *f = &mt_traffic_lane(&k->traffic, group, stream, op)->flow[link];
    struct mt_flow *seen = &mt_traffic_lane(&k->seen, group, stream, op)->flow[link];
    int64_t sent = f->sent - seen->sent, received = f->received - seen->received;
    *seen = *f;
    return sent > received ? sent : received;
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Members that a call has something to send to or to receive from, and the most that goes between two of a node. */
static void peers(struct mt_transfer *t, const struct mt_call *c, const struct mt_near *near,
                  const struct mt_cut *cuts)
{
    bool rooted = c->op == MT_OP_collect_cut || c->op == MT_OP_spread_cut;
    t->messages = near->n - 1;
    if (rooted && c->scalar[2].i != near->me) {
        t->messages = t->node_bytes + t->net_bytes > 0;
    } else if (rooted) {
        const struct mt_cut *cut = &cuts[c->scalar[1].i];
        t->messages = 0;
        for (int64_t i = 0; i < cut->n; i++) t->messages += i != near->me && cut->at[i + 1] > cut->at[i];
    }
    if (c->op != MT_OP_exchange && c->op != MT_OP_exchange_home) return;
    const struct mt_exchange_peer *p = mt_exchange_peers(c);
    for (int i = near->lo; i < near->hi; i++)
        if (i != near->me)
            t->pair_bytes = largest(t->pair_bytes, c->scalar[1].i * largest(p[i].send_n, p[i].recv_n));
}

static void record_move(struct mt_simclock *k, struct place at, const struct mt_stream *s,
                        const struct mt_call *c)
{
    int g = (int)c->scalar[0].i;
    const struct mt_near *near = &k->traffic.near[g];
    struct mt_transfer t = {
        .op = c->op, .group = (uint8_t)g, .members = near->n, .near = near->hi - near->lo};
    t.node_bytes = moved(k, g, s->id, c->op, MT_LINK_NODE);
    t.net_bytes = moved(k, g, s->id, c->op, MT_LINK_NET);
    peers(&t, c, near, s->ctx->cut);
    at.op->kind = MT_SIM_MOVE;
    at.op->cause = (uint8_t)mt_stand_of_move(c->op);
    *at.what = mt_intern_add(&k->transfers, &t);
}

/* Attention's micro-batch is the part of the batch that it reads. */
static int32_t micro_batch(const struct mt_call *c, const mt_view *v)
{
    const struct mt_op_info *f = &mt_op_info[c->op];
    for (int i = 0; i < f->n_args; i++)
        if (!strcmp(f->arg[i].name, "begin")) return (int32_t)(v[i].off / v[i].bytes);
    return 0;
}

/* Where an operation's first argument lies. Copies have their own rates. */
static bool on_host(const struct mt_ctx *ctx, const mt_view *v)
{
    return mt_view_given(v[0]) && ctx->ledger->row[v[0].row].arena == MT_HOST_ARENA;
}

static void record_work(struct mt_simclock *k, const struct mt_ctx *ctx, struct place at,
                        const struct mt_call *c, const mt_view *v)
{
    struct mt_work w;
    struct mt_simclock_op *op = at.op;
    enum mt_work_kind kind = mt_work_kind_of((enum mt_op)c->op);
    op->cause = MT_STAND_COPIES;
    if (kind == MT_WORK_NONE) return;
    mt_work_of(&w, c, kind != MT_WORK_COPY && on_host(ctx, v));
    *at.what = mt_intern_add(&k->works, &w);
    op->kind = kind == MT_WORK_COPY                ? MT_SIM_COPY
               : kind == MT_WORK_ATTENTION         ? MT_SIM_ATTENTION
               : mt_op_info[c->op].kind == MT_READ ? MT_SIM_READ
                                                   : MT_SIM_KERNEL;
    if (op->kind == MT_SIM_ATTENTION) op->of = micro_batch(c, v);
}

static void clock_enqueue(struct mt_stream *s, struct mt_call *c, const mt_view *v)
{
    struct mt_simclock *k = s->ctx->exec;
    struct place at = op_new(&k->now, s);
    bool alone = mt_op_info[c->op].kind == MT_COMM && k->traffic.near[c->scalar[0].i].n == 1;
    if (mt_op_info[c->op].kind == MT_COMM && !alone)
        record_move(k, at, s, c);
    else
        record_work(k, s->ctx, at, c, v); /* a group of one copies */
}

/* What a stream waits for: named after what the other stream did last. */
static enum mt_stand cause_of_wait(const struct mt_tape *p, mt_event ev)
{
    const struct mt_simclock_op *op = p->op[ev.stream];
    for (int64_t i = ev.seq - 1; i >= 0 && i > ev.seq - 64; i--)
        if (op[i].kind == MT_SIM_MOVE) return (enum mt_stand)op[i].cause;
    return ev.stream == MT_GATHER   ? MT_STAND_WEIGHTS
           : ev.stream == MT_REDUCE ? MT_STAND_GRADIENTS
                                    : MT_STAND_COPIES;
}

static void clock_wait(struct mt_stream *s, mt_event ev)
{
    struct mt_simclock *k = s->ctx->exec;
    struct mt_tape *p = &k->now;
    MT_ASSERT(ev.seq >= 1 && ev.seq <= p->n[ev.stream]);
    struct mt_simclock_op *target = &p->op[ev.stream][ev.seq - 1];
    if (!target->slot) target->slot = ++p->n_slots;
    int32_t slot = target->slot;
    enum mt_stand cause = cause_of_wait(p, ev);
    struct mt_simclock_op *op = op_new(p, s).op;
    op->kind = MT_SIM_WAIT;
    op->of = slot;
    op->stream = (uint8_t)ev.stream;
    op->cause = (uint8_t)cause;
}

static void clock_host_read(struct mt_stream *s, enum mt_read_kind kind, int64_t index, mt_view src,
                            void *dst)
{
    const struct mt_ctx *c = s->ctx;
    struct mt_simclock *k = c->exec;
    segment_new(&k->now);
    memset(dst, 0, (size_t)src.bytes);
    if (c->answer) c->answer(c->answer_arg, kind, index, src, dst);
}

const struct mt_device_ops mt_device_simclock = {"clock", clock_enqueue, clock_wait, clock_host_read, NULL};

void mt_simclock_end(struct mt_simclock *k, struct mt_ctx *ctx)
{
    k->program_of[ctx->rank] = mt_simclock_keep(k, &k->now);
}

const char *mt_stand_key(enum mt_stand c)
{
    static const char *const key[MT_N_STANDS] = {
#define X(name, key, text) #key,
        MT_STANDS(X)
#undef X
    };
    return key[c];
}
const char *mt_stand_text(enum mt_stand c)
{
    static const char *const text[MT_N_STANDS] = {
#define X(name, key, text) text,
        MT_STANDS(X)
#undef X
    };
    return text[c];
}
