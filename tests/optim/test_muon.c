/* test: timeout=120
 *
 * Muon's plan: what is whole where, owners over the reference model, windows, bytes on the wire, and the memory plan against
 * every rank's own record. */
#include "check.h"
#include "device/cpu/isa.h"
#include "device/order.h"
#include "model/param.h"
#include "optim/assign.h"
#include "optim/update_record.h"

enum { MOST_ARGS = 40 };

static bool load(mt_config *cfg, const char *file, const char *const *options)
{
    char *arg[MOST_ARGS];
    mt_err e = {0};
    int n = 0;
    for (; options[n]; n++) arg[n] = (char *)(uintptr_t)options[n];
    if (CHECK(mt_config_load(cfg, file, n, arg, &e) == MT_OK)) return true;
    printf("  %s\n", e.msg);
    return false;
}

/* ---- plans without arenas ---- */
struct plan {
    mt_config cfg;
    struct mt_model m; /* of which only the store is filled */
    struct mt_ledger g;
    struct mt_muon u;
};
static bool plan_open(struct plan *p, const char *file, const char *const *options, int world, int replicas,
                      int ep, int rank)
{
    mt_err e = {0};
    memset(p, 0, sizeof *p);
    if (!load(&p->cfg, file, options)) return false;
    struct mt_shape shape = mt_shape_of(&p->cfg);
    mt_store_init(&p->m.store, p->cfg.train_dtype, mt_target_cpu(MT_ISA_SCALAR),
                  &(struct mt_mesh){.world = world, .replicas = replicas, .ep = ep}, rank);
    mt_params_declare(&p->m.store, &shape, 0.02);
    mt_ledger_init(&p->g, 64);
    if (!CHECK(mt_params_place(&p->m.store, p->cfg.shard_groups, p->cfg.shard_groups_count, &e) == MT_OK))
        return false;
    if (!CHECK(mt_optim_assign(&p->m.store, &p->cfg, &e) == MT_OK)) return false;
    mt_store_layout(&p->m.store, &p->g, false);
    return CHECK(mt_muon_init(&p->u, &p->m, &p->cfg, &p->g, &e) == MT_OK);
}
static void plan_close(struct plan *p)
{
    mt_muon_release(&p->u);
    mt_store_release(&p->m.store);
    mt_ledger_release(&p->g);
}

static double bytes_imbalance(const struct mt_muon *u)
{
    int64_t most = 0, sum = 0;
    for (int k = 0; k < u->members; k++) {
        sum += u->load[k].bytes;
        if (u->load[k].bytes > most) most = u->load[k].bytes;
    }
    return (double)most * u->members / (double)sum;
}

static const char *const reference = "configs/models/jupiter-952b.yaml";

/* The reference model on 384 ranks: at most 1.05 of the mean, also with experts that the ranks do not divide. */
TEST(the_reference_model_is_balanced)
{
    static const char *const experts[] = {"model.experts=384", "model.experts=400", "model.experts=1000"};
    for (int i = 0; i < 3; i++) {
        struct plan p;
        if (!plan_open(&p, reference, (const char *const[]){experts[i], NULL}, 384, 1, 4, 17)) return;
        CHECK_INT(p.u.members, 384);
        CHECK_INT(p.u.n_dense, 74 * 7);
        CHECK(mt_owners_imbalance(p.u.load, p.u.members) <= 1.05);
        CHECK(bytes_imbalance(&p.u) <= 1.05);
        plan_close(&p);
    }
}

#define OWNED_ALL                                                                                      \
    "shard.groups=[{match: '*.experts.*'}, {match: embed.weight}, {match: head.weight}, {match: '*', " \
    "placement: owned}]"
#define OWNED_ATTENTION "shard.groups=[{match: 'layers.*.attn.*.weight', placement: owned}]"

