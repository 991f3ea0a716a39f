/* cuemu - run CUDA kernel source on the CPU, for tests.
 *
 * Force-included (-include cuemu.h) ahead of a .cu file that g++/clang++
 * compiles as C++17.  Types and host prototypes come from NVIDIA's own headers,
 * so a call that does not fit the real API does not compile here either.
 * Every CUDA thread is a fiber; fibers switch only at barriers and warp
 * collectives, in an order chosen by policy and seed.
 */
#ifndef CUEMU_H
#define CUEMU_H
#define CUEMU 1

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

/* execution-space and memory-space words */
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __maxnreg__
#undef __cluster_dims__
#undef __grid_constant__
/* Static shared variables are declared with MT_SHARED: a static local would keep
 * the last block's values, and GCC cannot place one in a section in a template. */
#define __shared__ _Pragma("GCC error \"declare shared memory with MT_SHARED or MT_DYN_SMEM\"")
#define __constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __grid_constant__

#if defined(__SANITIZE_THREAD__)
#define CUEMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CUEMU_TSAN 1
#endif
#endif
#define CUEMU_NO_TSAN __attribute__((no_sanitize("thread")))
#define CUEMU_LOC const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define CUEMU_AT file, line

namespace cuemu
{

struct Thread { /* the part of a CUDA thread that kernels read */
    uint3 tid;
    unsigned lane, warp, linear;
};
extern Thread *cur;
extern uint3 block_idx;
extern dim3 block_dim, grid_dim;

/* A warp collective: every lane named in mask hands in its argument; the last
 * one to arrive runs fn over all of them; then all go on. */
typedef void (*CollFn)(void *const *arg, unsigned mask);
void collective(unsigned mask, CollFn fn, void *arg, const char *name, CUEMU_LOC);
void sync_warp(unsigned mask, CUEMU_LOC);
void barrier(int id, int nthreads, CUEMU_LOC); /* nthreads 0: whole block */
void barrier_arrive(int id, int nthreads, CUEMU_LOC);
int barrier_reduce(int kind, int pred, CUEMU_LOC); /* 0 count, 1 and, 2 or */
void yield(CUEMU_LOC);                             /* call in spin loops */
void fence();
void *dyn_smem();
void *static_smem(const void *key, size_t size, size_t align);
[[noreturn]] void fault(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void check_align(const void *p, size_t a, const char *what, CUEMU_LOC);
void cp_async(void *dst, const void *src, int bytes, int src_bytes, CUEMU_LOC);
void cp_async_commit();
void cp_async_wait(int keep);

struct Body {
    virtual void run() = 0;
    virtual ~Body() {}
};
cudaError_t enqueue(const char *name, const void *fn, dim3 g, dim3 b, size_t smem, cudaStream_t s,
                    Body *body);

template <class... P> struct KernelBody final : Body {
    void (*k)(P...);
    std::tuple<std::remove_cv_t<std::remove_reference_t<P>>...> args;
    template <class... A>
    KernelBody(void (*k_)(P...), A &&...a) : k(k_), args(static_cast<P>(std::forward<A>(a))...)
    {
    }
    void run() override { std::apply(k, args); }
};
/* Arguments are converted and copied at the launch, as <<<>>> does. */
template <class... P, class... A>
cudaError_t launch(const char *name, dim3 g, dim3 b, size_t smem, cudaStream_t s, void (*k)(P...), A &&...a)
{
    static_assert(sizeof...(P) == sizeof...(A), "kernel argument count");
    return enqueue(name, (const void *)k, g, b, smem, s, new KernelBody<P...>(k, std::forward<A>(a)...));
}

/* shuffles */
template <class T> struct ShflArg {
    T v, r;
    int sel, width;
};
enum { SHFL_IDX, SHFL_UP, SHFL_DOWN, SHFL_XOR };
template <class T, int K> CUEMU_NO_TSAN void shfl_exec(void *const *p, unsigned mask)
{
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        auto *a = (ShflArg<T> *)p[l];
        int w = a->width, seg = l & ~(w - 1), src;
        if (K == SHFL_IDX)
            src = seg + (a->sel & (w - 1));
        else if (K == SHFL_UP)
            src = l - a->sel < seg ? l : l - a->sel;
        else if (K == SHFL_DOWN)
            src = l + a->sel >= seg + w ? l : l + a->sel;
        else
            src = (l ^ a->sel) >= seg + w ? l : (l ^ a->sel);
        if (mask >> src & 1)
            a->r = ((ShflArg<T> *)p[src])->v;
        else
            for (unsigned i = 0; i < sizeof(T); i++) ((volatile unsigned char *)&a->r)[i] = 0xff;
    }
}
template <class T, int K> inline T shfl(unsigned m, T v, int sel, int width, const char *name, CUEMU_LOC)
{
    ShflArg<T> a{v, v, sel, width};
    collective(m, shfl_exec<T, K>, &a, name, CUEMU_AT);
    return a.r;
}

/* votes, reductions, matches */
struct VoteArg {
    int pred;
    unsigned ballot;
};
CUEMU_NO_TSAN inline void vote_exec(void *const *p, unsigned mask)
{
    unsigned b = 0;
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1 && ((VoteArg *)p[l])->pred) b |= 1u << l;
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) ((VoteArg *)p[l])->ballot = b;
}
inline unsigned vote(unsigned m, int pred, const char *name, CUEMU_LOC)
{
    VoteArg a{pred, 0};
    collective(m, vote_exec, &a, name, CUEMU_AT);
    return a.ballot;
}
template <class T> struct RedArg {
    T v, r;
};
enum { RED_ADD, RED_MIN, RED_MAX, RED_AND, RED_OR, RED_XOR, RED_MATCH };
template <class T, int K> CUEMU_NO_TSAN void red_exec(void *const *p, unsigned mask)
{
    if constexpr (K == RED_MATCH) {
        for (int l = 0; l < 32; l++) {
            if (!(mask >> l & 1)) continue;
            unsigned m = 0;
            for (int j = 0; j < 32; j++)
                if (mask >> j & 1 && ((RedArg<T> *)p[j])->v == ((RedArg<T> *)p[l])->v) m |= 1u << j;
            ((RedArg<T> *)p[l])->r = (T)m;
        }
        return;
    } else {
        bool first = true;
        T acc{};
        for (int l = 0; l < 32; l++) {
            if (!(mask >> l & 1)) continue;
            T v = ((RedArg<T> *)p[l])->v;
            if (first) {
                acc = v;
                first = false;
            } else if (K == RED_ADD)
                acc = acc + v;
            else if (K == RED_MIN)
                acc = v < acc ? v : acc;
            else if (K == RED_MAX)
                acc = v > acc ? v : acc;
            else if (K == RED_AND)
                acc = acc & v;
            else if (K == RED_OR)
                acc = acc | v;
            else
                acc = acc ^ v;
        }
        for (int l = 0; l < 32; l++)
            if (mask >> l & 1) ((RedArg<T> *)p[l])->r = acc;
    }
}
template <class T, int K> inline T red(unsigned m, T v, const char *name, CUEMU_LOC)
{
    RedArg<T> a{v, v};
    collective(m, red_exec<T, K>, &a, name, CUEMU_AT);
    return a.r;
}

