/* test: timeout=180
 *
 * Every instruction set this machine has, and the AMX kernels over the stand-in for the tile unit, against
 * float64. */
#define MT_AMX_SOFT 1
#include "device/cpu/attention_amx.c"
#include "device/cpu/attention_bwd_amx.c"
#include "device/cpu/gemm_amx.c"
#include "device/cpu/gemm_tn_amx.c"

#include "tests/check.h"

#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 8 };
static const struct mt_gemm *table[2][MOST]; /* by operand dtype: f32, bf16 */
static int tables[2];
static uint64_t seed = 88172645463325252u;

static void find_tables(void)
{
    for (int isa = 0; isa < MT_N_ISAS; isa++) {
        const char *why;
        if (!mt_isa_available((enum mt_isa)isa, &why)) {
            printf("not forced: %s: %s\n", mt_isa_name((enum mt_isa)isa), why);
            continue;
        }
        for (int t = 0; t < 2; t++)
            table[t][tables[t]++] = mt_gemm_of((enum mt_isa)isa, t ? MT_BF16 : MT_F32);
    }
    table[1][tables[1]++] = &mt_gemm_amx_soft;
}

static double unit(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(int64_t)(seed >> 11) / (double)(1ll << 52) - 1;
}

/* A matrix whose last element is the last of a page before one that cannot be touched; what lies in front of
 * it and between its rows holds a pattern, for f32 and bf16 a NaN. */
struct mat {
    char *map, *p;
    size_t mapped, bytes;
    int64_t rows, cols, ld;
    mt_dtype t;
};
enum { PATTERN = 0xff };

static struct mat mat_new(mt_dtype t, int64_t rows, int64_t cols, int64_t ld)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct mat m = {.rows = rows, .cols = cols, .ld = ld, .t = t};
    m.bytes = rows && cols ? (size_t)(((rows - 1) * ld + cols) * mt_dtype_bytes(t)) : 0;
    m.mapped = (m.bytes + 64 + page - 1) / page * page;
    m.map = mmap(NULL, m.mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m.map == MAP_FAILED || mprotect(m.map + m.mapped, page, PROT_NONE)) abort();
    memset(m.map, PATTERN, m.mapped);
    m.p = m.map + m.mapped - m.bytes;
    return m;
}
static void mat_free(struct mat *m)
{
    munmap(m->map, m->mapped + (size_t)sysconf(_SC_PAGESIZE));
}
static void set(const struct mat *m, int64_t r, int64_t c, double x)
{
    if (m->t == MT_F32)
        ((float *)(void *)m->p)[r * m->ld + c] = (float)x;
    else
        ((mt_bf16 *)(void *)m->p)[r * m->ld + c] = mt_bf16_of((float)x);
}
static double get(const struct mat *m, int64_t r, int64_t c)
{
    int64_t i = r * m->ld + c;
    return m->t == MT_F32 ? (double)((float *)(void *)m->p)[i]
                          : (double)mt_f32_of(((mt_bf16 *)(void *)m->p)[i]);
}
static struct mat mat_random(mt_dtype t, int64_t rows, int64_t cols, int64_t ld)
{
    struct mat m = mat_new(t, rows, cols, ld);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) set(&m, r, c, unit());
    return m;
}
static struct mat mat_copy(const struct mat *s)
{
    struct mat m = mat_new(s->t, s->rows, s->cols, s->ld);
    memcpy(m.map, s->map, m.mapped);
    return m;
}
static bool same(const struct mat *a, const struct mat *b)
{
    return a->mapped == b->mapped && !memcmp(a->map, b->map, a->mapped);
}
/* Nothing but the elements was written. */
static bool guarded(const struct mat *m)
{
    struct mat t = mat_copy(m);
    for (int64_t r = 0; r < m->rows; r++)
        memset(t.p + r * m->ld * mt_dtype_bytes(m->t), PATTERN, (size_t)(m->cols * mt_dtype_bytes(m->t)));
    bool ok = true;
    for (size_t i = 0; i < t.mapped; i++) ok = ok && (unsigned char)t.map[i] == PATTERN;
    mat_free(&t);
    return ok;
}

