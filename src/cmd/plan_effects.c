#include "cmd/plan_effects.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double times[2] = {0.8, 1.2};

/* Memory, storage and power change no time of a step: then it is not replayed. */
static bool replays(int key)
{
    static const char *const still[] = {"size.", "storage.", "power."};
    for (size_t i = 0; i < sizeof still / sizeof *still; i++)
        if (!strncmp(mt_cluster_rows[key].key, still[i], strlen(still[i]))) return false;
    return true;
}

static mt_status outcome(const struct mt_plan_report *r, const struct mt_plan_request *ask, bool replayed,
                         struct mt_plan_outcome *out, mt_err *e)
{
    struct mt_forecast_times t = {0};
    struct mt_plan_report one;
    mt_status st = replayed ? mt_forecast_replay(r->f, &ask->cluster, ask->algorithm, &t, e) : MT_OK;
    if (st == MT_OK) st = mt_plan_report_init(&one, ask, r->f, replayed ? &t : r->t, e);
    if (st == MT_OK) *out = (struct mt_plan_outcome){one.t->step_s, one.ckpt_s, one.joules, one.fits};
    mt_forecast_times_release(&t);
    return st;
}

mt_status mt_plan_effects_find(struct mt_plan_effects *x, const struct mt_plan_report *r, mt_err *e)
{
    struct mt_plan_request *ask = malloc(sizeof *ask);
    mt_status st = MT_OK;
    MT_REQUIRE(ask, e, MT_IO, "no memory for the numbers of a machine");
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++) {
        const struct mt_cluster_row *row = &mt_cluster_rows[k];
        if (!mt_cluster_assumed(&r->ask->cluster, (enum mt_cluster_key)k)) continue;
        for (int i = 0; i < 2 && st == MT_OK; i++) {
            double v = r->ask->cluster.of[k].value * times[i];
            *ask = *r->ask;
            ask->cluster.of[k].value = v > row->high ? row->high : v < row->low ? row->low : v;
            st = outcome(r, ask, replays(k), &x->with[k][i], e);
        }
    }
    free(ask);
    x->known = st == MT_OK;
    return st;
}

void mt_plan_effect_step(const struct mt_plan_effects *x, const struct mt_plan_report *r, int key, int side,
                         char *out, size_t size)
{
    double more = x->with[key][side].step_s / r->t->step_s - 1;
    *out = 0;
    if (fabs(r->ask->cluster.of[key].value) > 0)
        snprintf(out, size, "%+.2f%%", fabs(more) < 5e-5 ? 0.0 : 100 * more);
}

static size_t add(char *out, size_t size, const char *what, double low, double high)
{
    if (fabs(low) < 5e-4 && fabs(high) < 5e-4) return 0;
    int n = snprintf(out, size, "%s %+.1f%% %+.1f%%; ", what, 100 * low, 100 * high);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}
void mt_plan_effect_rest(const struct mt_plan_effects *x, const struct mt_plan_report *r, int key, char *out,
                         size_t size)
{
    static const char *const side[] = {"lower", "higher"};
    const struct mt_plan_outcome *low = &x->with[key][0], *high = &x->with[key][1];
    bool only_power = !strncmp(mt_cluster_rows[key].key, "power.", 6); /* else it follows the step time */
    size_t n = add(out, size, "checkpoint", low->ckpt_s / r->ckpt_s - 1, high->ckpt_s / r->ckpt_s - 1);
    if (only_power)
        n += add(out + n, size - n, "energy", low->joules / r->joules - 1, high->joules / r->joules - 1);
    for (int i = 0; i < 2; i++) {
        if (x->with[key][i].fits == r->fits) continue;
        int more = snprintf(out + n, size - n, "%s if %s; ", r->fits ? "does not fit" : "fits", side[i]);
        n += more > 0 && (size_t)more < size - n ? (size_t)more : 0;
    }
    out[n > 2 ? n - 2 : 0] = 0;
}

void mt_plan_effects_print(const struct mt_plan_effects *x, const struct mt_plan_report *r, FILE *out)
{
    char low[24], high[24], rest[160];
    fprintf(
        out,
        "assumed   step time if the number is 20%% lower, and 20%% higher (none of 0); what else changes\n");
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++) {
        if (!mt_cluster_assumed(&r->ask->cluster, (enum mt_cluster_key)k)) continue;
        mt_plan_effect_step(x, r, k, 0, low, sizeof low);
        mt_plan_effect_step(x, r, k, 1, high, sizeof high);
        mt_plan_effect_rest(x, r, k, rest, sizeof rest);
        fprintf(out, "  %-26s %12.6g %-12s %8s %8s  %s%s%s\n", mt_cluster_rows[k].key,
                r->ask->cluster.of[k].value, mt_cluster_rows[k].unit, low, high, rest, *rest ? "; " : "",
                r->ask->cluster.of[k].source);
    }
}
