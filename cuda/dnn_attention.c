#include "dnn_attention.h"

#include <stdlib.h>
#include <string.h>

#include "dnn_sdpa.h"
#include "documents.h"

enum { SHAPES = 16, PACKS = 64, ALIGN = 256, MOST_WIDTH = 256 };

/* What a plan was made for: compared as bytes, without a gap. */
struct key {
    struct mt_dnn_shape dims;
    int64_t tokens, dtype, scratch_bytes;
    double scale;
};
/* Where the parts of the scratch memory begin. */
struct parts {
    size_t fit, length[2], first[MT_DOCUMENT_LISTS], workspace;
};
struct shape {
    struct key key;
    struct mt_dnn_graph graph;
    struct mt_dnn_plan plan;
    struct parts parts;
    float scale, never;
    /* Arguments of the plan, by the pointers they hold: a step's are the same in every step. */
    struct {
        void *arg[MT_MAX_ARGS], *scratch;
        mt_dnn pack;
        struct mt_dnn_graph made;
    } pack[PACKS];
    int n_packs;
};
struct mt_sdpa {
    struct mt_dnn_table f;
    cudnnHandle_t handle;
    struct shape *shape[SHAPES]; /* owned */
    int n;
};

/* ---- the op's arguments ---- */
/* Tensors of a direction: their names for cuDNN, and where they are among the op's arguments. */
struct tensor {
    int64_t name;
    int arg;
};
static const struct tensor forward[] = {
    {MT_DNN_O, 0}, {MT_DNN_LSE, 1}, {MT_DNN_Q, 2}, {MT_DNN_K, 3}, {MT_DNN_V, 4}};
static const struct tensor backward[] = {{MT_DNN_DQ, 0},   {MT_DNN_DK, 1}, {MT_DNN_DV, 2},
                                         {MT_DNN_DOUT, 3}, {MT_DNN_O, 4},  {MT_DNN_LSE, 5},
                                         {MT_DNN_Q, 6},    {MT_DNN_K, 7},  {MT_DNN_V, 8}};
enum { FORWARD = sizeof forward / sizeof *forward, BACKWARD = sizeof backward / sizeof *backward };
static bool is_backward(const struct mt_call *c)
{
    return c->op == MT_OP_attention_bwd;
}
static const struct tensor *tensors(const struct mt_call *c, int *n)
{
    *n = is_backward(c) ? BACKWARD : FORWARD;
    return is_backward(c) ? backward : forward;
}
static const int32_t *begin_of(const struct mt_call *c)
{
    return c->arg[is_backward(c) ? 9 : 5];
}
static struct mt_dnn_place place(const struct mt_call *c, int arg)
{
    return (struct mt_dnn_place){.token = c->stride[arg] / mt_dtype_bytes((mt_dtype)c->dtype),
                                 .head = c->ld[arg]};
}
/* Elements between tokens. */
static int64_t token_stride(const struct mt_call *c, const struct tensor *t)
{
    return t->name == MT_DNN_LSE ? 1 : place(c, t->arg).token;
}

