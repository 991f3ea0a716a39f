#include "dnn_graph.h"

#include <string.h>

/* ---- descriptors ---- */
static bool fine(struct mt_dnn_graph *g, cudnnStatus_t status, const char *what)
{
    char why[256] = "";
    if (g->err.code) return false;
    if (!status) return true;
    g->f->cudnnGetLastErrorString(why, sizeof why);
    mt_err_set(&g->err, MT_DEVICE, "cuDNN: %s: %s%s%s", what, g->f->cudnnGetErrorString(status),
               why[0] ? ": " : "", why);
    return false;
}
static mt_dnn make(struct mt_dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    mt_dnn d = NULL;
    if (g->err.code) return NULL;
    MT_ASSERT(g->n_made < MT_DNN_MADE);
    if (!fine(g, g->f->cudnnBackendCreateDescriptor(type, &d), "making a descriptor")) return NULL;
    return g->made[g->n_made++] = d;
}
static void set(struct mt_dnn_graph *g, mt_dnn d, cudnnBackendAttributeName_t what,
                cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (!g->err.code)
        fine(g, g->f->cudnnBackendSetAttribute(d, what, type, n, value), "setting an attribute");
}
static void set_one(struct mt_dnn_graph *g, mt_dnn d, cudnnBackendAttributeName_t what, mt_dnn value)
{
    if (value) set(g, d, what, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static void set_int(struct mt_dnn_graph *g, mt_dnn d, cudnnBackendAttributeName_t what, int64_t value)
{
    set(g, d, what, CUDNN_TYPE_INT64, 1, &value);
}
static void set_type(struct mt_dnn_graph *g, mt_dnn d, cudnnBackendAttributeName_t what, cudnnDataType_t type)
{
    set(g, d, what, CUDNN_TYPE_DATA_TYPE, 1, &type);
}
static mt_dnn end(struct mt_dnn_graph *g, mt_dnn d, const char *what)
{
    if (!g->err.code) fine(g, g->f->cudnnBackendFinalize(d), what);
    return g->err.code ? NULL : d;
}

void mt_dnn_graph_init(struct mt_dnn_graph *g, const struct mt_dnn_table *f)
{
    memset(g, 0, sizeof *g);
    g->f = f;
}
/* The last made refer to the first. */
void mt_dnn_graph_close(struct mt_dnn_graph *g)
{
    for (int i = g->n_made; i-- > 0;) g->f->cudnnBackendDestroyDescriptor(g->made[i]);
    g->n_made = g->n_ops = 0;
}

/* ---- tensors ---- */
enum kind { MEMORY, BETWEEN, NUMBER };
static mt_dnn tensor(struct mt_dnn_graph *g, enum kind kind, int64_t name, cudnnDataType_t type,
                     struct mt_dnn_dims d, struct mt_dnn_dims stride, mt_dnn ragged)
{
    const bool yes = true;
    mt_dnn t = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_type(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d.of);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride.of);
    set_int(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
    set_int(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
    if (kind == BETWEEN) set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == NUMBER) set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    set_one(g, t, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, ragged);
    return end(g, t, "a tensor");
}
static struct mt_dnn_dims dense(struct mt_dnn_dims d)
{
    return (struct mt_dnn_dims){{d.of[1] * d.of[2] * d.of[3], d.of[2] * d.of[3], d.of[3], 1}};
}
mt_dnn mt_dnn_tensor(struct mt_dnn_graph *g, int64_t name, cudnnDataType_t type, struct mt_dnn_dims d,
                     struct mt_dnn_dims stride, mt_dnn ragged)
{
    return tensor(g, MEMORY, name, type, d, stride, ragged);
}
mt_dnn mt_dnn_vector(struct mt_dnn_graph *g, int64_t name, cudnnDataType_t type, int64_t n)
{
    const struct mt_dnn_dims d = {{n, 1, 1, 1}};
    return tensor(g, MEMORY, name, type, d, dense(d), NULL);
}
mt_dnn mt_dnn_number(struct mt_dnn_graph *g, int64_t name)
{
    const struct mt_dnn_dims d = {{1, 1, 1, 1}};
    return tensor(g, NUMBER, name, CUDNN_DATA_FLOAT, d, dense(d), NULL);
}
mt_dnn mt_dnn_strided(struct mt_dnn_graph *g, cudnnDataType_t type, struct mt_dnn_dims d,
                      struct mt_dnn_dims stride)
{
    enum { FIRST_UNNAMED = 1000 };
    return tensor(g, BETWEEN, FIRST_UNNAMED + g->unnamed++, type, d, stride, NULL);
}
mt_dnn mt_dnn_between(struct mt_dnn_graph *g, cudnnDataType_t type, struct mt_dnn_dims d)
{
    return mt_dnn_strided(g, type, d, dense(d));
}

/* ---- operations ---- */
static void add(struct mt_dnn_graph *g, mt_dnn op, const char *what)
{
    if (!end(g, op, what)) return;
    MT_ASSERT(g->n_ops < MT_DNN_OPS);
    g->op[g->n_ops++] = op;
}
void mt_dnn_matmul(struct mt_dnn_graph *g, mt_dnn a, mt_dnn b, mt_dnn c, mt_dnn m, mt_dnn n, mt_dnn k)
{
    mt_dnn how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    how = end(g, how, "a product");
    mt_dnn op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_one(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_one(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_one(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_one(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_one(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m);
    set_one(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n);
    set_one(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k);
    add(g, op, "a product");
}
static void pointwise(struct mt_dnn_graph *g, cudnnPointwiseMode_t mode, int64_t axis, mt_dnn x, mt_dnn b,
                      mt_dnn t, mt_dnn y)
{
    mt_dnn how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (axis >= 0) set_int(g, how, CUDNN_ATTR_POINTWISE_AXIS, axis);
    how = end(g, how, "a pointwise operation");
    mt_dnn op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_one(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_one(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_one(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_one(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_one(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(g, op, "a pointwise operation");
}
void mt_dnn_pointwise(struct mt_dnn_graph *g, cudnnPointwiseMode_t mode, mt_dnn x, mt_dnn b, mt_dnn t,
                      mt_dnn y)
{
    pointwise(g, mode, -1, x, b, t, y);
}
void mt_dnn_index(struct mt_dnn_graph *g, int64_t axis, mt_dnn x, mt_dnn y)
{
    pointwise(g, CUDNN_POINTWISE_GEN_INDEX, axis, x, NULL, NULL, y);
}
void mt_dnn_reduce(struct mt_dnn_graph *g, cudnnReduceTensorOp_t how, mt_dnn x, mt_dnn y)
{
    mt_dnn d = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    set_type(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    d = end(g, d, "a reduction");
    mt_dnn op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_one(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    set_one(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_one(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add(g, op, "a reduction");
}
void mt_dnn_reshape(struct mt_dnn_graph *g, mt_dnn x, mt_dnn y)
{
    mt_dnn op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_one(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_one(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(g, op, "a reshape");
}

/* ---- the whole ---- */
static mt_status sum_up(const struct mt_dnn_graph *g, mt_err *e)
{
    MT_REQUIRE(!g->err.code, e, g->err.code, "%s", g->err.msg);
    return MT_OK;
}
mt_status mt_dnn_graph_end(struct mt_dnn_graph *g, cudnnHandle_t h, mt_err *e)
{
    mt_dnn d = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->op);
    if (h) set(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
    g->graph = end(g, d, "a graph");
    return sum_up(g, e);
}

static mt_dnn described(struct mt_dnn_graph *g, const char *json)
{
    mt_dnn d = make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json);
    return end(g, d, "a device's description");
}
/* Engines in the order in which cuDNN would try them. */
enum { ENGINES = 8 };
static int engines(struct mt_dnn_graph *g, mt_dnn device, mt_dnn config[ENGINES])
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t found = 0;
    mt_dnn ask = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_one(g, ask, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph);
    set(g, ask, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_one(g, ask, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    end(g, ask, "a search for engines");
    for (int i = 0; i < ENGINES; i++) config[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!g->err.code)
        fine(g,
             g->f->cudnnBackendGetAttribute(ask, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                            ENGINES, &found, config),
             "no engine takes the graph");
    return g->err.code ? 0 : (int)found;
}
/* An engine may be offered and then not take it: the first one's reason is kept. */
mt_status mt_dnn_graph_plan(struct mt_dnn_graph *g, cudnnHandle_t h, struct mt_dnn_plan *p, mt_err *e)
{
    mt_dnn config[ENGINES];
    mt_err first = {0};
    int64_t n = 0;
    int found = engines(g, NULL, config);
    *p = (struct mt_dnn_plan){.plan = NULL};
    MT_TRY(sum_up(g, e));
    for (int i = 0; i < found && !p->plan; i++) {
        mt_dnn d = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set(g, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
        set_one(g, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config[i]);
        p->plan = end(g, d, "no engine takes the graph");
        if (!first.code) first = g->err;
        g->err = (mt_err){0};
    }
    MT_REQUIRE(p->plan, e, MT_DEVICE, "%s", found ? first.msg : "cuDNN: no engine takes the graph");
    fine(g,
         g->f->cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                        1, &n, &p->workspace),
         "a plan's workspace");
    return sum_up(g, e);
}
mt_status mt_dnn_graph_support(struct mt_dnn_graph *g, const char *device_json, int64_t *workspace, mt_err *e)
{
    mt_dnn config[ENGINES];
    int64_t n = 0;
    int found = engines(g, described(g, device_json), config);
    *workspace = 0;
    MT_TRY(sum_up(g, e));
    MT_REQUIRE(found, e, MT_DEVICE, "cuDNN: no engine takes the graph");
    fine(g,
         g->f->cudnnBackendGetAttribute(config[0], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                        &n, workspace),
         "an engine's workspace");
    return sum_up(g, e);
}

mt_status mt_dnn_graph_pack(struct mt_dnn_graph *g, int n, const int64_t *name, void *const *memory,
                            void *workspace, mt_dnn *pack, mt_err *e)
{
    mt_dnn d = make(g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, name);
    set(g, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, memory);
    set(g, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    *pack = end(g, d, "a plan's arguments");
    return sum_up(g, e);
}
