#include "wrappers.h"

#include "mt_cuda.cuh"

namespace
{
__device__ uint32_t pair(const uint16_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 16;
}

/* d's fragment: rows g and g + 8, columns t and t + 1, of group g = lane / 4 and pair t = 2 (lane % 4). */
__device__ void load_d(float (&f)[4], const float *d)
{
    const int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; i++) f[i] = d[(g + i / 2 * 8) * 8 + t + i % 2];
}
__device__ void store_d(float *d, const float (&f)[4])
{
    const int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + t + i % 2] = f[i];
}

__global__ void scale_kernel(float *y, const float *x, float a, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = a * x[i];
}
__global__ void mma_kernel(float *d, const uint16_t *a, const uint16_t *b)
{
    const int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4 * 2;
    float f[4];
    uint32_t fa[4], fb[2];
    load_d(f, d);
    for (int i = 0; i < 4; i++) fa[i] = pair(a + (g + i % 2 * 8) * 16 + t + i / 2 * 8);
    for (int i = 0; i < 2; i++) fb[i] = pair(b + g * 16 + t + i * 8);
    mt_mma_bf16(f, fa, fb);
    store_d(d, f);
}

/* ldmatrix takes the row addresses of matrix i from lanes 8i .. 8i+7. a: quarters top left, bottom left,
 * top right, bottom right. b: its two halves, each twice, since x4 loads four. */
__global__ void ldmatrix_kernel(float *d, const uint16_t *a, const uint16_t *b_turned)
{
    MT_SHARED(sa, uint4[32]);
    MT_SHARED(sb, uint4[16]);
    const int l = (int)threadIdx.x, row = l % 8, quarter = l / 8;
    sa[l] = reinterpret_cast<const uint4 *>(a)[l];
    if (l < 16) sb[l] = reinterpret_cast<const uint4 *>(b_turned)[l];
    __syncwarp();
    float f[4];
    uint32_t fa[4], fb[4];
    load_d(f, d);
    mt_ldmatrix_x4(fa, &sa[(row + quarter % 2 * 8) * 2 + quarter / 2]);
    mt_ldmatrix_x4_trans(fb, &sb[row + quarter % 2 * 8]);
    const uint32_t half[2] = {fb[0], fb[1]};
    mt_mma_bf16(f, fa, half);
    store_d(d, f);
}

constexpr int TILE = 512, LANES = 128;
__device__ void fetch(float *to, const float *x, int tile, int tiles, int valid)
{
    const int i = tile % tiles * TILE + (int)threadIdx.x * 4;
    mt_cp_async16(to + threadIdx.x * 4, x + (i < valid ? i : 0), i < valid);
    mt_cp_async_commit();
}
__global__ void cp_async_kernel(float *y, const float *x, int tiles, int valid)
{
    MT_DYN_SMEM(float, buffer); /* two tiles */
    fetch(buffer, x, 1, tiles, valid);
    for (int i = 0; i < tiles; i++) {
        fetch(buffer + (i + 1) % 2 * TILE, x, i + 2, tiles, valid);
        mt_cp_async_wait<1>();
        __syncthreads();
        for (int j = (int)threadIdx.x; j < TILE; j += LANES) y[i * TILE + j] = buffer[i % 2 * TILE + j];
        __syncthreads(); /* the next fetch but one lands in this buffer */
    }
}

enum { FULL = 1, EMPTY = 2 };
__global__ void barrier_kernel(float *y, const float *x, int n)
{
    MT_SHARED(slot, float[32]);
    const int lane = (int)threadIdx.x % 32, consumer = (int)threadIdx.x / 32;
    for (int i = 0; i < n / 32; i++) {
        if (consumer) {
            mt_bar_sync(FULL, 64);
            y[i * 32 + lane] = slot[lane] + (float)i;
            mt_bar_arrive(EMPTY, 64);
        } else {
            if (i) mt_bar_sync(EMPTY, 64);
            slot[lane] = 2 * x[i * 32 + lane];
            mt_bar_arrive(FULL, 64);
        }
    }
    if (!consumer) mt_bar_sync(EMPTY, 64);
}

__global__ void exp2_kernel(float *y, const float *x, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = mt_exp2(x[i]);
}
__global__ void sum_kernel(float *y, const float *x)
{
    const float v = mt_warp_sum(x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) atomicAdd(y, v);
}
} // namespace

cudaError_t wrap_mma(float *d, const uint16_t *a, const uint16_t *b, cudaStream_t s)
{
    return MT_LAUNCH(mma_kernel, dim3(1), dim3(32), 0, s, d, a, b);
}
cudaError_t wrap_mma_ldmatrix(float *d, const uint16_t *a, const uint16_t *b_turned, cudaStream_t s)
{
    return MT_LAUNCH(ldmatrix_kernel, dim3(1), dim3(32), 0, s, d, a, b_turned);
}
cudaError_t wrap_cp_async(float *y, const float *x, int tiles, int valid, cudaStream_t s)
{
    return MT_LAUNCH(cp_async_kernel, dim3(1), dim3(LANES), 2 * TILE * sizeof(float), s, y, x, tiles, valid);
}
cudaError_t wrap_named_barriers(float *y, const float *x, int n, cudaStream_t s)
{
    return MT_LAUNCH(barrier_kernel, dim3(1), dim3(64), 0, s, y, x, n);
}
cudaError_t wrap_exp2(float *y, const float *x, int n, cudaStream_t s)
{
    return MT_LAUNCH(exp2_kernel, dim3((unsigned)(n + 63) / 64), dim3(64), 0, s, y, x, n);
}
cudaError_t wrap_warp_sum(float *y, const float *x, int n, cudaStream_t s)
{
    return MT_LAUNCH(sum_kernel, dim3((unsigned)n / 32), dim3(32), 0, s, y, x);
}
cudaError_t wrap_scale(float *y, const float *x, float a, int n, cudaStream_t s)
{
    return MT_LAUNCH(scale_kernel, dim3((unsigned)(n + 127) / 128), dim3(128), 0, s, y, x, a, n);
}
