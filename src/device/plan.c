/* plan.c: places for the rows: the largest first, each at the lowest place free of the placed rows it may not
 * share with. */
#include <stdlib.h>
#include <string.h>

#include "device/lifetimes.h"

struct key {
    int64_t rank, bytes, def;
    int32_t row;
    bool persistent;
};
struct planner {
    struct mt_ledger *g;
    const struct mt_recording *q;
    struct mt_order order;
    struct mt_lifetimes lives;
    uint64_t *clash; /* a row of `words` words of bits a ledger row */
    size_t words;
    struct key *by;
    int32_t *placed; /* of one arena, by offset */
    int64_t *best;   /* offsets of the best layout so far */
};

static bool clashes(const struct planner *p, int32_t a, int32_t b)
{
    return p->clash[(size_t)a * p->words + (size_t)b / 64] >> (b % 64) & 1;
}
static void clash_set(struct planner *p, int32_t a, int32_t b)
{
    p->clash[(size_t)a * p->words + (size_t)b / 64] |= (uint64_t)1 << (b % 64);
}

static int64_t aligned(const struct mt_ledger *g, int64_t x)
{
    return (x + g->align - 1) / g->align * g->align;
}
static void lay_unshared(struct mt_ledger *g)
{
    memset(g->size, 0, sizeof g->size);
    for (int32_t i = 0; i < g->n; i++) {
        struct mt_row *r = &g->row[i];
        r->off = aligned(g, g->size[r->arena]);
        g->size[r->arena] = r->off + r->bytes;
    }
}

/* Orders to try: by size; by size class (powers of two); by time alone. Equal ranks go by first use: first
 * fit in order of time is optimal for intervals of one size, and the rows that matter are many of one
 * size. */
enum { N_SORTS = 3 };
static int64_t sort_rank(const struct key *k, int sort)
{
    return sort == 0 ? k->bytes : sort == 1 ? 64 - __builtin_clzll((unsigned long long)k->bytes) : 0;
}
static int by_rank(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->persistent != y->persistent) return y->persistent - x->persistent;
    if (x->rank != y->rank) return x->rank < y->rank ? 1 : -1;
    return x->def != y->def ? (x->def > y->def) - (x->def < y->def) : x->row - y->row;
}
static void keys_sort(struct planner *p, int sort)
{
    for (int32_t i = 0; i < p->g->n; i++) {
        const struct mt_row *r = &p->g->row[i];
        int32_t first = p->lives.first[i];
        p->by[i] = (struct key){.bytes = r->bytes,
                                .def = first < 0 ? 0 : p->lives.life[first].def,
                                .row = i,
                                .persistent = mt_row_persistent((enum mt_row_class)r->row_class)};
        p->by[i].rank = sort_rank(&p->by[i], sort);
    }
    qsort(p->by, (size_t)p->g->n, sizeof *p->by, by_rank);
}

static void place_row(struct planner *p, int32_t row, int32_t *n)
{
    struct mt_row *r = &p->g->row[row];
    int64_t at = 0;
    for (int32_t i = 0; i < *n; i++) {
        const struct mt_row *o = &p->g->row[p->placed[i]];
        if (o->off >= at + r->bytes) break;
        if (o->off + o->bytes > at && clashes(p, row, p->placed[i])) at = aligned(p->g, o->off + o->bytes);
    }
    r->off = at;
    int32_t k = (*n)++;
    for (; k > 0 && p->g->row[p->placed[k - 1]].off > at; k--) p->placed[k] = p->placed[k - 1];
    p->placed[k] = row;
}
static int64_t place_arena(struct planner *p, int arena)
{
    int64_t peak = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < p->g->n; i++) {
        const struct mt_row *r = &p->g->row[p->by[i].row];
        if (r->arena != arena) continue;
        place_row(p, p->by[i].row, &n);
        if (r->off + r->bytes > peak) peak = r->off + r->bytes;
    }
    return peak;
}
/* Each arena keeps its own best order. */
static void place_all(struct planner *p, struct mt_plan_info *info)
{
    for (int sort = 0; sort < N_SORTS; sort++) {
        keys_sort(p, sort);
        for (int a = 0; a < MT_N_ARENAS; a++) {
            int64_t peak = place_arena(p, a);
            if (sort && peak >= info->peak[a]) continue;
            info->peak[a] = peak;
            for (int32_t i = 0; i < p->g->n; i++)
                if (p->g->row[i].arena == a) p->best[i] = p->g->row[i].off;
        }
    }
    for (int32_t i = 0; i < p->g->n; i++) p->g->row[i].off = p->best[i];
    memcpy(p->g->size, info->peak, sizeof p->g->size);
}

/* Members of a clique of clashing rows need places of their own: a lower bound of any layout. Greedy from
 * every row, the heaviest first. */
