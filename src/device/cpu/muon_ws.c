#include "device/cpu/muon_ws.h"

static int64_t up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* A packed matrix under the widest padding that a device uses: 32 outputs, and 32 inputs if bf16. */
static int64_t packed(int64_t outputs, int64_t inputs, mt_dtype t)
{
    return up(outputs, 32) * up(inputs, 32) * mt_dtype_bytes(t);
}

/* Rows of a multiple of 512 bytes would share few cache sets. */
static int64_t row_length(int64_t n, mt_dtype t)
{
    int64_t size = mt_dtype_bytes(t), ld = up(n, 64 / size);
    return ld * size % 512 ? ld : ld + 64 / size;
}

static int64_t place(int64_t *end, int64_t bytes)
{
    int64_t at = *end;
    *end += up(bytes, 64);
    return at;
}

struct mt_ns_layout mt_ns_layout_of(int64_t r, int64_t c, mt_dtype t)
{
    struct mt_ns_layout n = {.s = r < c ? r : c, .l = r < c ? c : r};
    int64_t size = mt_dtype_bytes(t);
    n.ld_l = row_length(n.l, t);
    n.ld_s = row_length(n.s, t);
    n.x[0] = place(&n.bytes, n.s * n.ld_l * size);
    n.x[1] = place(&n.bytes, n.s * n.ld_l * size);
    n.nt = place(&n.bytes, packed(n.s, n.l, t));
    n.nn = place(&n.bytes, packed(n.l, n.s, t));
    n.a = place(&n.bytes, n.s * n.ld_s * size);
    n.b = place(&n.bytes, n.s * n.ld_s * size);
    n.a_nt = place(&n.bytes, packed(n.s, n.s, t));
    n.sum = place(&n.bytes, MT_NS_ROWS * up(n.l, 16) * 4);
    return n;
}

int64_t mt_newton_schulz_ws_bytes(int64_t b, int64_t r, int64_t c, mt_dtype t)
{
    return mt_newton_schulz_lanes(b) * mt_ns_layout_of(r, c, t).bytes;
}
