/* The router: logits, choice, sorting, gradients, load balance. */
#include "kernel_check.h"

/* ---- products with the router's weight ---- */

struct mats {
    int64_t N, E, D;
    double *x, *w, *dl;
};
static struct mats mats_new(mt_dtype t, int64_t N, int64_t E, int64_t D)
{
    struct mats r = {
        N, E, D, kc_random(t, N * D, 1, 1), kc_random(MT_F32, E * D, 1, 2), kc_random(MT_F32, N * E, 1, 3)};
    for (int64_t i = 0; i < N * E; i += 3) r.dl[i] = 0; /* experts that got no gradient */
    return r;
}
static void mats_free(struct mats *r)
{
    free(r->x), free(r->w), free(r->dl);
}
static const int64_t mat_sizes[][3] = {{1, 1, 1}, {13, 7, 45}, {130, 18, 700}, {5, 33, 64}, {0, 8, 20}};

TEST(logits)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 5; s++) {
            struct mats r = mats_new(t, mat_sizes[s][0], mat_sizes[s][1], mat_sizes[s][2]);
            struct kc k = {.op = MT_OP_router_logits, .kernel = mt_cpu_router_logits};
            double *want = kc_new(r.N * r.E);
            for (int64_t n = 0; n < r.N; n++)
                for (int64_t e = 0; e < r.E; e++)
                    for (int64_t i = 0; i < r.D; i++)
                        want[n * r.E + e] += r.x[n * r.D + i] * r.w[e * r.D + i];
            kc_arg(&k, MT_F32, r.N, r.E, 0, 1, NULL);
            kc_arg(&k, t, r.N, r.D, 0, 3, r.x);
            kc_arg(&k, MT_F32, r.E, r.D, 0, 2, r.w);
            kc_run(&k);
            kc_check_close(&k, 0, want, 1e-6);
            free(want);
            kc_release(&k);
            mats_free(&r);
        }
    }
}
TEST(gradient_of_x)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 5; s++) {
            struct mats r = mats_new(t, mat_sizes[s][0], mat_sizes[s][1], mat_sizes[s][2]);
            struct kc k = {.op = MT_OP_router_bwdx, .kernel = mt_cpu_router_bwdx};
            kc_arg(&k, t, r.N, r.D, 0, 3, r.x);
            kc_arg(&k, MT_F32, r.N, r.E, 0, 1, r.dl);
            kc_arg(&k, MT_F32, r.E, r.D, 0, 2, r.w);
            kc_run(&k);
            for (int64_t n = 0; n < r.N; n++)
                for (int64_t e = 0; e < r.E; e++)
                    for (int64_t i = 0; i < r.D; i++)
                        r.x[n * r.D + i] += r.dl[n * r.E + e] * r.w[e * r.D + i];
            kc_check_close(&k, 0, r.x, 1e-6);
            kc_release(&k);
            mats_free(&r);
        }
    }
}
TEST(gradient_of_w)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 5; s++) {
            struct mats r = mats_new(t, mat_sizes[s][0], mat_sizes[s][1], mat_sizes[s][2]);
            struct kc k = {.op = MT_OP_router_bwdw, .kernel = mt_cpu_router_bwdw};
            kc_arg(&k, MT_F32, r.E, r.D, 0, 2, r.w);
            kc_arg(&k, MT_F32, r.N, r.E, 0, 1, r.dl);
            kc_arg(&k, t, r.N, r.D, 0, 3, r.x);
            kc_run(&k);
            for (int64_t n = 0; n < r.N; n++)
                for (int64_t e = 0; e < r.E; e++)
                    for (int64_t i = 0; i < r.D; i++)
                        r.w[e * r.D + i] += r.dl[n * r.E + e] * r.x[n * r.D + i];
            kc_check_close(&k, 0, r.w, 1e-6);
            kc_release(&k);
            mats_free(&r);
        }
    }
}

/* ---- choice and gates, and their gradient ---- */

