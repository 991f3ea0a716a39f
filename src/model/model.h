/* model.h: the buffers of a model on one rank, and its passes.
 *
 *   h = x + O(attention(norm(x)))        y = h + ffn(norm(h))         x, h, y: [N, D]
 *
 * All ranks of one kind share one mt_model: it holds views, no memory. A pass enqueues operations; only the expert counts
 * of a block are read back by the host (mt_host_read), to know how many dispatch rounds it takes. */
#ifndef MT_MODEL_MODEL_H
#define MT_MODEL_MODEL_H
#include "device/device.h"
#include "device/group.h"
#include "model/param.h"
#include "model/shape.h"

/* What the model needs of the options besides its shape. */
struct mt_model_options {
    double eps, theta, route_scale, init_std;
    mt_choice_score score;
    bool route_norm, inference;
    mt_dtype dtype;
    int64_t micro_batches;
    int64_t span; /* micro-batches that go through a block together: 1, or all of them */
    int64_t prefetch, keep_last, prefetch_memory; /* see the options shard.* */
    struct mt_mesh mesh;
    struct mt_formats formats;
    int rank;
};

/* clang-format off */
/* Buffers inside a layer: everything here is recomputed in backward and shared by all layers.
 * ACT(name, dtype, dims): T the working dtype; a dimension that is 0 leaves the buffer out. Those marked PAD have rows
 * lengthened where their length would make strides that a cpu's caches dislike (device/target.h). */
#define MT_LAYER_BUFFERS(ACT, PAD)                                                             \
    PAD(n1, N, D) ACT(rstd1, F32, N, 0)                                                        \
    ACT(q, T, N, H * A) ACT(k, T, N, G * A) ACT(v, T, N, G * B)                                \
    ACT(qn, T, qk * N, H * A) ACT(kn, T, qk * N, G * A)                                        \
    ACT(rstdq, F32, qk * N * H, 0) ACT(rstdk, F32, qk * N * G, 0)                              \
    ACT(o, T, N, H * B) ACT(lse, F32, H, N) ACT(h, T, N, D)                                    \
    PAD(n2, N, D) ACT(rstd2, F32, N, 0)                                                        \
    PAD(u, N, 2 * Fd * dense) PAD(s, N, Fd * dense)                                            \
    PAD(us, N, 2 * Fs * moe) PAD(ss, N, Fs * moe) ACT(hs, T, N * shared, D)                    \
    ACT(logits, F32, N * moe, E) PAD(xs, C, D) PAD(ux, C, 2 * F) PAD(sx, C, F) ACT(ret, T, N * K, D) \
    ACT(send, T, far * N * K, D) ACT(recv, T, far * C, D) ACT(ye, T, far * C, D) ACT(back, T, far * C, D)
#define MT_BACKWARD_BUFFERS(ACT, PAD)                                                          \
    PAD(dh, N, D) PAD(dn2, N, D) PAD(dn2s, N * shared, D) PAD(dn1, N, D) PAD(dn1b, N, D)       \
    PAD(du, N, 2 * Fd * dense) PAD(ds, N, Fd * dense) PAD(dus, N, 2 * Fs * moe) PAD(dss, N, Fs * moe) \
    PAD(dys, C, D) PAD(dux, C, 2 * F) PAD(dsx, C, F) ACT(dret, T, N * K, D)                    \
    ACT(dsend, T, far * N * K, D) ACT(gate_send, F32, far * N * K, 0) ACT(gate_recv, F32, far * C, 1) ACT(gate_xe, F32, far * C, 1) \
    ACT(dgate_xe, F32, far * C, 1) ACT(dgate_back, F32, far * C, 1)                        \
    ACT(dgate, F32, N * K, 0) ACT(dgates, F32, N * moe, K) ACT(dlogits, F32, N * moe, E)                   \
    ACT(dout, T, N, H * B) ACT(dq, T, N, H * A) ACT(dk, T, N, G * A) ACT(dv, T, N, G * B)      \
    ACT(dqn, T, qk * N, H * A) ACT(dkn, T, qk * N, G * A) ACT(delta, F32, H, N)                \
    ACT(gain, F32, MT_NORM_BLOCKS, D) ACT(gainq, F32, qk * MT_NORM_BLOCKS, A) ACT(gaink, F32, qk * MT_NORM_BLOCKS, A) \
    ACT(dxa, T, span * N, D) ACT(dxb, T, span * N, D)

/* clang-format on */

struct mt_buffers {
#define ACT(name, t, d0, d1) mt_view name;
#define PAD(name, d0, d1) mt_view name;
    MT_LAYER_BUFFERS(ACT, PAD)
    MT_BACKWARD_BUFFERS(ACT, PAD)
#undef ACT
#undef PAD
};

/* Routing of one micro-batch in one block: stored in forward and never redone. */
struct mt_route {
    mt_view ids, gates, slot; /* [N, K] */
    mt_view order;            /* [N K] */
    mt_view counts;           /* [E] rows this rank sends to each expert */
    mt_view all, mine;        /* [ep, E] of the expert group; [E / ep] rows this rank's experts get */
};

struct mt_layer {
    union mt_weights w[MT_N_PASSES], t,
        g;                 /* working weights of a pass, the same turned for backward, gradients */
    mt_view x;             /* [span N, D] input of the block: what full recomputation keeps */
    struct mt_route route; /* of all micro-batches of a span, one behind the other */
    mt_view bias, load;    /* [E] selection bias; [E] counts over the optimizer step */
    int unit, experts;     /* indices in the store; experts -1: dense block */
};
struct mt_batch {
    mt_view tokens, labels, begin, pos; /* [N] */
};

