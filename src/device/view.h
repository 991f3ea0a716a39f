/* view.h: bytes of a ledger row, with dtype and shape. A plain value; it owns nothing. */
#ifndef MT_DEVICE_VIEW_H
#define MT_DEVICE_VIEW_H
#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

/* MT_ROWS: row-major, rows `ld` elements apart. MT_PACKED_NT and _NN: a weight [O, I] (or [E, O, I]) in the
 * device's working form for Y = X W^T and for dX = dY W (device/target.h); its elements are not addressable. */
enum mt_format { MT_ROWS, MT_PACKED_NT, MT_PACKED_NN };
enum { MT_MAX_NDIM = 3 };

typedef struct mt_view {
    int32_t row; /* index in the ledger; negative: no buffer (an optional argument left out) */
    uint8_t dtype, nd, format;
    int64_t off, bytes; /* within the row; bytes is the span from the first to the last element */
    int64_t dim[MT_MAX_NDIM];
    int64_t ld;     /* MT_ROWS: elements between indices of the last dimension but one */
    int64_t stride; /* bytes between indices of dim[0] when nd == 3 */
} mt_view;

#define MT_NONE ((mt_view){.row = -1})
static inline bool mt_view_given(mt_view v)
{
    return v.row >= 0;
}

/* A contiguous view of dtype t at byte `off` of the row; nd is the number of dims that are not zero. */
mt_view mt_view_of(int32_t row, mt_dtype t, int64_t off, int64_t d0, int64_t d1, int64_t d2);
int64_t mt_view_count(mt_view v); /* elements, padding not counted */

/* Rows [first, first + n) of dim[0]. */
mt_view mt_view_part(mt_view v, int64_t first, int64_t n);
/* The same bytes with other dims; v must be contiguous and hold as many elements. d1, d2 may be 0. */
mt_view mt_view_as(mt_view v, int64_t d0, int64_t d1, int64_t d2);
/* [E, O, I] of weights laid `stride` bytes apart, beginning at v, which is the first one, [O, I]. */
mt_view mt_view_stack(mt_view v, int64_t n, int64_t stride);
#endif
