#include "device/op.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

/* Bytes of one of n rows of an argument. */
static inline int64_t ld_bytes(int64_t bytes, int64_t n)
{
    return n ? bytes / n : 0;
}
/* One Newton-Schulz iteration on an R x C matrix, short side s, long side l: X X^T and A A by their lower half, B X. */
static inline int64_t ns_flops(int64_t r, int64_t c)
{
    int64_t s = r < c ? r : c, l = r < c ? c : r;
    return s * s * l + s * s * s + 2 * s * s * l;
}

/* A product and a factorisation by reflections with its orthogonal factor; or Jacobi's rotations, ten sweeps of them. */
static inline int64_t eigen_flops(int64_t n, int64_t mode)
{
    return mode == 0 ? 0 : mode == 1 ? 2 * n * n * n + 8 * n * n * n / 3 : (mode == 2 ? 90 : 92) * n * n * n;
}

#define LETTERS                                                                                            \
    const int64_t A = dim[0], B = dim[1], C = dim[2], D = dim[3], E = dim[4], F = dim[5], G = dim[6],      \
                  H = dim[7], I = dim[8], K = dim[10], M = dim[12], N = dim[13], O = dim[14], P = dim[15], \
                  R = dim[17], S = dim[18], U = dim[20], V = dim[21], W = dim[22];                         \
    (void)A, (void)B, (void)C, (void)D, (void)E, (void)F, (void)G, (void)H, (void)I, (void)K, (void)M,     \
        (void)N, (void)O, (void)P, (void)R, (void)S, (void)U, (void)V, (void)W, (void)b, (void)s
#define COSTS(name, flops_, bytes_)                                                            \
    static double name##_flops(const int64_t *dim, const int64_t *b, const union mt_scalar *s) \
    {                                                                                          \
        LETTERS;                                                                               \
        return (double)(flops_);                                                               \
    }                                                                                          \
    static double name##_bytes(const int64_t *dim, const int64_t *b, const union mt_scalar *s) \
    {                                                                                          \
        LETTERS;                                                                               \
        return (double)(bytes_);                                                               \
    }
#define OP(name, kind, args, scalars, flops, bytes) COSTS(name, flops, bytes)
#define OP0(name, kind, args, flops, bytes) COSTS(name, flops, bytes)
#include "device/op.def"
#undef OP
#undef OP0

#define ARG_INFO(dir, name, shape, type)       \
    {                                          \
#name, shape, MT_##dir, MT_TYPE_##type \
    }
#define SCALAR_INFO(kind, name) \
    {                           \
#name, #kind[0]         \
    }
const struct mt_op_info mt_op_info[MT_N_OPS] = {
#define OP(name, kind, args, scalars, flops, bytes) \
    {#name,                                         \
     MT_##kind,                                     \
     MT_COUNT args,                                 \
     MT_COUNT scalars,                              \
     {MT_MAP(ARG_INFO, MT_LIST args)},              \
     {MT_MAP(SCALAR_INFO, MT_LIST scalars)},        \
     name##_flops,                                  \
     name##_bytes},
#define OP0(name, kind, args, flops, bytes) \
    {#name, MT_##kind, MT_COUNT args, 0, {MT_MAP(ARG_INFO, MT_LIST args)}, {{0}}, name##_flops, name##_bytes},
#include "device/op.def"
#undef OP
#undef OP0
};

static bool type_fits(uint8_t type, const mt_view *v, int *t)
{
    static const int8_t fixed[] = {
        [MT_TYPE_F32] = MT_F32, [MT_TYPE_F64] = MT_F64, [MT_TYPE_I32] = MT_I32, [MT_TYPE_I64] = MT_I64};
    uint8_t format = type == MT_TYPE_NT ? MT_PACKED_NT : type == MT_TYPE_NN ? MT_PACKED_NN : MT_ROWS;
    if (type == MT_TYPE_ANY) return true;
    if (v->format != format) return false;
    if (type > MT_TYPE_NN) return v->dtype == fixed[type];
    if (v->dtype != MT_F32 && v->dtype != MT_BF16) return false;
    if (*t < 0) *t = v->dtype;
    return v->dtype == *t;
}

/* Binds a letter to n, or compares it. bound: a bit a letter. */
static inline bool letter_fits(char letter, int64_t n, int64_t *dim, uint32_t *bound)
{
    int at = letter - 'A';
    uint32_t bit = 1u << at;
    if (*bound & bit) return dim[at] == n;
    *bound |= bit;
    dim[at] = n;
    return true;
}

static bool dims_fit(const char *shape, const mt_view *v, int64_t *dim, uint32_t *bound)
{
    int i = 0;
    if (*shape == '*') return true;
    if (*shape == '?') {
        shape++;
        bool stacked = v->nd == (int)strlen(shape) + 1;
        if (stacked && !letter_fits('E', v->dim[i++], dim, bound)) return false;
        if (!stacked && !(*bound & 1u << ('E' - 'A'))) letter_fits('E', 1, dim, bound);
    }
    for (; *shape; shape++, i++)
        if (i == v->nd || !letter_fits(*shape, v->dim[i], dim, bound)) return false;
    return i == v->nd;
}

const char *mt_op_bind(enum mt_op op, const mt_view *v, struct mt_call *c, char *msg)
{
    const struct mt_op_info *f = &mt_op_info[op];
    int t = -1;
    uint32_t bound = 0;
    letter_fits('Z', 1, c->dim, &bound);
    for (int i = 0; i < f->n_args; i++) {
        const struct mt_arg_info *a = &f->arg[i];
        bool given = mt_view_given(v[i]);
        if (!given && a->dir == MT_OPT) continue;
        if (!given || !type_fits(a->type, &v[i], &t) || !dims_fit(a->shape, &v[i], c->dim, &bound)) {
            snprintf(
                msg, 256,
                "%s: argument %s should be [%s], type %d; it is %s [%lld, %lld, %lld], %d dims, format %d",
                f->name, a->name, a->shape, a->type, given ? mt_dtype_name((mt_dtype)v[i].dtype) : "missing",
                (long long)v[i].dim[0], (long long)v[i].dim[1], (long long)v[i].dim[2], v[i].nd, v[i].format);
            return msg;
        }
        c->ld[i] = v[i].ld;
        c->stride[i] = v[i].stride;
        c->bytes[i] = v[i].bytes;
    }
    c->op = (uint16_t)op;
    c->dtype = (uint8_t)(t < 0 ? MT_F32 : t);
    return NULL;
}

/* FNV-1a, the end of each text included. */
static uint64_t hash_text(uint64_t h, const char *s)
{
    do h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    while (*s++);
    return h;
}

uint64_t mt_op_table_hash(void)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < MT_N_OPS; i++) {
        const struct mt_op_info *f = &mt_op_info[i];
        h = hash_text(h, f->name);
        for (int k = 0; k < f->n_args; k++) {
            h = hash_text(hash_text(h, f->arg[k].name), f->arg[k].shape);
            h = (h ^ f->arg[k].dir) * UINT64_C(0x100000001b3);
            h = (h ^ f->arg[k].type) * UINT64_C(0x100000001b3);
        }
        for (int k = 0; k < f->n_scalars; k++) h = hash_text(h, f->scalar[k].name);
    }
    return h;
}