/* Owned by placement, all or some, the rest exchanged: dealt out on top of the experts, and what is exchanged on top of both. */
TEST(owned_matrices_of_the_reference_model_are_balanced)
{
    static const char *const groups[] = {OWNED_ALL, OWNED_ATTENTION};
    for (int i = 0; i < 2; i++) {
        struct plan p;
        if (!plan_open(&p, reference, (const char *const[]){groups[i], NULL}, 384, 1, 4, 17)) return;
        const struct mt_store *s = &p.m.store;
        int64_t most = 0, sum = 0, *bytes = calloc(384, sizeof *bytes);
        MT_ASSERT(bytes);
        int owned = 0, muon = 0;
        for (int k = 0; k < s->n_matrices; k++) {
            const struct mt_matrix *m = &s->matrix[k];
            if (m->owner < 0) continue;
            owned++;
            bytes[m->owner] += 4 * m->rows * (m->cols ? m->cols : 1);
        }
        for (int t = 0; t < s->n_tensors; t++)
            muon += s->matrix[s->tensor[t].matrix].owner >= 0 && s->tensor[t].optimizer == MT_MUON;
        for (int k = 0; k < 384; k++) {
            sum += bytes[k];
            if (bytes[k] > most) most = bytes[k];
        }
        CHECK_INT(p.u.n_dense + muon, 74 * 7);
        CHECK(owned >= 74 * 4 && (i == 1 || p.u.n_dense == 0));
        CHECK(mt_owners_imbalance(p.u.load, p.u.members) <= 1.05);
        CHECK(bytes_imbalance(&p.u) <= 1.05);
        CHECK(most < sum); /* nobody has all of what AdamW takes either */
        free(bytes);
        plan_close(&p);
    }
}

/* Each owned matrix is a piece of one batch, and a batch has room for what its busiest owner has of it. */
TEST(batches_of_owned_matrices)
{
    static const char *const bytes[] = {"muon.batch_bytes=1", "muon.batch_bytes=300MiB",
                                        "muon.batch_bytes=4GiB"};
    for (int i = 0; i < 3; i++) {
        struct plan p;
        if (!plan_open(&p, reference, (const char *const[]){OWNED_ALL, "model.layers=9", bytes[i], NULL}, 8,
                       1, 2, i))
            return;
        const struct mt_muon *u = &p.u;
        const struct mt_store *s = &p.m.store;
        int *seen = calloc((size_t)s->n_tensors, sizeof *seen);
        MT_ASSERT(seen);
        for (int k = 0; k < u->n_batches; k++) {
            const struct mt_muon_batch *b = &u->batch[k];
            int64_t of[8] = {0}, most = 0, one = b->rows * b->cols * mt_dtype_bytes(u->dtype);
            for (int j = b->first_piece; j < b->first_piece + b->n_pieces; j++) {
                int t = u->piece[j].tensor, owner = s->matrix[s->tensor[t].matrix].owner;
                if (owner < 0) continue;
                CHECK_INT(seen[t]++, 0);
                CHECK(u->piece[j].first == 0 && u->piece[j].n == 1 && s->tensor[t].rows == b->rows);
                if (++of[owner] > most) most = of[owner];
            }
            if (!most) continue;
            CHECK_INT(b->n, most);
            CHECK(b->n == 1 || b->n * one <= u->batch_bytes);
            CHECK(b->n * one <= u->u_bytes);
        }
        for (int t = 0; t < s->n_tensors; t++)
            CHECK_INT(seen[t],
                      s->tensor[t].optimizer == MT_MUON && s->matrix[s->tensor[t].matrix].owner >= 0);
        free(seen);
        plan_close(&p);
    }
}

/* Fewer experts than ranks: a layer leaves most ranks without one, the model leaves nobody idle. The mean is then so small
 * that one matrix of the attention, which has one owner, is the bound. */
