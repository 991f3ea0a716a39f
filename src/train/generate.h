/* generate.h: the forward pass of an inference session, one token a time. */
#ifndef MT_TRAIN_GENERATE_H
#define MT_TRAIN_GENERATE_H
#include "device/device.h"

/* Host function of a rank (mt_exec_run); arg is its struct mt_step, whose `step` says which position of the window's last
 * micro-batch is wanted. Its f32 logits are in m->chunk_logits afterwards. */
void mt_generate_step(struct mt_ctx *ctx, void *arg);
#endif
