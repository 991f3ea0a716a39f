/* loader.h: batches of token samples, prepared ahead by one thread, off the path of the step.
 *
 * The position in the data is one integer. Global sample number i of a run is sample i mod n of epoch i / n,
 * n the samples of the training split; of several files, what data/corpus.h says. Optimizer step s (from 0) reads [s G, (s + 1) G); micro-batch m of
 * rank r of R reads rows s G + m R B + r B + [0, B), B sequences a micro-batch. So what a step reads doesn't
 * depend on R or B. With `balance` the rows of a step change places (data/balance.h), and only that.
 *
 * One loader serves any number of ranks of its process; nothing is allocated after opening. Destinations are
 * the caller's: four arrays of mt_loader_n_micro() x B T elements. In each micro-batch begin[] counts from
 * its first token, as if its B samples were one sequence of B T tokens. */
#ifndef MT_DATA_LOADER_H
#define MT_DATA_LOADER_H
#include "base/status.h"
#include "data/balance.h"
#include "data/corpus.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum mt_data_mode { MT_DATA_WINDOWS, MT_DATA_PACKED } mt_data_mode;

typedef struct mt_data_options {
    const mt_corpus_part *train; /* [n_train], see data/corpus.h */
    int n_train;
    const char
        *valid; /* a token file for validation; NULL or "": the last valid_fraction of each of `train` */
    double valid_fraction; /* [0, 1); ignored with `valid` */
    mt_data_mode mode;
    bool document_mask, reset_positions; /* see mt_sample_rules */
    int64_t eod;                         /* -1: none */
    int64_t seq_len;                     /* T */
    int64_t micro_batch, global_batch;   /* B, G, in sequences; B R divides G */
    int64_t vocab;
    int64_t n_ranks;     /* R: data-parallel ranks of the whole job */
    int64_t local_ranks; /* that this loader serves, at least 1 */
    int64_t prefetch;    /* steps in preparation per rank, at least 1 */
    uint64_t seed;       /* of the order of samples */
    int64_t steps;       /* that the run has, more or less */
    bool balance;        /* place the sequences of a step by cost */
    bool together;       /* see mt_balance_layout */
    mt_balance_price price;
} mt_data_options;

typedef struct mt_loader mt_loader;

/* What a filled batch reports: labels that are not -1, how long mt_loader_wait blocked, and the imbalance of
 * its whole step, {0, 0} where there can be none: one rank, or no document mask. */
typedef struct mt_batch_info {
    int64_t n_labels;
    double waited_s;
    mt_imbalance imbalance;
} mt_batch_info;

/* Opens and validates the files and starts the thread. MT_CONFIG, MT_DATA or MT_IO. */
MT_MUST_USE mt_status mt_loader_open(mt_loader **out, const mt_data_options *o, mt_err *e);
/* Waits for the fills in progress, drops the queued ones. NULL is allowed. */
void mt_loader_close(mt_loader *l);

int64_t mt_loader_n_micro(const mt_loader *l); /* micro-batches of a step on each rank */
int64_t mt_loader_n_train(const mt_loader *l); /* samples of an epoch */
int64_t mt_loader_n_valid(const mt_loader *l); /* validation samples; 0: no validation */
/* Global sample number of row `row` in [0, B). */
int64_t mt_loader_sample_number(mt_loader *l, int64_t step, int64_t rank, int64_t micro, int64_t row);
/* The mean imbalance of `n` steps from `step` on, by the lengths of documents; {0, 0} as in mt_batch_info. */
MT_MUST_USE mt_status mt_loader_imbalance(mt_loader *l, int64_t step, int64_t n, mt_imbalance *mean,
                                          mt_err *e);

/* Queues the filling of `out` with the batch of `step` for `rank`. `out` must stay untouched until the wait.
 * MT_INTERNAL when `prefetch` batches of every local rank are under way already. */
MT_MUST_USE mt_status mt_loader_prefetch(mt_loader *l, int64_t rank, int64_t step, const mt_sample *out,
                                         mt_err *e);
/* Whether waiting would return at once; for callers that may not block. */
bool mt_loader_ready(mt_loader *l, int64_t rank, int64_t step);
/* Blocks until the batch queued for (rank, step) is filled, and frees its place in the queue. The fill's
 * failure is returned here: MT_DATA for an id outside the vocabulary or a file that has shrunk. */
MT_MUST_USE mt_status mt_loader_wait(mt_loader *l, int64_t rank, int64_t step, mt_batch_info *info,
                                     mt_err *e);

/* Fills one micro-batch with validation samples [first, first + B), always in the same order, on the calling
 * thread. Samples past the last are padding. */
MT_MUST_USE mt_status mt_loader_valid_batch(mt_loader *l, int64_t first, const mt_sample *out,
                                            int64_t *n_labels, mt_err *e);
#endif
