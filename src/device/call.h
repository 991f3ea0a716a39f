/* call.h: what the op table (op.def) generates for kernels: ids, and the form in which a kernel gets its work. C11 and C++17. */
#ifndef MT_DEVICE_CALL_H
#define MT_DEVICE_CALL_H
#include <stdint.h>

#ifdef __cplusplus
#define MT_STATIC_ASSERT static_assert
#else
#define MT_STATIC_ASSERT _Static_assert
#endif

enum { MT_MAX_ARGS = 11, MT_MAX_SCALARS = 22, MT_LETTERS = 26, MT_MAX_EP = 8 };
enum mt_dir { MT_IN, MT_OPT, MT_OUT, MT_SOME, MT_PART, MT_INOUT, MT_WS };
enum mt_kind { MT_KERNEL, MT_COPY, MT_READ, MT_COMM };
enum mt_type {
    MT_TYPE_T,
    MT_TYPE_NT,
    MT_TYPE_NN,
    MT_TYPE_F32,
    MT_TYPE_F64,
    MT_TYPE_I32,
    MT_TYPE_I64,
    MT_TYPE_ANY
};
/* Rows at whose multiples, within an expert, a dispatch round may be cut. */
enum { MT_ROUND_ROWS = 32 };
/* Row blocks by which rmsnorm_bwd sums the gradient of its gain. */
enum { MT_NORM_BLOCKS = 16 };
/* Words of an exact sum of squares: base/exact.h. */
enum { MT_SUMSQ_WORDS = 20 };

union mt_scalar {
    int64_t i;
    double f;
};

/* clang-format off */
/* MAP(f, (a), (b), ...) gives f a, f b, ...  for up to 11 parenthesised tuples. */
#define MT_CAT_(a, b) a##b
#define MT_CAT(a, b) MT_CAT_(a, b)
#define MT_LIST(...) __VA_ARGS__
#define MT_COUNT_(a, b, c, d, e, f, g, h, i, j, k, n, ...) n
#define MT_COUNT(...) MT_COUNT_(__VA_ARGS__, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define MT_M1(f, a) f a
#define MT_M2(f, a, ...) f a, MT_M1(f, __VA_ARGS__)
#define MT_M3(f, a, ...) f a, MT_M2(f, __VA_ARGS__)
#define MT_M4(f, a, ...) f a, MT_M3(f, __VA_ARGS__)
#define MT_M5(f, a, ...) f a, MT_M4(f, __VA_ARGS__)
#define MT_M6(f, a, ...) f a, MT_M5(f, __VA_ARGS__)
#define MT_M7(f, a, ...) f a, MT_M6(f, __VA_ARGS__)
#define MT_M8(f, a, ...) f a, MT_M7(f, __VA_ARGS__)
#define MT_M9(f, a, ...) f a, MT_M8(f, __VA_ARGS__)
#define MT_M10(f, a, ...) f a, MT_M9(f, __VA_ARGS__)
#define MT_M11(f, a, ...) f a, MT_M10(f, __VA_ARGS__)
#define MT_MAP(f, ...) MT_CAT(MT_M, MT_COUNT(__VA_ARGS__))(f, __VA_ARGS__)
/* The same with `;` between: for struct members. */
#define MT_S1(f, a) f a;
#define MT_S2(f, a, ...) f a; MT_S1(f, __VA_ARGS__)
#define MT_S3(f, a, ...) f a; MT_S2(f, __VA_ARGS__)
#define MT_S4(f, a, ...) f a; MT_S3(f, __VA_ARGS__)
#define MT_S5(f, a, ...) f a; MT_S4(f, __VA_ARGS__)
#define MT_S6(f, a, ...) f a; MT_S5(f, __VA_ARGS__)
#define MT_S7(f, a, ...) f a; MT_S6(f, __VA_ARGS__)
#define MT_S8(f, a, ...) f a; MT_S7(f, __VA_ARGS__)
#define MT_S9(f, a, ...) f a; MT_S8(f, __VA_ARGS__)
#define MT_S10(f, a, ...) f a; MT_S9(f, __VA_ARGS__)
#define MT_S11(f, a, ...) f a; MT_S10(f, __VA_ARGS__)
#define MT_MEMBERS(f, ...) MT_CAT(MT_S, MT_COUNT(__VA_ARGS__))(f, __VA_ARGS__)

/* clang-format on */

enum mt_op {
#define OP(name, kind, args, scalars, flops, bytes) MT_OP_##name,
#define OP0(name, kind, args, flops, bytes) MT_OP_##name,
#include "device/op.def"
#undef OP
#undef OP0
    MT_N_OPS,
    MT_OP_wait = MT_N_OPS /* waits are rows of a record too */
};

/* The arguments of a call as a device's kernel gets them: for the op `name`, `struct mt_args_name` has a void pointer
 * per argument (NULL: left out) and `struct mt_scalars_name` the scalars, both in the order of the table. */
/* clang-format off */
#define MT_ALIAS __attribute__((may_alias)) /* they are read over arrays of pointers and of unions */
#define MT_ARG_MEMBER(dir, name, shape, type) void *name
#define MT_SCALAR_I int64_t
#define MT_SCALAR_F double
#define MT_SCALAR_MEMBER(kind, name) MT_SCALAR_##kind name
#define OP(name, kind, args, scalars, flops, bytes)                                  \
    struct MT_ALIAS mt_args_##name { MT_MEMBERS(MT_ARG_MEMBER, MT_LIST args) };               \
    struct MT_ALIAS mt_scalars_##name { MT_MEMBERS(MT_SCALAR_MEMBER, MT_LIST scalars) };
#define OP0(name, kind, args, flops, bytes) struct MT_ALIAS mt_args_##name { MT_MEMBERS(MT_ARG_MEMBER, MT_LIST args) };
#include "device/op.def"
#undef OP
#undef OP0

/* clang-format on */

struct mt_call {
    uint16_t op;
    uint8_t dtype; /* what T is */
    void *arg[MT_MAX_ARGS];
    int64_t ld[MT_MAX_ARGS];     /* elements between rows (the last dimension but one) */
    int64_t stride[MT_MAX_ARGS]; /* bytes between indices of dim 0 of three */
    int64_t bytes[MT_MAX_ARGS];
    int64_t dim[MT_LETTERS];
    union mt_scalar scalar[MT_MAX_SCALARS];
};
static inline int64_t mt_dim(const struct mt_call *c, char letter)
{
    return c->dim[letter - 'A'];
}
#define MT_ARGS(op, c) ((const struct mt_args_##op *)(const void *)(c)->arg)
#define MT_SCALARS(op, c) ((const struct mt_scalars_##op *)(const void *)(c)->scalar)

/* What an exchange moves between this rank and one peer, in units: copied into the call behind its table scalars, for what the
 * host derives from a read is never pointed to. */
struct MT_ALIAS mt_exchange_peer {
    int32_t send_first, send_n; /* of this rank's send buffer, for the peer */
    int32_t recv_first, recv_n; /* of this rank's receive buffer, from the peer */
    int32_t from_first;         /* where recv_n units begin in the peer's send buffer */
};
static inline const struct mt_exchange_peer *mt_exchange_peers(const struct mt_call *c)
{
    return (const struct mt_exchange_peer *)(const void *)&c->scalar[2];
}
MT_STATIC_ASSERT(sizeof(struct mt_exchange_peer) * MT_MAX_EP <=
                     sizeof(union mt_scalar) * (MT_MAX_SCALARS - 2),
                 "peers fit the scalars");
#endif
