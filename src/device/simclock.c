/* simclock.c: the replay: every rank's streams in order; their transfers begin and end with those of others (simclock_links.c). */
#include <stdlib.h>
#include <string.h>

#include "device/simclock_replay.h"

/* ---- a rank's streams ---- */
static void note(int64_t *times, int64_t place, double t)
{
    if (times) times[place] = (int64_t)(t * 1e9 + 0.5);
}
static void __attribute__((noinline))
trace(const struct mt_simclock_run *run, const struct mt_sim_rank *r, const struct mt_simclock_op *op,
      double begin, double ready, double end)
{
    int64_t place = r->p->first[op->segment] + op->nth - 1;
    note(run->begin, place, begin);
    note(run->ready, place, ready);
    note(run->end, place, end);
}

/* ready: when a transfer began to move. */
static inline void done(struct mt_sim_replay *x, struct mt_sim_rank *r, int s,
                        const struct mt_simclock_op *op, double begin, double ready, double end)
{
    if (r - x->rank == x->run->traced) trace(x->run, r, op, begin, ready, end);
    if (op->slot) r->slot[op->slot - 1] = end;
    r->lane[s].free = end;
    r->lane[s].at++;
}

/* The stream has come to a collective or to a copy between memories. */
static void arrive(struct mt_sim_replay *x, struct mt_sim_rank *r, int s, const struct mt_simclock_op *op,
                   double t)
{
    struct mt_sim_lane *a = &r->lane[s];
    int32_t i = (int32_t)(r - x->rank), what = a->what[a->at], g = x->k->n_all + i;
    double latency = 0, longest = 0;
    memset(a->ask, 0, sizeof a->ask);
    if (op->kind == MT_SIM_COPY) {
        a->ask[x->work[what].h2d ? MT_ON_H2D : MT_ON_D2H] = x->work[what].seconds;
    } else {
        const struct mt_sim_price *f = &x->moves[what];
        int64_t at = (int64_t)i * x->k->o.n_groups + f->group;
        g = x->k->group_of[at];
        latency = f->alone.latency;
        a->ask[MT_ON_NODE] = f->alone.link[MT_LINK_NODE];
        a->ask[MT_ON_NET] = f->alone.link[MT_LINK_NET] * r->net * x->far[at];
    }
    struct mt_sim_move *m = &x->move[g * MT_N_STREAMS + s];
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
    if (m->arrived == m->n) mt_sim_push(x, m->ready, m);
}

static double duration(const struct mt_sim_replay *x, const struct mt_sim_rank *r,
                       const struct mt_simclock_op *op, int32_t what)
{
    struct mt_sim_cost *c = &x->work[what];
    if (op->kind != MT_SIM_ATTENTION || !x->run->pairs) return c->seconds * r->compute;
    const struct mt_work *w = mt_simclock_work(x->k, what);
    const double *seen = x->run->near && w->n == x->run->near_recorded ? x->run->near : x->run->pairs;
    double pairs = seen[(r - x->rank) * x->run->micro + op->of];
    if (!(pairs == c->pairs)) {
        c->pairs = pairs;
        c->with_pairs = mt_work_seconds(w, x->run->cluster, pairs);
    }
    return c->with_pairs * r->compute;
}

