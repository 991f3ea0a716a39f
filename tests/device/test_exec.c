/* test: timeout=60 variants=release,asan,aarch64,tsan,tsan-plain */
/* The executor: order, bits, collectives, queues, host code, and that a run allocates nothing. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocations.h"
#include "check.h"
#include "device/cpu/exec_watch.h"
#include "device/toy.h"

static uint64_t run_bits(struct toy *t, struct mt_exec_options o, int steps)
{
    struct toy_job j;
    toy_job_open(&j, t, o);
    for (int i = 0; i < steps; i++) CHECK_INT(toy_job_step(&j), MT_OK);
    uint64_t bits = toy_job_bits(&j);
    toy_job_close(&j);
    return bits;
}
static void toy_planned(struct toy *t, int world)
{
    struct mt_plan_info info = {.want_bound = true};
    mt_err e = {0};
    toy_init(t, world);
    struct mt_recording q = toy_record(t, 2, -1);
    CHECK_INT(mt_plan(&t->g, &q, &info, &e), MT_OK);
    mt_recording_release(&q);
}

/* What the toy computes for one rank, directly: no device, no streams. */
static void reference_step(float w[TOY_LAYERS][TOY_D], float acc[TOY_LAYERS][TOY_D], const float *in)
{
    static float x[TOY_LAYERS + 1][TOY_N][TOY_D], dx[TOY_N][TOY_D], down[TOY_N][TOY_D];
    static double rstd[TOY_LAYERS][TOY_N], grad[TOY_LAYERS][TOY_D];
    memcpy(x[0], in, sizeof x[0]);
    memset(grad, 0, sizeof grad);
    for (int l = 0; l < TOY_LAYERS; l++)
        for (int i = 0; i < TOY_N; i++) {
            double sq = 0;
            for (int k = 0; k < TOY_D; k++) sq += (double)x[l][i][k] * (double)x[l][i][k];
            rstd[l][i] = 1 / sqrt(sq / TOY_D + 1e-5);
            for (int k = 0; k < TOY_D; k++)
                x[l + 1][i][k] = (float)((double)x[l][i][k] * rstd[l][i] * (double)w[l][k]);
            for (int k = 0; k < TOY_D; k++) acc[l][k] += (float)(1 + l % 3) * x[l + 1][i][k];
        }
    memcpy(down, x[TOY_LAYERS], sizeof down);
    for (int l = TOY_LAYERS - 1; l >= 0; l--) {
        for (int i = 0; i < TOY_N; i++) {
            double dot = 0, r = rstd[l][i];
            for (int k = 0; k < TOY_D; k++) dot += (double)down[i][k] * (double)w[l][k] * (double)x[l][i][k];
            for (int k = 0; k < TOY_D; k++) {
                dx[i][k] = (float)(r * ((double)down[i][k] * (double)w[l][k] -
                                        (double)x[l][i][k] * r * r * dot / TOY_D));
                grad[l][k] += (double)down[i][k] * (double)x[l][i][k] * r;
            }
        }
        memcpy(down, dx, sizeof down);
    }
    for (int l = 0; l < TOY_LAYERS; l++)
        for (int k = 0; k < TOY_D; k++) w[l][k] += (float)grad[l][k];
}
TEST(results_are_right)
{
    struct toy t;
    struct toy_job j;
    toy_planned(&t, 1);
    toy_job_open(&j, &t, (struct mt_exec_options){.workers = 2, .poison = true});
    float w[TOY_LAYERS][TOY_D], acc[TOY_LAYERS][TOY_D] = {{0}};
    for (int l = 0; l < TOY_LAYERS; l++) memcpy(w[l], mt_address(&j.ctx[0], t.l[l].w), sizeof w[l]);
    for (int step = 0; step < 2; step++) {
        reference_step(w, acc, mt_address(&j.ctx[0], t.in));
        CHECK_INT(toy_job_step(&j), MT_OK);
    }
    for (int l = 0; l < TOY_LAYERS; l++) {
        CHECK_REL((const float *)mt_address(&j.ctx[0], t.l[l].w), w[l], TOY_D, 1e-4);
        CHECK_REL((const float *)mt_address(&j.ctx[0], t.l[l].acc), acc[l], TOY_D, 1e-4);
    }
    toy_job_close(&j);
    toy_release(&t);
}