/* atomics: relaxed, as on the device */
template <class T, class F> inline T rmw(T *p, F f)
{
    if constexpr (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 2) {
        typedef std::conditional_t<sizeof(T) == 2, uint16_t,
                                   std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>
            U;
        U *u = (U *)p, o = __atomic_load_n(u, __ATOMIC_RELAXED), n;
        T ov, nv;
        do {
            memcpy((void *)&ov, &o, sizeof o);
            nv = f(ov);
            memcpy(&n, (const void *)&nv, sizeof n);
        } while (!__atomic_compare_exchange_n(u, &o, n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        memcpy((void *)&ov, &o, sizeof o);
        return ov;
    }
}
} // namespace cuemu

/* built-in variables */
#define threadIdx (::cuemu::cur->tid)
#define blockIdx (::cuemu::block_idx)
#define blockDim (::cuemu::block_dim)
#define gridDim (::cuemu::grid_dim)
static constexpr int warpSize = 32;

/* barriers and fences */
inline void __syncthreads(CUEMU_LOC)
{
    cuemu::barrier(0, 0, CUEMU_AT);
}
inline int __syncthreads_count(int p, CUEMU_LOC)
{
    return cuemu::barrier_reduce(0, p, CUEMU_AT);
}
inline int __syncthreads_and(int p, CUEMU_LOC)
{
    return cuemu::barrier_reduce(1, p, CUEMU_AT);
}
inline int __syncthreads_or(int p, CUEMU_LOC)
{
    return cuemu::barrier_reduce(2, p, CUEMU_AT);
}
inline void __syncwarp(unsigned m = 0xffffffffu, CUEMU_LOC)
{
    cuemu::sync_warp(m, CUEMU_AT);
}
inline void __threadfence()
{
    cuemu::fence();
}
inline void __threadfence_block()
{
    cuemu::fence();
}
inline void __threadfence_system()
{
    cuemu::fence();
}
inline void __nanosleep(unsigned, CUEMU_LOC)
{
    cuemu::yield(CUEMU_AT);
}
inline void __trap(CUEMU_LOC)
{
    cuemu::fault(CUEMU_AT, "__trap()");
}

/* warp primitives (__activemask is left out on purpose) */
template <class T> inline T __shfl_sync(unsigned m, T v, int s, int w = 32, CUEMU_LOC)
{
    return cuemu::shfl<T, cuemu::SHFL_IDX>(m, v, s, w, "__shfl_sync", CUEMU_AT);
}
template <class T> inline T __shfl_up_sync(unsigned m, T v, unsigned d, int w = 32, CUEMU_LOC)
{
    return cuemu::shfl<T, cuemu::SHFL_UP>(m, v, (int)d, w, "__shfl_up_sync", CUEMU_AT);
}
template <class T> inline T __shfl_down_sync(unsigned m, T v, unsigned d, int w = 32, CUEMU_LOC)
{
    return cuemu::shfl<T, cuemu::SHFL_DOWN>(m, v, (int)d, w, "__shfl_down_sync", CUEMU_AT);
}
template <class T> inline T __shfl_xor_sync(unsigned m, T v, int x, int w = 32, CUEMU_LOC)
{
    return cuemu::shfl<T, cuemu::SHFL_XOR>(m, v, x, w, "__shfl_xor_sync", CUEMU_AT);
}
inline unsigned __ballot_sync(unsigned m, int p, CUEMU_LOC)
{
    return cuemu::vote(m, p, "__ballot_sync", CUEMU_AT);
}
inline int __any_sync(unsigned m, int p, CUEMU_LOC)
{
    return cuemu::vote(m, p, "__any_sync", CUEMU_AT) != 0;
}
inline int __all_sync(unsigned m, int p, CUEMU_LOC)
{
    return cuemu::vote(m, p, "__all_sync", CUEMU_AT) == m;
}
#define CUEMU_RED(fn, T, K)                                  \
    inline T fn(unsigned m, T v, CUEMU_LOC)                  \
    {                                                        \
        return cuemu::red<T, cuemu::K>(m, v, #fn, CUEMU_AT); \
    }
/* clang-format off */
CUEMU_RED(__reduce_add_sync, unsigned, RED_ADD)
CUEMU_RED(__reduce_add_sync, int, RED_ADD)
CUEMU_RED(__reduce_min_sync, unsigned, RED_MIN)
CUEMU_RED(__reduce_min_sync, int, RED_MIN)
CUEMU_RED(__reduce_max_sync, unsigned, RED_MAX)
CUEMU_RED(__reduce_max_sync, int, RED_MAX)
CUEMU_RED(__reduce_and_sync, unsigned, RED_AND)
CUEMU_RED(__reduce_or_sync, unsigned, RED_OR)
CUEMU_RED(__reduce_xor_sync, unsigned, RED_XOR)
CUEMU_RED(__match_any_sync, unsigned, RED_MATCH)
/* clang-format on */
inline unsigned __match_any_sync(unsigned m, int v, CUEMU_LOC)
{
    return __match_any_sync(m, (unsigned)v, CUEMU_AT);
}
#undef CUEMU_RED

/* atomics */
#define CUEMU_ATOMIC(fn, T, expr)                             \
    inline T fn(T *p, T v)                                    \
    {                                                         \
        return cuemu::rmw(p, [v](T o) -> T { return expr; }); \
    }
#define CUEMU_ATOMIC_INT(T)                                                      \
    CUEMU_ATOMIC(atomicAdd, T, o + v)                                            \
    CUEMU_ATOMIC(atomicSub, T, o - v)                                            \
    CUEMU_ATOMIC(atomicMin, T, v < o ? v : o)                                    \
    CUEMU_ATOMIC(atomicMax, T, v > o ? v : o)                                    \
    CUEMU_ATOMIC(atomicAnd, T, o &v)                                             \
    CUEMU_ATOMIC(atomicOr, T, o | v)                                             \
    CUEMU_ATOMIC(atomicXor, T, o ^ v)                                            \
    CUEMU_ATOMIC(atomicExch, T, (void(o), v)) inline T atomicCAS(T *p, T c, T v) \
    {                                                                            \
        return cuemu::rmw(p, [c, v](T o) -> T { return o == c ? v : o; });       \
    }
/* clang-format off */
CUEMU_ATOMIC_INT(int)
CUEMU_ATOMIC_INT(unsigned)
CUEMU_ATOMIC_INT(unsigned long long)
CUEMU_ATOMIC(atomicAdd, float, o + v)
CUEMU_ATOMIC(atomicAdd, double, o + v)
CUEMU_ATOMIC(atomicExch, float, (void(o), v))
CUEMU_ATOMIC(atomicAdd, __nv_bfloat16, __hadd(o, v))
CUEMU_ATOMIC(atomicAdd, __half, __hadd(o, v))
CUEMU_ATOMIC(atomicInc, unsigned, o >= v ? 0u : o + 1u)
CUEMU_ATOMIC(atomicDec, unsigned, (o == 0u || o > v) ? v : o - 1u)
/* clang-format on */
inline __nv_bfloat162 atomicAdd(__nv_bfloat162 *p, __nv_bfloat162 v)
{
    __nv_bfloat16 *q = (__nv_bfloat16 *)p;
    __nv_bfloat162 r;
    r.x = atomicAdd(q, v.x);
    r.y = atomicAdd(q + 1, v.y);
    return r;
}
#undef CUEMU_ATOMIC
#undef CUEMU_ATOMIC_INT

/* cached loads and stores */
#define CUEMU_LD(fn)                                         \
    template <class T> inline T fn(const T *p, CUEMU_LOC)    \
    {                                                        \
        if ((uintptr_t)p % sizeof(T)) {                      \
            cuemu::check_align(p, sizeof(T), #fn, CUEMU_AT); \
        }                                                    \
        return *p;                                           \
    }
#define CUEMU_ST(fn)                                         \
    template <class T> inline void fn(T *p, T v, CUEMU_LOC)  \
    {                                                        \
        if ((uintptr_t)p % sizeof(T)) {                      \
            cuemu::check_align(p, sizeof(T), #fn, CUEMU_AT); \
        }                                                    \
        *p = v;                                              \
    }
/* clang-format off */
CUEMU_LD(__ldg)
CUEMU_LD(__ldcg)
CUEMU_LD(__ldca)
CUEMU_LD(__ldcs)
CUEMU_LD(__ldlu)
CUEMU_LD(__ldcv)
CUEMU_ST(__stwb)
CUEMU_ST(__stcg)
CUEMU_ST(__stcs)
CUEMU_ST(__stwt)
/* clang-format on */
#undef CUEMU_LD
#undef CUEMU_ST

#include "cuemu_math.h"
#endif