static void bound_find(struct planner *p, struct mt_plan_info *info)
{
    uint64_t *open = malloc(p->words * sizeof *open); /* rows that clash with all members */
    MT_ASSERT(open);
    keys_sort(p, 0);
    for (int32_t seed = 0; seed < p->g->n; seed++) {
        const struct mt_row *r = &p->g->row[p->by[seed].row];
        int64_t bytes = r->bytes;
        memcpy(open, p->clash + (size_t)p->by[seed].row * p->words, p->words * sizeof *open);
        for (int32_t i = 0; i < p->g->n; i++) {
            int32_t row = p->by[i].row;
            if (!(open[row / 64] >> (row % 64) & 1)) continue;
            bytes += p->g->row[row].bytes;
            for (size_t w = 0; w < p->words; w++) open[w] &= p->clash[(size_t)row * p->words + w];
        }
        if (bytes > info->bound[r->arena]) info->bound[r->arena] = bytes;
    }
    free(open);
}
static void live_find(const struct planner *p, struct mt_plan_info *info)
{
    int64_t *delta = calloc((size_t)(p->q->n + 1) * MT_N_ARENAS, sizeof *delta), live[MT_N_ARENAS] = {0};
    MT_ASSERT(delta);
    for (int32_t i = 0; i < p->g->n; i++) {
        const struct mt_row *r = &p->g->row[i];
        if (mt_row_persistent((enum mt_row_class)r->row_class)) live[r->arena] += r->bytes;
    }
    for (int32_t i = 0; i < p->lives.n; i++) {
        const struct mt_life *l = &p->lives.life[i];
        const struct mt_row *r = &p->g->row[l->row];
        if (mt_row_persistent((enum mt_row_class)r->row_class)) continue;
        delta[l->def * MT_N_ARENAS + r->arena] += r->bytes;
        delta[(l->last + 1) * MT_N_ARENAS + r->arena] -= r->bytes;
    }
    for (int64_t i = 0; i <= p->q->n; i++)
        for (int a = 0; a < MT_N_ARENAS; a++) {
            if ((live[a] += delta[i * MT_N_ARENAS + a]) <= info->live[a]) continue;
            info->live[a] = live[a];
            info->fullest[a] = i;
        }
    free(delta);
}

static mt_status race_report(const struct mt_ledger *g, const struct mt_recording *q, const char *doing,
                             mt_err *e)
{
    struct mt_race race;
    if (!mt_races_find(q, g, -1, false, &race, 1)) return MT_OK;
    const struct mt_rec *a = &q->rec[race.first], *b = &q->rec[race.second];
    MT_FAIL(e, MT_INTERNAL,
            "%s: %s: %s (record %lld, stream %d, position %lld) and %s (record %lld, stream %d, position "
            "%lld) on row %s",
            doing,
            race.lost ? "contents are lost: the first writes over what the second reads"
                      : "a race: no event orders the two",
            mt_rec_name(a), (long long)race.first, a->stream, (long long)a->seq, mt_rec_name(b),
            (long long)race.second, b->stream, (long long)b->seq, g->row[race.row].name);
}
mt_status mt_plan_check(const struct mt_ledger *g, const struct mt_recording *q, mt_err *e)
{
    return race_report(g, q, "checking the memory plan", e);
}

static void plan_lay(struct planner *p, struct mt_plan_info *info)
{
    int32_t n = p->g->n;
    p->words = (size_t)(n + 63) / 64;
    p->clash = calloc((size_t)n * p->words + 1, sizeof *p->clash);
    p->by = malloc((size_t)(n + 1) * sizeof *p->by);
    p->placed = malloc((size_t)(n + 1) * sizeof *p->placed);
    p->best = malloc((size_t)(n + 1) * sizeof *p->best);
    MT_ASSERT(p->clash && p->by && p->placed && p->best);
    for (int32_t a = 0; a < n; a++)
        for (int32_t b = 0; b < a; b++)
            if (mt_lifetimes_clash(&p->lives, p->g, p->q, &p->order, a, b)) {
                clash_set(p, a, b);
                clash_set(p, b, a);
            }
    place_all(p, info);
    if (info->want_bound) bound_find(p, info);
    live_find(p, info);
    free(p->clash);
    free(p->by);
    free(p->placed);
    free(p->best);
}

mt_status mt_plan(struct mt_ledger *g, const struct mt_recording *q, struct mt_plan_info *info, mt_err *e)
{
    *info = (struct mt_plan_info){.bytes_only = info->bytes_only, .want_bound = info->want_bound};
    lay_unshared(g);
    memcpy(info->unshared, g->size, sizeof g->size);
    if (!info->bytes_only) MT_TRY(race_report(g, q, "planning memory", e));
    struct planner p = {.g = g, .q = q};
    mt_order_init(&p.order, q, -1, false);
    mt_status st = mt_lifetimes_find(&p.lives, g, q, e);
    if (st == MT_OK) plan_lay(&p, info);
    mt_lifetimes_release(&p.lives);
    mt_order_release(&p.order);
    return st == MT_OK && !info->bytes_only ? mt_plan_check(g, q, e) : st;
}
