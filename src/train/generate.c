#include "train/generate.h"

#include "train/step.h"

void mt_generate_step(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    struct mt_rank *r = &t->rank;
    const struct mt_model *m = r->m;
    struct mt_stream *in = &ctx->stream[MT_H2D], *s = &ctx->stream[MT_COMPUTE];
    mt_copy_h2d(in, m->device.tokens, m->host.tokens);
    mt_copy_h2d(in, m->device.begin, m->host.begin);
    mt_copy_h2d(in, m->device.pos, m->host.pos);
    mt_stream_wait(s, mt_event_record(in));
    mt_model_windows(r, 1);
    mt_embed_forward(r, m->layer[0].x.at[MT_FORWARD]);
    for (int l = 0; !mt_is_mtp(&m->shape, l); l++)
        mt_block_forward(r, l, mt_model_boundary(m, l, MT_FORWARD, 0), mt_model_output(m, l, 0));
    mt_head_logits(r, m->depth[0].x, t->step);
}
