#include "train/run.h"

/* Validation micro-batch number `batch` of the i-th rank here into place b of its arena: the ranks take turns. */
static mt_status valid_to_arena(struct mt_run *r, int i, int64_t b, int64_t batch, mt_err *e)
{
    const struct mt_batch *h = &r->s.rank[i].model.host;
    const struct mt_ctx *c = &r->s.rank[i].ctx;
    int64_t n = r->s.rank[i].model.shape.N, ignored = 0;
    mt_sample out = {(int32_t *)mt_address(c, h->tokens) + b * n, (int32_t *)mt_address(c, h->labels) + b * n,
                     (int32_t *)mt_address(c, h->begin) + b * n, (int32_t *)mt_address(c, h->pos) + b * n};
    return mt_loader_valid_batch(r->loader, (batch * r->world + r->s.first + i) * r->cfg->train_micro_batch,
                                 &out, &ignored, e);
}

mt_status mt_run_validate(struct mt_run *r, mt_err *e)
{
    const mt_config *c = r->cfg;
    int64_t each = c->train_micro_batch * r->world,
            batches = (mt_loader_n_valid(r->loader) + each - 1) / each, valid = 0, micro,
            most = r->s.rank[0].model.opt.micro_batches;
    double loss = 0;
    if (batches > c->train_eval_batches) batches = c->train_eval_batches;
    for (int64_t at = 0; at < batches; at += micro) {
        micro = batches - at < most ? batches - at : most;
        for (int i = 0; i < r->s.n_local; i++) {
            r->s.rank[i].step.micro = micro;
            for (int64_t b = 0; b < micro; b++)
                MT_TRY(mt_run_fatal(r, valid_to_arena(r, i, b, at + b, e), e));
        }
        MT_TRY(mt_run_fatal(r, mt_session_run(&r->s, mt_eval_step, e), e));
        loss += r->s.rank[0].step.loss;
        valid += r->s.rank[0].step.valid;
    }
    if (valid) mt_metrics_valid(&r->metrics, r->at.step, loss / (double)valid);
    return MT_OK;
}
