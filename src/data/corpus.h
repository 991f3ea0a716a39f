/* corpus.h: what a run reads: one token file, or several blended by weight, each cut into training and validation. */
#ifndef MT_DATA_CORPUS_H
#define MT_DATA_CORPUS_H
#include "data/blend.h"
#include "data/sample.h"

typedef struct mt_corpus_part {
    const char *path; /* prefix of .idx and .bin (and .pack when packed), or an llm.c .bin */
    double weight;    /* of its samples among all; 0, for all parts alike: as many as it has */
} mt_corpus_part;

typedef struct mt_corpus_options {
    const mt_corpus_part *part; /* [n], n at least 1 */
    int n;
    double valid_fraction; /* of each part's samples; [0, 1) */
    bool packed;
    uint64_t seed; /* of the order of samples */
    int64_t most;  /* training samples that a run reads, for mt_blend_open */
    mt_sample_rules rules;
} mt_corpus_options;

typedef struct mt_corpus_source {
    mt_index index;
    mt_bins bins;
    mt_split train, valid;
} mt_corpus_source;

typedef struct mt_corpus {
    mt_corpus_source *source; /* owned: [n] */
    int n;
    mt_sample_rules rules;
    uint64_t seed;
    int64_t n_train, n_valid; /* samples of all parts */
    mt_blend train, valid;    /* of several parts */
} mt_corpus;

/* Opens and validates the files. CONFIG, DATA, IO; mt_corpus_close is due whatever came of it. */
MT_MUST_USE mt_status mt_corpus_open(mt_corpus *c, const mt_corpus_options *o, mt_err *e);
void mt_corpus_close(mt_corpus *c);
/* MT_DATA when a file has become shorter since it was opened. */
MT_MUST_USE mt_status mt_corpus_check(const mt_corpus *c, mt_err *e);
/* The part of global training sample `sample`, and its unit there: of one part, a permutation of its samples each epoch; of
 * several, each part goes through its own in turn. */
const mt_split *mt_corpus_train(mt_corpus *c, int64_t sample, int64_t *unit);
/* The same for validation sample `sample`, below n_valid: parts in proportion to what they have, in a fixed order. */
const mt_split *mt_corpus_valid(mt_corpus *c, int64_t sample, int64_t *unit);
#endif
