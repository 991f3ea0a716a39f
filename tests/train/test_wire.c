/* test: timeout=120
 *
 * Weights that were gathered as fp8, to the bit, and what it does to bytes, memory and learning. */
#include "device/fp8_form.h"
#include "fp8.h"
#include "training.h"

#define WIDE                                                                                       \
    "model.dim=136 model.layers=2 model.heads=4 model.kv_heads=2 model.head_dim=40 model.ffn=300 " \
    "model.experts=12 model.top_k=2 "                                                              \
    "model.expert_ffn=72 model.shared_ffn=160 model.first_dense=1 train.micro_batch=1 "            \
    "train.global_batch=24 "
#define FP8 "wire.gather_experts=fp8 wire.gather_dense=fp8 "
enum { MOST_RANKS = 8, MOST_MATRICES = 64 };

/* What a rank's operations would read, [rank][matrix]: bytes of the views of mt_store_work. */
struct read {
    void *bytes[MOST_RANKS][MOST_MATRICES];
};
static struct read *reading;

static void read_weights(struct mt_ctx *ctx, void *arg)
{
    struct mt_rank *r = &((struct mt_step *)arg)->rank;
    const struct mt_store *s = &r->m->store;
    struct mt_stream *compute = &ctx->stream[MT_COMPUTE];
    mt_units_restart(r, false);
    for (int u = 0; u < s->n_units; u++)
        for (int pass = 0; pass < MT_N_PASSES; pass++) {
            mt_unit_gather(r, u, (enum mt_pass)pass, mt_event_record(compute));
            mt_unit_use(r, u, (enum mt_pass)pass);
            for (int i = 0; i < s->n_matrices; i++) {
                if (s->matrix[i].unit != u || s->matrix[i].form == MT_FORM_F32) continue;
                mt_view v = mt_store_work(s, i, (enum mt_pass)pass);
                void *first = reading->bytes[ctx->rank][i], *now = malloc((size_t)v.bytes);
                mt_host_read(compute, MT_READ_STATE, 10 + i, v, now);
                CHECK(!first || !memcmp(first, now, (size_t)v.bytes)); /* both passes read the same */
                free(first);
                reading->bytes[ctx->rank][i] = now;
            }
            mt_unit_done(r, u, (enum mt_pass)pass);
        }
}
static void release(struct read *w)
{
    for (int r = 0; r < MOST_RANKS; r++)
        for (int i = 0; i < MOST_MATRICES; i++) free(w->bytes[r][i]);
}

static bool open_world(struct training *t, const char *options, int world)
{
    mt_err e = {0};
    *t = (struct training){0};
    if (!CHECK(training_config(&t->cfg, options))) return false;
    mt_status st = mt_session_open(&t->s, &t->cfg, world, false, &e);
    if (!CHECK(st == MT_OK)) printf("  %d ranks: %s\n", world, e.msg);
    return st == MT_OK;
}

/* Part p of a matrix as rows of doubles. */
static double *rows_of(const struct training *t, const struct read *w, int rank, int matrix, int64_t p)
{
    const struct mt_store *s = &t->s.rank[rank].model.store;
    const struct mt_matrix *m = &s->matrix[matrix];
    mt_view v = mt_store_work(s, matrix, MT_FORWARD);
    int64_t n = m->rows * m->cols;
    const char *at = (const char *)w->bytes[rank][matrix] + (v.nd == 3 ? p * v.stride : 0);
    double *x = calloc((size_t)n, sizeof *x);
    void *canonical = calloc((size_t)n, 4);
    if (m->form == MT_FORM_PACKED)
        t->s.dev.gemm[s->dtype]->unpack_nt(canonical, at, m->cols, m->rows, m->cols, 0, 1);
    else
        memcpy(canonical, at, (size_t)(n * mt_dtype_bytes(s->dtype)));
    for (int64_t i = 0; i < n; i++)
        x[i] = s->dtype == MT_F32 ? (double)((float *)canonical)[i]
                                  : (double)mt_f32_of(((mt_bf16 *)canonical)[i]);
    free(canonical);
    return x;
}

