/* Rows to experts and back. */
#include "kernel_check.h"

struct move {
    int64_t N, D, K, M;
    double *x, *ret, *gates, *order, *slot, *dgate;
};
static struct move move_new(mt_dtype t, int64_t N, int64_t D, int64_t K)
{
    int64_t M = N * K;
    struct move r = {N,
                     D,
                     K,
                     M,
                     kc_random(t, N * D, 1, 1),
                     kc_random(t, M * D, 1, 2),
                     kc_random(MT_F32, M, 1, 3),
                     kc_new(M),
                     kc_new(M),
                     kc_random(MT_F32, M, 1, 4)};
    uint64_t seed = 3;
    for (int64_t i = 0; i < M; i++) r.order[i] = (double)i;
    for (int64_t i = M - 1; i > 0; i--) {
        int64_t j = (int64_t)((kc_rand(&seed) + 1) / 2 * (double)i);
        double swap = r.order[i];
        r.order[i] = r.order[j];
        r.order[j] = swap;
    }
    for (int64_t i = 0; i < M; i++) r.slot[(int64_t)r.order[i]] = (double)i;
    return r;
}
static void move_free(struct move *r)
{
    double *all[] = {r->x, r->ret, r->gates, r->order, r->slot, r->dgate};
    for (int i = 0; i < 6; i++) free(all[i]);
}
static const int64_t sizes[][4] = {{1, 1, 1, 0}, {21, 37, 3, 3}, {5, 1029, 8, 0}, {0, 16, 2, 0}};

static void check_gather(mt_dtype t, int64_t first, int64_t rows)
{
    enum { C = 14, N = 21, D = 37, K = 3 };
    struct move r = move_new(t, N, D, K);
    double *y = kc_random(t, C * D, 1, 6);
    struct kc k = {
        .op = MT_OP_gather_rows, .kernel = mt_cpu_gather_rows, .s = {{.i = K}, {.i = first}, {.i = rows}}};
    kc_arg(&k, t, C, D, 0, 1, y);
    kc_arg(&k, t, N, D, 0, 2, r.x);
    kc_arg(&k, MT_I32, N * K, 0, 0, 0, r.order);
    kc_run(&k);
    for (int64_t i = 0; i < rows; i++) memcpy(y + i * D, r.x + (int64_t)r.order[first + i] / K * D, D * 8);
    kc_check_equal(&k, 0, y); /* rows beyond the round are as they were */
    kc_release(&k);
    move_free(&r);
    free(y);
}
TEST(gather)
{
    KC_FOR_DTYPES(t)
    {
        check_gather(t, 0, 0);
        check_gather(t, 0, 14);
        check_gather(t, 30, 9);
        check_gather(t, 62, 1);
    }
}

TEST(combine_forward)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 4; s++) {
            struct move r = move_new(t, sizes[s][0], sizes[s][1], sizes[s][2]);
            double *want = kc_new(r.N * r.D);
            for (int64_t i = 0; i < r.N * r.D; i++) {
                want[i] = r.x[i];
                for (int64_t j = i / r.D * r.K; j < (i / r.D + 1) * r.K; j++)
                    want[i] += r.gates[j] * r.ret[(int64_t)r.slot[j] * r.D + i % r.D];
            }
            struct kc k = {.op = MT_OP_combine_fwd, .kernel = mt_cpu_combine_fwd};
            int64_t pad = sizes[s][3];
            kc_arg(&k, t, r.N, r.D, 0, pad, NULL);
            kc_arg(&k, t, r.N, r.D, 0, pad + 1, r.x);
            kc_arg(&k, t, r.M, r.D, 0, pad + 2, r.ret);
            kc_arg(&k, MT_F32, r.N, r.K, 0, pad + 3, r.gates);
            kc_arg(&k, MT_I32, r.N, r.K, 0, pad + 4, r.slot);
            kc_run(&k);
            kc_check_close(&k, 0, want, 4e-7);
            kc_release(&k);
            move_free(&r);
            free(want);
        }
    }
}

static void check_combine_bwd(mt_dtype t, const int64_t *size, bool with_add)
{
    struct move r = move_new(t, size[0], size[1], size[2]);
    double *dx = kc_new(r.N * r.D), *dgates = kc_new(r.M);
    int64_t pad = size[3];
    for (int64_t j = 0; j < r.M; j++) {
        dgates[j] = r.dgate[(int64_t)r.slot[j]];
        for (int64_t i = 0; i < r.D; i++) dx[j / r.K * r.D + i] += r.ret[(int64_t)r.slot[j] * r.D + i];
    }
    for (int64_t i = 0; i < r.N * r.D && with_add; i++) dx[i] += r.x[i];
    struct kc k = {.op = MT_OP_combine_bwd, .kernel = mt_cpu_combine_bwd};
    kc_arg(&k, t, r.N, r.D, 0, pad, NULL);
    kc_arg(&k, MT_F32, r.N, r.K, 0, pad + 1, NULL);
    kc_arg(&k, t, r.M, r.D, 0, pad + 2, r.ret);
    kc_arg(&k, MT_F32, r.M, 0, 0, 0, r.dgate);
    kc_arg(&k, MT_I32, r.N, r.K, 0, pad + 3, r.slot);
    if (with_add)
        kc_arg(&k, t, r.N, r.D, 0, pad + 4, r.x);
    else
        kc_none(&k);
    kc_run(&k);
    kc_check_close(&k, 0, dx, 4e-7);
    kc_check_equal(&k, 1, dgates);
    kc_release(&k);
    move_free(&r);
    free(dx), free(dgates);
}
TEST(combine_backward)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 4; s++)
            check_combine_bwd(t, sizes[s], true), check_combine_bwd(t, sizes[s], false);
    }
}
TEST(nan_stays_in_its_row)
{
    struct move r = move_new(MT_F32, 4, 6, 2);
    r.ret[(int64_t)r.slot[2 * 2 + 1] * 6 + 4] = NAN; /* the second expert of token 2 */
    struct kc k = {.op = MT_OP_combine_fwd, .kernel = mt_cpu_combine_fwd};
    kc_arg(&k, MT_F32, 4, 6, 0, 0, NULL);
    kc_arg(&k, MT_F32, 4, 6, 0, 0, r.x);
    kc_arg(&k, MT_F32, 8, 6, 0, 0, r.ret);
    kc_arg(&k, MT_F32, 4, 2, 0, 0, r.gates);
    kc_arg(&k, MT_I32, 4, 2, 0, 0, r.slot);
    kc_run(&k);
    CHECK(kc_no_nan(&k, 0, 0, 16) && kc_all_nan(&k, 0, 16, 1) && kc_no_nan(&k, 0, 17, 7));
    kc_release(&k);
    move_free(&r);
}

int main(void)
{
    RUN(gather);
    RUN(combine_forward);
    RUN(combine_backward);
    RUN(nan_stays_in_its_row);
    return DONE();
}
