/* test: variants=cuemu */
/* Streams of the cuda device under the emulator: in any order that streams and events allow, in the same record as on
 * sim; what it refuses. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"
#include "sides.h"

static float value_at(const struct side *s, const struct tensor *x, int64_t i, int64_t j)
{
    const char *p = mt_address(&s->ctx, x->host);
    int64_t at = i * x->host.ld + j;
    return x->host.dtype == MT_F32 ? ((const float *)(const void *)p)[at]
                                   : mt_f32_of(((const mt_bf16 *)(const void *)p)[at]);
}

/* ---- three streams: what events order, and nothing else ---- */

/* Batches go up on one stream into two slots in turn, are normed, permuted and multiplied on another, and
 * come down on a third; the host reads rstd of each. */
enum { BATCHES = 4, ROWS = 6, WIDTH = 32, OUT = 16 };
struct pipeline {
    struct tensor in[BATCHES], out[BATCHES], g, order, master, slot[2], normed, rstd, moved, y[2];
    mt_view w;
    float rstd_read[BATCHES][ROWS];
};
static void pipeline_build(struct side *s, struct pipeline *p)
{
    for (int i = 0; i < BATCHES; i++) {
        p->in[i] = tensor_of(s, MT_F32, ROWS, WIDTH, 0, 0);
        p->out[i] = tensor_of(s, MT_F32, ROWS, OUT, 0, 0);
    }
    for (int i = 0; i < 2; i++) {
        p->slot[i] = tensor_of(s, MT_F32, ROWS, WIDTH, 0, 0);
        p->y[i] = tensor_of(s, MT_F32, ROWS, OUT, 0, 0);
    }
    p->g = tensor_of(s, MT_F32, WIDTH, 0, 0, 0), p->order = tensor_of(s, MT_I32, ROWS, 0, 0, 0);
    p->normed = tensor_of(s, MT_F32, ROWS, WIDTH, 0, 0), p->moved = tensor_of(s, MT_F32, ROWS, WIDTH, 0, 0);
    p->rstd = tensor_of(s, MT_F32, ROWS, 0, 0, 0), p->master = tensor_of(s, MT_F32, OUT, WIDTH, 0, 0);
    int32_t row = mt_row_add(&s->ledger, MT_DEVICE_ARENA, MT_ROW_WEIGHT,
                             mt_packed_bytes(s->target, MT_F32, MT_PACKED_NT, OUT, WIDTH), "w");
    p->w = mt_packed_view(s->target, row, MT_F32, MT_PACKED_NT, 0, OUT, WIDTH);
    if (s->ctx.dev != &mt_device_sim) side_open(s);
    if (!s->ctx.arena[MT_HOST_ARENA]) return;
    for (int i = 0; i < BATCHES; i++) fill(s, &p->in[i]);
    fill(s, &p->g), fill(s, &p->master);
    for (int32_t i = 0; i < ROWS; i++)
        ((int32_t *)mt_address(&s->ctx, p->order.host))[i] = (i * 5 + 2) % ROWS;
}
static void pipeline_run(struct side *s, struct pipeline *p)
{
    struct mt_stream *up = &s->ctx.stream[MT_H2D], *on = &s->ctx.stream[MT_COMPUTE],
                     *down = &s->ctx.stream[MT_D2H];
    struct mt_lease in[2] = {{.view = p->slot[0].dev}, {.view = p->slot[1].dev}},
                    out[2] = {{.view = p->y[0].dev}, {.view = p->y[1].dev}};
    mt_streams_restart(&s->ctx);
    const struct tensor *first[] = {&p->g, &p->order, &p->master};
    for (int i = 0; i < 3; i++) upload(s, first[i], MT_H2D);
    mt_stream_wait(on, mt_event_record(up));
    mt_weight_pack(on, p->w, p->master.dev);
    for (int i = 0; i < BATCHES; i++) {
        struct mt_lease *a = &in[i % 2], *b = &out[i % 2];
        mt_lease_fill(up, a);
        mt_copy_h2d(up, a->view, p->in[i].host);
        mt_lease_filled(up, a);
        mt_lease_use(on, a);
        mt_rmsnorm_fwd(on, p->normed.dev, p->rstd.dev, a->view, p->g.dev, 1e-5);
        mt_lease_done(on, a);
        mt_gather_rows(on, p->moved.dev, p->normed.dev, p->order.dev, 1, 0, ROWS);
        mt_lease_fill(on, b);
        mt_linear_fwd(on, b->view, p->moved.dev, p->w, MT_NONE, MT_NONE);
        mt_lease_filled(on, b);
        mt_lease_use(down, b);
        mt_copy_d2h(down, p->out[i].host, b->view);
        mt_lease_done(down, b);
        mt_host_read(on, MT_READ_LOSS, i, p->rstd.dev, p->rstd_read[i]);
    }
    side_finish(s);
}

