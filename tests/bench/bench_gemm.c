/* Speed of the CPU products on one thread: GFLOP/s, share of the measured peak of the instruction set, and
 * ratio to oneDNN on the same shapes, in turns within one run.
 *
 *   bench_gemm [isa]      isa as in mt_isa_name, default auto; oneDNN is held to the same instruction set
 *
 * Weights are packed beforehand on both sides, oneDNN's primitives are made beforehand. Time is the thread's
 * own; a sample during which it was pre-empted is thrown away. Share and ratio are medians over samples taken
 * side by side, since the clock of a shared machine moves. */
#include "roofline.h"

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_GROUPS = 64, MOST_SAMPLES = 200 };
static const double SECONDS_PER_ROW = 1.5, SAMPLE_SECONDS = 1.5e-3;

static double clock_of(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double now(void)
{
    return clock_of(CLOCK_MONOTONIC);
}
static long preemptions(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return u.ru_nivcsw;
}
/* Huge pages, as the arena has them: a tile touches 16 rows. */
static void *area(int64_t bytes)
{
    size_t n = ((size_t)bytes + (2u << 20)) & ~(size_t)((2u << 20) - 1);
    void *p = aligned_alloc(2u << 20, n);
    if (!p) exit(1);
    madvise(p, n, MADV_HUGEPAGE);
    memset(p, 0, n);
    return p;
}
static void *random_area(mt_dtype t, int64_t count)
{
    static uint32_t seed = 1;
    void *p = area(count * mt_dtype_bytes(t));
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        float x = (float)(int32_t)seed * 0x1p-31f;
        if (t == MT_F32)
            ((float *)p)[i] = x;
        else
            ((mt_bf16 *)p)[i] = mt_bf16_of(x);
    }
    return p;
}

/* ---- oneDNN */

static void must(dnnl_status_t s, const char *what)
{
    if (s == dnnl_success) return;
    fprintf(stderr, "bench_gemm: oneDNN: %s gave status %d\n", what, (int)s);
    exit(1);
}
static dnnl_engine_t engine;
static dnnl_stream_t stream;

struct product {
    dnnl_primitive_t primitive;
    dnnl_memory_t src, weights, dst;
};

static void hold_dnnl(enum mt_isa isa)
{
    dnnl_cpu_isa_t limit = isa == MT_ISA_AVX2          ? dnnl_cpu_isa_avx2
                           : isa == MT_ISA_AVX512      ? dnnl_cpu_isa_avx512_core
                           : isa == MT_ISA_AVX512_BF16 ? dnnl_cpu_isa_avx512_core_bf16
                                                       : dnnl_cpu_isa_all;
    must(dnnl_set_max_cpu_isa(limit), "choosing an instruction set");
    must(dnnl_engine_create(&engine, dnnl_cpu, 0), "opening an engine");
    must(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "opening a stream");
}

/* C[m][n] = A[m][k] W[n][k]^T, with W in the layout the library likes best. False if it has no such product.
 * */
