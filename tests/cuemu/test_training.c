/* test: variants=cuemu */
/* The cuda device under the emulator trains a small relative of the quickstart model as the cpu device does: losses within a
 * bound that is fixed before it runs, twice the spread of the cpu's own runs over permuted orders of their sums (sequences in
 * another order, and instruction sets that add up in another order). Memory of the emulated device is looked at in place. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "ckpt/file.h"
#include "small.h"
#include "tests/train/ranks.h"
#include "train/run.h"

/* tests/cuemu/src: how the emulator picks among the orders it may run things in. */
void cuemu_set_order(const char *order, unsigned long long seed);

/* The sanitizers' builds look for races and bad accesses, in one step; the numbers are those of the plain build. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STEPS = 1, RUNS = 1, SANITIZED = 1 };
#else
enum { STEPS = 20, RUNS = 6, SANITIZED = 0 };
#endif
enum { SEQUENCES = 4 };

/* ---- a step's sequences, in any order ---- */
/* Two documents, each counting up by its own step from a random token: there is something to learn. */
static void sequence(int64_t step, int64_t q, const struct mt_shape *d, int32_t at, int32_t *tok,
                     int32_t *lab, int32_t *beg, int32_t *pos)
{
    int64_t cut = 1 + ranks_hash((uint64_t)(step * 100 + q)) % (uint64_t)(d->S - 1);
    for (int64_t i = 0; i < d->S; i++) {
        int64_t first = i < cut ? 0 : cut;
        int64_t from = ranks_hash((uint64_t)((step * 100 + q) * 2 + (first > 0) + 7)), by = 1 + from % 3;
        tok[i] = (int32_t)((from + (i - first) * by) % d->V);
        lab[i] = i + 1 == cut || i + 1 == d->S ? -1 : (int32_t)((tok[i] + by) % d->V);
        beg[i] = at + (int32_t)first;
        pos[i] = (int32_t)(i - first);
    }
}
static void batch(const struct training *t, int64_t step, int shuffled)
{
    for (int r = 0; r < t->s.world; r++) {
        const struct mt_model *m = &t->s.rank[r].model;
        const struct mt_ctx *c = &t->s.rank[r].ctx;
        int32_t *tok = mt_address(c, m->host.tokens), *lab = mt_address(c, m->host.labels),
                *beg = mt_address(c, m->host.begin), *pos = mt_address(c, m->host.pos);
        int64_t S = m->shape.S;
        for (int64_t i = 0; i < m->opt.micro_batches; i++) {
            int64_t q = (i * t->s.world + r) * (1 + 2 * shuffled) % SEQUENCES;
            sequence(step, q, &m->shape, 0, tok + i * S, lab + i * S, beg + i * S, pos + i * S);
        }
        mt_mtp_batch(c, m);
    }
}

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
        batch(&t, i, shuffled);
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
    {"bf16", "", "eager", 1},
    {"bf16", "mesh.ep=2 offload.moments=host recompute.policy=selective ", "lazy", 4},
};
enum { N_MACHINE_RUNS = sizeof runs / sizeof *runs };
static bool run_on_cuda(struct outcome *o, const struct machine_run *k)
{
    char options[512];
    snprintf(options, sizeof options, "train.dtype=%s device.type=cuda %s", k->dtype, k->options);
    cuemu_set_order(k->order, 1);
    bool ok = run(o, options, k->world, 0);
    cuemu_set_order("lazy", 1);
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
    if (st == MT_OK) batch(&t, 0, 0);
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
        cuemu_set_order(orders[i], 1);
        if (!first_step("cuda", &cuda)) break;
        CHECK(fabs(cuda.loss / cpu.loss - 1) <= 1e-5 && fabs(cuda.norm / cpu.norm - 1) <= 1e-5);
        for (int k = 0; k < 2; k++)
            CHECK(cuda.mtp_valid[k] == cpu.mtp_valid[k] && cpu.mtp_valid[k] > 0 &&
                  fabs(cuda.mtp_loss[k] / cpu.mtp_loss[k] - 1) <= 1e-5);
    }
    cuemu_set_order("lazy", 1);
}

