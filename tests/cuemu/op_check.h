/* op_check.h: one op of the table on the cuda device and on the cpu device's kernels, on the same inputs: arguments come from the
 * table's own shapes and types, so a trial names letters, scalars and, where numbers will not do, contents. */
#ifndef MT_TESTS_OP_CHECK_H
#define MT_TESTS_OP_CHECK_H
#include "sides.h"

struct trial_arg {
    struct tensor t;
    mt_view view;   /* what the op gets */
    mt_view master; /* of a working weight: what it is packed from, on the device */
    mt_view form;   /* and between, if it is in the other form */
    bool given, ints;
};
struct trial {
    struct side *side;
    const struct mt_op_info *info;
    enum mt_op op;
    mt_dtype dtype;
    int64_t dim[MT_LETTERS];
    union mt_scalar scalar[MT_MAX_SCALARS];
    struct trial_arg arg[MT_MAX_ARGS];
};
typedef void trial_fill(struct trial *t);

/* How a trial is made. Zeros are fine for all but op and dims. */
struct trial_spec {
    enum mt_op op;
    const char *dims;    /* "N=5 D=64"; X: elements of an argument of any shape */
    const char *without; /* optional arguments that are left out, " res " */
    union mt_scalar scalar[8];
    trial_fill *fill;       /* contents that matter, after all arguments have random ones */
    int64_t pad, off;       /* elements between rows; shift that takes the alignment away */
    int64_t ws_bytes;       /* of a workspace of any shape */
    double tol[2], tol_f32; /* by type of the working type's outputs; of f32 outputs. 0: 2e-6, 5e-3, 2e-6 */
    bool one_type;          /* no working type: one run will do */
};
#define I_(x)    \
    {            \
        .i = (x) \
    }
#define F_(x)    \
    {            \
        .f = (x) \
    }

static inline int64_t trial_dim(const struct trial *t, char letter)
{
    return t->dim[letter - 'A'];
}
static inline int trial_index(const struct trial *t, const char *name)
{
    int i = 0;
    while (strcmp(t->info->arg[i].name, name)) MT_ASSERT(++i < t->info->n_args);
    return i;
}
/* The image of an argument's first element, where it is put together. */
static inline void *trial_at(const struct trial *t, const char *name)
{
    return mt_address(&t->side->ctx, t->arg[trial_index(t, name)].t.host);
}
static inline int64_t trial_ld(const struct trial *t, const char *name)
{
    return t->arg[trial_index(t, name)].t.host.ld;
}
static inline int64_t trial_below(struct trial *t, int64_t n)
{
    int64_t i = (int64_t)(((double)uniform(t->side) + 1) / 2 * (double)n);
    return i < n ? i : n - 1;
}

static inline void trial_dims(struct trial *t, const char *text)
{
    for (int i = 0; i < MT_LETTERS; i++) t->dim[i] = -1;
    t->dim['Z' - 'A'] = 1;
    for (const char *p = text; *p;) {
        char letter, *end;
        if (*p == ' ') {
            p++;
            continue;
        }
        letter = *p;
        t->dim[letter - 'A'] = strtoll(p + 2, &end, 10);
        p = end;
    }
}

static inline mt_dtype trial_type(const struct trial *t, uint8_t type)
{
    static const mt_dtype fixed[] = {[MT_TYPE_F32] = MT_F32,
                                     [MT_TYPE_F64] = MT_F64,
                                     [MT_TYPE_I32] = MT_I32,
                                     [MT_TYPE_I64] = MT_I64,
                                     [MT_TYPE_ANY] = MT_F32};
    return type <= MT_TYPE_NN ? t->dtype : fixed[type];
}

/* Rows `pad` elements apart, between guard bytes, in both arenas. */
static inline struct tensor trial_tensor(struct side *s, mt_dtype d, int nd, const int64_t *dim, int64_t pad,
                                         int64_t off)
{
    int64_t el = mt_dtype_bytes(d), width = dim[nd - 1], ld = width + (nd > 1 ? pad : 0);
    mt_view v = {
        .dtype = (uint8_t)d, .nd = (uint8_t)nd, .format = MT_ROWS, .off = EDGE * 4 + off * el, .ld = ld};
    int64_t rows = 1;
    for (int i = 0; i < nd; i++) v.dim[i] = dim[i];
    for (int i = 0; i + 1 < nd; i++) rows *= dim[i];
    v.stride = nd == 3 ? dim[1] * ld * el : 0;
    v.bytes = rows && width ? ((rows - 1) * ld + width) * el : 0;
    int64_t bytes = v.off + v.bytes + EDGE;
    struct tensor x = {.dev = v, .host = v};
    x.dev.row = x.dev_row = mt_row_add(&s->ledger, MT_DEVICE_ARENA, MT_ROW_ACTIVATION, bytes, "tensor");
    x.host.row = x.host_row = mt_row_add(&s->ledger, MT_HOST_ARENA, MT_ROW_ACTIVATION, bytes, "image");
    return x;
}

