/* simclock.c: the replay: every rank's streams in order, and a heap of the transfers that begin or end next. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/simclock_core.h"

enum { PAST = 8 };

/* What begins and ends for several ranks together: a collective of a group on a stream, or a copy of one rank. */
struct move {
    const int32_t *member;
    int32_t n, arrived, alone; /* alone: the one member's rank */
    int32_t stream;
    bool active;
    uint32_t version; /* of its event in the heap: others are stale */
    double ready;     /* when its last member had come */
    double latency, longest;
    double left, slow,
        since; /* seconds alone still to do, how many times slower at present, and since when */
};
struct event {
    double t;
    uint64_t order;
    int32_t move;
    uint32_t version;
};

struct rank {
    const struct mt_program *p;
    double free[MT_N_STREAMS], arrive[MT_N_STREAMS];
    /* Of a stream's last transfers: when this rank had come, and when the last one had. */
    double came[MT_N_STREAMS][PAST], began[MT_N_STREAMS][PAST];
    uint8_t past[MT_N_STREAMS];
    /* Of a stream's last waits that stood still: from when to when, and why. */
    double stood[MT_N_STREAMS][PAST], stood_to[MT_N_STREAMS][PAST];
    uint8_t why[MT_N_STREAMS][PAST], waits[MT_N_STREAMS];
    double ask[MT_N_STREAMS]
              [MT_N_SIM_LINKS]; /* seconds on a link of the present transfer; while it is under way: the share
                                                   of the link that it would take alone */
    double load[MT_N_SIM_LINKS]; /* the sum of these shares */
    struct move *on[MT_N_STREAMS];
    int32_t at[MT_N_STREAMS];
    int32_t segment; /* the last that the host has come to */
    double *begun;   /* by segment: when the host came to it */
    double *slot;    /* by slot: when its operation ended, or -1 */
    double compute, net;
    double turn; /* launch.serial: when its one processor is free */
    struct mt_simclock_rank *out;
};

struct replay {
    const struct mt_simclock *k;
    const struct mt_simclock_run *run;
    struct rank *rank;
    struct move *move; /* [n_all + world][MT_N_STREAMS]: groups, then ranks alone */
    struct event *heap;
    int64_t n_heap, cap_heap, steps;
    uint64_t orders;
    double *work;                   /* seconds, by work */
    struct mt_transfer_time *moves; /* by transfer */
    double *room;                   /* slots and segments of all ranks */
};

/* ---- the heap ---- */
static bool before(const struct event *a, const struct event *b)
{
    return a->t < b->t || (a->t == b->t && a->order < b->order);
}
static void push(struct replay *x, double t, struct move *m)
{
    if (x->n_heap == x->cap_heap) {
        x->cap_heap = x->cap_heap ? 2 * x->cap_heap : 4096;
        x->heap = realloc(x->heap, (size_t)x->cap_heap * sizeof *x->heap);
        MT_ASSERT(x->heap);
    }
    struct event e = {t, x->orders++, (int32_t)(m - x->move), ++m->version};
    int64_t i = x->n_heap++;
    for (; i > 0 && before(&e, &x->heap[(i - 1) / 2]); i = (i - 1) / 2) x->heap[i] = x->heap[(i - 1) / 2];
    x->heap[i] = e;
}
static struct event pop(struct replay *x)
{
    struct event top = x->heap[0], last = x->heap[--x->n_heap];
    int64_t i = 0;
    for (int64_t c; (c = 2 * i + 1) < x->n_heap; i = c) {
        if (c + 1 < x->n_heap && before(&x->heap[c + 1], &x->heap[c])) c++;
        if (!before(&x->heap[c], &last)) break;
        x->heap[i] = x->heap[c];
    }
    x->heap[i] = last;
    return top;
}

/* ---- transfers that share links ---- */
static struct rank *member(struct replay *x, const struct move *m, int i)
{
    return &x->rank[m->member ? m->member[i] : m->alone];
}

