/* test: timeout=240 variants=release,asan
 *
 * A plan is the run: eight configurations are run on this machine, every rank, and planned; memory is compared to the byte, bytes
 * moved with the run's byte ledger, and what the real device enqueued with what the plan's does, record by record. */
#include "check.h"
#include "train/forecast.h"
#include "words.h"

#define COMMON                                                                                         \
    "device.isa=scalar train.seq_len=16 optim.warmup_steps=0 optim.decay_ratio=0 train.loss_chunk=16 " \
    "model.heads=2 model.kv_heads=1 model.layers=3 "
#define MOE                                                                                      \
    "model.vocab=64 model.dim=64 model.head_dim=32 model.ffn=96 model.experts=10 model.top_k=3 " \
    "model.expert_ffn=32 model.shared_ffn=64 model.first_dense=1 model.qk_norm=true "            \
    "model.score=sigmoid model.bias_rate=0.01 "

struct config {
    const char *options;
    int world, per_node;
};
static const struct config config[] = {
    {COMMON "model.vocab=61 model.dim=40 model.head_dim=20 model.ffn=72 model.tied=true model.attn_bias=true "
            "train.dtype=f32 train.global_batch=6 mesh.ranks_per_node=2",
     6, 2},
    {COMMON MOE "train.dtype=bf16 moe.buffer_factor=0.3 mesh.ep=2 mesh.replicas=2 train.global_batch=16 "
                "mesh.ranks_per_node=2",
     8, 2},
    {COMMON MOE "train.dtype=f32 model.experts=8 mesh.ep=4 train.global_batch=16 shard.prefetch=2 "
                "shard.keep_last=1 mesh.ranks_per_node=4",
     8, 4},
    {COMMON MOE
     "train.dtype=bf16 wire.reduce=bf16 wire.gather_experts=fp8 wire.gather_dense=fp8 train.global_batch=8 "
     "train.micro_batch=2 mesh.ranks_per_node=2",
     4, 2},
    {COMMON MOE "train.dtype=bf16 mesh.ep=2 train.micro_order=layer train.global_batch=24 muon.dense=gather "
                "muon.batch_bytes=16KiB mesh.ranks_per_node=4",
     8, 4},
    {COMMON MOE "train.dtype=f32 mesh.ep=2 mesh.replicas=4 train.global_batch=16 mesh.ranks_per_node=4", 16,
     4},
    {COMMON MOE
     "train.dtype=bf16 mesh.ep=2 train.global_batch=16 mesh.ranks_per_node=2 shard.host_weights=all "
     "shard.groups=[{\"match\":\"*.experts.*\"},{\"match\":\"*.attn.*\",\"placement\":\"owned\"}]",
     8, 2},
    {COMMON MOE "train.dtype=bf16 mesh.ep=2 train.global_batch=16 mesh.ranks_per_node=4 "
                "offload.masters=host offload.moments=host offload.grads=host offload.slot_bytes=8KiB "
                "offload.activations.fraction=0.7 recompute.policy=selective recompute.keep_on=host "
                "shard.reshard_dense=node shard.grads=1",
     8, 4},
};
enum { CONFIGS = sizeof config / sizeof *config };

static bool load(mt_config *cfg, const char *options)
{
    mt_err e = {0};
    if (CHECK(words_load(cfg, options, &e) == MT_OK)) return true;
    printf("  %s\n", e.msg);
    return false;
}

static void batches(struct mt_session *s, uint64_t seed)
{
    for (int r = 0; r < s->world; r++) {
        const struct mt_model *m = &s->rank[r].model;
        const struct mt_ctx *c = &s->rank[r].ctx;
        int32_t *tok = mt_address(c, m->host.tokens), *lab = mt_address(c, m->host.labels),
                *beg = mt_address(c, m->host.begin), *pos = mt_address(c, m->host.pos);
        for (int64_t i = 0; i < m->opt.micro_batches * m->shape.N; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            tok[i] = (int32_t)((seed >> 33) % (uint64_t)m->shape.V);
            lab[i] = (tok[i] + 1) % (int32_t)m->shape.V;
            beg[i] = (int32_t)(i % m->shape.N / m->shape.S * m->shape.S);
            pos[i] = (int32_t)(i % m->shape.S);
        }
    }
}

