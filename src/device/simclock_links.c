/* simclock_links.c: of a replay, the heap of the transfers that begin or end next, and the links that transfers share. */
#include <math.h>
#include <stdlib.h>

#include "device/simclock_replay.h"

/* ---- the heap: of four branches ---- */
enum { BRANCHES = 4 };
static inline bool before(const struct mt_sim_event *a, const struct mt_sim_event *b)
{
    return a->t < b->t || (a->t == b->t && a->order < b->order);
}
void mt_sim_push(struct mt_sim_replay *x, double t, struct mt_sim_move *m)
{
    if (x->n_heap == x->cap_heap) {
        x->cap_heap = x->cap_heap ? 2 * x->cap_heap : 4096;
        x->heap = realloc(x->heap, (size_t)x->cap_heap * sizeof *x->heap);
        MT_ASSERT(x->heap);
    }
    struct mt_sim_event e = {t, x->orders++, (int32_t)(m - x->move), ++m->version};
    int64_t i = x->n_heap++;
    for (int64_t up; i > 0 && before(&e, &x->heap[up = (i - 1) / BRANCHES]); i = up) x->heap[i] = x->heap[up];
    x->heap[i] = e;
}
static struct mt_sim_event first(struct mt_sim_replay *x)
{
    struct mt_sim_event top = x->heap[0], last = x->heap[--x->n_heap];
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
struct mt_sim_move *mt_sim_pop(struct mt_sim_replay *x, double *t)
{
    while (x->n_heap) {
        struct mt_sim_event e = first(x);
        struct mt_sim_move *m = &x->move[e.move];
        *t = e.t;
        if (m->version == e.version) return m;
    }
    return NULL;
}

/* ---- transfers that share links ---- */
/* How many times slower than alone a rank's links make a transfer of one of its streams. */
static double slowed(const struct mt_sim_rank *r, int stream)
{
    double slow = 1;
    for (int l = 0; l < MT_N_SIM_LINKS; l++)
        if (r->lane[stream].ask[l] > 0 && r->load[l] > slow) slow = r->load[l];
    return slow;
}

/* The pace of a transfer is its most loaded member's: at least as slow as `enough`, or the slowest. */
static double slowdown(struct mt_sim_replay *x, const struct mt_sim_move *m, double enough)
{
    double slow = 1;
    for (int i = 0; i < m->n && slow < enough; i++) {
        double one = slowed(mt_sim_member(x, m, i), m->stream);
        if (one > slow) slow = one;
    }
    return slow;
}

static void set_pace(struct mt_sim_replay *x, struct mt_sim_move *m, double slow, double t)
{
    m->left -= (t - m->since) / m->slow;
    if (m->left < 0) m->left = 0;
    m->since = t;
    m->slow = slow;
    mt_sim_push(x, t + m->left * slow, m);
}

enum {
    EVEN = 1 << 20
}; /* loads that differ by less than one part of these are equal: they are sums in any order */

/* A transfer has begun on a stream of the rank: those that share its links may have to go slower. */
static void slow_others(struct mt_sim_replay *x, struct mt_sim_rank *r, int stream, double t)
{
    for (int s = 0; r->moving >> s; s++) {
        struct mt_sim_move *m = r->on[s];
        if (s == stream || !(r->moving >> s & 1)) continue;
        double slow = slowed(r, s);
        if (slow > m->slow * (1 + 1.0 / EVEN)) set_pace(x, m, slow, t);
    }
}
/* One is over, and the rank's load less by `ask`: those that went at the pace of this rank may go faster. */
static void speed_others(struct mt_sim_replay *x, struct mt_sim_rank *r, int stream, const double *ask,
                         double t)
{
    for (int s = 0; r->moving >> s; s++) {
        struct mt_sim_move *m = r->on[s];
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

void mt_sim_begin(struct mt_sim_replay *x, struct mt_sim_move *m, double t)
{
    double total = m->latency + m->longest;
    int s = m->stream;
    m->active = true;
    for (int i = 0; i < m->n; i++) {
        struct mt_sim_rank *r = mt_sim_member(x, m, i);
        struct mt_sim_lane *a = &r->lane[s];
        r->moving |= 1u << s;
        for (int l = 0; l < MT_N_SIM_LINKS; l++) {
            a->ask[l] = total > 0 ? a->ask[l] / total : 0;
            r->load[l] += a->ask[l];
        }
        int past = a->past++ % MT_SIM_PAST;
        r->history[s].late[past].from = a->arrive;
        r->history[s].late[past].to = t;
        if (s == MT_COMPUTE) r->out->idle[MT_STAND_LATE] += t - a->arrive;
    }
    m->left = total;
    m->slow = slowdown(x, m, HUGE_VAL);
    m->since = t;
    mt_sim_push(x, t + total * m->slow, m);
    for (int i = 0; i < m->n; i++) slow_others(x, mt_sim_member(x, m, i), s, t);
}

void mt_sim_end(struct mt_sim_replay *x, struct mt_sim_move *m, double t)
{
    int s = m->stream;
    m->active = false;
    m->arrived = 0;
    for (int i = 0; i < m->n; i++) {
        struct mt_sim_rank *r = mt_sim_member(x, m, i);
        r->on[s] = NULL;
        r->moving &= ~(1u << s);
        for (int l = 0; l < MT_N_SIM_LINKS; l++) r->load[l] = r->moving ? r->load[l] - r->lane[s].ask[l] : 0;
    }
    for (int i = 0; i < m->n; i++) {
        struct mt_sim_rank *r = mt_sim_member(x, m, i);
        speed_others(x, r, s, r->lane[s].ask, t);
    }
}
