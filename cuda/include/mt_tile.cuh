/* mt_tile.cuh: a 64 x 64 tile of a product of matrices, by a block of 128 threads: sums over k of A[m][k] B[n][k].
 *
 * Where an operand's elements lie is its own business: `across` elements from one m (or n) to the next, `along` from one k
 * to the next. Both of bf16: tensor cores, where one of the two must be 1. Else f32 arithmetic on any types.
 * Sums run over k in order, from what the accumulators held; f32 ones are rounded once for every 32 k, tensor cores' once for
 * every 16: a cut of the k at multiples of 32 into several calls changes no bit. */
#ifndef MT_TILE_CUH
#define MT_TILE_CUH
#include "mt_kernel.cuh"

constexpr int MT_TILE = 64, MT_TILE_THREADS = 128;

template <class T> struct mt_operand {
    const T *at; /* of m = 0, k = 0 */
    int64_t n;   /* m's (or n's) that there are; others count as zeros */
    int64_t across, along;
    bool wide; /* lines of contiguous elements begin at multiples of 16 bytes */
};
/* Lines of `ld` elements: of k, one a row, or of rows, one a k. */
template <class T>
static inline __host__ __device__ mt_operand<T> mt_rows_of_k(const void *at, int64_t n, int64_t ld)
{
    const uintptr_t low = reinterpret_cast<uintptr_t>(at) | (uintptr_t)(ld * (int64_t)sizeof(T));
    return mt_operand<T>{static_cast<const T *>(at), n, ld, 1, low % 16 == 0};
}
template <class T>
static inline __host__ __device__ mt_operand<T> mt_lines_of_rows(const void *at, int64_t n, int64_t ld)
{
    const uintptr_t low = reinterpret_cast<uintptr_t>(at) | (uintptr_t)(ld * (int64_t)sizeof(T));
    return mt_operand<T>{static_cast<const T *>(at), n, 1, ld, low % 16 == 0};
}

/* ---- f32 arithmetic ---- */
template <class TA, class TB> struct mt_tile {
    static constexpr int K = 32, LINE = MT_TILE + 4;
    struct shared {
        float a[K][LINE], b[K][LINE];
    };
    float sum[8][4];

    MT_MEMBER int row(int i) const { return (int)threadIdx.x / 16 * 8 + i; }
    MT_MEMBER int column(int j) const { return (int)threadIdx.x % 16 * 4 + j; }

    /* f(row, column, sum), of this thread's elements. */
    template <class F> MT_MEMBER void each(F f)
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) f(row(i), column(j), sum[i][j]);
    }

    template <class T>
    MT_MEMBER void load(float (&to)[K][LINE], const mt_operand<T> &x, int64_t m0, int64_t k0, int64_t k1)
    {
        for (int i = (int)threadIdx.x; i < K * MT_TILE; i += MT_TILE_THREADS) {
            const int m = x.along == 1 ? i / K : i % MT_TILE, k = x.along == 1 ? i % K : i / MT_TILE;
            const bool have = m0 + m < x.n && k0 + k < k1;
            to[k][m] = have ? mt_get(x.at[(m0 + m) * x.across + (k0 + k) * x.along]) : 0;
        }
    }

    /* Adds the products over k in [k0, k1). All threads of the block call it, and may meet before and after. */
    MT_MEMBER void add(const mt_operand<TA> &a, const mt_operand<TB> &b, int64_t m0, int64_t n0, int64_t k0,
                       int64_t k1, shared *s)
    {
        for (int64_t k = k0; k < k1; k += K) {
            load(s->a, a, m0, k, k1);
            load(s->b, b, n0, k, k1);
            __syncthreads();
            float part[8][4] = {{0}};
#pragma unroll 4
            for (int i = 0; i < K; i++) multiply(part, s, i);
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += part[i][j];
            __syncthreads();
        }
    }

  private:
    MT_MEMBER void multiply(float (&part)[8][4], const shared *s, int k)
    {
        float x[8], y[4];
        mt_load_f32(x, &s->a[k][row(0)], 0);
        mt_load_f32(y, &s->b[k][column(0)], 0);
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) part[i][j] += x[i] * y[j];
    }
};

/* ---- tensor cores ---- */
/* In shared memory a tile of an operand is 64 lines of 64 elements, as they lie in memory, in chunks of 16 bytes; a chunk's
 * place in its line depends on the line, so that eight lines' chunks of one column lie in different banks. Four warps have 32
 * x 32 elements each. */