/* ---- the run, and the plan that is told how its tokens were routed ---- */
struct replayed {
    const struct mt_session *run;
    int rank;
};
static void answer(void *arg, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    static const double one = 1;
    static const int64_t one_i = 1;
    const struct replayed *a = arg;
    const struct mt_session_rank *r = &a->run->rank[a->rank];
    if (kind == MT_READ_LOSS || kind == MT_READ_NORM) memcpy(dst, &one, sizeof one);
    if (kind == MT_READ_STATE) memcpy(dst, &one_i, sizeof one_i);
    if (kind == MT_READ_COUNTS)
        memcpy(dst, r->step.rank.counts + index * r->model.shape.E * r->model.opt.mesh.ep, (size_t)src.bytes);
}

static bool same_record(const struct mt_recording *a, const struct mt_recording *b, int64_t i)
{
    const struct mt_rec *x = &a->rec[i], *y = &b->rec[i];
    if (x->op != y->op || x->stream != y->stream || x->n_args != y->n_args || x->dtype != y->dtype ||
        x->round != y->round || x->seq != y->seq || x->ev.stream != y->ev.stream || x->ev.seq != y->ev.seq ||
        memcmp(x->dim, y->dim, sizeof x->dim) != 0 || memcmp(x->scalar, y->scalar, sizeof x->scalar) != 0)
        return false;
    for (int k = 0; k < x->n_args; k++) {
        const struct mt_rec_arg *p = &a->arg[x->arg + (uint32_t)k], *q = &b->arg[y->arg + (uint32_t)k];
        if (p->row != q->row || p->dir != q->dir || p->whole != q->whole || p->off != q->off ||
            p->bytes != q->bytes)
            return false;
    }
    return true;
}

static void compare_records(const struct mt_recording *a, const struct mt_recording *b, int rank)
{
    int64_t i = 0;
    CHECK_INT(a->n, b->n);
    while (i < a->n && i < b->n && same_record(a, b, i)) i++;
    if (!CHECK(i == a->n))
        printf("  rank %d: record %lld of %lld differs\n", rank, (long long)i, (long long)a->n);
}

static void compare_traffic(const struct mt_traffic *a, const struct mt_traffic *b)
{
    int64_t bytes = 0;
    for (int g = 0; g < MT_N_GROUPS; g++)
        for (int s = 0; s < MT_N_STREAMS; s++)
            for (int op = 0; op < MT_N_COMM_OPS; op++) {
                const struct mt_lane *x = &a->lane[g][s][op], *y = &b->lane[g][s][op];
                CHECK_INT(x->calls, y->calls);
                CHECK(!memcmp(x->flow, y->flow, sizeof x->flow));
                for (int l = 0; l < MT_N_LINKS; l++)
                    CHECK_INT(atomic_load(&x->moved[l]), y->flow[l].received);
                bytes += y->flow[0].sent + y->flow[1].sent;
            }
    CHECK(bytes > 0);
}

/* Ranks of one process share the layout of its first one; the places of another's own may be others. */
static void compare_memory(const struct mt_session *a, const struct mt_session *b)
{
    CHECK_INT(a->ledger.n, b->ledger.n);
    for (int i = 0; i < a->ledger.n && i < b->ledger.n; i++) {
        const struct mt_row *x = &a->ledger.row[i], *y = &b->ledger.row[i];
        CHECK_STR(x->name, y->name);
        CHECK(x->arena == y->arena && x->row_class == y->row_class && x->bytes == y->bytes);
        if (a->first == b->first) CHECK_INT(x->off, y->off);
    }
    for (int k = 0; k < MT_N_ARENAS; k++) CHECK_INT(a->plan.peak[k], b->plan.peak[k]);
}

