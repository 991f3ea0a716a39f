#include "train/savings.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/rule.h"
#include "config/table.h"
#include "train/session.h"

/* What can be turned to save memory: X(field of the option, LESS than now, MORE, or just BE, values from mild to strong ('':
 * an empty text), what it costs). Cheapest in time first. Options that change what is learned are not here, but for roundings. */
#define LEVERS(X)                                                                                           \
    X(train_loss_chunk, LESS, "512 256 128 64", "smaller products of the head")                             \
    X(muon_batch_bytes, LESS, "32MiB 16MiB 8MiB 4MiB 1MiB 256KiB 1", "fewer matrices iterated on together") \
    X(muon_dense, BE, "exchange", "none")                                                                   \
    X(shard_prefetch, LESS, "2 1", "gathers hidden less")                                                   \
    X(shard_grads, LESS, "1", "reductions hidden less")                                                     \
    X(offload_activations_prefetch, LESS, "2 1", "copies hidden less")                                      \
    X(offload_activations_fraction, MORE, "0.25 0.5 0.75 1", "copies to host memory and back")              \
    X(recompute_keep_on, BE, "host", "copies to host memory and back")                                      \
    X(offload_moments, BE, "host", "copies to host memory and back in the optimizer")                       \
    X(offload_masters, BE, "host", "copies to host memory and back in the optimizer")                       \
    X(offload_grads, BE, "host", "copies to host memory and back of every sum of gradients")                \
    X(offload_slots, LESS, "4 3 2 1", "copies of the optimizer hidden less")                                \
    X(offload_slot_bytes, LESS, "32MiB 16MiB 8MiB 4MiB 1MiB 256KiB 1", "smaller copies of the optimizer")   \
    X(shard_keep_last, LESS, "2 1 0", "more gathers")                                                       \
    X(shard_reshard_dense, LESS, "node world", "more gathers")                                              \
    X(shard_reshard_experts, LESS, "node world", "more gathers")                                            \
    X(shard_host_weights, LESS, "experts dense none", "more gathers")                                       \
    X(moe_buffer_factor, LESS, "1 0.75 0.5 0.25 0.125", "more rounds of dispatch")                          \
    X(recompute_keep, BE, "''", "more is computed again")                                                   \
    X(recompute_policy, LESS, "selective full", "more is computed again")                                   \
    X(train_micro_order, BE, "batch", "more gathers and reductions")                                        \
    X(wire_reduce, BE, "bf16", "each rank's gradient rounded once")                                         \
    X(train_micro_batch, LESS, "64 48 32 24 16 12 8 6 4 3 2 1", "smaller products, more gathers")           \
    X(mesh_ep, MORE, "2 4 8", "experts' rows travel")                                                       \
    X(mesh_replicas, LESS, "64 32 16 8 4 2 1", "larger groups to gather in")

enum towards { LESS, MORE, BE };
static const struct lever {
    mt_option_id option;
    enum towards towards;
    const char *values, *price;
} levers[] = {
#define X(field, towards, values, price) {MT_OPTION_##field, towards, values, price},
    LEVERS(X)
#undef X
};
enum { N_LEVERS = sizeof levers / sizeof *levers, RUNGS = 16 };
_Static_assert((int)N_LEVERS <= (int)MT_SAVINGS_MOST, "room for every lever");

int64_t mt_room_excess(const struct mt_room *room, const int64_t peak[MT_N_ARENAS])
{
    int64_t excess = 0, both = 0;
    for (int a = 0; a < MT_N_ARENAS; a++) {
        both += peak[a];
        if (room->arena[a] && peak[a] > room->arena[a]) excess += peak[a] - room->arena[a];
    }
    return room->both && both > room->both ? excess + both - room->both : excess;
}

/* One lever's values that make sense for this run, and what came of it alone. */
struct ladder {
    char rung[RUNGS][MT_SAVING_TEXT];
    int n;
    bool tried; /* with success: */
    struct mt_saving best;
};
struct outcome {
    int64_t peak[MT_N_ARENAS], excess;
};
struct search {
    const mt_config *cfg;
    const struct mt_target *target;
    int world, rank;
    bool inference;
    const struct mt_room *room;
    int64_t excess; /* as it is */
    struct ladder ladder[N_LEVERS];
    atomic_int next; /* lever to be tried */
};

