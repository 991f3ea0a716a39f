/* toy.h: a small step with every feature of a real one: prefetched gathers, offload, dispatch rounds,
 * reductions, five streams, host reads; made of operations of the table. Weights are gains of RMSNorms, cut
 * over the ranks. */
#ifndef MT_TESTS_DEVICE_TOY_H
#define MT_TESTS_DEVICE_TOY_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "device/cpu/exec.h"
#include "device/device.h"
#include "device/group.h"
#include "device/record.h"
#include "mesh/mesh.h"

enum { TOY_LAYERS = 4, TOY_MAX_RANKS = 64, TOY_N = 32, TOY_D = 64 };

struct toy_layer {
    mt_view w, grad, acc;                /* persistent */
    mt_view x, rstd, hx, counts, gf, gb; /* forward: input, its host copy, gathered weights for both passes */
    mt_view xb, dx, dgp, full, st;       /* backward */
};
struct toy {
    struct mt_ledger g;
    int world, force_rounds; /* 0: as the counts say */
    mt_view in, loss, send, recv, xe;
    struct toy_layer l[TOY_LAYERS + 1];
};

static inline void toy_init(struct toy *t, int world)
{
    *t = (struct toy){.world = world};
    struct mt_ledger *g = &t->g;
    mt_ledger_init(g, 64);
    int64_t n = TOY_N, d = TOY_D, own = d / world;
    t->in = mt_tensor_add(g, MT_HOST_ARENA, MT_ROW_BATCH, MT_F32, n, d, 0, "in");
    t->loss = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F32, d, 0, 0, "loss");
    t->send = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, n, d, 0, "send");
    t->recv = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, n, d, 0, "recv");
    t->xe = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, n, d, 0, "xe");
    for (int l = 0; l <= TOY_LAYERS; l++) {
        struct toy_layer *y = &t->l[l];
#define ROW(name, arena, class, ...) \
    y->name = mt_tensor_add(g, MT_##arena##_ARENA, MT_ROW_##class, MT_F32, __VA_ARGS__, "%s.%d", #name, l)
        ROW(x, DEVICE, ACTIVATION, n, d, 0);
        ROW(dx, DEVICE, SCRATCH, n, d, 0);
        if (l == TOY_LAYERS) break;
        ROW(w, DEVICE, WEIGHT, own, 0, 0);
        ROW(grad, DEVICE, GRAD, own, 0, 0);
        ROW(acc, DEVICE, TABLE, d, 0, 0);
        ROW(rstd, DEVICE, ROUTING, n, 0, 0);
        ROW(hx, HOST, ACTIVATION, n, d, 0);
        ROW(counts, DEVICE, ROUTING, 4, 0, 0);
        ROW(gf, DEVICE, GATHERED, d, 0, 0);
        ROW(gb, DEVICE, GATHERED, d, 0, 0);
        ROW(xb, DEVICE, ACTIVATION, n, d, 0);
        ROW(dgp, DEVICE, SCRATCH, MT_NORM_BLOCKS, d, 0);
        ROW(full, DEVICE, SCRATCH, d, 0, 0);
        ROW(st, DEVICE, STAGING, world, own, 0);
#undef ROW
    }
}
static inline void toy_release(struct toy *t)
{
    mt_ledger_release(&t->g);
}

struct toy_events {
    mt_event gathered[TOY_LAYERS], used[TOY_LAYERS + 2], down[TOY_LAYERS], up[TOY_LAYERS],
        reduced[TOY_LAYERS + 2];
};

