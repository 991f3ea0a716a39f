/* test: variants=cuemu */
/* The cuda device, under the emulator or on a GPU, trains a small relative of the quickstart model as the cpu device does: losses within a
 * bound that is fixed before it runs, twice the spread of the cpu's own runs over permuted orders of their sums (sequences in
 * another order, and instruction sets that add up in another order). */
#include "small_model.h"
#include "train/tracing.h"

/* tests/cuemu/src: how the emulator picks among the orders it may run things in. Absent on a GPU. */
void cuemu_set_order(const char *order, unsigned long long seed) __attribute__((weak));
static void set_order(const char *order)
{
    if (cuemu_set_order) cuemu_set_order(order, 1);
}

/* The sanitizers' builds look for races and bad accesses, in one step; the numbers are those of the plain build. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STEPS = 1, RUNS = 1, SANITIZED = 1 };
#else
enum { STEPS = 20, RUNS = 6, SANITIZED = 0 };
#endif

/* ---- runs ---- */
struct outcome {
    double loss[STEPS], norm[STEPS], aux[MT_N_AUX];
    int64_t steps; /* 0: STEPS */
    struct ranks_values v;
};
static bool run(struct outcome *o, const char *options, int world, int shuffled)
{
    struct training t = {0};
    char text[2048];
    mt_err e = {0};
    snprintf(text, sizeof text, MODEL "%s", options);
    if (!CHECK(training_config(&t.cfg, text))) return false;
    mt_status st = mt_session_open(&t.s, &t.cfg, world, false, &e);
    if (st == MT_OK) st = mt_session_run(&t.s, mt_fill_step, &e);
    for (int64_t i = 0; i < (o->steps ? o->steps : STEPS) && st == MT_OK; i++) {
        small_batch(&t, i, shuffled);
        for (int r = 0; r < world; r++) t.s.rank[r].step.step = i;
        st = mt_session_run(&t.s, mt_train_step, &e);
        o->loss[i] = t.s.rank[0].step.loss / (double)t.s.rank[0].step.valid;
        o->norm[i] = t.s.rank[0].step.norm;
        memcpy(o->aux, t.s.rank[0].step.aux, sizeof o->aux);
        CHECK(t.s.rank[0].step.updated);
    }
    if (!CHECK(st == MT_OK)) printf("  %s\n  with %s\n", e.msg, options);
    bool ok = st == MT_OK && ranks_values_take(&o->v, &t);
    training_close(&t);
    return ok;
}

struct apart {
    double loss, norm, values;
};
static void widen(double *a, double x)
{
    if (!(x <= *a)) *a = x;
}
static void compare(struct apart *d, const struct outcome *a, const struct outcome *b)
{
    for (int i = 0; i < STEPS; i++) {
        widen(&d->loss, fabs(a->loss[i] - b->loss[i]) / b->loss[i]);
        widen(&d->norm, fabs(a->norm[i] - b->norm[i]) / b->norm[i]);
    }
    if (CHECK_INT(a->v.n, b->v.n)) widen(&d->values, check_rel(a->v.at, b->v.at, a->v.n));
}

/* The cpu's spread, and the first of its runs. */
static bool spread_find(struct apart *spread, struct outcome *first, const char *dtype)
{
    static const char *const isa[] = {"auto", "auto", "scalar", "scalar", "auto", "scalar"};
    struct outcome one[RUNS] = {0};
    bool ok = true;
    for (int i = 0; i < RUNS && ok; i++) {
        char options[256];
        snprintf(options, sizeof options, "train.dtype=%s device.type=cpu device.workers=1 device.isa=%s",
                 dtype, isa[i]);
        ok = run(&one[i], options, 1, i);
        for (int k = 0; k < i && ok; k++) compare(spread, &one[i], &one[k]);
    }
    for (int i = 1; i < RUNS; i++) ranks_values_release(&one[i].v);
    *first = one[0];
    return ok && CHECK(spread->loss > 0 && spread->norm > 0 && spread->values > 0);
}

