/* shape.h: the dimensions of a model and of one micro-batch, in the letters of the project. */
#ifndef MT_MODEL_SHAPE_H
#define MT_MODEL_SHAPE_H
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

struct mt_shape {
    int64_t N;       /* tokens of one micro-batch of one rank: S times sequences */
    int64_t S;       /* tokens of a sequence */
    int64_t D, V, L; /* width, vocabulary, layers */
    int64_t mtp; /* of the L layers the last so many are blocks of modules for further tokens (model/mtp.c) */
    int64_t H, G, A, B; /* query heads, key-value heads, their key and value widths */
    int64_t R;          /* rotated dimensions of a head */
    int64_t E, K, F;    /* routed experts, experts a token, their width */
    int64_t Fd, Fs;     /* width of dense layers, of the shared expert (0: none) */
    int64_t first_dense;
    int64_t
        C; /* rows of the bounded expert buffers: a multiple of MT_ROUND_ROWS, or N K mesh.ep, which is all */
    int64_t Nc; /* tokens of a loss chunk */
    bool qk_norm, attn_bias, tied;
};
/* From a checked configuration. */
struct mt_shape mt_shape_of(const mt_config *c);
static inline bool mt_is_moe(const struct mt_shape *s, int64_t layer)
{
    return s->E > 0 && layer >= s->first_dense;
}
static inline bool mt_is_mtp(const struct mt_shape *s, int64_t layer)
{
    return layer >= s->L - s->mtp;
}
/* The same without modules for further tokens, which only training needs. */
struct mt_shape mt_shape_alone(const struct mt_shape *s);

/* Parameters in all, and those that a token meets (routed experts count K of E). */
int64_t mt_params_total(const struct mt_shape *s);
int64_t mt_params_active(const struct mt_shape *s);
/* Model FLOPs per token of training, forward and backward, recomputation not counted: 6 a matrix parameter met, plus
 * the head's matrix once more for each further token, plus causal attention over documents of mean length `context` (2 matmuls, 3 passes, half of the square). */
double mt_flops_per_token(const struct mt_shape *s, double context);
#endif
