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
#include "model/rope.h"
#include "model/shape.h"
#include "shard/slots.h"

/* What blocks of experts learn besides the loss of the tokens. */
enum mt_aux { MT_AUX_SEQUENCE, MT_AUX_GLOBAL, MT_AUX_Z, MT_N_AUX };

/* What the model needs of the options besides its shape. */
struct mt_model_options {
    double eps, route_scale, init_std;
    double mtp_weight; /* of the mean loss of modules for further tokens, beside the model's own */
    struct mt_rope_form rope;
    mt_choice_score score;
    bool route_norm, inference;
    int64_t n_group, topk_group;
    mt_choice_group_score group_score;
    double aux[MT_N_AUX]; /* coefficients; 0: there is none */
    bool tops;            /* the largest score of each head is kept, for QK-clip */
    bool drop_by_gate;    /* of an expert's rows the largest gates stay, else the first */
    bool balanced;        /* experts in turn, whatever the router says */
    mt_dtype dtype;
    int64_t micro_batches;
    int64_t span; /* micro-batches that go through a block together: 1, or all of them */
    int64_t prefetch, keep_last, prefetch_memory, grads; /* see the options shard.* */
    struct mt_mesh mesh;
    struct mt_formats formats;
    struct mt_offload offload;
    const mt_shard_group *groups; /* n_groups of the option shard.groups; borrowed */
    int64_t n_groups;
    enum mt_kept kept_dense, kept_experts; /* see mt_unit; of blocks */
    bool host_dense, host_experts;         /* keep in host memory what several passes of a step gather */
    int rank;
    int64_t offloaded,
        offload_prefetch; /* the first so many layers keep what they save on the host; fetched so far ahead */
    uint32_t keeps;       /* classes of results to keep, bits by mt_choice_keep */
    bool keep_on_host;    /* of offloaded layers; else on the device */
    int64_t keep_memory;  /* bytes of results kept at most; 0: no bound */
};

/* Results of a block that may be kept from forward to backward instead of being computed again (mt_choice_keep): norms in front of
 * attention and feed-forward; queries, keys and values, rotated, with the compressed states they come from; attention and its log sums; the residual stream behind it; gate and
 * up of the dense or the shared feed-forward, and what SwiGLU makes of them; the router's logits; rows that came to the experts
 * here, their gate and up, and SwiGLU of those. Of routed rows those of the first dispatch round are kept: further ones, which a
 * load beyond moe.buffer_factor takes, are sent and computed again. */
enum { MT_N_KEEPS = MT_KEEP_EXPERT_ACT + 1, MT_KEEP_NEVER = MT_N_KEEPS };

/* clang-format off */
/* Buffers inside a layer: recomputed in backward and shared by all layers, but for those whose result the layer keeps.
 * ACT(name, keep, dtype, dims): T the working dtype; a dimension that is 0 leaves the buffer out. Those marked PAD have rows
 * lengthened where their length would make strides that a cpu's caches dislike (device/target.h). */
#define MT_LAYER_BUFFERS(ACT, PAD)                                                             \
    PAD(n1, ATTN_NORM, N, D) ACT(rstd1, ATTN_NORM, F32, N, 0)                                  \
    ACT(cq, QKV, T, N * !!Cq, Cq) PAD(cqn, QKV, N, Cq) ACT(rstdcq, QKV, F32, N * !!Cq, 0)      \
    ACT(ckv, QKV, T, N * mla, Ck) PAD(ckvn, QKV, N, Ck) ACT(rstdckv, QKV, F32, N * mla, 0)     \
    ACT(kr, NEVER, T, N * mla, R) ACT(kc, NEVER, T, N * mla, H * (A - R))                      \
    ACT(q, QKV, T, N, H * A) ACT(k, QKV, T, N, G * A) ACT(v, QKV, T, N, G * B)                 \
    ACT(qn, QKV, T, qk * N, H * A) ACT(kn, QKV, T, qk * N, G * A)                              \
    ACT(rstdq, QKV, F32, qk * N * H, 0) ACT(rstdk, QKV, F32, qk * N * G, 0)                    \
    ACT(o, ATTENTION, T, N, H * B) ACT(lse, ATTENTION, F32, H, N) ACT(tops, NEVER, F32, H * tops, N) ACT(h, ATTN_OUT, T, N, D)    \
    PAD(n2, FFN_NORM, N, D) ACT(rstd2, FFN_NORM, F32, N, 0)                                    \
    PAD(u, FFN_UP, N, 2 * Fd * dense) PAD(s, FFN_ACT, N, Fd * dense)                           \
    PAD(us, FFN_UP, N, 2 * Fs * moe) PAD(ss, FFN_ACT, N, Fs * moe) ACT(hs, NEVER, T, N * shared, D) \
    ACT(logits, ROUTER, F32, N * moe, E)                                                       \
    PAD(xs, DISPATCH, C, D) PAD(ux, EXPERT_UP, C, 2 * F) PAD(sx, EXPERT_ACT, C, F) ACT(ret, NEVER, T, M, D) \
    ACT(kept, NEVER, I32, N * drop, K) ACT(asked, NEVER, I32, E * drop, 0) \
    ACT(send, NEVER, T, far * M, D) ACT(recv, NEVER, T, far * C, D) ACT(ye, NEVER, T, far * C, D) ACT(back, NEVER, T, far * C, D)
