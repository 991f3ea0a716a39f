#include "graphs.h"

#include <stdlib.h>
#include <string.h>

/* A stretch: at least LEAST launches; at most MOST calls, far fewer than a stream has events. */
enum { LEAST = 4, MOST = 64 };
/* What a call costs the host, nominally: a launch and its event. And how fast a device of sm_90 is at small operations, about. */
#define LAUNCH_S 4e-6
#define BYTES_PER_S 2e12
#define FLOPS_PER_S 2e14

enum state { PLANNED, CAPTURED, REFUSED };
struct stretch {
    uint64_t key; /* 0: none is here */
    enum state state;
    int n;
    struct mt_call *call; /* n, owned; NULL until it is captured */
    cudaGraphExec_t exec;
};
struct mt_cuda_graphs {
    struct stretch *table; /* open addressing by key */
    uint64_t mask;
    mt_err refused; /* why the first that could not be captured could not */
    /* The open one. */
    int n;
    int64_t first; /* position of its first call */
    struct mt_call call[MOST];
};

/* ---- what may be in one ---- */
/* Ops whose scalars follow what routers decide, and those whose scalars are another in every step. */
static bool follows_counts(int op)
{
    switch (op) {
    case MT_OP_gather_rows:
    case MT_OP_grouped_fwd:
    case MT_OP_grouped_fwd_into:
    case MT_OP_grouped_bwdx:
    case MT_OP_grouped_bwdx_into:
    case MT_OP_grouped_bwdw:
    case MT_OP_expert_swiglu_fwd:
    case MT_OP_expert_swiglu_bwd:
    case MT_OP_expert_sort:
    case MT_OP_expert_unsort: return true;
    default: return false;
    }
}
static bool changes_by_step(int op)
{
    return op == MT_OP_adamw || op == MT_OP_muon_apply || op == MT_OP_soap_adam || op == MT_OP_eigen_basis;
}
static bool may_be_in(const struct mt_cuda *d, int op)
{
    const bool attention = op == MT_OP_attention_fwd || op == MT_OP_attention_bwd;
    if (op == MT_OP_wait || mt_op_info[op].kind == MT_COMM || mt_op_info[op].kind == MT_READ) return false;
    /* cuDNN's plans get their memory, and its library its stream, in calls of their own. */
    if (attention && d->queue[MT_COMPUTE].sdpa) return false;
    return !follows_counts(op) && !changes_by_step(op);
}
/* Whether an op of any stream ends what is open. Collectives and reads: the host waits there, for others or for the device. The host's
 * own operations: likewise, where 256 of them are under way. */
static bool ends(const struct mt_cuda *d, int stream, int op)
{
    if (stream == MT_COMPUTE) return !may_be_in(d, op);
    return stream == MT_HOST || mt_op_info[op].kind == MT_COMM || mt_op_info[op].kind == MT_READ;
}
static int launches_of(int op, const union mt_scalar *scalar)
{
    if (op == MT_OP_fresh || op == MT_OP_keep) return 0;
    return op == MT_OP_newton_schulz ? 3 + 3 * (int)scalar[0].i : 1;
}

/* ---- keys ---- */
static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}
static uint64_t key_begin(uint64_t h, int op, int dtype, const int64_t *dim, const union mt_scalar *scalar)
{
    h = mix(h, (uint64_t)op << 8 | (uint64_t)dtype);
    for (int i = 0; i < MT_LETTERS; i++) h = mix(h, (uint64_t)dim[i]);
    for (int i = 0; i < mt_op_info[op].n_scalars; i++) h = mix(h, (uint64_t)scalar[i].i);
    return h;
}
static uint64_t key_of(const struct mt_call *call, int n)
{
    uint64_t h = 1;
    for (int k = 0; k < n; k++) {
        const struct mt_call *c = &call[k];
        h = key_begin(h, c->op, c->dtype, c->dim, c->scalar);
        for (int i = 0; i < mt_op_info[c->op].n_args; i++)
            if (c->arg[i]) h = mix(mix(h, (uint64_t)i), (uint64_t)(uintptr_t)c->arg[i]);
    }
    return h | 1;
}
/* The same of records, which will be calls with these addresses. */
static uint64_t key_of_records(const struct mt_cuda *d, const struct mt_recording *q, const int64_t *rec,
                               int n)
{
    const struct mt_ctx *ctx = d->ctx;
    uint64_t h = 1;
    for (int k = 0; k < n; k++) {
        const struct mt_rec *r = &q->rec[rec[k]];
        h = key_begin(h, r->op, r->dtype, r->dim, r->scalar);
        for (int i = 0; i < r->n_args; i++) {
            const struct mt_rec_arg *a = &q->arg[r->arg + (uint32_t)i];
            const struct mt_row *row = &ctx->ledger->row[a->row];
            const char *at = (const char *)d->arena[row->arena] + row->off + a->off;
            h = mix(mix(h, a->place), (uint64_t)(uintptr_t)at);
        }
    }
    return h | 1;
}
/* Its place, or the free one where it would be; the table is never full. */
static struct stretch *place_of(const struct mt_cuda_graphs *g, uint64_t key)
{
    uint64_t i = key >> 7 & g->mask;
    while (g->table[i].key && g->table[i].key != key) i = (i + 1) & g->mask;
    return &g->table[i];
}

