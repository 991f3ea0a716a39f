/* A stand-in for the part of cuBLASLt that a trainer calls: same layouts,
 * transposes, scaling and bias, run on the host as a stream operation.
 * What it does not implement is a fault, never a silent default. */
#include "cuemu.h"
#include "internal.h"
#include <cublasLt.h>

#include <map>
#include <vector>

using namespace cuemu;

namespace
{
struct Attrs {
    std::map<int, std::vector<unsigned char>> v;
    void set(int k, const void *p, size_t n)
    {
        v[k].assign((const unsigned char *)p, (const unsigned char *)p + n);
    }
    template <class T> T get(int k, T dflt) const
    {
        auto it = v.find(k);
        if (it == v.end()) return dflt;
        if (it->second.size() < sizeof(T))
            fault("cublasLt", 0, "attribute %d has %zu bytes, not %zu", k, it->second.size(), sizeof(T));
        T t;
        memcpy(&t, it->second.data(), sizeof t);
        return t;
    }
};
struct Layout {
    cudaDataType type;
    int order, batch;
    int64_t rows, cols, ld, stride;
    explicit Layout(cublasLtMatrixLayout_t l)
    {
        const Attrs &a = *(const Attrs *)(const void *)l;
        type = (cudaDataType)a.get<uint32_t>(CUBLASLT_MATRIX_LAYOUT_TYPE, 0);
        order = a.get<int32_t>(CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_COL);
        rows = (int64_t)a.get<uint64_t>(CUBLASLT_MATRIX_LAYOUT_ROWS, 0);
        cols = (int64_t)a.get<uint64_t>(CUBLASLT_MATRIX_LAYOUT_COLS, 0);
        ld = a.get<int64_t>(CUBLASLT_MATRIX_LAYOUT_LD, 0);
        batch = a.get<int32_t>(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1);
        stride = a.get<int64_t>(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0);
    }
    int64_t lines() const { return order == CUBLASLT_ORDER_COL ? cols : rows; }
    int64_t length() const { return order == CUBLASLT_ORDER_COL ? rows : cols; }
    size_t at(int64_t r, int64_t c) const
    {
        return (size_t)(order == CUBLASLT_ORDER_COL ? c * ld + r : r * ld + c);
    }
};
size_t size_of(cudaDataType t)
{
    switch (t) {
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return 1;
    default: fault("cublasLt", 0, "data type %d is not implemented", (int)t);
    }
}
CUEMU_NO_TSAN float load(const void *p, size_t i, cudaDataType t)
{
    switch (t) {
    case CUDA_R_32F: return ((const float *)p)[i];
    case CUDA_R_16BF: return bits<float>((uint32_t)((const uint16_t *)p)[i] << 16);
    case CUDA_R_16F: return __half2float(((const __half *)p)[i]);
    case CUDA_R_8F_E4M3: return float(((const __nv_fp8_e4m3 *)p)[i]);
    default: return float(((const __nv_fp8_e5m2 *)p)[i]);
    }
}
CUEMU_NO_TSAN void store(void *p, size_t i, cudaDataType t, float f)
{
    switch (t) {
    case CUDA_R_32F: ((float *)p)[i] = f; break;
    case CUDA_R_16BF: ((__nv_bfloat16 *)p)[i] = __float2bfloat16(f); break;
    case CUDA_R_16F: ((__half *)p)[i] = __float2half(f); break;
    case CUDA_R_8F_E4M3: ((__nv_fp8_e4m3 *)p)[i] = __nv_fp8_e4m3(f); break;
    default: ((__nv_fp8_e5m2 *)p)[i] = __nv_fp8_e5m2(f);
    }
}
/* Every matrix must lie in one allocation; TSan is told of each line. */
void touch(const void *p, const Layout &l, bool write, const char *what)
{
    size_t es = size_of(l.type);
    if (l.ld < l.length())
        fault("cublasLt", 0, "%s: leading dimension %ld below %ld", what, (long)l.ld, (long)l.length());
    for (int b = 0; b < l.batch; b++) {
        const char *m = (const char *)p + (size_t)(b * l.stride) * es;
        need_device(m, ((size_t)((l.lines() - 1) * l.ld + l.length())) * es, what);
        for (int64_t i = 0; i < l.lines(); i++) {
            char *q = (char *)const_cast<char *>(m) + (size_t)(i * l.ld) * es;
            if (write)
                saw_write(q, (size_t)l.length() * es);
            else
                saw_read(q, (size_t)l.length() * es);
        }
    }
}
/* An algorithm is good for the shapes it was found for and no others. */
uint64_t shape_hash(const Attrs &d, cublasLtMatrixLayout_t const *l)
{
    uint64_t h = 14695981039346656037ull;
    auto mix = [&](int64_t v) { h = (h ^ (uint64_t)v) * 1099511628211ull; };
    for (int k : {CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB, CUBLASLT_MATMUL_DESC_EPILOGUE})
        mix(d.get<int32_t>(k, -1));
    for (int i = 0; i < 4; i++) {
        Layout x(l[i]);
        for (int64_t v : {(int64_t)x.type, (int64_t)x.order, x.rows, x.cols, x.ld, (int64_t)x.batch}) mix(v);
    }
    return h;
}
cublasStatus_t set_attr(void *o, int k, const void *p, size_t n)
{
    ((Attrs *)o)->set(k, p, n);
    return CUBLAS_STATUS_SUCCESS;
}

struct Gemm {
    Layout a, b, c, d;
    bool ta, tb;
    float alpha, beta;
    const void *A, *B, *C;
    void *D;
    const void *bias;
    cudaDataType bias_type;
    const float *sa, *sb;
};
void run(const Gemm &g)
{
    const int64_t m = g.d.rows, n = g.d.cols, k = g.ta ? g.a.rows : g.a.cols;
    touch(g.A, g.a, false, "matmul A");
    touch(g.B, g.b, false, "matmul B");
    if (g.beta != 0) touch(g.C, g.c, false, "matmul C");
    touch(g.D, g.d, true, "matmul D");
    std::vector<float> a((size_t)(m * k)), b((size_t)(k * n)), row((size_t)n);
    float scale = g.alpha * (g.sa ? *g.sa : 1.f) * (g.sb ? *g.sb : 1.f);
    for (int z = 0; z < g.d.batch; z++) {
        const char *A = (const char *)g.A + (size_t)(z * g.a.stride) * size_of(g.a.type);
        const char *B = (const char *)g.B + (size_t)(z * g.b.stride) * size_of(g.b.type);
        const char *C = (const char *)g.C + (size_t)(z * g.c.stride) * size_of(g.c.type);
        char *D = (char *)g.D + (size_t)(z * g.d.stride) * size_of(g.d.type);
        for (int64_t i = 0; i < m; i++)
            for (int64_t l = 0; l < k; l++)
                a[(size_t)(i * k + l)] = load(A, g.ta ? g.a.at(l, i) : g.a.at(i, l), g.a.type);
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++)
                b[(size_t)(l * n + j)] = load(B, g.tb ? g.b.at(j, l) : g.b.at(l, j), g.b.type);
        for (int64_t i = 0; i < m; i++) {
            std::fill(row.begin(), row.end(), 0.f);
            for (int64_t l = 0; l < k; l++) {
                const float x = a[(size_t)(i * k + l)], *bl = &b[(size_t)(l * n)];
                float *r = row.data();
                for (int64_t j = 0; j < n; j++) r[j] += x * bl[j];
            }
            for (int64_t j = 0; j < n; j++) {
                float v = scale * row[(size_t)j];
                if (g.beta != 0) v += g.beta * load(C, g.c.at(i, j), g.c.type);
                if (g.bias) v += load(g.bias, (size_t)i, g.bias_type);
                store(D, g.d.at(i, j), g.d.type, v);
            }
        }
    }
}
} // namespace

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    *h = (cublasLtHandle_t)(void *)new int;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    delete (int *)(void *)h;
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}
const char *cublasLtGetStatusString(cublasStatus_t s)
{
    return s ? "cublasLt error (emulated)" : "success";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t c, cudaDataType_t scale)
{
    if (c != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        fault("cublasLt", 0, "compute type %d with scale type %d is not implemented", (int)c, (int)scale);
    *d = (cublasLtMatmulDesc_t)(void *)new Attrs;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete (Attrs *)(void *)d;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t k,
                                              const void *p, size_t n)
{
    switch (k) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB:
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return set_attr(d, k, p, n);
    default: fault("cublasLt", 0, "matmul attribute %d is not implemented", (int)k);
    }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType t, uint64_t r, uint64_t c,
                                          int64_t ld)
{
    Attrs *a = new Attrs;
    uint32_t t32 = (uint32_t)t;
    a->set(CUBLASLT_MATRIX_LAYOUT_TYPE, &t32, 4);
    a->set(CUBLASLT_MATRIX_LAYOUT_ROWS, &r, 8);
    a->set(CUBLASLT_MATRIX_LAYOUT_COLS, &c, 8);
    a->set(CUBLASLT_MATRIX_LAYOUT_LD, &ld, 8);
    *l = (cublasLtMatrixLayout_t)(void *)a;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete (Attrs *)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t k,
                                                const void *p, size_t n)
{
    if (k > CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
        fault("cublasLt", 0, "layout attribute %d is not implemented", (int)k);
    return set_attr(l, k, p, n);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = (cublasLtMatmulPreference_t)(void *)new Attrs;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete (Attrs *)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t k, const void *v,
                                                    size_t n)
{
    return set_attr(p, k, v, n);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t dd,
                                              cublasLtMatmulPreference_t, int want,
                                              cublasLtMatmulHeuristicResult_t *r, int *got)
{
    *got = 0;
    if (want < 1) return CUBLAS_STATUS_INVALID_VALUE;
    cublasLtMatrixLayout_t l[4] = {a, b, c, dd};
    memset(r, 0, sizeof *r);
    r->algo.data[0] = shape_hash(*(Attrs *)(void *)d, l);
    r->workspaceSize = 4096;
    *got = 1;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t la, const void *B, cublasLtMatrixLayout_t lb,
                              const void *beta, const void *C, cublasLtMatrixLayout_t lc, void *D,
                              cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo, void *ws,
                              size_t ws_size, cudaStream_t s)
{
    const Attrs &d = *(const Attrs *)(void *)desc;
    Gemm g{Layout(la),
           Layout(lb),
           Layout(lc),
           Layout(ld),
           false,
           false,
           *(const float *)alpha,
           *(const float *)beta,
           A,
           B,
           C,
           D,
           nullptr,
           CUDA_R_16BF,
           nullptr,
           nullptr};
    g.ta = d.get<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) != CUBLAS_OP_N;
    g.tb = d.get<int32_t>(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) != CUBLAS_OP_N;
    g.sa = d.get<const float *>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, nullptr);
    g.sb = d.get<const float *>(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, nullptr);
    uint32_t ep = d.get<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    if (ep == CUBLASLT_EPILOGUE_BIAS) {
        g.bias = d.get<const void *>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
        g.bias_type = (cudaDataType)d.get<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)g.d.type);
    } else if (ep != CUBLASLT_EPILOGUE_DEFAULT)
        fault("cublasLt", 0, "epilogue %u is not implemented", ep);
    int64_t m = g.ta ? g.a.cols : g.a.rows, k = g.ta ? g.a.rows : g.a.cols, k2 = g.tb ? g.b.cols : g.b.rows,
            n = g.tb ? g.b.rows : g.b.cols;
    if (k != k2 || m != g.d.rows || n != g.d.cols || g.c.rows != m || g.c.cols != n)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (g.a.batch != g.d.batch || g.b.batch != g.d.batch || g.c.batch != g.d.batch)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algo) {
        cublasLtMatrixLayout_t l[4] = {la, lb, lc, ld};
        if (algo->data[0] != shape_hash(d, l)) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (ws_size < 4096) return CUBLAS_STATUS_INVALID_VALUE;
        need_device(ws, ws_size, "matmul workspace");
    }
    submit(s, "cublasLtMatmul", [=] {
        if (algo) saw_write(ws, 4096);
        run(g);
        return true;
    });
    return CUBLAS_STATUS_SUCCESS;
}
} /* extern "C" */