TEST(few_experts_leave_no_rank_idle)
{
    static const char *const experts[] = {"model.experts=96", "model.experts=200", "model.experts=12"};
    for (int i = 0; i < 3; i++) {
        struct plan p;
        if (!plan_open(&p, reference, (const char *const[]){experts[i], NULL}, 384, 1, 4, 5)) return;
        double one = 5.0 * 6144 * 6144 * (3 * 7168.0 + 6144),
               expert = 3 * 5.0 * 1792 * 1792 * (3 * 6144.0 + 1792), sum = 0, least = 1e300, most = 0;
        for (int k = 0; k < p.u.members; k++) {
            sum += p.u.load[k].flops;
            if (p.u.load[k].flops < least) least = p.u.load[k].flops;
            if (p.u.load[k].flops > most) most = p.u.load[k].flops;
        }
        CHECK(most <= sum / p.u.members + one);
        CHECK(least >= sum / p.u.members - one && least >= expert);
        plan_close(&p);
    }
}

/* All ranks find the same plan and the same rows, whichever pieces are theirs; another plan has another hash. */
TEST(all_ranks_plan_alike)
{
    static const char *const base[] = {"model.layers=6", NULL},
                             *const other[] = {"model.layers=6", "muon.dense=gather", NULL},
                             *const bytes[] = {"model.layers=6", "muon.batch_bytes=1MiB", NULL},
                             *const owned[] = {"model.layers=6", OWNED_ATTENTION, NULL};
    struct plan a, b;
    const int ranks[] = {1, 3, 40, 95};
    for (int i = 0; i < 3; i++) {
        if (!plan_open(&a, reference, owned, 96, 2, 4, 0) ||
            !plan_open(&b, reference, owned, 96, 2, 4, ranks[i + 1]))
            return;
        CHECK(mt_muon_hash(&a.u) == mt_muon_hash(&b.u));
        CHECK_INT(b.g.size[MT_DEVICE_ARENA], a.g.size[MT_DEVICE_ARENA]);
        plan_close(&a);
        plan_close(&b);
    }
    if (!plan_open(&a, reference, base, 96, 2, 4, 0)) return;
    for (int i = 0; i < 4; i++) {
        if (!plan_open(&b, reference, base, 96, 2, 4, ranks[i])) return;
        CHECK(mt_muon_hash(&a.u) == mt_muon_hash(&b.u));
        CHECK_INT(b.g.size[MT_DEVICE_ARENA], a.g.size[MT_DEVICE_ARENA]);
        plan_close(&b);
    }
    for (int i = 0; i < 4; i++) {
        const bool replicas = i == 2, ep = i == 3;
        if (!plan_open(&b, reference,
                       i == 0   ? other
                       : i == 1 ? bytes
                                : base,
                       96, replicas ? 1 : 2, ep ? 2 : 4, 0))
            return;
        CHECK(mt_muon_hash(&a.u) != mt_muon_hash(&b.u));
        plan_close(&b);
    }
    plan_close(&a);
}

