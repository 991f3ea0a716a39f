/* From scores of experts to chosen ones and gates, in f32, and back: a warp a token. The sort by expert is in sort.cu, the
 * products with the router's weight in products.cu. */
#include "mt_router.cuh"

namespace
{
constexpr int THREADS = MT_ROUTER_THREADS, TOKENS = MT_ROUTER_TOKENS;

/* Scores of groups of experts into g: the best choice of each, or the sum of its two best. Returns the last of the `limit` best
 * groups: those behind it are out. */
MT_DEVICE mt_pick last_group(float *g, const float *s, const float *bias, int64_t E,
                             const mt_scalars_router_topk &f, int lane)
{
    const int64_t n = E / f.groups;
    for (int64_t i = lane; i < f.groups; i += 32) {
        float best = -INFINITY, next = -INFINITY;
        for (int64_t e = i * n; e < (i + 1) * n; e++) {
            const float v = s[e] + bias[e];
            if (v > best) {
                next = best;
                best = v;
            } else if (v > next) {
                next = v;
            }
        }
        g[i] = f.best2 ? best + next : best;
    }
    __syncwarp();
    mt_pick p = {INFINITY, -1};
    for (int64_t k = 0; k < f.limit; k++)
        p = mt_next_pick([=](int64_t i) { return g[i]; }, f.groups, p, lane);
    return p;
}

__global__ void __launch_bounds__(THREADS) topk_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(router_topk, &c);
    const auto &f = *MT_SCALARS(router_topk, &c);
    MT_DYN_SMEM(float, all);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t E = MT_DIM(c, 'E'), K = MT_DIM(c, 'K'), n = (int64_t)blockIdx.x * TOKENS + warp;
    const float *bias = static_cast<const float *>(a.bias);
    if (n >= MT_DIM(c, 'N')) return;
    float *s = all + warp * (E + f.groups), *g = s + E, *gate = static_cast<float *>(a.gates) + n * c.ld[1];
    int32_t *ids = static_cast<int32_t *>(a.ids) + n * c.ld[0];
    mt_router_scores(s, static_cast<const float *>(a.logits) + n * c.ld[2], E, f.score, lane);
    int bad = 0;
    for (int64_t e = lane; e < E; e += 32) {
        const float v = s[e] + bias[e];
        bad |= !(v == v);
    }
    const bool numbers = !__any_sync(MT_WARP_ALL, bad);
    const int64_t of_group = E / f.groups;
    const mt_pick last = f.groups > 1 ? last_group(g, s, bias, E, f, lane) : mt_pick{-INFINITY, INT32_MAX};
    const auto choice = [=](int64_t e) {
        const int32_t i = (int32_t)(e / of_group);
        return f.groups > 1 && mt_before(last, mt_pick{g[i], i}) ? -INFINITY : s[e] + bias[e];
    };
    mt_pick p = {INFINITY, -1};
    double sum = 0;
    for (int64_t k = 0; k < K; k++) {
        if (f.forced)
            p.id = (int32_t)((n % f.forced * K + k) % E);
        else
            p = mt_next_pick(choice, E, p, lane);
        sum += (double)s[p.id];
        if (lane == 0) {
            ids[k] = p.id;
            gate[k] = s[p.id];
        }
    }
    const double factor = f.norm ? f.scale / (sum + 1e-20) : f.scale;
    for (int64_t k = 0; k < K && lane == 0; k++) gate[k] = numbers ? (float)((double)gate[k] * factor) : NAN;
}

/* Scores of the chosen, times any common factor, and d score / d logit over it. */
MT_DEVICE double chosen_score(double x, double top, int64_t score, double *slope)
{
    const double small = exp(-fabs(x));
    *slope = score ? (x > 0 ? small : 1) / (1 + small) : 1;
    return score ? (x > 0 ? 1 : small) / (1 + small) : exp(x - top);
}

