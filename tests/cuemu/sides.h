/* sides.h: the op table on two devices: the cuda device under the emulator, and the cpu device's kernels, run at once; and sim. */
#ifndef MT_TESTS_SIDES_H
#define MT_TESTS_SIDES_H
#include "check.h"
#include "device/cpu/kernels.h"
#include "device/record.h"
#include "device/target.h"
#include "device_cuda.h"

/* tests/cuemu/src: how the emulator picks among the orders it may run things in. */
void cuemu_set_order(const char *order, unsigned long long seed);
void cuemu_set_policy(const char *policy, unsigned long long seed);

/* ---- a device whose ops run at once, by the cpu's kernels: the reference ---- */

static inline void inline_enqueue(struct mt_stream *s, struct mt_call *c, const mt_view *v)
{
    struct mt_cpu_dev dev;
    static _Alignas(64) char scratch[MT_SCRATCH_BYTES];
    if (c->op == MT_OP_fresh || mt_op_info[c->op].kind == MT_READ) return;
    mt_cpu_dev_init(&dev, MT_ISA_SCALAR);
    for (int i = 0; i < mt_op_info[c->op].n_args; i++) c->arg[i] = mt_address(s->ctx, v[i]);
    for (int i = 0, parts = mt_cpu_parts(c, 8); i < parts; i++)
        mt_cpu_kernel[c->op](c, i, parts, scratch, &dev);
}
static inline void inline_wait(struct mt_stream *s, mt_event ev)
{
    (void)s, (void)ev;
}
static inline void inline_host_read(struct mt_stream *s, enum mt_read_kind kind, int64_t index, mt_view src,
                                    void *dst)
{
    (void)kind, (void)index;
    memcpy(dst, mt_address(s->ctx, src), (size_t)src.bytes);
}
static const struct mt_device_ops inline_cpu = {"inline", inline_enqueue, inline_wait, inline_host_read,
                                                NULL};

/* ---- a rank on one of the devices, all its bytes set to GUARD, and a generator of inputs ---- */

enum { GUARD = 0xA5, EDGE = 64, SCRATCH = 64 << 10 };

struct side {
    struct mt_ctx ctx;
    struct mt_ledger ledger;
    struct mt_recording record;
    const struct mt_target *target;
    struct mt_cuda *cuda;
    uint64_t rng;
};
enum machine { CPU, CUDA, SIM };

static inline void side_init(struct side *s, enum machine m)
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
static inline void side_open(struct side *s)
{
    mt_err e = {0};
    const struct mt_cuda_options options = {.device = 0, .scratch_bytes = SCRATCH};
    if (s->ctx.dev == &mt_device_cuda) {
        if (!CHECK(mt_cuda_open(&s->cuda, &s->ctx, s->target, &options, &e) == MT_OK))
            printf("%s\n", e.msg), exit(1);
    } else if (s->ctx.dev == &inline_cpu)
        for (int a = 0; a < MT_N_ARENAS; a++)
            s->ctx.arena[a] = aligned_alloc(64, (size_t)(s->ledger.size[a] + 63) / 64 * 64 + 64);
    if (s->ctx.arena[MT_HOST_ARENA])
        memset(s->ctx.arena[MT_HOST_ARENA], GUARD, (size_t)s->ledger.size[MT_HOST_ARENA]);
}
static inline void side_close(struct side *s)
{
    mt_err e = {0};
    if (s->cuda && !CHECK(mt_cuda_finish(s->cuda, &e) == MT_OK)) printf("%s\n", e.msg);
    mt_cuda_close(s->cuda);
    if (s->ctx.dev == &inline_cpu)
        for (int a = 0; a < MT_N_ARENAS; a++) free(s->ctx.arena[a]);
    mt_recording_release(&s->record);
    mt_ledger_release(&s->ledger);
}
static inline void side_finish(struct side *s)
{
    mt_err e = {0};
    if (s->cuda && !CHECK(mt_cuda_finish(s->cuda, &e) == MT_OK)) printf("%s\n", e.msg), exit(1);
}

static inline float uniform(struct side *s)
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
static inline struct tensor tensor_of(struct side *s, mt_dtype t, int64_t d0, int64_t d1, int64_t ld,
                                      int64_t off)
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
static inline mt_view whole_row(const struct side *s, int32_t row)
{
    return mt_view_of(row, MT_U8, 0, s->ledger.row[row].bytes, 0, 0);
}
static inline void upload(struct side *s, const struct tensor *x, enum mt_stream_id stream)
{
    mt_copy_h2d(&s->ctx.stream[stream], whole_row(s, x->dev_row), whole_row(s, x->host_row));
}
static inline void download(struct side *s, const struct tensor *x, enum mt_stream_id stream)
{
    mt_copy_d2h(&s->ctx.stream[stream], whole_row(s, x->host_row), whole_row(s, x->dev_row));
}
static inline void fill(struct side *s, const struct tensor *x)
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

static const struct {
    const char *order, *policy;
    unsigned long long seed;
} orders[] = {{"lazy", "fwd", 1}, {"eager", "rev", 1}, {"rand", "rand", 3}, {"rand", "rand", 11}};
enum { N_ORDERS = sizeof orders / sizeof *orders };

static inline void set_order(int i)
{
    cuemu_set_order(orders[i].order, orders[i].seed);
    cuemu_set_policy(orders[i].policy, orders[i].seed);
}

#endif
