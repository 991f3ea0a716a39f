/* test: variants=cuemu */
/* The op table on the cuda device under the emulator: the same calls as on the cpu
 * device's kernels, with the same results; in the same record as on sim; in any order that streams and
 * events allow. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "device/cpu/kernels.h"
#include "device/record.h"
#include "device/target.h"
#include "device_cuda.h"

/* tests/cuemu/src: how the emulator picks among the orders it may run things in. */
void cuemu_set_order(const char *order, unsigned long long seed);
void cuemu_set_policy(const char *policy, unsigned long long seed);

/* ---- a device whose ops run at once, by the cpu's kernels: the reference ---- */

static void inline_enqueue(struct mt_stream *s, struct mt_call *c, const mt_view *v)
{
    struct mt_cpu_dev dev;
    static _Alignas(64) char scratch[MT_SCRATCH_BYTES];
    if (c->op == MT_OP_fresh || mt_op_info[c->op].kind == MT_READ) return;
    mt_cpu_dev_init(&dev, MT_ISA_SCALAR);
    for (int i = 0; i < mt_op_info[c->op].n_args; i++) c->arg[i] = mt_address(s->ctx, v[i]);
    for (int i = 0, parts = mt_cpu_parts(c); i < parts; i++) mt_cpu_kernel[c->op](c, i, parts, scratch, &dev);
}
static void inline_wait(struct mt_stream *s, mt_event ev)
{
    (void)s, (void)ev;
}
static void inline_host_read(struct mt_stream *s, enum mt_read_kind kind, int64_t index, mt_view src,
                             void *dst)
{
    (void)kind, (void)index;
    memcpy(dst, mt_address(s->ctx, src), (size_t)src.bytes);
}
static const struct mt_device_ops inline_cpu = {"inline", inline_enqueue, inline_wait, inline_host_read};

/* ---- a rank on one of the devices, all its bytes set to GUARD, and a generator of inputs ---- */

enum { GUARD = 0xA5, EDGE = 64 };

struct side {
    struct mt_ctx ctx;
    struct mt_ledger ledger;
    struct mt_recording record;
    const struct mt_target *target;
    struct mt_cuda *cuda;
    uint64_t rng;
};
enum machine { CPU, CUDA, SIM };

static void side_init(struct side *s, enum machine m)
{
    *s = (struct side){.rng = 88172645463325252u,
                       .target = m == CPU ? mt_target_cpu(MT_ISA_SCALAR) : mt_target_cuda()};
    mt_ledger_init(&s->ledger, s->target->align);
    mt_ctx_init(&s->ctx, 0, 1,
                m == CPU    ? &inline_cpu
                : m == CUDA ? &mt_device_cuda
                            : &mt_device_sim,
                &s->ledger);
    s->ctx.recording = &s->record;
}

/* Called when the ledger has all its rows. */
static void side_open(struct side *s)
{
    mt_err e = {0};
    const struct mt_cuda_options options = {.device = 0, .scratch_bytes = 64 << 10};
    if (s->ctx.dev == &mt_device_cuda) {
        if (!CHECK(mt_cuda_open(&s->cuda, &s->ctx, NULL, &options, &e) == MT_OK))
            printf("%s\n", e.msg), exit(1);
    } else if (s->ctx.dev == &inline_cpu)
        for (int a = 0; a < MT_N_ARENAS; a++)
            s->ctx.arena[a] = aligned_alloc(64, (size_t)(s->ledger.size[a] + 63) / 64 * 64 + 64);
    if (s->ctx.arena[MT_HOST_ARENA])
        memset(s->ctx.arena[MT_HOST_ARENA], GUARD, (size_t)s->ledger.size[MT_HOST_ARENA]);
}
static void side_close(struct side *s)
{
    mt_err e = {0};
    if (s->cuda && !CHECK(mt_cuda_finish(s->cuda, &e) == MT_OK)) printf("%s\n", e.msg);
    mt_cuda_close(s->cuda);
    if (s->ctx.dev == &inline_cpu)
        for (int a = 0; a < MT_N_ARENAS; a++) free(s->ctx.arena[a]);
    mt_recording_release(&s->record);
    mt_ledger_release(&s->ledger);
}
static void side_finish(struct side *s)
{
    mt_err e = {0};
    if (s->cuda && !CHECK(mt_cuda_finish(s->cuda, &e) == MT_OK)) printf("%s\n", e.msg), exit(1);
}