static void *scratch(void)
{
    static void *s;
    if (!s) s = aligned_alloc(64, (size_t)mt_gemm_scratch_bytes());
    return memset(s, PATTERN, (size_t)mt_gemm_scratch_bytes());
}
static struct mat pack(const struct mt_gemm *g, const struct mat *w, int parts)
{
    struct mat out = mat_new(MT_U8, 1, mt_gemm_packed_bytes_for(g->isa, g->dtype, w->rows, w->cols), 1);
    for (int p = 0; p < parts; p++) g->pack_nt(out.p, w->p, w->t, w->ld, w->rows, w->cols, p, parts);
    return out;
}
static void mul_parts(const struct mt_gemm *g, const struct mt_gemm_mul *a, int parts)
{
    for (int p = parts - 1; p >= 0; p--) g->mul(a, p, parts, scratch());
}
static void tn_parts(const struct mt_gemm *g, const struct mt_gemm_tn *a, int parts)
{
    for (int p = parts - 1; p >= 0; p--) g->mul_tn(a, p, parts, scratch());
}

/* |got - want| against the rounding of a sum whose terms add up to `size` in magnitude. */
static bool close_to(double got, double want, double size, mt_dtype t)
{
    return fabs(got - want) <= 1e-6 * size + (t == MT_BF16 ? fabs(want) / 256 : 0) + 1e-30;
}
static const char *label(const struct mt_gemm *g)
{
    static char s[64];
    snprintf(s, sizeof s, "%s%s %s", mt_isa_name(g->isa), g == &mt_gemm_amx_soft ? " (stand-in)" : "",
             mt_dtype_name(g->dtype));
    return s;
}
static void expect(bool ok, const struct mt_gemm *g, const char *what, int64_t m, int64_t n, int64_t k)
{
    if (!CHECK(ok))
        printf("    %s, %s, %lldx%lldx%lld\n", label(g), what, (long long)m, (long long)n, (long long)k);
}

enum { TO_BF16 = 1, ACCUMULATE = 2, ADD = 4, BIAS = 8, IN_PLACE = 16 };

static bool mul_matches(const struct mt_gemm_mul *g, const struct mat *a, const struct mat *w,
                        const struct mat *c0, const struct mat *add, const struct mat *c)
{
    for (int64_t m = 0; m < g->m; m++)
        for (int64_t n = 0; n < g->n; n++) {
            double x = g->accumulate ? get(c0, m, n) : 0, size = fabs(x);
            for (int64_t k = 0; k < g->k; k++) {
                double v = get(a, m, k) * get(w, n, k);
                x += v;
                size += fabs(v);
            }
            if (g->bias) x += (double)g->bias[n];
            if (g->add) x += get(add, m, n);
            if (!close_to(get(c, m, n), x, size + 2, g->c_dtype)) return false;
        }
    return true;
}

/* One product by one table: right, the same in parts and in cuts of rows, and nothing else touched. */
static void check_mul(const struct mt_gemm *g, int64_t m, int64_t n, int64_t k, int64_t lda, unsigned how)
{
    mt_dtype t = g->dtype, out = how & TO_BF16 ? t : MT_F32;
    struct mat a = mat_random(t, m, k, lda), w = mat_random(t, n, k, k + 1), add = mat_random(t, m, n, n + 2);
    struct mat c0 = mat_random(out, m, n, n + 3), bias = mat_random(MT_F32, 1, n, n), b = pack(g, &w, 1);
    struct mat c[3] = {mat_copy(&c0), mat_copy(&c0), mat_copy(&c0)};
    struct mt_gemm_mul x = {
        .a = a.p, .b = b.p, .m = m, .n = n, .k = k, .lda = lda, .ldc = n + 3, .ldadd = n + 2};
    x.c_dtype = out;
    x.accumulate = how & ACCUMULATE;
    if (how & ADD) x.add = add.p;
    if (how & BIAS) x.bias = (float *)(void *)bias.p;
    for (int i = 0; i < 3; i++) {
        x.c = c[i].p;
        if (how & IN_PLACE) x.add = x.c, x.ldadd = x.ldc;
        if (i < 2) {
            mul_parts(g, &x, i ? 5 : 1);
            continue;
        }
        struct mt_gemm_mul y = x;
        for (int64_t at = 0, step; at < m; at += step) {
            step = m - at < 7 ? m - at : 7 + at;
            if (step > m - at) step = m - at;
            y.m = step;
            y.a = a.p + at * lda * mt_dtype_bytes(t);
            y.c = c[i].p + at * x.ldc * mt_dtype_bytes(out);
            if (x.add) y.add = (const char *)x.add + at * x.ldadd * mt_dtype_bytes(t);
            mul_parts(g, &y, 1);
        }
    }
    expect(mul_matches(&x, &a, &w, &c0, how & IN_PLACE ? &c0 : &add, &c[0]), g, "mul against float64", m, n,
           k);
    expect(same(&c[0], &c[1]), g, "mul in 5 parts", m, n, k);
    expect(same(&c[0], &c[2]), g, "mul cut in rows", m, n, k);
    expect(guarded(&c[0]), g, "mul guards", m, n, k);
    for (int i = 0; i < 3; i++) mat_free(&c[i]);
    mat_free(&a), mat_free(&w), mat_free(&add), mat_free(&c0), mat_free(&bias), mat_free(&b);
}

