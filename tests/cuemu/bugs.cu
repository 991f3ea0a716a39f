/* Kernels with one fault each, to show what the emulator finds.  Test use only. */
#include "bugs.h"
#include "mt_cuda.cuh"

namespace
{
/* Ring shift within a block through shared memory; correct in GOOD. */
enum { GOOD, NO_SYNC, NO_SECOND_SYNC, OOB_STATIC, UNINIT };
template <int BUG> __global__ void shift_kernel(float *x, int rounds)
{
    MT_SHARED(s, float[128]);
    const int t = (int)threadIdx.x, g = (int)(blockIdx.x * blockDim.x) + t;
    float v = x[g];
    for (int r = 0; r < rounds; r++) {
        if (BUG != UNINIT || t != 5) s[BUG == OOB_STATIC && t == 127 ? 128 : t] = v;
        if (BUG != NO_SYNC) __syncthreads();
        v = s[(t + 1) % 128];
        if (BUG != NO_SECOND_SYNC && BUG != NO_SYNC) __syncthreads();
    }
    x[g] = v;
}
/* The same within a warp. */
template <bool SYNC> __global__ void warp_shift_kernel(float *x)
{
    MT_SHARED(s, float[128]);
    const int t = (int)threadIdx.x, g = (int)(blockIdx.x * blockDim.x) + t;
    s[t] = x[g];
    if (SYNC) __syncwarp();
    x[g] = s[t / 32 * 32 + (t + 1) % 32];
}
__global__ void divergent_kernel(float *x)
{
    if (threadIdx.x < 64) {
        x[threadIdx.x] += 0.f;
        __syncthreads();
    } else
        __syncthreads();
}
__global__ void exited_kernel(float *x)
{
    if (threadIdx.x >= 100) return;
    x[threadIdx.x] += 0.f;
    __syncthreads();
}
__global__ void half_warp_kernel(float *x)
{
    if (threadIdx.x % 32 < 16) x[threadIdx.x] += 0.f * __shfl_xor_sync(MT_WARP_ALL, 1.f, 1);
    __syncthreads();
}
__global__ void oob_global_kernel(float *x, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i <= n) x[i] += 0.f;
}
__global__ void oob_dyn_kernel(float *x, int n)
{
    MT_DYN_SMEM(float, s);
    s[threadIdx.x + (threadIdx.x == 127 ? (unsigned)n - 127 : 0)] = 1.f;
    __syncthreads();
    x[threadIdx.x] += 0.f * s[0];
}
template <bool WAIT> __global__ void async_kernel(float *x)
{
    MT_DYN_SMEM(float, s);
    const int t = (int)threadIdx.x;
    if (t < 32) mt_cp_async16(s + t * 4, x + t * 4);
    mt_cp_async_commit();
    if (WAIT) mt_cp_async_wait<0>();
    __syncthreads();
    x[t] = s[(t + 1) % 128];
}
__global__ void block_race_kernel(float *x, float *out)
{
    if (threadIdx.x == 0) out[0] = x[0] * 0.f; /* every block, no atomic */
}
/* The last block to finish sums what all wrote. */
template <bool FENCE>
__global__ void last_block_kernel(const float *x, float *part, unsigned *count, float *out)
{
    MT_SHARED(last, bool);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = x[blockIdx.x];
        if (FENCE) __threadfence();
        last = atomicAdd(count, 1u) == gridDim.x - 1;
        if (FENCE) __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x == 1) {
        float s = 0;
        for (unsigned i = 0; i < gridDim.x; i++) s += part[i];
        *out = s;
    }
}
__global__ void misaligned_kernel(float *x)
{
    float4 v = *reinterpret_cast<float4 *>(x + 1);
    if (threadIdx.x == 0) x[0] += 0.f * v.x;
}
__global__ void scale_kernel(float *y, const float *x, float a, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = a * x[i];
}
} // namespace

extern "C" cudaError_t bug_kernel(int which, float *x, float *aux, unsigned *count, int n, cudaStream_t s)
{
    dim3 g(2), b(128);
    switch (which) {
    case BUG_NONE: return MT_LAUNCH(shift_kernel<GOOD>, g, b, 0, s, x, 1);
    case BUG_NO_SYNC: return MT_LAUNCH(shift_kernel<NO_SYNC>, g, b, 0, s, x, 1);
    case BUG_NO_SECOND_SYNC: return MT_LAUNCH(shift_kernel<NO_SECOND_SYNC>, g, b, 0, s, x, 3);
    case BUG_NO_SYNCWARP: return MT_LAUNCH(warp_shift_kernel<false>, g, b, 0, s, x);
    case BUG_NONE_WARP: return MT_LAUNCH(warp_shift_kernel<true>, g, b, 0, s, x);
    case BUG_DIVERGENT: return MT_LAUNCH(divergent_kernel, dim3(1), b, 0, s, x);
    case BUG_EXITED: return MT_LAUNCH(exited_kernel, dim3(1), b, 0, s, x);
    case BUG_HALF_WARP: return MT_LAUNCH(half_warp_kernel, dim3(1), b, 0, s, x);
    case BUG_OOB_GLOBAL: return MT_LAUNCH(oob_global_kernel, dim3(3), b, 0, s, x, n);
    case BUG_OOB_STATIC: return MT_LAUNCH(shift_kernel<OOB_STATIC>, g, b, 0, s, x, 1);
    case BUG_OOB_DYN: return MT_LAUNCH(oob_dyn_kernel, dim3(1), b, 128 * 4, s, x, 128);
    case BUG_UNINIT: return MT_LAUNCH(shift_kernel<UNINIT>, g, b, 0, s, x, 1);
    case BUG_NO_WAIT: return MT_LAUNCH(async_kernel<false>, dim3(1), b, 512, s, x);
    case BUG_NONE_ASYNC: return MT_LAUNCH(async_kernel<true>, dim3(1), b, 512, s, x);
    case BUG_BLOCK_RACE: return MT_LAUNCH(block_race_kernel, dim3(4), b, 0, s, x, aux);
    case BUG_NO_FENCE: return MT_LAUNCH(last_block_kernel<false>, dim3(4), b, 0, s, x, aux, count, aux + 8);
    case BUG_NONE_FENCE: return MT_LAUNCH(last_block_kernel<true>, dim3(4), b, 0, s, x, aux, count, aux + 8);
    case BUG_MISALIGNED: return MT_LAUNCH(misaligned_kernel, dim3(1), b, 0, s, x);
    case BUG_TOO_MUCH_SMEM: return MT_LAUNCH(async_kernel<true>, dim3(1), b, 100 * 1024, s, x);
    }
    return cudaErrorInvalidValue;
}
extern "C" cudaError_t bug_scale(float *y, const float *x, float a, int n, cudaStream_t s)
{
    return MT_LAUNCH(scale_kernel, dim3((unsigned)(n + 127) / 128), dim3(128), 0, s, y, x, a, n);
}