/* One rank of the run against a session that was planned for rank 0 and turned, and one planned for the rank itself. */
static void compare_rank(struct mt_session *run, struct mt_session *planned, struct mt_simclock *k,
                         const struct mt_recording *real, int r)
{
    struct mt_session own;
    struct mt_recording turned = {0}, opened = {0};
    struct replayed a = {run, r};
    struct mt_ctx ctx;
    mt_err e = {0};
    mt_ctx_init(&ctx, r, run->world, &mt_device_simclock, &planned->ledger);
    ctx.answer = answer;
    ctx.answer_arg = &a;
    ctx.recording = &turned;
    mt_simclock_begin(k, &ctx);
    CHECK(mt_session_enqueue(planned, &ctx, &e) == MT_OK);
    mt_simclock_end(k, &ctx);
    compare_records(real, &turned, r);
    compare_traffic(&run->rank[r].traffic, ctx.traffic);
    CHECK_INT(mt_simclock_operations(k, r), real->n);

    if (!CHECK(mt_session_plan(&own, run->cfg, run->target, run->world, r, &e) == MT_OK))
        printf("  %s\n", e.msg);
    compare_memory(run, &own);
    mt_ctx_init(&ctx, r, run->world, &mt_device_sim, &own.ledger);
    ctx.answer = answer;
    ctx.answer_arg = &a;
    ctx.recording = &opened;
    CHECK(mt_session_enqueue(&own, &ctx, &e) == MT_OK);
    compare_records(&opened, &turned, r);
    mt_session_close(&own);
    mt_recording_release(&turned);
    mt_recording_release(&opened);
}

static int members(const void *mesh, int id, int rank, int *out)
{
    return mt_mesh_members(mesh, (enum mt_group_id)id, rank, out);
}

static void compare_run(const struct config *c)
{
    struct mt_session run = {0}, planned = {0};
    struct mt_simclock *k = NULL;
    struct mt_recording *real = calloc((size_t)c->world, sizeof *real);
    mt_config *cfg = calloc(1, sizeof *cfg);
    mt_err e = {0};
    bool ok = load(cfg, c->options);
    mt_status st = ok ? mt_session_open(&run, cfg, c->world, false, &e) : MT_CONFIG;
    if (st == MT_OK) st = mt_session_run(&run, mt_fill_step, &e);
    if (st == MT_OK) {
        batches(&run, 11);
        for (int r = 0; r < c->world; r++) {
            run.rank[r].ctx.recording = &real[r];
            run.rank[r].step.step = 1; /* a plan is of the second step */
        }
        st = mt_session_run(&run, mt_train_step, &e);
    }
    if (st == MT_OK) st = mt_session_plan(&planned, cfg, run.target, c->world, 0, &e);
    if (st == MT_OK)
        st = mt_simclock_open(
            &k,
            &(struct mt_simclock_options){c->world, c->per_node, 100, MT_N_GROUPS, members, &planned.mesh},
            &e);
    if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
    if (st == MT_OK) compare_memory(&run, &planned);
    for (int r = 0; r < c->world && st == MT_OK; r++) compare_rank(&run, &planned, k, &real[r], r);
    mt_simclock_close(k);
    mt_session_close(&planned);
    mt_session_close(&run);
    for (int r = 0; r < c->world; r++) mt_recording_release(&real[r]);
    free(real);
    free(cfg);
}
TEST(a_plan_is_the_run)
{
    for (int i = 0; i < CONFIGS; i++) compare_run(&config[i]);
}

/* ---- forecasts ---- */
static struct mt_cluster cluster(void)
{
    struct mt_cluster c;
    mt_err e = {0};
    if (!CHECK(mt_cluster_load(&c, "configs/clusters/jupiter.yaml", &e) == MT_OK)) printf("  %s\n", e.msg);
    return c;
}

