#include "documents.h"

#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 1024;

/* A block; each thread has a stretch of tokens, one behind the other. */
__global__ void __launch_bounds__(THREADS) documents_kernel(const __grid_constant__ mt_documents d)
{
    MT_SHARED(before, int[THREADS]);
    MT_SHARED(bad, int);
    const int t = (int)threadIdx.x;
    const int64_t each = (d.n + THREADS - 1) / THREADS, from = t * each,
                  to = from + each < d.n ? from + each : d.n;
    int mine = 0;
    bool wide = false;
    if (t == 0) bad = 0;
    for (int64_t i = from; i < to; i++) {
        mine += d.begin[i] == i;
        wide |= i - d.begin[i] >= d.rows || d.begin[d.begin[i]] != d.begin[i];
    }
    before[t] = mine;
    __syncthreads();
    if (wide) atomicMax(&bad, 1);
    for (int o = 1; o < THREADS; o *= 2) { /* sums of all up to this one */
        const int add = t >= o ? before[t - o] : 0;
        __syncthreads();
        before[t] += add;
        __syncthreads();
    }
    const int count = before[THREADS - 1];
    const bool fit = count <= d.room && !bad;
    if (t == 0) *d.fit = fit;
    for (int64_t k = fit ? count + t : t; k <= d.room; k += THREADS)
        for (int l = 0; l < d.lists; l++) d.first[l][k] = (int32_t)(fit ? d.n * d.times[l] : 0);
    if (fit) {
        int k = before[t] - mine;
        for (int64_t i = from; i < to; i++) {
            if (d.begin[i] != i) continue;
            for (int l = 0; l < d.lists; l++) d.first[l][k] = (int32_t)(i * d.times[l]);
            k++;
        }
    }
    __syncthreads();
    for (int64_t k = t; k < d.room; k += THREADS) {
        const int32_t length = fit ? (d.first[0][k + 1] - d.first[0][k]) / d.times[0] : 0;
        d.length[0][k] = d.length[1][k] = length;
    }
}
} // namespace

extern "C" cudaError_t mt_cuda_documents(const mt_documents *d, cudaStream_t s)
{
    return MT_LAUNCH(documents_kernel, dim3(1), dim3(THREADS), 0, s, *d);
}