TEST(bits_depend_on_nothing_but_the_program)
{
    static const int worlds[] = {1, 4};
    for (int k = 0; k < 2; k++) {
        struct toy t, unshared;
        toy_planned(&t, worlds[k]);
        toy_init(&unshared, worlds[k]);
        uint64_t want = run_bits(&t, (struct mt_exec_options){.workers = 1}, 3);
        CHECK(want != run_bits(&t, (struct mt_exec_options){.workers = 1}, 2));
        CHECK(run_bits(&unshared, (struct mt_exec_options){.workers = 2}, 3) == want);
        CHECK(run_bits(&t, (struct mt_exec_options){.workers = 2, .poison = true}, 3) == want);
        for (int workers = 1; workers <= (SANITIZED ? 2 : 4); workers *= 2) {
            CHECK(run_bits(&t, (struct mt_exec_options){.workers = workers, .ring = 8}, 3) == want);
            for (int seed = 0; seed <= 24; seed += SANITIZED ? 5 : 1)
                CHECK(run_bits(
                          &t,
                          (struct mt_exec_options){.workers = workers, .order_seed = seed, .pin = seed % 2},
                          3) == want);
        }
        toy_release(&t);
        toy_release(&unshared);
    }
}

TEST(many_ranks)
{
    struct toy t;
    toy_planned(&t, SANITIZED ? 16 : 64);
    uint64_t want = run_bits(&t, (struct mt_exec_options){.workers = 2}, 2);
    CHECK(run_bits(&t, (struct mt_exec_options){.workers = 1, .ring = 16, .order_seed = 11}, 2) == want);
    toy_release(&t);
}

/* ---- a bench of a few buffers on one or two ranks ---- */
struct bench {
    struct mt_ledger g;
    struct mt_ctx ctx[2], *ctxs[2];
    void *args[2];
    struct mt_comm comm;
    struct mt_cpu_dev dev;
    struct mt_exec *x;
    mt_view a, b, whole, piece, big;
    atomic_int flag;
    float read[4];
    useconds_t nap; /* before rank 1 is let into the gather */
};
static void bench_open(struct bench *t, int n, struct mt_exec_options o)
{
    mt_err e = {0};
    memset(t, 0, sizeof *t);
    mt_ledger_init(&t->g, 64);
    t->a = mt_tensor_add(&t->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 4, 0, 0, "a");
    t->b = mt_tensor_add(&t->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 4, 0, 0, "b");
    t->whole = mt_tensor_add(&t->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 8, 0, 0, "whole");
    t->piece = mt_tensor_add(&t->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 4, 0, 0, "piece");
    t->big = mt_tensor_add(&t->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 4 << 20, 0, 0, "big");
    mt_cpu_dev_init(&t->dev, MT_ISA_SCALAR);
    for (int r = 0; r < n; r++) {
        t->ctxs[r] = &t->ctx[r];
        t->args[r] = t;
        mt_ctx_init(&t->ctx[r], r, n, &mt_device_cpu, &t->g);
        t->ctx[r].arena[MT_DEVICE_ARENA] = calloc(1, (size_t)t->g.size[MT_DEVICE_ARENA]);
    }
    if (mt_comm_open_threads(&t->comm, t->ctxs, n, 1, NULL, NULL, &e) ||
        mt_exec_open(&t->x, o, t->ctxs, n, &t->dev, &e)) {
        printf("%s\n", e.msg);
        exit(1);
    }
}
static void bench_close(struct bench *t)
{
    mt_exec_close(t->x);
    mt_comm_close(&t->comm);
    for (int r = 0; r < 2; r++) free(t->ctx[r].arena[MT_DEVICE_ARENA]);
    mt_ledger_release(&t->g);
}
static float first_of(const struct mt_ctx *c, mt_view v)
{
    return *(const float *)mt_address(c, v);
}

/* Rank 0: a gather that rank 1 holds open; behind its event, a is filled; on another stream, b. When b can be
 * read, a must not have run. Then rank 1 joins, and a runs. */
