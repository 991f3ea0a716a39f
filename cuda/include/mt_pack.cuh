/* mt_pack.cuh: N elements of type T moved as one access, and their values as f32. */
#ifndef MT_PACK_CUH
#define MT_PACK_CUH
#include "mt_cuda.cuh"

template <class T, int N> struct alignas(sizeof(T) * N) mt_pack {
    T v[N];
};
MT_DEVICE float mt_get(float x)
{
    return x;
}
MT_DEVICE float mt_get(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
MT_DEVICE void mt_put(float &x, float value)
{
    x = value;
}
MT_DEVICE void mt_put(__nv_bfloat16 &x, float value)
{
    x = __float2bfloat16_rn(value);
}
/* Elements [N i, N i + N) of a row. */
template <int N, class T> MT_DEVICE void mt_load(float (&f)[N], const T *row, int64_t i)
{
    mt_pack<T, N> p = reinterpret_cast<const mt_pack<T, N> *>(row)[i];
#pragma unroll
    for (int k = 0; k < N; k++) f[k] = mt_get(p.v[k]);
}
template <int N, class T> MT_DEVICE void mt_store(T *row, int64_t i, const float (&f)[N])
{
    mt_pack<T, N> p;
#pragma unroll
    for (int k = 0; k < N; k++) mt_put(p.v[k], f[k]);
    reinterpret_cast<mt_pack<T, N> *>(row)[i] = p;
}
/* N values of an f32 vector that is aligned to 16 bytes if N > 1. */
template <int N> MT_DEVICE void mt_load_f32(float (&f)[N], const float *x, int64_t i)
{
    constexpr int Q = N % 4 == 0 ? 4 : 1;
#pragma unroll
    for (int k = 0; k < N / Q; k++) {
        mt_pack<float, Q> p = reinterpret_cast<const mt_pack<float, Q> *>(x + N * i)[k];
#pragma unroll
        for (int j = 0; j < Q; j++) f[Q * k + j] = p.v[j];
    }
}

/* Whether rows that begin at p, `bytes` apart, may be moved 16 bytes at a time. */
static inline bool mt_aligned16(const void *p, int64_t bytes)
{
    return (reinterpret_cast<uintptr_t>(p) | static_cast<uintptr_t>(bytes)) % 16 == 0;
}
#endif