/* How many times slower than alone a rank's links make a transfer of one of its streams. */
static double slowed(const struct rank *r, int stream)
{
    double slow = 1;
    for (int l = 0; l < MT_N_SIM_LINKS; l++)
        if (r->ask[stream][l] > 0 && r->load[l] > slow) slow = r->load[l];
    return slow;
}

/* The pace of a transfer is its most loaded member's: at least as slow as `enough`, or the slowest. */
static double slowdown(struct replay *x, const struct move *m, double enough)
{
    double slow = 1;
    for (int i = 0; i < m->n && slow < enough; i++) {
        double one = slowed(member(x, m, i), m->stream);
        if (one > slow) slow = one;
    }
    return slow;
}

static void set_pace(struct replay *x, struct move *m, double slow, double t)
{
    m->left -= (t - m->since) / m->slow;
    if (m->left < 0) m->left = 0;
    m->since = t;
    m->slow = slow;
    push(x, t + m->left * slow, m);
}

enum {
    EVEN = 1 << 20
}; /* loads that differ by less than one part of these are equal: they are sums in any order */

/* A transfer has begun on a stream of the rank: those that share its links may have to go slower. */
static void slow_others(struct replay *x, struct rank *r, int stream, double t)
{
    for (int s = 0; s < MT_N_STREAMS; s++) {
        struct move *m = r->on[s];
        if (s == stream || !m || !m->active) continue;
        double slow = slowed(r, s);
        if (slow > m->slow * (1 + 1.0 / EVEN)) set_pace(x, m, slow, t);
    }
}
/* One is over, and the rank's load less by `ask`: those that went at the pace of this rank may go faster. */
static void speed_others(struct replay *x, struct rank *r, int stream, const double *ask, double t)
{
    for (int s = 0; s < MT_N_STREAMS; s++) {
        struct move *m = r->on[s];
        bool here = false;
        if (s == stream || !m || !m->active || m->slow <= 1) continue;
        for (int l = 0; l < MT_N_SIM_LINKS; l++)
            here = here ||
                   (ask[l] > 0 && r->ask[s][l] > 0 && r->load[l] + ask[l] >= m->slow * (1 - 1.0 / EVEN));
        if (!here) continue;
        double slow = slowdown(x, m, m->slow * (1 - 1.0 / EVEN));
        if (slow < m->slow * (1 - 1.0 / EVEN)) set_pace(x, m, slow, t);
    }
}

static void begin_move(struct replay *x, struct move *m, double t)
{
    double total = m->latency + m->longest;
    m->active = true;
    for (int i = 0; i < m->n; i++) {
        struct rank *r = member(x, m, i);
        for (int l = 0; l < MT_N_SIM_LINKS; l++) {
            r->ask[m->stream][l] = total > 0 ? r->ask[m->stream][l] / total : 0;
            r->load[l] += r->ask[m->stream][l];
        }
        int past = r->past[m->stream]++ % PAST;
        r->came[m->stream][past] = r->arrive[m->stream];
        r->began[m->stream][past] = t;
        if (m->stream == MT_COMPUTE) r->out->idle[MT_STAND_LATE] += t - r->arrive[MT_COMPUTE];
    }
    m->left = total;
    m->slow = slowdown(x, m, HUGE_VAL);
    m->since = t;
    push(x, t + total * m->slow, m);
    for (int i = 0; i < m->n; i++) slow_others(x, member(x, m, i), m->stream, t);
}

/* ---- a rank's streams ---- */
static void note(int64_t *times, int64_t place, double t)
{
    if (times) times[place] = (int64_t)(t * 1e9 + 0.5);
}

/* ready: when a transfer began to move. */
static void done(struct replay *x, struct rank *r, int s, const struct mt_simclock_op *op, double begin,
                 double ready, double end)
{
    if (r - x->rank == x->run->traced) {
        int64_t place = r->p->first[op->segment] + op->nth - 1;
        note(x->run->begin, place, begin);
        note(x->run->ready, place, ready);
        note(x->run->end, place, end);
    }
    if (op->slot) r->slot[op->slot - 1] = end;
    r->free[s] = end;
    r->at[s]++;
    x->steps++;
}

