/* step.h: THE train step: one function for the cpu, for cuda and for the recording on sim. */
#ifndef MT_TRAIN_STEP_H
#define MT_TRAIN_STEP_H
#include "optim/optim.h"

/* One rank's step: what it is given, and what it found. */
struct mt_step {
    struct mt_rank rank;
    const struct mt_optim *optim;
    const mt_config *cfg;
    int64_t step; /* from 0 */
    double lr_factor;
    int64_t micro;        /* micro-batches to do: all of a train step, or those of one validation run */
    double loss, norm;    /* sum over the tokens that count, of all ranks; gradient norm before clipping */
    int64_t valid;        /* tokens that count, of all ranks */
    double aux[MT_N_AUX]; /* sums over all tokens of all ranks, and blocks of experts; without coefficients */
    float top;            /* largest attention score, of all heads; with optim.qk_clip */
    double mtp_loss[MT_MAX_DEPTHS - 1]; /* of a train step, the same of each module for further tokens */
    int64_t mtp_valid[MT_MAX_DEPTHS - 1];
    double loss_limit, norm_limit; /* what loss a token and norm may be; 0: anything finite */
    bool updated; /* false: loss or norm was not finite, or above its limit, and nothing was changed */
};

/* Host functions of a rank (mt_exec_run): arg is its struct mt_step. */
void mt_train_step(struct mt_ctx *ctx, void *arg);
void mt_eval_step(struct mt_ctx *ctx, void *arg);
/* Start-up: initial masters from cfg->train_seed, then tables and working copies. Or, after masters were loaded, only
 * these. */
void mt_fill_step(struct mt_ctx *ctx, void *arg);
void mt_pack_step(struct mt_ctx *ctx, void *arg);
#endif