/* Tokens of a sequence: of sequences of S tokens, N (S + 1) / 2 pairs. Documents do not reach over their ends. */
int64_t mt_sdpa_rows(const struct mt_call *c)
{
    const int64_t n = mt_dim(c, 'N') > 0 ? mt_dim(c, 'N') : 1, pairs = MT_SCALARS(attention_fwd, c)->pairs,
                  rows = 2 * pairs / n - 1;
    return rows < 1 || rows > n ? n : rows;
}
/* Room for documents of 512 tokens on the average, or four a sequence. */
static int64_t room_of(const struct mt_call *c)
{
    const int64_t n = mt_dim(c, 'N'), rows = mt_sdpa_rows(c), sequences = (n + rows - 1) / rows,
                  room = sequences * (rows > 4 * 512 ? rows / 512 : 4);
    return room < n ? room : n;
}
static struct mt_dnn_shape dims_of(const struct mt_call *c)
{
    struct mt_dnn_shape s = {.documents = room_of(c),
                             .rows = mt_sdpa_rows(c),
                             .heads = mt_dim(c, 'H'),
                             .groups = mt_dim(c, 'G'),
                             .width = mt_dim(c, 'A'),
                             .value = mt_dim(c, 'B'),
                             .backward = is_backward(c)};
    if (s.backward) {
        s.dq = place(c, 0), s.dk = place(c, 1), s.dv = place(c, 2), s.dout = place(c, 3), s.o = place(c, 4);
        s.lse_head = c->ld[5];
        s.q = place(c, 6), s.k = place(c, 7), s.v = place(c, 8);
    } else {
        s.o = place(c, 0);
        s.lse_head = c->ld[1];
        s.q = place(c, 2), s.k = place(c, 3), s.v = place(c, 4);
    }
    return s;
}
static struct key key_of(const struct mt_call *c, size_t scratch_bytes)
{
    return (struct key){.dims = dims_of(c),
                        .tokens = mt_dim(c, 'N'),
                        .dtype = c->dtype,
                        .scratch_bytes = (int64_t)scratch_bytes,
                        .scale = MT_SCALARS(attention_fwd, c)->scale};
}

/* ---- opening ---- */
mt_status mt_sdpa_open(struct mt_sdpa **sdpa, mt_err *e)
{
    struct mt_sdpa *d = calloc(1, sizeof *d);
    *sdpa = NULL;
    MT_REQUIRE(d, e, MT_IO, "opening cuDNN: no memory for %zu bytes", sizeof *d);
    mt_status status = mt_dnn_table_open(&d->f, e);
    if (!status) {
        cudnnStatus_t made = d->f.cudnnCreate(&d->handle);
        if (made) {
            d->handle = NULL;
            status = mt_err_set(e, MT_DEVICE, "opening cuDNN: %s", d->f.cudnnGetErrorString(made));
        }
    }
    if (status) {
        mt_sdpa_close(d);
        return status;
    }
    *sdpa = d;
    return MT_OK;
}
static void shape_close(struct shape *s)
{
    for (int i = 0; i < s->n_packs; i++) mt_dnn_graph_close(&s->pack[i].made);
    mt_dnn_graph_close(&s->graph);
    free(s);
}
void mt_sdpa_close(struct mt_sdpa *d)
{
    if (!d) return;
    for (int i = 0; i < d->n; i++) shape_close(d->shape[i]);
    if (d->handle) d->f.cudnnDestroy(d->handle);
    mt_dnn_table_close(&d->f);
    free(d);
}
int mt_sdpa_version(const struct mt_sdpa *d)
{
    return (int)d->f.cudnnGetVersion();
}

/* ---- preparing ---- */
static size_t take(size_t *at, size_t bytes)
{
    const size_t here = *at;
    *at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}