static float uniform(struct side *s)
{
    s->rng ^= s->rng << 13, s->rng ^= s->rng >> 7, s->rng ^= s->rng << 17;
    return (float)((double)(s->rng >> 11) / 9007199254740992.0 * 2 - 1);
}

/* A tensor with EDGE guard bytes on both sides, in the device arena, and where it is put together and
 * looked at, in the host arena. off shifts it, to take away its alignment. */
struct tensor {
    mt_view dev, host;
    int32_t dev_row, host_row;
};
static struct tensor tensor_of(struct side *s, mt_dtype t, int64_t d0, int64_t d1, int64_t ld, int64_t off)
{
    struct tensor x;
    mt_view v = mt_view_of(0, t, EDGE * 4 + off * mt_dtype_bytes(t), d0, d1, 0);
    if (ld) {
        v.ld = ld;
        v.bytes = d0 ? ((d0 - 1) * ld + d1) * mt_dtype_bytes(t) : 0;
    }
    int64_t bytes = v.off + v.bytes + EDGE;
    x.dev_row = mt_row_add(&s->ledger, MT_DEVICE_ARENA, MT_ROW_ACTIVATION, bytes, "tensor");
    x.host_row = mt_row_add(&s->ledger, MT_HOST_ARENA, MT_ROW_ACTIVATION, bytes, "image");
    x.dev = x.host = v;
    x.dev.row = x.dev_row;
    x.host.row = x.host_row;
    return x;
}
static mt_view whole_row(const struct side *s, int32_t row)
{
    return mt_view_of(row, MT_U8, 0, s->ledger.row[row].bytes, 0, 0);
}
static void upload(struct side *s, const struct tensor *x, enum mt_stream_id stream)
{
    mt_copy_h2d(&s->ctx.stream[stream], whole_row(s, x->dev_row), whole_row(s, x->host_row));
}
static void download(struct side *s, const struct tensor *x, enum mt_stream_id stream)
{
    mt_copy_d2h(&s->ctx.stream[stream], whole_row(s, x->host_row), whole_row(s, x->dev_row));
}
static void fill(struct side *s, const struct tensor *x)
{
    char *p = mt_address(&s->ctx, x->host);
    int64_t columns = x->host.nd == 2 ? x->host.dim[1] : x->host.dim[0],
            rows = x->host.nd == 2 ? x->host.dim[0] : 1;
    for (int64_t i = 0; p && i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            float value = uniform(s);
            if (x->host.dtype == MT_F32)
                ((float *)(void *)p)[i * x->host.ld + j] = value;
            else
                ((mt_bf16 *)(void *)p)[i * x->host.ld + j] = mt_bf16_of(value);
        }
}

static float value_at(const struct side *s, const struct tensor *x, int64_t i, int64_t j)
{
    const char *p = mt_address(&s->ctx, x->host);
    int64_t at = i * x->host.ld + j;
    return x->host.dtype == MT_F32 ? ((const float *)(const void *)p)[at]
                                   : mt_f32_of(((const mt_bf16 *)(const void *)p)[at]);
}

/* Images of the whole rows: elements within tol of the reference by the norm, all other bytes equal. */
static void compare(const struct side *got, const struct side *want, const struct tensor *x, double tol,
                    const char *what)
{
    int64_t columns = x->host.nd == 2 ? x->host.dim[1] : x->host.dim[0],
            rows = x->host.nd == 2 ? x->host.dim[0] : 1;
    int64_t el = mt_dtype_bytes((mt_dtype)x->host.dtype), n = got->ledger.row[x->host_row].bytes, strays = 0;
    const int64_t line = columns ? x->host.ld * el : 1; /* bytes from row to row */
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double w = (double)value_at(want, x, i, j), d = (double)value_at(got, x, i, j) - w;
            diff += d * d, norm += w * w;
        }
    const unsigned char *a = mt_address(&got->ctx, whole_row(got, x->host_row));
    for (int64_t k = 0; k < n; k++) {
        int64_t at = k - x->host.off, row = at / line;
        bool inside = at >= 0 && row < rows && at % line < columns * el;
        strays += !inside && a[k] != GUARD;
    }
    if (!CHECK_CLOSE(norm > 0 ? sqrt(diff / norm) : sqrt(diff), 0, tol) | !CHECK_INT(strays, 0))
        printf("  in %s\n", what);
}

