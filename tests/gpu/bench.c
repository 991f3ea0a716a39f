/* The CUDA device's kernels and a train step on a GPU, beside what the GPU can do at most.
 *
 *   bench kernels [PATTERN]     every row of the table below whose operation's name has PATTERN in it: microseconds, GB/s and
 *                               TFLOP/s by the op table's costs, and the larger of the two shares: of a copy's bandwidth,
 *                               measured first, and of the tensor cores' (f32: the f32 units') nominal peak
 *   bench step OPTION...        steps of a model: milliseconds, tokens/s, MFU by the same peak
 *
 * Experts' products stand beside the dense product of cuBLASLt over as many rows. bench.sh adds PyTorch's figures. */
#include "base/clock.h"
#include "device_core.h"
#include "op_inputs.h"
#include "tests/train/training.h"

enum { MOST_RUNS = 200, STEPS = 10 };
static const double ENOUGH_S = 0.05;

/* ---- contents ---- */
enum { EXPERTS = 64, DOCUMENT = 4096 };
/* Experts get from half to one and a half times the mean. */
static void uneven(struct trial *t)
{
    int32_t *x = trial_at(t, "counts"), left = (int32_t)trial_dim(t, 'C');
    const int32_t mean = left / EXPERTS;
    for (int e = 0; e < EXPERTS; e++) {
        const int32_t want = mean / 2 + (int32_t)trial_below(t, mean + 1), rest = EXPERTS - 1 - e;
        x[e] = rest == 0 ? left : want < left ? want : left;
        left -= x[e];
    }
}
static void documents(struct trial *t)
{
    int32_t *begin = trial_at(t, "begin");
    for (int32_t i = 0; i < trial_dim(t, 'N'); i++) begin[i] = i - i % DOCUMENT;
}
static void documents_back(struct trial *t)
{
    float *lse = trial_at(t, "lse");
    documents(t);
    for (int64_t i = 0; i < trial_dim(t, 'H') * trial_ld(t, "lse"); i++) lse[i] = 2 + fabsf(lse[i]);
}