/* ---- variants ---- */
static double number(const mt_option *o, const mt_config *c)
{
    int64_t i;
    double x;
    int choice;
    const char *at = (const char *)c + o->offset;
    if (o->type == MT_VALUE_CHOICE) return memcpy(&choice, at, sizeof choice), choice;
    if (o->type == MT_VALUE_FLOAT) return memcpy(&x, at, sizeof x), x;
    memcpy(&i, at, sizeof i);
    return (double)i;
}

/* False: the value is no change in the lever's direction. */
static bool turn(const struct lever *l, const char *value, const mt_config *from, mt_config *to)
{
    const mt_option *o = &mt_options[l->option];
    char why[MT_VALUE_WHY], before[MT_VALUE_TEXT], after[MT_VALUE_TEXT];
    bool known = mt_value_set(o, to, value, why);
    MT_ASSERT(known);
    if (l->towards == BE) return strcmp(mt_value_text(o, from, before), mt_value_text(o, to, after)) != 0;
    return l->towards == LESS ? number(o, to) < number(o, from) : number(o, to) > number(o, from);
}

/* The run with lever i at rung at[i]; -1: as it is. False: it is no legal configuration, or no legal mesh. */
static bool plan(const struct search *s, const int at[N_LEVERS], struct outcome *out)
{
    mt_err e = {0};
    mt_config *c = malloc(sizeof *c);
    MT_ASSERT(c);
    *c = *s->cfg;
    for (int i = 0; i < N_LEVERS; i++)
        if (at[i] >= 0) (void)turn(&levers[i], s->ladder[i].rung[at[i]], s->cfg, c);
    mt_status st = mt_config_check(c, &e);
    if (st == MT_OK && !s->inference) st = mt_config_check_world(c, s->world, &e);
    if (st == MT_OK) st = mt_session_peak(c, s->target, s->world, s->rank, s->inference, out->peak, &e);
    out->excess = mt_room_excess(s->room, out->peak);
    free(c);
    return st == MT_OK;
}

static void ladder_fill(struct search *s, int lever)
{
    struct ladder *l = &s->ladder[lever];
    char text[256], *rest = text;
    mt_config *c = malloc(sizeof *c);
    MT_ASSERT(c);
    snprintf(text, sizeof text, "%s", levers[lever].values);
    for (const char *value; (value = strtok_r(rest, " ", &rest)) && l->n < RUNGS;) {
        if (!strcmp(value, "''")) value = "";
        mt_err e = {0};
        *c = *s->cfg;
        if (!turn(&levers[lever], value, s->cfg, c) || mt_config_check(c, &e) != MT_OK ||
            (!s->inference && mt_config_check_world(c, s->world, &e) != MT_OK))
            continue;
        snprintf(l->rung[l->n++], MT_SAVING_TEXT, "%s", value);
    }
    free(c);
}

/* The mildest rung of a lever with which, others as in `at`, the excess is at most `most`; at[lever] has one such. */
static void soften(const struct search *s, int lever, int at[N_LEVERS], int64_t most, struct outcome *out)
{
    int low = 0, high = at[lever];
    while (low < high) {
        struct outcome o;
        at[lever] = (low + high) / 2;
        if (plan(s, at, &o) && o.excess <= most) {
            high = at[lever];
            *out = o;
        } else {
            low = at[lever] + 1;
        }
    }
    at[lever] = high;
}

/* ---- each alone ---- */
static void try_alone(struct search *s, int lever)
{
    struct ladder *l = &s->ladder[lever];
    struct outcome o;
    int at[N_LEVERS];
    for (int i = 0; i < N_LEVERS; i++) at[i] = -1;
    ladder_fill(s, lever);
    /* The strongest that the mesh allows is the last rung. */
    for (; l->n > 0 && !l->tried; l->n -= !l->tried) {
        at[lever] = l->n - 1;
        l->tried = plan(s, at, &o);
    }
    if (!l->tried) return;
    if (o.excess < s->excess) soften(s, lever, at, o.excess, &o);
    l->best =
        (struct mt_saving){.option = levers[lever].option, .price = levers[lever].price, .excess = o.excess};
    memcpy(l->best.value, l->rung[at[lever]], MT_SAVING_TEXT);
    memcpy(l->best.peak, o.peak, sizeof o.peak);
}

