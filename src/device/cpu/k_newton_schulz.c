/* Newton-Schulz iteration of Muon: X <- aX + (bA + cAA) X with A = X X^T, from X / |X|, towards the nearest
 * matrix with orthonormal rows. Every product is rounded to T once, after its combination with the other
 * term, as torch.optim.Muon does. A and B are symmetric: their lower triangle is computed, the upper one
 * copied. */
#include "base/ns_coeff.h"
#include "device/cpu/kernels.h"
#include "device/cpu/muon_ws.h"
#include "device/cpu/vec.h"

struct ns {
    const struct mt_gemm *gemm;
    struct mt_ns_layout at;
    mt_dtype t;
    int64_t size;
    char *ws;
    void *scratch;
    /* the matrix of the call, r x c, rows ld apart; transposed in the workspace if it is tall */
    char *x;
    int64_t r, c, ld;
};

/* Lanes of f64 over all rows. Clamped so that a zero matrix stays zero; NaN goes through. */
MT_VEC static float norm_of(const struct ns *n)
{
    double lane[MT_LANES] = {0}, sum = 0;
    for (int64_t i = 0; i < n->r; i++)
        for (int64_t j = 0; j < n->c; j += MT_CHUNK) {
            float buf[MT_CHUNK];
            int64_t m = mt_min64(MT_CHUNK, n->c - j), k = 0;
            const float *x = mt_vec_in(n->x, n->t, i * n->ld + j, m, buf);
            for (; k + MT_LANES <= m; k += MT_LANES)
                for (int l = 0; l < MT_LANES; l++) lane[l] += (double)x[k + l] * (double)x[k + l];
            for (int l = 0; k + l < m; l++) lane[l] += (double)x[k + l] * (double)x[k + l];
        }
    for (int l = 0; l < MT_LANES; l++) sum += lane[l];
    float norm = (float)sqrt(sum);
    if (n->t == MT_BF16) norm = mt_f32_of(mt_bf16_of(norm));
    return norm < 1e-7f ? 1e-7f : norm;
}

/* Matrices are turned by blocks whose lines, read and written, stay in the first-level cache. */
enum { BLOCK = 32 };

/* out[j][i] = in[i][j] of a block of at most BLOCK x BLOCK elements */
MT_VEC_INLINE void turn_block(void *out, int64_t ldo, const void *in, int64_t ldi, mt_dtype t, int64_t rows,
                              int64_t cols)
{
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++)
            if (t == MT_F32)
                ((float *)out)[j * ldo + i] = ((const float *)in)[i * ldi + j];
            else
                ((mt_bf16 *)out)[j * ldo + i] = ((const mt_bf16 *)in)[i * ldi + j];
}
MT_VEC static void turn(char *out, int64_t ldo, const char *in, int64_t ldi, mt_dtype t, int64_t rows,
                        int64_t cols)
{
    int64_t size = mt_dtype_bytes(t);
    for (int64_t i = 0; i < rows; i += BLOCK)
        for (int64_t j = 0; j < cols; j += BLOCK)
            turn_block(out + (j * ldo + i) * size, ldo, in + (i * ldi + j) * size, ldi, t,
                       mt_min64(BLOCK, rows - i), mt_min64(BLOCK, cols - j));
}

/* Between the matrix of the call and x[0] of the workspace, the first time divided by the norm. */
MT_VEC static void divide(void *x, mt_dtype t, int64_t n, float norm)
{
    for (int64_t j = 0; j < n; j += MT_CHUNK) {
        float in[MT_CHUNK], out[MT_CHUNK];
        int64_t m = mt_min64(MT_CHUNK, n - j);
        const float *from = mt_vec_in(x, t, j, m, in);
        float *to = mt_vec_out(x, t, j, out);
        MT_VEC_LOOP
        for (int64_t i = 0; i < m; i++) to[i] = from[i] / norm;
        mt_vec_put(x, t, j, out, m);
    }
}
static void enter(const struct ns *n)
{
    float norm = norm_of(n);
    char *to = n->ws + n->at.x[0];
    int64_t ld = n->at.ld_l;
    if (n->r > n->c)
        turn(to, ld, n->x, n->ld, n->t, n->r, n->c);
    else
        for (int64_t i = 0; i < n->r; i++)
            memcpy(to + i * ld * n->size, n->x + i * n->ld * n->size, (size_t)(n->c * n->size));
    for (int64_t i = 0; i < n->at.s; i++) divide(to + i * ld * n->size, n->t, n->at.l, norm);
}
static void leave(const struct ns *n, const char *from)
{
    int64_t ld = n->at.ld_l;
    if (n->r > n->c)
        turn(n->x, n->ld, from, ld, n->t, n->c, n->r);
    else
        for (int64_t i = 0; i < n->r; i++)
            memcpy(n->x + i * n->ld * n->size, from + i * ld * n->size, (size_t)(n->c * n->size));
}

/* The upper triangle of x [s, s] becomes the lower one, turned. */
MT_VEC static void mirror(char *x, int64_t ld, mt_dtype t, int64_t s)
{
    int64_t size = mt_dtype_bytes(t);
    for (int64_t i = 0; i < s; i += BLOCK) {
        int64_t rows = mt_min64(BLOCK, s - i);
        for (int64_t j = 0; j < i; j += BLOCK)
            turn_block(x + (j * ld + i) * size, ld, x + (i * ld + j) * size, ld, t, rows, BLOCK);
        for (int64_t a = i; a < i + rows; a++)
            for (int64_t b = i; b < a; b++)
                memcpy(x + (b * ld + a) * size, x + (a * ld + b) * size, (size_t)size);
    }
}

