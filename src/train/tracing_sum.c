#include "train/tracing_sum.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "train/say.h"

enum {
    SUM_WORDS = sizeof(struct mt_timeline_sum) / sizeof(int64_t),
    OP_WORDS = sizeof(struct mt_trace_op) / sizeof(int64_t)
};
_Static_assert(SUM_WORDS == 1 + 3 * MT_N_CAUSES + MT_N_STREAMS, "a sum is words, which processes add up");

mt_status mt_trace_sums_open(struct mt_trace_sums *a, const struct mt_tracing *t, const struct mt_session *s,
                             mt_err *e)
{
    struct mt_op_sum op[MT_N_OPS] = {{0}};
    *a = (struct mt_trace_sums){.n = t->world, .rank = calloc((size_t)t->world, sizeof *a->rank)};
    MT_REQUIRE(a->rank, e, MT_IO, "no memory for the sums of %d ranks", t->world);
    for (int i = 0; i < t->n; i++) {
        struct mt_timeline line = mt_tracing_timeline(t, s, i);
        MT_TRY(mt_timeline_summarize(&line, &a->rank[line.rank], e));
        mt_timeline_ops(&line, op);
    }
    for (int k = 0; k < MT_N_OPS; k++)
        a->op[k] =
            (struct mt_trace_op){op[k].calls, op[k].time, (int64_t)(op[k].flops / 1e3), (int64_t)op[k].bytes};
    return MT_OK;
}

void mt_trace_sums_close(struct mt_trace_sums *a)
{
    free(a->rank);
    *a = (struct mt_trace_sums){0};
}

void mt_trace_sums_share(struct mt_trace_sums *a, const struct mt_session *s)
{
    if (s->job.n == 1) return;
    int64_t x[SUM_WORDS], y[MT_N_OPS][OP_WORDS];
    for (int i = 0; i < a->n; i++) {
        memcpy(x, &a->rank[i], sizeof x);
        mt_job_sum(&s->job, x, SUM_WORDS);
        memcpy(&a->rank[i], x, sizeof x);
    }
    memcpy(y, a->op, sizeof y);
    mt_job_sum(&s->job, y[0], MT_N_OPS * OP_WORDS);
    memcpy(a->op, y, sizeof y);
}

/* ---- over ranks ---- */
/* The sum over ranks of each number of theirs, and the rank that spent most on a cause. */
static struct mt_timeline_sum total_of(const struct mt_trace_sums *a)
{
    struct mt_timeline_sum total = {0};
    for (int i = 0; i < a->n; i++) {
        const struct mt_timeline_sum *r = &a->rank[i];
        total.length += r->length;
        for (int c = 0; c < MT_N_CAUSES; c++) {
            total.spent[c] += r->spent[c];
            total.still[c] += r->still[c];
            total.busy[c] += r->busy[c];
        }
        for (int s = 0; s < MT_N_STREAMS; s++) total.stream[s] += r->stream[s];
    }
    return total;
}
static int worst_of(const struct mt_trace_sums *a, int cause)
{
    int worst = 0;
    for (int i = 1; i < a->n; i++)
        if (a->rank[i].spent[cause] > a->rank[worst].spent[cause]) worst = i;
    return worst;
}
static double share(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}
static double mean_ms(const struct mt_trace_sums *a, int64_t total)
{
    return 1e-6 * (double)total / a->n;
}

/* ---- the table ---- */
static void print_cause(const struct mt_trace_sums *a, const struct mt_timeline_sum *total, enum mt_cause c)
{
    char name[48];
    int worst = worst_of(a, c);
    bool exposed = mt_cause_exposed(c);
    snprintf(name, sizeof name, "%s%s", exposed ? "exposed " : "", mt_cause_text(c));
    mt_say("  %-28s %10.3f %6.1f %10.3f %5d", name, mean_ms(a, total->spent[c]),
           100 * share(total->spent[c], total->length), 1e-6 * (double)a->rank[worst].spent[c], worst);
    if (exposed)
        mt_say(" %10.3f %10.3f %6.1f%%", mean_ms(a, total->still[c]), mean_ms(a, total->busy[c]),
               100 * mt_timeline_hidden(total, c));
    mt_say("\n");
}

