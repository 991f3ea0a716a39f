/* test: timeout=240
 *
 * The reference configuration, planned for the machine it is for: what it keeps where, that it fits, and that its copies between
 * device and host are hidden. Nothing of it runs. */
#include "check.h"
#include "train/forecast.h"

#include <stdlib.h>

static int64_t class_bytes(const struct mt_ledger *g, enum mt_arena arena, enum mt_row_class c)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < g->n; i++)
        if (g->row[i].arena == arena && g->row[i].row_class == c) sum += g->row[i].bytes;
    return sum;
}

static bool open_reference(struct mt_forecast *f, mt_config *cfg, struct mt_cluster *c)
{
    const struct mt_forecast_options o = {.world = 384, .seed = 1};
    const struct mt_target *target;
    mt_err e = {0};
    mt_status st = mt_config_load(cfg, "configs/jupiter-952b.yaml", 0, NULL, &e);
    if (st == MT_OK) st = mt_cluster_load(c, "configs/clusters/jupiter.yaml", &e);
    if (st == MT_OK) st = mt_forecast_target(c, &target, &e);
    if (st == MT_OK) st = mt_forecast_open(f, cfg, c, target, &o, &e);
    if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
    return st == MT_OK;
}

/* Of all that moved between device and host during rank 0's step, the share during which its compute stream went on. */
static void check_copies(struct mt_forecast *f, const struct mt_cluster *c)
{
    struct mt_timeline_sum sum = {0};
    mt_err e = {0};
    if (!CHECK(mt_forecast_trace(f, c, MT_ALG_DIRECT, 0, "/dev/null", &sum, &e) == MT_OK)) {
        printf("  %s\n", e.msg);
        return;
    }
    double busy = 1e-9 * (double)sum.busy[MT_CAUSE_OFFLOAD],
           hidden = mt_timeline_hidden(&sum, MT_CAUSE_OFFLOAD);
    printf("  copies take %.3f of %.3f s, exposed %.4f: %.2f%% hidden\n", busy, 1e-9 * (double)sum.length,
           1e-9 * (double)sum.spent[MT_CAUSE_OFFLOAD], 100 * hidden);
    CHECK(busy > 0.5);
    CHECK(hidden >= 0.95 && hidden < 1 + 1e-9);
}

TEST(the_reference_run)
{
    struct mt_forecast f = {0};
    struct mt_cluster *c = calloc(1, sizeof *c);
    mt_config *cfg = calloc(1, sizeof *cfg);
    const int64_t boundary = INT64_C(65536) * 6144 * 2;
    if (CHECK(c && cfg) && open_reference(&f, cfg, c)) {
        CHECK_INT(class_bytes(&f.s.ledger, MT_HOST_ARENA, MT_ROW_ACTIVATION), 74 * boundary);
        CHECK(f.s.plan.peak[MT_DEVICE_ARENA] <= INT64_C(95) << 30);
        CHECK(f.s.plan.peak[MT_DEVICE_ARENA] <=
              (int64_t)(MT_OF(c, size_device) - MT_OF(c, size_device_other)));
        CHECK(f.s.plan.peak[MT_HOST_ARENA] <= INT64_C(108) << 30);
        check_copies(&f, c);
    }
    mt_forecast_close(&f);
    free(c);
    free(cfg);
}

int main(void)
{
    RUN(the_reference_run);
    return DONE();
}