/* Every rank's every matrix against the plain weights of one rank, quantised in double where it should be. */
static void compare_rank(const struct training *plain, const struct read *a, const struct training *t,
                         const struct read *b, int rank)
{
    const struct mt_store *s = &t->s.rank[rank].model.store;
    for (int i = 0; i < s->n_matrices; i++) {
        const struct mt_matrix *m = &s->matrix[i];
        bool experts = s->unit[m->unit].experts,
             fp8 = m->layer >= 0 && (experts ? s->formats.fp8_experts : s->formats.fp8_dense);
        if (m->form == MT_FORM_F32) continue;
        for (int64_t p = 0; p < (experts ? s->bucket[m->bucket].n : 1); p++) {
            double *want = rows_of(plain, a, 0, i, experts ? mt_store_expert(s, p) : 0),
                   *got = rows_of(t, b, rank, i, p);
            if (fp8) fp8_reference(s->dtype, m->rows, m->cols, want, want);
            if (!CHECK(!memcmp(want, got, (size_t)(m->rows * m->cols) * sizeof *got)))
                printf("  rank %d, matrix %d, part %lld\n", rank, i, (long long)p);
            free(want);
            free(got);
        }
    }
}

/* All parts of a matrix of a rank's slot, from the masters of the ranks that own them, in the working type. */
static double *masters_of(const struct training *t, int rank, int matrix)
{
    const struct mt_store *own = &t->s.rank[rank].model.store;
    const struct mt_matrix *m = &own->matrix[matrix];
    int per = t->s.world / own->mesh.replicas, ep = own->unit[m->unit].experts ? own->mesh.ep : 1;
    double *x = calloc((size_t)(own->bucket[m->bucket].n * m->rows * m->cols), sizeof *x);
    for (int q = rank / per * per; q < (rank / per + 1) * per; q++)
        for (int i = 0; i < own->n_tensors && q % ep == rank % ep; i++) {
            const struct mt_store *s = &t->s.rank[q].model.store;
            struct mt_local here = mt_store_local(s, i);
            if (s->tensor[i].matrix != matrix || !here.parts) continue;
            mt_view v = mt_store_local_state(s, i, MT_STATE_MASTER);
            const char *at = mt_address(&t->s.rank[q].ctx, v);
            for (int64_t p = 0; p < here.parts; p++)
                for (int64_t k = 0; k < here.rows * m->cols; k++)
                    x[((here.part0 + p) * m->rows + s->tensor[i].row0 + here.row0) * m->cols + k] =
                        fp8_round(s->dtype, (double)((const float *)(const void *)(at + p * v.stride))[k]);
        }
    return x;
}
/* The same after a step, whose masters are nobody else's: what is gathered is the owners' masters, rounded. */
static void compare_masters(const struct training *t, const struct read *b, int rank)
{
    const struct mt_store *s = &t->s.rank[rank].model.store;
    for (int i = 0; i < s->n_matrices; i++) {
        const struct mt_matrix *m = &s->matrix[i];
        int64_t n = m->rows * m->cols;
        if (m->form == MT_FORM_F32) continue;
        double *want = masters_of(t, rank, i);
        for (int64_t p = 0; p < s->bucket[m->bucket].n; p++) {
            double *got = rows_of(t, b, rank, i, p);
            if (s->bucket[m->bucket].fp8)
                fp8_reference(s->dtype, m->rows, m->cols, want + p * n, want + p * n);
            if (!CHECK(!memcmp(want + p * n, got, (size_t)n * sizeof *got)))
                printf("  after a step: rank %d, matrix %d, part %lld\n", rank, i, (long long)p);
            free(got);
        }
        free(want);
    }
}

