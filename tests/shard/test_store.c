/* The store: where parameters and their state lie. */
#include "check.h"
#include "device/cpu/isa.h"
#include "model/param.h"
#include "optim/assign.h"

struct fixture {
    mt_config cfg;
    struct mt_shape shape;
    struct mt_store s;
    struct mt_ledger g;
};

static bool open_fixture(struct fixture *f, mt_dtype dtype, enum mt_isa isa, bool inference)
{
    char *arg[] = {(char[]){"model.layers=3"},      (char[]){"model.experts=5"},
                   (char[]){"model.top_k=2"},       (char[]){"model.expert_ffn=20"},
                   (char[]){"model.shared_ffn=24"}, (char[]){"model.dim=72"},
                   (char[]){"model.first_dense=1"}, (char[]){"model.ffn=100"},
                   (char[]){"model.qk_norm=true"},  (char[]){"model.vocab=101"}};
    mt_err e = {0};
    memset(f, 0, sizeof *f);
    if (!CHECK(mt_config_load(&f->cfg, NULL, 10, arg, &e) == MT_OK)) return false;
    f->shape = mt_shape_of(&f->cfg);
    mt_store_init(&f->s, dtype, mt_target_cpu(isa));
    mt_params_declare(&f->s, &f->shape, 0.02);
    if (!CHECK(mt_optim_assign(&f->s, &f->cfg, &e) == MT_OK)) return false;
    mt_ledger_init(&f->g, mt_target_cpu(isa)->align);
    mt_store_layout(&f->s, &f->g, inference);
    return true;
}
static void close_fixture(struct fixture *f)
{
    mt_store_release(&f->s);
    mt_ledger_release(&f->g);
}

/* Marks the bytes of a view, which must be nobody's yet and inside of its row. */
static void claim(struct fixture *f, unsigned char **mark, mt_view v)
{
    const struct mt_row *r = &f->g.row[v.row];
    if (!CHECK(v.off >= 0 && v.bytes > 0 && v.off + v.bytes <= r->bytes)) return;
    if (!mark[v.row]) mark[v.row] = calloc((size_t)r->bytes, 1);
    int64_t twice = 0;
    for (int64_t i = v.off; i < v.off + v.bytes; i++) twice += mark[v.row][i]++;
    CHECK_INT(twice, 0);
}
/* All marked rows are marked to `slack` bytes. */
static void whole(struct fixture *f, unsigned char **mark, int64_t slack)
{
    for (int32_t i = 0; i < f->g.n; i++) {
        if (!mark[i]) continue;
        int64_t n = 0;
        for (int64_t k = 0; k < f->g.row[i].bytes; k++) n += mark[i][k];
        if (!CHECK(n <= f->g.row[i].bytes && n >= f->g.row[i].bytes - slack))
            printf("  row %s\n", f->g.row[i].name);
        free(mark[i]);
        mark[i] = NULL;
    }
}

/* Every state's tensors tile their buckets, expert by expert; second moments are AdamW's alone. */
TEST(tensors_tile_their_buckets)
{
    struct fixture f;
    if (!open_fixture(&f, MT_BF16, MT_ISA_SCALAR, false)) return;
    unsigned char **mark = calloc((size_t)f.g.n, sizeof *mark);
    for (int w = 0; w < MT_N_STATES; w++) {
        int64_t elements = 0;
        for (int t = 0; t < f.s.n_tensors; t++) {
            mt_view all = mt_store_tensor_stack(&f.s, t, (enum mt_state)w);
            bool has = w != MT_STATE_V || f.s.tensor[t].optimizer == MT_ADAMW;
            CHECK(mt_view_given(all) == has);
            if (!has) continue;
            CHECK_INT(all.dim[0], mt_store_parts(&f.s, t));
            CHECK_INT(mt_view_count(all), mt_store_tensor_count(&f.s, t));
            for (int64_t i = 0; i < all.dim[0]; i++) claim(&f, mark, mt_view_part(all, i, 1));
            elements += mt_view_count(all);
        }
        whole(&f, mark, 0);
        if (w != MT_STATE_V) CHECK_INT(elements, mt_params_total(&f.shape));
    }
    free(mark);
    close_fixture(&f);
}