/* What leaves a group of nodes goes over fewer links. */
static double far_slower(const struct replay *x, int64_t rank_and_group)
{
    double slower = (double)x->k->away[rank_and_group] / MT_OF(x->run->cluster, net_far);
    return slower > 1 ? slower : 1;
}

/* The stream has come to a collective or to a copy between memories. */
static void arrive(struct replay *x, struct rank *r, int s, const struct mt_simclock_op *op, double t)
{
    bool copy = op->kind == MT_SIM_COPY;
    int32_t i = (int32_t)(r - x->rank), what = r->p->what[s][r->at[s]];
    int64_t at = copy ? 0 : (int64_t)i * x->k->o.n_groups + mt_simclock_transfer(x->k, what)->group;
    int32_t g = copy ? x->k->n_all + i : x->k->group_of[at];
    struct move *m = &x->move[g * MT_N_STREAMS + s];
    struct mt_transfer_time f = {.latency = 0};
    double *ask = r->ask[s], longest = 0;
    memset(ask, 0, sizeof r->ask[s]);
    if (copy) {
        bool h2d = mt_simclock_work(x->k, what)->op == MT_OP_copy_h2d;
        ask[h2d ? MT_ON_H2D : MT_ON_D2H] = x->work[what];
    } else {
        f = x->moves[what];
        ask[MT_ON_NODE] = f.link[MT_LINK_NODE];
        ask[MT_ON_NET] = f.link[MT_LINK_NET] * r->net * far_slower(x, at);
    }
    for (int l = 0; l < MT_N_SIM_LINKS; l++) {
        r->out->link[l] += ask[l];
        if (ask[l] > longest) longest = ask[l];
    }
    if (!m->arrived++) m->ready = m->latency = m->longest = 0;
    if (t > m->ready) m->ready = t;
    if (f.latency > m->latency) m->latency = f.latency;
    if (longest > m->longest) m->longest = longest;
    r->on[s] = m;
    r->arrive[s] = t;
    if (m->arrived == m->n) push(x, m->ready, m);
}

static double duration(const struct replay *x, const struct rank *r, const struct mt_simclock_op *op,
                       int32_t what)
{
    double pairs = -1;
    if (op->kind != MT_SIM_ATTENTION || !x->run->pairs) return x->work[what] * r->compute;
    pairs = x->run->pairs[(r - x->rank) * x->run->micro + op->of];
    return mt_work_seconds(mt_simclock_work(x->k, what), x->run->cluster, pairs) * r->compute;
}

static void kernel(struct replay *x, struct rank *r, int s, const struct mt_simclock_op *op, double t)
{
    int32_t what = r->p->what[s][r->at[s]];
    double d = duration(x, r, op, what);
    if (MT_OF(x->run->cluster, launch_serial) > 0) {
        if (s == MT_COMPUTE && r->turn > t) r->out->idle[MT_STAND_SERIAL] += r->turn - t;
        double before = t;
        t = r->turn > t ? r->turn : t;
        r->turn = t + d;
        if (s == MT_COMPUTE) r->free[s] += t - before; /* told as above, not as the host's */
    }
    if (op->kind == MT_SIM_READ && s == MT_COMPUTE) {
        r->out->idle[MT_STAND_HOST] += t + d - r->free[s];
    } else if (s == MT_COMPUTE) {
        r->out->busy[mt_work_kind_of((enum mt_op)mt_simclock_work(x->k, what)->op)] += d;
        r->out->idle[MT_STAND_HOST] += t - r->free[s];
    } else {
        r->out->side += d;
    }
    done(x, r, s, op, t, t, t + d);
}

static double overlap(double a, double b, double from, double to)
{
    a = a > from ? a : from;
    b = b < to ? b : to;
    return b > a ? b - a : 0;
}

/* A stream stood still for another one: in part for ranks that came late to that stream's transfers, in part for what that
 * stream itself waited for (a copy that leaves behind a reduction), else for its own work. */
