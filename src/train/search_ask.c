/* search_ask.c: inverse questions: the hardest value that still does, by bisection over the legal ones. On the way searches are brief
 * and begin at the options with which the last value did: harder values seldom want others. What is taken to be so, that a
 * harder value does not do where an easier one does not, is checked at the answer: its harder neighbour is searched in full. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/search.h"

enum {
    OCTAVE = 8,
    LONGER = 6,
    SHORTER = 4,
    LEAST = OCTAVE
}; /* lengths: 8 in each doubling, times 2^6 to 2^-4 */

struct asking {
    struct mt_asked *a;
    const struct mt_search *like;
    double target;
    int64_t *value; /* hardest first */
    int n;
    struct mt_choice start; /* with which an easier value did */
};
enum aim { BRIEFLY, IN_FULL, FOR_SPEED };

/* ---- one value ---- */
static int64_t world_of(const struct asking *x, int64_t value)
{
    return x->a->question == MT_LONGEST_SEQUENCE ? x->like->forecast.world
                                                 : value * x->like->cfg->mesh_ranks_per_node;
}
static bool reached(const struct asking *x, const struct mt_search *s)
{
    const struct mt_point *p = &s->point[s->best];
    if (p->verdict != MT_FITS) return false;
    return x->a->question != MT_TARGET_RATE || mt_point_estimate(p)->rate * s->forecast.world >= x->target;
}

static mt_status probe(const struct asking *x, int64_t value, enum aim aim, struct mt_search *s,
                       mt_config **cfg, mt_err *e)
{
    int kept = 0;
    mt_search_release(s);
    free(*cfg);
    *s = *x->like;
    s->point = NULL;
    *cfg = malloc(sizeof **cfg);
    MT_REQUIRE(*cfg, e, MT_IO, "no memory for a configuration");
    **cfg = *x->like->cfg;
    s->cfg = *cfg;
    s->forecast.world = (int)world_of(x, value);
    if (x->a->question == MT_LONGEST_SEQUENCE) {
        (*cfg)->train_seq_len = value;
        for (int i = 0; i < s->space.n; i++) /* it is what is asked for */
            if (s->space.axis[i].option != MT_OPTION_train_seq_len) s->space.axis[kept++] = s->space.axis[i];
        s->space.n = kept;
    }
    bool rate = x->a->question == MT_TARGET_RATE;
    s->start = x->start;
    s->brief = aim == BRIEFLY;
    s->only_fit = aim != FOR_SPEED && !rate;
    s->enough = rate && aim != FOR_SPEED ? x->target / s->forecast.world : 0;
    x->a->tried++;
    return mt_search_run(s, e);
}

/* ---- which values there are ---- */
/* Some value of a single option makes it legal: sizes of batches that divide, above all. */
static bool legal(const struct asking *x, int64_t value, mt_config *c, mt_config *out)
{
    const struct mt_space *s = &x->like->space;
    mt_err e = {0};
    *c = *x->like->cfg;
    if (x->a->question == MT_LONGEST_SEQUENCE) c->train_seq_len = value;
    for (int i = 0; i < s->n; i++)
        for (int v = i ? 1 : 0; v < s->axis[i].n; v++) {
            struct mt_choice p = {{0}};
            p.at[i] = (int8_t)v;
            if (mt_space_apply(s, &p, c, world_of(x, value), out, &e) == MT_OK) return true;
        }
    struct mt_choice given = {{0}};
    return mt_space_apply(s, &given, c, world_of(x, value), out, &e) == MT_OK;
}

static void list_nodes(struct asking *x, mt_config *c, mt_config *out)
{
    int64_t most = x->like->forecast.world / x->like->cfg->mesh_ranks_per_node;
    for (int64_t n = 1; n <= most; n++)
        if (legal(x, n, c, out)) x->value[x->n++] = n;
}
static void list_lengths(struct asking *x, mt_config *c, mt_config *out)
{
    int64_t base = x->like->cfg->train_seq_len;
    for (int k = LONGER; k >= -SHORTER; k--)
        for (int64_t i = OCTAVE - 1; i >= 0; i--) {
            int64_t whole = (k >= 0 ? base << k : base >> -k), v = whole + whole * i / OCTAVE;
            bool room = v >= LEAST && v <= INT64_C(16) << 20;
            if (room && (!x->n || v < x->value[x->n - 1]) && legal(x, v, c, out)) x->value[x->n++] = v;
        }
}

