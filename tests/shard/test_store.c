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
    mt_store_init(&f->s, dtype, mt_target_cpu(isa), &(struct mt_mesh){.world = 1, .replicas = 1, .ep = 1}, 0);
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

/* Every state's tensors tile their buckets, expert by expert; second moments are where AdamW is. */
TEST(tensors_tile_their_buckets)
{
    struct fixture f;
    if (!open_fixture(&f, MT_BF16, MT_ISA_SCALAR, false)) return;
    unsigned char **mark = calloc((size_t)f.g.n, sizeof *mark);
    for (int w = 0; w < MT_N_STATES; w++) {
        int64_t elements = 0;
        for (int t = 0; t < f.s.n_tensors; t++) {
            mt_view all = mt_store_local_state(&f.s, t, (enum mt_state)w);
            bool has = w != MT_STATE_V || f.s.bucket[f.s.matrix[f.s.tensor[t].matrix].bucket].second;
            CHECK(mt_view_given(all) == has);
            if (!has) continue;
            CHECK_INT(all.dim[0], f.s.bucket[f.s.matrix[f.s.tensor[t].matrix].bucket].n);
            CHECK_INT(all.dim[1], f.s.tensor[t].rows);
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
        mt_view w = mt_store_work(&f.s, i, MT_FORWARD), t = mt_store_turned(&f.s, i);
        CHECK(mt_view_given(t) == (m->form == MT_FORM_PACKED));
        if (m->form == MT_FORM_F32) {
            CHECK(w.row == f.s.bucket[m->bucket].row[MT_STATE_MASTER] && w.off == 4 * m->off);
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
        mt_view x = mt_store_local_state(&f.s, t, MT_STATE_GRAD),
                y = mt_store_local_state(&f.s, t + 1, MT_STATE_GRAD), m = mt_store_grad(&f.s, a->matrix);
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
        CHECK(!mt_view_given(mt_store_local_state(&f.s, t, MT_STATE_GRAD)));
    for (int i = 0; i < f.s.n_buckets; i++) CHECK(!mt_view_given(mt_store_piece(&f.s, i, MT_STATE_M)));
    close_fixture(&f);
}

/* Cut over any number of ranks: the pieces of all of them are the whole, once, and cut at what may be cut. */
static void check_cut(int world, int replicas, int ep)
{
    char *arg[] = {(char[]){"model.experts=8"}, (char[]){"model.top_k=2"}, (char[]){"model.expert_ffn=20"},
                   (char[]){"model.dim=72"}, (char[]){"model.first_dense=1"}};
    mt_err e = {0};
    mt_config cfg;
    if (!CHECK(mt_config_load(&cfg, NULL, 5, arg, &e) == MT_OK)) return;
    struct mt_shape shape = mt_shape_of(&cfg);
    int64_t masters = 0, work = 0, full = 0, rows = -1;
    for (int rank = 0; rank < world; rank++) {
        struct mt_store s;
        struct mt_ledger g;
        mt_store_init(&s, MT_BF16, mt_target_cpu(MT_ISA_AMX_BF16),
                      &(struct mt_mesh){.world = world, .replicas = replicas, .ep = ep}, rank);
        mt_params_declare(&s, &shape, 0.02);
        if (!CHECK(mt_optim_assign(&s, &cfg, &e) == MT_OK)) return;
        mt_ledger_init(&g, 64);
        mt_store_layout(&s, &g, false);
        if (rows < 0) rows = g.size[MT_DEVICE_ARENA];
        CHECK_INT(g.size[MT_DEVICE_ARENA], rows); /* one plan serves all ranks */
        for (int t = 0; t < s.n_tensors; t++) {
            struct mt_local here = mt_store_local(&s, t);
            mt_view v = mt_store_local_state(&s, t, MT_STATE_MASTER);
            CHECK(mt_view_given(v) == (here.parts > 0));
            if (!here.parts) continue;
            CHECK(v.off >= 0 && v.off + v.bytes <= g.row[v.row].bytes &&
                  here.row0 + here.rows <= s.tensor[t].rows);
            masters += mt_view_count(v);
        }
        for (int i = 0; i < s.n_matrices; i++) {
            mt_view master, copy;
            if (!mt_store_local_work(&s, i, &master, &copy)) continue;
            CHECK(copy.off >= 0 && copy.off + copy.bytes <= g.row[copy.row].bytes);
            work += mt_view_count(copy);
        }
        for (int i = 0; i < s.n_matrices && rank < ep; i++)
            if (s.matrix[i].form != MT_FORM_F32 && (rank == 0 || s.unit[s.matrix[i].unit].experts))
                full += s.bucket[s.matrix[i].bucket].n * s.matrix[i].rows * s.matrix[i].cols;
        mt_store_release(&s);
        mt_ledger_release(&g);
    }
    CHECK_INT(masters, replicas * mt_params_total(&shape));
    CHECK_INT(work, replicas * full);
}
TEST(cuts)
{
    check_cut(1, 1, 1);
    check_cut(2, 1, 2);
    check_cut(8, 1, 1);
    check_cut(12, 1, 4);
    check_cut(16, 2, 4);
    check_cut(48, 1, 4); /* more ranks than a slot has experts */
}

/* Gathered as fp8: pieces are cut between tiles, and those of all ranks are the whole form, once. */
static void check_fp8_cut(int world, int ep)
{
    char *arg[] = {(char[]){"model.experts=8"},     (char[]){"model.top_k=2"},
                   (char[]){"model.expert_ffn=72"}, (char[]){"model.dim=200"},
                   (char[]){"model.first_dense=1"}, (char[]){"model.ffn=300"}};
    mt_err e = {0};
    mt_config cfg;
    if (!CHECK(mt_config_load(&cfg, NULL, 6, arg, &e) == MT_OK)) return;
    struct mt_shape shape = mt_shape_of(&cfg);
    int64_t pieces = 0, whole = 0;
    for (int rank = 0; rank < world; rank++) {
        struct mt_store s;
        struct mt_ledger g;
        mt_store_init(&s, MT_BF16, mt_target_cpu(MT_ISA_AMX_BF16),
                      &(struct mt_mesh){.world = world, .replicas = 1, .ep = ep}, rank);
        s.formats = (struct mt_formats){.reduce = MT_BF16, .fp8_experts = true, .fp8_dense = true};
        mt_params_declare(&s, &shape, 0.02);
        if (!CHECK(mt_optim_assign(&s, &cfg, &e) == MT_OK)) return;
        mt_ledger_init(&g, 64);
        mt_store_layout(&s, &g, false);
        for (int i = 0; i < s.n_matrices; i++) {
            const struct mt_matrix *m = &s.matrix[i];
            const struct mt_bucket *b = &s.bucket[m->bucket];
            CHECK(b->fp8 ==
                  (m->form == MT_FORM_PACKED && m->layer >= 0)); /* not the embedding, nor the head */
            CHECK(b->grad_wire == (m->form == MT_FORM_F32 ? MT_F32 : MT_BF16));
            mt_view v = mt_store_local_wire(&s, i), master, work;
            bool here = mt_store_local_work(&s, i, &master, &work);
            CHECK(mt_view_given(v) == (here && b->fp8));
            if (!mt_view_given(v)) continue;
            CHECK(v.off >= 0 && v.off + v.bytes <= g.row[v.row].bytes && v.off % MT_FP8_ALIGN == 0);
            pieces += mt_view_count(v);
        }
        for (int i = 0; i < s.n_buckets; i++)
            if (s.bucket[i].fp8 && (rank == 0 || (rank < ep && s.unit[s.bucket[i].unit].experts)))
                whole += s.bucket[i].n * s.bucket[i].wire_bytes;
        mt_store_release(&s);
        mt_ledger_release(&g);
    }
    CHECK(whole > 0);
    CHECK_INT(pieces, whole);
}
TEST(fp8_cuts)
{
    check_fp8_cut(1, 1);
    check_fp8_cut(3, 1);
    check_fp8_cut(8, 2);
    check_fp8_cut(48, 4);
}

/* Experts that the ranks of a slot do not divide: over all layers each rank has room for one more than the mean, at most, not for the
 * largest piece of every layer. */
static void check_uneven(int layers, int experts, int world, int ep)
{
    char text[3][32], *arg[] = {(char[]){"model.top_k=2"},
                                (char[]){"model.expert_ffn=32"},
                                (char[]){"model.dim=64"},
                                text[0],
                                text[1],
                                text[2]};
    mt_err e = {0};
    mt_config cfg;
    struct mt_store s;
    struct mt_ledger g;
    snprintf(text[0], sizeof text[0], "model.layers=%d", layers);
    snprintf(text[1], sizeof text[1], "model.experts=%d", experts);
    snprintf(text[2], sizeof text[2], "mesh.ep=%d", ep);
    if (!CHECK(mt_config_load(&cfg, NULL, 6, arg, &e) == MT_OK)) return;
    struct mt_shape shape = mt_shape_of(&cfg);
    mt_store_init(&s, MT_BF16, mt_target_cpu(MT_ISA_AVX512_BF16),
                  &(struct mt_mesh){.world = world, .replicas = 1, .ep = ep}, 0);
    mt_params_declare(&s, &shape, 0.02);
    CHECK(mt_optim_assign(&s, &cfg, &e) == MT_OK);
    mt_ledger_init(&g, 64);
    mt_store_layout(&s, &g, false);
    int64_t rows = 0, one = 3 * 64 * 32 * 4, most = ((int64_t)layers * experts + world - 1) / world + 1;
    for (int32_t i = 0; i < g.n; i++)
        if (!strncmp(g.row[i].name, "master.experts", 14)) rows += g.row[i].bytes;
    CHECK(rows >= one && rows <= most * one);
    mt_store_release(&s);
    mt_ledger_release(&g);
}
TEST(uneven_experts)
{
    check_uneven(32, 8, 64, 1);
    check_uneven(32, 8, 64, 8);
    check_uneven(5, 6, 8, 2);
    check_uneven(3, 6, 2, 2);
}

/* Bytes of a view, of a rank's row, that are nobody's yet. */
static void claim_rows(unsigned char *mark, int64_t first, int64_t n)
{
    int64_t twice = 0;
    for (int64_t i = first; i < first + n; i++) twice += mark[i]++;
    CHECK_INT(twice, 0);
}
static void claim_state(unsigned char **mark, const struct mt_ledger *g, mt_view v)
{
    if (!mark[v.row]) mark[v.row] = calloc((size_t)g->row[v.row].bytes, 1);
    if (CHECK(v.off >= 0 && v.bytes > 0 && v.off + v.bytes <= g->row[v.row].bytes))
        claim_rows(mark[v.row], v.off, v.bytes);
}

/* What one rank holds: of a block all or nothing, of an owned matrix all or nothing, and every byte of its rows once; rows of
 * each matrix that ranks have had so far are in `have`. */
static void check_rank(const struct mt_store *s, const struct mt_ledger *g, int64_t *have)
{
    unsigned char **mark = calloc((size_t)g->n, sizeof *mark);
    for (int t = 0; t < s->n_tensors; t++) {
        const struct mt_matrix *m = &s->matrix[s->tensor[t].matrix];
        struct mt_local here = mt_store_local(s, t);
        for (int w = 0; w < MT_N_STATES && here.parts; w++) {
            mt_view v = mt_store_local_state(s, t, (enum mt_state)w);
            for (int64_t i = 0; mt_view_given(v) && i < here.parts; i++)
                claim_state(mark, g, mt_view_part(v, i, 1));
        }
        if (s->unit[m->unit].experts || !here.parts) continue;
        int64_t first = s->tensor[t].row0 + here.row0, last = first + here.rows;
        have[s->tensor[t].matrix] += here.rows;
        if (m->placement == MT_PLACED_OWNED)
            CHECK(here.rows == s->tensor[t].rows &&
                  (s->mesh.world == 1 || m->owner == s->bucket[m->bucket].me));
        if (m->placement == MT_PLACED_BLOCK) {
            bool begins = here.row0 == 0, ends = here.row0 + here.rows == s->tensor[t].rows;
            CHECK((begins || first % m->block == 0) && (ends || last % m->block == 0));
        }
    }
    for (int i = 0; i < s->n_matrices; i++) {
        mt_view master, work, wire = mt_store_local_wire(s, i);
        bool experts = s->unit[s->matrix[i].unit].experts;
        if (!mt_store_local_work(s, i, &master, &work)) continue;
        for (int64_t k = 0; k < (experts ? work.dim[0] : 1); k++)
            claim_state(mark, g, experts ? mt_view_part(work, k, 1) : work);
        if (mt_view_given(wire) && !experts) claim_state(mark, g, wire);
    }
    for (int32_t i = 0; i < g->n; i++) free(mark[i]);
    free(mark);
}

static void check_placement(const char *groups, int world, int ep)
{
    char shard[600], *arg[] = {(char[]){"model.experts=8"},      (char[]){"model.top_k=2"},
                               (char[]){"model.expert_ffn=72"},  (char[]){"model.dim=200"},
                               (char[]){"model.first_dense=1"},  (char[]){"model.ffn=300"},
                               (char[]){"model.shared_ffn=140"}, (char[]){"model.attn_bias=true"},
                               (char[]){"model.heads=12"},       shard};
    mt_err e = {0};
    mt_config cfg;
    snprintf(shard, sizeof shard, "shard.groups=[%s]", groups);
    if (!CHECK(mt_config_load(&cfg, NULL, 10, arg, &e) == MT_OK)) return;
    struct mt_shape shape = mt_shape_of(&cfg);
    int64_t have[256] = {0}, size = -1;
    uint64_t hash = 0;
    for (int rank = 0; rank < world; rank++) {
        struct mt_store s;
        struct mt_ledger g;
        mt_store_init(&s, MT_BF16, mt_target_cpu(MT_ISA_AMX_BF16),
                      &(struct mt_mesh){.world = world, .replicas = 1, .ep = ep}, rank);
        mt_params_declare(&s, &shape, 0.02);
        CHECK(mt_params_place(&s, cfg.shard_groups, cfg.shard_groups_count, &e) == MT_OK);
        CHECK(mt_optim_assign(&s, &cfg, &e) == MT_OK);
        mt_ledger_init(&g, 64);
        mt_store_layout(&s, &g, false);
        if (!rank) hash = mt_store_hash(&s), size = g.size[MT_DEVICE_ARENA];
        CHECK(mt_store_hash(&s) == hash);
        CHECK_INT(g.size[MT_DEVICE_ARENA], size);
        check_rank(&s, &g, have);
        for (int i = 0; i < s.n_matrices && rank == world - 1; i++)
            CHECK_INT(have[i], s.unit[s.matrix[i].unit].experts ? 0 : s.matrix[i].rows);
        for (int u = 0; u < s.n_units; u++)
            for (int b = 0; b < s.unit[u].n_buckets; b++) CHECK_INT(s.bucket[s.unit[u].bucket + b].unit, u);
        mt_store_release(&s);
        mt_ledger_release(&g);
    }
}
TEST(placements)
{
    static const char *const groups[] = {
        "{match: '*.experts.*'}, {match: '*', placement: block}",
        "{match: '*.experts.*'}, {match: '*', placement: owned}",
        "{match: 'layers.*norm*', placement: owned}, {match: 'layers.*.attn.*.bias', placement: block}, "
        "{match: 'layers.*.attn.*', placement: block, gather: fp8}, {match: '*.mlp.*', placement: owned, "
        "gather: fp8}, "
        "{match: '*.shared.*', placement: owned}, {match: '*.experts.*', gather: fp8}, {match: head.weight, "
        "placement: "
        "owned}"};
    for (int i = 0; i < 3; i++) {
        check_placement(groups[i], 1, 1);
        check_placement(groups[i], 3, 1);
        check_placement(groups[i], 8, 2);
        check_placement(groups[i], 48, 4);
    }
}

TEST(units)
{
    struct fixture f;
    if (!open_fixture(&f, MT_F32, MT_ISA_SCALAR, false)) return;
    CHECK_INT(f.s.n_units, 1 + 3 + 2 + 1); /* embedding, layers, their experts, head */
    for (int u = 0; u < f.s.n_units; u++) {
        bool experts = u == 3 || u == 5;
        CHECK(f.s.unit[u].experts == experts);
        CHECK_INT(f.s.bucket[f.s.unit[u].bucket].n, experts ? 5 : 1);
    }
    for (int i = 0; i < f.s.n_buckets; i++) {
        mt_view g = mt_store_piece(&f.s, i, MT_STATE_GRAD);
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
    RUN(cuts);
    RUN(fp8_cuts);
    RUN(uneven_experts);
    RUN(placements);
    RUN(units);
    return DONE();
}
