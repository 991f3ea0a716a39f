/* dnn_graph.h: a graph of cuDNN's operations on tensors of four dimensions [documents][heads][rows][width], as attention is one.
 *
 * Graphs are put together straight on: the first failure is kept, and what is called after it does nothing. */
#ifndef MT_CUDA_DNN_GRAPH_H
#define MT_CUDA_DNN_GRAPH_H
#include <stdbool.h>

#include "dnn_table.h"

typedef cudnnBackendDescriptor_t mt_dnn;
enum { MT_DNN_MADE = 256, MT_DNN_OPS = 40 };

struct mt_dnn_graph {
    const struct mt_dnn_table *f; /* borrowed */
    mt_dnn made[MT_DNN_MADE];     /* owned: everything there is */
    mt_dnn op[MT_DNN_OPS];
    int n_made, n_ops;
    int64_t unnamed; /* tensors of no name so far */
    mt_dnn graph;
    mt_err err;
};
struct mt_dnn_dims {
    int64_t of[4];
};

/* f must outlive g. */
void mt_dnn_graph_init(struct mt_dnn_graph *g, const struct mt_dnn_table *f);
void mt_dnn_graph_close(struct mt_dnn_graph *g);

/* A tensor in memory: name above 0; strides in elements; ragged: elements at which each document begins, or NULL. */
mt_dnn mt_dnn_tensor(struct mt_dnn_graph *g, int64_t name, cudnnDataType_t type, struct mt_dnn_dims d,
                     struct mt_dnn_dims stride, mt_dnn ragged);
/* A dense vector of n, in memory. */
mt_dnn mt_dnn_vector(struct mt_dnn_graph *g, int64_t name, cudnnDataType_t type, int64_t n);
/* A number that the host has when the graph runs. */
mt_dnn mt_dnn_number(struct mt_dnn_graph *g, int64_t name);
/* A tensor between two operations: dense, or with such strides. */
mt_dnn mt_dnn_between(struct mt_dnn_graph *g, cudnnDataType_t type, struct mt_dnn_dims d);
mt_dnn mt_dnn_strided(struct mt_dnn_graph *g, cudnnDataType_t type, struct mt_dnn_dims d,
                      struct mt_dnn_dims stride);

/* c = a b, sums in f32; m, n, k: of each document how many rows, columns and summands there are; NULL: all. */
void mt_dnn_matmul(struct mt_dnn_graph *g, mt_dnn a, mt_dnn b, mt_dnn c, mt_dnn m, mt_dnn n, mt_dnn k);
/* y = mode(x, b), by t where the mode has a condition; b and t may be NULL. */
void mt_dnn_pointwise(struct mt_dnn_graph *g, cudnnPointwiseMode_t mode, mt_dnn x, mt_dnn b, mt_dnn t,
                      mt_dnn y);
/* y = the index along an axis, at each place of x. */
void mt_dnn_index(struct mt_dnn_graph *g, int64_t axis, mt_dnn x, mt_dnn y);
/* y = x reduced over the dimensions in which y has 1 and x more. */
void mt_dnn_reduce(struct mt_dnn_graph *g, cudnnReduceTensorOp_t how, mt_dnn x, mt_dnn y);
/* y = x with other dimensions and strides. */
void mt_dnn_reshape(struct mt_dnn_graph *g, mt_dnn x, mt_dnn y);

/* The whole, of h. DEVICE: the first failure. */
MT_MUST_USE mt_status mt_dnn_graph_end(struct mt_dnn_graph *g, cudnnHandle_t h, mt_err *e);

/* What runs it, and bytes of device memory that takes. */
struct mt_dnn_plan {
    mt_dnn plan; /* the graph's */
    int64_t workspace;
};
/* The first engine that takes the graph on the handle's device. DEVICE: none does; the message is cuDNN's. */
MT_MUST_USE mt_status mt_dnn_graph_plan(struct mt_dnn_graph *g, cudnnHandle_t h, struct mt_dnn_plan *p,
                                        mt_err *e);
/* Whether one would, and in how much memory, on a device that is described by JSON: without a GPU. Nothing is compiled. DEVICE. */
MT_MUST_USE mt_status mt_dnn_graph_support(struct mt_dnn_graph *g, const char *device_json,
                                           int64_t *workspace, mt_err *e);
/* The plan's arguments: names with their memory (numbers: the host's). DEVICE. */
MT_MUST_USE mt_status mt_dnn_graph_pack(struct mt_dnn_graph *g, int n, const int64_t *name,
                                        void *const *memory, void *workspace, mt_dnn *pack, mt_err *e);
#endif
