#include "dnn_sdpa.h"

#define F32 CUDNN_DATA_FLOAT
#define BF16 CUDNN_DATA_BFLOAT16
#define I32 CUDNN_DATA_INT32
#define YES_NO CUDNN_DATA_BOOLEAN

/* What both directions have in common. */
struct build {
    struct mt_dnn_graph *g;
    const struct mt_dnn_shape *s;
    mt_dnn length, keys, scale, never;
};

static struct mt_dnn_dims dims(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct mt_dnn_dims){{a, b, c, d}};
}
static mt_dnn begin_of(const struct build *b, int64_t name)
{
    return mt_dnn_vector(b->g, MT_DNN_BEGIN + name, I32, b->s->documents + 1);
}
/* [documents][heads][rows][width] of a tensor of the op. */
static mt_dnn rows_of(const struct build *b, int64_t name, int64_t heads, int64_t width,
                      struct mt_dnn_place p)
{
    const struct mt_dnn_shape *s = b->s;
    return mt_dnn_tensor(b->g, name, BF16, dims(s->documents, heads, s->rows, width),
                         dims(s->rows * p.token, p.head, p.token, 1), begin_of(b, name));
}
/* The same, turned: [documents][heads][width][rows]. */
static mt_dnn columns_of(const struct build *b, int64_t name, int64_t heads, int64_t width,
                         struct mt_dnn_place p)
{
    const struct mt_dnn_shape *s = b->s;
    return mt_dnn_tensor(b->g, name, BF16, dims(s->documents, heads, width, s->rows),
                         dims(s->rows * p.token, p.head, 1, p.token), begin_of(b, name));
}
static mt_dnn lse_of(const struct build *b)
{
    const struct mt_dnn_shape *s = b->s;
    return mt_dnn_tensor(b->g, MT_DNN_LSE, F32, dims(s->documents, s->heads, s->rows, 1),
                         dims(s->rows, s->lse_head, 1, 1), begin_of(b, MT_DNN_LSE));
}
/* A score of each pair; a number of each query. */
static mt_dnn pairs(const struct build *b, cudnnDataType_t type)
{
    return mt_dnn_between(b->g, type, dims(b->s->documents, b->s->heads, b->s->rows, b->s->rows));
}
static mt_dnn queries(const struct build *b)
{
    return mt_dnn_between(b->g, F32, dims(b->s->documents, b->s->heads, b->s->rows, 1));
}

static mt_dnn both(const struct build *b, cudnnPointwiseMode_t mode, mt_dnn x, mt_dnn y, cudnnDataType_t type)
{
    mt_dnn z = pairs(b, type);
    mt_dnn_pointwise(b->g, mode, x, y, NULL, z);
    return z;
}
static mt_dnn index_of(const struct build *b, int64_t axis, mt_dnn x)
{
    mt_dnn i = pairs(b, I32);
    mt_dnn_index(b->g, axis, x, i);
    return i;
}
static mt_dnn keep(const struct build *b, mt_dnn x, mt_dnn where)
{
    mt_dnn y = pairs(b, F32);
    mt_dnn_pointwise(b->g, CUDNN_POINTWISE_BINARY_SELECT, x, b->never, where, y);
    return y;
}
/* Scores times the scale; pairs behind a document's end, and keys behind their query, hidden. */
static mt_dnn scores(const struct build *b, mt_dnn q, mt_dnn k)
{
    mt_dnn raw = pairs(b, F32);
    mt_dnn_matmul(b->g, q, k, raw, b->length, b->keys, NULL);
    mt_dnn x = both(b, CUDNN_POINTWISE_MUL, raw, b->scale, F32);
    mt_dnn row = index_of(b, 2, x), column = index_of(b, 3, x);
    mt_dnn rows = both(b, CUDNN_POINTWISE_CMP_LT, row, b->length, YES_NO);
    mt_dnn columns = both(b, CUDNN_POINTWISE_CMP_LT, column, b->keys, YES_NO);
    x = keep(b, x, both(b, CUDNN_POINTWISE_LOGICAL_AND, rows, columns, YES_NO));
    row = index_of(b, 2, x), column = index_of(b, 3, x);
    return keep(b, x, both(b, CUDNN_POINTWISE_CMP_GE, row, column, YES_NO));
}