/* Each matrix is in one window, its owner's places there are taken once, and no window holds more than it may. */
static void check_windows(const char *const *options, int world, int ep)
{
    struct plan p;
    if (!plan_open(&p, reference, options, world, 1, ep, 1)) return;
    const struct mt_muon *u = &p.u;
    const struct mt_store *s = &p.m.store;
    int n = 0, *seen = calloc((size_t)s->n_tensors, sizeof *seen);
    MT_ASSERT(seen);
    for (int i = 0; i < u->n_windows; i++) {
        const struct mt_muon_window *w = &u->window[i];
        int64_t one = w->rows * w->cols * mt_dtype_bytes(u->dtype), mine = 0;
        CHECK(w->n > 0 && w->first == n && (w->most == 1 || w->most * one <= u->batch_bytes));
        CHECK(w->most * one <= u->whole_bytes);
        for (int k = w->first; k < w->first + w->n; k++) {
            const struct mt_muon_dense *d = &u->dense[k];
            CHECK(d->index >= 0 && d->index < w->most && s->tensor[d->tensor].rows == w->rows);
            CHECK_INT(seen[d->tensor]++, 0);
            mine += d->owner == u->me || d->owner < 0;
            for (int j = w->first; j < k; j++)
                CHECK(u->dense[j].owner != d->owner || u->dense[j].index != d->index);
        }
        CHECK_INT(w->mine, mine);
        n += w->n;
    }
    for (int t = 0; t < s->n_tensors; t++) {
        const struct mt_matrix *m = &s->matrix[s->tensor[t].matrix];
        CHECK_INT(seen[t], s->tensor[t].optimizer == MT_MUON && !s->unit[m->unit].experts);
    }
    free(seen);
    plan_close(&p);
}
TEST(windows)
{
    check_windows((const char *const[]){"model.layers=8", NULL}, 16, 4);
    check_windows((const char *const[]){"model.layers=5", "muon.batch_bytes=300MiB", NULL}, 8, 2);
    check_windows(
        (const char *const[]){"model.layers=5", "muon.dense=gather", "muon.batch_bytes=300MiB", NULL}, 8, 2);
    check_windows((const char *const[]){"model.layers=5", "muon.batch_bytes=4GiB", "muon.dtype=f32", NULL}, 2,
                  1);
}

/* ---- recorded updates ---- */
#define TINY                                                                                         \
    "train.seq_len=24", "train.global_batch=24", "model.vocab=61", "model.dim=40", "model.layers=4", \
        "model.heads=4", "model.kv_heads=2", "model.head_dim=12", "model.ffn=72", "model.top_k=3",   \
        "model.expert_ffn=24", "model.shared_ffn=40", "model.first_dense=1"
#define TWELVE "model.experts=12"
#define MANY "muon.batch_bytes=6KiB" /* small enough for many windows */

static bool session(struct mt_session *s, mt_config *cfg, const char *const *options, int world)
{
    mt_err e = {0};
    if (!load(cfg, NULL, options)) return false;
    if (CHECK(mt_session_open(s, cfg, world, false, &e) == MT_OK)) return true;
    printf("  %s\n", e.msg);
    return false;
}

static int64_t count(const struct mt_recording *q, int op)
{
    int64_t n = 0;
    for (int64_t i = 0; i < q->n; i++) n += q->rec[i].op == op;
    return n;
}

/* The layout is made from the first rank's record and serves all: no rank races in it or loses what it needs. Some ranks,
 * the first too, have no expert in some layers or in none, and own no matrix of some windows. */
TEST(one_memory_plan_serves_all_ranks)
{
    static const char *const variant[][4] = {
        {"mesh.ep=1", "muon.dense=exchange", TWELVE},
        {"mesh.ep=4", "muon.dense=exchange", TWELVE},
        {"mesh.ep=1", "muon.dense=gather", TWELVE},
        {"mesh.ep=1", "muon.dense=exchange", "model.experts=4"},
        {"mesh.ep=1", "muon.dense=exchange", TWELVE, OWNED_ATTENTION},
        {"mesh.ep=4", "muon.dense=exchange", "model.experts=4", OWNED_ALL}};
    const int worlds[] = {4, 8, 24};
    for (int i = 0; i < 18; i++) {
        mt_config cfg;
        struct mt_session s = {0};
        mt_err e = {0};
        int world = worlds[i % 3];
        const char *const *v = variant[i / 3];
        if (!session(&s, &cfg, (const char *const[]){TINY, MANY, v[0], v[1], v[2], v[3], NULL}, world))
            return;
        for (int r = 0; r < world; r++) {
            struct mt_recording q;
            update_record(&s, r, true, &q);
            if (!CHECK(mt_plan_check(&s.ledger, &q, &e) == MT_OK))
                printf("  rank %d of %d: %s\n", r, world, e.msg);
            mt_recording_release(&q);
        }
        CHECK(s.rank[0].optim.muon.n_windows > 2 * MT_MUON_SLOTS || v[3]);
        mt_session_close(&s);
    }
}