struct route {
    int64_t N, E, K, score, norm, forced, groups, limit, best2;
    double scale;
    double *logits, *bias, *ids, *gates, *dgates, *dlogits;
    bool frozen; /* ids stay as they are: what is differentiated */
};
static struct route route_new(int64_t N, int64_t E, int64_t K, int variant)
{
    struct route r = {.N = N,
                      .E = E,
                      .K = K,
                      .groups = 1,
                      .limit = 1,
                      .score = variant & 1,
                      .norm = variant >> 1,
                      .scale = variant == 2 ? 1 : 2.5};
    r.logits = kc_random(MT_F32, N * E, 4, 1);
    r.bias = kc_random(MT_F32, E, 0.05, 2);
    r.dgates = kc_random(MT_F32, N * K, 1, 3);
    r.ids = kc_new(N * K);
    r.gates = kc_new(N * K);
    r.dlogits = kc_new(N * E);
    return r;
}
static void route_free(struct route *r)
{
    double *all[] = {r->logits, r->bias, r->ids, r->gates, r->dgates, r->dlogits};
    for (int i = 0; i < 6; i++) free(all[i]);
}
static void scores(const struct route *r, int64_t n, double *s)
{
    double sum = 0, top = -INFINITY;
    for (int64_t e = 0; e < r->E; e++) top = fmax(top, r->logits[n * r->E + e]);
    for (int64_t e = 0; e < r->E; e++) sum += s[e] = exp(r->logits[n * r->E + e] - top);
    for (int64_t e = 0; e < r->E; e++) s[e] = r->score ? 1 / (1 + exp(-r->logits[n * r->E + e])) : s[e] / sum;
}
/* Groups in the order of their scores, found by sorting: those behind the first `limit` are out. */
struct group {
    double score;
    int64_t id;
};
static int better_group(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : x->id < y->id ? -1 : 1;
}
static int falling(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x > *y ? -1 : *x < *y;
}
static void route_groups(const struct route *r, double *choice)
{
    int64_t n = r->E / r->groups;
    struct group *g = calloc((size_t)r->groups, sizeof *g);
    double *own = kc_new(n);
    MT_ASSERT(g);
    for (int64_t i = 0; i < r->groups; i++) {
        memcpy(own, choice + i * n, (size_t)n * sizeof *own);
        qsort(own, (size_t)n, sizeof *own, falling);
        g[i] = (struct group){r->best2 ? own[0] + own[1] : own[0], i};
    }
    qsort(g, (size_t)r->groups, sizeof *g, better_group);
    for (int64_t i = r->limit; i < r->groups; i++)
        for (int64_t e = 0; e < n; e++) choice[g[i].id * n + e] = -INFINITY;
    free(g), free(own);
}
static void route_fwd(struct route *r)
{
    double *s = kc_new(r->E), *choice = kc_new(r->E);
    for (int64_t n = 0; n < r->N; n++) {
        double sum = 0;
        scores(r, n, s);
        for (int64_t e = 0; e < r->E; e++) choice[e] = s[e] + r->bias[e];
        if (r->groups > 1) route_groups(r, choice);
        for (int64_t k = 0; k < r->K; k++) {
            int64_t best = 0;
            for (int64_t e = 1; e < r->E; e++)
                if (choice[e] > choice[best]) best = e;
            if (!r->frozen) r->ids[n * r->K + k] = (double)best;
            choice[best] = -INFINITY;
            sum += s[(int64_t)r->ids[n * r->K + k]];
        }
        for (int64_t k = 0; k < r->K; k++)
            r->gates[n * r->K + k] = r->scale * s[(int64_t)r->ids[n * r->K + k]] /
                                     (r->norm ? sum + 1e-20 : 1);
    }
    free(s), free(choice);
}
/* d gate_k / d s_j, then d s / d logits in full */
static void route_bwd(struct route *r)
{
    double *s = kc_new(r->E), *ds = kc_new(r->E);
    for (int64_t n = 0; n < r->N; n++) {
        const double *ids = r->ids + n * r->K, *dg = r->dgates + n * r->K;
        double sum = 0, dot = 0;
        scores(r, n, s);
        for (int64_t e = 0; e < r->E; e++) ds[e] = 0;
        for (int64_t k = 0; k < r->K; k++) sum += s[(int64_t)ids[k]];
        for (int64_t k = 0; k < r->K; k++)
            for (int64_t j = 0; j < r->K; j++) {
                double jacobian = (j == k) / (r->norm ? sum : 1) -
                                  (r->norm ? s[(int64_t)ids[k]] / (sum * sum) : 0);
                ds[(int64_t)ids[j]] += r->scale * dg[k] * jacobian;
            }
        for (int64_t e = 0; e < r->E; e++) dot += s[e] * ds[e];
        for (int64_t e = 0; e < r->E; e++)
            r->dlogits[n * r->E + e] = r->score ? s[e] * (1 - s[e]) * ds[e] : s[e] * (ds[e] - dot);
    }
    free(s), free(ds);
}
static double route_value(void *ctx)
{
    struct route *r = ctx;
    double v = 0;
    route_fwd(r);
    for (int64_t i = 0; i < r->N * r->K; i++) v += r->dgates[i] * r->gates[i];
    return v;
}
TEST(reference_is_a_gradient)
{
    for (int variant = 0; variant < 4; variant++) {
        struct route r = route_new(4, 9, 3, variant);
        route_fwd(&r);
        route_bwd(&r);
        r.frozen = true;
        kc_check_gradient(route_value, &r, r.logits, r.dlogits, r.N * r.E);
        route_free(&r);
    }
}