/* ---- the table: widths of a model of 2,048, 65,536 tokens where rows are tokens ---- */
#define PAIRS(n) I_((n) * (INT64_C(1) * DOCUMENT + 1) / 2)
static const struct row {
    struct trial_spec spec;
    bool dense; /* what the products of experts below are compared with */
} rows[] = {
#define ROW(name, ...)                                     \
    {                                                      \
        .spec = {.op = MT_OP_##name, .dims = __VA_ARGS__ } \
    }
    ROW(weight_pack, "E=16 O=2048 I=2048"),
    ROW(embed_fwd, "N=65536 D=2048 V=32768", .fill = tokens),
    ROW(embed_bwd, "N=65536 D=2048 V=32768", .fill = tokens),
    ROW(rmsnorm_fwd, "N=65536 D=2048", .scalar = {F_(1e-5)}),
    ROW(rmsnorm_bwd, "N=65536 D=2048 P=16"),
    ROW(rope, "N=65536 H=16 A=128 S=4096 R=128", .scalar = {F_(1)}, .fill = positions),
    ROW(swiglu_fwd, "N=65536 F=1024 U=2048"),
    ROW(swiglu_bwd, "N=65536 F=1024 U=2048"),
    {.spec = {.op = MT_OP_linear_fwd, .dims = "N=65536 O=1024 I=2048", .without = " bias add "},
     .dense = true},
    ROW(grouped_fwd, "C=65536 O=1024 I=2048 E=64", .scalar = {I_(0), I_(65536)}, .fill = uneven),
    ROW(grouped_bwdx, "C=65536 O=1024 I=2048 E=64", .scalar = {I_(0), I_(65536)}, .fill = uneven),
    ROW(grouped_bwdw, "C=65536 O=1024 I=2048 E=64", .scalar = {I_(0), I_(65536)}, .fill = uneven),
    ROW(attention_fwd, "N=16384 H=32 G=8 A=128 B=128", .scalar = {F_(0.088), PAIRS(16384)},
        .fill = documents),
    ROW(attention_bwd, "N=16384 H=32 G=8 A=128 B=128", .scalar = {F_(0.088), PAIRS(16384)},
        .fill = documents_back),
    ROW(attention_fwd, "N=16384 H=16 G=16 A=192 B=128", .scalar = {F_(0.072), PAIRS(16384)},
        .fill = documents),
    ROW(attention_bwd, "N=16384 H=16 G=16 A=192 B=128", .scalar = {F_(0.072), PAIRS(16384)},
        .fill = documents_back),
    ROW(router_logits, "N=65536 E=64 D=2048"),
    ROW(router_topk, "N=65536 E=64 K=8", .scalar = {I_(1), I_(1), F_(1), I_(0), I_(1), I_(1)}),
    ROW(route_sort, "N=65536 K=8 M=524288 E=64", .fill = ids),
    ROW(router_bwd, "N=65536 E=64 K=8", .scalar = {I_(1), I_(1), F_(1)}, .fill = ids),
    ROW(router_bwdx, "N=65536 E=64 D=2048"),
    ROW(router_bwdw, "N=65536 E=64 D=2048"),
    ROW(gather_rows, "C=131072 D=2048 N=65536 M=131072", .scalar = {I_(2), I_(0), I_(131072)}, .fill = order),
    ROW(expert_swiglu_fwd, "C=65536 F=1024 U=2048", .scalar = {I_(65536)}),
    ROW(expert_swiglu_bwd, "C=65536 F=1024 U=2048 M=65536 N=65536 K=1", .scalar = {I_(0), I_(65536)},
        .fill = order),
    ROW(combine_fwd, "N=65536 K=2 M=131072 D=2048", .fill = slots),
    ROW(combine_bwd, "N=65536 K=2 M=131072 D=2048", .fill = slots),
    ROW(xent, "N=8192 V=32768", .fill = valid_labels),
    ROW(grad_cast, "N=134217728"),
    ROW(sum_pieces, "R=4 N=33554432"),
    ROW(sumsq, "X=134217728 W=20"),
    ROW(adamw, "N=67108864", .scalar = {F_(1e-3), F_(0.1), F_(0.9), F_(0.95), F_(1e-8), I_(3)}),
    ROW(muon_momentum, "B=16 R=2048 C=2048", .scalar = {F_(0.95), I_(1)}),
    ROW(newton_schulz, "B=16 R=2048 C=2048", .scalar = {I_(5), I_(1)}, .ws_bytes = INT64_C(1) << 30),
    ROW(muon_apply, "B=16 R=2048 C=2048", .scalar = {F_(1e-2), F_(0.1), F_(1.5)}),
};

/* ---- measuring ---- */
static cudaEvent_t event_new(void)
{
    cudaEvent_t e;
    MT_ASSERT(cudaEventCreate(&e) == cudaSuccess);
    return e;
}
/* Seconds a run of `runs` took, by the stream's own clock. */
static double span(cudaStream_t stream, cudaEvent_t begin, cudaEvent_t end, int runs)
{
    float ms = 0;
    MT_ASSERT(cudaEventRecord(end, stream) == cudaSuccess && cudaEventSynchronize(end) == cudaSuccess);
    MT_ASSERT(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess);
    return 1e-3 * (double)ms / runs;
}
static double op_seconds(const struct trial *t, const mt_view *view)
{
    struct side *s = t->side;
    struct mt_stream *q = &s->ctx.stream[MT_COMPUTE];
    cudaStream_t stream = s->cuda->queue[MT_COMPUTE].lane.stream;
    cudaEvent_t begin = event_new(), end = event_new();
    double seconds = 0;
    for (int runs = 1; runs <= MOST_RUNS && !(seconds * runs >= ENOUGH_S); runs = runs == 1 ? 3 : runs * 4) {
        MT_ASSERT(cudaEventRecord(begin, stream) == cudaSuccess);
        for (int i = 0; i < runs; i++) mt_enqueue(q, t->op, view, t->scalar);
        seconds = span(stream, begin, end, runs);
    }
    cudaEventDestroy(begin), cudaEventDestroy(end);
    side_finish(s);
    return seconds;
}
/* Bytes a second that are read or written while one buffer is copied to another. */
static double copy_bandwidth(void)
{
    const size_t bytes = (size_t)2 << 30;
    void *from, *to;
    cudaEvent_t begin = event_new(), end = event_new();
    MT_ASSERT(cudaMalloc(&from, bytes) == cudaSuccess && cudaMalloc(&to, bytes) == cudaSuccess);
    double seconds = 0;
    for (int runs = 1; runs <= 20; runs += 19) {
        MT_ASSERT(cudaEventRecord(begin, 0) == cudaSuccess);
        for (int i = 0; i < runs; i++)
            MT_ASSERT(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, 0) == cudaSuccess);
        seconds = span(0, begin, end, runs);
    }
    cudaFree(from), cudaFree(to);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return 2 * (double)bytes / seconds;
}