static void host_behind_an_event(struct mt_ctx *c, void *arg)
{
    struct bench *t = arg;
    float got[4];
    struct mt_stream *gather = &c->stream[MT_GATHER], *compute = &c->stream[MT_COMPUTE],
                     *d2h = &c->stream[MT_D2H];
    if (c->rank == 1) {
        while (!atomic_load(&t->flag)) mt_host_read(d2h, MT_READ_STATE, 0, t->b, got);
        mt_fill_f32(gather, t->piece, 20);
        mt_gather(gather, t->whole, t->piece, MT_GROUP_WORLD, 8, 4);
        return;
    }
    mt_fill_f32(gather, t->piece, 10);
    mt_gather(gather, t->whole, t->piece, MT_GROUP_WORLD, 8, 4);
    mt_stream_wait(compute, mt_event_record(gather));
    mt_fill_f32(compute, t->a, 7);
    mt_fill_f32(d2h, t->b, 9);
    mt_host_read(d2h, MT_READ_STATE, 0, t->b, t->read);
    CHECK(t->read[0] == 9 && t->read[3] == 9);
    CHECK(first_of(c, t->a) == 0 && first_of(c, t->whole) == 0);
    usleep(t->nap);
    atomic_store(&t->flag, 1);
    mt_host_read(compute, MT_READ_STATE, 1, t->a, got);
    CHECK(got[0] == 7);
}
TEST(an_op_behind_an_event_waits_and_one_on_another_stream_does_not)
{
    for (int seed = 11; seed < 17; seed++) {
        struct bench t;
        bench_open(&t, 2, (struct mt_exec_options){.workers = 2, .order_seed = seed});
        CHECK_INT(mt_exec_run(t.x, host_behind_an_event, t.args), MT_OK);
        for (int r = 0; r < 2; r++) {
            const float *w = mt_address(&t.ctx[r], t.whole);
            CHECK(w[0] == 10 && w[3] == 10 && w[4] == 20 && w[7] == 20);
        }
        bench_close(&t);
    }
}

/* Rank 0's compute stream is behind the event all through the nap; rank 1's has nothing to do, which is no wait. */
static void host_without_waits(struct mt_ctx *c, void *arg)
{
    struct bench *t = arg;
    mt_fill_f32(&c->stream[MT_GATHER], t->b, 9);
    for (int i = 0; i < 20; i++) mt_fill_f32(&c->stream[MT_COMPUTE], t->piece, 7);
    usleep(t->nap);
}
TEST(compute_streams_that_stand_still_are_timed)
{
    struct bench t;
    bench_open(&t, 2, (struct mt_exec_options){.workers = 2});
    t.nap = 30000;
    CHECK_INT(mt_exec_run(t.x, host_without_waits, t.args), MT_OK);
    CHECK_INT(mt_exec_stood(t.x), 0);
    CHECK_INT(mt_exec_run(t.x, host_behind_an_event, t.args), MT_OK);
    int64_t stood = mt_exec_stood(t.x);
    CHECK(stood >= 1000 * (int64_t)t.nap);
    CHECK_INT(mt_exec_run(t.x, host_without_waits, t.args), MT_OK);
    CHECK_INT(mt_exec_stood(t.x), stood);
    bench_close(&t);
}

/* The same where the event never comes: the run ends and says why. */
static void host_alone_in_a_gather(struct mt_ctx *c, void *arg)
{
    struct bench *t = arg;
    if (c->rank == 1) return;
    mt_gather(&c->stream[MT_GATHER], t->whole, t->piece, MT_GROUP_WORLD, 8, 4);
    mt_stream_wait(&c->stream[MT_COMPUTE], mt_event_record(&c->stream[MT_GATHER]));
    mt_fill_f32(&c->stream[MT_COMPUTE], t->a, 7);
    mt_fill_f32(&c->stream[MT_D2H], t->b, 9);
}
static void host_waits_for_the_future(struct mt_ctx *c, void *arg)
{
    struct bench *t = arg;
    mt_fill_f32(&c->stream[MT_D2H], t->b, 9);
    mt_stream_wait(&c->stream[MT_COMPUTE], (mt_event){MT_D2H, 5});
    mt_fill_f32(&c->stream[MT_COMPUTE], t->a, 7);
}
TEST(a_run_that_cannot_go_on_says_why)
{
    for (int workers = 1; workers <= 2; workers++) {
        struct bench t;
        bench_open(&t, 2, (struct mt_exec_options){.workers = workers});
        CHECK_INT(mt_exec_run(t.x, host_alone_in_a_gather, t.args), MT_HANG);
        CHECK(strstr(t.ctx[0].err.msg, "gather") && strstr(t.ctx[0].err.msg, "1 of its 2 members"));
        CHECK(first_of(&t.ctx[0], t.a) == 0 && first_of(&t.ctx[0], t.b) == 9);
        bench_close(&t);
        bench_open(&t, 1, (struct mt_exec_options){.workers = workers});
        CHECK_INT(mt_exec_run(t.x, host_waits_for_the_future, t.args), MT_HANG);
        CHECK(strstr(t.ctx[0].err.msg, "operation 5 of stream 3") &&
              strstr(t.ctx[0].err.msg, "never enqueued"));
        CHECK(first_of(&t.ctx[0], t.a) == 0 && first_of(&t.ctx[0], t.b) == 9);
        bench_close(&t);
    }
}

