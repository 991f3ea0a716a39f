/* blend.h: which of several sources sample number s of a run comes from, and which of its samples it is.
 *
 * The order of Megatron's blends: sample s is of the source whose share lags most, argmax over i of w_i max(s, 1) - n_i, n_i the
 * samples taken from it so far, the first of equals; weights sum to 1 (f64, to the last bit as Megatron brings them there, as equals are common). So any number of the first samples is as near to the
 * weights as whole samples let it. */
#ifndef MT_DATA_BLEND_H
#define MT_DATA_BLEND_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { MT_BLEND_BLOCK = 4096 };

typedef struct mt_blend {
    int n;          /* sources */
    double *weight; /* owned: [n] */
    int64_t *count; /* owned: [blocks][n] samples taken before a block, of the blocks known so far */
    int64_t blocks, known;
    pthread_mutex_t lock; /* guards the rest */
    int64_t block;        /* whose samples are at hand; -1: none */
    int32_t source[MT_BLEND_BLOCK];
    int64_t within[MT_BLEND_BLOCK];
    int64_t *now; /* owned: [n] scratch */
} mt_blend;

/* weight: [n], each above 0; counts: they are numbers of samples, which Megatron treats otherwise in the last bit. Samples below `most` cost little at any position; later ones are counted from there. IO: no
 * memory. mt_blend_close is due whatever came of it. */
MT_MUST_USE mt_status mt_blend_open(mt_blend *b, int n, const double *weight, bool counts, int64_t most,
                                    mt_err *e);
/* The source, and in *within the number of the sample among its own. From any thread. */
int mt_blend_at(mt_blend *b, int64_t sample, int64_t *within);
void mt_blend_close(mt_blend *b);
#endif