/* ---- the same op on both ---- */

struct shape {
    int64_t n, d, pad, off; /* rows, width, elements between rows, shift from alignment */
};
static const struct shape shapes[] = {{5, 64, 0, 0}, {3, 1032, 8, 0}, {7, 37, 0, 0}, {4, 24, 3, 1},
                                      {1, 1, 0, 0},  {0, 16, 0, 0},   {20, 8, 0, 4}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };
static const double tolerance[] = {[MT_F32] = 1e-6, [MT_BF16] = 4e-3};

struct norm_case {
    struct tensor x, g, y, rstd, dy, res, dx, dgp;
};
static void norm_build(struct side *s, struct norm_case *k, const struct shape *p, mt_dtype t)
{
    int64_t ld = p->d + p->pad;
    k->x = tensor_of(s, t, p->n, p->d, ld, p->off), k->y = tensor_of(s, t, p->n, p->d, ld, p->off);
    k->dy = tensor_of(s, t, p->n, p->d, ld, p->off), k->dx = tensor_of(s, t, p->n, p->d, ld, p->off);
    k->res = tensor_of(s, t, p->n, p->d, ld, p->off);
    k->g = tensor_of(s, MT_F32, p->d, 0, 0, p->off), k->rstd = tensor_of(s, MT_F32, p->n, 0, 0, 0);
    k->dgp = tensor_of(s, MT_F32, MT_NORM_BLOCKS, p->d, 0, 0);
    side_open(s);
    const struct tensor *in[] = {&k->x, &k->g, &k->dy, &k->res}, *out[] = {&k->y, &k->rstd, &k->dx, &k->dgp};
    for (int i = 0; i < 4; i++) fill(s, in[i]);
    for (int i = 0; i < 4; i++) upload(s, in[i], MT_COMPUTE), upload(s, out[i], MT_COMPUTE);
}
static void norm_run(struct side *s, struct norm_case *k, bool residual)
{
    struct mt_stream *q = &s->ctx.stream[MT_COMPUTE];
    mt_rmsnorm_fwd(q, k->y.dev, k->rstd.dev, k->x.dev, k->g.dev, 1e-5);
    mt_rmsnorm_bwd(q, k->dx.dev, k->dgp.dev, k->dy.dev, k->x.dev, k->rstd.dev, k->g.dev,
                   residual ? k->res.dev : MT_NONE);
    const struct tensor *out[] = {&k->y, &k->rstd, &k->dx, &k->dgp};
    for (int i = 0; i < 4; i++) download(s, out[i], MT_COMPUTE);
    side_finish(s);
}
TEST(rmsnorm)
{
    for (int i = 0; i < 2 * N_SHAPES; i++) {
        mt_dtype t = i % 2 ? MT_BF16 : MT_F32;
        struct side cpu, cuda;
        struct norm_case a, b;
        side_init(&cpu, CPU), side_init(&cuda, CUDA);
        norm_build(&cpu, &a, &shapes[i / 2], t), norm_build(&cuda, &b, &shapes[i / 2], t);
        norm_run(&cpu, &a, i % 4 < 2), norm_run(&cuda, &b, i % 4 < 2);
        compare(&cuda, &cpu, &b.y, tolerance[t], "y");
        compare(&cuda, &cpu, &b.rstd, 1e-6, "rstd");
        compare(&cuda, &cpu, &b.dx, tolerance[t], "dx");
        compare(&cuda, &cpu, &b.dgp, 1e-6, "dgp");
        side_close(&cpu), side_close(&cuda);
    }
}