/* Layouts [first, last). */
static void compare_worlds(const char *base, const char *formats, int first, int last)
{
    static const struct {
        int world;
        const char *mesh;
    } layout[] = {{1, ""}, {2, ""}, {3, ""}, {8, ""}, {4, "mesh.ep=2 "}, {8, "mesh.ep=2 mesh.replicas=2 "}};
    struct training plain, t;
    struct read a = {0};
    if (!open_world(&plain, base, 1)) return;
    training_run(&plain, mt_fill_step);
    reading = &a;
    training_run(&plain, read_weights);
    for (int i = first; i < last; i++) {
        char options[2048];
        struct read b = {0};
        snprintf(options, sizeof options, "%s%s%s", base, formats, layout[i].mesh);
        if (!open_world(&t, options, layout[i].world)) break;
        training_run(&t, mt_fill_step);
        reading = &b;
        training_run(&t, read_weights);
        for (int r = 0; r < layout[i].world; r++) compare_rank(&plain, &a, &t, &b, r);
        training_batch(&t, 1);
        training_run(&t, mt_train_step);
        release(&b);
        b = (struct read){0};
        training_run(&t, read_weights);
        compare_masters(&t, &b, 0);
        compare_masters(&t, &b, layout[i].world - 1);
        if (check_.this_failed) printf("  with %d ranks, %s\n", layout[i].world, options);
        release(&b);
        training_close(&t);
    }
    release(&a);
    training_close(&plain);
}
TEST(gathered_fp8_is_bf16_quantised_after_the_gather)
{
    compare_worlds(TRAINING_BASE WIDE "train.dtype=bf16 ", FP8, 0, 6);
    compare_worlds(TRAINING_BASE WIDE "train.dtype=bf16 ", "wire.gather_experts=fp8 ", 4, 5);
    compare_worlds(TRAINING_BASE WIDE "train.dtype=bf16 ", "wire.gather_dense=fp8 ", 2, 3);
}
TEST(and_f32)
{
    compare_worlds(TRAINING_BASE WIDE "model.tied=true train.dtype=f32 ", FP8, 1, 3);
}

/* Bytes of the fullest gathers: an expert of 2 x 4 tiles and one of 4 x 2. */
TEST(bytes_on_the_wire)
{
#define LARGE                                                                                        \
    TRAINING_BASE "model.layers=1 model.dim=256 model.experts=4 model.top_k=2 model.expert_ffn=512 " \
                  "train.micro_batch=1 train.dtype=bf16 wire.gather_experts="
    struct training bf16, fp8;
    if (!open_world(&bf16, LARGE "bf16 ", 2) || !open_world(&fp8, LARGE "fp8 wire.reduce=bf16 ", 2)) return;
    const struct mt_store *a = &bf16.s.rank[0].model.store, *b = &fp8.s.rank[0].model.store;
    const struct mt_bucket *x = NULL, *y = NULL;
    for (int i = 0; i < a->n_units; i++)
        if (a->unit[i].experts) x = &a->bucket[a->unit[i].bucket], y = &b->bucket[b->unit[i].bucket];
    if (!CHECK(x && y)) return;
    CHECK_INT(a->cut[x->work_cut.all].at[2], 4 * 2 * (1024 * 256 + 256 * 512));
    CHECK_INT(b->cut[y->wire_cut.all].at[2],
              4 * (1024 * 256 + 256 * 512) + 4 * 64 * (8 + 2)); /* codes; a line of scales a band */
    CHECK_INT(2 * b->cut[y->grad_cut.all].at[2], a->cut[x->grad_cut.all].at[2]);
    CHECK(mt_row_persistent(
        (enum mt_row_class)bf16.s.ledger.row[x->work_row].row_class)); /* kept: one of the two */
    CHECK(!mt_row_persistent((enum mt_row_class)fp8.s.ledger.row[y->work_row].row_class));
    CHECK(mt_row_persistent((enum mt_row_class)fp8.s.ledger.row[y->wire_row].row_class));
    training_close(&bf16);
    training_close(&fp8);
}

/* Rounded weights learn what exact ones do. */
TEST(learning)
{
    static const char *const formats[] = {"", FP8 "wire.reduce=bf16 "};
    double loss[2], first = 0;
    for (int i = 0; i < 2; i++) {
        struct training t;
        char options[2048];
        snprintf(options, sizeof options, "%s%s%s", TRAINING_BASE TRAINING_MOE,
                 "train.dtype=bf16 optim.lr=1e-2 ", formats[i]);
        if (!training_open(&t, options)) return;
        training_run(&t, mt_fill_step);
        training_steps(&t, 0, 1);
        first = training_loss(&t);
        training_steps(&t, 1, 16);
        loss[i] = training_loss(&t);
        training_close(&t);
    }
    CHECK(loss[0] < 0.2 * first);
    CHECK(loss[1] != loss[0]);
    CHECK_CLOSE(loss[1] / loss[0], 1, 0.1);
}

int main(void)
{
    RUN(gathered_fp8_is_bf16_quantised_after_the_gather);
    RUN(and_f32);
    RUN(bytes_on_the_wire);
    RUN(learning);
    return DONE();
}