struct machine_run {
    const char *dtype, *options, *order;
    int world;
};
static const struct machine_run runs[] = {
    {"f32", OFFLOAD "optim.compute=host ", "lazy", 1},
    {"f32", OFFLOAD "mesh.ep=2 shard.prefetch=2 ", "eager", 4},
    {"bf16", "device.attention=own ", "eager", 1},
    {"bf16", "mesh.ep=2 offload.moments=host recompute.policy=selective device.attention=own ", "lazy", 4},
};
enum { N_MACHINE_RUNS = sizeof runs / sizeof *runs };
static bool run_on_cuda(struct outcome *o, const struct machine_run *k)
{
    char options[512];
    snprintf(options, sizeof options, "train.dtype=%s device.type=cuda %s", k->dtype, k->options);
    set_order(k->order);
    bool ok = run(o, options, k->world, 0);
    set_order("lazy");
    return ok;
}

static void against_cpu(const char *dtype, double most)
{
    struct apart spread = {0};
    struct outcome cpu = {0};
    bool ok = spread_find(&spread, &cpu, dtype);
    CHECK(spread.loss < most);                      /* a bound that means something */
    CHECK(cpu.loss[STEPS - 1] < 0.9 * cpu.loss[0]); /* it learns */
    for (int i = 0; ok && i < N_MACHINE_RUNS; i++) {
        struct outcome cuda = {0};
        struct apart far = {0};
        if (strcmp(runs[i].dtype, dtype)) continue;
        if (run_on_cuda(&cuda, &runs[i])) {
            compare(&far, &cuda, &cpu);
            fflush(stdout),
                printf("  %s, %d rank%s, %s, %s: loss %.4f to %.4f, apart %.2g, bound %.2g; norm %.2g, %.2g; "
                       "parameters %.2g, %.2g\n",
                       dtype, runs[i].world, runs[i].world > 1 ? "s" : "", runs[i].order, runs[i].options,
                       cuda.loss[0], cuda.loss[STEPS - 1], far.loss, 2 * spread.loss, far.norm,
                       2 * spread.norm, far.values, 2 * spread.values);
            CHECK(far.loss <= 2 * spread.loss);
            CHECK(far.norm <= 2 * spread.norm);
            CHECK(far.values <= 2 * spread.values);
        }
        ranks_values_release(&cuda.v);
    }
    ranks_values_release(&cpu.v);
}
TEST(f32)
{
    against_cpu("f32", 1e-3);
}
TEST(bf16)
{
    against_cpu("bf16", 0.05);
}

/* Modules for further tokens, over ranks: the losses and the norm of a step are the cpu's, whatever streams do. */
static bool first_step(const char *device, struct mt_step *got)
{
    struct training t = {0};
    char text[2048];
    mt_err e = {0};
    snprintf(text, sizeof text, MODEL "train.dtype=f32 mesh.ep=2 model.mtp_depth=2 device.type=%s", device);
    if (!CHECK(training_config(&t.cfg, text))) return false;
    mt_status st = mt_session_open(&t.s, &t.cfg, 4, false, &e);
    if (st == MT_OK) st = mt_session_run(&t.s, mt_fill_step, &e);
    if (st == MT_OK) small_batch(&t, 0, 0);
    if (st == MT_OK) st = mt_session_run(&t.s, mt_train_step, &e);
    if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
    if (st == MT_OK) *got = t.s.rank[0].step;
    training_close(&t);
    return st == MT_OK;
}
TEST(further_tokens)
{
    static const char *const orders[] = {"lazy", "eager"};
    struct mt_step cpu, cuda;
    bool ok = first_step("cpu", &cpu);
    for (int i = 0; ok && i < 2; i++) {
        set_order(orders[i]);
        if (!first_step("cuda", &cuda)) break;
        CHECK(fabs(cuda.loss / cpu.loss - 1) <= 1e-5 && fabs(cuda.norm / cpu.norm - 1) <= 1e-5);
        for (int k = 0; k < 2; k++)
            CHECK(cuda.mtp_valid[k] == cpu.mtp_valid[k] && cpu.mtp_valid[k] > 0 &&
                  fabs(cuda.mtp_loss[k] / cpu.mtp_loss[k] - 1) <= 1e-5);
    }
    set_order("lazy");
}

