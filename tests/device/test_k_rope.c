/* Rotary positions: the table, the turn, and that the turn back undoes it. */
#include "kernel_check.h"

/* Frequencies of pairs before low stay, those behind high are divided by the factor; all values times the gain. */
static void check_table(double factor, double low, double high, double gain)
{
    enum { S = 3001, R = 10 };
    const double theta = 10000;
    double *want = kc_new(S * R);
    for (int p = 0; p < S; p++)
        for (int i = 0; i < R / 2; i++) {
            long double share = i <= low ? 0 : i >= high ? 1 : (i - (long double)low) / (high - low);
            long double angle = (long double)p / powl((long double)theta, 2.0L * i / R);
            angle = angle * (1 - share) + angle / factor * share;
            want[p * R + i] = (double)(gain * cosl(angle));
            want[p * R + R / 2 + i] = (double)(gain * sinl(angle));
        }
    struct kc k = {.op = MT_OP_rope_table,
                   .kernel = mt_cpu_rope_table,
                   .s = {{.f = theta}, {.f = factor}, {.f = low}, {.f = high}, {.f = gain}}};
    kc_arg(&k, MT_F32, S, R, 0, 2, NULL);
    kc_run(&k);
    kc_check_scaled(&k, 0, want, 6.1e-8, 0);
    kc_release(&k);
    free(want);
}
TEST(table)
{
    check_table(1, 0, 1, 1);
    check_table(40, 1, 3, 0.7);
}

struct turn {
    int64_t N, H, A, R, S;
    double *x, *pos, *table, *y;
};
static struct turn turn_new(mt_dtype t, int64_t N, int64_t H, int64_t A, int64_t R)
{
    struct turn r = {
        N, H, A, R, 50, kc_random(t, N * H * A, 2, 1), kc_new(N), kc_new(50 * R), kc_new(N * H * A)};
    for (int64_t n = 0; n < N; n++) r.pos[n] = (double)(n * 17 % 50);
    for (int64_t p = 0; p < 50; p++)
        for (int64_t i = 0; i < R / 2; i++) {
            double angle = (double)p * pow(100, -2.0 * (double)i / (double)R);
            r.table[p * R + i] = kc_round(MT_F32, cos(angle));
            r.table[p * R + R / 2 + i] = kc_round(MT_F32, sin(angle));
        }
    return r;
}
static void turn_free(struct turn *r)
{
    free(r->x), free(r->pos), free(r->table), free(r->y);
}
/* As a product of complex numbers: (x1 + i x2) (cos + i sign sin). */
static void turn_reference(struct turn *r, double sign)
{
    int64_t half = r->R / 2;
    memcpy(r->y, r->x, (size_t)(r->N * r->H * r->A) * 8);
    for (int64_t nh = 0; nh < r->N * r->H; nh++)
        for (int64_t i = 0; i < half; i++) {
            const double *row = r->table + (int64_t)r->pos[nh / r->H] * r->R, *x = r->x + nh * r->A;
            r->y[nh * r->A + i] = x[i] * row[i] - sign * row[half + i] * x[half + i];
            r->y[nh * r->A + half + i] = x[half + i] * row[i] + sign * row[half + i] * x[i];
        }
}
static struct kc run_turn(mt_dtype t, const struct turn *r, double sign, int64_t pad, const double *x)
{
    struct kc k = {.op = MT_OP_rope, .kernel = mt_cpu_rope, .s = {{.f = sign}}};
    kc_arg(&k, t, r->N, r->H, r->A, pad, x);
    kc_arg(&k, MT_I32, r->N, 0, 0, 0, r->pos);
    kc_arg(&k, MT_F32, r->S, r->R, 0, pad, r->table);
    kc_run(&k);
    return k;
}
static const int64_t sizes[][5] = {
    {1, 1, 2, 2, 0}, {9, 3, 20, 14, 3}, {5, 2, 64, 64, 0}, {2, 1, 1100, 1100, 1}, {0, 2, 8, 8, 0}};

TEST(turns)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 5; s++)
            for (int sign = -1; sign < 2; sign += 2) {
                struct turn r = turn_new(t, sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3]);
                turn_reference(&r, sign);
                struct kc k = run_turn(t, &r, sign, sizes[s][4], r.x);
                kc_check_close(&k, 0, r.y, 2e-7);
                kc_release(&k);
                turn_free(&r);
            }
    }
}
TEST(turning_back_undoes)
{
    struct turn r = turn_new(MT_F32, 9, 3, 20, 14);
    struct kc k = run_turn(MT_F32, &r, 1, 0, r.x);
    kc_get(&k, 0, r.y);
    kc_release(&k);
    k = run_turn(MT_F32, &r, -1, 0, r.y);
    kc_check_close(&k, 0, r.x, 4e-7);
    kc_release(&k);
    turn_free(&r);
}
/* <turn(q, m), turn(k, n)> is a function of m - n. */
TEST(products_depend_on_distance)
{
    struct turn r = turn_new(MT_F32, 4, 1, 14, 14);
    const double pos[4] = {3, 10, 40, 47};
    double y[4 * 14], near = 0, far = 0;
    memcpy(r.pos, pos, sizeof pos);
    memcpy(r.x + 28, r.x, 28 * 8);
    struct kc k = run_turn(MT_F32, &r, 1, 0, r.x);
    kc_get(&k, 0, y);
    for (int i = 0; i < 14; i++) near += y[i] * y[14 + i], far += y[28 + i] * y[42 + i];
    CHECK_CLOSE(near, far, 2e-5);
    kc_release(&k);
    turn_free(&r);
}

int main(void)
{
    RUN(table);
    RUN(turns);
    RUN(turning_back_undoes);
    RUN(products_depend_on_distance);
    return DONE();
}