/* Whether an argument lies in a row of a bucket of experts, or of owned matrices. */
static bool of_owned(const struct mt_store *s, int32_t row)
{
    for (int i = 0; i < s->n_buckets; i++) {
        const struct mt_bucket *b = &s->bucket[i];
        if (b->placement != MT_PLACED_OWNED) continue;
        for (int w = 0; w < MT_N_STATES; w++)
            if (b->row[w] == row && row >= 0) return true;
        if (row == b->work_row || row == b->full_row[0] || row == b->full_row[1] || row == b->grad_row ||
            row == b->staging_row)
            return row >= 0;
    }
    return false;
}

/* Newton-Schulz on what is owned moves nothing: no collective of the update touches its rows or the batch that holds it; and
 * where only experts are Muon's, or everything is owned, there is no collective at all. */
TEST(owned_matrices_put_nothing_on_the_wire)
{
    static const char *const variant[] = {
        OWNED_ATTENTION,
        "optim.groups=[{match: \"*.experts.*\", optimizer: muon}, {match: \"*\", optimizer: adamw}]",
        OWNED_ALL};
    for (int ep = 1; ep <= 4; ep *= 2)
        for (int alone = 0; alone < 3; alone++) {
            mt_config cfg;
            struct mt_session s = {0};
            char mesh[20];
            snprintf(mesh, sizeof mesh, "mesh.ep=%d", ep);
            if (!session(&s, &cfg, (const char *const[]){TINY, TWELVE, MANY, mesh, variant[alone], NULL}, 8))
                return;
            for (int r = 0; r < 8; r++) {
                struct mt_recording q;
                int64_t moves = 0, bad = 0;
                update_record(&s, r, false, &q);
                for (int64_t i = 0; i < q.n; i++) {
                    if (q.rec[i].op == MT_OP_wait || mt_op_info[q.rec[i].op].kind != MT_COMM) continue;
                    moves++;
                    for (int k = 0; k < q.rec[i].n_args; k++) {
                        int32_t row = q.arg[q.rec[i].arg + (uint32_t)k].row;
                        bad += of_owned(&s.rank[r].model.store, row) || row == s.rank[r].optim.muon.u_row;
                    }
                }
                CHECK(count(&q, MT_OP_newton_schulz) > 0);
                CHECK_INT(bad, 0);
                CHECK((moves == 0) == (alone > 0));
                mt_recording_release(&q);
            }
            mt_session_close(&s);
        }
}

TEST(bytes_of_the_exchange)
{
    for (int world = 2; world <= 8; world *= 2) {
        mt_config cfg;
        struct mt_session s = {0};
        if (!session(&s, &cfg, (const char *const[]){TINY, TWELVE, MANY, NULL}, world)) return;
        const struct mt_muon *u = &s.rank[0].optim.muon;
        const struct mt_store *st = &s.rank[0].model.store;
        int64_t all = 0, home = 0;
        for (int i = 0; i < u->n_dense; i++) {
            const struct mt_cut *cut = &st->cut[u->dense[i].cut];
            all += cut->at[world];
            home += mt_cut_to(cut, u->dense[i].owner) - mt_cut_from(cut, u->dense[i].owner);
        }
        CHECK_INT(update_received(&s), 2 * (all - home));
        mt_session_close(&s);
        if (!session(&s, &cfg, (const char *const[]){TINY, TWELVE, MANY, "muon.dense=gather", NULL}, world))
            return;
        CHECK_INT(update_received(&s), (world - 1) * all);
        mt_session_close(&s);
    }
}

/* Of two records of different streams, neither is ordered behind the other. */
static bool concurrent(const struct mt_recording *q, const struct mt_order *o, int64_t i, int64_t j)
{
    const struct mt_rec *a = &q->rec[i], *b = &q->rec[j];
    return a->stream != b->stream && o->before[i].at[b->stream] < b->seq &&
           o->before[j].at[a->stream] < a->seq;
}

