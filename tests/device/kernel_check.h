/* kernel_check.h: runs one kernel on plain arrays of doubles and watches what it touches.
 *
 *   struct kc k = {.op = MT_OP_swiglu_fwd, .kernel = mt_cpu_swiglu_fwd};
 *   kc_arg(&k, dtype, N, F, 0, pad, NULL);        an argument in the order of the table: NULL starts as NaN
 *   kc_arg(&k, dtype, N, 2 * F, 0, pad, u);
 *   kc_run(&k);                                   several ways to cut it: same bits; guards, padding, inputs untouched
 *   kc_get(&k, 0, got);
 */
#ifndef MT_TESTS_KERNEL_CHECK_H
#define MT_TESTS_KERNEL_CHECK_H
#include "check.h"
#include "device/cpu/kernels.h"

enum { KC_GUARD = 64, KC_BYTE = 0xA5 };

struct kc_buf {
    unsigned char *mem, *start; /* with guards; start: as it was before the run */
    int64_t bytes;              /* without guards */
};
struct kc {
    enum mt_op op;
    mt_kernel *kernel;
    const void *dev;
    union mt_scalar s[MT_MAX_SCALARS];
    int n;
    mt_view v[MT_MAX_ARGS];
    struct kc_buf b[MT_MAX_ARGS];
};

/* Uniform in [-1, 1). */
static inline double kc_rand(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*seed >> 11) * 0x1p-52 - 1;
}
/* The value as dtype holds it, so that kernel and reference see the same inputs. */
static inline double kc_round(mt_dtype t, double x)
{
    return t == MT_F32 ? (double)(float)x : t == MT_BF16 ? (double)mt_f32_of(mt_bf16_of((float)x)) : x;
}
static inline double *kc_new(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}
static inline double *kc_random(mt_dtype t, int64_t n, double scale, uint64_t seed)
{
    double *x = kc_new(n);
    for (int64_t i = 0; i < n; i++) x[i] = kc_round(t, scale * kc_rand(&seed));
    return x;
}

static inline void kc_store(unsigned char *p, mt_dtype t, double x)
{
    if (t == MT_F32)
        *(float *)(void *)p = (float)x;
    else if (t == MT_BF16)
        *(mt_bf16 *)(void *)p = mt_bf16_of((float)x);
    else if (t == MT_F64)
        *(double *)(void *)p = x;
    else if (t == MT_I32)
        *(int32_t *)(void *)p = (int32_t)x;
    else if (t == MT_U8)
        *p = (unsigned char)x;
    else
        *(int64_t *)(void *)p = (int64_t)x;
}
static inline double kc_load(const unsigned char *p, mt_dtype t)
{
    if (t == MT_F32) return (double)*(const float *)(const void *)p;
    if (t == MT_BF16) return (double)mt_f32_of(*(const mt_bf16 *)(const void *)p);
    if (t == MT_F64) return *(const double *)(const void *)p;
    if (t == MT_I32) return *(const int32_t *)(const void *)p;
    if (t == MT_U8) return *p;
    return (double)*(const int64_t *)(const void *)p;
}

static inline int64_t kc_offset(const mt_view *v, int64_t i)
{
    int64_t last = v->dim[v->nd - 1], el = mt_dtype_bytes((mt_dtype)v->dtype);
    if (v->nd == 1) return i * el;
    if (v->nd == 2) return (i / last * v->ld + i % last) * el;
    int64_t rows = v->dim[1];
    return i / (rows * last) * v->stride + (i / last % rows * v->ld + i % last) * el;
}