static struct parts parts_of(const struct mt_call *c)
{
    struct parts p = {0};
    size_t at = 0, room = (size_t)room_of(c);
    int n;
    tensors(c, &n);
    p.fit = take(&at, sizeof(int32_t));
    for (int i = 0; i < 2; i++) p.length[i] = take(&at, room * sizeof(int32_t));
    for (int i = 0; i < n; i++) p.first[i] = take(&at, (room + 1) * sizeof(int32_t));
    p.workspace = at;
    return p;
}
/* What cuDNN is not asked about. */
static mt_status suits(const struct mt_call *c, mt_err *e)
{
    const int64_t a = mt_dim(c, 'A'), b = mt_dim(c, 'B'), most = INT32_MAX;
    int n;
    const struct tensor *t = tensors(c, &n);
    MT_REQUIRE(mt_dim(c, 'N') > 0, e, MT_DEVICE, "there are no tokens");
    MT_REQUIRE(c->dtype == MT_BF16, e, MT_DEVICE, "it has no f32");
    MT_REQUIRE(a % 8 == 0 && b % 8 == 0, e, MT_DEVICE, "heads of %lld and %lld are no multiples of 8",
               (long long)a, (long long)b);
    MT_REQUIRE(a <= MOST_WIDTH && b <= MOST_WIDTH, e, MT_DEVICE, "heads of %lld and %lld are wider than %d",
               (long long)a, (long long)b, MOST_WIDTH);
    for (int i = 0; i < n; i++)
        MT_REQUIRE(token_stride(c, &t[i]) <= most / mt_dim(c, 'N'), e, MT_DEVICE,
                   "%lld tokens, %lld elements apart, do not fit its offsets of 32 bits",
                   (long long)mt_dim(c, 'N'), (long long)token_stride(c, &t[i]));
    return MT_OK;
}
static mt_status shape_make(struct mt_sdpa *d, struct shape *s, const struct mt_call *c, size_t scratch_bytes,
                            mt_err *e)
{
    s->parts = parts_of(c);
    s->scale = (float)MT_SCALARS(attention_fwd, c)->scale;
    s->never = -1e30f;
    mt_dnn_graph_init(&s->graph, &d->f);
    MT_TRY(mt_dnn_sdpa(&s->graph, &s->key.dims, d->handle, e));
    MT_TRY(mt_dnn_graph_plan(&s->graph, d->handle, &s->plan, e));
    MT_REQUIRE(s->parts.workspace + (size_t)s->plan.workspace <= scratch_bytes, e, MT_DEVICE,
               "it would take %.1f MiB of scratch memory of %.1f (device.scratch)",
               (double)(s->parts.workspace + (size_t)s->plan.workspace) / (1 << 20),
               (double)scratch_bytes / (1 << 20));
    return MT_OK;
}
mt_status mt_sdpa_prepare(struct mt_sdpa *d, const struct mt_call *c, size_t scratch_bytes, mt_err *e)
{
    MT_TRY(suits(c, e));
    MT_REQUIRE(d->n < SHAPES, e, MT_DEVICE, "there are more than %d shapes", SHAPES);
    struct shape *s = calloc(1, sizeof *s);
    MT_REQUIRE(s, e, MT_IO, "no memory for %zu bytes", sizeof *s);
    s->key = key_of(c, scratch_bytes);
    mt_status status = shape_make(d, s, c, scratch_bytes, e);
    if (status) {
        shape_close(s);
        return status;
    }
    d->shape[d->n++] = s;
    return MT_OK;
}

static mt_status support(struct mt_dnn_graph *g, const struct mt_call *c, const char *device_json,
                         int64_t *bytes, mt_err *e)
{
    const struct mt_dnn_shape dims = dims_of(c);
    MT_TRY(mt_dnn_sdpa(g, &dims, NULL, e));
    MT_TRY(mt_dnn_graph_support(g, device_json, bytes, e));
    *bytes += (int64_t)parts_of(c).workspace;
    return MT_OK;
}
mt_status mt_sdpa_support(const struct mt_call *c, const char *device_json, int64_t *bytes, mt_err *e)
{
    struct mt_dnn_table f;
    struct mt_dnn_graph g;
    *bytes = 0;
    MT_TRY(suits(c, e));
    MT_TRY(mt_dnn_table_open(&f, e));
    mt_dnn_graph_init(&g, &f);
    mt_status status = support(&g, c, device_json, bytes, e);
    mt_dnn_graph_close(&g);
    mt_dnn_table_close(&f);
    return status;
}

static int find(const struct mt_sdpa *d, const struct mt_call *c, size_t scratch_bytes)
{
    const struct key k = key_of(c, scratch_bytes);
    int i = 0;
    while (i < d->n && memcmp(&d->shape[i]->key, &k, sizeof k)) i++;
    return i < d->n ? i : -1;
}
void mt_sdpa_forget(struct mt_sdpa *d, const struct mt_call *c)
{
    for (int i = d->n; i-- > 0;) {
        const struct key k = key_of(c, (size_t)d->shape[i]->key.scratch_bytes);
        if (memcmp(&d->shape[i]->key, &k, sizeof k)) continue;
        shape_close(d->shape[i]);
        d->shape[i] = d->shape[--d->n];
    }
}