/* ---- the plan ---- */
struct plan {
    struct mt_cuda *d;
    const struct mt_recording *q;
    enum mt_cuda_graphs_which which;
    struct mt_cuda_graphs_info *info;
    int64_t rec[MOST];
    int n;
};
static double seconds_of(const struct mt_recording *q, const struct mt_rec *r)
{
    int64_t bytes[MT_MAX_ARGS] = {0};
    for (int i = 0; i < r->n_args; i++)
        bytes[q->arg[r->arg + (uint32_t)i].place] = q->arg[r->arg + (uint32_t)i].bytes;
    return mt_op_info[r->op].flops(r->dim, bytes, r->scalar) / FLOPS_PER_S +
           mt_op_info[r->op].bytes(r->dim, bytes, r->scalar) / BYTES_PER_S;
}
static void close_planned(struct plan *p)
{
    struct mt_cuda_graphs *g = p->d->graphs;
    int64_t launches = 0;
    int calls = 0;
    double seconds = 0;
    for (int k = 0; k < p->n; k++) {
        const struct mt_rec *r = &p->q->rec[p->rec[k]];
        launches += launches_of(r->op, r->scalar);
        calls += launches_of(r->op, r->scalar) > 0;
        seconds += seconds_of(p->q, r);
    }
    const bool pays = p->which == MT_CUDA_GRAPHS_ALL || seconds < LAUNCH_S * (double)launches;
    if (launches < LEAST || !pays) {
        p->info->left[launches < LEAST ? MT_CUDA_LEFT_SHORT : MT_CUDA_LEFT_LONG] += calls;
    } else {
        struct stretch *x = place_of(g, key_of_records(p->d, p->q, p->rec, p->n));
        p->info->planned_calls += calls;
        if (!x->key) {
            *x = (struct stretch){.key = key_of_records(p->d, p->q, p->rec, p->n), .n = p->n};
            p->info->stretches++;
        }
    }
    p->n = 0;
}
static void plan_record(struct plan *p, int64_t i)
{
    const struct mt_rec *r = &p->q->rec[i];
    if (r->op == MT_OP_wait) {
        const bool inside = p->n && r->ev.stream == MT_COMPUTE && r->ev.seq >= p->q->rec[p->rec[0]].seq;
        if (r->stream == MT_COMPUTE || inside) close_planned(p);
        return;
    }
    if (ends(p->d, r->stream, r->op)) close_planned(p);
    if (r->stream != MT_COMPUTE) return;
    p->info->calls += mt_op_info[r->op].kind != MT_COMM && launches_of(r->op, r->scalar) > 0;
    if (may_be_in(p->d, r->op)) {
        p->rec[p->n++] = i;
        if (p->n == MOST) close_planned(p);
    } else if (mt_op_info[r->op].kind == MT_KERNEL)
        p->info->left[changes_by_step(r->op)  ? MT_CUDA_LEFT_CHANGES
                      : follows_counts(r->op) ? MT_CUDA_LEFT_COUNTS
                                              : MT_CUDA_LEFT_LONG]++;
}
mt_status mt_cuda_graphs_open(struct mt_cuda *d, const struct mt_recording *q,
                              enum mt_cuda_graphs_which which, struct mt_cuda_graphs_info *info, mt_err *e)
{
    struct mt_cuda_graphs *g = calloc(1, sizeof *g);
    struct plan p = {.d = d, .q = q, .which = which, .info = info};
    uint64_t places = 16;
    *info = (struct mt_cuda_graphs_info){0};
    while (places < (uint64_t)q->n) places *= 2; /* a stretch has LEAST launches, mostly as many records */
    if (g) g->table = calloc(places, sizeof *g->table);
    if (!g || !g->table) {
        free(g);
        MT_FAIL(e, MT_IO, "planning CUDA graphs: no memory for %llu stretches", (unsigned long long)places);
    }
    g->mask = places - 1;
    d->graphs = g;
    for (int64_t i = 0; i < q->n; i++) plan_record(&p, i);
    close_planned(&p);
    return MT_OK;
}
void mt_cuda_graphs_close(struct mt_cuda *d)
{
    struct mt_cuda_graphs *g = d->graphs;
    for (uint64_t i = 0; g && i <= g->mask; i++) {
        if (g->table[i].exec) cudaGraphExecDestroy(g->table[i].exec);
        free(g->table[i].call);
    }
    if (g) free(g->table);
    free(g);
    d->graphs = NULL;
}