TEST(mul_small)
{
    static const int64_t size[][3] = {{1, 1, 1},    {7, 33, 31},  {33, 32, 64}, {37, 70, 129},
                                      {0, 5, 5},    {5, 7, 0},    {12, 64, 32}, {13, 31, 33},
                                      {64, 96, 96}, {2, 100, 40}, {49, 34, 7},  {17, 65, 66}};
    static const unsigned how[] = {
        0, TO_BF16, ACCUMULATE, ADD, BIAS | ADD | TO_BF16, TO_BF16 | IN_PLACE, ACCUMULATE | BIAS};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < tables[t]; i++)
            for (unsigned s = 0; s < sizeof size / sizeof *size; s++)
                for (unsigned h = 0; h < sizeof how / sizeof *how; h++)
                    check_mul(table[t][i], size[s][0], size[s][1], size[s][2], size[s][2] + 5 * (h % 2),
                              how[h]);
}

/* Sums in several blocks of k, rows that must be copied, more rows than a block of them. */
TEST(mul_large)
{
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < tables[t]; i++) {
            const struct mt_gemm *g = table[t][i];
            check_mul(g, 21, 40, 1100, 1100, TO_BF16);
            check_mul(g, 13, 37, 1601, 1603, ACCUMULATE);
            check_mul(g, 9, 150, 1024, 1024, ADD);
            check_mul(g, 6, 530, 64, 1024, TO_BF16);
            check_mul(g, 300, 33, 40, 40, TO_BF16 | ADD);
            check_mul(g, 257, 33, 2081, 2081, TO_BF16);
            check_mul(g, 1100, 4, 16, 16, 0);
        }
}

static bool tn_matches(const struct mt_gemm_tn *g, const struct mat *y, const struct mat *x,
                       const struct mat *dw0, const struct mat *dw)
{
    for (int64_t o = 0; o < g->o; o++)
        for (int64_t i = 0; i < g->i; i++) {
            double s = g->accumulate ? get(dw0, o, i) : 0, size = fabs(s);
            for (int64_t m = 0; m < g->m; m++) {
                double v = get(y, m, o) * get(x, m, i);
                s += v;
                size += fabs(v);
            }
            if (!close_to(get(dw, o, i), s, size, MT_F32)) return false;
        }
    return true;
}

static void check_tn(const struct mt_gemm *g, int64_t m, int64_t o, int64_t i, bool accumulate)
{
    struct mat y = mat_random(g->dtype, m, o, o + 3), x = mat_random(g->dtype, m, i, i + 1);
    struct mat dw0 = mat_random(MT_F32, o, i, i + 2),
               dw[3] = {mat_copy(&dw0), mat_copy(&dw0), mat_copy(&dw0)};
    struct mt_gemm_tn a = {
        .dy = y.p, .x = x.p, .m = m, .o = o, .i = i, .lddw = i + 2, .lddy = o + 3, .ldx = i + 1};
    a.accumulate = accumulate;
    for (int q = 0; q < 2; q++) {
        a.dw = (float *)(void *)dw[q].p;
        tn_parts(g, &a, q ? 5 : 1);
    }
    struct mt_gemm_tn cut = a;
    int64_t at = 0, step = 64;
    do {
        cut.dw = (float *)(void *)dw[2].p;
        cut.m = m - at < step ? m - at : step;
        cut.dy = y.p + at * a.lddy * mt_dtype_bytes(g->dtype);
        cut.x = x.p + at * a.ldx * mt_dtype_bytes(g->dtype);
        tn_parts(g, &cut, 2);
        cut.accumulate = true;
        at += step;
        step = 32;
    } while (at < m);
    expect(tn_matches(&a, &y, &x, &dw0, &dw[0]), g, "mul_tn against float64", o, i, m);
    expect(same(&dw[0], &dw[1]), g, "mul_tn in 5 parts", o, i, m);
    expect(same(&dw[0], &dw[2]), g, "mul_tn cut at 32 rows", o, i, m);
    expect(guarded(&dw[0]), g, "mul_tn guards", o, i, m);
    for (int q = 0; q < 3; q++) mat_free(&dw[q]);
    mat_free(&y), mat_free(&x), mat_free(&dw0);
}