static struct kc run_topk(const struct route *r, int64_t pad)
{
    struct kc k = {.op = MT_OP_router_topk,
                   .kernel = mt_cpu_router_topk,
                   .s = {{.i = r->score},
                         {.i = r->norm},
                         {.f = r->scale},
                         {.i = r->forced},
                         {.i = r->groups},
                         {.i = r->limit},
                         {.i = r->best2}}};
    kc_arg(&k, MT_I32, r->N, r->K, 0, pad, NULL);
    kc_arg(&k, MT_F32, r->N, r->K, 0, pad + 1, NULL);
    kc_arg(&k, MT_F32, r->N, r->E, 0, pad + 2, r->logits);
    kc_arg(&k, MT_F32, r->E, 0, 0, 0, r->bias);
    kc_run(&k);
    return k;
}
static const int64_t route_sizes[][3] = {{1, 1, 1}, {33, 13, 4}, {9, 700, 8}, {7, 5, 5}, {0, 4, 2}};

TEST(topk)
{
    for (int variant = 0; variant < 4; variant++)
        for (int s = 0; s < 5; s++) {
            struct route r = route_new(route_sizes[s][0], route_sizes[s][1], route_sizes[s][2], variant);
            route_fwd(&r);
            struct kc k = run_topk(&r, s);
            kc_check_equal(&k, 0, r.ids);
            kc_check_close(&k, 1, r.gates, 5e-7);
            kc_release(&k);
            route_free(&r);
        }
}
TEST(topk_ties_go_to_the_lower_id)
{
    struct route r = route_new(3, 6, 4, 1);
    const double logits[18] = {0, 0, 0, 0, 0, 0, /**/ 1, 2, 1, 2, 1, 2, /**/ -9, 5, -9, 5, -9, -9};
    const double want[12] = {0, 1, 2, 3, 1, 3, 5, 0, 1, 3, 0, 2};
    memcpy(r.logits, logits, sizeof logits);
    for (int e = 0; e < 6; e++) r.bias[e] = 0;
    struct kc k = run_topk(&r, 0);
    kc_check_equal(&k, 0, want);
    kc_release(&k);
    route_free(&r);
}
TEST(topk_bias_chooses_but_does_not_weigh)
{
    struct route r = route_new(1, 4, 2, 0);
    const double logits[4] = {3, 2, 1, 0}, bias[4] = {0, 0, 0, 10};
    memcpy(r.logits, logits, sizeof logits);
    memcpy(r.bias, bias, sizeof bias);
    double sum = exp(3) + exp(2) + exp(1) + 1;
    const double ids[2] = {3, 0}, gates[2] = {r.scale / sum, r.scale * exp(3) / sum};
    struct kc k = run_topk(&r, 0);
    kc_check_equal(&k, 0, ids);
    kc_check_close(&k, 1, gates, 5e-7);
    kc_release(&k);
    route_free(&r);
}
/* The best groups only, by their best expert or their two best; the reference sorts. */
TEST(topk_of_the_best_groups)
{
    static const int64_t shape[][5] = {
        {33, 24, 4, 6, 3}, {9, 256, 8, 8, 4}, {5, 12, 3, 4, 1}, {3, 8, 2, 4, 4}};
    for (int variant = 0; variant < 8; variant++)
        for (int s = 0; s < 4; s++) {
            struct route r = route_new(shape[s][0], shape[s][1], shape[s][2], variant & 3);
            r.groups = shape[s][3], r.limit = shape[s][4], r.best2 = variant >> 2;
            route_fwd(&r);
            struct kc k = run_topk(&r, s);
            kc_check_equal(&k, 0, r.ids);
            kc_check_close(&k, 1, r.gates, 5e-7);
            kc_release(&k);
            route_free(&r);
        }
}
/* Groups {0 1}, {2 3}, {4 5} with equal scores: the lower ones; and a group of two good ones beats the one with the best. */
TEST(topk_groups_that_tie)
{
    struct route r = route_new(2, 6, 2, 1);
    const double logits[12] = {0, 1, 1, 0, 1, 0, /**/ 3, -3, 1, 1, 0, 0};
    memcpy(r.logits, logits, sizeof logits);
    for (int e = 0; e < 6; e++) r.bias[e] = 0;
    r.groups = 3;
    for (r.best2 = 0; r.best2 < 2; r.best2++) {
        struct kc k;
        r.limit = r.best2 ? 1 : 2;
        k = run_topk(&r, 0);
        kc_check_equal(&k, 0, r.best2 ? (const double[]){1, 0, 2, 3} : (const double[]){1, 2, 0, 2});
        kc_release(&k);
    }
    route_free(&r);
}
/* In turn, from the start of every sequence of five tokens on; gates are those of the experts that a token was sent to. */
TEST(topk_forced)
{
    for (int variant = 0; variant < 4; variant++) {
        struct route r = route_new(10, 6, 2, variant);
        r.forced = 5;
        for (int i = 0; i < 20; i++) r.ids[i] = i % 10 % 6;
        r.frozen = true;
        route_fwd(&r);
        struct kc k = run_topk(&r, 1);
        kc_check_equal(&k, 0, r.ids);
        kc_check_close(&k, 1, r.gates, 5e-7);
        kc_release(&k);
        route_free(&r);
    }
}
TEST(topk_nan_and_infinity)
{
    for (int variant = 0; variant < 4; variant++)
        for (int at = 0; at < 7; at++) {
            struct route r = route_new(3, 7, 2, variant);
            r.logits[7 + at] = NAN;
            r.logits[at] = -INFINITY; /* an expert masked out */
            struct kc k = run_topk(&r, 0);
            CHECK(kc_no_nan(&k, 1, 0, 2) && kc_all_nan(&k, 1, 2, 2) && kc_no_nan(&k, 1, 4, 2));
            for (int i = 0; i < 3; i++) {
                double a = kc_load(kc_at(&k, 0, 2 * i), MT_I32), b = kc_load(kc_at(&k, 0, 2 * i + 1), MT_I32);
                CHECK(a != b && a >= 0 && a < 7 && b >= 0 && b < 7);
            }
            kc_release(&k);
            route_free(&r);
        }
}

