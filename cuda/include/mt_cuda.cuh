/* mt_cuda.cuh: what kernel source may not spell itself, so that nvcc and the emulator (tests/cuemu) both take
 * it: launches, shared memory, spin loops, inline PTX.
 *
 * Rules of kernel source: no plain __shared__, <<<>>>, asm or __activemask; no CUB, no cooperative groups;
 * every exchange within a warp through a _sync intrinsic. */
#ifndef MT_CUDA_CUH
#define MT_CUDA_CUH
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define MT_WARP_ALL 0xffffffffu
/* Template arguments with commas: MT_LAUNCH(MT_K(kernel<64, true>), ...). */
#define MT_K(...) __VA_ARGS__
template <class T> using mt_shape_of = T; /* MT_SHARED(tile, float[32][33]); */

#define MT_MEMBER __device__ __forceinline__ /* a function of a class */

#ifdef CUEMU
#include "cuemu_mt.h" /* the same macros and wrappers, emulated */
#else

/* Gives a cudaError_t. */
#define MT_LAUNCH(kernel, grid, block, smem, stream, ...) \
    (kernel<<<grid, block, smem, stream>>>(__VA_ARGS__), cudaGetLastError())
#define MT_SHARED(name, ...) __shared__ mt_shape_of<__VA_ARGS__> name
#define MT_DYN_SMEM(type, name)                                     \
    extern __shared__ __align__(1024) unsigned char mt_dyn_smem_[]; \
    type *name = reinterpret_cast<type *>(mt_dyn_smem_)
#define MT_SPIN_YIELD() ((void)0)
#define MT_DEVICE static __device__ __forceinline__

/* d += a b, m16n8k16: bf16 operands, f32 sums. Lane l holds rows l / 4 and l / 4 + 8, columns from 2 (l %
 * 4). */
MT_DEVICE void mt_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8 x 8 matrices of 16-bit elements; lanes 8i .. 8i+7 hand in the rows of matrix i, 16 bytes each. */
MT_DEVICE void mt_ldmatrix_x4(uint32_t (&r)[4], const void *smem)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(smem))
                 : "memory");
}
MT_DEVICE void mt_ldmatrix_x4_trans(uint32_t (&r)[4], const void *smem)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(smem))
                 : "memory");
}

/* 16 bytes to shared memory; with ok false, 16 zero bytes and no read of global memory. */
MT_DEVICE void mt_cp_async16(void *smem, const void *gmem, bool ok = true)
{
    int n = ok ? 16 : 0;
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(smem)),
        "l"(gmem), "r"(n)
        : "memory");
}
MT_DEVICE void mt_cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Returns when all but the last KEEP groups of this thread have landed. */
template <int KEEP> MT_DEVICE void mt_cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}

/* Named barriers, for kernels whose warps have different jobs. */
MT_DEVICE void mt_bar_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
MT_DEVICE void mt_bar_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

MT_DEVICE float mt_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

MT_DEVICE float mt_warp_sum(float v)
{
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(MT_WARP_ALL, v, o);
    return v;
}
#endif