TEST(mul_tn)
{
    static const int64_t size[][3] = {{1, 1, 1},     {33, 7, 31},  {64, 32, 32},  {37, 70, 129},
                                      {0, 5, 40},    {5, 33, 1},   {600, 17, 33}, {31, 48, 64},
                                      {130, 40, 96}, {7, 600, 20}, {3, 0, 5},     {257, 33, 65}};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < tables[t]; i++)
            for (unsigned s = 0; s < sizeof size / sizeof *size; s++)
                for (int accumulate = 0; accumulate < 2; accumulate++)
                    check_tn(table[t][i], size[s][0], size[s][1], size[s][2], accumulate);
}

/* A gradient so large that it is written past the caches, and one that is not for its alignment. */
TEST(mul_tn_large)
{
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < tables[t]; i++) {
            const struct mt_gemm *g = table[t][i];
            struct mat y = mat_random(g->dtype, 3, 600, 600), x = mat_random(g->dtype, 3, 1024, 1024);
            struct mat dw[2] = {mat_new(MT_F32, 600, 1024, 1024), mat_new(MT_F32, 600, 1024, 1025)};
            struct mt_gemm_tn a = {
                .dy = y.p, .x = x.p, .m = 3, .o = 600, .i = 1024, .lddy = 600, .ldx = 1024};
            bool equal = true;
            for (int q = 0; q < 2; q++)
                a.dw = (float *)(void *)dw[q].p, a.lddw = dw[q].ld, tn_parts(g, &a, 1 + q);
            for (int64_t o = 0; o < 600; o++)
                equal = equal && !memcmp(dw[0].p + o * 4096, dw[1].p + o * 4100, 4096);
            expect(equal && guarded(&dw[0]) && guarded(&dw[1]), g, "large dW", 600, 1024, 3);
            expect(tn_matches(&a, &y, &x, &dw[1], &dw[1]), g, "large dW against float64", 600, 1024, 3);
            mat_free(&y), mat_free(&x), mat_free(&dw[0]), mat_free(&dw[1]);
        }
}

/* Groups give the bits of one dense call each; a range of groups is a call of its own. */
static const int64_t offset[] = {2, 2, 39, 39, 40, 104, 171, 171};
enum { GROUPS = 7, ROWS = 175 };

static void check_groups_mul(const struct mt_gemm *g)
{
    enum { N = 70, K = 45 };
    mt_dtype t = g->dtype;
    int64_t bytes = mt_gemm_packed_bytes(g, N, K), size = mt_dtype_bytes(t);
    struct mat w = mat_random(t, GROUPS * N, K, K), a = mat_random(t, ROWS, K, K + 1),
               bias = mat_random(MT_F32, GROUPS, N, N);
    struct mat c[4], b = mat_new(MT_U8, 1, GROUPS * bytes, 1);
    for (int i = 0; i < 4; i++) c[i] = mat_new(t, ROWS, N, N + 1);
    for (int e = 0; e < GROUPS; e++) g->pack_nt(b.p + e * bytes, w.p + e * N * K * size, t, K, N, K, 0, 1);
    struct mt_gemm_mul x = {.a = a.p, .b = b.p, .n = N, .k = K, .lda = K + 1, .ldc = N + 1, .c_dtype = t};
    x.bias = (float *)(void *)bias.p, x.bias_stride = N, x.groups = GROUPS, x.offset = offset,
    x.b_stride = bytes;
    for (int i = 0; i < 2; i++) x.c = c[i].p, mul_parts(g, &x, i ? 5 : 1);
    for (int e = 0; e < GROUPS; e++) {
        struct mt_gemm_mul one = x;
        one.offset = NULL, one.m = offset[e + 1] - offset[e];
        one.a = a.p + offset[e] * x.lda * size, one.c = c[2].p + offset[e] * x.ldc * size;
        one.b = b.p + e * bytes, one.bias = x.bias + e * N;
        mul_parts(g, &one, 1);
    }
    for (int first = 0; first < GROUPS; first += 3) {
        struct mt_gemm_mul some = x;
        some.c = c[3].p, some.offset = offset + first, some.groups = GROUPS - first < 3 ? GROUPS - first : 3;
        some.b = b.p + first * bytes, some.bias = x.bias + first * N;
        mul_parts(g, &some, 2);
    }
    for (int i = 1; i < 4; i++)
        expect(same(&c[0], &c[i]), g,
               i == 1   ? "groups in parts"
               : i == 2 ? "groups alone"
                        : "ranges",
               ROWS, N, K);
    expect(guarded(&c[0]) && isnan(get(&c[0], 1, 0)) && isnan(get(&c[0], 171, 0)), g, "rows of no group",
           ROWS, N, K);
    for (int i = 0; i < 4; i++) mat_free(&c[i]);
    mat_free(&w), mat_free(&a), mat_free(&bias), mat_free(&b);
}

