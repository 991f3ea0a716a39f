/* test: timeout=240 variants=release,asan
 *
 * `moetitan plan --search` against every combination of small spaces, planned one by one here, and inverse questions against the
 * answers' neighbours. */
#include "check.h"
#include "train/search.h"

#include "config/table.h"
#include "words.h"

#include <stddef.h>

#define OPTIONS                                                                                           \
    "model.vocab=64 model.dim=64 model.layers=3 model.heads=2 model.kv_heads=1 model.head_dim=32 "        \
    "model.experts=8 model.top_k=2 model.expert_ffn=32 model.shared_ffn=32 mesh.ep=2 "                    \
    "mesh.ranks_per_node=4 train.seq_len=64 train.global_batch=48 train.dtype=bf16 optim.warmup_steps=0 " \
    "device.scratch=1MiB"
enum { WORLD = 12, MOST = 64 };

static mt_err e;
static struct mt_cluster cluster;
static const struct mt_target *target;
static mt_config cfg;

static mt_status load(mt_config *c, const char *more)
{
    char text[2048];
    snprintf(text, sizeof text, "%s %s", OPTIONS, more);
    return words_load(c, text, &e);
}

/* A search of the options of `vary`, "key=v,v key=v,v". room: device bytes. */
static struct mt_search search_of(const char *vary, int world, int budget, double room)
{
    char text[512], *rest = text;
    cluster.of[MT_CLUSTER_size_device_other].value = 0;
    cluster.of[MT_CLUSTER_size_device].value = room;
    struct mt_search s = {.cfg = &cfg,
                          .cluster = &cluster,
                          .target = target,
                          .forecast = {.world = world, .seed = 1},
                          .budget = budget,
                          .finalists = MOST};
    snprintf(text, sizeof text, "%s", vary);
    for (char *word; (word = strtok_r(rest, " ", &rest));)
        if (!CHECK(mt_space_vary(&s.space, &cfg, word, &e) == MT_OK)) printf("  %s\n", e.msg);
    return s;
}

/* ---- the same by hand ---- */
struct plain {
    mt_status st;
    int64_t device;
    double rate; /* 0: it does not fit */
};
static struct plain plan(const char *changes, int world, double room)
{
    struct plain x = {0};
    struct mt_forecast f = {.s = {.cfg = NULL}};
    struct mt_forecast_times t = {0};
    struct mt_forecast_options o = {.world = world, .seed = 1};
    mt_config c;
    x.st = load(&c, changes);
    if (x.st != MT_OK) return x;
    x.st = mt_forecast_open(&f, &c, &cluster, target, &o, &e);
    if (x.st == MT_OK) {
        x.device = f.s.plan.peak[MT_DEVICE_ARENA];
        CHECK(mt_forecast_replay(&f, &cluster, MT_ALG_DIRECT, &t, &e) == MT_OK);
        if ((double)x.device <= room)
            x.rate = (double)(c.train_global_batch * c.train_seq_len) / t.step_s / world;
    }
    mt_forecast_times_release(&t);
    mt_forecast_close(&f);
    return x;
}

/* The best of all combinations. n: of them; least: bytes of the smallest. */
static struct plain best_by_hand(const struct mt_space *s, const char *always, int world, double room, int *n,
                                 int64_t *least)
{
    struct plain best = {0};
    char text[1024], *at;
    *least = INT64_MAX;
    for (*n = 0; *n < mt_space_size(s); ++*n) {
        int rest = *n;
        at = text + snprintf(text, sizeof text, "%s", always);
        for (int i = 0; i < s->n; i++) {
            at += sprintf(at, " %s=%s", mt_options[s->axis[i].option].key,
                          s->axis[i].value[rest % s->axis[i].n]);
            rest /= s->axis[i].n;
        }
        struct plain x = plan(text, world, room);
        if (x.rate > best.rate) best = x;
        if (x.st == MT_OK && x.device < *least) *least = x.device;
    }
    return best;
}

/* What the search says of each candidate is what planning it says. */
static void compare_points(const struct mt_search *s, double room)
{
    char changes[512], why[512];
    int too_large = 0, refused = 0;
    for (int i = 0; i < s->n; i++) {
        const struct mt_point *p = &s->point[i];
        mt_space_changes(&s->space, &p->choice, changes, sizeof changes);
        struct plain x = plan(changes, s->forecast.world, room);
        mt_search_reason(s, i, why, sizeof why);
        CHECK((x.st != MT_OK) == (p->verdict == MT_REFUSED));
        CHECK((why[0] == 0) == (i == s->best));
        if (x.st != MT_OK) {
            refused++;
            CHECK(strstr(why, "cannot run: ") && strlen(why) > 20);
            continue;
        }
        CHECK_INT(p->peak[MT_DEVICE_ARENA], x.device);
        CHECK(((double)x.device > room) == (p->verdict == MT_TOO_LARGE));
        if (p->verdict == MT_TOO_LARGE) {
            too_large++;
            CHECK(strstr(why, "does not fit: ") && strstr(why, "on the device"));
            CHECK(p->sample.rate <= 0 && p->whole.rate <= 0);
            CHECK_INT(p->excess, x.device - (int64_t)room);
        } else {
            CHECK_CLOSE(mt_point_estimate(p)->rate / x.rate, 1, 1e-9);
            CHECK(i == s->best || strstr(why, "slower by") || strstr(why, "no faster"));
        }
    }
    CHECK(too_large > 0 && refused > 0);
}