enum { TOPK = 2, FIRST = 3, SPARE = 2 };
struct gather_case {
    struct tensor x, order, y;
};
static void gather_run(struct side *s, struct gather_case *k, const struct shape *p, mt_dtype t)
{
    int64_t routed = p->n * TOPK, rows = routed > FIRST ? routed - FIRST : 0,
            first = routed > FIRST ? FIRST : 0;
    k->x = tensor_of(s, t, p->n, p->d, p->d + p->pad, p->off);
    k->y = tensor_of(s, t, rows + SPARE, p->d, p->d + p->pad, p->off);
    k->order = tensor_of(s, MT_I32, routed, 0, 0, 0);
    side_open(s);
    fill(s, &k->x), fill(s, &k->y);
    int32_t *order = mt_address(&s->ctx, k->order.host);
    for (int64_t i = 0; i < routed; i++) order[i] = (int32_t)(routed - 1 - i);
    for (int64_t i = 1; i < routed; i++) { /* any permutation */
        int64_t j = (int64_t)(((double)uniform(s) + 1) / 2 * (double)i);
        int32_t o = order[i];
        order[i] = order[j], order[j] = o;
    }
    struct mt_stream *q = &s->ctx.stream[MT_COMPUTE];
    upload(s, &k->x, MT_COMPUTE), upload(s, &k->order, MT_COMPUTE), upload(s, &k->y, MT_COMPUTE);
    mt_gather_rows(q, k->y.dev, k->x.dev, k->order.dev, TOPK, first, rows);
    download(s, &k->y, MT_COMPUTE);
    side_finish(s);
}
TEST(gather_rows)
{
    for (int i = 0; i < 2 * N_SHAPES; i++) {
        struct side cpu, cuda;
        struct gather_case a, b;
        side_init(&cpu, CPU), side_init(&cuda, CUDA);
        gather_run(&cpu, &a, &shapes[i / 2], i % 2), gather_run(&cuda, &b, &shapes[i / 2], i % 2);
        compare(&cuda, &cpu, &b.y, 0, "y: rows moved, spare rows kept");
        side_close(&cpu), side_close(&cuda);
    }
}

struct linear_case {
    struct tensor x, master, bias, add, y;
    mt_view w;
};
/* Each device packs the weight in its own working form. */
static void linear_run(struct side *s, struct linear_case *k, const int64_t *mno, mt_dtype t, bool bias,
                       bool add)
{
    int64_t n = mno[0], o = mno[1], in = mno[2], pad = 8;
    k->x = tensor_of(s, t, n, in, in + pad, 0), k->y = tensor_of(s, t, n, o, o + pad, 0);
    k->add = tensor_of(s, t, n, o, o + 2 * pad, 0);
    k->master = tensor_of(s, MT_F32, o, in, 0, 0), k->bias = tensor_of(s, MT_F32, o, 0, 0, 0);
    int32_t row = mt_row_add(&s->ledger, MT_DEVICE_ARENA, MT_ROW_WEIGHT,
                             mt_packed_bytes(s->target, t, MT_PACKED_NT, o, in), "w");
    k->w = mt_packed_view(s->target, row, t, MT_PACKED_NT, 0, o, in);
    side_open(s);
    const struct tensor *in_[] = {&k->x, &k->add, &k->master, &k->bias};
    struct mt_stream *q = &s->ctx.stream[MT_COMPUTE];
    for (int i = 0; i < 4; i++) fill(s, in_[i]);
    for (int i = 0; i < 4; i++) upload(s, in_[i], MT_COMPUTE);
    upload(s, &k->y, MT_COMPUTE);
    mt_weight_pack(q, k->w, k->master.dev);
    mt_linear_fwd(q, k->y.dev, k->x.dev, k->w, bias ? k->bias.dev : MT_NONE, add ? k->add.dev : MT_NONE);
    download(s, &k->y, MT_COMPUTE);
    side_finish(s);
}
TEST(linear_fwd)
{
    static const int64_t sizes[][3] = {{6, 40, 24}, {1, 8, 129}, {33, 5, 16}, {0, 8, 8}};
    for (int i = 0; i < 4 * 2 * 4; i++) {
        mt_dtype t = i & 1 ? MT_BF16 : MT_F32;
        struct side cpu, cuda;
        struct linear_case a, b;
        side_init(&cpu, CPU), side_init(&cuda, CUDA);
        linear_run(&cpu, &a, sizes[i / 8], t, i & 2, i & 4),
            linear_run(&cuda, &b, sizes[i / 8], t, i & 2, i & 4);
        compare(&cuda, &cpu, &b.y, tolerance[t], "y");
        side_close(&cpu), side_close(&cuda);
    }
}