#define MT_BACKWARD_BUFFERS(ACT, PAD)                                                          \
    PAD(dh, NEVER, N, D) PAD(dn2, NEVER, N, D) PAD(dn2s, NEVER, N * shared, D) PAD(dn1, NEVER, N, D) PAD(dn1b, NEVER, N, D)       \
    PAD(du, NEVER, N, 2 * Fd * dense) PAD(ds, NEVER, N, Fd * dense) PAD(dus, NEVER, N, 2 * Fs * moe) PAD(dss, NEVER, N, Fs * moe) \
    PAD(dys, NEVER, C, D) PAD(dux, NEVER, C, 2 * F) PAD(dsx, NEVER, C, F) ACT(dret, NEVER, T, M, D)                    \
    ACT(dsend, NEVER, T, far * M, D) ACT(gate_send, NEVER, F32, far * M, 0) ACT(gate_recv, NEVER, F32, far * C, 1) ACT(gate_xe, NEVER, F32, far * C, 1) \
    ACT(dgate_xe, NEVER, F32, far * C, 1) ACT(dgate_back, NEVER, F32, far * C, 1)                        \
    ACT(dgate, NEVER, F32, M, 0) ACT(aux, NEVER, F32, N * aux, 0) ACT(dgates, NEVER, F32, N * moe, K) ACT(dlogits, NEVER, F32, N * moe, E)                   \
    ACT(dout, NEVER, T, N, H * B) ACT(dq, NEVER, T, N, H * A) ACT(dk, NEVER, T, N, G * A) ACT(dv, NEVER, T, N, G * B)      \
    ACT(dqn, NEVER, T, qk * N, H * A) ACT(dkn, NEVER, T, qk * N, G * A) ACT(delta, NEVER, F32, H, N)                \
    PAD(dcq, NEVER, N, Cq) PAD(dcqn, NEVER, N, Cq) PAD(dckv, NEVER, N, Ck) PAD(dckvn, NEVER, N, Ck) PAD(dckvnb, NEVER, N, Ck) \
    ACT(dkr, NEVER, T, N * mla, R) ACT(dkc, NEVER, T, N * mla, H * (A - R))                                         \
    ACT(gaincq, NEVER, F32, MT_NORM_BLOCKS * !!Cq, Cq) ACT(gainckv, NEVER, F32, MT_NORM_BLOCKS * mla, Ck)           \
    ACT(gain, NEVER, F32, MT_NORM_BLOCKS, D) ACT(gainq, NEVER, F32, qk * MT_NORM_BLOCKS, A) ACT(gaink, NEVER, F32, qk * MT_NORM_BLOCKS, A) \
    ACT(dxa, NEVER, T, span * N, D) ACT(dxb, NEVER, T, span * N, D)

/* clang-format on */

struct mt_buffers {
#define ACT(name, keep, t, d0, d1) mt_view name;
#define PAD(name, keep, d0, d1) mt_view name;
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
    /* For the balance losses, tokens that score an expert among their K best: of each sequence [N / S, E]; of this rank's
     * micro-batch [1, E]; of all ranks' and the step's micro-batches up to this one [1, E] */
    mt_view chosen, local, total;
};

/* What a layer keeps for backward: where forward writes it; where backward reads it; and where it is in between: on the host, if
 * it is offloaded, else forward and backward have one place. */
struct mt_saved {
    mt_view at[MT_N_PASSES], host;
    size_t slot;  /* of a result: its view in struct mt_buffers */
    int64_t rows; /* of dim 0, a micro-batch */
};
enum { MT_MAX_SAVED = 24 };