void mt_trace_sums_print(const struct mt_trace_sums *a, int64_t step, const char *path)
{
    struct mt_timeline_sum total = total_of(a);
    mt_say("trace     step %lld, %d ranks, %.3f ms: %s\n", (long long)step, a->n, mean_ms(a, total.length),
           path);
    mt_say("  %-28s %10s %6s %10s %5s %10s %10s %7s\n", "time of the compute stream", "mean ms", "%",
           "worst ms", "rank", "still ms", "moving ms", "hidden");
    for (int c = 0; c < MT_N_CAUSES; c++)
        if (total.spent[c] || total.busy[c]) print_cause(a, &total, (enum mt_cause)c);
    mt_say("  streams busy");
    for (int s = 0; s < MT_N_STREAMS; s++)
        mt_say("%s %s %.1f%%", s ? "," : "", mt_stream_name(s), 100 * share(total.stream[s], total.length));
    mt_say("\n");
}

/* ---- the file ---- */
static void write_ns(FILE *f, const char *name, const int64_t ns[MT_N_CAUSES])
{
    fprintf(f, ", \"%s\": {", name);
    for (int c = 0; c < MT_N_CAUSES; c++)
        fprintf(f, "%s\"%s\": %" PRId64, c ? ", " : "", mt_cause_text((enum mt_cause)c), ns[c]);
    fprintf(f, "}");
}

static void write_causes(FILE *f, const struct mt_trace_sums *a)
{
    struct mt_timeline_sum total = total_of(a);
    for (int c = 0; c < MT_N_CAUSES; c++) {
        int worst = worst_of(a, c);
        fprintf(f,
                "%s\n    \"%s\": {\"mean_ms\": %.6f, \"share\": %.6f, \"worst_ms\": %.6f, \"worst_rank\": %d",
                c ? "," : "", mt_cause_text((enum mt_cause)c), mean_ms(a, total.spent[c]),
                share(total.spent[c], total.length), 1e-6 * (double)a->rank[worst].spent[c], worst);
        if (mt_cause_exposed((enum mt_cause)c))
            fprintf(f, ", \"still_ms\": %.6f, \"moving_ms\": %.6f, \"hidden\": %.6f",
                    mean_ms(a, total.still[c]), mean_ms(a, total.busy[c]),
                    mt_timeline_hidden(&total, (enum mt_cause)c));
        fprintf(f, "}");
    }
}

static void write_rank(FILE *f, const struct mt_trace_sums *a, int i)
{
    const struct mt_timeline_sum *r = &a->rank[i];
    fprintf(f, "%s\n    {\"rank\": %d, \"step_ns\": %" PRId64, i ? "," : "", i, r->length);
    write_ns(f, "spent_ns", r->spent);
    write_ns(f, "still_ns", r->still);
    write_ns(f, "moving_ns", r->busy);
    fprintf(f, ", \"streams_ns\": {");
    for (int s = 0; s < MT_N_STREAMS; s++)
        fprintf(f, "%s\"%s\": %" PRId64, s ? ", " : "", mt_stream_name(s), r->stream[s]);
    fprintf(f, "}}");
}

static void write_ops(FILE *f, const struct mt_trace_sums *a)
{
    const char *comma = "";
    for (int k = 0; k < MT_N_OPS; k++) {
        const struct mt_trace_op *o = &a->op[k];
        double s = 1e-9 * (double)o->time;
        if (!o->calls) continue;
        fprintf(f, "%s\n    {\"name\": \"%s\", \"calls\": %" PRId64 ", \"ms\": %.6f", comma,
                mt_op_info[k].name, o->calls, 1e3 * s);
        if (s > 0)
            fprintf(f, ", \"gflop_per_s\": %.6g, \"gb_per_s\": %.6g", 1e-6 * (double)o->kflop / s,
                    1e-9 * (double)o->bytes / s);
        fprintf(f, "}");
        comma = ",";
    }
}

mt_status mt_trace_sums_write(const struct mt_trace_sums *a, const struct mt_session *s, int64_t step,
                              mt_err *e)
{
    char path[MT_CONFIG_PATH + 48];
    struct mt_timeline_sum total = total_of(a);
    snprintf(path, sizeof path, "%s/trace-%08" PRId64 "-summary.json", s->cfg->run_dir, step);
    FILE *f;
    MT_TRY(mt_print_open(&f, path, e));
    fprintf(f, "{\"step\": %" PRId64 ", \"world\": %d, \"ranks\": %d, \"mean_ms\": %.6f,\n  \"causes\": {",
            step, s->world, a->n, mean_ms(a, total.length));
    write_causes(f, a);
    fprintf(f, "},\n  \"per_rank\": [");
    for (int i = 0; i < a->n; i++) write_rank(f, a, i);
    fprintf(f, "],\n  \"operations\": [");
    write_ops(f, a);
    fprintf(f, "]}\n");
    return mt_print_close(f, path, e);
}
