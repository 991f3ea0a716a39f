#include "train/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/print.h"
#include "train/say.h"

/* ---- sums ---- */
static const struct mt_lane *lane_of(const struct mt_session *s, int rank, int group, int stream, int op)
{
    return &s->rank[rank].traffic.lane[group][stream][op - MT_COMM_FIRST];
}

/* The sum over all processes, each of which calls this. */
static struct mt_lane over_job(const struct mt_session *s, struct mt_lane l)
{
    enum { FLOWS = MT_N_LINKS * sizeof(struct mt_flow) / sizeof(int64_t) };
    int64_t x[1 + MT_N_LINKS + FLOWS] = {l.calls};
    for (int i = 0; i < MT_N_LINKS; i++) x[1 + i] = atomic_load(&l.moved[i]);
    memcpy(&x[1 + MT_N_LINKS], l.flow, sizeof l.flow);
    mt_job_sum(&s->job, x, sizeof x / sizeof *x);
    l.calls = x[0];
    for (int i = 0; i < MT_N_LINKS; i++) atomic_store(&l.moved[i], x[1 + i]);
    memcpy(l.flow, &x[1 + MT_N_LINKS], sizeof l.flow);
    return l;
}

struct mt_lane mt_wire_sum(const struct mt_session *s, int group, int stream, int op)
{
    struct mt_lane sum = {0};
    for (int i = 0; i < s->n_local; i++) mt_lane_sum(&sum, lane_of(s, i, group, stream, op));
    return over_job(s, sum);
}

static struct mt_lane rank_sum(const struct mt_session *s, int rank, int group)
{
    struct mt_lane sum = {0};
    for (int stream = 0; stream < MT_N_STREAMS; stream++)
        for (int k = 0; k < MT_N_COMM_OPS; k++)
            mt_lane_sum(&sum, lane_of(s, rank, group, stream, MT_COMM_FIRST + k));
    return sum;
}

struct mt_lane mt_wire_sum_group(const struct mt_session *s, int group)
{
    struct mt_lane sum = {0};
    for (int g = 0; g < MT_N_GROUPS; g++)
        for (int i = 0; i < s->n_local && (group < 0 || g == group); i++) {
            struct mt_lane one = rank_sum(s, i, g);
            mt_lane_sum(&sum, &one);
        }
    return over_job(s, sum);
}

int64_t mt_lane_padding(const struct mt_lane *l, enum mt_link link)
{
    return atomic_load(&l->moved[link]) - l->flow[link].received + l->flow[link].received_pad;
}

/* ---- metrics ---- */
int mt_wire_fields(const struct mt_session *s, bool by_group, char *out, size_t size)
{
    struct mt_lane all = mt_wire_sum_group(s, -1);
    int n = snprintf(out, size,
                     ", \"wire_node_bytes\": %" PRId64 ", \"wire_net_bytes\": %" PRId64
                     ", \"wire_padding_bytes\": %" PRId64,
                     all.flow[MT_LINK_NODE].sent, all.flow[MT_LINK_NET].sent,
                     mt_lane_padding(&all, MT_LINK_NODE) + mt_lane_padding(&all, MT_LINK_NET));
    for (int g = 0; g < MT_N_GROUPS && by_group; g++) {
        struct mt_lane one = mt_wire_sum_group(s, g);
        n += snprintf(out + n, size - (size_t)n, ", \"wire_%s\": [%" PRId64 ", %" PRId64 "]",
                      mt_mesh_group_name((enum mt_group_id)g), one.flow[MT_LINK_NODE].sent,
                      one.flow[MT_LINK_NET].sent);
    }
    return n;
}

/* ---- the table ---- */
static void print_row(int group, int stream, int op, const struct mt_lane *l, int world)
{
    mt_say("  %-10s %-8s %-13s %8lld %15lld %15lld %12lld\n", mt_mesh_group_name((enum mt_group_id)group),
           mt_stream_name(stream), mt_op_info[op].name, (long long)(l->calls / world),
           (long long)l->flow[MT_LINK_NODE].sent, (long long)l->flow[MT_LINK_NET].sent,
           (long long)(mt_lane_padding(l, MT_LINK_NODE) + mt_lane_padding(l, MT_LINK_NET)));
}