static void forward(const struct build *b)
{
    const struct mt_dnn_shape *s = b->s;
    struct mt_dnn_graph *g = b->g;
    mt_dnn q = rows_of(b, MT_DNN_Q, s->heads, s->width, s->q),
           k = columns_of(b, MT_DNN_K, s->groups, s->width, s->k),
           v = rows_of(b, MT_DNN_V, s->groups, s->value, s->v),
           o = rows_of(b, MT_DNN_O, s->heads, s->value, s->o), lse = lse_of(b);
    mt_dnn x = scores(b, q, k), top = queries(b), sum = queries(b), log = queries(b), p = pairs(b, BF16);
    mt_dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, x, top);
    mt_dnn low = both(b, CUDNN_POINTWISE_SUB, x, top, F32), part = pairs(b, F32);
    mt_dnn_pointwise(g, CUDNN_POINTWISE_EXP, low, NULL, NULL, part);
    mt_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, part, sum);
    mt_dnn_pointwise(g, CUDNN_POINTWISE_LOG, sum, NULL, NULL, log);
    mt_dnn_pointwise(g, CUDNN_POINTWISE_ADD, top, log, NULL, lse);
    mt_dnn_pointwise(g, CUDNN_POINTWISE_DIV, part, sum, NULL, p);
    mt_dnn_matmul(g, p, v, o, b->length, NULL, b->keys);
}

/* y[.., j, i] = x[.., i, j] of pairs. */
static mt_dnn turned(const struct build *b, mt_dnn x)
{
    const struct mt_dnn_shape *s = b->s;
    mt_dnn y = mt_dnn_strided(b->g, BF16, dims(s->documents, s->heads, s->rows, s->rows),
                              dims(s->heads * s->rows * s->rows, s->rows * s->rows, 1, s->rows));
    mt_dnn_reshape(b->g, x, y);
    return y;
}
/* Gradients of keys or values: sums over the heads of a group. */
static void to_group(const struct build *b, mt_dnn x, mt_dnn y, int64_t width, mt_dnn to)
{
    const struct mt_dnn_shape *s = b->s;
    if (s->heads == s->groups) {
        mt_dnn_matmul(b->g, x, y, to, b->keys, NULL, b->length);
        return;
    }
    mt_dnn each = mt_dnn_between(b->g, BF16, dims(s->documents, s->heads, s->rows, width));
    mt_dnn_matmul(b->g, x, y, each, b->keys, NULL, b->length);
    mt_dnn_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD, each, to);
}
/* With nothing but inputs and outputs in memory the engine sums gradients of queries in an order of its own, always the same. */
static void backward(const struct build *b)
{
    const struct mt_dnn_shape *s = b->s;
    struct mt_dnn_graph *g = b->g;
    mt_dnn q = rows_of(b, MT_DNN_Q, s->heads, s->width, s->q),
           kt = columns_of(b, MT_DNN_K, s->groups, s->width, s->k),
           vt = columns_of(b, MT_DNN_V, s->groups, s->value, s->v),
           o = rows_of(b, MT_DNN_O, s->heads, s->value, s->o),
           dout = rows_of(b, MT_DNN_DOUT, s->heads, s->value, s->dout), lse = lse_of(b);
    mt_dnn product = mt_dnn_between(g, F32, dims(s->documents, s->heads, s->rows, s->value)),
           delta = queries(b);
    mt_dnn_pointwise(g, CUDNN_POINTWISE_MUL, dout, o, NULL, product);
    mt_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, delta);
    mt_dnn x = both(b, CUDNN_POINTWISE_SUB, scores(b, q, kt), lse, F32), p = pairs(b, F32);
    mt_dnn_pointwise(g, CUDNN_POINTWISE_EXP, x, NULL, NULL, p);
    to_group(b, turned(b, p), dout, s->value, rows_of(b, MT_DNN_DV, s->groups, s->value, s->dv));
    mt_dnn dp = pairs(b, F32);
    mt_dnn_matmul(g, dout, vt, dp, b->length, b->keys, NULL);
    mt_dnn ds = both(b, CUDNN_POINTWISE_SUB, dp, delta, F32);
    ds = both(b, CUDNN_POINTWISE_MUL, ds, p, F32);
    ds = both(b, CUDNN_POINTWISE_MUL, ds, b->scale, BF16);
    mt_dnn k = mt_dnn_strided(g, BF16, dims(s->documents, s->groups, s->rows, s->width),
                              dims(s->rows * s->k.token, s->k.head, s->k.token, 1));
    mt_dnn_reshape(g, kt, k);
    mt_dnn_matmul(g, ds, k, rows_of(b, MT_DNN_DQ, s->heads, s->width, s->dq), b->length, NULL, b->keys);
    to_group(b, turned(b, ds), q, s->width, rows_of(b, MT_DNN_DK, s->groups, s->width, s->dk));
}

mt_status mt_dnn_sdpa(struct mt_dnn_graph *g, const struct mt_dnn_shape *s, cudnnHandle_t handle, mt_err *e)
{
    const struct build b = {.g = g,
                            .s = s,
                            .length = mt_dnn_vector(g, MT_DNN_LENGTH, I32, s->documents),
                            .keys = mt_dnn_vector(g, MT_DNN_LENGTH_KEYS, I32, s->documents),
                            .scale = mt_dnn_number(g, MT_DNN_SCALE),
                            .never = mt_dnn_number(g, MT_DNN_NEVER)};
    s->backward ? backward(&b) : forward(&b);
    return mt_dnn_graph_end(g, handle, e);
}
