/* sample.h: the samples of a split of a corpus: fixed windows, or bins of packed documents.
 *
 * Window w holds the tokens at positions [w T, w T + T) of the concatenated corpus, and their labels reach
 * one token further, so windows overlap by one and the inputs of all windows are each token once. */
#ifndef MT_DATA_SAMPLE_H
#define MT_DATA_SAMPLE_H
#include "base/status.h"
#include "data/bins.h"
#include "data/index.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct mt_sample_rules {
    int64_t seq_len;      /* T */
    int64_t vocab;        /* ids must be below */
    int64_t eod;          /* a document also ends behind this id; -1: only where the index says so */
    bool document_mask;   /* begin[] marks documents; otherwise it is the sample's first token */
    bool reset_positions; /* pos[] restarts at documents */
} mt_sample_rules;

/* Units [first, first + count) of a corpus. */
typedef struct mt_split {
    const mt_index *index;
    const mt_bins *bins; /* NULL: windows */
    int64_t first, count;
    int64_t limit;  /* tokens at and past this position belong to the other split: never labels here */
    bool scattered; /* bins are taken in a fixed random order, as their file sorts them by length */
} mt_split;

/* Cuts a corpus into `train` and `valid`, the last `valid_fraction` of the units (rounded up to one
 * unit when positive; 0 leaves `valid` empty). Windows: the last tokens of the corpus, never seen by
 * training, not even as a label. Bins: a fixed random choice of them; a document cut into several
 * pieces may then be on both sides, a separate validation file avoids it. `bins` NULL means windows.
 * MT_DATA when a side would be empty. */
MT_MUST_USE mt_status mt_split_cut(mt_split *train, mt_split *valid, const mt_index *x, const mt_bins *bins,
                                   const mt_sample_rules *rules, double valid_fraction, mt_err *e);

/* Unit of the split, in [0, count), of the global sample `sample`: a new permutation each epoch. */
int64_t mt_split_shuffled(const mt_split *split, uint64_t seed, int64_t sample);

/* Destination of a sample: arrays of T.
 * tokens  ids; 0 in padding
 * labels  id of the next token; -1 where it lies in another document or split, and in padding
 * begin   `base` + index in the sample of the first token of the token's document (clipped to the sample);
 *         a padding token is a document of its own, so that it costs no attention
 * pos     position in the document or, without reset_positions, in the sample */
typedef struct mt_sample {
    int32_t *tokens, *labels, *begin, *pos;
} mt_sample;

/* Fills a sample from unit `unit` of the split and adds its labels that are not -1 to *n_labels. */
MT_MUST_USE mt_status mt_sample_fill(const mt_split *split, const mt_sample_rules *rules,
                                     const mt_sample *out, int64_t *n_labels, int64_t unit, int32_t base,
                                     mt_err *e);
/* Pairs of tokens of a document of n of which one sees the other, each token itself among them: n (n + 1) / 2, or those of a window,
 * in which a token sees the last `window`; 0: no window. */
static inline int64_t mt_pairs(int64_t n, int64_t window)
{
    int64_t w = window > 0 && window < n ? window : n;
    return w * (w + 1) / 2 + (n - w) * w;
}
/* Those of a unit's sample, document by document, or of all T without the document mask. From the lengths of documents alone: one
 * that only `eod` ends goes on. */
int64_t mt_sample_pairs(const mt_split *split, const mt_sample_rules *rules, int64_t unit, int64_t window);
/* Fills a sample of nothing but padding. */
void mt_sample_pad(const mt_sample_rules *rules, const mt_sample *out, int32_t base);
#endif
