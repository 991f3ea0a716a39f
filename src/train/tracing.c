#include "train/tracing.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/print.h"
#include "train/say.h"
#include "train/tracing_sum.h"

/* ---- room ---- */
/* Dispatch rounds that a trace has room for in every exchange: those of a balanced load twice, and some. */
static int64_t rounds_for(const struct mt_shape *d)
{
    enum { SPARE = 6 };
    return SPARE + (d->C ? 2 * ((d->M + d->C - 1) / d->C) : 0);
}

/* Records, and arguments of records, of a step with so many rounds everywhere: each round adds the same. */
static mt_status size_of_step(const struct mt_session *s, int64_t *records, int64_t *args, mt_err *e)
{
    struct mt_recording one, two;
    mt_status st = mt_session_record(s, 1, &one, e);
    if (st == MT_OK) {
        st = mt_session_record(s, 2, &two, e);
        int64_t more = rounds_for(&s->rank[0].model.shape) - 1;
        *records = one.n + more * (two.n - one.n);
        *args = one.n_args + more * (two.n_args - one.n_args);
        mt_recording_release(&two);
    }
    mt_recording_release(&one);
    return st;
}

static mt_status open_ranks(struct mt_tracing *t, const struct mt_session *s, mt_err *e)
{
    int64_t records = 0, args = 0;
    MT_TRY(size_of_step(s, &records, &args, e));
    t->times = calloc((size_t)t->n + 1, sizeof *t->times);
    MT_REQUIRE(t->times, e, MT_IO, "no memory for the traces of %d ranks", t->n);
    for (int i = 0; i < t->n; i++) MT_TRY(mt_times_open(&t->times[i], records, args, e));
    return MT_OK;
}

mt_status mt_tracing_open(struct mt_tracing *t, const struct mt_session *s, mt_err *e)
{
    int64_t most = s->cfg->train_trace_ranks;
    *t = (struct mt_tracing){.world = most && most < s->world ? (int)most : s->world};
    if (!s->cfg->train_trace_steps.n) return MT_OK;
    int here = t->world - s->first;
    t->n = here < 0 ? 0 : here < s->n_local ? here : s->n_local;
    return open_ranks(t, s, e);
}

void mt_tracing_close(struct mt_tracing *t)
{
    for (int i = 0; i < t->n && t->times; i++) mt_times_close(&t->times[i]);
    free(t->times);
    *t = (struct mt_tracing){0};
}

/* ---- a step ---- */
bool mt_tracing_wants(const struct mt_session *s, int64_t step)
{
    const mt_ints *steps = &s->cfg->train_trace_steps;
    bool found = false;
    for (int64_t i = 0; i < steps->n; i++) found |= steps->at[i] == step;
    return found;
}

void mt_tracing_begin(struct mt_tracing *t, struct mt_session *s)
{
    for (int i = 0; i < t->n; i++) mt_times_begin(&t->times[i], &s->rank[i].ctx, 0);
    (void)mt_job_any(&s->job, false); /* time 0 is where all processes leave this, about together */
    int64_t now = mt_now_ns();
    for (int i = 0; i < t->n; i++) t->times[i].origin = now;
}

void mt_tracing_end(struct mt_tracing *t, struct mt_session *s)
{
    int64_t now = mt_now_ns();
    for (int i = 0; i < t->n; i++) mt_times_end(&t->times[i], &s->rank[i].ctx, now);
}

struct mt_timeline mt_tracing_timeline(const struct mt_tracing *t, const struct mt_session *s, int i)
{
    return mt_times_timeline(&t->times[i], s->first + i, &s->ledger);
}

/* ---- files ---- */
static mt_status write_events(const struct mt_tracing *t, const struct mt_session *s,
                              const struct mt_timeline *lines, int64_t step, const char *path, mt_err *e)
{
    const char *groups[MT_N_GROUPS];
    char title[160];
    for (int g = 0; g < MT_N_GROUPS; g++) groups[g] = mt_mesh_group_name((enum mt_group_id)g);
    snprintf(title, sizeof title, "step %" PRId64 ", ranks %d to %d of %d, %s", step, s->first,
             s->first + t->n - 1, s->world, s->target->name);
    FILE *f;
    MT_TRY(mt_print_open(&f, path, e));
    mt_status st = mt_timeline_write(lines, t->n, groups, title, f, e), closed = mt_print_close(f, path, e);
    return st == MT_OK ? closed : st;
}

static mt_status write_trace(const struct mt_tracing *t, const struct mt_session *s, int64_t step, char *path,
                             size_t size, mt_err *e)
{
    if (s->job.n == 1)
        snprintf(path, size, "%s/trace-%08" PRId64 ".json", s->cfg->run_dir, step);
    else
        snprintf(path, size, "%s/trace-%08" PRId64 "-%05d.json", s->cfg->run_dir, step, s->first);
    if (!t->n) return MT_OK;
    struct mt_timeline *lines = calloc((size_t)t->n, sizeof *lines);
    MT_REQUIRE(lines, e, MT_IO, "no memory for the time lines of %d ranks", t->n);
    for (int i = 0; i < t->n; i++) lines[i] = mt_tracing_timeline(t, s, i);
    mt_status st = write_events(t, s, lines, step, path, e);
    free(lines);
    return st;
}

/* Operations that there was no room for. */
static int64_t lost(const struct mt_tracing *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++) n += t->times[i].q.lost;
    return n;
}

mt_status mt_tracing_write(struct mt_tracing *t, const struct mt_session *s, int64_t step, mt_err *e)
{
    char path[MT_CONFIG_PATH + 48];
    struct mt_trace_sums sums;
    int64_t missing = lost(t);
    MT_TRY(mt_job_agree(&s->job, write_trace(t, s, step, path, sizeof path, e), e));
    mt_job_sum(&s->job, &missing, 1);
    mt_status st = mt_job_agree(&s->job, mt_trace_sums_open(&sums, t, s, e), e);
    if (st == MT_OK) mt_trace_sums_share(&sums, s);
    if (st == MT_OK && s->job.me == 0) {
        mt_trace_sums_print(&sums, step, path);
        if (missing)
            mt_say("  %lld operations of further dispatch rounds are not in it\n", (long long)missing);
        st = mt_trace_sums_write(&sums, s, step, e);
    }
    mt_trace_sums_close(&sums);
    for (int i = 0; i < t->n; i++) mt_times_clear(&t->times[i]);
    return mt_job_agree(&s->job, st, e);
}