/* nd is the number of leading dims >= 0 given; d1, d2 are 0 if there are none. pad: elements after each row. */
static inline void kc_arg(struct kc *k, mt_dtype t, int64_t d0, int64_t d1, int64_t d2, int64_t pad,
                          const double *x)
{
    mt_view v = {.row = k->n, .dtype = (uint8_t)t, .nd = (uint8_t)(d2 ? 3 : d1 ? 2 : 1), .dim = {d0, d1, d2}};
    struct kc_buf *b = &k->b[k->n];
    int64_t el = mt_dtype_bytes(t), count = mt_view_count(v);
    if (v.nd == 1) pad = 0;
    v.ld = v.dim[v.nd - 1] + pad;
    v.stride = (d1 * v.ld + pad) * el;
    b->bytes = v.nd == 1 ? d0 * el : v.nd == 2 ? d0 * v.ld * el : d0 * v.stride;
    v.bytes = count ? kc_offset(&v, count - 1) + el : 0;
    /* aligned as rows of a ledger are */
    b->mem = aligned_alloc(64, (size_t)((b->bytes + 2 * KC_GUARD + 63) / 64 * 64));
    b->start = malloc((size_t)(b->bytes + 2 * KC_GUARD));
    memset(b->start, KC_BYTE, (size_t)(b->bytes + 2 * KC_GUARD));
    for (int64_t i = 0; i < count; i++)
        if (x || t == MT_F32 || t == MT_BF16 || t == MT_F64)
            kc_store(b->start + KC_GUARD + kc_offset(&v, i), t, x ? x[i] : (double)NAN);
    k->v[k->n++] = v;
}
static inline void kc_none(struct kc *k)
{
    k->v[k->n++] = MT_NONE;
}

static inline unsigned char *kc_at(const struct kc *k, int arg, int64_t i)
{
    return k->b[arg].mem + KC_GUARD + kc_offset(&k->v[arg], i);
}
static inline void kc_get(const struct kc *k, int arg, double *out)
{
    for (int64_t i = 0, n = mt_view_count(k->v[arg]); i < n; i++)
        out[i] = kc_load(kc_at(k, arg, i), (mt_dtype)k->v[arg].dtype);
}

static inline void kc_run_parts(struct kc *k, int parts)
{
    static char scratch[MT_SCRATCH_BYTES] __attribute__((aligned(64)));
    struct mt_call c = {0};
    char msg[256];
    const char *wrong = mt_op_bind(k->op, k->v, &c, msg);
    if (!CHECK(!wrong)) {
        printf("%s\n", wrong);
        return;
    }
    memcpy(c.scalar, k->s, sizeof c.scalar);
    for (int i = 0; i < k->n; i++) {
        if (!k->b[i].mem) continue;
        memcpy(k->b[i].mem, k->b[i].start, (size_t)(k->b[i].bytes + 2 * KC_GUARD));
        c.arg[i] = k->b[i].mem + KC_GUARD;
    }
    for (int p = parts - 1; p >= 0; p--) { /* whatever scratch held before must not matter */
        memset(scratch, 0xFF, 1 << 16);
        k->kernel(&c, p, parts, scratch, k->dev);
    }
}

/* Bytes outside the elements, and all of an argument that is only read, are as before. */
static inline void kc_check_untouched(const struct kc *k)
{
    const struct mt_op_info *f = &mt_op_info[k->op];
    CHECK(k->n == f->n_args);
    for (int a = 0; a < k->n; a++) {
        if (!k->b[a].mem) continue;
        size_t all = (size_t)(k->b[a].bytes + 2 * KC_GUARD);
        unsigned char *now = malloc(all);
        memcpy(now, k->b[a].mem, all);
        if (f->arg[a].dir != MT_IN && f->arg[a].dir != MT_OPT)
            for (int64_t i = 0, n = mt_view_count(k->v[a]); i < n; i++) {
                size_t at = KC_GUARD + (size_t)kc_offset(&k->v[a], i);
                memcpy(now + at, k->b[a].start + at, (size_t)mt_dtype_bytes((mt_dtype)k->v[a].dtype));
            }
        if (!CHECK(!memcmp(now, k->b[a].start, all))) printf("  %s: argument %s\n", f->name, f->arg[a].name);
        free(now);
    }
}

