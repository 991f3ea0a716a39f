/* simclock.c: the replay: every rank's streams in order, and a heap of the transfers that begin or end next. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/simclock_core.h"

enum { PAST = 8 };

/* What begins and ends for several ranks together: a collective of a group on a stream, or a copy of one rank. */
struct move {
    const int32_t *member;
    int32_t n, arrived, alone; /* alone: of a copy, the one member */
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

/* A stream of a rank. */
struct lane {
    const struct mt_simclock_op *op;
    const int32_t *what;
    int32_t at, n;
    double free, arrive;
    double ask
        [MT_N_SIM_LINKS]; /* seconds on a link of the present transfer; while it is under way: the share of the link that
                                   it would take alone */
    uint8_t past, waits; /* transfers, and waits that stood still: modulo PAST, the next one's place below */
};
/* What a wait on a stream is told by: of the stream's last transfers, when this rank had come and when the last one had; of its
 * last waits that stood still, from when to when, and why. */
struct history {
    struct {
        double from, to;
    } late[PAST], stood[PAST];
    uint8_t why[PAST];
};

struct rank {
    struct lane lane[MT_N_STREAMS];
    uint32_t live, moving; /* by stream, a bit: it has operations left and is in no transfer; its transfer is
                                           under way */
    const double *blocked
        [MT_N_STREAMS]; /* what the stream waits for: a time, negative until it is known; NULL: nothing */
    struct move *on[MT_N_STREAMS];
    double load[MT_N_SIM_LINKS]; /* the sum of what its transfers under way ask for */
    double *begun;               /* by segment: when the host came to it, or -1 */
    double *slot;                /* by slot: when its operation ended, or -1 */
    double compute, net;
    double turn; /* launch.serial: when its one processor is free */
    struct mt_simclock_rank *out;
    const struct mt_program *p;
    struct history history[MT_N_STREAMS];
};

/* Of a work: seconds, its kind, and seconds with the last number of token pairs that was asked for. */
struct cost {
    double seconds, pairs, with_pairs;
    uint8_t kind;
    bool h2d;
};
struct price {
    struct mt_transfer_time alone;
    int32_t group;
};

struct replay {
    const struct mt_simclock *k;
    const struct mt_simclock_run *run;
    struct rank *rank;
    struct move *move; /* [n_all + world][MT_N_STREAMS]: groups, then ranks alone */
    struct event *heap;
    int64_t n_heap, cap_heap;
    uint64_t orders;
    struct cost *work;    /* by work */
    struct price *moves;  /* by transfer */
    double *far;          /* [world][n_groups]: how many times longer for what leaves the group of nodes */
    double *room;         /* slots and segments of all ranks */
    double enqueue, read; /* seconds of the host */
    bool serial;
};

/* ---- the heap: of four branches ---- */
enum { BRANCHES = 4 };
static inline bool before(const struct event *a, const struct event *b)
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
    for (int64_t up; i > 0 && before(&e, &x->heap[up = (i - 1) / BRANCHES]); i = up) x->heap[i] = x->heap[up];
    x->heap[i] = e;
}
static struct event pop(struct replay *x)
{
    struct event top = x->heap[0], last = x->heap[--x->n_heap];
    int64_t i = 0;
    for (int64_t c; (c = BRANCHES * i + 1) < x->n_heap; i = c) {
        int64_t end = c + BRANCHES < x->n_heap ? c + BRANCHES : x->n_heap;
        for (int64_t k = c + 1; k < end; k++)
            if (before(&x->heap[k], &x->heap[c])) c = k;
        if (!before(&x->heap[c], &last)) break;
        x->heap[i] = x->heap[c];
    }
    x->heap[i] = last;
    return top;
}

/* ---- transfers that share links ---- */
static inline struct rank *member(struct replay *x, const struct move *m, int i)
{
    return &x->rank[m->member[i]];
}