static double forecast(mt_config *cfg, const struct mt_cluster *c, const struct mt_forecast_options *o,
                       struct mt_simclock_rank *out, int *programs)
{
    struct mt_forecast f;
    struct mt_forecast_times t = {0};
    mt_err e = {0};
    mt_status st = mt_forecast_open(&f, cfg, c, mt_target_cpu(MT_ISA_SCALAR), o, &e);
    if (st == MT_OK) st = mt_forecast_replay(&f, c, MT_ALG_DIRECT, &t, &e);
    if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
    double step = t.step_s;
    if (st == MT_OK && out) memcpy(out, t.rank, (size_t)o->world * sizeof *out);
    if (st == MT_OK && programs) *programs = mt_simclock_programs(f.clock);
    mt_forecast_times_release(&t);
    mt_forecast_close(&f);
    return step;
}

/* Ranks of the other replicas take the programs of the first one's; slow nodes, documents and skew are each rank's own. */
TEST(replicas_are_recorded_once)
{
    mt_config *cfg = calloc(1, sizeof *cfg);
    struct mt_cluster c = cluster();
    c.of[MT_CLUSTER_vary_compute].value = 0.2;
    c.of[MT_CLUSTER_vary_net].value = 0.3;
    c.of[MT_CLUSTER_topology_nodes_per_group].value = 2;
    for (int i = 0; i < CONFIGS; i++) {
        struct mt_simclock_rank once[16], all[16];
        struct mt_forecast_options o = {.world = config[i].world,
                                        .seed = 7,
                                        .documents = MT_DOCUMENTS_LOGNORMAL,
                                        .mean = 5,
                                        .sigma = 1,
                                        .skew = 0.5};
        int few = 0, many = 0;
        if (!load(cfg, config[i].options)) continue;
        double a = forecast(cfg, &c, &o, once, &few);
        o.record_all = true;
        double b = forecast(cfg, &c, &o, all, &many);
        CHECK(a == b && a > 0);
        CHECK(!memcmp(once, all, (size_t)config[i].world * sizeof *once));
        CHECK(few == many && few <= config[i].world / (int)cfg->mesh_replicas);
    }
    free(cfg);
}

TEST(equal_by_seed)
{
    mt_config *cfg = calloc(1, sizeof *cfg);
    struct mt_cluster c = cluster();
    c.of[MT_CLUSTER_vary_net].value = 0.3;
    struct mt_forecast_options o = {
        .world = 8, .seed = 1, .documents = MT_DOCUMENTS_LOGNORMAL, .mean = 4, .sigma = 1, .skew = 0.3};
    if (load(cfg, config[1].options)) {
        double a = forecast(cfg, &c, &o, NULL, NULL), b = forecast(cfg, &c, &o, NULL, NULL);
        CHECK(a == b);
        o.seed = 2;
        CHECK(forecast(cfg, &c, &o, NULL, NULL) != a);
    }
    free(cfg);
}

/* What must make a step longer does. */
TEST(imbalance_costs_time)
{
    mt_config *cfg = calloc(1, sizeof *cfg);
    struct mt_cluster even = cluster(), slow = even;
    struct mt_forecast_options o = {.world = 8, .seed = 3};
    if (load(cfg, config[2].options)) {
        double a = forecast(cfg, &even, &o, NULL, NULL);
        slow.of[MT_CLUSTER_vary_net].value = 0.5;
        CHECK(forecast(cfg, &slow, &o, NULL, NULL) > a);
        slow = even;
        slow.of[MT_CLUSTER_vary_slow_share].value = 1;
        slow.of[MT_CLUSTER_vary_slow_net].value = 3;
        CHECK(forecast(cfg, &slow, &o, NULL, NULL) > a);
        slow = even;
        slow.of[MT_CLUSTER_net_bandwidth].value /= 1000;
        CHECK(forecast(cfg, &slow, &o, NULL, NULL) > a);
    }
    free(cfg);
}