#define SMALL "train.micro_batch=1,2,3 recompute.policy=full,none mesh.ep=1,2,4 wire.reduce=f32,bf16"
TEST(the_best_of_all)
{
    int n;
    int64_t least;
    struct plain given = plan("", WORLD, 1e18);
    const double room = 1.05 * (double)given.device;
    struct mt_search all = search_of(SMALL, WORLD, 1000, room), some = search_of(SMALL, WORLD, 22, room);
    struct plain best = best_by_hand(&all.space, "", WORLD, room, &n, &least);
    CHECK(best.rate > 1.01 * given.rate && given.rate > 0 && n == 36);
    CHECK(mt_search_run(&all, &e) == MT_OK && mt_search_run(&some, &e) == MT_OK);
    CHECK(all.all && all.n == 36);
    CHECK(!some.all && some.n <= 22);
    CHECK_CLOSE(mt_point_estimate(&all.point[all.best])->rate / best.rate, 1, 1e-3);
    CHECK_CLOSE(mt_point_estimate(&some.point[some.best])->rate / best.rate, 1, 1e-3);
    compare_points(&all, room);
    int order[MOST];
    mt_search_order(&all, order);
    CHECK_INT(order[0], all.best);
    for (int i = 1; i < all.n; i++) {
        const struct mt_point *a = &all.point[order[i - 1]], *b = &all.point[order[i]];
        CHECK(a->verdict >= b->verdict);
        if (i > 1 && b->verdict == MT_FITS) CHECK(mt_point_estimate(a)->rate >= mt_point_estimate(b)->rate);
    }
    mt_search_release(&all);
    mt_search_release(&some);
}

/* From a start that does not fit, and with changes that fit only in pairs. */
TEST(the_whole_table)
{
    struct plain given = plan("", WORLD, 1e18);
    for (int k = 0; k < 2; k++) {
        double room = (k ? 0.9 : 1.3) * (double)given.device;
        struct mt_search s = search_of("", WORLD, 80, room), again;
        char changes[512];
        mt_space_fill(&s.space, &cfg);
        s.finalists = 3;
        again = s;
        CHECK(mt_search_run(&s, &e) == MT_OK && mt_search_run(&again, &e) == MT_OK);
        const struct mt_point *best = &s.point[s.best];
        CHECK(best->verdict == MT_FITS && best->whole.rate > 0 && s.sampled == 4);
        mt_space_changes(&s.space, &best->choice, changes, sizeof changes);
        struct plain x = plan(changes, WORLD, room);
        CHECK_CLOSE(x.rate / best->whole.rate, 1, 1e-9);
        if (k == 0) CHECK(x.rate > 1.02 * given.rate && s.point[0].whole.rate > 0);
        if (k == 1) CHECK(s.point[0].verdict == MT_TOO_LARGE);
        /* Deterministic. */
        CHECK_INT(s.n, again.n);
        CHECK_INT(s.best, again.best);
        for (int i = 0; i < s.n; i++) {
            const struct mt_point *p = &s.point[i], *q = &again.point[i];
            CHECK(!memcmp(&p->choice, &q->choice, sizeof p->choice) && p->verdict == q->verdict);
            CHECK(!memcmp(&p->sample, &q->sample, offsetof(struct mt_estimate, bound)));
            CHECK(!memcmp(&p->whole, &q->whole, offsetof(struct mt_estimate, bound)));
        }
        mt_search_release(&s);
        mt_search_release(&again);
    }
}

#define SAVES "recompute.policy=full,none offload.masters=device,host offload.moments=device,host"
TEST(the_fewest_nodes)
{
    int n;
    int64_t least;
    struct mt_asked a;
    /* Room for three nodes with all that saves, and not for two. */
    struct mt_search s = search_of(SAVES, WORLD, 100, 1e18);
    best_by_hand(&s.space, "", 12, 1e18, &n, &least);
    double room = 1.01 * (double)least;
    s = search_of(SAVES, 4 * WORLD, 100, room);
    CHECK(mt_search_ask(&a, MT_FEWEST_NODES, &s, 0, &e) == MT_OK);
    CHECK(a.found && a.value == 3 && a.beyond == 2);
    struct plain at = best_by_hand(&s.space, "", 12, room, &n, &least);
    CHECK_CLOSE(mt_point_estimate(&a.yes.point[a.yes.best])->rate / at.rate, 1, 1e-3);
    CHECK(best_by_hand(&s.space, "", 8, room, &n, &least).rate <= 0 && (double)least > room);
    CHECK_INT(a.no.point[a.no.best].excess, least - (int64_t)room);
    mt_asked_release(&a);

    s = search_of(SAVES, WORLD, 100, room / 2);
    CHECK(mt_search_ask(&a, MT_FEWEST_NODES, &s, 0, &e) == MT_OK);
    CHECK(!a.found && a.yes.point[a.yes.best].verdict == MT_TOO_LARGE);
    mt_asked_release(&a);
}