/* Groups, capacity, and all that routers learn besides, over ranks that share experts: as on the cpu, whatever streams do. */
TEST(router)
{
#define ROUTER                                                                                            \
    "train.dtype=f32 mesh.ep=2 model.experts=8 model.n_group=4 model.topk_group=2 moe.capacity_factor=1 " \
    "moe.aux_loss_sequence=0.1 moe.aux_loss_global=0.3 moe.z_loss=0.1 model.qk_norm=false "               \
    "optim.qk_clip=0.1 train.global_batch=8 "
    enum { FEW = STEPS < 3 ? STEPS : 3 };
    static const char *const orders[] = {"lazy", "eager"};
    struct outcome cpu = {.steps = FEW};
    bool ok = run(&cpu, ROUTER "device.type=cpu", 4, 0);
    for (int i = 0; ok && i < 2; i++) {
        struct outcome cuda = {.steps = FEW};
        set_order(orders[i]);
        if (run(&cuda, ROUTER "device.type=cuda", 4, 0)) {
            for (int k = 0; k < FEW; k++)
                CHECK(fabs(cuda.loss[k] / cpu.loss[k] - 1) <= 1e-5 &&
                      fabs(cuda.norm[k] / cpu.norm[k] - 1) <= 1e-5);
            for (int k = 0; k < MT_N_AUX; k++)
                CHECK(cpu.aux[k] > 0 && fabs(cuda.aux[k] / cpu.aux[k] - 1) <= 1e-5);
        }
        ranks_values_release(&cuda.v);
    }
    set_order("lazy");
    ranks_values_release(&cpu.v);
}

/* What a step enqueues is what was recorded on sim, laid out and proved: with every option that moves something. */
TEST(record_equals_sim)
{
    for (int i = 0; i < N_MACHINE_RUNS; i++) {
        struct training t = {0};
        struct mt_recording real = {0}, sim = {0};
        char text[2048];
        mt_err e = {0};
        snprintf(text, sizeof text, MODEL "device.type=cuda train.dtype=%s %s", runs[i].dtype,
                 runs[i].options);
        if (!CHECK(training_config(&t.cfg, text))) return;
        mt_status st = mt_session_open(&t.s, &t.cfg, runs[i].world, false, &e);
        if (st == MT_OK) st = mt_session_run(&t.s, mt_fill_step, &e);
        if (st == MT_OK) {
            small_batch(&t, 0, 0);
            t.s.rank[0].ctx.recording = &real;
            st = mt_session_run(&t.s, mt_train_step, &e);
            t.s.rank[0].ctx.recording = NULL;
        }
        if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
        if (ranks_record(&t, 0, 1, -1, &sim)) {
            CHECK(real.n > 200);
            CHECK_INT(real.n, sim.n);
            CHECK(mt_recording_hash(&real) == mt_recording_hash(&sim));
        }
        mt_recording_release(&real), mt_recording_release(&sim);
        training_close(&t);
    }
}

