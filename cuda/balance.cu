/* What the router learns besides the loss: even loads, and logits that stay small: a warp a token. */
#include "mt_router.cuh"

namespace
{
constexpr int THREADS = MT_ROUTER_THREADS, TOKENS = MT_ROUTER_TOKENS;

__global__ void __launch_bounds__(THREADS) clear_kernel(MT_CALL c)
{
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (e < MT_DIM(c, 'E'))
        static_cast<int64_t *>(MT_ARGS(router_counts, &c)->counts)[blockIdx.y * c.ld[0] + e] = 0;
}
/* Whole numbers: their sum has no order. */
__global__ void __launch_bounds__(THREADS) count_kernel(MT_CALL c, int64_t run)
{
    const auto &a = *MT_ARGS(router_counts, &c);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t n = (int64_t)blockIdx.x * TOKENS + warp;
    if (n >= MT_DIM(c, 'N')) return;
    const float *logits = static_cast<const float *>(a.logits) + n * c.ld[1];
    int64_t *counts = static_cast<int64_t *>(a.counts) + n / run * c.ld[0];
    mt_pick p = {INFINITY, -1};
    for (int64_t k = 0; k < MT_SCALARS(router_counts, &c)->topk; k++) {
        p = mt_next_pick([=](int64_t e) { return logits[e]; }, MT_DIM(c, 'E'), p, lane);
        if (lane == 0) atomicAdd(reinterpret_cast<unsigned long long *>(counts + p.id), 1ull);
    }
}

/* With g_e = weight counts_e and L = sum_e g_e s'_e: of a softmax dL/dlogit_e = s'_e (g_e - L); of sigmoids s_e over their sum
 * ds_e/dlogit_e = s_e (1 - s_e), so that it is s'_e (1 - s_e) (g_e - L). */
__global__ void __launch_bounds__(THREADS) balance_kernel(MT_CALL c, int64_t run)
{
    const auto &a = *MT_ARGS(router_balance, &c);
    const auto &f = *MT_SCALARS(router_balance, &c);
    MT_DYN_SMEM(float, all);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t E = MT_DIM(c, 'E'), n = (int64_t)blockIdx.x * TOKENS + warp;
    if (n >= MT_DIM(c, 'N')) return;
    const int64_t *counts = static_cast<const int64_t *>(a.counts) + n / run * c.ld[3];
    float *s = all + warp * E, *dl = static_cast<float *>(a.dlogits) + n * c.ld[0];
    mt_router_scores(s, static_cast<const float *>(a.logits) + n * c.ld[2], E, f.score, lane);
    double sum = 0, dot = 0;
    for (int64_t e = lane; e < E; e += 32) {
        sum += (double)s[e];
        dot += (double)counts[e] * (double)s[e];
    }
    const double inv = f.score ? 1 / (mt_warp_add(sum) + 1e-20) : 1;
    dot = mt_warp_add(dot) * inv;
    if (lane == 0) static_cast<float *>(a.loss)[n] = (float)(f.weight * dot);
    for (int64_t e = lane; e < E; e += 32) {
        const double p = (double)s[e], slope = f.score ? p * inv * (1 - p) : p;
        dl[e] = (float)((double)dl[e] + f.factor * f.weight * slope * ((double)counts[e] - dot));
    }
}

/* With z = log sum_e exp logit_e: dz^2/dlogit_e = 2 z softmax_e. */
__global__ void __launch_bounds__(THREADS) z_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(router_z, &c);
    MT_DYN_SMEM(float, all);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t E = MT_DIM(c, 'E'), n = (int64_t)blockIdx.x * TOKENS + warp;
    if (n >= MT_DIM(c, 'N')) return;
    float *s = all + warp * E, *dl = static_cast<float *>(a.dlogits) + n * c.ld[0];
    const double z = mt_router_scores(s, static_cast<const float *>(a.logits) + n * c.ld[2], E, 0, lane);
    if (lane == 0) static_cast<float *>(a.loss)[n] = (float)(z * z);
    for (int64_t e = lane; e < E; e += 32)
        dl[e] = (float)((double)dl[e] + MT_SCALARS(router_z, &c)->factor * 2 * z * (double)s[e]);
}

size_t smem_of(const mt_call *c)
{
    return (size_t)(TOKENS * MT_DIM(*c, 'E') * 4);
}
int64_t run_of(const mt_call *c)
{
    return MT_DIM(*c, 'Q') ? MT_DIM(*c, 'N') / MT_DIM(*c, 'Q') : 0;
}
} // namespace

extern "C" cudaError_t mt_cuda_router_counts(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'N'), TOKENS), across = mt_blocks(MT_DIM(*c, 'E'), THREADS);
    if (!across || !MT_DIM(*c, 'Q')) return cudaSuccess;
    cudaError_t e =
        MT_LAUNCH(clear_kernel, dim3(across, (unsigned)MT_DIM(*c, 'Q')), dim3(THREADS), 0, q->stream, *c);
    if (!e && grid) e = MT_LAUNCH(count_kernel, dim3(grid), dim3(THREADS), 0, q->stream, *c, run_of(c));
    return e;
}
extern "C" cudaError_t mt_cuda_router_balance(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'N'), TOKENS);
    return grid ? MT_LAUNCH(balance_kernel, dim3(grid), dim3(THREADS), smem_of(c), q->stream, *c, run_of(c))
                : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_router_z(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'N'), TOKENS);
    return grid ? MT_LAUNCH(z_kernel, dim3(grid), dim3(THREADS), smem_of(c), q->stream, *c) : cudaSuccess;
}
