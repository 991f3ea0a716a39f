/* A stand-in for cuDNN's graph API as attention uses it: the graph is computed operation by operation, on the host, as a stream
 * operation, so that what the graph says is what is tested. What it does not implement is a fault, never a silent default. */
#include "cuemu.h"
#include "internal.h"
#include <cudnn_graph.h>

#include <cmath>
#include <map>
#include <memory>
#include <vector>

using namespace cuemu;

namespace
{
struct Desc {
    cudnnBackendDescriptorType_t type;
    std::map<int, std::vector<unsigned char>> v;
    bool final = false;
    template <class T> std::vector<T> all(int k) const
    {
        auto it = v.find(k);
        if (it == v.end()) return {};
        std::vector<T> t(it->second.size() / sizeof(T));
        memcpy(t.data(), it->second.data(), t.size() * sizeof(T));
        return t;
    }
    template <class T> T get(int k, T dflt) const
    {
        auto it = v.find(k);
        if (it == v.end() || it->second.size() < sizeof(T)) return dflt;
        memcpy(&dflt, it->second.data(), sizeof dflt);
        return dflt;
    }
    const Desc *ref(int k) const { return (const Desc *)get<void *>(k, nullptr); }
};
size_t size_of(cudnnBackendAttributeType_t t)
{
    switch (t) {
    case CUDNN_TYPE_INT64: return 8;
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR: return sizeof(void *);
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE: return sizeof(int);
    default: fault("cudnn", 0, "attributes of type %d are not implemented", (int)t);
    }
}
float to_bf16(float f)
{
    return __bfloat162float(__float2bfloat16(f));
}

struct Tensor {
    int64_t dim[4], stride[4], name;
    cudnnDataType_t type;
    bool between, number;
    const Desc *ragged;
    explicit Tensor(const Desc *d)
    {
        auto n = d->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), s = d->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
        if (n.size() != 4 || s.size() != 4) fault("cudnn", 0, "a tensor has four dimensions here");
        for (int i = 0; i < 4; i++) dim[i] = n[(size_t)i], stride[i] = s[(size_t)i];
        name = d->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
        type = (cudnnDataType_t)d->get<int>(CUDNN_ATTR_TENSOR_DATA_TYPE, -1);
        between = d->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
        number = d->get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
        ragged = d->ref(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC);
    }
    size_t count() const { return (size_t)(dim[0] * dim[1] * dim[2] * dim[3]); }
    size_t at(int64_t b, int64_t h, int64_t i, int64_t j) const
    {
        return (size_t)(((b * dim[1] + h) * dim[2] + i) * dim[3] + j);
    }
};
typedef std::vector<float> Values;

/* One run of a plan. */
struct Run {
    std::map<int64_t, void *> memory;
    std::map<const Desc *, Values> value;

