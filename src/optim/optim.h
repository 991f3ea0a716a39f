/* optim.h: one step of AdamW, Muon (optim/muon.h), SOAP (optim/soap.h) and Shampoo (optim/shampoo.h) over a rank's masters. */
#ifndef MT_OPTIM_OPTIM_H
#define MT_OPTIM_OPTIM_H
#include "optim/muon.h"
#include "optim/shampoo.h"
#include "optim/soap.h"

struct mt_optim {
    const struct mt_model *m;
    struct mt_muon muon;
    struct mt_factored soap, shampoo;
    mt_view sumsq, sumsq_all, sumsq_sum; /* exact words: this rank's, every rank's, the total */
    mt_view scale[MT_N_ARENAS],
        norm; /* f32 factor of clipping, for either side's arithmetic; f64 norm before it */
};

/* Adds cuts to the model's store. */
mt_status mt_optim_init(struct mt_optim *o, struct mt_model *m, const mt_config *c, struct mt_ledger *g,
                        mt_err *e);
void mt_optim_release(struct mt_optim *o);
/* Of the store and the optimizers' plan: equal on all ranks of a job, or they would not understand each other. */
uint64_t mt_optim_hash(const struct mt_optim *o);

/* Gradients -> norm over all parameters and ranks, and the factor that clips it. */
void mt_optim_norm(const struct mt_optim *o, struct mt_rank *r, double max_norm);
/* step counts from 0; factor multiplies every learning rate. */
void mt_optim_update(const struct mt_optim *o, struct mt_rank *r, const mt_config *c, int64_t step,
                     double factor);
#endif
