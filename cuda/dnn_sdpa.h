/* dnn_sdpa.h: causal attention inside documents as a graph of cuDNN's, forward and backward. Needs neither a GPU nor the CUDA
 * runtime to be built and asked about. */
#ifndef MT_CUDA_DNN_SDPA_H
#define MT_CUDA_DNN_SDPA_H
#include "dnn_graph.h"

/* Documents of at most `rows` tokens each lie one behind the other; there is room for `documents` of them, and what is not there has
 * length 0. Strides in elements: from token to token, from head to head. bf16; lse in f32, [head][token]. */
struct mt_dnn_place {
    int64_t token, head;
};
struct mt_dnn_shape {
    int64_t documents, rows, heads, groups, width, value; /* H, G, A, B of the ops */
    struct mt_dnn_place q, k, v, o, dout, dq, dk, dv;
    int64_t lse_head; /* elements from head to head */
    int64_t backward; /* 1 or 0 */
};
/* Names of what is in memory. BEGIN: of each document, and behind the last, times the stride of a tensor; LENGTH: of each. */
enum mt_dnn_name {
    MT_DNN_Q = 1,
    MT_DNN_K,
    MT_DNN_V,
    MT_DNN_O,
    MT_DNN_LSE,
    MT_DNN_DOUT,
    MT_DNN_DQ,
    MT_DNN_DK,
    MT_DNN_DV,
    MT_DNN_SCALE,
    MT_DNN_NEVER, /* what hidden scores become */
    MT_DNN_LENGTH,
    MT_DNN_LENGTH_KEYS,
    MT_DNN_BEGIN, /* of the tensor with name t: MT_DNN_BEGIN + t */
    MT_DNN_NAMES = MT_DNN_BEGIN + MT_DNN_DV + 1
};
/* Puts it together in g, up to mt_dnn_graph_end (handle: NULL without a GPU). DEVICE. */
MT_MUST_USE mt_status mt_dnn_sdpa(struct mt_dnn_graph *g, const struct mt_dnn_shape *s, cudnnHandle_t handle,
                                  mt_err *e);
#endif
