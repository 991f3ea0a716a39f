/* Counting sort by expert of the flat pairs token K + k, stable, dropped ones last: counts of every run of pairs, places from them, and each
 * run once more. A warp has a run; the pairs of a step of 32 are ranked among themselves by their ids. */
#include "mt_kernel.cuh"

namespace
{
constexpr int SCAN = 256, MAX_RUNS = 512, STEP = 32;

/* Pair i's expert; E of those that are dropped. */
MT_DEVICE int32_t id_of(const mt_call &c, int64_t i)
{
    const int64_t K = MT_DIM(c, 'K');
    const int32_t id = static_cast<const int32_t *>(MT_ARGS(route_sort, &c)->ids)[i / K * c.ld[3] + i % K];
    return id < 0 ? (int32_t)MT_DIM(c, 'E') : id;
}

/* table[run][e]: pairs of the run for expert e; here E counts the dropped ones as one more */
__global__ void __launch_bounds__(STEP) count_kernel(MT_CALL c, int32_t *table, int64_t run)
{
    const int64_t E = MT_DIM(c, 'E') + 1, first = blockIdx.x * run;
    const int64_t last = first + run < MT_DIM(c, 'M') ? first + run : MT_DIM(c, 'M');
    MT_DYN_SMEM(int32_t, n);
    for (int64_t e = threadIdx.x; e < E; e += STEP) n[e] = 0;
    __syncwarp();
    for (int64_t i = first + threadIdx.x; i < last; i += STEP) atomicAdd(&n[id_of(c, i)], 1);
    __syncwarp();
    for (int64_t e = threadIdx.x; e < E; e += STEP) table[blockIdx.x * E + e] = n[e];
}

/* Exclusive sums over the threads of a block of SCAN, from `carry` on, which moves on by the total. */
MT_DEVICE int32_t scan(int32_t v, int32_t *carry)
{
    MT_SHARED(warps, int32_t[SCAN / 32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t sum = v;
    for (int o = 1; o < 32; o <<= 1) {
        const int32_t below = __shfl_up_sync(MT_WARP_ALL, sum, o);
        if (lane >= o) sum += below;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int32_t before = *carry, all = 0;
    for (int w = 0; w < SCAN / 32; w++) {
        if (w < warp) before += warps[w];
        all += warps[w];
    }
    *carry += all;
    __syncthreads();
    return before + sum - v;
}
/* table becomes where each run's pairs of an expert begin; counts come out. One block. */
__global__ void __launch_bounds__(SCAN) place_kernel(MT_CALL c, int32_t *table, int runs)
{
    const int64_t E = MT_DIM(c, 'E') + 1;
    int32_t carry = 0;
    for (int64_t e0 = 0; e0 < E; e0 += SCAN) {
        const int64_t e = e0 + threadIdx.x;
        int32_t count = 0;
        for (int r = 0; r < runs && e < E; r++) count += table[r * E + e];
        int32_t at = scan(count, &carry);
        if (e >= E) continue;
        if (e + 1 < E) static_cast<int32_t *>(MT_ARGS(route_sort, &c)->counts)[e] = count;
        for (int r = 0; r < runs; r++) {
            const int32_t n = table[r * E + e];
            table[r * E + e] = at;
            at += n;
        }
    }
}

__global__ void __launch_bounds__(STEP) sort_kernel(MT_CALL c, const int32_t *table, int64_t run)
{
    const auto &a = *MT_ARGS(route_sort, &c);
    const int64_t E = MT_DIM(c, 'E') + 1, K = MT_DIM(c, 'K'), first = blockIdx.x * run;
    const int64_t last = first + run < MT_DIM(c, 'M') ? first + run : MT_DIM(c, 'M');
    MT_DYN_SMEM(int32_t, next);
    for (int64_t e = threadIdx.x; e < E; e += STEP) next[e] = table[blockIdx.x * E + e];
    __syncwarp();
    for (int64_t base = first; base < last; base += STEP) {
        const int64_t i = base + threadIdx.x;
        const int32_t id = i < last ? id_of(c, i) : -1;
        const unsigned same = __match_any_sync(MT_WARP_ALL, id), below = (1u << threadIdx.x) - 1;
        const int32_t at = id < 0 ? 0 : next[id] + __popc(same & below);
        __syncwarp();
        if (id >= 0) {
            static_cast<int32_t *>(a.order)[at] = (int32_t)i;
            static_cast<int32_t *>(a.slot)[i / K * c.ld[1] + i % K] = id + 1 < E ? at : -1 - at;
            if (!(same & below)) next[id] += __popc(same);
        }
        __syncwarp();
    }
}
} // namespace

extern "C" cudaError_t mt_cuda_route_sort(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t E = MT_DIM(*c, 'E') + 1, pairs = MT_DIM(*c, 'M'),
                  room = (int64_t)q->scratch_bytes / (E * 4);
    int32_t *table = static_cast<int32_t *>(q->scratch);
    if (E == 1) return cudaSuccess;
    if (room < 1) return cudaErrorInvalidValue;
    int64_t runs = (pairs + 4 * STEP - 1) / (4 * STEP);
    if (runs > MAX_RUNS) runs = MAX_RUNS;
    if (runs > room) runs = room;
    const int64_t run = runs ? (pairs + runs - 1) / runs : 0;
    const size_t smem = (size_t)E * 4;
    cudaError_t e = cudaSuccess;
    if (runs) e = MT_LAUNCH(count_kernel, dim3((unsigned)runs), dim3(STEP), smem, q->stream, *c, table, run);
    if (!e) e = MT_LAUNCH(place_kernel, dim3(1), dim3(SCAN), 0, q->stream, *c, table, (int)runs);
    if (!e && runs)
        e = MT_LAUNCH(sort_kernel, dim3((unsigned)runs), dim3(STEP), smem, q->stream, *c, table, run);
    return e;
}