/* Sigmoid scores, or gates divided by their sum: only the chosen have a gradient, and it takes only their scores. Each
 * lane has the chosen k, k + 32, ... */
MT_DEVICE void sparse_row(const mt_call &c, float *dl, const float *dg, const int32_t *ids,
                          const float *logits, int lane)
{
    const auto &f = *MT_SCALARS(router_bwd, &c);
    const int64_t K = MT_DIM(c, 'K');
    float top = -INFINITY;
    for (int64_t k = lane; k < K; k += 32) top = fmaxf(top, logits[ids[k]]);
    top = mt_warp_max(top);
    double sum = 0, mean = 0, slope;
    for (int64_t k = lane; k < K; k += 32) {
        const double s = chosen_score((double)logits[ids[k]], (double)top, f.score, &slope);
        sum += s;
        mean += (double)dg[k] * s;
    }
    sum = mt_warp_add(sum) + 1e-20;
    mean = mt_warp_add(mean) / sum;
    for (int64_t k = lane; k < K; k += 32) {
        const double s = chosen_score((double)logits[ids[k]], (double)top, f.score, &slope);
        dl[ids[k]] = (float)(f.scale * s * slope * (f.norm ? ((double)dg[k] - mean) / sum : (double)dg[k]));
    }
}
/* Softmax scores as they are: every logit has a gradient. */
MT_DEVICE void softmax_row(const mt_call &c, float *dl, const float *dg, const int32_t *ids,
                           const float *logits, float *p, int lane)
{
    const double scale = MT_SCALARS(router_bwd, &c)->scale;
    const int64_t E = MT_DIM(c, 'E'), K = MT_DIM(c, 'K');
    double dot = 0;
    mt_router_scores(p, logits, E, 0, lane);
    for (int64_t k = lane; k < K; k += 32) dot += scale * (double)dg[k] * (double)p[ids[k]];
    dot = mt_warp_add(dot);
    for (int64_t e = lane; e < E; e += 32) dl[e] = -p[e] * (float)dot;
    __syncwarp();
    for (int64_t k = lane; k < K; k += 32)
        dl[ids[k]] = (float)((double)p[ids[k]] * (scale * (double)dg[k] - dot));
}
__global__ void __launch_bounds__(THREADS) bwd_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(router_bwd, &c);
    const auto &f = *MT_SCALARS(router_bwd, &c);
    MT_DYN_SMEM(float, all);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t E = MT_DIM(c, 'E'), n = (int64_t)blockIdx.x * TOKENS + warp;
    if (n >= MT_DIM(c, 'N')) return;
    float *dl = static_cast<float *>(a.dlogits) + n * c.ld[0];
    const float *dg = static_cast<const float *>(a.dgates) + n * c.ld[1],
                *logits = static_cast<const float *>(a.logits) + n * c.ld[3];
    const int32_t *ids = static_cast<const int32_t *>(a.ids) + n * c.ld[2];
    if (!f.score && !f.norm) {
        softmax_row(c, dl, dg, ids, logits, all + warp * E, lane);
        return;
    }
    for (int64_t e = lane; e < E; e += 32) dl[e] = 0;
    __syncwarp();
    sparse_row(c, dl, dg, ids, logits, lane);
}

size_t smem_of(const mt_call *c, int64_t more)
{
    return (size_t)(TOKENS * (MT_DIM(*c, 'E') + more) * 4);
}
} // namespace

extern "C" cudaError_t mt_cuda_router_topk(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'N'), TOKENS);
    return grid ? MT_LAUNCH(topk_kernel, dim3(grid), dim3(THREADS),
                            smem_of(c, MT_SCALARS(router_topk, c)->groups), q->stream, *c)
                : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_router_bwd(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'N'), TOKENS);
    return grid ? MT_LAUNCH(bwd_kernel, dim3(grid), dim3(THREADS), smem_of(c, 0), q->stream, *c)
                : cudaSuccess;
}