/* Positions begin anew while the streams are busy with nothing: events of the new count are the new ones. */
static void host_restarts(struct mt_ctx *c, void *arg)
{
    struct bench *t = arg;
    struct mt_stream *s = &c->stream[MT_COMPUTE], *d = &c->stream[MT_D2H];
    for (int i = 1; i <= 50; i++) {
        float got[4];
        mt_fill_f32(s, t->a, i);
        for (int k = 0; k < i % 4; k++) mt_fill_f32(s, t->piece, k);
        mt_stream_wait(d, mt_event_record(s));
        mt_weight_cast(d, t->b, t->a);
        mt_host_read(d, MT_READ_STATE, i, t->b, got);
        if (!CHECK(got[0] == (float)i)) return;
        mt_streams_restart(c);
    }
}
TEST(streams_restart_inside_a_run)
{
    struct bench t;
    bench_open(&t, 1, (struct mt_exec_options){.workers = 2, .ring = 8, .order_seed = 12});
    for (int i = 0; i < 3; i++) CHECK_INT(mt_exec_run(t.x, host_restarts, t.args), MT_OK);
    bench_close(&t);
}

/* Large operations are cut and the pieces are the whole. */
static void host_fills_big(struct mt_ctx *c, void *arg)
{
    struct bench *t = arg;
    mt_fill_f32(&c->stream[MT_COMPUTE], t->big, 3);
}
TEST(parts_make_the_whole)
{
    struct bench t;
    bench_open(&t, 1, (struct mt_exec_options){.workers = 4});
    CHECK_INT(mt_exec_run(t.x, host_fills_big, t.args), MT_OK);
    const float *x = mt_address(&t.ctx[0], t.big);
    int64_t wrong = 0;
    for (int64_t i = 0; i < 4 << 20; i++) wrong += x[i] != 3;
    CHECK_INT(wrong, 0);
    bench_close(&t);
}

/* Uneven pieces: 5 units of 4 bytes over 2 ranks are 2 and 3. */
static void host_exchanges_unevenly(struct mt_ctx *c, void *arg)
{
    struct bench *t = arg;
    struct mt_stream *s = &c->stream[MT_REDUCE];
    float *w = mt_address(c, t->whole), *p = mt_address(c, t->piece);
    for (int i = 0; i < 8; i++) w[i] = (float)(100 * c->rank + i);
    for (int i = 0; i < 4; i++) p[i] = (float)(1000 * (c->rank + 1) + i);
    mt_view staging = mt_view_of(t->big.row, MT_F32, 0, 6, 0, 0),
            all = mt_view_of(t->big.row, MT_F32, 64, 5, 0, 0);
    mt_scatter(s, staging, mt_view_part(t->whole, 0, 5), MT_GROUP_WORLD, 5, 4);
    mt_gather(s, all, t->piece, MT_GROUP_WORLD, 5, 4);
}
TEST(uneven_pieces)
{
    struct bench t;
    bench_open(&t, 2, (struct mt_exec_options){.workers = 2});
    CHECK_INT(mt_exec_run(t.x, host_exchanges_unevenly, t.args), MT_OK);
    for (int r = 0; r < 2; r++) {
        const float *x = mt_address(&t.ctx[r], t.big);
        for (int p = 0; p < 2; p++)
            for (int i = 0; i < 2 + r; i++) CHECK(x[p * 3 + i] == (float)(100 * p + (r ? 2 : 0) + i));
        static const float want[] = {1000, 1001, 2000, 2001, 2002};
        CHECK(!memcmp(x + 16, want, sizeof want));
    }
    bench_close(&t);
}