/* sum = rows [lo, hi) of A times the first `cols` outputs of packed b, k inputs */
static int64_t product(const struct ns *n, const char *a, int64_t lda, int64_t lo, int64_t hi, const char *b,
                       int64_t cols, int64_t k)
{
    int64_t ldc = (cols + 15) / 16 * 16;
    const struct mt_gemm_mul g = {.c = n->ws + n->at.sum,
                                  .a = a + lo * lda * n->size,
                                  .b = b,
                                  .m = hi - lo,
                                  .n = cols,
                                  .k = k,
                                  .lda = lda,
                                  .ldc = ldc,
                                  .c_dtype = MT_F32};
    n->gemm->mul(&g, 0, 1, n->scratch);
    return ldc;
}

/* out = alpha * sum + beta * old, elementwise, a row of m elements; old may be NULL */
MT_VEC static void combine(void *out, const float *sum, float alpha, const void *old, float beta, mt_dtype t,
                           int64_t m)
{
    for (int64_t j = 0; j < m; j += MT_CHUNK) {
        float buf[MT_CHUNK], made[MT_CHUNK];
        int64_t w = mt_min64(MT_CHUNK, m - j);
        float *to = mt_vec_out(out, t, j, made);
        if (old) {
            const float *x = mt_vec_in(old, t, j, w, buf);
            MT_VEC_LOOP
            for (int64_t i = 0; i < w; i++) to[i] = alpha * sum[j + i] + beta * x[i];
        } else {
            MT_VEC_LOOP
            for (int64_t i = 0; i < w; i++) to[i] = alpha * sum[j + i];
        }
        mt_vec_put(out, t, j, made, w);
    }
}

/* out = alpha a b + beta old, symmetric: by blocks of rows, each up to its diagonal, then mirrored. */
static void symmetric(const struct ns *n, char *out, const char *a, int64_t lda, const char *b, int64_t k,
                      float alpha, const char *old, float beta)
{
    int64_t s = n->at.s, ld = n->at.ld_s;
    for (int64_t lo = 0; lo < s; lo += MT_NS_ROWS) {
        int64_t hi = mt_min64(lo + MT_NS_ROWS, s), ldc = product(n, a, lda, lo, hi, b, hi, k);
        const float *sum = (const float *)(const void *)(n->ws + n->at.sum);
        for (int64_t i = lo; i < hi; i++, sum += ldc)
            combine(out + i * ld * n->size, sum, alpha, old ? old + i * ld * n->size : NULL, beta, n->t,
                    i + 1);
    }
    mirror(out, ld, n->t, s);
}

static void step(const struct ns *n, const char *x, char *next, struct mt_ns_triple k)
{
    const struct mt_ns_layout *at = &n->at;
    char *a = n->ws + at->a, *b = n->ws + at->b, *nt = n->ws + at->nt, *nn = n->ws + at->nn,
         *a_nt = n->ws + at->a_nt;
    n->gemm->pack_nt(nt, x, n->t, at->ld_l, at->s, at->l, 0, 1);
    n->gemm->pack_nn(nn, nt, at->s, at->l, 0, 1);
    symmetric(n, a, x, at->ld_l, nt, at->l, 1, NULL, 0);
    n->gemm->pack_nt(a_nt, a, n->t, at->ld_s, at->s, at->s, 0, 1);
    symmetric(n, b, a, at->ld_s, a_nt, at->s, (float)k.c, a, (float)k.b);
    for (int64_t lo = 0; lo < at->s; lo += MT_NS_ROWS) {
        int64_t hi = mt_min64(lo + MT_NS_ROWS, at->s),
                ldc = product(n, b, at->ld_s, lo, hi, nn, at->l, at->s);
        const float *sum = (const float *)(const void *)(n->ws + at->sum);
        for (int64_t i = lo; i < hi; i++, sum += ldc)
            combine(next + i * at->ld_l * n->size, sum, 1, x + i * at->ld_l * n->size, (float)k.a, n->t,
                    at->l);
    }
}

/* A part works through its matrices one after another, in a workspace of its own. */
void mt_cpu_newton_schulz(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_newton_schulz *a = MT_ARGS(newton_schulz, c);
    const struct mt_scalars_newton_schulz *s = MT_SCALARS(newton_schulz, c);
    int64_t batch = mt_dim(c, 'B'), first, last, lanes = mt_newton_schulz_lanes(batch);
    struct ns n = {.gemm = ((const struct mt_cpu_dev *)dev)->gemm[c->dtype],
                   .at = mt_ns_layout_of(mt_dim(c, 'R'), mt_dim(c, 'C'), (mt_dtype)c->dtype),
                   .t = (mt_dtype)c->dtype,
                   .size = mt_dtype_bytes(c->dtype),
                   .scratch = scratch,
                   .r = mt_dim(c, 'R'),
                   .c = mt_dim(c, 'C'),
                   .ld = c->ld[0]};
    MT_ASSERT(c->bytes[1] >= lanes * n.at.bytes);
    if (part >= lanes) return; /* more parts than workspaces: the others do all */
    if (parts > lanes) parts = (int)lanes;
    n.ws = (char *)a->ws + part * n.at.bytes;
    mt_share(batch, 1, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int now = 0;
        n.x = (char *)a->x + i * c->stride[0];
        enter(&n);
        for (int64_t k = 0; k < s->steps; k++, now ^= 1)
            step(&n, n.ws + n.at.x[now], n.ws + n.at.x[now ^ 1], mt_ns_coeff((int)s->set, k));
        leave(&n, n.ws + n.at.x[now]);
    }
}
