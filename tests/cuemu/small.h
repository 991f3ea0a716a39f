/* small.h: a small relative of the quickstart model, for the tests that train on emulated devices. */
#ifndef MT_TESTS_SMALL_H
#define MT_TESTS_SMALL_H

#define MODEL                                                                                        \
    "model.vocab=61 model.dim=32 model.layers=2 model.heads=2 model.kv_heads=1 model.head_dim=16 "   \
    "model.qk_norm=true "                                                                            \
    "model.first_dense=1 model.ffn=48 model.experts=4 model.top_k=2 model.expert_ffn=16 "            \
    "model.shared_ffn=16 "                                                                           \
    "model.score=sigmoid model.bias_rate=0.001 moe.buffer_factor=4 "                                 \
    "train.seq_len=24 train.micro_batch=1 train.global_batch=4 train.loss_chunk=20 train.steps=100 " \
    "muon.per_head=true "                                                                            \
    "optim.lr=3e-3 optim.warmup_steps=4 optim.decay_ratio=0.4 "

/* Weights, moments and activations on the host, the optimizer's arithmetic there too; FlexShard over ranks that share experts. */
#define OFFLOAD                                                                              \
    "offload.masters=host offload.moments=host offload.grads=host offload.slot_bytes=20000 " \
    "offload.activations.fraction=1 "
#endif