TEST(casts_and_fills)
{
    for (int i = 0; i < 4; i++) {
        mt_dtype t = i & 1 ? MT_BF16 : MT_F32;
        struct side side[2];
        struct tensor x, w, z;
        for (int m = 0; m < 2; m++) {
            struct side *s = &side[m];
            side_init(s, m ? CUDA : CPU);
            x = tensor_of(s, MT_F32, i & 2 ? 2500 : 7, 0, 0, 0),
            w = tensor_of(s, t, i & 2 ? 2500 : 7, 0, 0, 0);
            z = tensor_of(s, t, 9, 0, 0, 1);
            side_open(s);
            fill(s, &x), fill(s, &z);
            upload(s, &x, MT_COMPUTE), upload(s, &w, MT_COMPUTE), upload(s, &z, MT_COMPUTE);
            mt_weight_cast(&s->ctx.stream[MT_COMPUTE], w.dev, x.dev);
            mt_fill0(&s->ctx.stream[MT_COMPUTE], z.dev);
            download(s, &w, MT_COMPUTE), download(s, &z, MT_COMPUTE);
            side_finish(s);
        }
        compare(&side[1], &side[0], &w, 0, "cast");
        compare(&side[1], &side[0], &z, 0, "zeros");
        side_close(&side[0]), side_close(&side[1]);
    }
}

/* ---- three streams: what events order, and nothing else ---- */

/* Batches go up on one stream into two slots in turn, are normed, permuted and multiplied on another, and
 * come down on a third; the host reads rstd of each. */
enum { BATCHES = 4, ROWS = 6, WIDTH = 32, OUT = 16 };
struct pipeline {
    struct tensor in[BATCHES], out[BATCHES], g, order, master, slot[2], normed, rstd, moved, y[2];
    mt_view w;
    float rstd_read[BATCHES][ROWS];
};
static void pipeline_build(struct side *s, struct pipeline *p)
{
    for (int i = 0; i < BATCHES; i++) {
        p->in[i] = tensor_of(s, MT_F32, ROWS, WIDTH, 0, 0);
        p->out[i] = tensor_of(s, MT_F32, ROWS, OUT, 0, 0);
    }
    for (int i = 0; i < 2; i++) {
        p->slot[i] = tensor_of(s, MT_F32, ROWS, WIDTH, 0, 0);
        p->y[i] = tensor_of(s, MT_F32, ROWS, OUT, 0, 0);
    }
    p->g = tensor_of(s, MT_F32, WIDTH, 0, 0, 0), p->order = tensor_of(s, MT_I32, ROWS, 0, 0, 0);
    p->normed = tensor_of(s, MT_F32, ROWS, WIDTH, 0, 0), p->moved = tensor_of(s, MT_F32, ROWS, WIDTH, 0, 0);
    p->rstd = tensor_of(s, MT_F32, ROWS, 0, 0, 0), p->master = tensor_of(s, MT_F32, OUT, WIDTH, 0, 0);
    int32_t row = mt_row_add(&s->ledger, MT_DEVICE_ARENA, MT_ROW_WEIGHT,
                             mt_packed_bytes(s->target, MT_F32, MT_PACKED_NT, OUT, WIDTH), "w");
    p->w = mt_packed_view(s->target, row, MT_F32, MT_PACKED_NT, 0, OUT, WIDTH);
    if (s->ctx.dev != &mt_device_sim) side_open(s);
    if (!s->ctx.arena[MT_HOST_ARENA]) return;
    for (int i = 0; i < BATCHES; i++) fill(s, &p->in[i]);
    fill(s, &p->g), fill(s, &p->master);
    for (int32_t i = 0; i < ROWS; i++)
        ((int32_t *)mt_address(&s->ctx, p->order.host))[i] = (i * 5 + 2) % ROWS;
}
static void pipeline_run(struct side *s, struct pipeline *p)
{
    struct mt_stream *up = &s->ctx.stream[MT_H2D], *on = &s->ctx.stream[MT_COMPUTE],
                     *down = &s->ctx.stream[MT_D2H];
    struct mt_lease in[2] = {{.view = p->slot[0].dev}, {.view = p->slot[1].dev}},
                    out[2] = {{.view = p->y[0].dev}, {.view = p->y[1].dev}};
    mt_streams_restart(&s->ctx);
    const struct tensor *first[] = {&p->g, &p->order, &p->master};
    for (int i = 0; i < 3; i++) upload(s, first[i], MT_H2D);
    mt_stream_wait(on, mt_event_record(up));
    mt_weight_pack(on, p->w, p->master.dev);
    for (int i = 0; i < BATCHES; i++) {
        struct mt_lease *a = &in[i % 2], *b = &out[i % 2];
        mt_lease_fill(up, a);
        mt_copy_h2d(up, a->view, p->in[i].host);
        mt_lease_filled(up, a);
        mt_lease_use(on, a);
        mt_rmsnorm_fwd(on, p->normed.dev, p->rstd.dev, a->view, p->g.dev, 1e-5);
        mt_lease_done(on, a);
        mt_gather_rows(on, p->moved.dev, p->normed.dev, p->order.dev, 1, 0, ROWS);
        mt_lease_fill(on, b);
        mt_linear_fwd(on, b->view, p->moved.dev, p->w, MT_NONE, MT_NONE);
        mt_lease_filled(on, b);
        mt_lease_use(down, b);
        mt_copy_d2h(down, p->out[i].host, b->view);
        mt_lease_done(down, b);
        mt_host_read(on, MT_READ_LOSS, i, p->rstd.dev, p->rstd_read[i]);
    }
    side_finish(s);
}

