/* store.h: where a rank keeps its parameters and their state.
 *
 * A unit is what is gathered together: the embedding; per layer the dense part and the experts; final norm and head.
 * Each unit has buckets: one flat buffer, one dtype, one group, one collective. A bucket holds matrices (what an
 * operation reads), a matrix is a stack of one or more tensors (what is named, initialised, optimised and saved):
 * gate and up of a SwiGLU are two tensors and one matrix.
 *
 * Masters, gradients and moments of a bucket are f32 and canonical: tensors row-major, one after another. The working
 * copy is in the device's format, whose panels of 32 outputs are contiguous in both, so that a shard cut at panels is
 * one range of each. Experts of a layer lie one after another, each with all its matrices: whole experts are owned. */
#ifndef MT_SHARD_STORE_H
#define MT_SHARD_STORE_H
#include <stdint.h>

#include "base/status.h"
#include "device/ledger.h"
#include "device/target.h"

/* How an operation reads a matrix: in the device's packed format; row-major in the working dtype; the f32 master. */
enum mt_form { MT_FORM_PACKED, MT_FORM_ROWS, MT_FORM_F32 };
enum mt_state { MT_STATE_MASTER, MT_STATE_GRAD, MT_STATE_M, MT_STATE_V, MT_N_STATES };

struct mt_bucket {
    int unit;
    int64_t n;                  /* experts stacked in it; 1 for dense buckets */
    int64_t elements;           /* of one stacked part; the bucket holds n times as many */
    int64_t v_elements;         /* of one part, of the tensors that have a second moment */
    int64_t work_bytes;         /* of one part; 0: the masters are the working copy */
    int32_t row[MT_N_STATES], work_row;
};
struct mt_matrix {
    int unit, bucket, kind;     /* kind, layer: the model's */
    int layer;
    enum mt_form form;
    int64_t rows, cols;         /* cols 0: a vector */
    int64_t off, work_off;      /* within one part: elements of the masters, bytes of the working copy */
    int32_t turned_row;         /* a packed matrix in NN form, for backward; -1: none */
};
enum mt_optimizer { MT_ADAMW, MT_MUON, MT_FROZEN };
struct mt_tensor {
    int matrix, kind, layer;
    int64_t row0, rows;         /* of the matrix */
    int64_t v_off;              /* elements, within one part of the bucket's second moments; -1: none */
    enum mt_optimizer optimizer;
    double lr_scale, weight_decay, init_std; /* init_std < 0: filled with -init_std - 1 */
};
struct mt_unit {
    int layer;
    bool experts;
    int dense_bucket, f32_bucket; /* -1: none */
};
struct mt_store {
    mt_dtype dtype;             /* of working copies */
    const struct mt_target *target;
    struct mt_unit *unit;       /* all arrays owned */
    struct mt_bucket *bucket;
    struct mt_matrix *matrix;
    struct mt_tensor *tensor;
    int n_units, n_buckets, n_matrices, n_tensors, cap_units, cap_buckets, cap_matrices, cap_tensors;
};
void mt_store_init(struct mt_store *s, mt_dtype dtype, const struct mt_target *t);
void mt_store_release(struct mt_store *s);

/* Build-up, in order: a unit, its matrices, each matrix's tensors (rows add up). n_experts: 0 for a dense unit. */
int mt_store_add_unit(struct mt_store *s, int layer, int64_t n_experts);
int mt_store_add_matrix(struct mt_store *s, int kind, int layer, enum mt_form form, int64_t cols);
int mt_store_add_tensor(struct mt_store *s, int kind, int layer, int64_t rows, double init_std);
/* After the last tensor and the assignment of optimizers: offsets, and the rows in the ledger (masters, gradients,
 * moments and working copies on the device). `inference`: only what a forward pass reads. */
void mt_store_layout(struct mt_store *s, struct mt_ledger *g, bool inference);

/* Views. A matrix or tensor of an expert unit is [n, rows, cols]; a vector [rows]. */
mt_view mt_store_work(const struct mt_store *s, int matrix);
mt_view mt_store_turned(const struct mt_store *s, int matrix);
mt_view mt_store_matrix_state(const struct mt_store *s, int matrix, enum mt_state what);
mt_view mt_store_tensor_state(const struct mt_store *s, int tensor, enum mt_state what);
mt_view mt_store_bucket_state(const struct mt_store *s, int bucket, enum mt_state what);
/* All of a tensor's parts, [n, rows, cols] also for a dense unit (n = 1) and a vector (cols = 1): what batched
 * optimizers take. */
mt_view mt_store_tensor_stack(const struct mt_store *s, int tensor, enum mt_state what);

int64_t mt_store_tensor_count(const struct mt_store *s, int tensor); /* elements, all parts */
int64_t mt_store_parts(const struct mt_store *s, int tensor);        /* n of its bucket */
#endif