static void *try_some(void *arg)
{
    struct search *s = arg;
    for (int i; (i = atomic_fetch_add(&s->next, 1)) < N_LEVERS;) try_alone(s, i);
    return NULL;
}

static void try_all(struct search *s)
{
    const struct mt_set cpus = mt_cpus_mine();
    pthread_t thread[N_LEVERS];
    int n = 0, most = mt_set_count(&cpus);
    while (n < most - 1 && n < N_LEVERS - 1 && !pthread_create(&thread[n], NULL, try_some, s)) n++;
    try_some(s);
    while (n > 0) pthread_join(thread[--n], NULL);
}

/* ---- together ---- */
static int64_t excess_alone(const struct search *s, int lever)
{
    return s->ladder[lever].tried ? s->ladder[lever].best.excess : INT64_MAX;
}

/* One lever after the other, the greatest saving first, as long as it helps. */
static void add_greedily(const struct search *s, int at[N_LEVERS], struct outcome *out)
{
    bool seen[N_LEVERS] = {false};
    for (int k = 0; k < N_LEVERS && out->excess; k++) {
        struct outcome o;
        int next = -1;
        for (int i = 0; i < N_LEVERS; i++)
            if (!seen[i] && (next < 0 || excess_alone(s, i) < excess_alone(s, next))) next = i;
        seen[next] = true;
        if (excess_alone(s, next) > s->excess) return;
        at[next] = s->ladder[next].n - 1;
        if (plan(s, at, &o) && o.excess < out->excess)
            *out = o;
        else
            at[next] = -1;
    }
}

/* Leaves out what is not needed, the costliest first, and makes the rest as mild as it may be. */
static void prune(const struct search *s, int at[N_LEVERS], struct outcome *out)
{
    for (int i = N_LEVERS - 1; i >= 0; i--) {
        struct outcome o;
        int was = at[i];
        if (was < 0) continue;
        at[i] = -1;
        if (plan(s, at, &o) && o.excess <= out->excess)
            *out = o;
        else
            at[i] = was;
    }
    for (int i = N_LEVERS - 1; i >= 0; i--)
        if (at[i] >= 0) soften(s, i, at, out->excess, out);
}

/* Levers that save nothing alone may do so when others no longer hide it: if need be, all at once are looked at, too. */
static void combine(const struct search *s, const int64_t peak[MT_N_ARENAS], struct mt_savings *f)
{
    int all[N_LEVERS], at[N_LEVERS];
    struct outcome o = {.excess = s->excess}, most;
    memcpy(o.peak, peak, sizeof o.peak);
    for (int i = 0; i < N_LEVERS; i++) {
        at[i] = -1;
        all[i] = excess_alone(s, i) <= s->excess ? s->ladder[i].n - 1 : -1;
    }
    add_greedily(s, at, &o);
    if (o.excess && plan(s, all, &most) && most.excess < o.excess) {
        memcpy(at, all, sizeof at);
        o = most;
    }
    prune(s, at, &o);
    for (int i = 0; i < N_LEVERS; i++) {
        if (at[i] < 0) continue;
        struct mt_saving *x = &f->together[f->n_together++];
        *x = (struct mt_saving){.option = levers[i].option, .price = levers[i].price};
        memcpy(x->value, s->ladder[i].rung[at[i]], MT_SAVING_TEXT);
    }
    memcpy(f->together_peak, o.peak, sizeof o.peak);
    f->together_excess = o.excess;
}

void mt_savings_find(struct mt_savings *f, const mt_config *cfg, const struct mt_target *target, int world,
                     int rank, bool inference, const struct mt_room *room, const int64_t peak[MT_N_ARENAS])
{
    bool enough = false;
    struct search s = {.cfg = cfg,
                       .target = target,
                       .world = world,
                       .rank = rank,
                       .inference = inference,
                       .room = room,
                       .excess = mt_room_excess(room, peak)};
    *f = (struct mt_savings){0};
    try_all(&s);
    for (int i = 0; i < N_LEVERS; i++) {
        if (excess_alone(&s, i) >= s.excess) continue;
        f->alone[f->n++] = s.ladder[i].best;
        enough |= s.ladder[i].best.excess == 0;
    }
    if (!enough) combine(&s, peak, f);
}