/* ---- the step ---- */
static mt_status one_by_one(struct mt_cuda *d, const struct mt_call *call, int n, mt_err *e)
{
    for (int i = 0; i < n; i++) MT_TRY(mt_cuda_kernel[call[i].op](&d->queue[MT_COMPUTE], &call[i], e));
    return MT_OK;
}
static mt_status capture_open(struct mt_cuda *d, struct stretch *x, mt_err *e)
{
    const cudaStream_t on = d->queue[MT_COMPUTE].lane.stream;
    cudaGraph_t graph = NULL;
    MT_CUDA_TRY(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), e, MT_DEVICE,
                "capturing %d operations", x->n);
    mt_status status = one_by_one(d, d->graphs->call, x->n, e);
    cudaError_t r = cudaStreamEndCapture(on, &graph);
    if (!status && r) status = mt_cuda_failed(e, MT_DEVICE, r, "capturing %d operations", x->n);
    if (!status) {
        r = cudaGraphInstantiate(&x->exec, graph, 0);
        if (r) status = mt_cuda_failed(e, MT_DEVICE, r, "making a graph of %d operations", x->n);
    }
    if (graph) cudaGraphDestroy(graph);
    return status;
}
/* What cannot be captured is enqueued as it is: it then says what is wrong, if anything is. */
static void capture(struct mt_cuda *d, struct stretch *x)
{
    struct mt_cuda_graphs *g = d->graphs;
    mt_err why = {0};
    x->call = malloc((size_t)x->n * sizeof *x->call);
    if (!x->call || capture_open(d, x, &why)) {
        (void)cudaGetLastError();
        x->state = REFUSED;
        if (!g->refused.code) g->refused = why;
        return;
    }
    memcpy(x->call, g->call, (size_t)x->n * sizeof *x->call);
    x->state = CAPTURED;
}
static mt_status give(struct mt_cuda *d, mt_err *e)
{
    struct mt_cuda_graphs *g = d->graphs;
    struct stretch *x = place_of(g, key_of(g->call, g->n));
    if (x->key && x->state == PLANNED && x->n == g->n) capture(d, x);
    if (!x->key || x->state != CAPTURED || x->n != g->n ||
        memcmp(x->call, g->call, (size_t)g->n * sizeof *g->call))
        return one_by_one(d, g->call, g->n, e);
    MT_CUDA_TRY(cudaGraphLaunch(x->exec, d->queue[MT_COMPUTE].lane.stream), e, MT_DEVICE,
                "launching a graph of %d operations", g->n);
    return MT_OK;
}
/* All positions of the stretch have the event of its last. */
mt_status mt_cuda_graphs_flush(struct mt_cuda *d, mt_err *e)
{
    struct mt_cuda_graphs *g = d->graphs;
    if (!g || !g->n) return MT_OK;
    const int64_t last = g->first + g->n - 1;
    mt_status status = give(d, e);
    g->n = 0;
    if (status) {
        mt_err_while(e, "operations %lld to %lld of stream compute", (long long)g->first, (long long)last);
        return status;
    }
    return mt_cuda_mark(d, MT_COMPUTE, g->first, last, e);
}

mt_status mt_cuda_graphs_note(struct mt_cuda *d, const struct mt_stream *s, const struct mt_call *c,
                              bool *noted, mt_err *e)
{
    struct mt_cuda_graphs *g = d->graphs;
    *noted = false;
    if (!g) return MT_OK;
    if (ends(d, s->id, c->op) || g->n == MOST) MT_TRY(mt_cuda_graphs_flush(d, e));
    /* A traced step's operations are timed one by one. */
    if (s->id != MT_COMPUTE || s->ctx->times || !may_be_in(d, c->op)) return MT_OK;
    MT_TRY(mt_cuda_stand_begin(d, s, c->op, (mt_event){0, 0}, NULL, e));
    if (!g->n) g->first = s->seq;
    g->call[g->n++] = *c;
    *noted = true;
    return MT_OK;
}
mt_status mt_cuda_graphs_wait(struct mt_cuda *d, const struct mt_stream *s, mt_event ev, mt_err *e)
{
    const struct mt_cuda_graphs *g = d->graphs;
    const bool inside = g && g->n && ev.stream == MT_COMPUTE && ev.seq >= g->first;
    return inside || s->id == MT_COMPUTE ? mt_cuda_graphs_flush(d, e) : MT_OK;
}

bool mt_cuda_graphs_refused(const struct mt_cuda *d, mt_err *why)
{
    if (!d->graphs || !d->graphs->refused.code) return false;
    *why = d->graphs->refused;
    return true;
}