    void *address(const Tensor &t)
    {
        auto it = memory.find(t.name);
        if (it == memory.end() || !it->second) fault("cudnn", 0, "tensor %d has no memory", (int)t.name);
        return it->second;
    }
    /* f(index, address of the element) for what a document has. */
    template <class F> void each(const Tensor &t, F f)
    {
        char *base = (char *)address(t);
        const size_t el = t.type == CUDNN_DATA_BFLOAT16 ? 2 : 4;
        const int tokens = t.dim[3] > 1 && t.stride[3] > t.stride[2] ? 3 : 2; /* the dimension of tokens */
        const int32_t *begin = t.ragged ? (const int32_t *)address(Tensor(t.ragged)) : nullptr;
        if (begin) saw_read(begin, (size_t)(t.dim[0] + 1) * 4);
        for (int64_t b = 0; b < t.dim[0]; b++)
            for (int64_t h = 0; h < t.dim[1]; h++)
                for (int64_t i = 0; i < t.dim[2]; i++)
                    for (int64_t j = 0; j < t.dim[3]; j++) {
                        const int64_t token = tokens == 2 ? i : j;
                        if (begin && token * t.stride[tokens] >= begin[b + 1] - begin[b]) continue;
                        const int64_t off = (begin ? begin[b] : b * t.stride[0]) + h * t.stride[1] + i * t.stride[2] +
                                            j * t.stride[3];
                        f(t.at(b, h, i, j), base + off * (int64_t)el, el);
                    }
    }
    const Values &load(const Desc *d)
    {
        auto it = value.find(d);
        if (it != value.end()) return it->second;
        const Tensor t(d);
        if (t.between) fault("cudnn", 0, "an operation reads what none has written");
        Values &v = value[d];
        v.assign(t.count(), NAN);
        if (t.number) {
            v[0] = *(const float *)address(t);
            return v;
        }
        each(t, [&](size_t i, const char *p, size_t el) {
            saw_read(p, el);
            if (t.type == CUDNN_DATA_BFLOAT16)
                v[i] = bits<float>((uint32_t) * (const uint16_t *)(const void *)p << 16);
            else if (t.type == CUDNN_DATA_FLOAT)
                v[i] = *(const float *)(const void *)p;
            else
                v[i] = (float)*(const int32_t *)(const void *)p;
        });
        return v;
    }
    void store(const Desc *d, Values v)
    {
        const Tensor t(d);
        if (v.size() != t.count()) fault("cudnn", 0, "%zu values for a tensor of %zu", v.size(), t.count());
        if (t.type == CUDNN_DATA_BFLOAT16)
            for (auto &x : v) x = to_bf16(x);
        if (!t.between)
            each(t, [&](size_t i, char *p, size_t el) {
                saw_write(p, el);
                if (t.type == CUDNN_DATA_BFLOAT16)
                    *(uint16_t *)(void *)p = (uint16_t)(bits<uint32_t>(v[i]) >> 16);
                else
                    *(float *)(void *)p = v[i];
            });
        value[d] = std::move(v);
    }

