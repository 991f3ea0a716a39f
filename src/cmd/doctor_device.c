/* What copies to, from and between GPUs take. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/doctor_here.h"
#include "device/backend.h"

enum { TIMES = 3 };
struct looking {
    const struct mt_probe_ops *ops;
    void *probe; /* NULL: nothing to measure, and the others are waited for */
    int device, devices;
    double bytes;
    mt_status status;
    mt_err err;
};

/* The slowest of a rank's devices or peers counts, each by the best of its times. */
static void keep(double *least, double best)
{
    *least = fmin(*least, best);
}

static void host_copies(struct looking *l, const struct mt_job *job, struct mt_rank_facts *f)
{
    double to_device = (double)NAN, to_host = (double)NAN, there, back;
    for (int i = 0; i < TIMES; i++) {
        (void)mt_job_any(job, false); /* all ranks begin */
        if (!l->probe || l->status) continue;
        l->status = l->ops->host(l->probe, &there, &back, &l->err);
        if (l->status) continue;
        to_device = fmax(to_device, l->bytes / there);
        to_host = fmax(to_host, l->bytes / back);
    }
    keep(&f->x[MT_FACT_h2d], to_device);
    keep(&f->x[MT_FACT_d2h], to_host);
}

/* Rank i takes from device i + k: each device gives to one rank at a time. */
static void peer_copies(struct looking *l, const struct mt_job *job, int most, struct mt_rank_facts *f)
{
    for (int k = 1; k < most; k++) {
        double best = (double)NAN, seconds;
        for (int i = 0; i < TIMES; i++) {
            (void)mt_job_any(job, false);
            if (!l->probe || l->status || k >= l->devices) continue;
            l->status = l->ops->peer(l->probe, (l->device + k) % l->devices, &seconds, &l->err);
            if (!l->status) best = fmax(best, l->bytes / seconds);
        }
        keep(&f->x[MT_FACT_p2p], best);
    }
}

static int64_t most_of(const struct mt_job *job, int64_t x)
{
    mt_job_most(job, &x, 1);
    return x;
}

/* What a rank's GPU has for the others of its node. */
struct offer {
    char node[sizeof((struct mt_rank_facts *)0)->node], bytes[MT_PROBE_OFFER];
    int64_t there;
};
/* The k-th rank behind this one, round the node; -1: it has fewer. */
static int neighbour(const struct offer *all, const struct mt_job *job, int k)
{
    int m = 0, seat = 0;
    for (int i = 0; i < job->n; i++) {
        if (strcmp(all[i].node, all[job->me].node) != 0) continue;
        if (i == job->me) seat = m;
        m++;
    }
    if (k >= m) return -1;
    for (int i = 0, at = 0; i < job->n; i++)
        if (!strcmp(all[i].node, all[job->me].node) && at++ == (seat + k) % m) return i;
    return -1;
}
static void take_from(struct looking *l, const struct offer *from, const struct mt_job *job,
                      struct mt_rank_facts *f)
{
    double best = (double)NAN, seconds;
    for (int i = 0; i < TIMES; i++) {
        bool reached = false;
        (void)mt_job_any(job, false);
        if (!from || !from->there || !l->probe || l->status) continue;
        l->status = l->ops->take(l->probe, from->bytes, &reached, &seconds, &l->err);
        if (l->status) continue;
        if (reached)
            best = fmax(best, l->bytes / seconds);
        else
            f->apart = 1;
    }
    keep(&f->x[MT_FACT_p2p], best);
}
/* Where each process sees one device: from those of the other processes on its node. */
static void offered_copies(struct looking *l, const struct mt_job *job, struct mt_rank_facts *f)
{
    const int on_node = (int)most_of(job, job->on_node);
    struct offer *all = on_node > 1 ? calloc((size_t)job->n, sizeof *all) : NULL;
    if (on_node < 2 || mt_job_any(job, !all)) {
        free(all);
        return;
    }
    struct offer *mine = &all[job->me];
    memcpy(mine->node, f->node, sizeof mine->node);
    if (l->probe && !l->status) l->status = l->ops->offer(l->probe, mine->bytes, &l->err);
    mine->there = l->probe && !l->status;
    for (int i = 0; i < job->n; i++) mt_job_broadcast(job, &all[i], sizeof all[i], i);
    for (int k = 1; k < on_node; k++) {
        const int i = neighbour(all, job, k);
        take_from(l, i < 0 ? NULL : &all[i], job, f);
    }
    (void)mt_job_any(job, false); /* nobody takes any more: what was offered may go */
    free(all);
}

/* The devices gpu, gpu + on_node, ...: one where each rank of a node has its own, all of them where one rank sees them all. */
static void all_copies(struct looking *l, int gpu, const struct mt_job *job, struct mt_rank_facts *f)
{
    int each = job->on_node > 0 ? job->on_node : 1, mine = 0;
    if (gpu >= 0 && gpu < l->devices) mine = (l->devices - gpu + each - 1) / each;
    int turns = (int)most_of(job, mine), most = (int)most_of(job, l->devices);
    for (int i = 0; i < turns; i++) {
        l->device = gpu + i * each;
        if (i < mine && !l->status)
            l->status = l->ops->open(&l->probe, l->device, (int64_t)l->bytes, &l->err);
        host_copies(l, job, f);
        peer_copies(l, job, most, f);
        if (most == 1 && job->n > 1) offered_copies(l, job, f);
        if (l->probe) l->ops->close(l->probe);
        l->probe = NULL;
    }
}

void mt_doctor_copies(struct mt_rank_facts *f, int gpu, const struct mt_job *job, bool quick)
{
    const struct mt_backend_ops *b = mt_backend_find_cuda();
    struct looking l = {.bytes = (double)((int64_t)(quick ? 1 : 256) << 20)};
    char found[sizeof f->device] = "this program was built without CUDA";
    bool fits = b && b->find(found, sizeof found);
    snprintf(f->device, sizeof f->device, "%s", found);
    if (b) f->x[MT_FACT_works] = fits;
    if (fits) {
        l.ops = b->probe;
        l.devices = l.ops->devices();
    }
    f->devices = l.devices;
    all_copies(&l, gpu < 0 ? 0 : gpu, job, f);
    if (!l.status) return;
    f->x[MT_FACT_works] = 0;
    snprintf(f->device, sizeof f->device, "%.*s", (int)sizeof f->device - 1, l.err.msg);
}
