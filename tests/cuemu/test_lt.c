/* test: variants=cuemu */
/* The stand-in for cuBLASLt against float64: the three products of a linear layer,
 * row-major, and a batch; and what it must refuse. */
#include <cublasLt.h>

#include "base/dtype.h"
#include "check.h"
#include "device_memory.h"

enum { SCRATCH = 4096, MAX_DIM = 64 };

/* c [m][n] (+)= op(a) op(b), op(a) [m][k], op(b) [k][n], batched densely. */
struct product {
    bool ta, tb;
    int m, n, k, batch;
    mt_dtype c;
    float beta;
};

static cublasLtMatrixLayout_t layout(cudaDataType_t t, int rows, int columns, int batch)
{
    cublasLtMatrixLayout_t l;
    int64_t stride = (int64_t)rows * columns;
    cublasLtMatrixLayoutCreate(&l, t, (uint64_t)rows, (uint64_t)columns, rows);
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return l;
}

/* Column-major c^T = op(b)^T op(a)^T: the operands change places. `tamper` hands the algorithm of other
 * shapes. */
static cublasStatus_t multiply(const struct product *p, const void *a, const void *b, void *c, void *scratch,
                               bool tamper)
{
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t limits;
    cublasLtMatmulHeuristicResult_t found;
    const int32_t first = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t type = p->c == MT_F32 ? CUDA_R_32F : CUDA_R_16BF;
    const size_t scratch_bytes = SCRATCH;
    const float one = 1;
    int n = 0;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    cublasLtMatrixLayout_t lb = p->tb ? layout(CUDA_R_16BF, p->k, p->n, p->batch)
                                      : layout(CUDA_R_16BF, p->n, p->k, p->batch);
    cublasLtMatrixLayout_t la = p->ta ? layout(CUDA_R_16BF, p->m, p->k, p->batch)
                                      : layout(CUDA_R_16BF, p->k, p->m, p->batch);
    cublasLtMatrixLayout_t lc = layout(type, p->n, p->m, p->batch);
    cublasLtMatmulPreferenceCreate(&limits);
    cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch_bytes,
                                         sizeof scratch_bytes);
    cublasStatus_t e = cublasLtMatmulAlgoGetHeuristic(handle, desc, lb, la, lc, lc, limits, 1, &found, &n);
    if (tamper) found.algo.data[0]++;
    if (!e && n)
        e = cublasLtMatmul(handle, desc, &one, b, lb, a, la, &p->beta, c, lc, c, lc, &found.algo, scratch,
                           SCRATCH, NULL);
    cublasLtMatmulPreferenceDestroy(limits);
    cublasLtMatrixLayoutDestroy(la), cublasLtMatrixLayoutDestroy(lb), cublasLtMatrixLayoutDestroy(lc);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
    return e;
}

static double element(const struct product *p, const uint16_t *a, const uint16_t *b, int z, int i, int j)
{
    double sum = 0;
    for (int l = 0; l < p->k; l++)
        sum += (double)mt_f32_of(a[z * p->m * p->k + (p->ta ? l * p->m + i : i * p->k + l)]) *
               (double)mt_f32_of(b[z * p->k * p->n + (p->tb ? j * p->k + l : l * p->n + j)]);
    return sum;
}

static void run(const struct product *p, bool tamper)
{
    static uint16_t a[8 * MAX_DIM * MAX_DIM], b[8 * MAX_DIM * MAX_DIM];
    static float c[8 * MAX_DIM * MAX_DIM], want[8 * MAX_DIM * MAX_DIM];
    static uint16_t half[8 * MAX_DIM * MAX_DIM];
    uint64_t rng = 88172645463325252u;
    int nc = p->batch * p->m * p->n, el = (int)mt_dtype_bytes(p->c);
    for (int i = 0; i < p->batch * p->m * p->k; i++) a[i] = mt_bf16_of(uniform_of(&rng));
    for (int i = 0; i < p->batch * p->k * p->n; i++) b[i] = mt_bf16_of(uniform_of(&rng));
    for (int i = 0; i < nc; i++) {
        half[i] = mt_bf16_of(uniform_of(&rng));
        c[i] = mt_f32_of(half[i]);
        want[i] = (float)(element(p, a, b, i / (p->m * p->n), i / p->n % p->m, i % p->n) +
                          (double)(p->beta * c[i]));
    }
    void *da = device_new(a, sizeof a), *db = device_new(b, sizeof b), *scratch = device_new(NULL, SCRATCH);
    void *dc = device_new(p->c == MT_F32 ? (void *)c : (void *)half, (size_t)(nc * el));
    cublasStatus_t e = multiply(p, da, db, dc, scratch, tamper);
    if (tamper)
        CHECK(e == CUBLAS_STATUS_NOT_SUPPORTED);
    else {
        CHECK(e == CUBLAS_STATUS_SUCCESS);
        device_get(p->c == MT_F32 ? (void *)c : (void *)half, dc, (size_t)(nc * el));
        for (int i = 0; i < nc && p->c == MT_BF16; i++) c[i] = mt_f32_of(half[i]);
        CHECK_REL(c, want, nc, p->c == MT_F32 ? 1e-6 : 4e-3);
    }
    cudaFree(da), cudaFree(db), cudaFree(dc), cudaFree(scratch);
}

TEST(linear_layer)
{
    run(&(struct product){false, true, 24, 40, 32, 1, MT_BF16, 0}, false);  /* y = x W^T */
    run(&(struct product){false, false, 24, 32, 40, 1, MT_BF16, 0}, false); /* dx = dy W */
    run(&(struct product){true, false, 40, 32, 24, 1, MT_F32, 1}, false);   /* dW += dy^T x */
}
TEST(batch)
{
    run(&(struct product){false, true, 8, 16, 64, 5, MT_BF16, 0}, false);
}
TEST(algorithm_of_other_shapes_is_refused)
{
    run(&(struct product){false, true, 8, 16, 8, 1, MT_BF16, 0}, true);
}

int main(void)
{
    RUN(linear_layer);
    RUN(batch);
    RUN(algorithm_of_other_shapes_is_refused);
    return DONE();
}
