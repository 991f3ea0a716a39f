/* mt_router.cuh: scores of experts and the choice among them: a warp a token. */
#ifndef MT_ROUTER_CUH
#define MT_ROUTER_CUH
#include "mt_kernel.cuh"

constexpr int MT_ROUTER_THREADS = 128, MT_ROUTER_TOKENS = MT_ROUTER_THREADS / 32;

/* A warp's share of a token's scores lies in shared memory, [TOKENS][E] f32. score: 0 softmax over all experts, 1
 * sigmoid. Returns, of a softmax, log sum exp of the logits, else 0. */
MT_DEVICE double mt_router_scores(float *s, const float *logits, int64_t E, int64_t score, int lane)
{
    if (score) {
        for (int64_t e = lane; e < E; e += 32) s[e] = mt_sigmoid(logits[e]);
        __syncwarp();
        return 0;
    }
    float top = -INFINITY;
    for (int64_t e = lane; e < E; e += 32) top = fmaxf(top, logits[e]);
    top = mt_warp_max(top);
    double sum = 0;
    for (int64_t e = lane; e < E; e += 32) {
        s[e] = expf(logits[e] - top);
        sum += (double)s[e];
    }
    sum = mt_warp_add(sum);
    const float inv = (float)(1 / sum);
    for (int64_t e = lane; e < E; e += 32) s[e] *= inv;
    __syncwarp();
    return (double)top + log(sum);
}

struct mt_pick {
    float value;
    int32_t id;
};
/* Whether a comes before b: the larger one, of equal ones the lower id. */
MT_DEVICE bool mt_before(mt_pick a, mt_pick b)
{
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}
/* The first of n values that come after `last`. A NaN counts as the least, so that ids are valid in any case. */
template <class F> MT_DEVICE mt_pick mt_next_pick(F value, int64_t n, mt_pick last, int lane)
{
    mt_pick best = {-INFINITY, INT32_MAX};
    for (int64_t e = lane; e < n; e += 32) {
        const float v = value(e);
        const mt_pick p = {v == v ? v : -INFINITY, (int32_t)e};
        if (mt_before(last, p) && mt_before(p, best)) best = p;
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const mt_pick other = {__shfl_xor_sync(MT_WARP_ALL, best.value, o),
                               __shfl_xor_sync(MT_WARP_ALL, best.id, o)};
        if (mt_before(other, best)) best = other;
    }
    return best;
}
#endif
