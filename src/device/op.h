/* op.h: what the op table (op.def) generates: descriptions, typed calls; ids and kernels' arguments are in call.h. */
#ifndef MT_DEVICE_OP_H
#define MT_DEVICE_OP_H
#include "device/call.h"
#include "device/view.h"

struct mt_stream;

struct mt_arg_info {
    const char *name, *shape;
    uint8_t dir, type;
};
struct mt_scalar_info {
    const char *name;
    char kind; /* 'I' or 'F' */
};
struct mt_op_info {
    const char *name;
    uint8_t kind, n_args, n_scalars;
    struct mt_arg_info arg[MT_MAX_ARGS];
    struct mt_scalar_info scalar[MT_MAX_SCALARS];
    /* dim: by letter; b: bytes of the arguments; s: scalars */
    double (*flops)(const int64_t *dim, const int64_t *b, const union mt_scalar *s);
    double (*bytes)(const int64_t *dim, const int64_t *b, const union mt_scalar *s);
};
extern const struct mt_op_info mt_op_info[MT_N_OPS];
/* Of names, kinds, arguments and scalars, in order: equal in programs that can work together. */
uint64_t mt_op_table_hash(void);

/* One part of a call. Kernels are pure functions of their arguments: which of `parts` runs where and when never changes
 * a bit. scratch: MT_SCRATCH_BYTES owned by whoever runs the part; dev: the device's own tables (its ISA, say). */
enum { MT_SCRATCH_BYTES = 4 << 20 };
typedef void mt_kernel(const struct mt_call *c, int part, int parts, void *scratch, const void *dev);

/* Letters bound by the views, dtype and every check of shapes; returns NULL or what is wrong (in msg, 256 bytes). c: zeroed. */
const char *mt_op_bind(enum mt_op op, const mt_view *v, struct mt_call *c, char *msg);

/* Enqueues an operation on a stream; v has one view an argument, in order. A shape that does not fit is a bug of the
 * caller: the program stops and names op, argument, expected and actual. */
void mt_enqueue(struct mt_stream *s, enum mt_op op, const mt_view *v, const union mt_scalar *scalars);

/* Uneven all-to-all: member p's recv_n units come from its send buffer. home: into a buffer that keeps its other rows. */
void mt_exchange_units(struct mt_stream *s, bool home, mt_view recv, mt_view send, int64_t comm, int64_t unit,
                       const struct mt_exchange_peer *peer, int n);

/* clang-format off */
#define MT_ARG_PARAM(dir, name, shape, type) mt_view name
#define MT_ARG_VALUE(dir, name, shape, type) name
#define MT_SCALAR_PARAM(kind, name) MT_SCALAR_##kind name
#define MT_UNION_I(name) {.i = name}
#define MT_UNION_F(name) {.f = name}
#define MT_SCALAR_VALUE(kind, name) MT_UNION_##kind(name)
#define OP(name, kind, args, scalars, flops, bytes)                                                                    \
    static inline void mt_##name(struct mt_stream *stream_, MT_MAP(MT_ARG_PARAM, MT_LIST args), MT_MAP(MT_SCALAR_PARAM, MT_LIST scalars)) \
    {                                                                                                                  \
        mt_enqueue(stream_, MT_OP_##name, (mt_view[]){MT_MAP(MT_ARG_VALUE, MT_LIST args)},                             \
                   (union mt_scalar[MT_MAX_SCALARS]){MT_MAP(MT_SCALAR_VALUE, MT_LIST scalars)});                       \
    }
#define OP0(name, kind, args, flops, bytes)                                                                            \
    static inline void mt_##name(struct mt_stream *stream_, MT_MAP(MT_ARG_PARAM, MT_LIST args))                        \
    {                                                                                                                  \
        mt_enqueue(stream_, MT_OP_##name, (mt_view[]){MT_MAP(MT_ARG_VALUE, MT_LIST args)},                             \
                   (union mt_scalar[MT_MAX_SCALARS]){{0}});                                                            \
    }
#include "device/op.def"
#undef OP
#undef OP0
#endif