/* Number of values that differ from the reference: NaN, poison and stale data do. */
static int pipeline_wrong(const struct side *got, const struct side *want, const struct pipeline *p,
                          const struct pipeline *ref)
{
    int wrong = 0;
    for (int b = 0; b < BATCHES; b++) {
        for (int i = 0; i < ROWS * OUT; i++)
            wrong += !(fabsf(value_at(got, &p->out[b], 0, i) - value_at(want, &ref->out[b], 0, i)) <= 1e-5f);
        for (int i = 0; i < ROWS; i++) wrong += !(fabsf(p->rstd_read[b][i] - ref->rstd_read[b][i]) <= 1e-5f);
    }
    return wrong;
}

static const struct {
    const char *order, *policy;
    unsigned long long seed;
} orders[] = {{"lazy", "fwd", 1}, {"eager", "rev", 1}, {"rand", "rand", 3}, {"rand", "rand", 11}};
enum { N_ORDERS = sizeof orders / sizeof *orders };

static void set_order(int i)
{
    cuemu_set_order(orders[i].order, orders[i].seed);
    cuemu_set_policy(orders[i].policy, orders[i].seed);
}

TEST(streams_in_any_order)
{
    struct side cpu;
    struct pipeline ref;
    side_init(&cpu, CPU);
    pipeline_build(&cpu, &ref);
    pipeline_run(&cpu, &ref);
    for (int i = 0; i < N_ORDERS; i++) {
        struct side cuda;
        struct pipeline p;
        set_order(i);
        side_init(&cuda, CUDA);
        pipeline_build(&cuda, &p);
        for (int step = 0; step < 2; step++) { /* the second starts where events of the first still lie */
            for (int b = 0; b < BATCHES; b++)
                memset(mt_address(&cuda.ctx, p.out[b].host), GUARD, (size_t)p.out[b].host.bytes);
            pipeline_run(&cuda, &p);
            CHECK_INT(pipeline_wrong(&cuda, &cpu, &p, &ref), 0);
        }
        side_close(&cuda);
    }
    side_close(&cpu);
    set_order(0);
}