/* Number of values that differ from the reference: NaN, poison and stale data do. */
static int pipeline_wrong(const struct side *got, const struct side *want, const struct pipeline *p,
                          const struct pipeline *ref)
{
    int wrong = 0;
    for (int b = 0; b < BATCHES; b++) {
        for (int i = 0; i < ROWS * OUT; i++)
            wrong += !(fabsf(value_at(got, &p->out[b], 0, i) - value_at(want, &ref->out[b], 0, i)) <= 1e-5f);
        for (int i = 0; i < ROWS; i++) wrong += !(fabsf(p->rstd_read[b][i] - ref->rstd_read[b][i]) <= 1e-5f);
    }
    return wrong;
}

TEST(streams_in_any_order)
{
    struct side cpu;
    struct pipeline ref;
    side_init(&cpu, CPU);
    pipeline_build(&cpu, &ref);
    pipeline_run(&cpu, &ref);
    for (int i = 0; i < N_ORDERS; i++) {
        struct side cuda;
        struct pipeline p;
        set_order(i);
        side_init(&cuda, CUDA);
        pipeline_build(&cuda, &p);
        for (int step = 0; step < 2; step++) { /* the second starts where events of the first still lie */
            for (int b = 0; b < BATCHES; b++)
                memset(mt_address(&cuda.ctx, p.out[b].host), GUARD, (size_t)p.out[b].host.bytes);
            pipeline_run(&cuda, &p);
            CHECK_INT(pipeline_wrong(&cuda, &cpu, &p, &ref), 0);
        }
        side_close(&cuda);
    }
    side_close(&cpu);
    set_order(0);
}

TEST(record_equals_sim)
{
    struct side side[3];
    struct pipeline p[3];
    for (int m = 0; m < 3; m++) {
        side_init(&side[m], (enum machine)m);
        pipeline_build(&side[m], &p[m]);
        pipeline_run(&side[m], &p[m]);
    }
    const struct mt_recording *a = &side[CUDA].record, *b = &side[SIM].record;
    CHECK(a->n > 40);
    CHECK_INT(a->n, b->n);
    for (int64_t i = 0; i < a->n && i < b->n; i++)
        CHECK(a->rec[i].op == b->rec[i].op && a->rec[i].stream == b->rec[i].stream &&
              a->rec[i].seq == b->rec[i].seq);
    CHECK(mt_recording_hash(a) == mt_recording_hash(b));
    CHECK_INT(side[CPU].record.n,
              b->n); /* its working weights have other sizes, so only the sequence is the same */
    for (int m = 0; m < 3; m++) side_close(&side[m]);
}

/* A wait for a position whose event was taken by a later one. */
TEST(old_events)
{
    struct side s;
    side_init(&s, CUDA);
    struct tensor x = tensor_of(&s, MT_F32, 16, 0, 0, 0), z = tensor_of(&s, MT_F32, 4, 0, 0, 0);
    side_open(&s);
    fill(&s, &x);
    upload(&s, &x, MT_H2D);
    mt_event old = mt_event_record(&s.ctx.stream[MT_H2D]);
    for (int i = 0; i < 600; i++) mt_fill0(&s.ctx.stream[MT_H2D], z.dev);
    float want[16], *image = mt_address(&s.ctx, x.host);
    mt_stream_wait(&s.ctx.stream[MT_D2H], old);
    float got[16];
    mt_host_read(&s.ctx.stream[MT_D2H], MT_READ_STATE, 0, x.dev, got);
    memcpy(want, image, sizeof want);
    CHECK(!memcmp(got, want, sizeof got));
    side_close(&s);
}

TEST(tape_answers_counts)
{
    struct side s;
    side_init(&s, CUDA);
    struct tensor x = tensor_of(&s, MT_I32, 2, 0, 0, 0);
    side_open(&s);
    const int32_t tape[] = {1, 2, 3, 4};
    int32_t got[2];
    s.ctx.tape[MT_READ_COUNTS] = (const char *)tape;
    upload(&s, &x, MT_COMPUTE);
    mt_host_read(&s.ctx.stream[MT_COMPUTE], MT_READ_COUNTS, 1, x.dev, got);
    CHECK_INT(got[0], 3);
    CHECK_INT(got[1], 4);
    side_close(&s);
}

/* ---- faults ---- */

/* One run of the pipeline with its n-th wait left out, in a process of its own, whose exit code tells: 0
 * nothing noticed, 3 wrong values, others are a sanitizer's. */