/* Groups, capacity, and all that routers learn besides, over ranks that share experts: as on the cpu, whatever streams do. */
TEST(router)
{
#define ROUTER                                                                                            \
    "train.dtype=f32 mesh.ep=2 model.experts=8 model.n_group=4 model.topk_group=2 moe.capacity_factor=1 " \
    "moe.aux_loss_sequence=0.1 moe.aux_loss_global=0.3 moe.z_loss=0.1 train.global_batch=8 "
    enum { FEW = STEPS < 3 ? STEPS : 3 };
    static const char *const orders[] = {"lazy", "eager"};
    struct outcome cpu = {.steps = FEW};
    bool ok = run(&cpu, ROUTER "device.type=cpu", 4, 0);
    for (int i = 0; ok && i < 2; i++) {
        struct outcome cuda = {.steps = FEW};
        cuemu_set_order(orders[i], 1);
        if (run(&cuda, ROUTER "device.type=cuda", 4, 0)) {
            for (int k = 0; k < FEW; k++)
                CHECK(fabs(cuda.loss[k] / cpu.loss[k] - 1) <= 1e-5 &&
                      fabs(cuda.norm[k] / cpu.norm[k] - 1) <= 1e-5);
            for (int k = 0; k < MT_N_AUX; k++)
                CHECK(cpu.aux[k] > 0 && fabs(cuda.aux[k] / cpu.aux[k] - 1) <= 1e-5);
        }
        ranks_values_release(&cuda.v);
    }
    cuemu_set_order("lazy", 1);
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
            batch(&t, 0, 0);
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

/* A checkpoint of the cuda device is the cpu device's too: saved there, loaded here, and back. */
TEST(checkpoint)
{
    struct training from = {0}, to = {0};
    struct ranks_values want = {0}, got = {0};
    char folder[] = "/tmp/moetitan-XXXXXX", path[MT_CKPT_PATH];
    mt_err e = {0};
    if (!CHECK(mkdtemp(folder) != NULL)) return;
    for (int i = 0; i < 2; i++) {
        struct training *t = i ? &to : &from;
        if (!CHECK(training_config(&t->cfg, i ? MODEL "device.type=cpu"
                                              : MODEL "device.type=cuda offload.moments=host")))
            return;
        mt_status st = mt_session_open(&t->s, &t->cfg, 1, false, &e);
        if (st == MT_OK) st = mt_session_run(&t->s, mt_fill_step, &e);
        if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
    }
    batch(&from, 0, 0);
    CHECK(mt_session_run(&from.s, mt_train_step, &e) == MT_OK);
    struct mt_ckpt_items a, b;
    struct mt_ckpt_meta meta = {.step = 1};
    struct mt_ckpt_loaded back = {0};
    const struct mt_job job = mt_job_alone(1);
    CHECK(mt_session_items(&from.s, &a, &e) == MT_OK);
    CHECK(mt_session_items(&to.s, &b, &e) == MT_OK);
    CHECK(mt_ckpt_save(folder, &a, &meta, &from.cfg, &e) == MT_OK);
    mt_ckpt_folder(folder, 1, path);
    if (!CHECK(mt_ckpt_load(path, &b, &job, false, &back, &e) == MT_OK)) printf("  %s\n", e.msg);
    CHECK_INT(back.meta.step, 1);
    if (ranks_values_take(&want, &from) && ranks_values_take(&got, &to) && CHECK_INT(got.n, want.n))
        CHECK(!memcmp(got.at, want.at, (size_t)want.n * 4));
    CHECK(mt_session_run(&from.s, mt_fill_step, &e) == MT_OK);
    CHECK(mt_ckpt_load(path, &a, &job, false, &back, &e) == MT_OK);
    ranks_values_release(&got);
    if (ranks_values_take(&got, &from)) CHECK(!memcmp(got.at, want.at, (size_t)want.n * 4));
    CHECK(mt_remove_folder(path, NULL, &e) == MT_OK);
    snprintf(path, sizeof path, "%s/ckpt", folder);
    CHECK(!rmdir(path) && !rmdir(folder));
    ranks_values_release(&want), ranks_values_release(&got);
    mt_ckpt_items_close(&a), mt_ckpt_items_close(&b);
    training_close(&from), training_close(&to);
}

/* The store takes nothing before the update begins. */
static atomic_bool held;
ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    while (held) usleep(1000);
    return syscall(SYS_pwrite64, fd, p, n, at);
}
struct update {
    struct mt_touching gate;
    int held; /* when it began */
};
static void release(void *arg, int what)
{
    struct update *u = arg;
    u->held += held;
    held = false;
    u->gate.before(u->gate.arg, what);
}