static void check_groups_tn(const struct mt_gemm *g, bool accumulate)
{
    enum { O = 50, I = 40, DW = O * I + 8 };
    int64_t size = mt_dtype_bytes(g->dtype);
    struct mat y = mat_random(g->dtype, ROWS, O, O), x = mat_random(g->dtype, ROWS, I, I), dw[3];
    struct mat dw0 = mat_random(MT_F32, GROUPS, O * I, DW);
    for (int i = 0; i < 3; i++) dw[i] = mat_copy(&dw0);
    struct mt_gemm_tn a = {
        .dy = y.p, .x = x.p, .o = O, .i = I, .lddw = I, .lddy = O, .ldx = I, .accumulate = accumulate};
    a.groups = GROUPS, a.offset = offset, a.dw_stride = DW;
    for (int i = 0; i < 2; i++) a.dw = (float *)(void *)dw[i].p, tn_parts(g, &a, i ? 5 : 1);
    for (int e = 0; e < GROUPS; e++) {
        struct mt_gemm_tn one = a;
        one.offset = NULL, one.m = offset[e + 1] - offset[e], one.dw = (float *)(void *)dw[2].p + e * DW;
        one.dy = y.p + offset[e] * O * size, one.x = x.p + offset[e] * I * size;
        tn_parts(g, &one, 1);
    }
    expect(same(&dw[0], &dw[1]), g, "dW of groups in parts", O, I, ROWS);
    expect(same(&dw[0], &dw[2]), g, "dW of groups alone", O, I, ROWS);
    expect(guarded(&dw[0]), g, "dW of groups, guards", O, I, ROWS);
    expect(get(&dw[0], 0, 7) == (accumulate ? get(&dw0, 0, 7) : 0), g, "dW of a group without rows", O, I,
           ROWS);
    for (int i = 0; i < 3; i++) mat_free(&dw[i]);
    mat_free(&y), mat_free(&x), mat_free(&dw0);
}

TEST(groups)
{
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < tables[t]; i++) {
            check_groups_mul(table[t][i]);
            check_groups_tn(table[t][i], false);
            check_groups_tn(table[t][i], true);
        }
}

static void check_pack(const struct mt_gemm *g, mt_dtype w_dtype, int64_t o, int64_t i)
{
    struct mat w = mat_random(w_dtype, o, i, i + 1), wt = mat_new(w_dtype, i, o, o),
               back = mat_new(g->dtype, o, i, i + 2);
    for (int64_t r = 0; r < o; r++)
        for (int64_t c = 0; c < i; c++) set(&wt, c, r, get(&w, r, c));
    struct mat nt = pack(g, &w, 1), parts = pack(g, &w, 3), turned = pack(g, &wt, 2);
    struct mat nn = mat_new(MT_U8, 1, mt_gemm_packed_bytes(g, i, o), 1);
    for (int p = 0; p < 3; p++) g->pack_nn(nn.p, nt.p, o, i, p, 3);
    for (int p = 0; p < 3; p++) g->unpack_nt(back.p, nt.p, i + 2, o, i, p, 3);
    expect(same(&nt, &parts), g, "pack in parts", o, i, 0);
    expect(same(&nn, &turned), g, "pack_nn is pack_nt of the transpose", o, i, 0);
    bool equal = guarded(&back);
    for (int64_t r = 0; r < o; r++)
        for (int64_t c = 0; c < i; c++) {
            double want = get(&w, r, c);
            equal = equal && get(&back, r, c) ==
                                 (g->dtype == MT_BF16 ? (double)mt_f32_of(mt_bf16_of((float)want)) : want);
        }
    expect(equal, g, "unpack", o, i, 0);
    mat_free(&w), mat_free(&wt), mat_free(&back), mat_free(&nt), mat_free(&parts), mat_free(&turned),
        mat_free(&nn);
}