struct mt_layer {
    union mt_weights w[MT_N_PASSES], t,
        g;             /* working weights of a pass, the same turned for backward, gradients */
    struct mt_saved x; /* [span N, D] input of the block: what full recomputation keeps */
    struct mt_saved kept[MT_MAX_SAVED]; /* results, n_kept of them: those of the classes in `keeps` */
    int n_kept;
    uint32_t keeps; /* bits by mt_choice_keep */
    bool offloaded;
    struct mt_route route; /* of all micro-batches of a span, one behind the other */
    mt_view bias, load;    /* [E] selection bias; [E] counts over the optimizer step */
    mt_view so_far;        /* [E] sum of `local` over ranks and the step's micro-batches */
    int unit, experts;     /* indices in the store; experts -1: dense block */
};
struct mt_batch {
    mt_view tokens, labels, begin, pos; /* [N] */
    mt_view
        near; /* [N], on the device: where attention begins in layers with a window; MT_NONE: there are none */
};

/* Multi-token prediction (model/mtp.c). What there is for a depth k: 0, the model itself, or a module, 1 to shape.mtp. */
enum { MT_MAX_DEPTHS = 5 };
struct mt_depth {
    mt_view x; /* [span N, D] output of its last block */
    mt_view h,
        rstd; /* [span N, D], [span N] the same normed, which the head and the next module see; the last depth has none */
    mt_view e, de; /* [span N, D] of a module: embeddings of the tokens k further, and their gradient */
};
struct mt_mtp {
    mt_view tokens, labels; /* [mtp micro_batches N] module by module: the token k further, and its label */
    mt_view host_tokens, host_labels; /* the same in host memory */
    mt_view eh, deh, rstd_e,
        rstd_h; /* [N, 2 D] both inputs of a module's projection, normed, side by side; [N] */
    mt_view dh; /* [span N, D] gradient of what a module got from the depth in front of it */
};