TEST(backward)
{
    for (int variant = 0; variant < 4; variant++)
        for (int s = 0; s < 5; s++) {
            struct route r = route_new(route_sizes[s][0], route_sizes[s][1], route_sizes[s][2], variant);
            struct kc k = {.op = MT_OP_router_bwd,
                           .kernel = mt_cpu_router_bwd,
                           .s = {{.i = r.score}, {.i = r.norm}, {.f = r.scale}}};
            route_fwd(&r);
            route_bwd(&r);
            kc_arg(&k, MT_F32, r.N, r.E, 0, s, NULL);
            kc_arg(&k, MT_F32, r.N, r.K, 0, 1, r.dgates);
            kc_arg(&k, MT_I32, r.N, r.K, 0, 2, r.ids);
            kc_arg(&k, MT_F32, r.N, r.E, 0, 3, r.logits);
            kc_run(&k);
            if (r.E > 1)
                kc_check_close(&k, 0, r.dlogits, 1e-6);
            else
                CHECK_CLOSE(kc_load(kc_at(&k, 0, 0), MT_F32), r.dlogits[0], 1e-7);
            kc_release(&k);
            route_free(&r);
        }
}
TEST(backward_nan_shows)
{
    for (int variant = 0; variant < 4; variant++) {
        struct route r = route_new(2, 5, 2, variant);
        struct kc k = {.op = MT_OP_router_bwd,
                       .kernel = mt_cpu_router_bwd,
                       .s = {{.i = r.score}, {.i = r.norm}, {.f = r.scale}}};
        route_fwd(&r);
        r.dgates[1] = NAN;
        kc_arg(&k, MT_F32, 2, 5, 0, 0, NULL);
        kc_arg(&k, MT_F32, 2, 2, 0, 0, r.dgates);
        kc_arg(&k, MT_I32, 2, 2, 0, 0, r.ids);
        kc_arg(&k, MT_F32, 2, 5, 0, 0, r.logits);
        kc_run(&k);
        CHECK(kc_all_nan(&k, 0, (int64_t)r.ids[1], 1) && kc_no_nan(&k, 0, 5, 5));
        kc_release(&k);
        route_free(&r);
    }
}

