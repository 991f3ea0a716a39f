/* router.h: scores of experts and the choice among them, for kernels of the router. */
#ifndef MT_DEVICE_CPU_ROUTER_H
#define MT_DEVICE_CPU_ROUTER_H
#include <math.h>

#include "device/cpu/vec.h"

/* score: 0 softmax over all experts, 1 sigmoid. Returns, of a softmax, log sum exp of the logits, else 0. */
MT_VEC_INLINE double mt_router_scores(float *s, const float *logits, int64_t E, int64_t score)
{
    if (score) {
        for (int64_t e = 0; e < E; e++) s[e] = mt_vec_sigmoid(logits[e]);
        return 0;
    }
    float top = mt_vec_max(logits, E);
    for (int64_t e = 0; e < E; e++) s[e] = mt_vec_exp(logits[e] - top);
    double sum = 0;
    for (int64_t e = 0; e < E; e += MT_CHUNK) sum += (double)mt_vec_sum(s + e, mt_min64(MT_CHUNK, E - e));
    float inv = (float)(1 / sum);
    for (int64_t e = 0; e < E; e++) s[e] *= inv;
    return (double)top + log(sum);
}

/* ids of the K largest, largest first, ties by id; a NaN is never the largest. ids are valid in any case. */
static inline void mt_router_choose(int32_t *ids, const float *choice, int64_t E, int64_t K)
{
    for (int64_t e = 0; e < E; e++) {
        float v = choice[e];
        int64_t k = e < K ? e : K;
        if (e >= K && !(v > choice[ids[K - 1]])) continue;
        if (k == K) k--;
        for (; k > 0 && v > choice[ids[k - 1]]; k--) ids[k] = ids[k - 1];
        ids[k] = (int32_t)e;
    }
}
#endif