static void print_table(const struct mt_session *s, int64_t step)
{
    bool first = s->job.me == 0;
    if (first)
        mt_say("traffic   step %lld, bytes sent by all %d ranks, own pieces not counted\n", (long long)step,
               s->world);
    if (first)
        mt_say(
            "  group      stream   collective       calls     inside nodes   between nodes      padding\n");
    for (int g = 0; g < MT_N_GROUPS; g++)
        for (int stream = 0; stream < MT_N_STREAMS; stream++)
            for (int op = MT_COMM_FIRST; op < MT_COMM_FIRST + MT_N_COMM_OPS; op++) {
                struct mt_lane l = mt_wire_sum(s, g, stream, op);
                if (l.calls && first) print_row(g, stream, op, &l, s->world);
            }
}

/* ---- RUN/traffic.json ---- */
static void write_links(FILE *f, const struct mt_lane *l)
{
    static const char *const name[MT_N_LINKS] = {"node", "net"};
    for (int i = 0; i < MT_N_LINKS; i++)
        fprintf(f, "\"%s\": {\"sent\": %" PRId64 ", \"received\": %" PRId64 ", \"padding\": %" PRId64 "}%s",
                name[i], l->flow[i].sent, l->flow[i].received, mt_lane_padding(l, (enum mt_link)i),
                i + 1 < MT_N_LINKS ? ", " : "}");
}

static void write_rank(FILE *f, const struct mt_session *s, int rank)
{
    const char *comma = "";
    fprintf(f, "%s\n    {\"rank\": %d, \"collectives\": [", rank ? "," : "", s->rank[rank].ctx.rank);
    for (int g = 0; g < MT_N_GROUPS; g++)
        for (int stream = 0; stream < MT_N_STREAMS; stream++)
            for (int op = MT_COMM_FIRST; op < MT_COMM_FIRST + MT_N_COMM_OPS; op++) {
                const struct mt_lane *l = lane_of(s, rank, g, stream, op);
                if (!l->calls) continue;
                fprintf(
                    f,
                    "%s\n      {\"group\": \"%s\", \"stream\": \"%s\", \"op\": \"%s\", \"calls\": %" PRId64
                    ", ",
                    comma, mt_mesh_group_name((enum mt_group_id)g), mt_stream_name(stream),
                    mt_op_info[op].name, l->calls);
                write_links(f, l);
                comma = ",";
            }
    fprintf(f, "]}");
}

mt_status mt_wire_report(const struct mt_session *s, int64_t step, mt_err *e)
{
    char path[MT_CONFIG_PATH + 32];
    if (s->job.n == 1)
        snprintf(path, sizeof path, "%s/traffic.json", s->cfg->run_dir);
    else
        snprintf(path, sizeof path, "%s/traffic-%05d.json", s->cfg->run_dir, s->first);
    print_table(s, step);
    FILE *f;
    MT_TRY(mt_print_open(&f, path, e));
    fprintf(f, "{\"step\": %" PRId64 ", \"world\": %d, \"ranks_per_node\": %" PRId64 ", \"ranks\": [", step,
            s->world, s->cfg->mesh_ranks_per_node);
    for (int i = 0; i < s->n_local; i++) write_rank(f, s, i);
    fprintf(f, "]}\n");
    return mt_print_close(f, path, e);
}

/* ---- which collectives ---- */
mt_status mt_wire_trace(struct mt_session *s, mt_err *e)
{
    char path[MT_CONFIG_PATH + 48];
    for (int i = 0; i < s->n_local; i++) {
        struct mt_ctx *c = &s->rank[i].ctx;
        snprintf(path, sizeof path, "%s/collectives-%05d.log", s->cfg->run_dir, c->rank);
        c->trace.log = fopen(path, "w");
        MT_REQUIRE(c->trace.log, e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    }
    return MT_OK;
}

void mt_wire_trace_end(struct mt_session *s)
{
    for (int i = 0; i < s->n_local && s->rank; i++) {
        struct mt_trace *t = &s->rank[i].ctx.trace;
        if (t->log) fclose(t->log);
        t->log = NULL;
    }
}

void mt_wire_dump(const struct mt_session *s)
{
    char path[MT_CONFIG_PATH + 32];
    if (s->job.n == 1)
        snprintf(path, sizeof path, "%s/collectives.txt", s->cfg->run_dir);
    else
        snprintf(path, sizeof path, "%s/collectives-%05d.txt", s->cfg->run_dir, s->first);
    FILE *f = s->world > 1 ? fopen(path, "w") : NULL;
    if (!f) return;
    for (int i = 0; i < s->n_local; i++) {
        const struct mt_ctx *c = &s->rank[i].ctx;
        fprintf(f, "rank %d: %lld collectives, the last of them:\n", c->rank, (long long)c->trace.n);
        mt_trace_dump(&c->trace, f);
    }
    fclose(f);
}
