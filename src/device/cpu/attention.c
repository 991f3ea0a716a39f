#include "device/cpu/attention.h"

void mt_att_init(struct mt_att *t, const struct mt_call *c, void *scratch, const void *dev)
{
    int64_t products = (mt_gemm_scratch_bytes() + 63) / 64 * 64;
    *t = (struct mt_att){.gemm = ((const struct mt_cpu_dev *)dev)->gemm[c->dtype],
                         .dtype = (mt_dtype)c->dtype,
                         .tokens = mt_dim(c, 'N'),
                         .heads = mt_dim(c, 'H'),
                         .groups = mt_dim(c, 'G'),
                         .per = mt_dim(c, 'H') / mt_dim(c, 'G'),
                         .a = mt_dim(c, 'A'),
                         .b = mt_dim(c, 'B'),
                         .size = mt_dtype_bytes(c->dtype),
                         .scratch = scratch,
                         .free = (char *)scratch + products,
                         .end = (char *)scratch + MT_SCRATCH_BYTES};
    MT_ASSERT(t->per * t->groups == t->heads);
}

void *mt_att_take(struct mt_att *t, int64_t bytes)
{
    void *p = t->free;
    t->free += (bytes + 63) / 64 * 64;
    MT_ASSERT(t->free <= t->end);
    return p;
}

/* 512 rows make the packing of a key block cheap against its products, and stay in a second-level cache. */
void mt_att_set_tile(struct mt_att *t, int64_t row_bytes)
{
    int64_t rows = (t->end - t->free - 64 * 16) / row_bytes;
    t->tile = mt_min64(rows, 512) / t->per;
    MT_ASSERT(t->per <= rows);
    if (t->tile < 1) t->tile = 1;
}

int64_t mt_att_ld(const struct mt_att *t, int64_t width)
{
    return width * t->size % 512 ? width : width + 64 / t->size;
}

struct mt_att_range mt_att_seen(const struct mt_att *t, int64_t t0, int64_t t1, int64_t ks)
{
    struct mt_att_range r = {.lo = t0 > ks ? t0 : ks, .ks = ks, .ke = mt_min64(ks + ATT_KEYS, t->tokens)};
    int64_t lo = r.lo, hi = t1;
    while (lo < hi) { /* begin never decreases: the first token whose document begins behind the block */
        int64_t mid = lo + (hi - lo) / 2;
        if (t->begin[mid] < r.ke)
            lo = mid + 1;
        else
            hi = mid;
    }
    r.hi = lo;
    return r;
}

struct mt_att_arg mt_att_arg(const struct mt_call *c, int i, int64_t width)
{
    return (struct mt_att_arg){c->arg[i], c->stride[i], c->ld[i] * mt_dtype_bytes(c->dtype), width};
}

void mt_att_gather(const struct mt_att *t, void *rows, const struct mt_att_arg *x, int64_t g, int64_t lo,
                   int64_t hi)
{
    int64_t ld = mt_att_ld(t, x->width) * t->size;
    char *to = rows;
    for (int64_t i = lo; i < hi; i++)
        for (int64_t h = g * t->per; h < (g + 1) * t->per; h++, to += ld)
            memcpy(to, x->at + i * x->token + h * x->head, (size_t)(x->width * t->size));
}

MT_VEC void mt_att_spread(const struct mt_att *t, const struct mt_att_arg *x, const float *rows,
                          const float *factor, int64_t per, int64_t g, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i++)
        for (int64_t h = g * per; h < (g + 1) * per; h++, rows += x->width) {
            void *to = x->at + i * x->token + h * x->head;
            float f = factor ? *factor++ : 1;
            if (t->dtype == MT_F32)
                for (int64_t j = 0; j < x->width; j++) ((float *)to)[j] = rows[j] * f;
            else
                for (int64_t j = 0; j < x->width; j++) ((mt_bf16 *)to)[j] = mt_bf16_of(rows[j] * f);
        }
}

int64_t mt_att_nt_bytes(const struct mt_att *t, int64_t width)
{
    return mt_gemm_packed_bytes(t->gemm, ATT_KEYS, width);
}
int64_t mt_att_nn_bytes(const struct mt_att *t, int64_t width)
{
    return mt_gemm_packed_bytes(t->gemm, width, ATT_KEYS);
}

void mt_att_pack(const struct mt_att *t, void *nt, const struct mt_att_arg *x, int64_t g,
                 const struct mt_att_range *r)
{
    const char *keys = x->at + r->ks * x->token + g * x->head;
    t->gemm->pack_nt(nt, keys, t->dtype, x->token / t->size, r->ke - r->ks, x->width, 0, 1);
}
void mt_att_turn(const struct mt_att *t, void *nn, const void *nt, const struct mt_att_range *r,
                 int64_t width)
{
    t->gemm->pack_nn(nn, nt, r->ke - r->ks, width, 0, 1);
}

void mt_att_scores(const struct mt_att *t, float *out, const void *x, const void *nt, int64_t rows,
                   const struct mt_att_range *r, int64_t width)
{
    const struct mt_gemm_mul g = {.c = out,
                                  .a = x,
                                  .b = nt,
                                  .m = rows,
                                  .n = r->ke - r->ks,
                                  .k = width,
                                  .lda = mt_att_ld(t, width),
                                  .ldc = ATT_KEYS,
                                  .c_dtype = MT_F32};
    t->gemm->mul(&g, 0, 1, t->scratch);
}

/* The products of some rows at a time, which are still in the first-level cache when they are added. */
enum { MIX_ROWS = 64 };

int64_t mt_att_mix_bytes(int64_t width)
{
    return MIX_ROWS * width * 4;
}

MT_VEC static void add_mixed(float *restrict acc, const float *fade, const float *restrict sum, int64_t rows,
                             int64_t width)
{
    for (int64_t i = 0; i < rows; i++, acc += width, sum += width) {
        float f = fade ? fade[i] : 1;
        for (int64_t j = 0; j < width; j++) acc[j] = acc[j] * f + sum[j];
    }
}

void mt_att_mix(const struct mt_att *t, float *acc, const float *fade, const void *p, const void *nn,
                int64_t rows, const struct mt_att_range *r, int64_t width, float *work)
{
    for (int64_t i = 0; i < rows; i += MIX_ROWS) {
        const struct mt_gemm_mul g = {.c = work,
                                      .a = (const char *)p + i * ATT_KEYS * t->size,
                                      .b = nn,
                                      .m = mt_min64(MIX_ROWS, rows - i),
                                      .n = width,
                                      .k = r->ke - r->ks,
                                      .lda = ATT_KEYS,
                                      .ldc = width,
                                      .c_dtype = MT_F32};
        t->gemm->mul(&g, 0, 1, t->scratch);
        add_mixed(acc + i * width, fade ? fade + i : NULL, work, g.m, width);
    }
}