    void matmul(const Desc *op)
    {
        const Desc *da = op->ref(CUDNN_ATTR_OPERATION_MATMUL_ADESC), *db = op->ref(CUDNN_ATTR_OPERATION_MATMUL_BDESC),
                   *dc = op->ref(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
        const Desc *most[3] = {op->ref(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC),
                               op->ref(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC),
                               op->ref(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC)};
        const Tensor a(da), b(db), c(dc);
        const Values &x = load(da), &y = load(db);
        Values z(c.count(), NAN);
        if (a.dim[3] != b.dim[2] || a.dim[2] != c.dim[2] || b.dim[3] != c.dim[3] || a.dim[1] % b.dim[1])
            fault("cudnn", 0, "a product of [%d %d] and [%d %d]", (int)a.dim[2], (int)a.dim[3], (int)b.dim[2],
                  (int)b.dim[3]);
        for (int64_t d = 0; d < c.dim[0]; d++) {
            int64_t n[3] = {c.dim[2], c.dim[3], a.dim[3]};
            for (int i = 0; i < 3; i++)
                if (most[i]) n[i] = (int64_t)load(most[i])[(size_t)d];
            for (int64_t h = 0; h < c.dim[1]; h++)
                for (int64_t i = 0; i < n[0]; i++)
                    for (int64_t j = 0; j < n[1]; j++) {
                        float sum = 0;
                        for (int64_t k = 0; k < n[2]; k++)
                            sum += x[a.at(d, h, i, k)] * y[b.at(d, h / (a.dim[1] / b.dim[1]), k, j)];
                        z[c.at(d, h, i, j)] = sum;
                    }
        }
        store(dc, std::move(z));
    }
    /* Dimensions of 1 count for all. */
    static size_t spread(const Tensor &t, const int64_t (&i)[4])
    {
        int64_t k[4];
        for (int a = 0; a < 4; a++) k[a] = t.dim[a] == 1 ? 0 : i[a];
        return t.at(k[0], k[1], k[2], k[3]);
    }
    static float apply(cudnnPointwiseMode_t mode, float x, float b, float t)
    {
        switch (mode) {
        case CUDNN_POINTWISE_ADD: return x + b;
        case CUDNN_POINTWISE_SUB: return x - b;
        case CUDNN_POINTWISE_MUL: return x * b;
        case CUDNN_POINTWISE_DIV: return x / b;
        case CUDNN_POINTWISE_EXP: return expf(x);
        case CUDNN_POINTWISE_LOG: return logf(x);
        case CUDNN_POINTWISE_CMP_LT: return x < b;
        case CUDNN_POINTWISE_CMP_GE: return x >= b;
        case CUDNN_POINTWISE_LOGICAL_AND: return x != 0 && b != 0;
        case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
        default: fault("cudnn", 0, "pointwise mode %d is not implemented", (int)mode);
        }
    }
    void pointwise(const Desc *op)
    {
        const Desc *how = op->ref(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
                   *dx = op->ref(CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                   *db = op->ref(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
                   *dt = op->ref(CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
                   *dy = op->ref(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
        const auto mode = (cudnnPointwiseMode_t)how->get<int>(CUDNN_ATTR_POINTWISE_MODE, -1);
        const int64_t axis = how->get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, 0);
        const Tensor x(dx), y(dy), b(db ? db : dx), t(dt ? dt : dx);
        const Values &vx = load(dx), &vb = load(db ? db : dx), &vt = load(dt ? dt : dx);
        Values z(y.count());
        int64_t i[4];
        for (i[0] = 0; i[0] < y.dim[0]; i[0]++)
            for (i[1] = 0; i[1] < y.dim[1]; i[1]++)
                for (i[2] = 0; i[2] < y.dim[2]; i[2]++)
                    for (i[3] = 0; i[3] < y.dim[3]; i[3]++)
                        z[y.at(i[0], i[1], i[2], i[3])] =
                            mode == CUDNN_POINTWISE_GEN_INDEX
                                ? (float)i[axis]
                                : apply(mode, vx[spread(x, i)], vb[spread(b, i)], vt[spread(t, i)]);
        store(dy, std::move(z));
    }
    void reduce(const Desc *op)
    {
        const Desc *how = op->ref(CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                   *dx = op->ref(CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
                   *dy = op->ref(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
        const int mode = how->get<int>(CUDNN_ATTR_REDUCTION_OPERATOR, -1);
        if (mode != CUDNN_REDUCE_TENSOR_ADD && mode != CUDNN_REDUCE_TENSOR_MAX)
            fault("cudnn", 0, "reduction %d is not implemented", mode);
        const Tensor x(dx), y(dy);
        const Values &v = load(dx);
        Values z(y.count(), mode == CUDNN_REDUCE_TENSOR_ADD ? 0.f : -INFINITY);
        int64_t i[4], k[4];
        for (i[0] = 0; i[0] < x.dim[0]; i[0]++)
            for (i[1] = 0; i[1] < x.dim[1]; i[1]++)
                for (i[2] = 0; i[2] < x.dim[2]; i[2]++)
                    for (i[3] = 0; i[3] < x.dim[3]; i[3]++) {
                        for (int a = 0; a < 4; a++) k[a] = i[a] / (x.dim[a] / y.dim[a]);
                        float &s = z[y.at(k[0], k[1], k[2], k[3])], e = v[x.at(i[0], i[1], i[2], i[3])];
                        s = mode == CUDNN_REDUCE_TENSOR_ADD ? s + e : s > e ? s : e;
                    }
        store(dy, std::move(z));
    }
    /* Other dimensions over the same memory: here, a transposition. */
    void reshape(const Desc *op)
    {
        const Desc *dx = op->ref(CUDNN_ATTR_OPERATION_RESHAPE_XDESC), *dy = op->ref(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
        const Tensor x(dx), y(dy);
        const Values &v = load(dx);
        Values z(y.count());
        if (x.dim[2] != y.dim[3] || x.dim[3] != y.dim[2] || x.stride[2] != y.stride[3] || x.stride[3] != y.stride[2] ||
            x.stride[1] != y.stride[1])
            fault("cudnn", 0, "a reshape that is no transposition is not implemented");
        for (int64_t b = 0; b < y.dim[0]; b++)
            for (int64_t h = 0; h < y.dim[1]; h++)
                for (int64_t i = 0; i < y.dim[2]; i++)
                    for (int64_t j = 0; j < y.dim[3]; j++) z[y.at(b, h, i, j)] = v[x.at(b, h, j, i)];
        store(dy, std::move(z));
    }
    void operation(const Desc *op)
    {
        switch ((int)op->type) {
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return matmul(op);
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return pointwise(op);
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduce(op);
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return reshape(op);
        default: fault("cudnn", 0, "operation %d is not implemented", (int)op->type);
        }
    }
};

struct Handle {
    cudaStream_t stream = nullptr;
};
const Desc *graph_of(const Desc *plan)
{
    return plan->ref(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->ref(CUDNN_ATTR_ENGINECFG_ENGINE);
}
/* As the library's: little forward; backward, room for every pair. */
int64_t workspace_of(const Desc *graph)
{
    int64_t bytes = 512;
    for (void *o : graph->all<void *>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        const Desc *op = (const Desc *)o;
        if (op->type != CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) continue;
        bytes += 2 * (int64_t)Tensor(op->ref(CUDNN_ATTR_OPERATION_RESHAPE_YDESC)).count();
    }
    return bytes;
}
void put(void *to, int64_t *n, int64_t value)
{
    *n = 1;
    memcpy(to, &value, sizeof value);
}
} // namespace

extern "C" {
cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
    *h = (cudnnHandle_t)(void *)new Handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    delete (Handle *)(void *)h;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
    ((Handle *)(void *)h)->stream = s;
    return CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}
const char *cudnnGetErrorString(cudnnStatus_t)
{
    return "cuDNN error (emulated)";
}
void cudnnGetLastErrorString(char *to, size_t n)
{
    if (n) *to = 0;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t t, cudnnBackendDescriptor_t *d)
{
    Desc *x = new Desc;
    x->type = t;
    *d = (cudnnBackendDescriptor_t)(void *)x;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    delete (Desc *)(void *)d;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *from)
{
    Desc *x = (Desc *)(void *)d;
    if (x->final) fault("cudnn", 0, "attribute %d of a finished descriptor is set", (int)name);
    x->v[name].assign((const unsigned char *)from, (const unsigned char *)from + (size_t)n * size_of(type));
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    Desc *x = (Desc *)(void *)d;
    if (x->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) (void)Tensor(x);
    if (x->final) return CUDNN_STATUS_BAD_PARAM;
    x->final = true;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *n, void *to)
{
    const Desc *x = (const Desc *)(const void *)d;
    if (!x->final) fault("cudnn", 0, "attribute %d of an unfinished descriptor is asked for", (int)name);
    switch ((int)name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
        if (most < 1 || type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return CUDNN_STATUS_BAD_PARAM;
        void *graph = (void *)x->ref(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        Desc *config = *(Desc **)to;
        config->v[CUDNN_ATTR_ENGINECFG_ENGINE].assign((unsigned char *)&graph, (unsigned char *)(&graph + 1));
        config->final = true;
        *n = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: put(to, n, workspace_of(graph_of(x))); return CUDNN_STATUS_SUCCESS;
    default: fault("cudnn", 0, "attribute %d cannot be asked for here", (int)name);
    }
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan_, cudnnBackendDescriptor_t pack_)
{
    const Desc *graph = graph_of((const Desc *)(void *)plan_), *pack = (const Desc *)(void *)pack_;
    auto run = std::make_shared<Run>();
    auto names = pack->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    auto places = pack->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    if (names.size() != places.size()) return CUDNN_STATUS_BAD_PARAM;
    for (size_t i = 0; i < names.size(); i++) run->memory[names[i]] = places[i];
    void *workspace = pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
    const size_t bytes = (size_t)workspace_of(graph);
    auto ops = graph->all<void *>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    need_device(workspace, bytes, "cuDNN's workspace");
    submit(((Handle *)(void *)h)->stream, "cudnnBackendExecute", [=] {
        saw_write(workspace, bytes);
        poison(workspace, bytes);
        for (void *op : ops) run->operation((const Desc *)op);
        run->value.clear();
        return true;
    });
    return CUDNN_STATUS_SUCCESS;
}
}
