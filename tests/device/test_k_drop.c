/* Rows that experts have no room for: which, where they are sorted to, and that nothing comes of them. */
#include "kernel_check.h"

struct pair {
    double gate;
    int64_t at; /* token K + k */
};
static int first_kept(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return x->gate > y->gate ? -1 : x->gate < y->gate ? 1 : x->at < y->at ? -1 : 1;
}
/* Every run's pairs of an expert, sorted by what keeps them. */
static void drop(const double *ids, const double *gates, int64_t N, int64_t K, int64_t E, int64_t run,
                 int64_t capacity, bool by_gate, double *kept, double *asked)
{
    struct pair *p = calloc((size_t)(N * K + 1), sizeof *p);
    MT_ASSERT(p);
    for (int64_t e = 0; e < E; e++) asked[e] = 0;
    for (int64_t first = 0; first < N; first += run)
        for (int64_t e = 0; e < E; e++) {
            int64_t n = 0;
            for (int64_t i = first * K; i < (first + run) * K && i < N * K; i++)
                if ((int64_t)ids[i] == e) p[n++] = (struct pair){by_gate ? gates[i] : 0, i};
            qsort(p, (size_t)n, sizeof *p, first_kept);
            asked[e] += (double)n;
            for (int64_t i = 0; i < n; i++) kept[p[i].at] = i < capacity ? (double)e : -1 - (double)e;
        }
    free(p);
}
/* Token n's experts are K different ones, more often of the first; gates have ties and the extremes of f32. */
static void choose(int64_t N, int64_t K, int64_t E, double *ids, double *gates)
{
    const double odd[] = {0, 1, 1e-40, 3e38, 0.5, INFINITY};
    uint64_t seed = 9;
    for (int64_t n = 0; n < N; n++) {
        int64_t e = (int64_t)floor(pow((kc_rand(&seed) + 1) / 2, 3) * (double)E);
        for (int64_t k = 0; k < K; k++) {
            ids[n * K + k] = (double)((e + k * k) % E);
            for (int64_t j = 0; j < k; j++)
                if (ids[n * K + j] == ids[n * K + k])
                    ids[n * K + k] = (double)((int64_t)(ids[n * K + k] + 1) % E), j = -1;
            gates[n * K + k] = n % 5 == 0 ? odd[(n / 5 + k) % 6] : (double)(float)fabs(kc_rand(&seed));
        }
    }
}

static void check_drop(int64_t N, int64_t K, int64_t E, int64_t run, int64_t capacity)
{
    double *ids = kc_new(N * K), *gates = kc_new(N * K), *kept = kc_new(N * K), *asked = kc_new(E);
    choose(N, K, E, ids, gates);
    for (int by_gate = 0; by_gate < 2; by_gate++) {
        struct kc k = {.op = MT_OP_route_drop,
                       .kernel = mt_cpu_route_drop,
                       .s = {{.i = run}, {.i = capacity}, {.i = by_gate}}};
        drop(ids, gates, N, K, E, run, capacity, by_gate, kept, asked);
        kc_arg(&k, MT_I32, N, K, 0, 1, NULL);
        kc_arg(&k, MT_I32, E, 0, 0, 0, NULL);
        kc_arg(&k, MT_I32, N, K, 0, 2, ids);
        kc_arg(&k, MT_F32, N, K, 0, 3, gates);
        kc_run(&k);
        kc_check_equal(&k, 0, kept);
        kc_check_equal(&k, 1, asked);
        kc_release(&k);
    }
    free(ids), free(gates), free(kept), free(asked);
}
TEST(drops)
{
    check_drop(60, 3, 8, 20, 4);
    check_drop(60, 3, 8, 60, 13);
    check_drop(40, 2, 40, 8, 1);
    check_drop(30, 1, 3, 10, 30); /* room for all */
    check_drop(0, 2, 4, 5, 1);
    check_drop(300, 4, 5, 300, 100);
}

/* Dropped pairs lie behind all others, in their order, and are not counted. */
TEST(sort_puts_dropped_ones_last)
{
    const double ids[10] = {2, -1, 0, 2, -3, 1, -2, 0, 2, -1}, order[10] = {2, 7, 5, 0, 3, 8, 1, 4, 6, 9},
                 slot[10] = {3, -7, 0, 4, -8, 2, -9, 1, 5, -10}, counts[4] = {2, 1, 3, 0};
    struct kc k = {.op = MT_OP_route_sort, .kernel = mt_cpu_route_sort};
    kc_arg(&k, MT_I32, 10, 0, 0, 0, NULL);
    kc_arg(&k, MT_I32, 5, 2, 0, 1, NULL);
    kc_arg(&k, MT_I32, 4, 0, 0, 0, NULL);
    kc_arg(&k, MT_I32, 5, 2, 0, 2, ids);
    kc_run(&k);
    kc_check_equal(&k, 0, order);
    kc_check_equal(&k, 1, slot);
    kc_check_equal(&k, 2, counts);
    kc_release(&k);
}

/* Two tokens, of whose four pairs two are dropped: only as many rows exist, and nothing behind them is read. */
static const double slots[4] = {1, -3, -4, 0}, gates[4] = {0.5, NAN, NAN, 2};
TEST(combine_leaves_them_out)
{
    KC_FOR_DTYPES(t)
    {
        const double h[6] = {1, 2, 3, 4, 5, 6}, ret[6] = {8, 8, 8, 2, 4, 6}, want[6] = {2, 4, 6, 20, 21, 22};
        struct kc k = {.op = MT_OP_combine_fwd, .kernel = mt_cpu_combine_fwd};
        kc_arg(&k, t, 2, 3, 0, 1, NULL);
        kc_arg(&k, t, 2, 3, 0, 0, h);
        kc_arg(&k, t, 2, 3, 0, 2, ret);
        kc_arg(&k, MT_F32, 2, 2, 0, 0, gates);
        kc_arg(&k, MT_I32, 2, 2, 0, 1, slots);
        kc_run(&k);
        kc_check_equal(&k, 0, want);
        kc_release(&k);
    }
}
TEST(nor_does_a_gradient_come_of_them)
{
    KC_FOR_DTYPES(t)
    {
        const double dret[6] = {8, 9, 10, 2, 4, 6}, dgate[2] = {7, 3}, add[6] = {1, 1, 1, 2, 2, 2},
                     dx[6] = {3, 5, 7, 10, 11, 12}, dgates[4] = {3, 0, 0, 7};
        struct kc k = {.op = MT_OP_combine_bwd, .kernel = mt_cpu_combine_bwd};
        kc_arg(&k, t, 2, 3, 0, 1, NULL);
        kc_arg(&k, MT_F32, 2, 2, 0, 1, NULL);
        kc_arg(&k, t, 2, 3, 0, 2, dret);
        kc_arg(&k, MT_F32, 2, 0, 0, 0, dgate);
        kc_arg(&k, MT_I32, 2, 2, 0, 1, slots);
        kc_arg(&k, t, 2, 3, 0, 0, add);
        kc_run(&k);
        kc_check_equal(&k, 0, dx);
        kc_check_equal(&k, 1, dgates);
        kc_release(&k);
    }
}

int main(void)
{
    RUN(drops);
    RUN(sort_puts_dropped_ones_last);
    RUN(combine_leaves_them_out);
    RUN(nor_does_a_gradient_come_of_them);
    return DONE();
}