struct mt_model {
    struct mt_shape shape;
    struct mt_model_options opt;
    struct mt_store store;
    struct mt_layer *layer;                /* owned: L of them */
    union mt_weights w[MT_N_PASSES], t, g; /* embedding, final norm, head */
    mt_view head_nt, head_nn;              /* tied: the embedding in the head's formats */
    struct mt_depth depth[MT_MAX_DEPTHS];  /* shape.mtp + 1 of them */
    struct mt_mtp mtp;                     /* all MT_NONE without modules */
    int64_t prefetch;                      /* blocks gathered ahead, within the memory bound */
    mt_view rope;
    struct mt_batch host, device; /* all micro-batches: [micro_batches N] */
    struct mt_buffers b;
    mt_view hn, rstdf, dhn, chunk_logits, chunk_dlogits, chunk_loss;
    mt_view loss, loss_all, loss_sum; /* f64, of each depth: this rank's sum, every rank's, the total */
    mt_view aux, aux_all, aux_sum;    /* f64 [MT_N_AUX], likewise: each without its coefficient */
    mt_view top, top_all,
        top_most; /* f32 [L, H], [world, L H], [L, H], likewise: largest scores of the step; or MT_NONE */
    mt_view top_one,
        top_host;       /* f32 [1] the largest of all; top_most in host memory, if its arithmetic needs it */
    mt_view chosen_all; /* i64 [world, E]: every rank's `local` */
    mt_view valid, valid_all, valid_sum; /* i64, likewise: labels that count */
    mt_view load_all, load_sum;          /* i64 [world, E], [E]: rows an expert got, over all ranks */
    mt_view
        sumsq; /* i64 [2, words]: exact sums of squares of accumulators in host memory, by the stream that adds to them:
                      compute, reduce; MT_NONE: there are none */
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
/* Makes the model that of another rank: what a dry run does to record all ranks from one description. */
void mt_model_turn(struct mt_model *m, int rank);

/* One rank at work on a model: what its host code needs besides the views. */
/* Called by a rank's host code with numbers of model/touch.h; it may wait. NULL: nobody is told. */
struct mt_touching {
    void (*before)(void *arg, int what);
    void *arg;
};
struct mt_rank {
    struct mt_touching touch; /* of its state, by the optimizer step */
    struct mt_ctx *ctx;
    const struct mt_model *m;
    int32_t *counts;   /* [micro_batches, L, E] as read back */
    int force_rounds;  /* recording: this many dispatch rounds everywhere; 0: as many as the counts ask for */
    int64_t mb;        /* micro-batch being enqueued */
    bool train;        /* a pass that backward will follow */
    mt_event *counted; /* [L] a block's `total` is there */
    struct mt_lease *weights[MT_N_PASSES]; /* a unit each: its gathered, and in backward turned, weights */
    int64_t *sums; /* a unit each: how often its accumulators were added to in this step */
    struct mt_slots slots;
    mt_event *host;         /* a unit each: what this step fetched is in host memory; seq 0: it is not */
    mt_event host_passed;   /* the last of these of a unit that has been used */
    bool again;             /* this step comes to every unit more than once */
    struct mt_lease *grads; /* a unit each: its whole gradients, until they are reduced */
    struct mt_buffers b;    /* of the block, pass and micro-batch being enqueued */
    mt_event *done;  /* [L + 1] a block's, and last the head's, operations of the present pass are enqueued */
    mt_event passed; /* forward has come to the end of a block, or of the embedding */
    mt_event *saved, *kept,
        *fetched; /* [L] an offloaded layer's copies to the host, of input and results, and back */
};
mt_status mt_rank_init(struct mt_rank *r, struct mt_ctx *ctx, const struct mt_model *m, mt_err *e);
void mt_rank_release(struct mt_rank *r);

/* Rows that this rank sent to each expert [E] in a micro-batch and block, as read back. */
const int32_t *mt_rank_counts(const struct mt_rank *r, int64_t mb, int l);
/* The part of the batch that micro-batch mb is. */
struct mt_batch mt_model_batch(const struct mt_model *m, int64_t mb);
/* Place of micro-batch mb in a span, and its part of a boundary or of a block's routing. */
mt_view mt_model_boundary(const struct mt_model *m, int64_t layer, enum mt_pass pass, int64_t mb);
mt_view mt_model_output(const struct mt_model *m, int64_t layer, int64_t mb); /* in forward */
mt_view mt_model_span_part(const struct mt_model *m, mt_view v, int64_t mb);  /* of [span N, D] */
struct mt_route mt_model_route(const struct mt_model *m, int l, int64_t mb);
/* Of the first `micro` micro-batches: `near` from `begin`. Nothing to do without a window. */
void mt_model_windows(struct mt_rank *r, int64_t micro);
/* Token pairs of one head of layer l in a micro-batch whose sequences are single documents: an upper bound, for costs. */
int64_t mt_model_pairs(const struct mt_shape *s, int64_t l);

/* Passes over one block; the compute stream. */
void mt_block_forward(struct mt_rank *r, int l, mt_view x, mt_view y);
void mt_block_backward(struct mt_rank *r, int l, mt_view x, mt_view dx, mt_view dy);
/* Multi-head latent attention (model/mla.c): n1 -> q, k, v; dq, dk, dv -> dn1. */
void mt_mla_forward(struct mt_rank *r, int l, enum mt_pass pass);
void mt_mla_backward(struct mt_rank *r, int l);
/* Routed experts: the rounds of both directions (model/moe.c). */
void mt_moe_forward(struct mt_rank *r, int l, mt_view y);
void mt_moe_backward(struct mt_rank *r, int l, mt_view dy);
/* What a block's router learns besides (model/aux.c): behind its logits, in forward; with its gradient, in backward, from
 * b.logits into b.dlogits. sum: over the ranks, after the last micro-batch. */
bool mt_aux_any(const struct mt_model *m);
void mt_aux_forward(struct mt_rank *r, int l);
void mt_aux_backward(struct mt_rank *r, int l);
void mt_aux_sum(struct mt_rank *r);

void mt_embed_forward(struct mt_rank *r, mt_view x);
/* Loss of a depth and its gradient dx with regard to what its last block gave, by chunks of tokens; logits never exist whole. */
void mt_head_forward_backward(struct mt_rank *r, int depth, mt_view dx);
void mt_head_eval(struct mt_rank *r, mt_view x);
/* f32 logits [1, V] of one token of x into m->chunk_logits. */
void mt_head_logits(struct mt_rank *r, mt_view x, int64_t token);

/* Modules for further tokens. On the host, before a step: their tokens and labels, from the batch of the ctx's rank. */
void mt_mtp_batch(const struct mt_ctx *c, const struct mt_model *m);
/* The depth whose block a layer is; 0: it is one of the model's own. */
static inline int mt_depth_of(const struct mt_shape *s, int64_t layer)
{
    return mt_is_mtp(s, layer) ? (int)(layer - mt_own_layers(s) + 1) : 0;
}
/* Rows of all depths, in place of what inference has none of. */
void mt_mtp_rows(struct mt_model *m, struct mt_ledger *g);
/* Those tokens onto the device, on the h2d stream. */
void mt_mtp_batch_in(struct mt_rank *r);
/* For one micro-batch, r->mb, on the compute stream: embeddings of all modules, and their gradients added to the embedding's; a
 * depth's output, normed, for the next one; from there to the input of a module's block, and back, dx being its gradient. */
void mt_mtp_embed_forward(struct mt_rank *r);
void mt_mtp_embed_backward(struct mt_rank *r);
void mt_mtp_norm(struct mt_rank *r, int depth, enum mt_pass pass);
void mt_mtp_forward(struct mt_rank *r, int depth);
void mt_mtp_backward(struct mt_rank *r, int depth, mt_view dx);
/* A depth's labels, and the gain of the norm in front of the head with its gradient; r->mb. */
mt_view mt_mtp_labels(const struct mt_rank *r, int depth);
mt_view mt_mtp_gain(const struct mt_model *m, int depth, enum mt_pass pass);
mt_view mt_mtp_gain_grad(const struct mt_model *m, int depth);

/* What a layer saves (model/keep.c), if it is offloaded, for all micro-batches of a span. save_input: in front of block l, its input
 * goes to the host; what layers far enough behind saved has gone, and their bytes are free. save_kept: behind it, what it keeps
 * goes. fetch: back, not before `after`, which is a throttle; use: backward may read it. */
void mt_layer_save_input(struct mt_rank *r, int l);
void mt_layer_save_kept(struct mt_rank *r, int l);
void mt_layer_fetch(struct mt_rank *r, int l, mt_event after);
void mt_layer_use(struct mt_rank *r, int l);
/* Sets r->b for a block, in a pass over micro-batch r->mb. */
void mt_block_buffers(struct mt_rank *r, int l, enum mt_pass pass);
/* Whether the pass computes a class of results; backward has those that were kept. */
static inline bool mt_computes(const struct mt_rank *r, int l, enum mt_pass pass, int keep)
{
    return pass == MT_FORWARD || !(r->m->layer[l].keeps >> keep & 1);
}
/* Whether some layer keeps results of the first dispatch round. */
bool mt_keeps_rounds(const struct mt_model *m);
/* Chooses for each layer what it keeps: of the classes asked for, within the bound, what saves most time a byte first. */
void mt_keeps_choose(struct mt_model *m);

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
/* Accumulators in host memory (model/accumulate.c). Of a unit that a group of one has: open and close are what mt_grads_open and
 * mt_grads_reduce do; false: it has a larger group. */
bool mt_grads_open_home(struct mt_rank *r, int unit, mt_event after);
bool mt_grads_close_home(struct mt_rank *r, int unit);
/* A bucket's accumulators where stream s may add to them: zeroes to begin with, or what has been summed so far, copied in once
 * `after` is over; MT_NONE: this rank has none. Those that live on the device are simply there. */
mt_view mt_accumulator_in(struct mt_rank *r, struct mt_stream *s, int bucket, bool begin, mt_event after);
/* When they have their final values, `last`, what leaves for host memory is added to the norm in passing. */
void mt_accumulator_norm(struct mt_rank *r, struct mt_stream *s, int bucket, mt_view acc, bool last);
/* Whether a unit's next sum is its last of the step: over micro-batches, and over replicas if there are any. */
bool mt_accumulator_is_last(const struct mt_rank *r, int unit);
/* Back to where they live, on the d2h stream, which has waited for the sums. */
void mt_accumulator_out(struct mt_rank *r, int bucket);
/* No lease of an earlier step holds, and what is in host memory counts no more: at the start of a step. again: it comes to
 * every unit more than once. */
void mt_units_restart(struct mt_rank *r, bool again);

/* Start-up operations: the rope table; initial masters (seeded by name and element), router biases and moments 0. */
void mt_model_tables(struct mt_rank *r);
void mt_model_fill(struct mt_rank *r, uint64_t seed);
/* Masters -> working weights, after filling or loading. After an optimizer step: of masters in device memory; strips of the others
 * were packed in passing. */
void mt_model_pack(struct mt_rank *r);
void mt_model_pack_rest(struct mt_rank *r);
/* Ends a slot's use, in which the states `out` were changed. With the master in host memory, the strip is packed first. */
void mt_strip_end(struct mt_rank *r, const struct mt_strip *p, const struct mt_slot *slot, unsigned out);
/* Zeroes gradients and the accumulators of a step. */
void mt_model_zero(struct mt_rank *r);
#endif