TEST(packing)
{
    static const int64_t size[][2] = {{1, 1}, {32, 32}, {33, 31}, {70, 129}, {64, 96}, {5, 34}, {31, 64}};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < tables[t]; i++)
            for (unsigned s = 0; s < sizeof size / sizeof *size; s++) {
                check_pack(table[t][i], MT_F32, size[s][0], size[s][1]);
                check_pack(table[t][i], MT_BF16, size[s][0], size[s][1]);
            }
}

/* Panel p of the packed form is rows 32p .. 32p + 31 and nothing else. */
TEST(panels_are_contiguous)
{
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < tables[t]; i++) {
            const struct mt_gemm *g = table[t][i];
            struct mat w = mat_random(g->dtype, 96, 50, 50), all = pack(g, &w, 1), middle = w;
            middle.p += 32 * 50 * mt_dtype_bytes(g->dtype), middle.rows = 32;
            struct mat one = pack(g, &middle, 1);
            int64_t bytes = mt_gemm_packed_bytes(g, 32, 50);
            expect(!memcmp(one.p, all.p + bytes, (size_t)bytes), g, "a panel alone", 32, 50, 0);
            CHECK_INT(bytes * 3, mt_gemm_packed_bytes(g, 96, 50));
            CHECK_INT(bytes % 64, 0);
            mat_free(&w), mat_free(&all), mat_free(&one);
        }
}

TEST(nan_propagates)
{
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < tables[t]; i++) {
            const struct mt_gemm *g = table[t][i];
            struct mat a = mat_random(g->dtype, 20, 40, 40), w = mat_random(g->dtype, 33, 40, 40), b;
            struct mat c = mat_new(g->dtype, 20, 33, 33), dw = mat_new(MT_F32, 40, 40, 40);
            set(&a, 3, 39, NAN), set(&w, 32, 0, INFINITY);
            b = pack(g, &w, 1);
            struct mt_gemm_mul x = {
                .c = c.p, .a = a.p, .b = b.p, .m = 20, .n = 33, .k = 40, .lda = 40, .ldc = 33};
            x.c_dtype = g->dtype;
            mul_parts(g, &x, 1);
            struct mt_gemm_tn y = {
                .dw = (float *)(void *)dw.p, .dy = a.p, .x = a.p, .m = 20, .o = 40, .i = 40};
            y.lddw = y.lddy = y.ldx = 40;
            tn_parts(g, &y, 1);
            bool ok = true;
            for (int64_t r = 0; r < 20; r++)
                for (int64_t n = 0; n < 33; n++)
                    ok = ok && (r == 3    ? isnan(get(&c, r, n))
                                : n == 32 ? isinf(get(&c, r, n))
                                          : isfinite(get(&c, r, n)));
            for (int64_t r = 0; r < 40; r++)
                for (int64_t n = 0; n < 40; n++) ok = ok && !isnan(get(&dw, r, n)) == (r < 39 && n < 39);
            expect(ok, g, "NaN and infinity", 20, 33, 40);
            mat_free(&a), mat_free(&w), mat_free(&b), mat_free(&c), mat_free(&dw);
        }
}

/* Parts cover every cell once, and no part has a cell's work more than its share. `work` is that of a cell.
 * */
static void check_cut(const struct mt_gemm_grid *grid, const int64_t work[GROUPS], int64_t most, int parts)
{
    enum { ROWS_MOST = 80, PANELS = 3 };
    static int seen[GROUPS][ROWS_MOST][PANELS];
    memset(seen, 0, sizeof seen);
    double total = 0;
    for (int e = 0; e < GROUPS; e++) {
        int64_t rows = grid->rows < 0 ? offset[e + 1] - offset[e] : grid->rows;
        total += (double)(work[e] * ((rows + grid->unit - 1) / grid->unit) * PANELS);
    }
    for (int p = 0; p < parts; p++) {
        struct mt_gemm_cut cut;
        struct mt_gemm_rect r;
        double mine = 0;
        mt_gemm_cut_init(&cut, grid, p, parts);
        while (mt_gemm_cut_next(&cut, &r)) {
            CHECK(r.first == offset[r.group] && r.extent == offset[r.group + 1] - offset[r.group]);
            CHECK(grid->merge || r.rows <= grid->unit * grid->block);
            mine += (double)(work[r.group] * ((r.rows + grid->unit - 1) / grid->unit) * r.panels);
            for (int64_t row = r.row; row < r.row + r.rows; row++)
                for (int64_t q = r.panel; q < r.panel + r.panels; q++) seen[r.group][row][q]++;
        }
        CHECK(fabs(mine - total / parts) <= (double)most + 1);
    }
    for (int e = 0; e < GROUPS; e++)
        for (int64_t row = 0; row < ROWS_MOST; row++)
            for (int q = 0; q < PANELS; q++) {
                int64_t rows = grid->rows < 0 ? offset[e + 1] - offset[e] : grid->rows;
                CHECK_INT(seen[e][row][q], row < rows && work[e] > 0);
            }
}