static void stand(struct rank *r, int s, const struct mt_simclock_op *op, double from, double to)
{
    double of[MT_N_STANDS] = {0}, rest = to - from;
    int main_cause = op->cause;
    if (!(to > from)) return;
    for (int i = 0; i < PAST; i++) {
        double late = overlap(r->came[op->stream][i], r->began[op->stream][i], from, to),
               passed_on = overlap(r->stood[op->stream][i], r->stood_to[op->stream][i], from, to);
        of[MT_STAND_LATE] += late;
        of[r->why[op->stream][i]] += passed_on;
        rest -= late + passed_on;
    }
    of[op->cause] += rest;
    for (int i = 0; i < MT_N_STANDS; i++) {
        if (s == MT_COMPUTE) r->out->idle[i] += of[i];
        if (of[i] > of[main_cause]) main_cause = i;
    }
    int at = r->waits[s]++ % PAST;
    r->stood[s][at] = from;
    r->stood_to[s][at] = to;
    r->why[s][at] = (uint8_t)main_cause;
}

/* One operation of a stream, if its time has come; false: it has not. */
static bool step(struct replay *x, struct rank *r, int s)
{
    const struct mt_program *p = r->p;
    if (r->at[s] == p->n[s] || r->on[s]) return false;
    const struct mt_simclock_op *op = &p->op[s][r->at[s]];
    if (op->segment > r->segment) return false;
    double enqueue = MT_OF(x->run->cluster, launch_enqueue);
    double enqueued = r->begun[op->segment] + enqueue * op->nth;
    double t = enqueued > r->free[s] ? enqueued : r->free[s];
    switch (op->kind) {
    case MT_SIM_NOTHING: done(x, r, s, op, r->free[s], r->free[s], r->free[s]); return true;
    case MT_SIM_KERNEL:
    case MT_SIM_ATTENTION: kernel(x, r, s, op, t); return true;
    case MT_SIM_READ:
        kernel(x, r, s, op, t);
        r->begun[++r->segment] = r->free[s] + MT_OF(x->run->cluster, launch_read);
        return true;
    case MT_SIM_WAIT: {
        double until = r->slot[op->of - 1];
        if (until < 0) return false;
        double end = until > r->free[s] ? until : r->free[s];
        stand(r, s, op, r->free[s], end);
        done(x, r, s, op, r->free[s], r->free[s], end);
        return true;
    }
    default:
        if (s == MT_COMPUTE) r->out->idle[MT_STAND_HOST] += t - r->free[s];
        arrive(x, r, s, op, t);
        return false;
    }
}

static void advance(struct replay *x, struct rank *r)
{
    for (bool any = true; any;) {
        any = false;
        for (int s = 0; s < MT_N_STREAMS; s++)
            while (step(x, r, s)) any = true;
    }
}

static void end_move(struct replay *x, struct move *m, double t)
{
    int s = m->stream;
    m->active = false;
    m->arrived = 0;
    for (int i = 0; i < m->n; i++) {
        struct rank *r = member(x, m, i);
        bool others = false;
        r->on[s] = NULL;
        for (int k = 0; k < MT_N_STREAMS; k++) others = others || (r->on[k] && r->on[k]->active);
        for (int l = 0; l < MT_N_SIM_LINKS; l++) r->load[l] = others ? r->load[l] - r->ask[s][l] : 0;
    }
    for (int i = 0; i < m->n; i++) {
        struct rank *r = member(x, m, i);
        speed_others(x, r, s, r->ask[s], t);
    }
    for (int i = 0; i < m->n; i++) {
        struct rank *r = member(x, m, i);
        const struct mt_simclock_op *op = &r->p->op[s][r->at[s]];
        memset(r->ask[s], 0, sizeof r->ask[s]);
        double began = r->began[s][(uint8_t)(r->past[s] - 1) % PAST];
        if (s == MT_COMPUTE) r->out->idle[op->cause] += t - began;
        done(x, r, s, op, r->arrive[s], began, t);
    }
    /* A collective of the same group may follow at once: only now is this one over for all. */
    for (int i = 0; i < m->n; i++) advance(x, member(x, m, i));
}