TEST(record_equals_sim)
{
    struct side side[3];
    struct pipeline p[3];
    for (int m = 0; m < 3; m++) {
        side_init(&side[m], (enum machine)m);
        pipeline_build(&side[m], &p[m]);
        pipeline_run(&side[m], &p[m]);
    }
    const struct mt_recording *a = &side[CUDA].record, *b = &side[SIM].record;
    CHECK(a->n > 40);
    CHECK_INT(a->n, b->n);
    for (int64_t i = 0; i < a->n && i < b->n; i++)
        CHECK(a->rec[i].op == b->rec[i].op && a->rec[i].stream == b->rec[i].stream &&
              a->rec[i].seq == b->rec[i].seq);
    CHECK(mt_recording_hash(a) == mt_recording_hash(b));
    CHECK_INT(side[CPU].record.n,
              b->n); /* its working weights have other sizes, so only the sequence is the same */
    for (int m = 0; m < 3; m++) side_close(&side[m]);
}

/* A wait for a position whose event was taken by a later one. */
TEST(old_events)
{
    struct side s;
    side_init(&s, CUDA);
    struct tensor x = tensor_of(&s, MT_F32, 16, 0, 0, 0), z = tensor_of(&s, MT_F32, 4, 0, 0, 0);
    side_open(&s);
    fill(&s, &x);
    upload(&s, &x, MT_H2D);
    mt_event old = mt_event_record(&s.ctx.stream[MT_H2D]);
    for (int i = 0; i < 600; i++) mt_fill0(&s.ctx.stream[MT_H2D], z.dev);
    float want[16], *image = mt_address(&s.ctx, x.host);
    mt_stream_wait(&s.ctx.stream[MT_D2H], old);
    float got[16];
    mt_host_read(&s.ctx.stream[MT_D2H], MT_READ_STATE, 0, x.dev, got);
    memcpy(want, image, sizeof want);
    CHECK(!memcmp(got, want, sizeof got));
    side_close(&s);
}

TEST(tape_answers_counts)
{
    struct side s;
    side_init(&s, CUDA);
    struct tensor x = tensor_of(&s, MT_I32, 2, 0, 0, 0);
    side_open(&s);
    const int32_t tape[] = {1, 2, 3, 4};
    int32_t got[2];
    s.ctx.tape[MT_READ_COUNTS] = (const char *)tape;
    upload(&s, &x, MT_COMPUTE);
    mt_host_read(&s.ctx.stream[MT_COMPUTE], MT_READ_COUNTS, 1, x.dev, got);
    CHECK_INT(got[0], 3);
    CHECK_INT(got[1], 4);
    side_close(&s);
}

/* ---- faults ---- */

/* One run of the pipeline with its n-th wait left out, in a process of its own, whose exit code tells: 0
 * nothing noticed, 3 wrong values, others are a sanitizer's. */
static int run_without_wait(int n, int order)
{
    struct side cpu, cuda;
    struct pipeline ref, p;
    set_order(order);
    side_init(&cpu, CPU), side_init(&cuda, CUDA);
    pipeline_build(&cpu, &ref), pipeline_build(&cuda, &p);
    pipeline_run(&cpu, &ref);
    cuda.ctx.skip_wait = n;
    pipeline_run(&cuda, &p);
    return pipeline_wrong(&cuda, &cpu, &p, &ref) ? 3 : 0;
}
static int child(const char *self, int wait, int order)
{
    char a[16], b[16];
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1), dup2(null, 2);
        setenv("TSAN_OPTIONS", "exitcode=66:halt_on_error=1:symbolize=0:atexit_sleep_ms=0", 1);
        setenv("ASAN_OPTIONS", "exitcode=77:detect_leaks=0:symbolize=0", 1);
        snprintf(a, sizeof a, "%d", wait), snprintf(b, sizeof b, "%d", order);
        execl(self, self, a, b, (char *)NULL);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Waits, as numbered by the pipeline: 0 the weights' upload; 2 the first batch's; 4 its result.
 * ThreadSanitizer must report each in every order; the other builds see wrong values in some order.
 * Without a fault nobody may object. */
