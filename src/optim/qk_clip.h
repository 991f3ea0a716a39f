/* qk_clip.h: QK-clip over a rank's masters, behind the optimizers: no head's attention scores grow without bound.
 *
 * Kimi K2 (arXiv 2507.20534, section 2.1, algorithm 1): S of a head is the largest score, as softmax takes it, of all tokens of the
 * step on all ranks. Where S is above tau, g = tau / S: the head's rows of q and k are multiplied by sqrt(g) each; in multi-head latent
 * attention the rotated rows of q by g and those of the shared key by nothing. Of heads that share a key, all have the largest S
 * among them (the report has no such heads; megatron-core 0.16 does so). Biases of q and k are scaled as their rows. Moments stay as
 * they are, and so do parameters that no optimizer moves. */
#ifndef MT_OPTIM_QK_CLIP_H
#define MT_OPTIM_QK_CLIP_H
#include "model/model.h"

/* Scores of the step, of all ranks, into m->top_most, and their largest into m->top_one; nothing without m->opt.tops. */
void mt_qk_clip_scores(struct mt_rank *r);
/* Between mt_slots_open and mt_slots_close, when all optimizers are done. */
void mt_qk_clip_update(struct mt_rank *r, double tau);
#endif
