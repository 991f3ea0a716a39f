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
    int64_t Ck,
        Cq; /* multi-head latent attention: widths of compressed keys and values, and queries; Ck 0: it is not this;
                           Cq 0: queries are not compressed */
    int64_t E, K, F; /* routed experts, experts a token, their width */
    int64_t Fd, Fs;  /* width of dense layers, of the shared expert (0: none) */
    int64_t first_dense;
    int64_t capacity; /* rows of a sequence that an expert takes; 0: all */
    int64_t M;        /* rows that a rank sends to experts at most: N K, or what they take */
    int64_t
        C; /* rows of the bounded expert buffers: a multiple of MT_ROUND_ROWS, or as many as there can be in all */
    int64_t Nc;                        /* tokens of a loss chunk */
    int64_t W, full_first, full_every; /* tokens of a window, 0: none; layers without one, see mt_is_near */
    bool qk_norm, attn_bias, tied;
};
/* From a checked configuration. */
struct mt_shape mt_shape_of(const mt_config *c);
/* The same for inference, in which no token is dropped. */
struct mt_shape mt_shape_dropless(const mt_config *c);
/* The same without modules for further tokens, which only training needs. */
struct mt_shape mt_shape_alone(const struct mt_shape *s);
static inline bool mt_is_moe(const struct mt_shape *s, int64_t layer)
{
    return s->E > 0 && layer >= s->first_dense;
}
/* Layers of the model itself: those of modules for further tokens come behind them. */
static inline int64_t mt_own_layers(const struct mt_shape *s)
{
    return s->L - s->mtp;
}
static inline bool mt_is_mtp(const struct mt_shape *s, int64_t layer)
{
    return layer >= mt_own_layers(s);
}
/* Whether attention of the layer has the window. Blocks of modules are as the model's last layer. */
static inline bool mt_is_near(const struct mt_shape *s, int64_t layer)
{
    if (mt_is_mtp(s, layer)) layer = mt_own_layers(s) - 1;
    return s->W > 0 && layer >= s->full_first && !(s->full_every && (layer + 1) % s->full_every == 0);
}
/* Layers with the window. */
int64_t mt_near_layers(const struct mt_shape *s);

/* Parameters in all, and those that a token meets (routed experts count K of E). */
int64_t mt_params_total(const struct mt_shape *s);
int64_t mt_params_active(const struct mt_shape *s);
/* Model FLOPs per token of training, forward and backward, recomputation not counted: 6 a matrix parameter met, plus
 * the head's matrix once more for each further token, plus
 * causal attention over documents of mean length `context` (2 matmuls, 3 passes, half of the square; of a window W the band,
 * W - W^2 / (2 context) keys a token). */
double mt_flops_per_token(const struct mt_shape *s, double context);
/* Of these, what its routed experts take if no row is dropped. */
double mt_flops_of_experts(const struct mt_shape *s);
/* The same where a token sees `full` keys on the mean, in layers with a window `near`. */
double mt_flops_per_token_of(const struct mt_shape *s, double full, double near);
#endif