/* ---- order and counts ---- */

static void check_sort(int64_t N, int64_t K, int64_t E, int64_t used)
{
    double *ids = kc_new(N * K), *order = kc_new(N * K), *slot = kc_new(N * K), *counts = kc_new(E);
    uint64_t seed = 4;
    for (int64_t i = 0; i < N * K; i++)
        ids[i] = floor((kc_rand(&seed) + 1) / 2 * (double)used) + (double)(E - used) / 2;
    for (int64_t i = 0; i < N * K; i++) ids[i] = floor(ids[i]);
    int64_t at = 0;
    for (int64_t e = 0; e < E; e++)
        for (int64_t i = 0; i < N * K; i++)
            if ((int64_t)ids[i] == e) slot[i] = (double)at, order[at++] = (double)i, counts[e]++;
    struct kc k = {.op = MT_OP_route_sort, .kernel = mt_cpu_route_sort};
    kc_arg(&k, MT_I32, N * K, 0, 0, 0, NULL);
    kc_arg(&k, MT_I32, N, K, 0, 1, NULL);
    kc_arg(&k, MT_I32, E, 0, 0, 0, NULL);
    kc_arg(&k, MT_I32, N, K, 0, 2, ids);
    kc_run(&k);
    kc_check_equal(&k, 0, order);
    kc_check_equal(&k, 1, slot);
    kc_check_equal(&k, 2, counts);
    kc_release(&k);
    free(ids), free(order), free(slot), free(counts);
}
TEST(sort)
{
    check_sort(0, 2, 4, 4);
    check_sort(1, 1, 1, 1);
    check_sort(50, 3, 8, 8);
    check_sort(50, 3, 20, 5); /* empty experts on both sides */
    check_sort(20, 4, 9, 1);  /* all to one */
}
TEST(counts_accumulate)
{
    double acc[70], counts[70];
    for (int e = 0; e < 70; e++) acc[e] = 3e12 + e, counts[e] = 2e9 - e;
    struct kc k = {.op = MT_OP_counts_add, .kernel = mt_cpu_counts_add};
    kc_arg(&k, MT_I64, 70, 0, 0, 0, acc);
    kc_arg(&k, MT_I32, 70, 0, 0, 0, counts);
    kc_run(&k);
    for (int e = 0; e < 70; e++) acc[e] += counts[e];
    kc_check_equal(&k, 0, acc);
    kc_release(&k);
}

static void check_bias_update(int64_t E, const double *counts, const double *sign)
{
    double *bias = kc_random(MT_F32, E, 0.1, 7), rate = 0.001, mean = 0;
    struct kc k = {.op = MT_OP_bias_update, .kernel = mt_cpu_bias_update, .s = {{.f = rate}}};
    kc_arg(&k, MT_F32, E, 0, 0, 0, bias);
    kc_arg(&k, MT_I64, E, 0, 0, 0, counts);
    kc_run(&k);
    for (int64_t e = 0; e < E; e++) mean += sign[e] / (double)E;
    for (int64_t e = 0; e < E; e++) bias[e] += rate * (sign[e] - mean);
    kc_check_close(&k, 0, bias, 1.2e-7);
    kc_release(&k);
    free(bias);
}
TEST(balance)
{
    check_bias_update(4, (double[]){10, 2, 6, 6}, (double[]){-1, 1, 0, 0});
    check_bias_update(5, (double[]){0, 0, 0, 0, 9e15}, (double[]){1, 1, 1, 1, -1});
    check_bias_update(3, (double[]){0, 0, 0}, (double[]){0, 0, 0});
    check_bias_update(1, (double[]){7}, (double[]){0});
}

int main(void)
{
    RUN(logits);
    RUN(gradient_of_x);
    RUN(gradient_of_w);
    RUN(reference_is_a_gradient);
    RUN(topk);
    RUN(topk_ties_go_to_the_lower_id);
    RUN(topk_bias_chooses_but_does_not_weigh);
    RUN(topk_of_the_best_groups);
    RUN(topk_groups_that_tie);
    RUN(topk_forced);
    RUN(topk_nan_and_infinity);
    RUN(backward);
    RUN(backward_nan_shows);
    RUN(sort);
    RUN(counts_accumulate);
    RUN(balance);
    return DONE();
}