/* The same bits with either option; returns how many graphs were launched with each. */
unsigned long long cuemu_graph_launches(void) __attribute__((weak)); /* absent on a GPU */
static void same_bits(const struct machine_run *k, const char *const how[2], unsigned long long launched[2])
{
    enum { FEW = STEPS < 3 ? STEPS : 3 };
    struct outcome o[2] = {{.steps = FEW}, {.steps = FEW}};
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        const unsigned long long before = cuemu_graph_launches ? cuemu_graph_launches() : 0;
        struct machine_run with = *k;
        char options[512];
        snprintf(options, sizeof options, "%s %s", k->options, how[i]);
        with.options = options;
        ok &= run_on_cuda(&o[i], &with);
        launched[i] = cuemu_graph_launches ? cuemu_graph_launches() - before : 0;
    }
    if (ok && CHECK_INT(o[0].v.n, o[1].v.n)) {
        CHECK(!memcmp(o[0].loss, o[1].loss, sizeof o[0].loss) &&
              !memcmp(o[0].norm, o[1].norm, sizeof o[0].norm));
        CHECK(!memcmp(o[0].v.at, o[1].v.at, (size_t)o[0].v.n * sizeof *o[0].v.at));
    }
    ranks_values_release(&o[0].v), ranks_values_release(&o[1].v);
}
TEST(host_threads)
{
    unsigned long long launched[2];
    same_bits(&runs[0], (const char *const[]){"device.workers=1", "device.workers=3"}, launched);
}

/* What cannot become a graph is named, and launched one by one. */
static void refused(const char *options)
{
    struct training t = {0};
    struct mt_step step[2] = {{.loss = 0}};
    char why[256] = "";
    mt_err e = {0};
    for (int i = 0; i < 2; i++) {
        if (i) setenv("CUEMU_NO_GRAPHS", "1", 1);
        const bool ok = small_open(&t, options, 1);
        if (ok) small_batch(&t, 0, 0);
        CHECK(ok && mt_session_run(&t.s, mt_train_step, &e) == MT_OK);
        if (ok) step[i] = t.s.rank[0].step;
        CHECK(ok && t.s.device->fell_back(t.s.backend, why, sizeof why) == i);
        training_close(&t);
    }
    unsetenv("CUEMU_NO_GRAPHS");
    CHECK(strstr(why, "graphs: some of them not: making a graph of "));
    CHECK(step[0].loss == step[1].loss && step[0].norm == step[1].norm && step[0].norm > 0);
}
/* Shampoo's step differs from its second on here, and QK-clip's weights by what was seen: with graphs all bits are the same. */
static void changing_steps(void)
{
    static const struct machine_run k = {
        "f32",
        "optim.groups=[{\"match\":\"*\",\"optimizer\":\"shampoo\"}] optim.qk_clip=0.01 model.qk_norm=false "
        "shampoo.frequency=1 shampoo.start=2 ",
        "lazy", 1};
    unsigned long long launched[2];
    same_bits(&k, (const char *const[]){"device.graphs=off", "device.graphs=on"}, launched);
    CHECK(!launched[0] && (launched[1] || !cuemu_graph_launches));
}
TEST(graphs)
{
    changing_steps();
    if (cuemu_graph_launches) refused("device.type=cuda device.graphs=on");
    for (int i = 0; i < 2; i++) {
        unsigned long long launched[2];
        same_bits(&runs[3 * i], (const char *const[]){"device.graphs=off", "device.graphs=on"}, launched);
        CHECK(!launched[0] && (launched[1] || !cuemu_graph_launches));
    }
}

/* Of each operation: it is over after it began, its stream's one before was over by then, and what it waited for too. The sum
 * accounts for the whole step. */