/* A step under way while the one before it is saved: the files hold what the save began with. */
static void save_and_step(struct training *t, struct mt_run *r, struct ranks_values *want)
{
    mt_err e = {0};
    batch(t, 0, 0);
    CHECK(mt_session_run(&t->s, mt_train_step, &e) == MT_OK && ranks_values_take(want, t));
    r->at.step = 1;
    held = true;
    mt_run_save(r);
    CHECK(mt_saver_under_way(r->saver)); /* nobody waited for it */
    struct mt_touching *touch = &t->s.rank[0].step.rank.touch;
    struct update u = {.gate = *touch};
    *touch = (struct mt_touching){release, &u};
    batch(t, 1, 0);
    t->s.rank[0].step.step = 1;
    CHECK(mt_session_run(&t->s, mt_train_step, &e) == MT_OK);
    mt_run_save_wait(r);
    CHECK_INT(r->saved, 1);
    CHECK_INT(u.held, 1); /* forward and backward did not wait for the store, nor it for them */
}

TEST(saved_while_it_trains)
{
    struct training t = {0};
    struct ranks_values want = {0}, got = {0};
    char folder[] = "/tmp/moetitan-XXXXXX", path[MT_CKPT_PATH], command[64];
    const struct mt_job job = mt_job_alone(1);
    struct mt_run r = {
        .cfg = &t.cfg, .job = &job, .world = 1, .saved = -1, .first_saved = -1, .metrics.fd = -1, .lock = -1};
    struct mt_ckpt_loaded back;
    mt_err e = {0};
    if (!CHECK(mkdtemp(folder) != NULL)) return;
    if (!CHECK(training_config(&t.cfg, MODEL "device.type=cuda offload.moments=host ckpt.writers=1 "
                                             "ckpt.buffer=64KiB")))
        return;
    snprintf(t.cfg.run_dir, sizeof t.cfg.run_dir, "%s", folder);
    CHECK(mt_session_open(&t.s, &t.cfg, 1, false, &e) == MT_OK);
    CHECK(mt_session_run(&t.s, mt_fill_step, &e) == MT_OK);
    r.s = t.s; /* borrowed: the test closes its own */
    CHECK(mt_session_items(&r.s, &r.items, &e) == MT_OK);
    if (!CHECK(mt_run_open_saves(&r, &e) == MT_OK)) printf("  %s\n", e.msg);
    save_and_step(&t, &r, &want);
    if (ranks_values_take(&got, &t) && CHECK_INT(got.n, want.n)) /* the step did something */
        CHECK(memcmp(got.at, want.at, (size_t)want.n * 4));
    ranks_values_release(&got);
    mt_ckpt_folder(folder, 1, path);
    if (!CHECK(mt_ckpt_load(path, &r.items, &job, false, &back, &e) == MT_OK)) printf("  %s\n", e.msg);
    if (ranks_values_take(&got, &t) && CHECK_INT(got.n, want.n))
        CHECK(!memcmp(got.at, want.at, (size_t)want.n * 4));
    mt_saver_close(r.saver);
    mt_ckpt_items_close(&r.items);
    free(r.gates), free(r.when);
    ranks_values_release(&want), ranks_values_release(&got);
    training_close(&t);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(!system(command));
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

int main(void)
{
    if (SANITIZED) {
        RUN(nothing_to_report);
        return DONE();
    }
    RUN(f32);
    RUN(bf16);
    RUN(further_tokens);
    RUN(router);
    RUN(record_equals_sim);
    RUN(checkpoint);
    RUN(saved_while_it_trains);
    return DONE();
}
