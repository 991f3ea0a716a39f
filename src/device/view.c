#include "device/view.h"

#include "base/status.h"

mt_view mt_view_of(int32_t row, mt_dtype t, int64_t off, int64_t d0, int64_t d1, int64_t d2)
{
    int64_t inner = d1 * (d2 ? d2 : 1), bytes = mt_dtype_bytes(t);
    return (mt_view){.row = row,
                     .dtype = (uint8_t)t,
                     .nd = (uint8_t)(d2   ? 3
                                     : d1 ? 2
                                          : 1),
                     .off = off,
                     .bytes = d0 * (d1 || d2 ? inner : 1) * bytes,
                     .dim = {d0, d1, d2},
                     .ld = d2   ? d2
                           : d1 ? d1
                                : d0,
                     .stride = inner * bytes};
}

int64_t mt_view_count(mt_view v)
{
    int64_t n = 1;
    for (int i = 0; i < v.nd; i++) n *= v.dim[i];
    return n;
}

static int64_t first_dim_stride(mt_view v)
{
    int64_t el = mt_dtype_bytes((mt_dtype)v.dtype);
    return v.nd == 3 ? v.stride : v.nd == 2 ? v.ld * el : el;
}

mt_view mt_view_part(mt_view v, int64_t first, int64_t n)
{
    MT_ASSERT(first >= 0 && n >= 0 && first + n <= v.dim[0] && (v.format == MT_ROWS || v.nd == 3));
    int64_t step = first_dim_stride(v);
    int64_t last = v.bytes - step * (v.dim[0] - 1); /* the last index may span less than a stride */
    return (mt_view){.row = v.row,
                     .dtype = v.dtype,
                     .nd = v.nd,
                     .format = v.format,
                     .off = v.off + first * step,
                     .bytes = n ? step * (n - 1) + last : 0,
                     .dim = {n, v.dim[1], v.dim[2]},
                     .ld = v.ld,
                     .stride = v.stride};
}

mt_view mt_view_as(mt_view v, int64_t d0, int64_t d1, int64_t d2)
{
    int64_t n = d0 * (d1 ? d1 : 1) * (d2 ? d2 : 1);
    MT_ASSERT(v.format == MT_ROWS && v.bytes == n * mt_dtype_bytes((mt_dtype)v.dtype));
    return mt_view_of(v.row, (mt_dtype)v.dtype, v.off, d0, d1, d2);
}

mt_view mt_view_stack(mt_view v, int64_t n, int64_t stride)
{
    MT_ASSERT(v.nd == 2 && n > 0);
    mt_view w = v;
    w.nd = 3;
    w.dim[0] = n;
    w.dim[1] = v.dim[0];
    w.dim[2] = v.dim[1];
    w.stride = stride;
    w.bytes = (n - 1) * stride + v.bytes;
    return w;
}
