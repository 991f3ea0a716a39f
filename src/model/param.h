/* param.h: the parameter table (param.def) applied to a shape. */
#ifndef MT_MODEL_PARAM_H
#define MT_MODEL_PARAM_H
#include "model/shape.h"
#include "shard/store.h"

enum mt_matrix_kind {
#define MATRIX(id, unit, form, cols, block, when) MT_W_##id,
#define TENSOR(matrix, id, name, rows, init, hf)
#include "model/param.def"
#undef MATRIX
#undef TENSOR
    MT_N_MATRIX_KINDS
};
enum mt_tensor_kind {
#define MATRIX(id, unit, form, cols, block, when)
#define TENSOR(matrix, id, name, rows, init, hf) MT_P_##id,
#include "model/param.def"
#undef MATRIX
#undef TENSOR
    MT_N_TENSOR_KINDS
};

/* A view per matrix kind: of one block's weights, say; not given where the block has none. */
union mt_weights {
    struct {
#define MATRIX(id, unit, form, cols, block, when) mt_view id;
#define TENSOR(matrix, id, name, rows, init, hf)
#include "model/param.def"
#undef MATRIX
#undef TENSOR
    };
    mt_view of[MT_N_MATRIX_KINDS];
};

/* Fills a store with the units, matrices and tensors of a model, without optimizers or rows. */
void mt_params_declare(struct mt_store *s, const struct mt_shape *m, double init_std);
/* Before the store is laid out: how the `n` groups of shard.groups place and gather each parameter; the first that matches
 * counts. A routed expert's tensors go by the name of expert 0. CONFIG: a pattern that matches nothing; a placement or a type
 * that a parameter cannot have; tensors of one matrix that are to lie or travel differently. */
MT_MUST_USE mt_status mt_params_place(struct mt_store *s, const mt_shard_group *groups, int64_t n, mt_err *e);
/* Canonical name of a tensor, as in checkpoints; expert is its global id, ignored outside expert units. out: 96 bytes. */
void mt_param_name(const struct mt_tensor *t, int64_t expert, char *out);
/* A pattern of the table with its numbers filled in. out: 96 bytes. */
void mt_param_fill(const char *pattern, int64_t layer, int64_t expert, char *out);
/* Of a kind of tensor: its name, ours or in a Hugging Face folder, as a pattern; whether each routed expert has one. */
const char *mt_param_pattern(int kind);
const char *mt_param_hf(int kind);
bool mt_param_of_expert(int kind);
/* Of a projection of the attention, the heads: it has a block of rows of each, or of columns. None of other kinds. */
struct mt_heads mt_param_heads(const struct mt_shape *m, int kind);
/* What a layer (-1: embedding and head) has of it, or each of its experts. rows 0: nothing; cols 0: a vector. */
struct mt_param_size {
    int64_t rows, cols;
};
struct mt_param_size mt_param_size(const struct mt_shape *m, int kind, int64_t layer);
/* The views that `view` gives of the matrices of a layer (-1: embedding and head). */
void mt_weights_of(const struct mt_store *s, int layer, mt_view (*view)(const struct mt_store *, int matrix),
                   union mt_weights *w);
/* The working weights that a pass reads. */
void mt_weights_for(const struct mt_store *s, int layer, enum mt_pass pass, union mt_weights *w);
#endif