static int run_without_wait(int n, int order)
{
    struct side cpu, cuda;
    struct pipeline ref, p;
    set_order(order);
    side_init(&cpu, CPU), side_init(&cuda, CUDA);
    pipeline_build(&cpu, &ref), pipeline_build(&cuda, &p);
    pipeline_run(&cpu, &ref);
    cuda.ctx.skip_wait = n;
    pipeline_run(&cuda, &p);
    return pipeline_wrong(&cuda, &cpu, &p, &ref) ? 3 : 0;
}
static int child(const char *self, int wait, int order)
{
    char a[16], b[16];
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1), dup2(null, 2);
        setenv("TSAN_OPTIONS", "exitcode=66:halt_on_error=1:symbolize=0:atexit_sleep_ms=0", 1);
        setenv("ASAN_OPTIONS", "exitcode=77:detect_leaks=0:symbolize=0", 1);
        snprintf(a, sizeof a, "%d", wait), snprintf(b, sizeof b, "%d", order);
        execl(self, self, a, b, (char *)NULL);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Waits, as numbered by the pipeline: 0 the weights' upload; 2 the first batch's; 4 its result.
 * ThreadSanitizer must report each in every order; the other builds see wrong values in some order.
 * Without a fault nobody may object. */
static const char *self;
TEST(missing_waits_are_found)
{
#ifdef __SANITIZE_THREAD__
    const int found = 66, all = N_ORDERS;
#else
    const int found = 3, all = 1;
#endif
    static const int wait[] = {0, 2, 4};
    for (int order = 0; order < N_ORDERS; order++) CHECK_INT(child(self, -1, order), 0);
    for (int i = 0; i < 3; i++) {
        int times = 0;
        for (int order = 0; order < N_ORDERS; order++) times += child(self, wait[i], order) == found;
        if (!CHECK(times >= all)) printf("  wait %d: found in %d of %d orders\n", wait[i], times, N_ORDERS);
    }
}

/* After an error nothing is enqueued, nothing crashes, and the first message stays. */
TEST(an_operation_that_fails)
{
    struct side s;
    mt_err e = {0};
    side_init(&s, CUDA);
    struct tensor x = tensor_of(&s, MT_F32, 4, 8, 0, 0),
                  large = tensor_of(&s, MT_F32, MT_CUDA_READ_BYTES, 0, 0, 0);
    side_open(&s);
    float *read = calloc(1, (size_t)large.dev.bytes);
    mt_host_read(&s.ctx.stream[MT_COMPUTE], MT_READ_LOSS, 0, large.dev, read);
    mt_fill0(&s.ctx.stream[MT_COMPUTE], x.dev);
    mt_host_read(&s.ctx.stream[MT_COMPUTE], MT_READ_LOSS, 0, x.dev, read);
    CHECK(s.ctx.err.code == MT_INTERNAL);
    CHECK(strstr(s.ctx.err.msg, "a host read of") && strstr(s.ctx.err.msg, "operation 1"));
    CHECK(mt_cuda_finish(s.cuda, &e) == MT_INTERNAL);
    s.ctx.err = (mt_err){0};
    side_close(&s);
    free(read);
}

TEST(another_target)
{
    struct side s;
    struct mt_cuda *none;
    mt_err e = {0};
    side_init(&s, CUDA);
    struct mt_target other = *s.target;
    const struct mt_cuda_options options = {.device = 0, .scratch_bytes = SCRATCH};
    other.align = 128;
    CHECK(mt_cuda_open(&none, &s.ctx, &other, &options, &e) == MT_INTERNAL);
    CHECK(strstr(e.msg, "128") && !none);
    e = (mt_err){0};
    CHECK(mt_cuda_open(&none, &s.ctx, mt_target_cpu(MT_ISA_SCALAR), &options, &e) == MT_INTERNAL);
    s.ledger.align = 64;
    e = (mt_err){0};
    CHECK(mt_cuda_open(&none, &s.ctx, s.target, &options, &e) == MT_INTERNAL);
    side_close(&s);
}

TEST(refusals)
{
    struct side s;
    struct mt_cuda *none;
    mt_err e = {0};
    side_init(&s, CUDA);
    mt_row_add(&s.ledger, MT_DEVICE_ARENA, MT_ROW_WEIGHT, 3 << 20, "large");
    setenv("CUEMU_MEM_MB", "2", 1);
    CHECK(mt_cuda_open(&none, &s.ctx, s.target, &(struct mt_cuda_options){.scratch_bytes = 4096}, &e) ==
          MT_NOFIT);
    CHECK(strstr(e.msg, "3145728 bytes") != NULL && none == NULL && s.ctx.arena[0] == NULL);
    unsetenv("CUEMU_MEM_MB");
    e = (mt_err){0};
    CHECK(mt_cuda_open(&none, &s.ctx, s.target, &(struct mt_cuda_options){.device = 7, .scratch_bytes = 4096},
                       &e) == MT_DEVICE);
    CHECK(strstr(e.msg, "device 7") != NULL);
    side_close(&s);
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 3) return run_without_wait(atoi(argv[1]), atoi(argv[2]));
    RUN(streams_in_any_order);
    RUN(record_equals_sim);
    RUN(old_events);
    RUN(tape_answers_counts);
    RUN(missing_waits_are_found);
    RUN(an_operation_that_fails);
    RUN(another_target);
    RUN(refusals);
    return DONE();
}