/* ---- set-up ---- */
static bool allocate(struct replay *x)
{
    const struct mt_simclock *k = x->k;
    size_t world = (size_t)k->o.world, room = 0;
    for (size_t i = 0; i < world; i++) {
        const struct mt_program *p = mt_simclock_program(k, (int)i);
        room += (size_t)(p->n_slots + p->n_segments);
    }
    x->rank = calloc(world, sizeof *x->rank);
    x->move = calloc(((size_t)k->n_all + world) * MT_N_STREAMS, sizeof *x->move);
    x->work = malloc(((size_t)k->works.n + 1) * sizeof *x->work);
    x->moves = malloc(((size_t)k->transfers.n + 1) * sizeof *x->moves);
    x->room = malloc((room + 1) * sizeof *x->room);
    return x->rank && x->move && x->work && x->moves && x->room;
}

static void prepare(struct replay *x, struct mt_simclock_rank *out)
{
    const struct mt_simclock *k = x->k;
    const struct mt_simclock_run *run = x->run;
    double *room = x->room;
    for (int i = 0; i < k->works.n; i++)
        x->work[i] = mt_work_seconds(mt_simclock_work(k, i), run->cluster, -1);
    for (int i = 0; i < k->transfers.n; i++)
        x->moves[i] = mt_transfer_seconds(mt_simclock_transfer(k, i), run->cluster, run->algorithm);
    for (int i = 0; i < k->o.world; i++) {
        struct rank *r = &x->rank[i];
        out[i] = (struct mt_simclock_rank){.end = 0};
        r->p = mt_simclock_program(k, i);
        r->out = &out[i];
        r->compute = run->compute ? run->compute[i] : 1;
        r->net = run->net ? run->net[i] : 1;
        r->slot = room;
        r->begun = room + r->p->n_slots;
        room = r->begun + r->p->n_segments;
        for (int s = 0; s < r->p->n_slots; s++) r->slot[s] = -1;
        r->begun[0] = 0;
    }
    for (int g = 0; g < k->n_all + k->o.world; g++)
        for (int s = 0; s < MT_N_STREAMS; s++) {
            struct move *m = &x->move[g * MT_N_STREAMS + s];
            bool group = g < k->n_all;
            m->stream = s;
            m->n = group ? k->n_members[g] : 1;
            m->member = group ? k->member + k->first_member[g] : NULL;
            m->alone = group ? -1 : g - k->n_all;
        }
}

/* INTERNAL, named, if some rank has not come to its end. */
static mt_status finish(struct replay *x, mt_err *e)
{
    for (int i = 0; i < x->k->o.world; i++) {
        struct rank *r = &x->rank[i];
        for (int s = 0; s < MT_N_STREAMS; s++) {
            MT_REQUIRE(r->at[s] == r->p->n[s], e, MT_INTERNAL,
                       "the simulated rank %d waits for ever on its stream %s, at operation %d of %d", i,
                       mt_stream_name(s), r->at[s] + 1, r->p->n[s]);
            if (r->free[s] > r->out->end) r->out->end = r->free[s];
        }
    }
    return MT_OK;
}

mt_status mt_simclock_replay(const struct mt_simclock *k, const struct mt_simclock_run *run,
                             struct mt_simclock_rank *out, int64_t *steps, mt_err *e)
{
    struct replay x = {.k = k, .run = run};
    mt_status st = allocate(&x) ? MT_OK : mt_err_set(e, MT_IO, "no memory to replay %d ranks", k->o.world);
    if (st == MT_OK) {
        prepare(&x, out);
        for (int i = 0; i < k->o.world; i++) advance(&x, &x.rank[i]);
        while (x.n_heap) {
            struct event ev = pop(&x);
            struct move *m = &x.move[ev.move];
            if (m->version != ev.version) continue;
            if (m->active)
                end_move(&x, m, ev.t);
            else
                begin_move(&x, m, ev.t);
        }
        st = finish(&x, e);
    }
    if (steps) *steps = x.steps;
    free(x.rank);
    free(x.move);
    free(x.heap);
    free(x.work);
    free(x.moves);
    free(x.room);
    return st;
}