/* With as many batches of experts as there are gaps between windows, every collection and every return of a result has
 * iterations beside it that wait for neither. */
TEST(moves_hide_under_iterations)
{
    mt_config cfg;
    struct mt_session s = {0};
    if (!session(&s, &cfg, (const char *const[]){TINY, TWELVE, "muon.batch_bytes=1", NULL}, 4)) return;
    CHECK(s.rank[0].optim.muon.n_batches > s.rank[0].optim.muon.n_windows);
    for (int r = 0; r < 4; r++) {
        struct mt_recording q;
        struct mt_order order;
        int64_t moves = 0, hidden = 0;
        update_record(&s, r, false, &q);
        mt_order_init(&order, &q, -1, false);
        for (int64_t i = 0; i < q.n; i++) {
            if (q.rec[i].op != MT_OP_collect_cut && q.rec[i].op != MT_OP_spread_cut) continue;
            bool beside = false;
            for (int64_t j = 0; j < q.n && !beside; j++)
                beside = q.rec[j].op == MT_OP_newton_schulz && concurrent(&q, &order, i, j);
            moves++;
            hidden += beside;
        }
        CHECK(moves > 0);
        CHECK_INT(hidden, moves);
        mt_order_release(&order);
        mt_recording_release(&q);
    }
    mt_session_close(&s);
}

/* One rank has no windows, and no collectives. */
TEST(one_rank_exchanges_nothing)
{
    mt_config cfg;
    struct mt_session s = {0};
    struct mt_recording q;
    if (!session(&s, &cfg, (const char *const[]){TINY, TWELVE, MANY, NULL}, 1)) return;
    update_record(&s, 0, false, &q);
    CHECK_INT(s.rank[0].optim.muon.n_windows, 0);
    CHECK_INT(count(&q, MT_OP_collect_cut) + count(&q, MT_OP_gather_cut) + count(&q, MT_OP_spread_cut), 0);
    CHECK(count(&q, MT_OP_newton_schulz) > 0);
    mt_recording_release(&q);
    mt_session_close(&s);
}

TEST(the_table_names_every_owner)
{
    struct plan p;
    char *text = NULL;
    size_t size = 0;
    int lines = 0;
    if (!plan_open(&p, reference, (const char *const[]){"model.layers=2", NULL}, 8, 1, 4, 0)) return;
    FILE *f = open_memstream(&text, &size);
    mt_muon_print(&p.u, f);
    fclose(f);
    for (const char *at = text; (at = strstr(at, " owns layers.")); at++) lines++;
    CHECK_INT(lines, 2 * 7);
    CHECK(strstr(text, "owns layers.1.attn.q.weight [7168, 6144]\n") != NULL);
    free(text);
    plan_close(&p);
    if (!plan_open(&p, reference, (const char *const[]){"model.layers=2", OWNED_ALL, NULL}, 8, 1, 4, 0))
        return;
    f = open_memstream(&text, &size);
    mt_muon_print(&p.u, f);
    fclose(f);
    CHECK(strstr(text, "owns layers.1.attn.q.weight [7168, 6144], placed there\n") != NULL);
    CHECK(strstr(text, "owns layers.1.attn_norm.weight [6144], placed there\n") != NULL);
    free(text);
    plan_close(&p);
}

int main(void)
{
    RUN(the_reference_model_is_balanced);
    RUN(owned_matrices_of_the_reference_model_are_balanced);
    RUN(batches_of_owned_matrices);
    RUN(few_experts_leave_no_rank_idle);
    RUN(all_ranks_plan_alike);
    RUN(windows);
    RUN(one_memory_plan_serves_all_ranks);
    RUN(owned_matrices_put_nothing_on_the_wire);
    RUN(bytes_of_the_exchange);
    RUN(moves_hide_under_iterations);
    RUN(one_rank_exchanges_nothing);
    RUN(the_table_names_every_owner);
    return DONE();
}