static mt_status list_values(struct asking *x, mt_err *e)
{
    size_t most = (size_t)x->like->forecast.world + (LONGER + SHORTER + 1) * OCTAVE;
    mt_config *c = malloc(2 * sizeof *c);
    x->value = calloc(most, sizeof *x->value);
    bool room = c && x->value;
    if (room && x->a->question == MT_LONGEST_SEQUENCE) list_lengths(x, c, c + 1);
    if (room && x->a->question != MT_LONGEST_SEQUENCE) list_nodes(x, c, c + 1);
    free(c);
    MT_REQUIRE(room, e, MT_IO, "no memory for the values of a question");
    MT_REQUIRE(
        x->n, e, MT_CONFIG,
        "no number of nodes up to %lld suits train.global_batch: %lld with any of the values that are tried",
        (long long)(x->like->forecast.world / x->like->cfg->mesh_ranks_per_node),
        (long long)x->like->cfg->train_global_batch);
    return MT_OK;
}

/* ---- the answer ---- */
static void keep_failed(struct mt_asked *a, struct mt_search *s, mt_config **cfg, int64_t value)
{
    mt_search_release(&a->no);
    free(a->cfg_no);
    a->no = *s;
    a->cfg_no = *cfg;
    a->beyond = value;
    s->point = NULL;
    *cfg = NULL;
}

/* Does value[at] do? Then its options are where the next search starts. */
static mt_status try_value(struct asking *x, int at, enum aim aim, bool *does, mt_err *e)
{
    struct mt_search s = {.n = 0};
    mt_config *cfg = NULL;
    mt_status st = probe(x, x->value[at], aim, &s, &cfg, e);
    *does = st == MT_OK && reached(x, &s);
    if (*does)
        x->start = s.point[s.best].choice;
    else if (st == MT_OK && aim == IN_FULL)
        keep_failed(x->a, &s, &cfg, x->value[at]);
    mt_search_release(&s);
    free(cfg);
    return st;
}

static mt_status bisect(struct asking *x, mt_err *e)
{
    struct mt_asked *a = x->a;
    int hard = -1, easy = x->n - 1;
    bool does;
    MT_TRY(probe(x, x->value[easy], IN_FULL, &a->yes, &a->cfg_yes, e));
    a->found = reached(x, &a->yes);
    a->value = x->value[easy];
    if (!a->found) return MT_OK;
    x->start = a->yes.point[a->yes.best].choice;
    while (easy - hard > 1) {
        int mid = (easy + hard) / 2;
        MT_TRY(try_value(x, mid, BRIEFLY, &does, e));
        *(does ? &easy : &hard) = mid;
    }
    for (does = true; does && easy > 0; easy -= does) MT_TRY(try_value(x, easy - 1, IN_FULL, &does, e));
    a->value = x->value[easy];
    return probe(x, a->value, FOR_SPEED, &a->yes, &a->cfg_yes, e);
}

mt_status mt_search_ask(struct mt_asked *a, enum mt_question question, const struct mt_search *like,
                        double target, mt_err *e)
{
    struct asking x = {.a = a, .like = like, .target = target};
    *a = (struct mt_asked){.question = question};
    mt_status st = list_values(&x, e);
    if (st == MT_OK) st = bisect(&x, e);
    free(x.value);
    return st;
}

void mt_asked_release(struct mt_asked *a)
{
    mt_search_release(&a->yes);
    mt_search_release(&a->no);
    free(a->cfg_yes);
    free(a->cfg_no);
    a->cfg_yes = a->cfg_no = NULL;
}
