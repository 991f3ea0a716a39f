#include "train/guard.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mt_status mt_guard_open(struct mt_guard *g, const mt_config *cfg, mt_err *e)
{
    int64_t n = cfg->guard_spike_window;
    *g = (struct mt_guard){.cfg = cfg, .loss = calloc((size_t)n * 2, sizeof *g->loss)};
    MT_REQUIRE(g->loss, e, MT_IO, "no memory for the losses of guard.spike_window: %lld steps", (long long)n);
    g->norm = g->loss + n;
    return MT_OK;
}
void mt_guard_close(struct mt_guard *g)
{
    free(g->loss);
    *g = (struct mt_guard){0};
}

void mt_guard_add(struct mt_guard *g, double loss, double norm)
{
    int64_t i = g->n++ % g->cfg->guard_spike_window;
    g->loss[i] = loss;
    g->norm[i] = norm;
}

/* From the oldest on, so that the sum doesn't depend on where in the ring that is. */
static double mean(const struct mt_guard *g, const double *x)
{
    int64_t window = g->cfg->guard_spike_window;
    double sum = 0;
    for (int64_t i = g->n - window; i < g->n; i++) sum += x[i % window];
    return sum / (double)window;
}

void mt_guard_limit(const struct mt_guard *g, struct mt_step *t)
{
    const mt_config *c = g->cfg;
    t->loss_limit = t->norm_limit = 0;
    if (c->guard_spike == MT_ON_SPIKE_OFF || g->n < c->guard_spike_window) return;
    t->loss_limit = c->guard_spike_factor * mean(g, g->loss);
    t->norm_limit = c->guard_spike_norm_factor * mean(g, g->norm);
}

struct mt_guard_verdict mt_guard_judge(const struct mt_guard *g, const struct mt_step *t)
{
    double loss = t->loss / (double)t->valid;
    struct mt_guard_verdict v = {.spike = isfinite(t->loss) && isfinite(t->norm)};
    int what = v.spike ? (int)g->cfg->guard_spike - (int)MT_ON_SPIKE_ABORT
                       : (int)g->cfg->guard_nonfinite - (int)MT_ON_NONFINITE_ABORT;
    v.what = what == 0 ? MT_GUARD_ABORT : what == 1 ? MT_GUARD_SKIP : MT_GUARD_ROLLBACK;
    int n = snprintf(v.why, sizeof v.why, "the loss is %g and the gradient norm %g", loss, t->norm);
    if (v.spike)
        n += snprintf(v.why + n, sizeof v.why - (size_t)n,
                      "; after the last %lld steps a loss of %g is allowed",
                      (long long)g->cfg->guard_spike_window, t->loss_limit);
    if (v.spike && t->norm_limit > 0)
        snprintf(v.why + n, sizeof v.why - (size_t)n, " and a norm of %g", t->norm_limit);
    return v;
}

/* ---- from metrics.jsonl ---- */
struct update {
    int64_t step;
    double loss, norm;
};
struct history {
    struct update *at; /* owned */
    int64_t n, room, skips, backs;
    bool lost; /* no memory */
};

static void note_update(struct history *h, struct update u)
{
    if (h->n == h->room) {
        int64_t room = 2 * h->room + 1024;
        struct update *more = realloc(h->at, (size_t)room * sizeof *more);
        if (!more) h->lost = true;
        if (!more) return;
        h->at = more;
        h->room = room;
    }
    h->at[h->n++] = u;
}

/* A line as train/metrics.c writes it. */
static void note_line(struct history *h, const char *line)
{
    struct update u;
    int64_t to = 0;
    if (sscanf(line, "{\"step\": %" SCNd64 ", \"tokens\": %*[0-9], \"loss\": %lg, \"grad_norm\": %lg,",
               &u.step, &u.loss, &u.norm) == 3) {
        note_update(h, u);
    } else if (sscanf(line, "{\"step\": %" SCNd64 ", \"rollback\": %" SCNd64, &u.step, &to) == 2) {
        h->backs++;
        while (h->n && h->at[h->n - 1].step > to) h->n--;
    } else if (strstr(line, ", \"skipped\": ")) {
        h->skips++;
    }
}

static void read_history(struct mt_guard *g, const char *path, mt_err *e)
{
    struct history h = {0};
    char line[2048];
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) note_line(&h, line);
    if (f) fclose(f);
    if (h.lost) (void)mt_err_set(e, MT_IO, "no memory for the %" PRId64 " steps of '%s'", h.n, path);
    for (int64_t i = 0; i < h.n; i++) mt_guard_add(g, h.at[i].loss, h.at[i].norm);
    g->skips = h.skips;
    g->backs = h.backs;
    free(h.at);
}

mt_status mt_guard_recall(struct mt_guard *g, const struct mt_job *job, mt_err *e)
{
    char path[MT_CONFIG_PATH + 16];
    snprintf(path, sizeof path, "%s/metrics.jsonl", g->cfg->run_dir);
    g->n = g->skips = g->backs = 0;
    if (job->me == 0) read_history(g, path, e);
    MT_TRY(mt_job_agree(job, e->code, e));
    int64_t x[] = {g->n, g->skips, g->backs};
    mt_job_broadcast(job, x, sizeof x, 0);
    g->n = x[0];
    g->skips = x[1];
    g->backs = x[2];
    mt_job_broadcast(job, g->loss, 2 * g->cfg->guard_spike_window * (int64_t)sizeof *g->loss, 0);
    return MT_OK;
}