static void op_print(const struct row *r, double bandwidth, double *dense)
{
    struct side s;
    struct trial t;
    mt_view view[MT_MAX_ARGS];
    int64_t b[MT_MAX_ARGS] = {0};
    trial_open(&t, &s, CUDA, &r->spec, MT_BF16, view);
    for (int i = 0; i < t.info->n_args; i++) b[i] = view[i].bytes;
    const double seconds = op_seconds(&t, view), flops = t.info->flops(t.dim, b, t.scalar) / seconds,
                 bytes = t.info->bytes(t.dim, b, t.scalar) / seconds, peak = mt_cuda_peak_flops(0, MT_BF16);
    const double of_bytes = 100 * bytes / bandwidth, of_flops = 100 * flops / peak;
    printf("%-18s %-34s %10.1f us %8.1f GB/s %8.2f TFLOP/s %5.1f%% of %s", t.info->name, r->spec.dims,
           1e6 * seconds, 1e-9 * bytes, 1e-12 * flops, of_bytes > of_flops ? of_bytes : of_flops,
           of_bytes > of_flops ? "bandwidth" : "peak");
    if (r->dense) *dense = flops;
    if (strstr(t.info->name, "grouped_") && *dense > 0) printf(", %.2f of the dense product", flops / *dense);
    printf("\n"), fflush(stdout);
    side_close(&s);
}
static int kernels(const char *pattern)
{
    const double bandwidth = copy_bandwidth();
    double dense = 0;
    printf("copies %.0f GB/s; peak %.0f TFLOP/s in bf16\n", 1e-9 * bandwidth,
           1e-12 * mt_cuda_peak_flops(0, MT_BF16));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(mt_op_info[rows[i].spec.op].name, pattern)) op_print(&rows[i], bandwidth, &dense);
    return check_.this_failed;
}

static int step(int n, char **options)
{
    struct training t = {0};
    char text[4000] = "device.type=cuda ";
    for (int i = 0; i < n; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", options[i]);
    if (!training_config(&t.cfg, text) || !training_open_config(&t)) return 1;
    double best = 0;
    bool ok = training_run(&t, mt_fill_step);
    training_batch(&t, 1);
    for (int i = 0; i < STEPS && ok; i++) {
        const double begun = mt_now();
        t.s.rank[0].step.step = i;
        ok = training_run(&t, mt_train_step);
        const double took = mt_now() - begun;
        if (i && (best <= 0 || took < best)) best = took;
    }
    const struct mt_shape *d = &t.s.rank[0].model.shape;
    const double rate = (double)(t.cfg.train_global_batch * t.cfg.train_seq_len) / best;
    const double flops = mt_flops_per_token(d, (double)d->S), peak = mt_cuda_peak_flops(0, t.cfg.train_dtype);
    printf("step %.2f ms, %.0f tokens/s, MFU %.1f%%, loss %.4f\n", 1e3 * best, rate,
           100 * rate * flops / peak, t.s.rank[0].step.loss / (double)t.s.rank[0].step.valid);
    printf("MFU: %.6e FLOPs a token, a peak of %.6e FLOP/s\n", flops, peak);
    training_close(&t);
    return !ok || check_.this_failed;
}

int main(int argc, char **argv)
{
    side_scratch_bytes = MT_CUDA_SCRATCH_BYTES;
    if (argc >= 2 && !strcmp(argv[1], "kernels")) return kernels(argc > 2 ? argv[2] : "");
    if (argc >= 2 && !strcmp(argv[1], "step")) return step(argc - 2, argv + 2);
    fprintf(stderr, "bench kernels [PATTERN] | bench step OPTION...\n");
    return 2;
}
