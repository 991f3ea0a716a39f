/* test: variants=cuemu */
/* Attention through cuDNN on the cuda device under the emulator: the graph, computed operation by operation, against the cpu's
 * kernel; documents that do not fit; what is refused, by name; what is chosen at start-up. */
#include "op_inputs.h"
#include "prepare.h"

/* ---- one call, by cuDNN, against the cpu's ---- */
static int most_documents; /* in a batch; 0: as many as come */
static void some_documents(struct trial *t)
{
    int32_t *begin = trial_at(t, "begin"), from = 0;
    const int64_t n = trial_dim(t, 'N');
    for (int64_t i = 0, end = 0, k = 0; i < n; i++) {
        if (i == end && (!most_documents || k++ < most_documents))
            from = (int32_t)i, end = i + 3 + trial_below(t, 20);
        begin[i] = from;
    }
}
/* Of a window of 5 tokens. */
static void some_windows(struct trial *t)
{
    int32_t *begin = trial_at(t, "begin");
    some_documents(t);
    for (int32_t i = 4; i < trial_dim(t, 'N'); i++)
        if (begin[i] < i - 4) begin[i] = i - 4;
}
static void some_gradients(struct trial *t)
{
    float *lse = trial_at(t, "lse");
    some_documents(t);
    for (int64_t i = 0; i < trial_dim(t, 'H') * trial_ld(t, "lse"); i++) lse[i] = 2 + fabsf(lse[i]);
}
/* On the cuda side the shape is prepared. */
static void run_prepared(struct trial *t, struct side *s, struct mt_sdpa *sdpa, const struct trial_spec *p,
                         bool *taken)
{
    mt_view view[MT_MAX_ARGS];
    struct mt_call c = {0};
    char msg[256];
    mt_err e = {0};
    trial_open(t, s, CUDA, p, MT_BF16, view);
    CHECK(!mt_op_bind(p->op, view, &c, msg));
    memcpy(c.scalar, t->scalar, sizeof p->scalar);
    struct mt_cuda_queue *q = &s->cuda->queue[MT_COMPUTE];
    *taken = mt_sdpa_prepare(sdpa, &c, q->lane.scratch_bytes, &e) == MT_OK;
    if (!CHECK(*taken)) printf("  %s\n", e.msg);
    q->sdpa = sdpa;
    mt_enqueue(&s->ctx.stream[MT_COMPUTE], p->op, view, t->scalar);
    for (int i = 0; i < t->info->n_args; i++)
        if (t->arg[i].given) download(s, &t->arg[i].t, MT_COMPUTE);
    side_finish(s);
}
static void agrees(const struct trial_spec *p)
{
    static int turn;
    struct side cpu, cuda;
    struct trial a, b;
    struct mt_sdpa *sdpa;
    mt_err e = {0};
    bool taken;
    set_order(turn++ % N_ORDERS);
    if (!CHECK(mt_sdpa_open(&sdpa, &e) == MT_OK)) return;
    trial_run(&a, &cpu, CPU, p, MT_BF16);
    run_prepared(&b, &cuda, sdpa, p, &taken);
    for (int i = 0; i < b.info->n_args; i++)
        if (b.info->arg[i].dir != MT_WS &&
            !trial_same(&b, &a, i, b.info->arg[i].type == MT_TYPE_T ? 1.2e-2 : 2e-5))
            printf("  %s, %s\n", b.info->arg[i].name, p->dims);
    side_close(&cpu), side_close(&cuda);
    mt_sdpa_close(sdpa);
    set_order(0);
}
/* pairs of sequences of S tokens */
#define PAIRS(n, s) I_((n) * ((s) + 1) / 2)
#define AGREES(name, dims_, n, s, ...) \
    agrees(&(struct trial_spec){       \
        .op = MT_OP_##name, .dims = dims_, .scalar = {F_(0.25), PAIRS(n, s)}, __VA_ARGS__})
TEST(forward)
{
    most_documents = 3;
    AGREES(attention_fwd, "N=60 H=4 G=2 A=16 B=16", 60, 60, .fill = some_documents);
    AGREES(attention_fwd, "N=40 H=2 G=2 A=24 B=16", 40, 40, .fill = some_documents, .pad = 8);
    most_documents = 1;
    AGREES(attention_fwd, "N=33 H=2 G=1 A=8 B=8", 33, 33, .fill = some_documents);
}
TEST(backward)
{
    most_documents = 3;
    AGREES(attention_bwd, "N=48 H=4 G=2 A=16 B=16", 48, 48, .fill = some_gradients);
    AGREES(attention_bwd, "N=40 H=2 G=2 A=24 B=16", 40, 40, .fill = some_gradients, .pad = 8);
}
/* More documents than there is room for, one longer than a sequence, windows: our own kernels do it, and the host does not know. */
TEST(documents_that_do_not_fit)
{
    most_documents = 0;
    AGREES(attention_fwd, "N=100 H=2 G=1 A=16 B=16", 100, 100, .fill = some_documents);
    AGREES(attention_bwd, "N=100 H=2 G=1 A=16 B=16", 100, 100, .fill = some_gradients);
    most_documents = 1;
    AGREES(attention_fwd, "N=60 H=2 G=1 A=16 B=16", 60, 20, .fill = some_documents);
    AGREES(attention_fwd, "N=60 H=2 G=1 A=16 B=16", 60, 60, .fill = some_windows);
}

/* ---- what is refused ---- */
static void refused(struct mt_call c, size_t scratch, const char *why)
{
    struct mt_sdpa *sdpa;
    mt_err e = {0};
    if (!CHECK(mt_sdpa_open(&sdpa, &e) == MT_OK)) return;
    CHECK(mt_sdpa_prepare(sdpa, &c, scratch, &e) == MT_DEVICE);
    if (!CHECK(strstr(e.msg, why))) printf("  %s\n", e.msg);
    mt_sdpa_close(sdpa);
}
static struct mt_call call_of(enum mt_op op, int64_t n, int64_t h, int64_t a, int64_t b)
{
    struct mt_call c = {.op = (uint16_t)op, .dtype = MT_BF16};
    c.dim['N' - 'A'] = n, c.dim['H' - 'A'] = c.dim['G' - 'A'] = h, c.dim[0] = a, c.dim[1] = b;
    c.scalar[0].f = 1, c.scalar[1].i = n * (n + 1) / 2;
    for (int i = 0; i < 9; i++) c.ld[i] = a, c.stride[i] = h * a * 2;
    return c;
}
TEST(refusals)
{
    struct mt_call f32 = call_of(MT_OP_attention_fwd, 64, 2, 16, 16);
    f32.dtype = MT_F32;
    refused(f32, 1 << 20, "it has no f32");
    refused(call_of(MT_OP_attention_fwd, 64, 2, 20, 16), 1 << 20, "no multiples of 8");
    refused(call_of(MT_OP_attention_fwd, 64, 2, 320, 16), 1 << 20, "wider than 256");
    refused(call_of(MT_OP_attention_fwd, 1 << 20, 64, 128, 128), 1 << 20, "offsets of 32 bits");
    refused(call_of(MT_OP_attention_fwd, 64, 2, 16, 16), 1024, "scratch memory");
    refused(call_of(MT_OP_attention_bwd, 512, 8, 16, 16), 1 << 20, "scratch memory");
    refused(call_of(MT_OP_attention_fwd, 0, 2, 16, 16), 1 << 20, "no tokens");
}

/* ---- start-up ---- */
/* A recorded step's attention, prepared on arenas that have room for it, or not. */
static void prepares(int64_t arena_bytes, enum mt_op op, const char *expect)
{
    struct side s;
    struct mt_sdpa *sdpa;
    mt_err e = {0};
    char text[512] = "";
    struct mt_chosen chosen = {.text = text, .size = sizeof text};
    struct mt_rec rec[2] = {{.op = (uint16_t)op, .dtype = MT_BF16}};
    const struct mt_call c = call_of(op, 64, 2, 16, 16);
    memcpy(rec[0].dim, c.dim, sizeof c.dim);
    memcpy(rec[0].scalar, c.scalar, sizeof c.scalar);
    rec[1] = rec[0];
    side_init(&s, CUDA);
    mt_row_add(&s.ledger, MT_DEVICE_ARENA, MT_ROW_ACTIVATION, arena_bytes, "device");
    mt_row_add(&s.ledger, MT_HOST_ARENA, MT_ROW_ACTIVATION, arena_bytes, "host");
    side_open(&s);
    if (CHECK(mt_sdpa_open(&sdpa, &e) == MT_OK)) {
        s.cuda->queue[MT_COMPUTE].sdpa = sdpa;
        CHECK(mt_cuda_prepare(s.cuda, sdpa, &(struct mt_recording){.rec = rec, .n = 2}, &chosen, &e) ==
              MT_OK);
        if (!CHECK(strstr(text, expect) && strstr(text, "copies to the host by"))) printf("  %s\n", text);
        CHECK(strstr(text, mt_op_info[op].name) &&
              !strstr(strstr(text, mt_op_info[op].name) + 1, mt_op_info[op].name));
    }
    side_close(&s);
    mt_sdpa_close(sdpa);
}
TEST(chosen_at_start)
{
    prepares(4 << 20, MT_OP_attention_fwd, "attention_fwd: cuDNN 9");
    prepares(4 << 20, MT_OP_attention_bwd, "attention_bwd: cuDNN 9");
    prepares(4096, MT_OP_attention_fwd, "attention_fwd: own (no room");
}
/* Whichever way copies go, the bytes arrive, whatever their alignment. */
TEST(copies_by_kernel)
{
    static const int64_t at[] = {0, 4, 3};
    for (int i = 0; i < 3; i++) {
        struct side s;
        side_init(&s, CUDA);
        struct tensor x = tensor_of(&s, MT_F32, 1000, 0, 0, 0);
        int32_t row = mt_row_add(&s.ledger, MT_HOST_ARENA, MT_ROW_ACTIVATION, 4096 + 64, "down");
        side_open(&s);
        s.cuda->queue[MT_D2H].down_by_kernel = true;
        fill(&s, &x);
        upload(&s, &x, MT_H2D);
        mt_stream_wait(&s.ctx.stream[MT_D2H], mt_event_record(&s.ctx.stream[MT_H2D]));
        mt_view from = mt_view_of(x.dev_row, MT_U8, x.dev.off + at[i], 3987, 0, 0),
                to = mt_view_of(row, MT_U8, at[i], 3987, 0, 0);
        mt_copy_d2h(&s.ctx.stream[MT_D2H], to, from);
        side_finish(&s);
        const unsigned char *got = mt_address(&s.ctx, whole_row(&s, row));
        CHECK(!memcmp(got + at[i], (const char *)mt_address(&s.ctx, x.host) + at[i], 3987));
        CHECK_INT(got[at[i] + 3987], GUARD);
        side_close(&s);
    }
}

int main(void)
{
    side_scratch_bytes = 1 << 20;
    RUN(forward);
    RUN(backward);
    RUN(documents_that_do_not_fit);
    RUN(refusals);
    RUN(chosen_at_start);
    RUN(copies_by_kernel);
    return DONE();
}