/* How many times slower than alone a rank's links make a transfer of one of its streams. */
static double slowed(const struct rank *r, int stream)
{
    double slow = 1;
    for (int l = 0; l < MT_N_SIM_LINKS; l++)
        if (r->lane[stream].ask[l] > 0 && r->load[l] > slow) slow = r->load[l];
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
    for (int s = 0; r->moving >> s; s++) {
        struct move *m = r->on[s];
        if (s == stream || !(r->moving >> s & 1)) continue;
        double slow = slowed(r, s);
        if (slow > m->slow * (1 + 1.0 / EVEN)) set_pace(x, m, slow, t);
    }
}
/* One is over, and the rank's load less by `ask`: those that went at the pace of this rank may go faster. */
static void speed_others(struct replay *x, struct rank *r, int stream, const double *ask, double t)
{
    for (int s = 0; r->moving >> s; s++) {
        struct move *m = r->on[s];
        bool here = false;
        if (s == stream || !(r->moving >> s & 1) || m->slow <= 1) continue;
        for (int l = 0; l < MT_N_SIM_LINKS; l++)
            here = here ||
                   (ask[l] > 0 && r->lane[s].ask[l] > 0 && r->load[l] + ask[l] >= m->slow * (1 - 1.0 / EVEN));
        if (!here) continue;
        double slow = slowdown(x, m, m->slow * (1 - 1.0 / EVEN));
        if (slow < m->slow * (1 - 1.0 / EVEN)) set_pace(x, m, slow, t);
    }
}

static void begin_move(struct replay *x, struct move *m, double t)
{
    double total = m->latency + m->longest;
    int s = m->stream;
    m->active = true;
    for (int i = 0; i < m->n; i++) {
        struct rank *r = member(x, m, i);
        struct lane *a = &r->lane[s];
        r->moving |= 1u << s;
        for (int l = 0; l < MT_N_SIM_LINKS; l++) {
            a->ask[l] = total > 0 ? a->ask[l] / total : 0;
            r->load[l] += a->ask[l];
        }
        int past = a->past++ % PAST;
        r->history[s].late[past].from = a->arrive;
        r->history[s].late[past].to = t;
        if (s == MT_COMPUTE) r->out->idle[MT_STAND_LATE] += t - a->arrive;
    }
    m->left = total;
    m->slow = slowdown(x, m, HUGE_VAL);
    m->since = t;
    push(x, t + total * m->slow, m);
    for (int i = 0; i < m->n; i++) slow_others(x, member(x, m, i), s, t);
}

/* ---- a rank's streams ---- */
static void note(int64_t *times, int64_t place, double t)
{
    if (times) times[place] = (int64_t)(t * 1e9 + 0.5);
}
static void __attribute__((noinline))
trace(const struct mt_simclock_run *run, const struct rank *r, const struct mt_simclock_op *op, double begin,
      double ready, double end)
{
    int64_t place = r->p->first[op->segment] + op->nth - 1;
    note(run->begin, place, begin);
    note(run->ready, place, ready);
    note(run->end, place, end);
}

/* ready: when a transfer began to move. */
static inline void done(struct replay *x, struct rank *r, int s, const struct mt_simclock_op *op,
                        double begin, double ready, double end)
{
    if (r - x->rank == x->run->traced) trace(x->run, r, op, begin, ready, end);
    if (op->slot) r->slot[op->slot - 1] = end;
    r->lane[s].free = end;
    r->lane[s].at++;
}