static inline mt_view trial_packed(struct trial *t, enum mt_format f, int64_t experts, const int64_t *oi,
                                   const char *name)
{
    struct side *s = t->side;
    int64_t bytes = mt_packed_bytes(s->target, t->dtype, f, oi[0], oi[1]), n = experts < 0 ? 1 : experts;
    int32_t row = mt_row_add(&s->ledger, MT_DEVICE_ARENA, MT_ROW_WEIGHT, bytes * n, "%s", name);
    mt_view v = mt_packed_view(s->target, row, t->dtype, f, 0, oi[0], oi[1]);
    return experts < 0 ? v : mt_view_stack(v, experts, bytes);
}

static inline void trial_arg(struct trial *t, const struct trial_spec *p, int i)
{
    const struct mt_arg_info *f = &t->info->arg[i];
    struct trial_arg *a = &t->arg[i];
    int64_t dim[3], experts = -1;
    int nd = 0;
    const char *shape = f->shape;
    char name[32];
    snprintf(name, sizeof name, " %s ", f->name);
    a->view = MT_NONE;
    if (f->dir == MT_OPT && p->without && strstr(p->without, name)) return;
    a->given = true;
    mt_dtype d = trial_type(t, f->type);
    a->ints = d == MT_I32 || d == MT_I64;
    if (*shape == '?') {
        shape++;
        experts = trial_dim(t, 'E');
        if (experts >= 0) dim[nd++] = experts;
    }
    if (*shape == '*')
        dim[nd++] = f->dir == MT_WS ? p->ws_bytes / 4 : trial_dim(t, 'X');
    else
        for (; *shape; shape++) {
            dim[nd++] = trial_dim(t, *shape);
            MT_ASSERT(dim[nd - 1] >= 0);
        }
    bool packed = f->type == MT_TYPE_NT || f->type == MT_TYPE_NN;
    const bool dense = packed || !strcmp(f->shape, "HN"); /* lse has no rows apart */
    if (packed && nd == 3) experts = dim[0];
    a->t = trial_tensor(t->side, packed ? MT_F32 : d, nd, dim, dense ? 0 : p->pad, packed ? 0 : p->off);
    a->view = a->t.dev;
    if (!packed) return;
    a->master = a->t.dev;
    a->form = trial_packed(t, MT_PACKED_NT, experts, dim + nd - 2, "form");
    a->view = f->type == MT_TYPE_NT ? a->form
                                    : trial_packed(t, MT_PACKED_NN, experts, dim + nd - 2, "turned");
}

static inline void trial_random(struct trial *t, const mt_view *v)
{
    char *p = mt_address(&t->side->ctx, *v);
    int64_t el = mt_dtype_bytes((mt_dtype)v->dtype);
    for (int64_t i = 0; i < v->bytes / el; i++) {
        float x = uniform(t->side);
        switch (v->dtype) {
        case MT_F32: ((float *)(void *)p)[i] = x; break;
        case MT_F64: ((double *)(void *)p)[i] = (double)x; break;
        case MT_BF16: ((mt_bf16 *)(void *)p)[i] = mt_bf16_of(x); break;
        case MT_I32: ((int32_t *)(void *)p)[i] = (int32_t)(x * 100); break;
        case MT_I64: ((int64_t *)(void *)p)[i] = (int64_t)(x * 100); break;
        default: break;
        }
    }
}

/* Builds it on a side: memory, contents, working weights; view: what the op gets. */
static inline void trial_open(struct trial *t, struct side *s, enum machine m, const struct trial_spec *p,
                              mt_dtype d, mt_view view[MT_MAX_ARGS])
{
    *t = (struct trial){.side = s, .info = &mt_op_info[p->op], .op = p->op, .dtype = d};
    side_init(s, m);
    trial_dims(t, p->dims);
    memcpy(t->scalar, p->scalar, sizeof p->scalar);
    for (int i = 0; i < t->info->n_args; i++) trial_arg(t, p, i);
    side_open(s);
    for (int i = 0; i < t->info->n_args; i++)
        if (t->arg[i].given) trial_random(t, &t->arg[i].t.host);
    if (p->fill) p->fill(t);
    struct mt_stream *q = &s->ctx.stream[MT_COMPUTE];
    for (int i = 0; i < t->info->n_args; i++) {
        struct trial_arg *a = &t->arg[i];
        view[i] = a->view;
        if (!a->given) continue;
        upload(s, &a->t, MT_COMPUTE);
        if (a->view.format != MT_ROWS) mt_weight_pack(q, a->form, a->master);
        if (a->view.format == MT_PACKED_NN) mt_weight_turn(q, a->view, a->form);
    }
}