struct mt_model {
    struct mt_shape shape;
    struct mt_model_options opt;
    struct mt_store store;
    struct mt_layer *layer;                /* owned: L of them */
    union mt_weights w[MT_N_PASSES], t, g; /* embedding, final norm, head */
    mt_view head_nt, head_nn;              /* tied: the embedding in the head's formats */
    mt_view x_last;                        /* [span N, D] output of the last block */
    int64_t prefetch;                      /* blocks gathered ahead, within the memory bound */
    mt_view rope;
    struct mt_batch host, device; /* all micro-batches: [micro_batches N] */
    struct mt_buffers b;
    mt_view hn, rstdf, dhn, chunk_logits, chunk_dlogits, chunk_loss;
    mt_view loss, loss_all, loss_sum;    /* f64: this rank's sum, every rank's, the total */
    mt_view valid, valid_all, valid_sum; /* i64, likewise: labels that count */
    mt_view load_all, load_sum;          /* i64 [world, E], [E]: rows an expert got, over all ranks */
    int32_t replica_row; /* shard gradients of all replicas, one bucket at a time; -1: one replica */
    int64_t replica_bytes;
    int head_unit;
};

/* Declares parameters (their optimizers are set by the caller's `assign` before anything is laid out) and every buffer as
 * rows of g. The model must not move afterwards. */
mt_status mt_model_init(struct mt_model *m, const struct mt_shape *shape, const struct mt_model_options *opt,
                        const struct mt_target *target, struct mt_ledger *g,
                        mt_status (*assign)(struct mt_store *, void *, mt_err *), void *arg, mt_err *e);
void mt_model_release(struct mt_model *m);

/* One rank at work on a model: what its host code needs besides the views. */
struct mt_rank {
    struct mt_ctx *ctx;
    const struct mt_model *m;
    int32_t *counts;  /* [micro_batches, L, E] as read back */
    int force_rounds; /* recording: this many dispatch rounds everywhere; 0: as many as the counts ask for */
    int64_t mb;       /* micro-batch being enqueued */
    struct mt_lease *weights[MT_N_PASSES]; /* a unit each: its gathered, and in backward turned, weights */
    struct mt_lease *grads;                /* a unit each: its whole gradients, until they are reduced */
    mt_event *done; /* [L + 1] a block's, and last the head's, operations of the present pass are enqueued */
};
mt_status mt_rank_init(struct mt_rank *r, struct mt_ctx *ctx, const struct mt_model *m, mt_err *e);
void mt_rank_release(struct mt_rank *r);

/* Rows that this rank sent to each expert [E] in a micro-batch and block, as read back. */
const int32_t *mt_rank_counts(const struct mt_rank *r, int64_t mb, int l);
/* The part of the batch that micro-batch mb is. */
struct mt_batch mt_model_batch(const struct mt_model *m, int64_t mb);
/* Place of micro-batch mb in a span, and its part of a boundary or of a block's routing. */
mt_view mt_model_boundary(const struct mt_model *m, int64_t layer,
                          int64_t mb); /* layer L: the last block's output */
mt_view mt_model_span_part(const struct mt_model *m, mt_view v, int64_t mb); /* of [span N, D] */
struct mt_route mt_model_route(const struct mt_model *m, int l, int64_t mb);
/* Token pairs of one head in a micro-batch whose sequences are single documents: an upper bound, for costs. */
int64_t mt_model_pairs(const struct mt_shape *s);

/* Passes over one block; the compute stream. */
void mt_block_forward(struct mt_rank *r, int l, mt_view x, mt_view y);
void mt_block_backward(struct mt_rank *r, int l, mt_view x, mt_view dx, mt_view dy);
/* Routed experts: the rounds of both directions (model/moe.c). */
void mt_moe_forward(struct mt_rank *r, int l, mt_view y);
void mt_moe_backward(struct mt_rank *r, int l, mt_view dy);

void mt_embed_forward(struct mt_rank *r, mt_view x);
/* Loss and its gradient by chunks of tokens; logits never exist whole. */
void mt_head_forward_backward(struct mt_rank *r, mt_view x, mt_view dx);
void mt_head_eval(struct mt_rank *r, mt_view x);
/* f32 logits [1, V] of one token of x into m->chunk_logits. */
void mt_head_logits(struct mt_rank *r, mt_view x, int64_t token);

/* Units (model/unit.c). gather: on the gather stream, the unit's weights for a pass, whole, and for backward also turned;
 * use and done on the compute stream, around the operations that read them. What a group of one has already, costs
 * nothing here. `after` is a throttle: until it, the bytes are somebody else's. grads_open zeroes the unit's whole gradients before backward writes them, reduce sums them over its group into
 * the shards, on the reduce stream; both are nothing for a group of one, whose gradients are the shards. */
void mt_unit_gather(struct mt_rank *r, int unit, enum mt_pass pass, mt_event after);
void mt_unit_use(struct mt_rank *r, int unit, enum mt_pass pass);
void mt_unit_done(struct mt_rank *r, int unit, enum mt_pass pass);
void mt_grads_open(struct mt_rank *r, int unit, mt_event after);
void mt_grads_reduce(struct mt_rank *r, int unit);
/* After the last micro-batch: every replica's shard gradients, summed in order on each. */
void mt_grads_sum_replicas(struct mt_rank *r);
/* No lease of an earlier step holds: at the start of a step. */
void mt_units_restart(struct mt_rank *r);

/* Start-up operations: the rope table; initial masters (seeded by name and element), router biases and moments 0. */
void mt_model_tables(struct mt_rank *r);
void mt_model_fill(struct mt_rank *r, uint64_t seed);
/* Masters -> working weights, after filling, loading or an optimizer step. */
void mt_model_pack(struct mt_rank *r);
/* Zeroes gradients and the accumulators of a step. */
void mt_model_zero(struct mt_rank *r);
#endif