/* The stream has come to a collective or to a copy between memories. */
static void arrive(struct replay *x, struct rank *r, int s, const struct mt_simclock_op *op, double t)
{
    struct lane *a = &r->lane[s];
    int32_t i = (int32_t)(r - x->rank), what = a->what[a->at], g = x->k->n_all + i;
    double latency = 0, longest = 0;
    memset(a->ask, 0, sizeof a->ask);
    if (op->kind == MT_SIM_COPY) {
        a->ask[x->work[what].h2d ? MT_ON_H2D : MT_ON_D2H] = x->work[what].seconds;
    } else {
        const struct price *f = &x->moves[what];
        int64_t at = (int64_t)i * x->k->o.n_groups + f->group;
        g = x->k->group_of[at];
        latency = f->alone.latency;
        a->ask[MT_ON_NODE] = f->alone.link[MT_LINK_NODE];
        a->ask[MT_ON_NET] = f->alone.link[MT_LINK_NET] * r->net * x->far[at];
    }
    struct move *m = &x->move[g * MT_N_STREAMS + s];
    for (int l = 0; l < MT_N_SIM_LINKS; l++) {
        r->out->link[l] += a->ask[l];
        if (a->ask[l] > longest) longest = a->ask[l];
    }
    if (!m->arrived++) m->ready = m->latency = m->longest = 0;
    if (t > m->ready) m->ready = t;
    if (latency > m->latency) m->latency = latency;
    if (longest > m->longest) m->longest = longest;
    r->on[s] = m;
    r->live &= ~(1u << s);
    a->arrive = t;
    if (m->arrived == m->n) push(x, m->ready, m);
}

static double duration(const struct replay *x, const struct rank *r, const struct mt_simclock_op *op,
                       int32_t what)
{
    struct cost *c = &x->work[what];
    if (op->kind != MT_SIM_ATTENTION || !x->run->pairs) return c->seconds * r->compute;
    double pairs = x->run->pairs[(r - x->rank) * x->run->micro + op->of];
    if (!(pairs == c->pairs)) {
        c->pairs = pairs;
        c->with_pairs = mt_work_seconds(mt_simclock_work(x->k, what), x->run->cluster, pairs);
    }
    return c->with_pairs * r->compute;
}