/* ---- running ---- */
static int32_t *part(const struct mt_cuda_lane *q, size_t at)
{
    return (int32_t *)(void *)((char *)q->scratch + at);
}
static mt_status list_documents(const struct shape *s, const struct mt_call *c, const struct mt_cuda_lane *q,
                                mt_err *e)
{
    struct mt_documents x = {.begin = begin_of(c),
                             .n = mt_dim(c, 'N'),
                             .room = s->key.dims.documents,
                             .rows = s->key.dims.rows,
                             .fit = part(q, s->parts.fit),
                             .length = {part(q, s->parts.length[0]), part(q, s->parts.length[1])}};
    const struct tensor *t = tensors(c, &x.lists);
    for (int i = 0; i < x.lists; i++) {
        x.first[i] = part(q, s->parts.first[i]);
        x.times[i] = (int32_t)token_stride(c, &t[i]);
    }
    cudaError_t failed = mt_cuda_documents(&x, q->stream);
    MT_REQUIRE(!failed, e, MT_DEVICE, "listing documents: %s", cudaGetErrorString(failed));
    return MT_OK;
}
static mt_status pack_make(struct shape *s, struct mt_dnn_graph *made, const struct mt_call *c,
                           const struct mt_cuda_lane *q, mt_dnn *pack, mt_err *e)
{
    int64_t name[MT_DNN_NAMES];
    void *memory[MT_DNN_NAMES];
    int n, k = 0;
    const struct tensor *t = tensors(c, &n);
    for (int i = 0; i < n; i++) {
        name[k] = t[i].name, memory[k++] = c->arg[t[i].arg];
        name[k] = MT_DNN_BEGIN + t[i].name, memory[k++] = part(q, s->parts.first[i]);
    }
    name[k] = MT_DNN_LENGTH, memory[k++] = part(q, s->parts.length[0]);
    name[k] = MT_DNN_LENGTH_KEYS, memory[k++] = part(q, s->parts.length[1]);
    name[k] = MT_DNN_SCALE, memory[k++] = &s->scale;
    name[k] = MT_DNN_NEVER, memory[k++] = &s->never;
    return mt_dnn_graph_pack(made, k, name, memory, part(q, s->parts.workspace), pack, e);
}
/* The call's pack, made if its pointers are new. */
static mt_status pack_of(const struct mt_sdpa *d, struct shape *s, const struct mt_call *c,
                         const struct mt_cuda_lane *q, mt_dnn *pack, mt_err *e)
{
    int i = 0;
    while (i < s->n_packs &&
           (s->pack[i].scratch != q->scratch || memcmp(s->pack[i].arg, c->arg, sizeof c->arg)))
        i++;
    if (i == s->n_packs) {
        i = s->n_packs < PACKS ? s->n_packs : 0;
        if (i < s->n_packs) mt_dnn_graph_close(&s->pack[i].made);
        mt_dnn_graph_init(&s->pack[i].made, &d->f);
        memcpy(s->pack[i].arg, c->arg, sizeof c->arg);
        s->pack[i].scratch = q->scratch;
        if (i == s->n_packs) s->n_packs++;
        MT_TRY(pack_make(s, &s->pack[i].made, c, q, &s->pack[i].pack, e));
    }
    *pack = s->pack[i].pack;
    return MT_OK;
}
mt_status mt_sdpa_run(struct mt_sdpa *d, const struct mt_call *c, const struct mt_cuda_lane *q, bool *taken,
                      struct mt_call *own, mt_err *e)
{
    const int i = d ? find(d, c, q->scratch_bytes) : -1;
    mt_dnn pack;
    *taken = i >= 0;
    if (!*taken) return MT_OK;
    struct shape *s = d->shape[i];
    MT_TRY(list_documents(s, c, q, e));
    MT_TRY(pack_of(d, s, c, q, &pack, e));
    cudnnStatus_t failed = d->f.cudnnSetStream(d->handle, q->stream);
    if (!failed) failed = d->f.cudnnBackendExecute(d->handle, s->plan.plan, pack);
    MT_REQUIRE(!failed, e, MT_DEVICE, "cuDNN: attention: %s", d->f.cudnnGetErrorString(failed));
    *own = *c;
    own->scalar[MT_ATTENTION_DONE].i = (int64_t)(intptr_t)part(q, s->parts.fit);
    return MT_OK;
}