template <> struct mt_tile<mt_bf, mt_bf> {
    static constexpr int K = 64;
    struct shared {
        mt_bf a[2][MT_TILE * K], b[2][MT_TILE * K];
    };
    float sum[2][4][4];

    MT_MEMBER int warp_row() const { return (int)threadIdx.x / 64 * 32; }
    MT_MEMBER int warp_column() const { return (int)threadIdx.x / 32 % 2 * 32; }

    template <class F> MT_MEMBER void each(F f)
    {
        const int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    f(warp_row() + i * 16 + lane / 4 + c / 2 * 8,
                      warp_column() + j * 8 + lane % 4 * 2 + c % 2, sum[i][j][c]);
    }

    MT_MEMBER void add(const mt_operand<mt_bf> &a, const mt_operand<mt_bf> &b, int64_t m0, int64_t n0,
                       int64_t k0, int64_t k1, shared *s)
    {
        int now = 0;
        if (k0 >= k1) return;
        load(s->a[0], a, m0, k0, k1);
        load(s->b[0], b, n0, k0, k1);
        mt_cp_async_commit();
        for (int64_t k = k0; k < k1; k += K, now ^= 1) {
            if (k + K < k1) {
                load(s->a[now ^ 1], a, m0, k + K, k1);
                load(s->b[now ^ 1], b, n0, k + K, k1);
            }
            mt_cp_async_commit();
            mt_cp_async_wait<1>();
            __syncthreads();
#pragma unroll
            for (int i = 0; i < K; i += 16) multiply(s->a[now], a.along == 1, s->b[now], b.along == 1, i);
            __syncthreads();
        }
    }

  private:
    static MT_MEMBER int place(int line, int chunk)
    {
        return line * 64 + (chunk ^ (line & 7)) * 8;
    }

    MT_MEMBER void load(mt_bf *to, const mt_operand<mt_bf> &x, int64_t m0, int64_t k0, int64_t k1)
    {
        const bool rows = x.along == 1; /* lines are rows of k */
        const int64_t line0 = rows ? m0 : k0, at0 = rows ? k0 : m0, lines = rows ? x.n : k1,
                      ends = rows ? k1 : x.n;
        const int64_t ld = rows ? x.across : x.along;
#pragma unroll
        for (int i = 0; i < 64 * 8 / MT_TILE_THREADS; i++) {
            const int id = (int)threadIdx.x + i * MT_TILE_THREADS, line = id / 8, chunk = id % 8;
            const int64_t at = at0 + chunk * 8, have = line0 + line < lines ? ends - at : 0;
            const mt_bf *from = x.at + (line0 + line) * ld + at;
            mt_bf *place_of = to + place(line, chunk);
            if (have <= 0 || (have >= 8 && x.wide))
                mt_cp_async16(place_of, have > 0 ? from : x.at, have > 0);
            else
                for (int j = 0; j < 8; j++) place_of[j] = j < have ? from[j] : __float2bfloat16(0.0f);
        }
    }

    /* Fragments of 16 k from k on: of 16 rows of A, of 16 columns of B. */
    static MT_MEMBER void fragment_a(uint32_t (&r)[4], const mt_bf *s, bool rows, int m, int k)
    {
        const int lane = (int)threadIdx.x % 32;
        if (rows)
            mt_ldmatrix_x4(r, s + place(m + lane % 16, k / 8 + lane / 16));
        else
            mt_ldmatrix_x4_trans(r, s + place(k + lane % 8 + lane / 16 * 8, m / 8 + lane / 8 % 2));
    }
    static MT_MEMBER void fragment_b(uint32_t (&r)[4], const mt_bf *s, bool rows, int n, int k)
    {
        const int lane = (int)threadIdx.x % 32;
        if (rows)
            mt_ldmatrix_x4(r, s + place(n + lane % 8 + lane / 16 * 8, k / 8 + lane / 8 % 2));
        else
            mt_ldmatrix_x4_trans(r, s + place(k + lane % 16, n / 8 + lane / 16));
    }
    MT_MEMBER void multiply(const mt_bf *a, bool a_rows, const mt_bf *b, bool b_rows, int k)
    {
        uint32_t x[2][4];
        fragment_a(x[0], a, a_rows, warp_row(), k);
        fragment_a(x[1], a, a_rows, warp_row() + 16, k);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t y[4];
            fragment_b(y, b, b_rows, warp_column() + j * 16, k);
            const uint32_t low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                mt_mma_bf16(sum[i][j * 2], x[i], low);
                mt_mma_bf16(sum[i][j * 2 + 1], x[i], high);
            }
        }
    }
};

#endif