static bool product_make(struct product *p, mt_dtype t, void *c, mt_dtype c_dtype, void *a, void *w,
                         int64_t m, int64_t n, int64_t k)
{
    dnnl_data_type_t type = t == MT_F32 ? dnnl_f32 : dnnl_bf16,
                     out = c_dtype == MT_F32 ? dnnl_f32 : dnnl_bf16;
    dnnl_dims_t a_dims = {m, k}, w_dims = {k, n}, c_dims = {m, n};
    dnnl_memory_desc_t a_desc, w_plain, w_any, c_desc;
    must(dnnl_memory_desc_init_by_tag(&a_desc, 2, a_dims, type, dnnl_ab), "describing A");
    must(dnnl_memory_desc_init_by_tag(&w_plain, 2, w_dims, type, dnnl_ba), "describing W");
    must(dnnl_memory_desc_init_by_tag(&w_any, 2, w_dims, type, dnnl_format_tag_any), "describing packed W");
    must(dnnl_memory_desc_init_by_tag(&c_desc, 2, c_dims, out, dnnl_ab), "describing C");
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    must(dnnl_matmul_desc_init(&desc, &a_desc, &w_any, NULL, &c_desc), "describing a product");
    if (dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL) != dnnl_success) return false;
    must(dnnl_primitive_create(&p->primitive, pd), "making a product");
    const dnnl_memory_desc_t *w_packed = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    dnnl_memory_t plain;
    must(dnnl_memory_create(&p->src, &a_desc, engine, a), "A");
    must(dnnl_memory_create(&p->dst, &c_desc, engine, c), "C");
    must(dnnl_memory_create(&plain, &w_plain, engine, w), "W");
    must(dnnl_memory_create(&p->weights, w_packed, engine, DNNL_MEMORY_ALLOCATE), "packed W");
    dnnl_primitive_desc_t reorder;
    dnnl_primitive_t pack;
    must(dnnl_reorder_primitive_desc_create(&reorder, &w_plain, engine, w_packed, engine, NULL),
         "describing packing");
    must(dnnl_primitive_create(&pack, reorder), "packing");
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, p->weights}};
    must(dnnl_primitive_execute(pack, stream, 2, args), "packing");
    must(dnnl_stream_wait(stream), "waiting");
    dnnl_primitive_destroy(pack);
    dnnl_primitive_desc_destroy(reorder);
    dnnl_primitive_desc_destroy(pd);
    dnnl_memory_destroy(plain);
    return true;
}
static void product_run(const struct product *p)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->src}, {DNNL_ARG_WEIGHTS, p->weights}, {DNNL_ARG_DST, p->dst}};
    must(dnnl_primitive_execute(p->primitive, stream, 3, args), "a product");
    must(dnnl_stream_wait(stream), "waiting");
}
static void product_free(struct product *p)
{
    dnnl_primitive_destroy(p->primitive);
    dnnl_memory_destroy(p->src);
    dnnl_memory_destroy(p->weights);
    dnnl_memory_destroy(p->dst);
}

/* ---- one row of the table */

enum contestant { OWN, DNNL, PEAK, CONTESTANTS };
struct row {
    const struct mt_gemm *g;
    struct mt_gemm_mul mul;
    struct mt_gemm_tn tn;
    bool is_tn;
    int products;
    struct product product[MOST_GROUPS];
    void *scratch;
    double gflop;
};