static void kernel(struct replay *x, struct rank *r, int s, const struct mt_simclock_op *op, double t)
{
    struct lane *a = &r->lane[s];
    int32_t what = a->what[a->at];
    double d = duration(x, r, op, what);
    if (x->serial) {
        if (s == MT_COMPUTE && r->turn > t) r->out->idle[MT_STAND_SERIAL] += r->turn - t;
        double before = t;
        t = r->turn > t ? r->turn : t;
        r->turn = t + d;
        if (s == MT_COMPUTE) a->free += t - before; /* told as above, not as the host's */
    }
    if (op->kind == MT_SIM_READ && s == MT_COMPUTE) {
        r->out->idle[MT_STAND_HOST] += t + d - a->free;
    } else if (s == MT_COMPUTE) {
        r->out->busy[x->work[what].kind] += d;
        r->out->idle[MT_STAND_HOST] += t - a->free;
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
    const struct history *h = &r->history[op->stream];
    if (!(to > from)) return;
    for (int i = 0; i < PAST; i++) {
        double late = overlap(h->late[i].from, h->late[i].to, from, to),
               passed_on = overlap(h->stood[i].from, h->stood[i].to, from, to);
        of[MT_STAND_LATE] += late;
        of[h->why[i]] += passed_on;
        rest -= late + passed_on;
    }
    of[op->cause] += rest;
    for (int i = 0; i < MT_N_STANDS; i++) {
        if (s == MT_COMPUTE) r->out->idle[i] += of[i];
        if (of[i] > of[main_cause]) main_cause = i;
    }
    int at = r->lane[s].waits++ % PAST;
    struct history *own = &r->history[s];
    own->stood[at].from = from;
    own->stood[at].to = to;
    own->why[at] = (uint8_t)main_cause;
}

/* false: the stream's wait is not over. */
static bool waited(struct replay *x, struct rank *r, int s, const struct mt_simclock_op *op)
{
    double until = r->slot[op->of - 1], begin = r->lane[s].free;
    if (until < 0) {
        r->blocked[s] = &r->slot[op->of - 1];
        return false;
    }
    double end = until > begin ? until : begin;
    stand(r, s, op, begin, end);
    done(x, r, s, op, begin, begin, end);
    return true;
}

/* A stream's operations until one whose time has not come; true: there were any. */
static bool run_on(struct replay *x, struct rank *r, int s)
{
    struct lane *a = &r->lane[s];
    int32_t from = a->at;
    for (const struct mt_simclock_op *op; a->at < a->n;) {
        op = &a->op[a->at];
        double begun = r->begun[op->segment];
        r->blocked[s] = &r->begun[op->segment];
        if (begun < 0) return a->at > from;
        r->blocked[s] = NULL;
        double enqueued = begun + x->enqueue * op->nth, t = enqueued > a->free ? enqueued : a->free;
        switch (op->kind) {
        case MT_SIM_NOTHING: done(x, r, s, op, a->free, a->free, a->free); break;
        case MT_SIM_KERNEL:
        case MT_SIM_ATTENTION: kernel(x, r, s, op, t); break;
        case MT_SIM_READ:
            kernel(x, r, s, op, t);
            r->begun[op->segment + 1] = a->free + x->read;
            break;
        case MT_SIM_WAIT:
            if (!waited(x, r, s, op)) return a->at > from;
            break;
        default:
            if (s == MT_COMPUTE) r->out->idle[MT_STAND_HOST] += t - a->free;
            arrive(x, r, s, op, t);
            return a->at > from;
        }
    }
    r->live &= ~(1u << s);
    return a->at > from;
}

static void advance(struct replay *x, struct rank *r)
{
    for (bool any = true; any;) {
        any = false;
        for (int s = 0; r->live >> s; s++)
            if (r->live >> s & 1 && !(r->blocked[s] && *r->blocked[s] < 0) && run_on(x, r, s)) any = true;
    }
}

static void end_move(struct replay *x, struct move *m, double t)
{
    int s = m->stream;
    m->active = false;
    m->arrived = 0;
    for (int i = 0; i < m->n; i++) {
        struct rank *r = member(x, m, i);
        r->on[s] = NULL;
        r->moving &= ~(1u << s);
        for (int l = 0; l < MT_N_SIM_LINKS; l++) r->load[l] = r->moving ? r->load[l] - r->lane[s].ask[l] : 0;
    }
    for (int i = 0; i < m->n; i++) {
        struct rank *r = member(x, m, i);
        speed_others(x, r, s, r->lane[s].ask, t);
    }
    for (int i = 0; i < m->n; i++) {
        struct rank *r = member(x, m, i);
        struct lane *a = &r->lane[s];
        const struct mt_simclock_op *op = &a->op[a->at];
        memset(a->ask, 0, sizeof a->ask);
        double began = r->history[s].late[(uint8_t)(a->past - 1) % PAST].to;
        if (s == MT_COMPUTE) r->out->idle[op->cause] += t - began;
        done(x, r, s, op, a->arrive, began, t);
        r->live |= 1u << s;
    }
    /* A collective of the same group may follow at once: only now is this one over for all. */
    for (int i = 0; i < m->n; i++) advance(x, member(x, m, i));
}

/* ---- set-up ---- */
static bool allocate(struct replay *x)
{
    const struct mt_simclock *k = x->k;
    size_t world = (size_t)k->o.world, room = 0;
    for (int i = 0; i < k->o.world; i++) {
        const struct mt_program *p = mt_simclock_program(k, i);
        room += (size_t)(p->n_slots + p->n_segments);
    }
    x->rank = calloc(world, sizeof *x->rank);
    x->move = calloc(((size_t)k->n_all + world) * MT_N_STREAMS, sizeof *x->move);
    x->work = calloc((size_t)k->works.n + 1, sizeof *x->work);
    x->moves = calloc((size_t)k->transfers.n + 1, sizeof *x->moves);
    x->far = malloc(world * (size_t)k->o.n_groups * sizeof *x->far + 1);
    x->room = malloc((room + 1) * sizeof *x->room);
    return x->rank && x->move && x->work && x->moves && x->far && x->room;
}

/* What operations take, whoever has them. */
static void set_costs(struct replay *x)
{
    const struct mt_simclock *k = x->k;
    const struct mt_cluster *c = x->run->cluster;
    for (int i = 0; i < k->works.n; i++) {
        const struct mt_work *w = mt_simclock_work(k, i);
        x->work[i] = (struct cost){.seconds = mt_work_seconds(w, c, -1),
                                   .pairs = -1,
                                   .kind = (uint8_t)mt_work_kind_of((enum mt_op)w->op),
                                   .h2d = w->op == MT_OP_copy_h2d};
        x->work[i].with_pairs = x->work[i].seconds;
    }
    for (int i = 0; i < k->transfers.n; i++) {
        const struct mt_transfer *t = mt_simclock_transfer(k, i);
        x->moves[i] = (struct price){mt_transfer_seconds(t, c, x->run->algorithm), t->group};
    }
    /* What leaves a group of nodes goes over fewer links. */
    for (int64_t i = 0; i < (int64_t)k->o.world * k->o.n_groups; i++) {
        double slower = (double)k->away[i] / MT_OF(c, net_far);
        x->far[i] = slower > 1 ? slower : 1;
    }
    x->enqueue = MT_OF(c, launch_enqueue);
    x->read = MT_OF(c, launch_read);
    x->serial = MT_OF(c, launch_serial) > 0;
}

static void set_rank(struct rank *r, const struct mt_program *p, double *room)
{
    r->p = p;
    r->slot = room;
    r->begun = room + p->n_slots;
    for (int i = 0; i < p->n_slots + p->n_segments; i++) room[i] = -1;
    r->begun[0] = 0;
    for (int s = 0; s < MT_N_STREAMS; s++) {
        r->lane[s].op = p->op[s];
        r->lane[s].what = p->what[s];
        r->lane[s].n = p->n[s];
        if (p->n[s]) r->live |= 1u << s;
    }
}

static void prepare(struct replay *x, struct mt_simclock_rank *out)
{
    const struct mt_simclock *k = x->k;
    const struct mt_simclock_run *run = x->run;
    double *room = x->room;
    set_costs(x);
    for (int i = 0; i < k->o.world; i++) {
        struct rank *r = &x->rank[i];
        out[i] = (struct mt_simclock_rank){.end = 0};
        r->out = &out[i];
        r->compute = run->compute ? run->compute[i] : 1;
        r->net = run->net ? run->net[i] : 1;
        set_rank(r, mt_simclock_program(k, i), room);
        room += r->p->n_slots + r->p->n_segments;
    }
    for (int g = 0; g < k->n_all + k->o.world; g++)
        for (int s = 0; s < MT_N_STREAMS; s++) {
            struct move *m = &x->move[g * MT_N_STREAMS + s];
            bool group = g < k->n_all;
            m->stream = s;
            m->alone = g - k->n_all;
            m->n = group ? k->n_members[g] : 1;
            m->member = group ? k->member + k->first_member[g] : &m->alone;
        }
}

/* INTERNAL, named, if some rank has not come to its end. */
static mt_status finish(struct replay *x, int64_t *steps, mt_err *e)
{
    for (int i = 0; i < x->k->o.world; i++) {
        struct rank *r = &x->rank[i];
        for (int s = 0; s < MT_N_STREAMS; s++) {
            const struct lane *a = &r->lane[s];
            MT_REQUIRE(a->at == a->n, e, MT_INTERNAL,
                       "the simulated rank %d waits for ever on its stream %s, at operation %d of %d", i,
                       mt_stream_name(s), a->at + 1, a->n);
            if (a->free > r->out->end) r->out->end = a->free;
            *steps += a->n;
        }
    }
    return MT_OK;
}

mt_status mt_simclock_replay(const struct mt_simclock *k, const struct mt_simclock_run *run,
                             struct mt_simclock_rank *out, int64_t *steps, mt_err *e)
{
    struct replay x = {.k = k, .run = run};
    int64_t replayed = 0;
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
        st = finish(&x, &replayed, e);
    }
    if (steps) *steps = replayed;
    free(x.rank);
    free(x.move);
    free(x.heap);
    free(x.work);
    free(x.moves);
    free(x.far);
    free(x.room);
    return st;
}
