/* fp8_form.h: how a packed weight travels as fp8.
 *
 * Its panels are taken in bands of MT_FP8_TILE outputs. A band is one range of bytes: first the f32 scales
 * of its tiles of MT_FP8_TILE inputs each, then a code (base/fp8.h) an element, in the order of the packed
 * form, padding included; both are filled up with zeros to MT_FP8_ALIGN bytes. A tile never reaches out of
 * its band, so that a cut between bands leaves every tile whole, its scale beside it. */
#ifndef MT_DEVICE_FP8_FORM_H
#define MT_DEVICE_FP8_FORM_H
#include <stdint.h>

enum { MT_FP8_TILE = 128, MT_FP8_ALIGN = 64 };

struct mt_fp8_form {
    int64_t rows, k; /* outputs and inputs, with the packed form's padding */
    int64_t tiles, bands;
    int64_t scale_bytes; /* of the scales of a band */
    int64_t band_bytes;  /* of every band but the last, which may have fewer rows */
    int64_t bytes;
};

static inline int64_t mt_fp8_up(int64_t x, int64_t m)
{
    return (x + m - 1) / m * m;
}
static inline int64_t mt_fp8_band_rows(const struct mt_fp8_form *f, int64_t band)
{
    int64_t left = f->rows - band * MT_FP8_TILE;
    return left < MT_FP8_TILE ? left : (int64_t)MT_FP8_TILE;
}
static inline int64_t mt_fp8_band_bytes(const struct mt_fp8_form *f, int64_t band)
{
    return f->scale_bytes + mt_fp8_up(mt_fp8_band_rows(f, band) * f->k, MT_FP8_ALIGN);
}
/* rows, k: with the padding of the packed form. */
static inline struct mt_fp8_form mt_fp8_form_of(int64_t rows, int64_t k)
{
    struct mt_fp8_form f;
    f.rows = rows;
    f.k = k;
    f.tiles = (k + MT_FP8_TILE - 1) / MT_FP8_TILE;
    f.bands = (rows + MT_FP8_TILE - 1) / MT_FP8_TILE;
    f.scale_bytes = mt_fp8_up(4 * f.tiles, MT_FP8_ALIGN);
    f.band_bytes = f.scale_bytes + mt_fp8_up(MT_FP8_TILE * k, MT_FP8_ALIGN);
    f.bytes = f.bands ? (f.bands - 1) * f.band_bytes + mt_fp8_band_bytes(&f, f.bands - 1) : 0;
    return f;
}
#endif
