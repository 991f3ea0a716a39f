#include "train/stragglers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/say.h"

enum { NAMED = 4 };
/* Seconds of a step below which being late is of no account: ranks of short steps differ by what else their cores do. */
static const double least_excess = 0.02;

mt_status mt_stragglers_open(struct mt_stragglers *x, const struct mt_session *s, mt_err *e)
{
    *x = (struct mt_stragglers){0};
    if (s->world == 1 || !s->exec || !(s->cfg->guard_straggler_factor > 0)) return MT_OK;
    x->ns = calloc((size_t)(3 * s->world + s->n_local), sizeof *x->ns);
    MT_REQUIRE(x->ns, e, MT_IO, "no memory for the times of %d ranks", s->world);
    x->data_ns = x->ns + s->world;
    x->sorted = x->data_ns + s->world;
    x->before = x->sorted + s->world;
    for (int i = 0; i < s->n_local; i++) x->before[i] = mt_exec_busy_ns(s->exec, i);
    return MT_OK;
}
void mt_stragglers_close(struct mt_stragglers *x)
{
    free(x->ns);
    *x = (struct mt_stragglers){0};
}

void mt_stragglers_data(struct mt_stragglers *x, const struct mt_session *s, int i, double seconds)
{
    if (x->ns) x->data_ns[s->first + i] += (int64_t)(1e9 * seconds);
}

/* Ascending, in place: the library's sort may allocate. */
static void sort(int64_t *x, int n)
{
    for (int gap = n / 2; gap > 0; gap /= 2)
        for (int i = gap; i < n; i++) {
            int64_t v = x[i];
            int k = i;
            for (; k >= gap && x[k - gap] > v; k -= gap) x[k] = x[k - gap];
            x[k] = v;
        }
}

/* Every rank's time since the last look, on all processes. */
static void gather(struct mt_stragglers *x, const struct mt_session *s)
{
    for (int i = 0; i < s->n_local; i++) {
        int64_t now = mt_exec_busy_ns(s->exec, i);
        x->ns[s->first + i] = now - x->before[i] + x->data_ns[s->first + i];
        x->before[i] = now;
    }
    mt_job_sum(&s->job, x->ns, 2 * s->world);
    memcpy(x->sorted, x->ns, (size_t)s->world * sizeof *x->sorted);
    sort(x->sorted, s->world);
}

/* The rank that took longest of those that took less than `below`, or as long and come after rank `after`. */
static int next_longest(const struct mt_stragglers *x, int world, int64_t below, int after)
{
    int who = -1;
    for (int r = 0; r < world; r++) {
        bool left = x->ns[r] < below || (x->ns[r] == below && r > after);
        if (left && (who < 0 || x->ns[r] > x->ns[who])) who = r;
    }
    return who;
}

static void tell(const struct mt_stragglers *x, const struct mt_nodes *nodes, int64_t step, int rank,
                 double times)
{
    mt_say("step %5lld  rank %d (node %s) needs %.1f times as long as most for its own work", (long long)step,
           rank, mt_nodes_of(nodes, rank), times);
    if (2 * x->data_ns[rank] > x->ns[rank]) mt_say(", most of it for its data");
    mt_say("\n");
}

static void list(const struct mt_stragglers *x, const struct mt_session *s, const struct mt_nodes *nodes,
                 int64_t step, char fields[MT_STRAGGLERS_TEXT])
{
    double median = (double)x->sorted[(s->world - 1) / 2], each = 1e-9 / (double)x->steps;
    int n = snprintf(fields, MT_STRAGGLERS_TEXT, ", \"rank_s\": [%.6f, %.6f], \"stragglers\": [",
                     each * median, each * (double)x->sorted[s->world - 1]);
    int64_t below = INT64_MAX;
    for (int k = 0, r = -1; k < NAMED && s->job.me == 0; k++, below = x->ns[r]) {
        r = next_longest(x, s->world, below, r);
        double times = r < 0 || !(median > 0) ? 0 : (double)x->ns[r] / median;
        bool late = times >= s->cfg->guard_straggler_factor &&
                    each * ((double)x->ns[r] - median) >= least_excess;
        if (!late) break;
        if (k == 0) tell(x, nodes, step, r, times);
        n += snprintf(fields + n, (size_t)(MT_STRAGGLERS_TEXT - n), "%s[%d, \"%.40s\", %.2f]", k ? ", " : "",
                      r, mt_nodes_of(nodes, r), times);
    }
    snprintf(fields + n, (size_t)(MT_STRAGGLERS_TEXT - n), "]");
}

void mt_stragglers_step(struct mt_stragglers *x, const struct mt_session *s, const struct mt_nodes *nodes,
                        int64_t step, bool look, char fields[MT_STRAGGLERS_TEXT])
{
    fields[0] = 0;
    x->steps++;
    if (!x->ns || !look) return;
    gather(x, s);
    list(x, s, nodes, step, fields);
    memset(x->ns, 0, (size_t)(2 * s->world) * sizeof *x->ns);
    x->steps = 0;
}