/* Working copies of matrices do not overlap, and are no larger than their padding makes them. */
static void check_work(mt_dtype dtype, enum mt_isa isa)
{
    struct fixture f;
    if (!open_fixture(&f, dtype, isa, false)) return;
    unsigned char **mark = calloc((size_t)f.g.n, sizeof *mark);
    for (int i = 0; i < f.s.n_matrices; i++) {
        const struct mt_matrix *m = &f.s.matrix[i];
        mt_view w = mt_store_work(&f.s, i), t = mt_store_turned(&f.s, i);
        CHECK(mt_view_given(t) == (m->form == MT_FORM_PACKED));
        if (m->form == MT_FORM_F32) {
            mt_view master = mt_store_matrix_state(&f.s, i, MT_STATE_MASTER);
            CHECK(w.row == master.row && w.off == master.off && w.bytes == master.bytes);
            continue;
        }
        CHECK_INT(w.dtype, dtype);
        int64_t n = f.s.unit[m->unit].experts ? f.s.bucket[m->bucket].n : 1;
        for (int64_t x = 0; x < n; x++) claim(&f, mark, n > 1 ? mt_view_part(w, x, 1) : w);
        if (m->form != MT_FORM_PACKED) continue;
        for (int64_t x = 0; x < n; x++) claim(&f, mark, n > 1 ? mt_view_part(t, x, 1) : t);
        CHECK_INT(w.format, MT_PACKED_NT);
        CHECK_INT(t.format, MT_PACKED_NN);
        CHECK(w.bytes >= n * m->rows * m->cols * mt_dtype_bytes(dtype));
    }
    whole(&f, mark, f.g.align);
    free(mark);
    close_fixture(&f);
}
TEST(working_copies_tile_their_rows)
{
    for (int isa = 0; isa < MT_N_ISAS; isa++) {
        check_work(MT_BF16, (enum mt_isa)isa);
        check_work(MT_F32, (enum mt_isa)isa);
    }
}

/* Gate and up of a SwiGLU are the two halves of one matrix. */
TEST(stacked_tensors)
{
    struct fixture f;
    int pairs = 0;
    if (!open_fixture(&f, MT_F32, MT_ISA_SCALAR, false)) return;
    for (int t = 0; t + 1 < f.s.n_tensors; t++) {
        const struct mt_tensor *a = &f.s.tensor[t], *b = &f.s.tensor[t + 1];
        if (a->matrix != b->matrix) continue;
        mt_view x = mt_store_tensor_state(&f.s, t, MT_STATE_MASTER),
                y = mt_store_tensor_state(&f.s, t + 1, MT_STATE_MASTER),
                m = mt_store_matrix_state(&f.s, a->matrix, MT_STATE_MASTER);
        CHECK_INT(x.off, m.off);
        CHECK_INT(y.off, m.off + 4 * a->rows * f.s.matrix[a->matrix].cols);
        CHECK_INT(a->rows + b->rows, f.s.matrix[a->matrix].rows);
        if (m.nd == 3) {
            CHECK_INT(x.stride, m.stride);
            CHECK_INT(m.dim[0], 5);
        }
        pairs++;
    }
    CHECK_INT(pairs, 1 + 2 * 2);
    close_fixture(&f);
}

/* A forward pass needs masters and working copies, no gradients, moments or turned weights. */
TEST(inference)
{
    struct fixture f;
    if (!open_fixture(&f, MT_BF16, MT_ISA_SCALAR, true)) return;
    int64_t bytes[MT_N_ROW_CLASSES] = {0};
    for (int32_t i = 0; i < f.g.n; i++) bytes[f.g.row[i].row_class] += f.g.row[i].bytes;
    CHECK_INT(bytes[MT_ROW_MASTER], 4 * mt_params_total(&f.shape));
    CHECK_INT(bytes[MT_ROW_GRAD] + bytes[MT_ROW_MOMENT] + bytes[MT_ROW_GATHERED], 0);
    CHECK(bytes[MT_ROW_WEIGHT] > 0);
    for (int t = 0; t < f.s.n_tensors; t++)
        CHECK(!mt_view_given(mt_store_tensor_stack(&f.s, t, MT_STATE_GRAD)));
    for (int i = 0; i < f.s.n_buckets; i++) CHECK(!mt_view_given(mt_store_bucket_state(&f.s, i, MT_STATE_M)));
    close_fixture(&f);
}

TEST(units)
{
    struct fixture f;
    if (!open_fixture(&f, MT_F32, MT_ISA_SCALAR, false)) return;
    CHECK_INT(f.s.n_units, 1 + 3 + 2 + 1); /* embedding, layers, their experts, head */
    for (int u = 0; u < f.s.n_units; u++) {
        bool experts = u == 3 || u == 5;
        CHECK(f.s.unit[u].experts == experts);
        CHECK_INT(f.s.bucket[f.s.unit[u].dense_bucket].n, experts ? 5 : 1);
    }
    for (int i = 0; i < f.s.n_buckets; i++) {
        mt_view g = mt_store_bucket_state(&f.s, i, MT_STATE_GRAD);
        CHECK(mt_view_given(g) == (f.s.bucket[i].elements > 0));
        if (mt_view_given(g)) CHECK_INT(g.bytes, f.g.row[g.row].bytes);
    }
    close_fixture(&f);
}

int main(void)
{
    RUN(tensors_tile_their_buckets);
    RUN(working_copies_tile_their_rows);
    RUN(stacked_tensors);
    RUN(inference);
    RUN(units);
    return DONE();
}