TEST(work_is_cut_evenly)
{
    static const int64_t one[GROUPS] = {1, 1, 1, 1, 1, 1, 1};
    struct mt_gemm_mul m = {.n = 80, .groups = GROUPS, .offset = offset};
    struct mt_gemm_tn t = {.o = 80, .i = 80, .groups = GROUPS, .offset = offset};
    for (int parts = 1; parts < 40; parts += parts < 8 ? 1 : 7)
        for (int merge = 0; merge < 2; merge++) {
            struct mt_gemm_grid grid = mt_gemm_grid_mul(&m, 5, 3);
            grid.merge = merge;
            check_cut(&grid, one, 1, parts);
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                int64_t work[GROUPS];
                for (int e = 0; e < GROUPS; e++) {
                    int64_t rows = offset[e + 1] - offset[e];
                    work[e] = rows == 0 && accumulate ? 0 : (rows + 31) / 32 + 1;
                }
                t.accumulate = accumulate;
                grid = mt_gemm_grid_tn(&t, 5, 3);
                grid.merge = merge;
                check_cut(&grid, work, 4, parts);
            }
        }
}

/* Values over a wide range of exponents, with denormals and products that underflow. */
static struct mat mat_wild(int64_t rows, int64_t cols)
{
    struct mat m = mat_random(MT_BF16, rows, cols, cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            if (r % 3 == 1) set(&m, r, c, ldexp(get(&m, r, c), -62 - (int)(c % 4)));
            if (r % 5 == 2) set(&m, r, c, ldexp(get(&m, r, c), (int)(c % 40) - 20));
            if (r % 7 == 3) ((mt_bf16 *)(void *)m.p)[r * cols + c] &= 0x807f;
        }
    return m;
}

/* Both kinds of product by one table, as bytes. */
static void wild_products(const struct mt_gemm *g, struct mat out[2])
{
    seed = 12345;
    struct mat a = mat_wild(45, 70), w = mat_wild(66, 70), b = pack(g, &w, 1);
    out[0] = mat_new(MT_F32, 45, 66, 66), out[1] = mat_new(MT_F32, 70, 70, 70);
    struct mt_gemm_mul x = {
        .c = out[0].p, .a = a.p, .b = b.p, .m = 45, .n = 66, .k = 70, .lda = 70, .ldc = 66};
    struct mt_gemm_tn y = {.dw = (float *)(void *)out[1].p, .dy = a.p, .x = a.p, .m = 45, .o = 70, .i = 70};
    y.lddw = y.lddy = y.ldx = 70;
    mul_parts(g, &x, 3);
    tn_parts(g, &y, 3);
    mat_free(&a), mat_free(&w), mat_free(&b);
}

static void check_same_bits(const struct mt_gemm *p, const struct mt_gemm *q)
{
    struct mat x[2], y[2];
    wild_products(p, x);
    wild_products(q, y);
    for (int i = 0; i < 2; i++) {
        expect(same(&x[i], &y[i]), p, mt_isa_name(q->isa), x[i].rows, x[i].cols, i);
        mat_free(&x[i]), mat_free(&y[i]);
    }
}

TEST(vector_sets_have_the_bits_of_vdpbf16ps)
{
    static const enum mt_isa set_of[] = {MT_ISA_AVX2, MT_ISA_AVX512, MT_ISA_AVX512_BF16};
    if (!mt_isa_available(MT_ISA_AVX512, NULL)) SKIP("this machine has one such instruction set at most");
    for (int i = 1; i < 3; i++)
        if (mt_isa_available(set_of[i], NULL))
            check_same_bits(mt_gemm_of(MT_ISA_AVX2, MT_BF16), mt_gemm_of(set_of[i], MT_BF16));
}

TEST(stand_in_has_the_bits_of_amx)
{
    const char *why;
    if (!mt_isa_available(MT_ISA_AMX_BF16, &why)) SKIP("%s", why);
    check_same_bits(mt_gemm_of(MT_ISA_AMX_BF16, MT_BF16), &mt_gemm_amx_soft);
}