static double call(struct row *r, enum contestant who)
{
    if (who == PEAK) return roofline_peak(r->g->isa, r->g->dtype)();
    if (who == DNNL)
        for (int i = 0; i < r->products; i++) product_run(&r->product[i]);
    else if (r->is_tn)
        r->g->mul_tn(&r->tn, 0, 1, r->scratch);
    else
        r->g->mul(&r->mul, 0, 1, r->scratch);
    return r->gflop;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *x, int n)
{
    if (!n) return 0;
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

/* GFLOP/s of the thread's own time over one sample; *clean turns false if the thread was pre-empted
 * meanwhile. */
static double sample(struct row *r, enum contestant who, int repeat, bool *clean)
{
    long before = preemptions();
    double start = clock_of(CLOCK_THREAD_CPUTIME_ID), done = 0;
    for (int i = 0; i < repeat; i++) done += call(r, who);
    double rate = done / (clock_of(CLOCK_THREAD_CPUTIME_ID) - start);
    if (preemptions() != before) *clean = false;
    return rate;
}

static bool takes_part(const struct row *r, enum contestant who)
{
    return who == OWN || (who == DNNL ? r->products > 0 : roofline_peak(r->g->isa, r->g->dtype) != NULL);
}

static void measure(struct row *r, const char *name)
{
    int repeat[CONTESTANTS] = {0}, n = 0, tries = 0;
    for (enum contestant w = OWN; w < CONTESTANTS; w++) {
        if (!takes_part(r, w)) continue;
        call(r, w);
        double t = now();
        call(r, w);
        t = now() - t;
        repeat[w] = t < SAMPLE_SECONDS ? (int)(SAMPLE_SECONDS / t) + 1 : 1;
    }
    static double own[MOST_SAMPLES], share[MOST_SAMPLES], ratio[MOST_SAMPLES];
    double best[CONTESTANTS] = {0}, end = now() + SECONDS_PER_ROW;
    /* On a machine so busy that no sample stays whole, pre-empted ones have to do, and the row says so. */
    for (bool all = false; n < MOST_SAMPLES && now() < end; tries++) {
        double x[CONTESTANTS];
        bool clean = true;
        for (enum contestant w = OWN; w < CONTESTANTS; w++)
            x[w] = repeat[w] ? sample(r, w, repeat[w], &clean) : 0;
        if (!n && now() > end - SECONDS_PER_ROW / 2) all = true;
        if (!clean && !all) continue;
        for (enum contestant w = OWN; w < CONTESTANTS; w++)
            if (x[w] > best[w]) best[w] = x[w];
        own[n] = x[OWN];
        share[n] = x[PEAK] > 0 ? x[OWN] / x[PEAK] : 0;
        ratio[n++] = x[DNNL] > 0 ? x[OWN] / x[DNNL] : 0;
    }
    printf("%-34s %8.0f %8.0f", name, best[OWN], median(own, n));
    if (takes_part(r, PEAK))
        printf(" %7.0f%%", 100 * median(share, n));
    else
        printf(" %8s", "-");
    if (takes_part(r, DNNL))
        printf(" %9.0f %7.2f", best[DNNL], median(ratio, n));
    else
        printf(" %9s %7s", "-", "-");
    printf(" %6d of %d\n", n, tries);
    fflush(stdout);
}

static void bench_dense(const struct mt_gemm *g, void *scratch, int64_t m, int64_t n, int64_t k)
{
    static struct row r;
    int64_t size = mt_dtype_bytes(g->dtype);
    void *a = random_area(g->dtype, m * k), *w = random_area(g->dtype, n * k), *c = area(m * n * size);
    void *b = area(mt_gemm_packed_bytes(g, n, k));
    g->pack_nt(b, w, g->dtype, k, n, k, 0, 1);
    r = (struct row){.g = g, .scratch = scratch, .gflop = 2e-9 * (double)(m * n * k)};
    r.mul = (struct mt_gemm_mul){
        .c = c, .a = a, .b = b, .m = m, .n = n, .k = k, .lda = k, .ldc = n, .c_dtype = g->dtype};
    r.products = product_make(&r.product[0], g->dtype, c, g->dtype, a, w, m, n, k);
    char name[64];
    snprintf(name, sizeof name, "%s dense %lldx%lldx%lld", mt_dtype_name(g->dtype), (long long)m,
             (long long)n, (long long)k);
    measure(&r, name);
    if (r.products) product_free(&r.product[0]);
    free(a), free(w), free(c), free(b);
}

/* `rows` rows per group on average, from a quarter to seven quarters of it. */
static int64_t uneven(int64_t offset[MOST_GROUPS + 1], int64_t rows)
{
    offset[0] = 0;
    for (int e = 0; e < MOST_GROUPS; e++)
        offset[e + 1] = offset[e] + rows / 4 + e * 37 % 64 * rows * 3 / 2 / 64;
    return offset[MOST_GROUPS];
}

static void bench_grouped(const struct mt_gemm *g, void *scratch, int64_t rows, int64_t n, int64_t k)
{
    static struct row r;
    int64_t offset[MOST_GROUPS + 1], m = uneven(offset, rows), size = mt_dtype_bytes(g->dtype);
    int64_t packed = mt_gemm_packed_bytes(g, n, k);
    char *a = random_area(g->dtype, m * k), *w = random_area(g->dtype, MOST_GROUPS * n * k),
         *c = area(m * n * size);
    char *b = area(MOST_GROUPS * packed);
    r = (struct row){.g = g, .scratch = scratch, .gflop = 2e-9 * (double)(m * n * k)};
    for (int e = 0; e < MOST_GROUPS; e++) {
        g->pack_nt(b + e * packed, w + e * n * k * size, g->dtype, k, n, k, 0, 1);
        r.products += product_make(&r.product[e], g->dtype, c + offset[e] * n * size, g->dtype,
                                   a + offset[e] * k * size, w + e * n * k * size, offset[e + 1] - offset[e],
                                   n, k);
    }
    r.mul =
        (struct mt_gemm_mul){.c = c, .a = a, .b = b, .n = n, .k = k, .lda = k, .ldc = n, .c_dtype = g->dtype};
    r.mul.groups = MOST_GROUPS, r.mul.offset = offset, r.mul.b_stride = packed;
    char name[64];
    snprintf(name, sizeof name, "%s 64 groups of %lld, %lldx%lld", mt_dtype_name(g->dtype), (long long)rows,
             (long long)n, (long long)k);
    measure(&r, name);
    for (int e = 0; e < r.products; e++) product_free(&r.product[e]);
    free(a), free(w), free(c), free(b);
}

/* dW of 64 groups. oneDNN has no grouped product with f32 output from two activations that it could pack
 * beforehand. */
static void bench_tn(const struct mt_gemm *g, void *scratch, int64_t groups, int64_t rows, int64_t o,
                     int64_t i, bool accumulate)
{
    static struct row r;
    int64_t offset[MOST_GROUPS + 1], m = groups > 1 ? uneven(offset, rows) : rows;
    void *y = random_area(g->dtype, m * o), *x = random_area(g->dtype, m * i), *dw = area(groups * o * i * 4);
    r = (struct row){.g = g, .scratch = scratch, .is_tn = true, .gflop = 2e-9 * (double)(m * o * i)};
    r.tn = (struct mt_gemm_tn){
        .dw = dw, .dy = y, .x = x, .m = m, .o = o, .i = i, .lddw = i, .lddy = o, .ldx = i};
    r.tn.accumulate = accumulate;
    if (groups > 1) r.tn.groups = groups, r.tn.offset = offset, r.tn.dw_stride = o * i;
    char name[64];
    snprintf(name, sizeof name, "%s dW %s %lld x %lld rows, %lldx%lld", mt_dtype_name(g->dtype),
             accumulate ? "+=" : "=", (long long)groups, (long long)rows, (long long)o, (long long)i);
    measure(&r, name);
    free(y), free(x), free(dw);
}

static void bench_table(const struct mt_gemm *g, void *scratch)
{
    printf("\n%s, kernels %s\n%-34s %8s %8s %8s %9s %7s %s\n", mt_dtype_name(g->dtype), mt_isa_name(g->isa),
           "product m x n x k", "best", "median", "of peak", "oneDNN", "ratio", "clean samples");
    bench_dense(g, scratch, 2048, 512, 512);
    bench_dense(g, scratch, 2048, 2048, 512);
    bench_dense(g, scratch, 256, 512, 256);
    bench_dense(g, scratch, 256, 256, 512);
    if (g->dtype == MT_F32) return;
    bench_dense(g, scratch, 2048, 2048, 2048);
    bench_dense(g, scratch, 1, 512, 512);
    for (int64_t rows = 32; rows <= 256; rows *= 2) bench_grouped(g, scratch, rows, 256, 512);
    bench_grouped(g, scratch, 256, 512, 256);
    bench_tn(g, scratch, 1, 2048, 512, 512, false);
    bench_tn(g, scratch, MOST_GROUPS, 256, 256, 512, false);
    bench_tn(g, scratch, MOST_GROUPS, 256, 256, 512, true);
    bench_tn(g, scratch, MOST_GROUPS, 32, 256, 512, false);
}

int main(int argc, char **argv)
{
    /* The library's thread pool reads this when it is loaded. */
    const char *threads = getenv("OMP_NUM_THREADS");
    if (!threads || strcmp(threads, "1")) {
        setenv("OMP_NUM_THREADS", "1", 1);
        execv("/proc/self/exe", argv);
    }
    mt_err err = {0};
    enum mt_isa isa;
    const char *why;
    if (mt_isa_parse(argc > 1 ? argv[1] : "auto", &isa, &err) != MT_OK) {
        fprintf(stderr, "bench_gemm: %s\n", err.msg);
        return (int)err.code;
    }
    if (!mt_isa_available(isa, &why)) {
        fprintf(stderr, "bench_gemm: cannot measure %s here: %s\n", mt_isa_name(isa), why);
        return MT_CONFIG;
    }
    mt_cpu_thread_setup();
    hold_dnnl(isa);
    void *scratch = area(mt_gemm_scratch_bytes());
    printf("GFLOP/s on one thread; oneDNN %d.%d.%d\n", dnnl_version()->major, dnnl_version()->minor,
           dnnl_version()->patch);
    bench_table(mt_gemm_of(isa, MT_BF16), scratch);
    bench_table(mt_gemm_of(isa, MT_F32), scratch);
    free(scratch);
    return 0;
}
