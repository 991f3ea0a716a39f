#include "gemm_lt.h"

#include <stdlib.h>
#include <string.h>

#include "lt_table.h"

enum { MAX_PLANS = 512, MAX_ALIGN = 256 };

/* What an algorithm was chosen for. Compared as bytes: made from zero, so that padding is equal. */
struct key {
    int64_t m, n, k, ldy, ldx, ldw, ldadd;
    uint32_t align_y, align_x, align_w, align_add, dtype, y_dtype, x_lines, w_lines, bias, unused;
    uint64_t scratch_bytes;
};
/* cuBLASLt is column-major, so it computes y^T [n, m] = w x^T: w is its A, x its B, add its C; what we call lines it has as
 * they are. */
struct plan {
    struct key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, add, y;
    cublasLtMatmulAlgo_t algorithm;
};
struct mt_lt {
    struct mt_lt_table f;
    cublasLtHandle_t handle;
    int n_plans;
    struct plan plan[MAX_PLANS];
};

#define LT_TRY(lt, call, e)                                              \
    do {                                                                 \
        cublasStatus_t lt_status_ = (call);                              \
        MT_REQUIRE(!lt_status_, e, MT_DEVICE, "cuBLASLt: %s: %s", #call, \
                   (lt)->f.cublasLtGetStatusString(lt_status_));         \
    } while (0)

mt_status mt_lt_open(struct mt_lt **out, mt_err *e)
{
    struct mt_lt *lt = calloc(1, sizeof *lt);
    *out = NULL;
    MT_REQUIRE(lt, e, MT_IO, "opening cuBLASLt: no memory for %zu bytes of plans", sizeof *lt);
    mt_status status = mt_lt_table_open(&lt->f, e);
    if (!status) {
        cublasStatus_t made = lt->f.cublasLtCreate(&lt->handle);
        if (made)
            status = mt_err_set(e, MT_DEVICE, "opening cuBLASLt: %s", lt->f.cublasLtGetStatusString(made));
    }
    if (status) {
        lt->handle = NULL;
        mt_lt_close(lt);
        return status;
    }
    *out = lt;
    return MT_OK;
}

static void plan_release(const struct mt_lt *lt, struct plan *p)
{
    cublasLtMatrixLayout_t layout[] = {p->w, p->x, p->add, p->y};
    for (int i = 0; i < 4; i++)
        if (layout[i]) lt->f.cublasLtMatrixLayoutDestroy(layout[i]);
    if (p->product) lt->f.cublasLtMatmulDescDestroy(p->product);
    *p = (struct plan){.product = NULL};
}

void mt_lt_close(struct mt_lt *lt)
{
    if (!lt) return;
    for (int i = 0; i < lt->n_plans; i++) plan_release(lt, &lt->plan[i]);
    if (lt->handle) lt->f.cublasLtDestroy(lt->handle);
    mt_lt_table_close(&lt->f);
    free(lt);
}

/* The largest power of two, at most MAX_ALIGN, that divides the address. */
static uint32_t align_of(const void *p)
{
    uintptr_t low = (uintptr_t)p & (~(uintptr_t)p + 1);
    return low == 0 || low > MAX_ALIGN ? MAX_ALIGN : (uint32_t)low;
}

static struct key key_of(const struct mt_lt_product *p, size_t scratch_bytes)
{
    struct key k;
    memset(&k, 0, sizeof k);
    k.m = p->m, k.n = p->n, k.k = p->k;
    k.ldy = p->ldy, k.ldx = p->ldx, k.ldw = p->ldw, k.ldadd = p->add ? p->ldadd : 0;
    k.align_y = align_of(p->y), k.align_x = align_of(p->x), k.align_w = align_of(p->w);
    k.align_add = p->add ? align_of(p->add) : 0;
    k.dtype = p->dtype;
    k.y_dtype = p->y_dtype;
    k.x_lines = p->x_lines;
    k.w_lines = p->w_lines;
    k.bias = p->bias != NULL;
    k.scratch_bytes = scratch_bytes;
    return k;
}

static cudaDataType_t type_of(uint32_t dtype)
{
    return dtype == MT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static mt_status plan_describe(const struct mt_lt *lt, struct plan *p, mt_err *e)
{
    const struct mt_lt_table *f = &lt->f;
    const struct key *k = &p->key;
    const cudaDataType_t type = type_of(k->dtype), y_type = type_of(k->y_dtype);
    const int32_t w_turn = k->w_lines ? CUBLAS_OP_N : CUBLAS_OP_T,
                  x_turn = k->x_lines ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint64_t m = (uint64_t)k->m, n = (uint64_t)k->n, inner = (uint64_t)k->k;
    LT_TRY(lt, f->cublasLtMatmulDescCreate(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F), e);
    LT_TRY(lt,
           f->cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &w_turn, sizeof w_turn),
           e);
    LT_TRY(lt,
           f->cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSB, &x_turn, sizeof x_turn),
           e);
    if (k->bias) {
        const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        const int32_t bias_type = (int32_t)y_type;
        LT_TRY(lt,
               f->cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                 sizeof epilogue),
               e);
        LT_TRY(lt,
               f->cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                                                 sizeof bias_type),
               e);
    }
    LT_TRY(lt,
           f->cublasLtMatrixLayoutCreate(&p->w, type, k->w_lines ? n : inner, k->w_lines ? inner : n, k->ldw),
           e);
    LT_TRY(lt,
           f->cublasLtMatrixLayoutCreate(&p->x, type, k->x_lines ? m : inner, k->x_lines ? inner : m, k->ldx),
           e);
    LT_TRY(lt, f->cublasLtMatrixLayoutCreate(&p->add, y_type, n, m, k->ldadd ? k->ldadd : k->ldy), e);
    LT_TRY(lt, f->cublasLtMatrixLayoutCreate(&p->y, y_type, n, m, k->ldy), e);
    return MT_OK;
}