/* Any bits of f32, ties of the rounding often, in both forms of a matrix that wide registers pack by whole blocks, against
 * the packing of another set; with an odd size besides, which has no blocks. */
static void check_same_packing(const struct mt_gemm *g, const struct mt_gemm *other, int64_t o, int64_t i,
                               int64_t ld)
{
    int64_t bytes = mt_gemm_packed_bytes(g, i, o);
    struct mat w = mat_random(MT_F32, o, i, ld), x = mat_new(MT_U8, 1, bytes, 1),
               y = mat_new(MT_U8, 1, bytes, 1);
    for (int64_t k = 0; k < o * i; k++) {
        uint32_t u = (uint32_t)(int32_t)(unit() * 0x1p31) * 2 + (uint32_t)(k & 1);
        u = k % 3 ? u : (u & 0xffff0000u) | 0x8000u;
        u = k % 97 ? u : u | 0x7f800000u;
        memcpy((float *)(void *)w.p + k / i * ld + k % i, &u, 4);
    }
    struct mat p = pack(g, &w, 3), q = pack(other, &w, 1);
    for (int part = 0; part < 3; part++) g->pack_nn(x.p, p.p, o, i, part, 3);
    other->pack_nn(y.p, q.p, o, i, 0, 1);
    expect(same(&p, &q), g, "pack_nt by blocks", o, i, ld);
    expect(same(&x, &y), g, "pack_nn by blocks", o, i, ld);
    mat_free(&w), mat_free(&x), mat_free(&y), mat_free(&p), mat_free(&q);
}
static void check_wide_packing(enum mt_isa isa, mt_dtype t, const struct mt_gemm *other)
{
    const struct mt_gemm *g = mt_gemm_of(isa, t);
    check_same_packing(g, other, 256, 256, 256);
    check_same_packing(g, other, 288, 544, 549);
    check_same_packing(g, other, 255, 290, 290);
}
TEST(packing_by_blocks_has_the_same_bytes)
{
    const char *why;
    if (!mt_isa_available(MT_ISA_AVX512, &why)) SKIP("%s", why);
    check_wide_packing(MT_ISA_AVX512, MT_F32, mt_gemm_of(MT_ISA_SCALAR, MT_F32));
    check_wide_packing(MT_ISA_AVX512, MT_BF16, mt_gemm_of(MT_ISA_SCALAR, MT_BF16));
    if (mt_isa_available(MT_ISA_AMX_BF16, NULL))
        check_wide_packing(MT_ISA_AMX_BF16, MT_BF16, &mt_gemm_amx_soft);
}

TEST(names)
{
    enum mt_isa isa;
    mt_err err = {0};
    for (int i = 0; i < MT_N_ISAS; i++) {
        CHECK(mt_isa_parse(mt_isa_name((enum mt_isa)i), &isa, &err) == MT_OK && (int)isa == i);
        for (int t = 0; t < 2; t++) {
            const struct mt_gemm *g = mt_gemm_of((enum mt_isa)i, t ? MT_BF16 : MT_F32);
            CHECK(!g || (g->dtype == (t ? MT_BF16 : MT_F32) &&
                         g->k_align == mt_gemm_k_align((enum mt_isa)i, g->dtype)));
            CHECK(g || !mt_isa_available((enum mt_isa)i, NULL));
        }
    }
    CHECK(mt_isa_parse("auto", &isa, &err) == MT_OK && isa == mt_isa_best() && mt_isa_available(isa, NULL));
    CHECK(mt_isa_parse("sse", &isa, &err) == MT_CONFIG && strstr(err.msg, "\"sse\"") &&
          strstr(err.msg, "avx512-bf16"));
    CHECK(!mt_gemm_of(MT_ISA_SCALAR, MT_I32));
}

int main(void)
{
    mt_cpu_thread_setup();
    find_tables();
    RUN(packing_by_blocks_has_the_same_bytes);
    RUN(names);
    RUN(packing);
    RUN(panels_are_contiguous);
    RUN(mul_small);
    RUN(mul_large);
    RUN(mul_tn);
    RUN(mul_tn_large);
    RUN(groups);
    RUN(work_is_cut_evenly);
    RUN(nan_propagates);
    RUN(vector_sets_have_the_bits_of_vdpbf16ps);
    RUN(stand_in_has_the_bits_of_amx);
    return DONE();
}