static const char *self;
TEST(missing_waits_are_found)
{
#ifdef __SANITIZE_THREAD__
    const int found = 66, all = N_ORDERS;
#else
    const int found = 3, all = 1;
#endif
    static const int wait[] = {0, 2, 4};
    for (int order = 0; order < N_ORDERS; order++) CHECK_INT(child(self, -1, order), 0);
    for (int i = 0; i < 3; i++) {
        int times = 0;
        for (int order = 0; order < N_ORDERS; order++) times += child(self, wait[i], order) == found;
        if (!CHECK(times >= all)) printf("  wait %d: found in %d of %d orders\n", wait[i], times, N_ORDERS);
    }
}

TEST(missing_operations_are_named)
{
    const char *name[MT_N_OPS];
    int n = mt_cuda_missing(name, MT_N_OPS), seen = 0;
    CHECK(n > 0 && n < MT_N_OPS);
    for (int i = 0; i < n; i++) seen += !strcmp(name[i], "attention_fwd") - !strcmp(name[i], "rmsnorm_fwd");
    CHECK_INT(seen, 1);

    struct side s, sim;
    mt_err e = {0};
    struct mt_cuda *none;
    const struct mt_cuda_options options = {.device = 0, .scratch_bytes = 4096};
    side_init(&sim, SIM);
    struct tensor x = tensor_of(&sim, MT_F32, 4, 8, 0, 0), y = tensor_of(&sim, MT_F32, 4, 4, 0, 0);
    mt_swiglu_fwd(&sim.ctx.stream[MT_COMPUTE], y.dev, x.dev);
    CHECK(mt_cuda_open(&none, &sim.ctx, &sim.record, &options, &e) == MT_DEVICE);
    CHECK(strstr(e.msg, "swiglu_fwd") != NULL && none == NULL);

    side_init(&s, CUDA);
    x = tensor_of(&s, MT_F32, 4, 8, 0, 0), y = tensor_of(&s, MT_F32, 4, 4, 0, 0);
    side_open(&s);
    mt_swiglu_fwd(&s.ctx.stream[MT_COMPUTE], y.dev, x.dev);
    mt_fill0(&s.ctx.stream[MT_COMPUTE], x.dev); /* after an error nothing is enqueued, and nothing crashes */
    float read[4];
    mt_host_read(&s.ctx.stream[MT_COMPUTE], MT_READ_LOSS, 0, mt_view_part(x.dev, 0, 0), read);
    CHECK_INT(s.ctx.err.code, MT_DEVICE);
    CHECK(strstr(s.ctx.err.msg, "swiglu_fwd") != NULL && strstr(s.ctx.err.msg, "operation 1") != NULL);
    e = (mt_err){0};
    CHECK(mt_cuda_finish(s.cuda, &e) == MT_DEVICE);
    s.ctx.err = (mt_err){0};
    side_close(&s), side_close(&sim);
}

TEST(refusals)
{
    struct side s;
    struct mt_cuda *none;
    mt_err e = {0};
    side_init(&s, CUDA);
    mt_row_add(&s.ledger, MT_DEVICE_ARENA, MT_ROW_WEIGHT, 3 << 20, "large");
    setenv("CUEMU_MEM_MB", "2", 1);
    CHECK(mt_cuda_open(&none, &s.ctx, NULL, &(struct mt_cuda_options){0, 4096}, &e) == MT_NOFIT);
    CHECK(strstr(e.msg, "3145728 bytes") != NULL && none == NULL && s.ctx.arena[0] == NULL);
    unsetenv("CUEMU_MEM_MB");
    e = (mt_err){0};
    CHECK(mt_cuda_open(&none, &s.ctx, NULL, &(struct mt_cuda_options){7, 4096}, &e) == MT_DEVICE);
    CHECK(strstr(e.msg, "device 7") != NULL);
    side_close(&s);
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 3) return run_without_wait(atoi(argv[1]), atoi(argv[2]));
    RUN(rmsnorm);
    RUN(gather_rows);
    RUN(linear_fwd);
    RUN(casts_and_fills);
    RUN(streams_in_any_order);
    RUN(record_equals_sim);
    RUN(old_events);
    RUN(tape_answers_counts);
    RUN(missing_waits_are_found);
    RUN(missing_operations_are_named);
    RUN(refusals);
    return DONE();
}