TEST(the_longest_sequence)
{
    int n;
    int64_t least;
    struct mt_asked a;
    char always[64];
    double room = 1.5 * (double)plan("", WORLD, 1e18).device;
    struct mt_search s = search_of(SAVES " train.seq_len=32,128", WORLD, 100, room);
    CHECK(mt_search_ask(&a, MT_LONGEST_SEQUENCE, &s, 0, &e) == MT_OK);
    CHECK(a.found && a.value > 64 && a.beyond > a.value && a.beyond <= a.value + a.value / 8);
    snprintf(always, sizeof always, "train.seq_len=%lld", (long long)a.value);
    CHECK_CLOSE(mt_point_estimate(&a.yes.point[a.yes.best])->rate /
                    best_by_hand(&a.yes.space, always, WORLD, room, &n, &least).rate,
                1, 1e-3);
    CHECK_INT(n, 8);
    snprintf(always, sizeof always, "train.seq_len=%lld", (long long)a.beyond);
    CHECK(best_by_hand(&a.yes.space, always, WORLD, room, &n, &least).rate <= 0 && (double)least > room);
    mt_asked_release(&a);
}

TEST(the_fewest_nodes_for_a_rate)
{
    int n;
    int64_t least;
    struct mt_asked a;
    struct mt_search s = search_of(SAVES, 4 * WORLD, 100, 1e18);
    double rate = 1.001 * 8 * best_by_hand(&s.space, "", 8, 1e18, &n, &least).rate;
    CHECK(mt_search_ask(&a, MT_TARGET_RATE, &s, rate, &e) == MT_OK);
    CHECK(a.found && a.value > 2 && a.beyond >= 2);
    int more = (int)(4 * a.value), fewer = (int)(4 * a.beyond);
    CHECK(more * best_by_hand(&s.space, "", more, 1e18, &n, &least).rate >= rate);
    CHECK(fewer * best_by_hand(&s.space, "", fewer, 1e18, &n, &least).rate < rate);
    mt_asked_release(&a);
    CHECK(mt_search_ask(&a, MT_TARGET_RATE, &s, 1e15, &e) == MT_OK && !a.found);
    mt_asked_release(&a);
}

TEST(what_may_be_varied)
{
    struct mt_space s = {.n = 0};
    static const char *const bad[] = {
        "train.seq_len",   "train.seq_len=",
        "train.seqlen=3",  "train.seq_len=x",
        "train.seq_len=0", "optim.groups=3",
        "run.dir=a,b",     "train.seq_len=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(mt_space_vary(&s, &cfg, bad[i], &e) == MT_CONFIG);
        s.n = 0;
    }
    mt_space_fill(&s, &cfg);
    int n = s.n;
    CHECK(mt_space_vary(&s, &cfg, "mesh.ep=2,4,4", &e) == MT_OK && s.n == n);
    CHECK(mt_space_vary(&s, &cfg, "train.seq_len=64,8Ki,8192", &e) == MT_OK && s.n == n + 1);
    CHECK(s.axis[n].n == 2 && *s.axis[n].note);
    CHECK(mt_space_vary(&s, &cfg, "data.balance=attention,none", &e) == MT_OK);
    int keep = 0; /* a text: commas are its own */
    while (s.axis[keep].option != MT_OPTION_recompute_keep) keep++;
    CHECK_INT(s.axis[keep].n, 4);
    CHECK(mt_space_vary(&s, &cfg, "recompute.keep='' qkv,attention ffn_up", &e) == MT_OK);
    CHECK_INT(s.axis[keep].n, 3);
    CHECK_STR(s.axis[keep].value[1], "qkv,attention");
    for (int i = 0; i < s.n; i++) {
        char own[MT_VALUE_TEXT];
        CHECK_STR(s.axis[i].value[0], mt_value_text(&mt_options[s.axis[i].option], &cfg, own));
        for (int k = 0; k < s.axis[i].n; k++)
            for (int v = 0; v < k; v++) CHECK(strcmp(s.axis[i].value[k], s.axis[i].value[v]) != 0);
        if (s.axis[i].option == MT_OPTION_mesh_ep) CHECK_INT(s.axis[i].n, 2);
    }
}

int main(void)
{
    if (!CHECK(mt_cluster_load(&cluster, "configs/clusters/jupiter.yaml", &e) == MT_OK &&
               mt_forecast_target(&cluster, &target, &e) == MT_OK && load(&cfg, "") == MT_OK))
        return DONE();
    RUN(the_best_of_all);
    RUN(the_whole_table);
    RUN(the_fewest_nodes);
    RUN(the_longest_sequence);
    RUN(the_fewest_nodes_for_a_rate);
    RUN(what_may_be_varied);
    return DONE();
}
