/* kernels.h: C interface of the CUDA kernels: for an op of the table (src/device/op.def), mt_cuda_<op> enqueues it.
 *
 * Pointers of the call are device memory; nothing is synchronised; a call of no elements launches nothing. Sums run in
 * an order that shapes and the lane's scratch size alone decide. */
#ifndef MT_CUDA_KERNELS_H
#define MT_CUDA_KERNELS_H
#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/dtype.h"
#include "device/call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a kernel runs. */
struct mt_cuda_lane {
    cudaStream_t stream;
    void *scratch; /* device memory, aligned to 256 bytes; contents free before and after */
    size_t scratch_bytes;
};

/* Ops that are kernels of their own and nothing else. */
#define MT_CUDA_KERNELS(X) \
    X(fill_f32)            \
    X(weight_cast)         \
    X(weight_pack)         \
    X(grad_cast)           \
    X(fp8_pack)            \
    X(fp8_unpack)          \
    X(embed_fwd)           \
    X(embed_bwd)           \
    X(rmsnorm_fwd)         \
    X(rmsnorm_bwd)         \
    X(sum_rows)            \
    X(bias_bwd)            \
    X(rope_table)          \
    X(rope)                \
    X(swiglu_fwd)          \
    X(swiglu_bwd)          \
    X(expert_swiglu_fwd)   \
    X(expert_swiglu_bwd)   \
    X(router_logits)       \
    X(router_topk)         \
    X(route_drop)          \
    X(route_sort)          \
    X(counts_add)          \
    X(router_bwd)          \
    X(router_bwdx)         \
    X(router_bwdw)         \
    X(router_counts)       \
    X(counts_total)        \
    X(router_balance)      \
    X(router_z)            \
    X(bias_update)         \
    X(gather_rows)         \
    X(gather_gates)        \
    X(combine_fwd)         \
    X(combine_bwd)         \
    X(expert_counts)       \
    X(expert_sort)         \
    X(expert_unsort)       \
    X(grouped_fwd)         \
    X(grouped_fwd_into)    \
    X(grouped_bwdx)        \
    X(grouped_bwdx_into)   \
    X(grouped_bwdw)        \
    X(count_valid)         \
    X(xent)                \
    X(xent_eval)           \
    X(sum_loss)            \
    X(sum_parts_f64)       \
    X(sum_parts_i64)       \
    X(sum_pieces)          \
    X(sumsq)               \
    X(clip)                \
    X(adamw)               \
    X(muon_momentum)       \
    X(newton_schulz)       \
    X(muon_apply)          \
    X(init_normal)         \
    X(turn_left)           \
    X(turn_right)          \
    X(gram_left)           \
    X(gram_right)          \
    X(soap_moment)         \
    X(soap_adam)           \
    X(eigen_basis)         \
    X(graft)               \
    X(key_join)            \
    X(key_split)           \
    X(window_begin)        \
    X(attention_fwd_top)   \
    X(max_rows)            \
    X(max_parts)           \
    X(qk_clip)

/* Those that a library may have done: scalar MT_ATTENTION_DONE of their calls is 0, or the address of an int32 in device memory that
 * is 1 if there is nothing left to do. */
#define MT_CUDA_ATTENTION(X) X(attention_fwd) X(attention_bwd)
enum { MT_ATTENTION_DONE = 2 };

#define MT_CUDA_DECLARE(name) \
    cudaError_t mt_cuda_##name(const struct mt_call *c, const struct mt_cuda_lane *q);
MT_CUDA_KERNELS(MT_CUDA_DECLARE)
MT_CUDA_ATTENTION(MT_CUDA_DECLARE)
#undef MT_CUDA_DECLARE

/* y [n] bf16 = x [n] f32, rounded to nearest even. */
cudaError_t mt_cuda_to_bf16(void *y, const float *x, int64_t n, cudaStream_t s);

#ifdef __cplusplus
}
#endif
#endif