/* Builds it, runs the op, brings everything back to the images. */
static inline void trial_run(struct trial *t, struct side *s, enum machine m, const struct trial_spec *p,
                             mt_dtype d)
{
    mt_view view[MT_MAX_ARGS];
    trial_open(t, s, m, p, d, view);
    mt_enqueue(&s->ctx.stream[MT_COMPUTE], p->op, view, t->scalar);
    for (int i = 0; i < t->info->n_args; i++)
        if (t->arg[i].given && t->arg[i].view.format == MT_ROWS) download(s, &t->arg[i].t, MT_COMPUTE);
    side_finish(s);
}

static inline double trial_value(const void *p, uint8_t d, int64_t i)
{
    switch (d) {
    case MT_F32: return (double)((const float *)p)[i];
    case MT_F64: return ((const double *)p)[i];
    case MT_BF16: return (double)mt_f32_of(((const mt_bf16 *)p)[i]);
    case MT_I32: return ((const int32_t *)p)[i];
    default: return (double)((const int64_t *)p)[i];
    }
}

/* Elements by the norm of their difference, whole numbers exactly; bytes outside of them are as they were. */
static inline bool trial_same(const struct trial *got, const struct trial *want, int i, double tol)
{
    mt_view v = got->arg[i].t.host;
    const char *a = mt_address(&got->side->ctx, v), *b = mt_address(&want->side->ctx, v);
    const unsigned char *row = mt_address(&got->side->ctx, whole_row(got->side, v.row));
    int64_t bytes = got->side->ledger.row[v.row].bytes, el = mt_dtype_bytes((mt_dtype)v.dtype), strays = 0,
            rows = 1;
    char *covered = calloc(1, (size_t)bytes);
    double diff = 0, norm = 0;
    for (int k = 0; k + 1 < v.nd; k++) rows *= v.dim[k];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < v.dim[v.nd - 1]; j++) {
            double w = trial_value(b, v.dtype, r * v.ld + j), d = trial_value(a, v.dtype, r * v.ld + j) - w;
            if (w != w)
                d = trial_value(a, v.dtype, r * v.ld + j) ==
                    trial_value(a, v.dtype, r * v.ld + j); /* NaN is wanted */
            else
                norm += w * w;
            diff += d * d;
            memset(covered + v.off + (r * v.ld + j) * el, 1, (size_t)el);
        }
    for (int64_t k = 0; k < bytes; k++) {
        bool pad = k >= v.off && k < v.off + v.bytes; /* between rows: random bytes, the same on both sides */
        const unsigned char was = pad ? *(const unsigned char *)(b + (k - v.off)) : GUARD;
        strays += !covered[k] && row[k] != was;
    }
    free(covered);
    double far = norm > 0 ? sqrt(diff / norm) : sqrt(diff);
    return CHECK_CLOSE(far, 0, got->arg[i].ints ? 0 : tol) & CHECK_INT(strays, 0);
}

static inline void trial_check(const struct trial_spec *p)
{
    static int turn;
    const struct mt_op_info *f = &mt_op_info[p->op];
    for (int t = MT_F32; t <= (p->one_type ? MT_F32 : MT_BF16); t++) {
        struct side cpu, cuda;
        struct trial a, b;
        set_order(turn++ % N_ORDERS);
        trial_run(&a, &cpu, CPU, p, (mt_dtype)t);
        trial_run(&b, &cuda, CUDA, p, (mt_dtype)t);
        const double given = p->tol[t], usual[] = {2e-6, 5e-3}, tol = given != 0 ? given : usual[t],
                     tol_f32 = p->tol_f32 != 0 ? p->tol_f32 : 2e-6;
        for (int i = 0; i < f->n_args; i++) {
            if (!b.arg[i].given || b.arg[i].view.format != MT_ROWS || f->arg[i].dir == MT_WS) continue;
            if (!trial_same(&b, &a, i, f->arg[i].type == MT_TYPE_T ? tol : tol_f32))
                printf("  %s: %s, %s, %s, pad %lld, off %lld\n", f->name, f->arg[i].name,
                       mt_dtype_name((mt_dtype)t), p->dims, (long long)p->pad, (long long)p->off);
        }
        side_close(&cpu), side_close(&cuda);
    }
    set_order(0);
}
#define TRY(name, ...) trial_check(&(struct trial_spec){.op = MT_OP_##name, __VA_ARGS__})
#endif