/* Rows of a layer: all of them, none over N, and the most popular expert's grow with the skew. */
TEST(skewed_routing)
{
    mt_config *cfg = calloc(1, sizeof *cfg);
    struct mt_cluster c = cluster();
    mt_err e = {0};
    int32_t before = 0;
    for (int i = 0; i < 4 && load(cfg, config[2].options); i++) {
        struct mt_forecast f;
        struct mt_forecast_options o = {.world = 8, .seed = 5, .skew = i};
        CHECK(mt_forecast_open(&f, cfg, &c, mt_target_cpu(MT_ISA_SCALAR), &o, &e) == MT_OK);
        const struct mt_shape *d = &f.s.rank[0].model.shape;
        int32_t top = 0;
        for (int64_t l = 0; l < d->L; l++) {
            int64_t sum = 0;
            for (int64_t x = 0; x < d->E; x++) {
                int32_t rows = f.popular[l * d->E + x];
                CHECK(rows >= 0 && rows <= d->N);
                sum += rows;
                if (rows > top) top = rows;
            }
            CHECK_INT(sum, d->N * d->K);
        }
        if (i == 0) CHECK_INT(top, d->N * d->K / d->E);
        CHECK(top >= before);
        before = top;
        mt_forecast_close(&f);
    }
    free(cfg);
}

/* Documents of one token see themselves; whole sequences all before. */
TEST(pairs_of_documents)
{
    mt_config *cfg = calloc(1, sizeof *cfg);
    struct mt_cluster c = cluster();
    mt_err e = {0};
    struct mt_forecast f;
    struct mt_forecast_options o = {.world = 8, .documents = MT_DOCUMENTS_LOGNORMAL, .mean = 1, .sigma = 0};
    if (load(cfg, config[2].options)) {
        CHECK(mt_forecast_open(&f, cfg, &c, mt_target_cpu(MT_ISA_SCALAR), &o, &e) == MT_OK);
        CHECK_CLOSE(f.mean_pairs, 16, 0);
        mt_forecast_close(&f);
        o.mean = 4;
        CHECK(mt_forecast_open(&f, cfg, &c, mt_target_cpu(MT_ISA_SCALAR), &o, &e) == MT_OK);
        CHECK_CLOSE(f.mean_pairs, 4 * 10, 0);
        mt_forecast_close(&f);
        o.documents = MT_DOCUMENTS_FULL;
        CHECK(mt_forecast_open(&f, cfg, &c, mt_target_cpu(MT_ISA_SCALAR), &o, &e) == MT_OK);
        CHECK_CLOSE(f.mean_pairs, 16 * 17 / 2, 0);
        CHECK_CLOSE(f.pairs[8 * f.micro - 1], mt_model_pairs(&f.s.rank[0].model.shape, 0), 0);
        mt_forecast_close(&f);
        /* A window of three: what is past a document's first three tokens sees three. */
        cfg->model_window = 3, cfg->model_window_full_every = 2;
        o.documents = MT_DOCUMENTS_LOGNORMAL;
        CHECK(mt_forecast_open(&f, cfg, &c, mt_target_cpu(MT_ISA_SCALAR), &o, &e) == MT_OK);
        CHECK_CLOSE(f.mean_pairs, 4 * 10, 0);
        CHECK_CLOSE(f.mean_near, 4 * 9, 0);
        CHECK_CLOSE(f.near[8 * f.micro - 1], 4 * 9, 0);
        mt_forecast_close(&f);
        cfg->model_window = cfg->model_window_full_every = 0;
        cfg->data_document_mask = false;
        CHECK(mt_forecast_open(&f, cfg, &c, mt_target_cpu(MT_ISA_SCALAR), &o, &e) == MT_OK);
        CHECK_CLOSE(f.mean_pairs, 16 * 17 / 2, 0);
        mt_forecast_close(&f);
    }
    free(cfg);
}

