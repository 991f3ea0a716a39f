#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/doctor_here.h"
#include "train/metrics.h"

/* Where the ranks sit: node and place on the node, of each. */
struct seats {
    int n, *node, *seat;
};
static mt_status find_seats(struct seats *s, const struct mt_rank_facts *of, int n, mt_err *e)
{
    int nodes = 0;
    *s = (struct seats){.n = n, .node = calloc((size_t)n, 2 * sizeof *s->node)};
    MT_REQUIRE(s->node, e, MT_IO, "no memory for the places of %d ranks", n);
    s->seat = s->node + n;
    for (int i = 0; i < n; i++) {
        int k = i - 1;
        while (k >= 0 && strcmp(of[k].node, of[i].node) != 0) k--; /* the last one there */
        s->node[i] = k < 0 ? nodes++ : s->node[k];
        s->seat[i] = k < 0 ? 0 : s->seat[k] + 1;
    }
    return MT_OK;
}
static int rank_at(const struct seats *s, int node, int seat)
{
    for (int i = 0; i < s->n; i++)
        if (s->node[i] == node && s->seat[i] == seat) return i;
    return -1;
}

/* There and back, the lower rank first. */
static double there_and_back(const struct mt_job *job, int other, char *buffer, int64_t bytes)
{
    double t0 = mt_now();
    if (job->me < other) mt_job_send(job, other, buffer, bytes);
    mt_job_receive(job, other, buffer, bytes);
    if (job->me > other) mt_job_send(job, other, buffer, bytes);
    return 2 * (double)bytes / (mt_now() - t0);
}
/* The best of some times, all pairs at once; NaN for who has no partner, who waits with the others. */
static double measure(const struct mt_job *job, int other, char *buffer, int64_t bytes)
{
    enum { TIMES = 3 };
    double best = (double)NAN, rate = best;
    if (other >= 0) there_and_back(job, other, buffer, 1 << 16); /* the connection is made */
    for (int i = 0; i < TIMES; i++) {
        (void)mt_job_any(job, false);
        if (other >= 0) rate = there_and_back(job, other, buffer, bytes);
        if (!(best > rate)) best = rate;
    }
    return best;
}

mt_status mt_doctor_links(struct mt_rank_facts *f, const struct mt_rank_facts *of, const struct mt_job *job,
                          bool quick, mt_err *e)
{
    int64_t bytes = (int64_t)(quick ? 1 : 32) << 20;
    struct seats s = {0};
    char *buffer = calloc(1, (size_t)bytes);
    mt_status st = buffer ? find_seats(&s, of, job->n, e) : mt_err_set(e, MT_IO, "no memory for messages");
    st = mt_job_agree(job, st, e);
    if (st == MT_OK) {
        int node = s.node[job->me], seat = s.seat[job->me];
        f->x[MT_FACT_link] = measure(job, rank_at(&s, node, seat ^ 1), buffer, bytes);
        /* Of a slow pair only one may be bad: the other one shows it with another partner. */
        double first = measure(job, rank_at(&s, node ^ 1, seat), buffer, bytes);
        double second = measure(job, rank_at(&s, node ^ 2, seat), buffer, bytes);
        f->x[MT_FACT_net] = fmax(first, second);
    }
    free(s.node);
    free(buffer);
    return st;
}