static inline void toy_gather(struct mt_ctx *c, const struct toy *t, struct toy_events *e, int l,
                              mt_view into, mt_event after)
{
    struct mt_stream *s = &c->stream[MT_GATHER];
    mt_stream_wait(s, after);
    mt_gather(s, into, t->l[l].w, MT_GROUP_WORLD, TOY_D, 4);
    e->gathered[l] = mt_event_record(s);
}
static inline void toy_rounds(struct mt_ctx *c, struct toy *t, int l)
{
    struct mt_stream *s = &c->stream[MT_COMPUTE];
    struct toy_layer *y = &t->l[l];
    float counts[4];
    mt_weight_cast(s, t->send, t->l[l + 1].x);
    mt_fill_f32(s, y->counts, 1 + l % 3);
    mt_host_read(s, MT_READ_COUNTS, l, y->counts, counts);
    int rounds = t->force_rounds ? t->force_rounds : (int)counts[0];
    for (c->round = 0; c->round < rounds; c->round++) {
        mt_fresh(s, t->recv);
        mt_weight_cast(s, t->recv, t->send);
        mt_weight_cast(s, t->xe, t->recv);
        mt_sum_rows(s, y->acc, t->xe);
    }
    c->round = 0;
}
static inline void toy_forward(struct mt_ctx *c, struct toy *t, struct toy_events *e)
{
    struct mt_stream *compute = &c->stream[MT_COMPUTE], *d2h = &c->stream[MT_D2H], *h2d = &c->stream[MT_H2D];
    mt_copy_h2d(h2d, t->l[0].x, t->in);
    toy_gather(c, t, e, 0, t->l[0].gf, (mt_event){0});
    mt_stream_wait(compute, mt_event_record(h2d));
    for (int l = 0; l < TOY_LAYERS; l++) {
        struct toy_layer *y = &t->l[l];
        if (l + 1 < TOY_LAYERS)
            toy_gather(c, t, e, l + 1, t->l[l + 1].gf, l ? e->used[l - 1] : (mt_event){0});
        mt_stream_wait(compute, e->gathered[l]);
        if (l > 1) mt_stream_wait(compute, e->down[l - 2]);
        mt_rmsnorm_fwd(compute, t->l[l + 1].x, y->rstd, y->x, y->gf, 1e-5);
        e->used[l] = mt_event_record(compute);
        mt_stream_wait(d2h, e->used[l]);
        mt_copy_d2h(d2h, y->hx, y->x);
        e->down[l] = mt_event_record(d2h);
        toy_rounds(c, t, l);
    }
}
static inline void toy_backward(struct mt_ctx *c, struct toy *t, struct toy_events *e)
{
    struct mt_stream *compute = &c->stream[MT_COMPUTE], *h2d = &c->stream[MT_H2D],
                     *reduce = &c->stream[MT_REDUCE];
    mt_weight_cast(compute, t->l[TOY_LAYERS].dx, t->l[TOY_LAYERS].x);
    e->used[TOY_LAYERS] = e->used[TOY_LAYERS + 1] = mt_event_record(compute);
    for (int l = TOY_LAYERS - 1; l >= 0; l--) {
        struct toy_layer *y = &t->l[l];
        toy_gather(c, t, e, l, y->gb, e->used[l + 2]);
        mt_stream_wait(h2d, e->down[l]);
        mt_stream_wait(h2d, e->used[l + 2]);
        mt_copy_h2d(h2d, y->xb, y->hx);
        e->up[l] = mt_event_record(h2d);
        mt_stream_wait(compute, e->gathered[l]);
        mt_stream_wait(compute, e->up[l]);
        mt_rmsnorm_bwd(compute, y->dx, y->dgp, t->l[l + 1].dx, y->xb, y->rstd, y->gb, MT_NONE);
        if (l + 2 < TOY_LAYERS) mt_stream_wait(compute, e->reduced[l + 2]);
        mt_fill0(compute, y->full);
        mt_sum_rows(compute, y->full, y->dgp);
        e->used[l] = mt_event_record(compute);
        mt_stream_wait(reduce, e->used[l]);
        mt_scatter(reduce, y->st, y->full, MT_GROUP_WORLD, TOY_D, 4);
        mt_sum_pieces(reduce, y->grad, y->st);
        e->reduced[l] = mt_event_record(reduce);
    }
}
/* arg: a struct toy. As host code of the executor, or called on sim. */
static inline void toy_step(struct mt_ctx *c, void *arg)
{
    struct toy *t = arg;
    struct toy_events e = {0};
    struct mt_stream *s = &c->stream[MT_COMPUTE];
    float loss[TOY_D];
    toy_forward(c, t, &e);
    toy_backward(c, t, &e);
    mt_stream_wait(s, e.reduced[0]);
    for (int l = 0; l < TOY_LAYERS; l++) {
        int64_t own = t->l[l].w.dim[0];
        mt_sum_pieces(s, t->l[l].w, mt_view_as(t->l[l].grad, 1, own, 0));
        mt_fill0(s, t->l[l].grad);
    }
    mt_sum_rows(s, t->loss, t->l[0].dx);
    mt_host_read(s, MT_READ_LOSS, 0, t->loss, loss);
}