/* Sequences placed by what their documents cost: as many pairs in all, and a shorter step. */
TEST(balanced_documents)
{
    mt_config *cfg = calloc(1, sizeof *cfg);
    struct mt_cluster c = cluster();
    double step[2], sum[2] = {0, 0};
    char options[1024];
    for (int i = 0; i < 2; i++) {
        struct mt_forecast f;
        struct mt_forecast_times t = {0};
        mt_err e = {0};
        struct mt_forecast_options o = {
            .world = 8, .seed = 2, .documents = MT_DOCUMENTS_LOGNORMAL, .mean = 300, .sigma = 2};
        snprintf(options, sizeof options, "%s train.seq_len=2048 train.global_batch=64 data.balance=%s",
                 config[2].options, i ? "attention" : "none");
        if (!load(cfg, options)) break;
        mt_status st = mt_forecast_open(&f, cfg, &c, mt_target_cuda(), &o, &e);
        if (st == MT_OK) st = mt_forecast_replay(&f, &c, MT_ALG_DIRECT, &t, &e);
        if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
        for (int64_t k = 0; k < 8 * f.micro && st == MT_OK; k++) sum[i] += f.pairs[k];
        CHECK(i ? f.imbalance.placed < f.imbalance.data : f.imbalance.placed == f.imbalance.data);
        step[i] = t.step_s;
        mt_forecast_times_release(&t);
        mt_forecast_close(&f);
    }
    CHECK_CLOSE(sum[1] / sum[0], 1, 1e-12);
    CHECK(step[1] < step[0]);
    free(cfg);
}

/* The clock's account of the compute stream, and that of the run's traces made from its time line: two ways to one sum. */
TEST(two_accounts_of_a_time_line)
{
    mt_config *cfg = calloc(1, sizeof *cfg);
    struct mt_cluster c = cluster();
    for (int i = 0; i < CONFIGS && load(cfg, config[i].options); i++) {
        struct mt_forecast f;
        struct mt_forecast_times t = {0};
        struct mt_timeline_sum sum;
        struct mt_forecast_options o = {.world = config[i].world, .seed = 4, .skew = 0.3};
        mt_err e = {0};
        int rank = config[i].world - 1;
        mt_status st = mt_forecast_open(&f, cfg, &c, mt_target_cuda(), &o, &e);
        if (st == MT_OK) st = mt_forecast_replay(&f, &c, MT_ALG_DIRECT, &t, &e);
        if (st == MT_OK) st = mt_forecast_trace(&f, &c, MT_ALG_DIRECT, rank, "/dev/null", &sum, &e);
        if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
        if (st == MT_OK) {
            const struct mt_simclock_rank *r = &t.rank[rank];
            double busy = 0, spent = 0;
            for (int k = 0; k < MT_N_WORK_KINDS; k++) busy += r->busy[k];
            for (int k = 0; k < MT_N_CAUSES; k++) spent += 1e-9 * (double)sum.spent[k];
            double ns = 1e-9 * (double)mt_simclock_operations(f.clock, rank); /* each end is rounded to one */
            CHECK_CLOSE(1e-9 * (double)sum.length, r->end, 2e-9);
            CHECK_CLOSE(spent, r->end, 2e-9);
            CHECK_CLOSE(1e-9 * (double)(sum.spent[MT_CAUSE_COMPUTE] + sum.spent[MT_CAUSE_OPTIMIZER]), busy,
                        ns);
        }
        mt_forecast_times_release(&t);
        mt_forecast_close(&f);
    }
    free(cfg);
}

int main(void)
{
    RUN(a_plan_is_the_run);
    RUN(replicas_are_recorded_once);
    RUN(equal_by_seed);
    RUN(imbalance_costs_time);
    RUN(skewed_routing);
    RUN(pairs_of_documents);
    RUN(balanced_documents);
    RUN(two_accounts_of_a_time_line);
    return DONE();
}