static void host_fails(struct mt_ctx *c, void *arg)
{
    struct bench *t = arg;
    mt_fill_f32(&c->stream[MT_COMPUTE], t->a, 1);
    if (c->rank == 1) (void)mt_err_set(&c->err, MT_DATA, "no tokens");
}
TEST(the_first_error_of_a_rank_is_the_runs)
{
    struct bench t;
    bench_open(&t, 2, (struct mt_exec_options){.workers = 1});
    CHECK_INT(mt_exec_run(t.x, host_fails, t.args), MT_DATA);
    CHECK(first_of(&t.ctx[0], t.a) == 1 && first_of(&t.ctx[1], t.a) == 1);
    bench_close(&t);
}

/* Host code has a guard page under its stack. */
static int deeper(int depth)
{
    volatile char page[4096];
    page[0] = (char)depth;
    return depth > 1000 ? 0 : deeper(depth + 1) + page[0];
}
static void host_goes_deep(struct mt_ctx *c, void *arg)
{
    struct bench *t = arg;
    (void)c;
    atomic_store(&t->flag, deeper(0));
}
TEST(a_stack_that_overflows_faults)
{
    if (SANITIZED) SKIP("a sanitizer owns the stack");
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        static struct bench t;
        bench_open(&t, 1, (struct mt_exec_options){.workers = 1});
        _exit(mt_exec_run(t.x, host_goes_deep, t.args) == MT_OK ? 0 : 1);
    }
    int st = 0;
    CHECK(waitpid(pid, &st, 0) == pid && WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV);
}

TEST(options_out_of_range)
{
    struct mt_exec *x = NULL;
    mt_err e = {0};
    struct mt_cpu_dev dev = {0};
    CHECK_INT(mt_exec_open(&x, (struct mt_exec_options){.workers = -1}, NULL, 0, &dev, &e), MT_CONFIG);
    e = (mt_err){0};
    CHECK_INT(mt_exec_open(&x, (struct mt_exec_options){.ring = 100}, NULL, 0, &dev, &e), MT_CONFIG);
    CHECK(strstr(e.msg, "power of two"));
    CHECK(!x);
}

/* A host read answered from a tape does not wait: with the true counts, nothing else depends on it. */
TEST(reads_from_a_tape_give_the_same_bits)
{
    struct toy t;
    float tape[TOY_LAYERS][4];
    toy_planned(&t, 4);
    uint64_t want = run_bits(&t, (struct mt_exec_options){.workers = 1}, 2);
    for (int l = 0; l < TOY_LAYERS; l++)
        for (int i = 0; i < 4; i++) tape[l][i] = (float)(1 + l % 3);
    for (int seed = 0; seed <= 24; seed += SANITIZED ? 6 : 1) {
        struct toy_job j;
        toy_job_open(&j, &t, (struct mt_exec_options){.workers = 2, .order_seed = seed});
        for (int r = 0; r < 4; r++) j.ctx[r].tape[MT_READ_COUNTS] = (const char *)tape;
        for (int step = 0; step < 2; step++) CHECK_INT(toy_job_step(&j), MT_OK);
        CHECK(toy_job_bits(&j) == want);
        toy_job_close(&j);
    }
    toy_release(&t);
}

/* The run of a step in which one wait is left out and counts come from a tape; 0 if its bits are `want`. */
static bool missing_wait_shows(struct toy *t, int64_t wait, int seed, uint64_t want)
{
    struct toy_job j;
    float tape[TOY_LAYERS][4];
    for (int i = 0; i < TOY_LAYERS * 4; i++) tape[i / 4][i % 4] = (float)(1 + i / 4 % 3);
    toy_job_open(&j, t, (struct mt_exec_options){.workers = 1, .order_seed = seed});
    for (int r = 0; r < t->world; r++) {
        j.ctx[r].tape[MT_READ_COUNTS] = (const char *)tape;
        j.ctx[r].skip_wait = wait;
    }
    for (int step = 0; step < 2; step++) CHECK_INT(toy_job_step(&j), MT_OK);
    bool shows = toy_job_bits(&j) != want;
    toy_job_close(&j);
    return shows;
}
/* ThreadSanitizer builds: the same in a process of its own, whose exit code says whether a race was
 * reported. */