static inline void toy_answer(void *arg, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    (void)arg;
    float v[4] = {(float)(1 + index % 3), 0, 0, 0};
    memset(dst, 0, (size_t)src.bytes);
    if (kind == MT_READ_COUNTS) memcpy(dst, v, (size_t)src.bytes);
}
/* The step of rank 0 on sim; rounds 0: as many as the real run has. */
static inline struct mt_recording toy_record(struct toy *t, int rounds, int64_t skip_wait)
{
    struct mt_recording q = {0};
    struct mt_ctx c;
    mt_ctx_init(&c, 0, t->world, &mt_device_sim, &t->g);
    c.recording = &q;
    c.answer = toy_answer;
    c.skip_wait = skip_wait;
    int before = t->force_rounds;
    t->force_rounds = rounds;
    toy_step(&c, t);
    t->force_rounds = before;
    return q;
}

/* ---- all ranks on the cpu ---- */
struct toy_job {
    struct toy *t;
    struct mt_ctx ctx[TOY_MAX_RANKS];
    struct mt_ctx *ctxs[TOY_MAX_RANKS];
    void *args[TOY_MAX_RANKS];
    struct mt_comm comm;
    struct mt_cpu_dev dev;
    struct mt_exec *exec;
};
static inline void toy_job_open(struct toy_job *j, struct toy *t, struct mt_exec_options o)
{
    mt_err e = {0};
    *j = (struct toy_job){.t = t};
    mt_cpu_dev_init(&j->dev, MT_ISA_SCALAR);
    for (int r = 0; r < t->world; r++) {
        struct mt_ctx *c = j->ctxs[r] = &j->ctx[r];
        mt_ctx_init(c, r, t->world, &mt_device_cpu, &t->g);
        j->args[r] = t;
        for (int a = 0; a < MT_N_ARENAS; a++) {
            size_t bytes = (size_t)(t->g.size[a] + 63) / 64 * 64;
            c->arena[a] = aligned_alloc(64, bytes);
            memset(c->arena[a], 0xff, bytes);
        }
        float *in = mt_address(c, t->in);
        for (int i = 0; i < TOY_N * TOY_D; i++) in[i] = (float)((i * 7 + r * 13) % 31 - 15) / 8;
        memset(mt_address(c, t->loss), 0, TOY_D * 4);
        for (int l = 0; l < TOY_LAYERS; l++) {
            struct toy_layer *y = &t->l[l];
            float *w = mt_address(c, y->w);
            for (int i = 0; i < y->w.dim[0]; i++) w[i] = 1 + (float)((i * 5 + r * 3 + l) % 17) / 16;
            memset(mt_address(c, y->grad), 0, (size_t)y->grad.bytes);
            memset(mt_address(c, y->acc), 0, (size_t)y->acc.bytes);
        }
    }
    if (mt_comm_open_threads(&j->comm, j->ctxs, t->world, 1, NULL, NULL, &e) ||
        mt_exec_open(&j->exec, o, j->ctxs, t->world, &j->dev, &e)) {
        printf("toy: %s\n", e.msg);
        exit(1);
    }
}
static inline mt_status toy_job_step(struct toy_job *j)
{
    return mt_exec_run(j->exec, toy_step, j->args);
}
/* Of all persistent rows of all ranks. */
static inline uint64_t toy_job_bits(const struct toy_job *j)
{
    uint64_t h = 1;
    for (int r = 0; r < j->t->world; r++)
        for (int i = 0; i < j->t->g.n; i++) {
            const struct mt_row *w = &j->t->g.row[i];
            if (!mt_row_persistent((enum mt_row_class)w->row_class)) continue;
            const unsigned char *p = (const unsigned char *)j->ctx[r].arena[w->arena] + w->off;
            for (int64_t b = 0; b < w->bytes; b++) h = (h ^ p[b]) * 0x100000001b3u;
        }
    return h;
}
static inline void toy_job_close(struct toy_job *j)
{
    mt_exec_close(j->exec);
    mt_comm_close(&j->comm);
    for (int r = 0; r < j->t->world; r++)
        for (int a = 0; a < MT_N_ARENAS; a++) free(j->ctx[r].arena[a]);
}
#endif
