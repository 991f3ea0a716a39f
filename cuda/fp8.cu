/* Working weights, row-major on this device, to their fp8 form and back (device/fp8_form.h): a block a tile. */
#include "mt_kernel.cuh"

#include "device/fp8_form.h"

namespace
{
constexpr int THREADS = 256;

/* base/fp8.h, in the same steps. */
MT_DEVICE uint8_t fp8_of(float x)
{
    const uint32_t u = __float_as_uint(x), a = u & 0x7fffffffu, m = a < 0x43e00000u ? a : 0x43e00000u;
    uint32_t code = ((m + 0x7ffffu + (m >> 20 & 1)) >> 20) - (120u << 3);
    if (m < 0x3c800000u) code = __float_as_uint(__uint_as_float(m) + 16384.0f) - 0x46800000u;
    if (a > 0x7f800000u) code = 0x7fu;
    return (uint8_t)(code | (u >> 24 & 0x80u));
}
MT_DEVICE float f32_of(uint8_t c)
{
    const uint32_t m = c & 0x7fu, sign = (uint32_t)(c & 0x80u) << 24;
    uint32_t u = (m << 20) + (120u << 23);
    if (m < 8) u = __float_as_uint((float)m * (1.0f / 512));
    if (m == 0x7f) u = 0x7fc00000u;
    return __uint_as_float(u | sign);
}

/* Tile `tile` of band `band` of a matrix: on the wire, and its elements, rows x columns. */
struct tile {
    unsigned char *scale, *code;
    int64_t row0, rows, column0, columns;
};
MT_DEVICE tile tile_of(const mt_fp8_form &f, unsigned char *wire, int64_t band, int64_t i)
{
    unsigned char *at = wire + band * f.band_bytes;
    const int64_t left = f.rows - band * MT_FP8_TILE, wide = f.k - i * MT_FP8_TILE;
    return tile{at + 4 * i,         at + f.scale_bytes,
                band * MT_FP8_TILE, left < MT_FP8_TILE ? left : (int64_t)MT_FP8_TILE,
                i * MT_FP8_TILE,    wide < MT_FP8_TILE ? wide : (int64_t)MT_FP8_TILE};
}
/* Zeros behind the scales and the codes of a band, by the block of its first tile. */
MT_DEVICE void fill_up(const mt_fp8_form &f, const tile &t)
{
    const int64_t codes = t.rows * f.k, end = (codes + MT_FP8_ALIGN - 1) / MT_FP8_ALIGN * MT_FP8_ALIGN;
    for (int64_t i = 4 * f.tiles + threadIdx.x; i < f.scale_bytes; i += THREADS) t.scale[i] = 0;
    for (int64_t i = codes + threadIdx.x; i < end; i += THREADS) t.code[i] = 0;
}

/* Tiles whose scale would be below 2^-100 are taken as zeros; NaNs are passed over for the largest. */
template <class T> __global__ void __launch_bounds__(THREADS) pack_kernel(MT_CALL c, mt_fp8_form f)
{
    const int64_t e = blockIdx.z;
    unsigned char *wire = static_cast<unsigned char *>(c.arg[0]) + e * c.ld[0];
    const T *w = reinterpret_cast<const T *>(static_cast<const char *>(c.arg[1]) + e * c.stride[1]);
    const tile t = tile_of(f, wire, blockIdx.y, blockIdx.x);
    float top = 0;
    if (blockIdx.x == 0) fill_up(f, t);
    for (int64_t i = threadIdx.x; i < t.rows * t.columns; i += THREADS) {
        const float x = fabsf(mt_get(w[(t.row0 + i / t.columns) * c.ld[1] + t.column0 + i % t.columns]));
        top = x > top ? x : top;
    }
    top = mt_block_max<THREADS>(top) / 448.0f;
    const float scale = top >= 7.888609052210118e-31f ? top : 1;
    if (threadIdx.x == 0) *reinterpret_cast<float *>(t.scale) = scale;
    for (int64_t i = threadIdx.x; i < t.rows * t.columns; i += THREADS) {
        const int64_t row = i / t.columns, column = t.column0 + i % t.columns;
        t.code[row * f.k + column] = fp8_of(mt_get(w[(t.row0 + row) * c.ld[1] + column]) / scale);
    }
}
template <class T> __global__ void __launch_bounds__(THREADS) unpack_kernel(MT_CALL c, mt_fp8_form f)
{
    const int64_t e = blockIdx.z;
    unsigned char *wire = static_cast<unsigned char *>(c.arg[1]) + e * c.ld[1];
    T *w = reinterpret_cast<T *>(static_cast<char *>(c.arg[0]) + e * c.stride[0]);
    const tile t = tile_of(f, wire, blockIdx.y, blockIdx.x);
    const float scale = *reinterpret_cast<const float *>(t.scale);
    for (int64_t i = threadIdx.x; i < t.rows * t.columns; i += THREADS) {
        const int64_t row = i / t.columns, column = t.column0 + i % t.columns;
        mt_put(w[(t.row0 + row) * c.ld[0] + column], f32_of(t.code[row * f.k + column]) * scale);
    }
}

/* The form of the call's matrices, and a block for each tile of each. */
dim3 grid_of(const mt_call *c, mt_fp8_form *f)
{
    *f = mt_fp8_form_of(MT_DIM(*c, 'O'), MT_DIM(*c, 'I'));
    return dim3((unsigned)f->tiles, (unsigned)f->bands, (unsigned)MT_DIM(*c, 'E'));
}
} // namespace

extern "C" cudaError_t mt_cuda_fp8_pack(const mt_call *c, const mt_cuda_lane *q)
{
    mt_fp8_form f;
    const dim3 grid = grid_of(c, &f);
    if (f.bytes != MT_DIM(*c, 'W')) return cudaErrorInvalidValue;
    if (!grid.x || !grid.y || !grid.z) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        return MT_LAUNCH(pack_kernel<decltype(t)>, grid, dim3(THREADS), 0, q->stream, *c, f);
    });
}
extern "C" cudaError_t mt_cuda_fp8_unpack(const mt_call *c, const mt_cuda_lane *q)
{
    mt_fp8_form f;
    const dim3 grid = grid_of(c, &f);
    if (f.bytes != MT_DIM(*c, 'W')) return cudaErrorInvalidValue;
    if (!grid.x || !grid.y || !grid.z) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        return MT_LAUNCH(unpack_kernel<decltype(t)>, grid, dim3(THREADS), 0, q->stream, *c, f);
    });
}