static bool missing_wait_reported(int64_t wait)
{
    char self[512] = {0}, cmd[1024];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return false;
    snprintf(
        cmd, sizeof cmd,
        "TSAN_OPTIONS='exitcode=66 halt_on_error=1 atexit_sleep_ms=0 log_path=/dev/null' '%s' missing %lld",
        self, (long long)wait);
    int st = system(cmd);
    CHECK(WIFEXITED(st) && (WEXITSTATUS(st) == 0 || WEXITSTATUS(st) == 66));
    return WIFEXITED(st) && WEXITSTATUS(st) == 66;
}
static int missing_main(const char *wait)
{
    struct toy t;
    toy_planned(&t, 2);
    (void)missing_wait_shows(&t, atoll(wait), 0, 0);
    toy_release(&t);
    return 0;
}

/* The call of mt_stream_wait, from `from` on, that leaves a record: waits for nothing leave none. */
static int64_t next_wait(struct toy *t, int64_t n_all, int64_t from)
{
    for (;; from++) {
        struct mt_recording less = toy_record(t, 0, from);
        int64_t n = less.n;
        mt_recording_release(&less);
        if (n < n_all) return from;
    }
}

/* Every wait left out in turn. In adversarial orders: a wrong result is always one the race check has named,
 * and most of what it names can be made to go wrong. Under ThreadSanitizer: it reports exactly what the check
 * names. */
TEST(missing_waits_that_show_are_races)
{
    if (SANITIZED && !MT_WATCH) SKIP("the sanitizer would report the races that are made here, or miss them");
    struct toy t;
    toy_planned(&t, MT_WATCH ? 2 : 4);
    uint64_t want = run_bits(&t, (struct mt_exec_options){.workers = 1}, 2);
    struct mt_recording q = toy_record(&t, 0, -1);
    int races = 0, shown = 0, missed = 0;
    int64_t wait = 0;
    if (MT_WATCH) CHECK(!missing_wait_reported(-1));
    for (int64_t i = 0; i < q.n; i++) {
        if (q.rec[i].op != MT_OP_wait) continue;
        struct mt_race race;
        bool found = mt_races_find(&q, &t.g, i, false, &race, 1) > 0, shows = false;
        wait = next_wait(&t, q.n, wait);
        if (MT_WATCH) shows = missing_wait_reported(wait);
        for (int seed = 1; seed <= 12 && !MT_WATCH && !shows; seed++)
            shows = missing_wait_shows(&t, wait, seed, want);
        wait++;
        races += found;
        shown += found && shows;
        missed += shows && !found;
    }
    printf("  %d races, %d of them shown by %s\n", races, shown, MT_WATCH ? "ThreadSanitizer" : "results");
    CHECK_INT(missed, 0);
    CHECK(MT_WATCH ? shown == races : shown * 10 >= races * 8);
    mt_recording_release(&q);
    toy_release(&t);
}

TEST(a_run_allocates_nothing)
{
    if (SANITIZED) SKIP("a sanitizer owns the allocator");
    struct toy t;
    struct toy_job j;
    toy_planned(&t, 4);
    toy_job_open(&j, &t, (struct mt_exec_options){.workers = 2, .ring = 16});
    void *brk = sbrk(0);
    atomic_store(&allocations, 0);
    atomic_store(&counting, 1);
    void *volatile probe = malloc(1); /* that counting works */
    free(probe);
    mt_status st = MT_OK;
    for (int i = 0; i < 100; i++) st |= toy_job_step(&j);
    atomic_store(&counting, 0);
    CHECK_INT(st, MT_OK);
    CHECK_INT(atomic_load(&allocations), 1);
    CHECK(sbrk(0) == brk);
    toy_job_close(&j);
    toy_release(&t);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "missing")) return missing_main(argv[2]);
    RUN(results_are_right);
    RUN(bits_depend_on_nothing_but_the_program);
    RUN(many_ranks);
    RUN(an_op_behind_an_event_waits_and_one_on_another_stream_does_not);
    RUN(compute_streams_that_stand_still_are_timed);
    RUN(a_run_that_cannot_go_on_says_why);
    RUN(streams_restart_inside_a_run);
    RUN(parts_make_the_whole);
    RUN(uneven_pieces);
    RUN(the_first_error_of_a_rank_is_the_runs);
    RUN(a_stack_that_overflows_faults);
    RUN(options_out_of_range);
    RUN(reads_from_a_tape_give_the_same_bits);
    RUN(missing_waits_that_show_are_races);
    RUN(a_run_allocates_nothing);
    return DONE();
}