static void check_times(const struct mt_timeline *line)
{
    struct mt_timeline_sum sum;
    struct mt_places places;
    mt_err e = {0};
    int64_t last[MT_N_STREAMS] = {0}, all = 0, wrong = 0, reads = 0;
    CHECK(line->q->n > 200);
    CHECK(mt_places_init(&places, line->q, &e) == MT_OK);
    for (int64_t i = 0; i < line->q->n; i++) {
        const struct mt_rec *r = &line->q->rec[i];
        const int64_t on = r->op == MT_OP_wait ? mt_places_find(&places, r->ev) : -1,
                      ns = 1000; /* events are f32 */
        wrong += line->begin[i] < 0 || line->end[i] + ns < line->begin[i] || line->end[i] > line->length + ns;
        wrong += line->begin[i] + ns < last[r->stream];
        wrong += on >= 0 && line->end[i] + ns < line->end[on];
        last[r->stream] = line->end[i];
    }
    for (int64_t i = 0; i < line->n_host; i++) reads += line->host[i].left == MT_LEFT_READ;
    CHECK_INT(wrong, 0);
    CHECK(reads > 0 && line->host[line->n_host - 1].left == MT_LEFT_END);
    CHECK(mt_timeline_summarize(line, &sum, &e) == MT_OK);
    for (int c = 0; c < MT_N_CAUSES; c++) all += sum.spent[c];
    CHECK(all == sum.length && sum.spent[MT_CAUSE_COMPUTE] > 0);
    mt_places_release(&places);
}
TEST(traced)
{
    struct training t = {0};
    struct mt_tracing tracing;
    mt_err e = {0};
    if (!small_open(&t, "device.type=cuda mesh.ep=2 offload.moments=host train.trace.steps=[1]", 2)) return;
#if __has_include(<cudnn_graph.h>)
    if (cuemu_set_order)
        CHECK(strstr(t.s.chosen, "attention_fwd: cuDNN") && strstr(t.s.chosen, "attention_bwd: "));
#endif
    CHECK(mt_tracing_open(&tracing, &t.s, &e) == MT_OK);
    for (int again = 0; again < 2; again++) {
        small_batch(&t, 0, 0);
        mt_tracing_begin(&tracing, &t.s);
        CHECK(mt_session_run(&t.s, mt_train_step, &e) == MT_OK);
        mt_tracing_end(&tracing, &t.s);
        for (int r = 0; r < 2; r++) {
            const struct mt_timeline line = mt_tracing_timeline(&tracing, &t.s, r);
            check_times(&line);
        }
    }
    mt_tracing_close(&tracing);
    training_close(&t);
}

/* cuDNN is given documents: layers with a window have our own kernels, the others of the same shape are tried. */
TEST(windows)
{
    struct training t = {0};
    if (small_open(&t, "device.type=cuda model.window=6 model.window_full_every=2", 1)) {
#if __has_include(<cudnn_graph.h>)
        if (cuemu_set_order && !CHECK(strstr(t.s.chosen, "attention_fwd: own (a window)") &&
                                      strstr(t.s.chosen, "attention_bwd: own (a window)") &&
                                      strstr(t.s.chosen, "attention_fwd: cuDNN")))
            printf("  %s\n", t.s.chosen);
#endif
    }
    training_close(&t);
}

TEST(nothing_to_report)
{
#ifdef __SANITIZE_THREAD__
    const int first = 3; /* it is slow: four ranks, with most streams */
#else
    const int first = 0;
#endif
    for (int i = first; i < N_MACHINE_RUNS; i += 3) {
        struct outcome cuda = {0};
        struct machine_run k = runs[i];
        char options[400];
        snprintf(options, sizeof options,
                 "%s moe.aux_loss_sequence=0.1 moe.aux_loss_global=0.3 moe.z_loss=0.1 moe.capacity_factor=1",
                 k.options);
        k.options = options;
        CHECK(run_on_cuda(&cuda, &k) && isfinite(cuda.loss[0]) && cuda.loss[0] < 6);
        ranks_values_release(&cuda.v);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "bits")) {
        RUN(host_threads);
        RUN(graphs);
        return DONE();
    }
    if (SANITIZED) {
        RUN(nothing_to_report);
        return DONE();
    }
    RUN(f32);
    RUN(bf16);
    RUN(further_tokens);
    RUN(router);
    RUN(host_threads);
    RUN(graphs);
    RUN(record_equals_sim);
    RUN(traced);
    RUN(windows);
    return DONE();
}
