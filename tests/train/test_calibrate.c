/* The fit of a calibration, on times by known laws: it foretells shapes that it was not given. */
#include <stdlib.h>

#include "check.h"
#include "train/calibrate.h"

/* A machine whose times are laws of the shape: products by depth, attention by pairs and width, Newton-Schulz by its side. */
enum { DEPTH = 192, PAIR = 96, SIDE = 128, TILE = 64 };
static double law(const struct mt_work *w)
{
    double slow = w->dtype == MT_F32 ? 8 : 1;
    switch (mt_work_kind_of((enum mt_op)w->op)) {
    case MT_WORK_GEMM:
    case MT_WORK_GROUPED: return slow * w->flops * (1 + DEPTH / (double)w->k) / 8e11;
    case MT_WORK_ATTENTION:
        return slow * w->flops * (1 + PAIR / (double)w->k) * (1 + (double)w->m * TILE / 2 / (double)w->n) /
               4e11;
    case MT_WORK_NEWTON_SCHULZ: return slow * w->flops * (1 + SIDE / (double)w->m) / 5e11;
    default: return w->bytes / 5e10;
    }
}

static void take(struct mt_calibration *k, const struct mt_work *w)
{
    k->timing = realloc(k->timing, (size_t)(k->n + 1) * sizeof *k->timing);
    MT_ASSERT(k->timing);
    k->timing[k->n++] = (struct mt_op_timing){*w, law(w), 5};
}
static struct mt_work product(enum mt_op op, int64_t batch, int64_t m, int64_t n, int64_t depth)
{
    return (struct mt_work){.op = (uint16_t)op,
                            .dtype = MT_BF16,
                            .batch = batch,
                            .m = m,
                            .n = n,
                            .k = depth,
                            .flops = 2.0 * (double)(batch * m * n * depth)};
}
static struct mt_work attention(int64_t heads, int64_t tokens, int64_t width)
{
    int64_t pairs = tokens * (tokens + 1) / 2;
    return (struct mt_work){.op = MT_OP_attention_fwd,
                            .dtype = MT_BF16,
                            .batch = heads,
                            .m = tokens,
                            .n = pairs,
                            .k = width,
                            .flops = 4.0 * (double)(pairs * heads * width)};
}
static struct mt_work matrices(int64_t batch, int64_t m, int64_t n)
{
    return (struct mt_work){.op = MT_OP_newton_schulz,
                            .dtype = MT_BF16,
                            .batch = batch,
                            .m = m,
                            .n = n,
                            .flops = 10.0 * (double)(batch * m * m * (2 * n + m))};
}

static void measure(struct mt_calibration *k)
{
    static const int64_t side[] = {32, 64, 96, 160, 256, 512};
    *k = (struct mt_calibration){.copy = {5e10, 3e10, 2e10}};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 6; j++) {
                struct mt_work w[] = {product(MT_OP_linear_fwd, 1, 256, 2 * side[i], side[j]),
                                      product(MT_OP_grouped_fwd, 8, 64, side[i], side[j]),
                                      attention(4, 2 * side[i], j % 2 ? 32 : 64),
                                      matrices(1 + j, side[i], side[i] + 32 * j)};
                for (size_t n = 0; n < sizeof w / sizeof *w; n++) {
                    if (t) w[n].dtype = MT_F32;
                    take(k, &w[n]);
                }
            }
    mt_calibrate_fit(k, "measured here, for a test");
}

static void foretells(const struct mt_cluster *c, struct mt_work w)
{
    for (int t = 0; t < 2; t++) {
        if (t) w.dtype = MT_F32;
        double said = mt_work_seconds(&w, c, -1), is = law(&w);
        if (!CHECK(said > 0.93 * is && said < 1.07 * is))
            printf("  %s %lld x %lld x %lld: %g s, not %g\n", mt_op_info[w.op].name, (long long)w.m,
                   (long long)w.n, (long long)w.k, said, is);
    }
}

TEST(shapes_that_were_not_measured)
{
    static struct mt_calibration k;
    measure(&k);
    CHECK_CLOSE(MT_OF(&k.cluster, gemm_depth_half), DEPTH, 0);
    CHECK_CLOSE(MT_OF(&k.cluster, attention_pair), PAIR, 0);
    CHECK_CLOSE(MT_OF(&k.cluster, newton_schulz_half), SIDE, 0);
    foretells(&k.cluster, product(MT_OP_linear_fwd, 1, 1024, 2048, 48));
    foretells(&k.cluster, product(MT_OP_linear_fwd, 1, 1024, 512, 1500));
    foretells(&k.cluster, product(MT_OP_grouped_fwd, 16, 256, 96, 40));
    foretells(&k.cluster, attention(7, 640, 32));
    foretells(&k.cluster, attention(2, 900, 128));
    foretells(&k.cluster, matrices(24, 48, 400));
    foretells(&k.cluster, matrices(2, 448, 448));
    mt_calibration_release(&k);
}

int main(void)
{
    RUN(shapes_that_were_not_measured);
    return DONE();
}