static void kernel(struct mt_sim_replay *x, struct mt_sim_rank *r, int s, const struct mt_simclock_op *op,
                   double t)
{
    struct mt_sim_lane *a = &r->lane[s];
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
static void stand(struct mt_sim_rank *r, int s, const struct mt_simclock_op *op, double from, double to)
{
    double of[MT_N_STANDS] = {0}, rest = to - from;
    int main_cause = op->cause;
    const struct mt_sim_history *h = &r->history[op->stream];
    if (!(to > from)) return;
    for (int i = 0; i < MT_SIM_PAST; i++) {
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
    int at = r->lane[s].waits++ % MT_SIM_PAST;
    struct mt_sim_history *own = &r->history[s];
    own->stood[at].from = from;
    own->stood[at].to = to;
    own->why[at] = (uint8_t)main_cause;
}

/* false: the stream's wait is not over. */
static bool waited(struct mt_sim_replay *x, struct mt_sim_rank *r, int s, const struct mt_simclock_op *op)
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
static bool run_on(struct mt_sim_replay *x, struct mt_sim_rank *r, int s)
{
    struct mt_sim_lane *a = &r->lane[s];
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

static void advance(struct mt_sim_replay *x, struct mt_sim_rank *r)
{
    for (bool any = true; any;) {
        any = false;
        for (int s = 0; r->live >> s; s++)
            if (r->live >> s & 1 && !(r->blocked[s] && *r->blocked[s] < 0) && run_on(x, r, s)) any = true;
    }
}

static void end_move(struct mt_sim_replay *x, struct mt_sim_move *m, double t)
{
    int s = m->stream;
    mt_sim_end(x, m, t);
    for (int i = 0; i < m->n; i++) {
        struct mt_sim_rank *r = mt_sim_member(x, m, i);
        struct mt_sim_lane *a = &r->lane[s];
        const struct mt_simclock_op *op = &a->op[a->at];
        memset(a->ask, 0, sizeof a->ask);
        double began = r->history[s].late[(uint8_t)(a->past - 1) % MT_SIM_PAST].to;
        if (s == MT_COMPUTE) r->out->idle[op->cause] += t - began;
        done(x, r, s, op, a->arrive, began, t);
        r->live |= 1u << s;
    }
    /* A collective of the same group may follow at once: only now is this one over for all. */
    for (int i = 0; i < m->n; i++) advance(x, mt_sim_member(x, m, i));
}

/* ---- set-up ---- */
static bool allocate(struct mt_sim_replay *x)
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
static void set_costs(struct mt_sim_replay *x)
{
    const struct mt_simclock *k = x->k;
    const struct mt_cluster *c = x->run->cluster;
    for (int i = 0; i < k->works.n; i++) {
        const struct mt_work *w = mt_simclock_work(k, i);
        x->work[i] = (struct mt_sim_cost){.seconds = mt_work_seconds(w, c, -1),
                                          .pairs = -1,
                                          .kind = (uint8_t)mt_work_kind_of((enum mt_op)w->op),
                                          .h2d = w->op == MT_OP_copy_h2d};
        x->work[i].with_pairs = x->work[i].seconds;
    }
    for (int i = 0; i < k->transfers.n; i++) {
        const struct mt_transfer *t = mt_simclock_transfer(k, i);
        x->moves[i] = (struct mt_sim_price){mt_transfer_seconds(t, c, x->run->algorithm), t->group};
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

static void set_rank(struct mt_sim_rank *r, const struct mt_program *p, double *room)
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

static void prepare(struct mt_sim_replay *x, struct mt_simclock_rank *out)
{
    const struct mt_simclock *k = x->k;
    const struct mt_simclock_run *run = x->run;
    double *room = x->room;
    set_costs(x);
    for (int i = 0; i < k->o.world; i++) {
        struct mt_sim_rank *r = &x->rank[i];
        out[i] = (struct mt_simclock_rank){.end = 0};
        r->out = &out[i];
        r->compute = run->compute ? run->compute[i] : 1;
        r->net = run->net ? run->net[i] : 1;
        set_rank(r, mt_simclock_program(k, i), room);
        room += r->p->n_slots + r->p->n_segments;
    }
    for (int g = 0; g < k->n_all + k->o.world; g++)
        for (int s = 0; s < MT_N_STREAMS; s++) {
            struct mt_sim_move *m = &x->move[g * MT_N_STREAMS + s];
            bool group = g < k->n_all;
            m->stream = s;
            m->alone = g - k->n_all;
            m->n = group ? k->n_members[g] : 1;
            m->member = group ? k->member + k->first_member[g] : &m->alone;
        }
}

/* INTERNAL, named, if some rank has not come to its end. */
static mt_status finish(struct mt_sim_replay *x, int64_t *steps, mt_err *e)
{
    for (int i = 0; i < x->k->o.world; i++) {
        struct mt_sim_rank *r = &x->rank[i];
        for (int s = 0; s < MT_N_STREAMS; s++) {
            const struct mt_sim_lane *a = &r->lane[s];
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
    struct mt_sim_replay x = {.k = k, .run = run};
    int64_t replayed = 0;
    mt_status st = allocate(&x) ? MT_OK : mt_err_set(e, MT_IO, "no memory to replay %d ranks", k->o.world);
    if (st == MT_OK) {
        prepare(&x, out);
        for (int i = 0; i < k->o.world; i++) advance(&x, &x.rank[i]);
        double t;
        for (struct mt_sim_move *m; (m = mt_sim_pop(&x, &t));)
            if (m->active)
                end_move(&x, m, t);
            else
                mt_sim_begin(&x, m, t);
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