static mt_status plan_limits(const struct mt_lt *lt, const struct key *k, cublasLtMatmulPreference_t limits,
                             mt_err *e)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t which;
        uint32_t align;
    } align[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, k->align_w},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, k->align_x},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, k->align_add ? k->align_add : k->align_y},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, k->align_y}};
    LT_TRY(lt,
           lt->f.cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &k->scratch_bytes, sizeof k->scratch_bytes),
           e);
    for (int i = 0; i < 4; i++)
        LT_TRY(lt,
               lt->f.cublasLtMatmulPreferenceSetAttribute(limits, align[i].which, &align[i].align,
                                                          sizeof align[i].align),
               e);
    return MT_OK;
}

static mt_status plan_choose(const struct mt_lt *lt, struct plan *p, mt_err *e)
{
    const struct key *k = &p->key;
    cublasLtMatmulPreference_t limits;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    LT_TRY(lt, lt->f.cublasLtMatmulPreferenceCreate(&limits), e);
    mt_status status = plan_limits(lt, k, limits, e);
    cublasStatus_t asked = status ? CUBLAS_STATUS_SUCCESS
                                  : lt->f.cublasLtMatmulAlgoGetHeuristic(lt->handle, p->product, p->w, p->x,
                                                                         p->add, p->y, limits, 1, &found, &n);
    lt->f.cublasLtMatmulPreferenceDestroy(limits);
    MT_TRY(status);
    MT_REQUIRE(!asked && n, e, MT_DEVICE,
               "cuBLASLt has no algorithm for [%lld, %lld] x [%lld, %lld]^T in %s, lds %lld, %lld, %lld, "
               "%llu bytes of scratch: %s",
               (long long)k->m, (long long)k->k, (long long)k->n, (long long)k->k,
               mt_dtype_name((mt_dtype)k->dtype), (long long)k->ldx, (long long)k->ldw, (long long)k->ldy,
               (unsigned long long)k->scratch_bytes,
               asked ? lt->f.cublasLtGetStatusString(asked) : "none found");
    p->algorithm = found.algo;
    return MT_OK;
}

/* The plan for these shapes, made if they are new. */
static mt_status plan_of(struct mt_lt *lt, const struct key *key, struct plan **out, mt_err *e)
{
    for (int i = 0; i < lt->n_plans; i++)
        if (!memcmp(&lt->plan[i].key, key, sizeof *key)) {
            *out = &lt->plan[i];
            return MT_OK;
        }
    MT_REQUIRE(lt->n_plans < MAX_PLANS, e, MT_DEVICE, "cuBLASLt: more than %d shapes of products in one step",
               MAX_PLANS);
    struct plan *p = &lt->plan[lt->n_plans];
    p->key = *key;
    mt_status status = plan_describe(lt, p, e);
    if (!status) status = plan_choose(lt, p, e);
    if (status) {
        plan_release(lt, p);
        return status;
    }
    lt->n_plans++;
    *out = p;
    return MT_OK;
}

mt_status mt_lt_multiply(struct mt_lt *lt, const struct mt_lt_product *g, void *scratch, size_t scratch_bytes,
                         cudaStream_t s, mt_err *e)
{
    const float one = 1, beta = g->add ? 1 : 0;
    const struct key key = key_of(g, scratch_bytes);
    struct plan *p = NULL;
    if (!g->m || !g->n) return MT_OK;
    MT_REQUIRE(g->k > 0, e, MT_DEVICE, "cuBLASLt: a product over no inputs ([%lld, 0] x [%lld, 0]^T)",
               (long long)g->m, (long long)g->n);
    MT_TRY(plan_of(lt, &key, &p, e));
    if (g->bias)
        LT_TRY(lt,
               lt->f.cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias,
                                                    sizeof g->bias),
               e);
    LT_TRY(lt,
           lt->f.cublasLtMatmul(lt->handle, p->product, &one, g->w, p->w, g->x, p->x, &beta,
                                g->add ? g->add : g->y, p->add, g->y, p->y, &p->algorithm, scratch,
                                scratch_bytes, s),
           e);
    return MT_OK;
}