static inline void kc_run(struct kc *k)
{
    static const int cuts[] = {3, 7, 64};
    struct kc_buf one[MT_MAX_ARGS] = {{0}};
    kc_run_parts(k, 1);
    kc_check_untouched(k);
    for (int a = 0; a < k->n; a++) {
        if (!k->b[a].mem) continue;
        one[a].mem = malloc((size_t)(k->b[a].bytes + 2 * KC_GUARD));
        memcpy(one[a].mem, k->b[a].mem, (size_t)(k->b[a].bytes + 2 * KC_GUARD));
    }
    for (int i = 0; i < 3; i++) {
        kc_run_parts(k, cuts[i]);
        kc_check_untouched(k);
        for (int a = 0; a < k->n; a++)
            if (k->b[a].mem &&
                !CHECK(!memcmp(one[a].mem, k->b[a].mem, (size_t)(k->b[a].bytes + 2 * KC_GUARD))))
                printf("  %s: argument %s differs in %d parts\n", mt_op_info[k->op].name,
                       mt_op_info[k->op].arg[a].name, cuts[i]);
    }
    for (int a = 0; a < k->n; a++) free(one[a].mem);
}
static inline void kc_release(struct kc *k)
{
    for (int i = 0; i < k->n; i++) {
        free(k->b[i].mem);
        free(k->b[i].start);
    }
}

static inline double kc_rms(const double *x, int64_t n)
{
    double q = 0;
    for (int64_t i = 0; i < n; i++) q += x[i] * x[i];
    return n ? sqrt(q / (double)n) : 0;
}
/* Every element of an output, against doubles: f32 within `tol` of the larger of its value and `scale` (the size of the
 * terms it is made of); bf16 within one rounding more. NaN fails. */
static inline void kc_check_scaled(const struct kc *k, int arg, const double *want, double tol, double scale)
{
    int64_t n = mt_view_count(k->v[arg]), bad = 0;
    double *got = kc_new(n);
    kc_get(k, arg, got);
    double rounding = k->v[arg].dtype == MT_BF16 ? 0x1.01p-8 : 0;
    for (int64_t i = 0; i < n && bad < 3; i++) {
        double bound = tol * fmax(fabs(want[i]), scale) + rounding * fabs(want[i]);
        if (fabs(got[i] - want[i]) <= bound) continue;
        bad++;
        CHECK_CLOSE(got[i], want[i], bound);
        printf("  %s: argument %s, element %lld of %lld\n", mt_op_info[k->op].name,
               mt_op_info[k->op].arg[arg].name, (long long)i, (long long)n);
    }
    free(got);
}
static inline void kc_check_close(const struct kc *k, int arg, const double *want, double tol)
{
    kc_check_scaled(k, arg, want, tol, kc_rms(want, mt_view_count(k->v[arg])));
}
static inline void kc_check_equal(const struct kc *k, int arg, const double *want)
{
    int64_t n = mt_view_count(k->v[arg]);
    double *got = kc_new(n);
    kc_get(k, arg, got);
    for (int64_t i = 0; i < n; i++)
        if (!CHECK(got[i] == want[i])) {
            printf("  %s: argument %s, element %lld: got %.9g, want %.9g\n", mt_op_info[k->op].name,
                   mt_op_info[k->op].arg[arg].name, (long long)i, got[i], want[i]);
            break;
        }
    free(got);
}
/* Whether elements [first, first + n) of an output are all NaN, or none is. */
static inline bool kc_all_nan(const struct kc *k, int arg, int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n; i++)
        if (!isnan(kc_load(kc_at(k, arg, i), (mt_dtype)k->v[arg].dtype))) return false;
    return true;
}
static inline bool kc_no_nan(const struct kc *k, int arg, int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n; i++)
        if (isnan(kc_load(kc_at(k, arg, i), (mt_dtype)k->v[arg].dtype))) return false;
    return true;
}

/* Proves a reference gradient: `value(ctx)` is a function of x[0..n), in doubles; central differences against grad. */
static inline void kc_check_gradient(double (*value)(void *ctx), void *ctx, double *x, const double *grad,
                                     int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double at = x[i], h = 1e-5;
        x[i] = at + h;
        double up = value(ctx);
        x[i] = at - h;
        double down = value(ctx);
        x[i] = at;
        if (!CHECK_CLOSE(grad[i], (up - down) / (2 * h), 1e-8 * (1 + fabs(grad[i])))) break;
    }
}

#define KC_FOR_DTYPES(t)                 \
    for (int t##_ = 0; t##_ < 2; t##_++) \
        for (mt_dtype t = t##_ ? MT_BF16 : MT_F32, *once_ = &t; once_; once_ = NULL)
#endif
