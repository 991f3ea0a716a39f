/* Ledger, targets, the front end (shapes, bounds, waits) and the record. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "device/target.h"
#include "device/toy.h"

TEST(ledger_rows)
{
    struct mt_ledger g;
    mt_ledger_init(&g, 64);
    int32_t a = mt_row_add(&g, MT_DEVICE_ARENA, MT_ROW_MASTER, 100, "w.%d", 7);
    int32_t b = mt_row_add(&g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, 0, "empty");
    int32_t c = mt_row_add(&g, MT_HOST_ARENA, MT_ROW_BATCH, 10, "tok");
    mt_view v = mt_tensor_add(&g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_BF16, 3, 5, 0, "x");
    mt_view p = mt_tensor_add_ld(&g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 3, 5, 8, "padded");
    CHECK_STR(g.row[a].name, "w.7");
    CHECK_INT(g.row[b].off, 128);
    CHECK_INT(g.row[b].bytes, 1);
    CHECK_INT(g.row[c].off, 0);
    CHECK_INT(g.row[v.row].bytes, 30);
    CHECK_INT(p.bytes, (2 * 8 + 5) * 4);
    CHECK_INT(g.row[p.row].bytes, p.bytes);
    CHECK_INT(g.size[MT_DEVICE_ARENA], g.row[p.row].off + p.bytes);
    CHECK(mt_row_persistent(MT_ROW_MASTER) && !mt_row_persistent(MT_ROW_SCRATCH));
    CHECK_STR(mt_row_class_text(MT_ROW_LOSS), "logits and their gradient");
    for (int i = 0; i < 5000; i++)
        mt_row_add(&g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, 1, "a name much longer than a row has room for, %d",
                   i);
    CHECK_INT(g.n, 5005);
    for (int i = 1; i < g.n; i++) CHECK(g.row[i].off % 64 == 0);
    mt_ledger_release(&g);
}

TEST(targets_agree_with_gemm)
{
    static const int64_t size[] = {1, 2, 31, 32, 33, 63, 64, 100, 257};
    for (int isa = 0; isa < MT_N_ISAS; isa++) {
        const struct mt_target *t = mt_target_cpu((enum mt_isa)isa);
        CHECK(!strncmp(t->name, "cpu/", 4) && !strcmp(t->name + 4, mt_isa_name((enum mt_isa)isa)));
        CHECK_INT(t->panel, MT_PANEL);
        CHECK_INT(t->k_align_f32, mt_gemm_k_align((enum mt_isa)isa, MT_F32));
        CHECK_INT(t->k_align_bf16, mt_gemm_k_align((enum mt_isa)isa, MT_BF16));
        for (int d = MT_F32; d <= MT_BF16; d++)
            for (int i = 0; i < 81; i++) {
                int64_t o = size[i / 9], in = size[i % 9];
                int64_t nt = mt_packed_bytes(t, (mt_dtype)d, MT_PACKED_NT, o, in);
                CHECK_INT(nt, mt_gemm_packed_bytes_for((enum mt_isa)isa, (mt_dtype)d, o, in));
                CHECK_INT(mt_packed_bytes(t, (mt_dtype)d, MT_PACKED_NN, o, in),
                          mt_gemm_packed_bytes_for((enum mt_isa)isa, (mt_dtype)d, in, o));
                mt_view v = mt_packed_view(t, 3, (mt_dtype)d, MT_PACKED_NT, 64, o, in);
                CHECK(v.bytes == nt && v.off == 64 && v.row == 3 && v.dim[0] == o && v.dim[1] == in &&
                      v.format == MT_PACKED_NT);
            }
    }
}

/* Runs f in a child: its exit code, and what it wrote to stderr. */
static int child(void (*f)(void), char *said, size_t size)
{
    int p[2], st = 0;
    memset(said, 0, size);
    fflush(stdout);
    if (pipe(p)) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(p[1], 2);
        close(p[0]);
        close(p[1]);
        f();
        _exit(0);
    }
    close(p[1]);
    size_t n = 0;
    for (ssize_t k; n + 1 < size && (k = read(p[0], said + n, size - 1 - n)) > 0;) n += (size_t)k;
    close(p[0]);
    waitpid(pid, &st, 0);
    return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

struct bench {
    struct mt_ledger g;
    struct mt_ctx c;
    struct mt_recording q;
    mt_view x, y, rstd, gain;
};
static void bench_init(struct bench *b)
{
    *b = (struct bench){0};
    mt_ledger_init(&b->g, 64);
    b->x = mt_tensor_add(&b->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 4, 8, 0, "x");
    b->y = mt_tensor_add(&b->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 4, 8, 0, "y");
    b->rstd = mt_tensor_add(&b->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 4, 0, 0, "rstd");
    b->gain = mt_tensor_add(&b->g, MT_DEVICE_ARENA, MT_ROW_WEIGHT, MT_F32, 8, 0, 0, "gain");
    mt_ctx_init(&b->c, 3, 4, &mt_device_sim, &b->g);
    b->c.recording = &b->q;
}
static void bench_release(struct bench *b)
{
    mt_recording_release(&b->q);
    mt_ledger_release(&b->g);
}

static void call_right(void)
{
    struct bench b;
    bench_init(&b);
    mt_rmsnorm_fwd(&b.c.stream[MT_COMPUTE], b.y, b.rstd, b.x, b.gain, 1e-5);
    bench_release(&b);
}
static void call_wrong_dim(void)
{
    struct bench b;
    bench_init(&b);
    mt_rmsnorm_fwd(&b.c.stream[MT_COMPUTE], b.y, b.rstd, b.x, mt_view_of(b.gain.row, MT_F32, 0, 7, 0, 0),
                   1e-5);
}
static void call_wrong_type(void)
{
    struct bench b;
    bench_init(&b);
    mt_rmsnorm_fwd(&b.c.stream[MT_GATHER], b.y, b.rstd, mt_view_of(b.x.row, MT_BF16, 0, 4, 8, 0), b.gain,
                   1e-5);
}
static void call_missing(void)
{
    struct bench b;
    bench_init(&b);
    mt_rmsnorm_fwd(&b.c.stream[MT_COMPUTE], b.y, MT_NONE, b.x, b.gain, 1e-5);
}
static void call_out_of_row(void)
{
    struct bench b;
    bench_init(&b);
    mt_fill0(&b.c.stream[MT_COMPUTE], mt_view_of(b.rstd.row, MT_F32, 4, 4, 0, 0));
}
TEST(a_call_that_does_not_fit_stops_the_program)
{
    char said[1024];
    CHECK_INT(child(call_right, said, sizeof said), 0);
    CHECK_STR(said, "");
    CHECK_INT(child(call_wrong_dim, said, sizeof said), MT_INTERNAL);
    CHECK(strstr(said, "rmsnorm_fwd") && strstr(said, "argument g") && strstr(said, "[D]") &&
          strstr(said, "[7,") && strstr(said, "rank 3"));
    CHECK_INT(child(call_wrong_type, said, sizeof said), MT_INTERNAL);
    CHECK(strstr(said, "argument x") && strstr(said, "bf16") && strstr(said, "stream 1"));
    CHECK_INT(child(call_missing, said, sizeof said), MT_INTERNAL);
    CHECK(strstr(said, "argument rstd") && strstr(said, "missing"));
    CHECK_INT(child(call_out_of_row, said, sizeof said), MT_INTERNAL);
    CHECK(strstr(said, "fill0") && strstr(said, "[4, 20)") && strstr(said, "rstd") &&
          strstr(said, "of 16 bytes"));
}

/* Rows of the host's arena and of the device's, each touched where it may not be. */
static struct bench crossed;
static mt_view crossed_host(void)
{
    bench_init(&crossed);
    return mt_tensor_add(&crossed.g, MT_HOST_ARENA, MT_ROW_MASTER, MT_F32, 4, 8, 0, "afar");
}
static void call_kernel_on_host_row(void)
{
    mt_fill0(&crossed.c.stream[MT_COMPUTE], crossed_host());
}
static void call_device_row_on_host_stream(void)
{
    mt_view h = crossed_host();
    mt_fill0(&crossed.c.stream[MT_HOST], h);
    mt_fill0(&crossed.c.stream[MT_HOST], crossed.x);
}
static void call_copy_the_wrong_way(void)
{
    mt_view h = crossed_host();
    mt_copy_h2d(&crossed.c.stream[MT_H2D], crossed.x, h);
    mt_copy_d2h(&crossed.c.stream[MT_D2H], h, crossed.x);
    mt_copy_d2h(&crossed.c.stream[MT_D2H], crossed.x, h);
}
TEST(only_copies_cross_from_one_memory_to_the_other)
{
    char said[1024];
    CHECK_INT(child(call_kernel_on_host_row, said, sizeof said), MT_INTERNAL);
    CHECK(strstr(said, "row afar of the host arena") && strstr(said, "must be in the device arena"));
    CHECK_INT(child(call_device_row_on_host_stream, said, sizeof said), MT_INTERNAL);
    CHECK(strstr(said, "operation 2: fill0: argument x is row x of the device arena; on the stream `host`"));
    CHECK_INT(child(call_copy_the_wrong_way, said, sizeof said), MT_INTERNAL);
    CHECK(strstr(said, "operation 2: copy_d2h: argument host is row x of the device arena"));
}

TEST(record_holds_what_was_enqueued)
{
    struct bench b;
    bench_init(&b);
    struct mt_stream *s = &b.c.stream[MT_COMPUTE], *d = &b.c.stream[MT_D2H];
    mt_stream_wait(d, mt_event_record(s)); /* nothing enqueued yet: nothing to wait for */
    mt_rmsnorm_fwd(s, b.y, b.rstd, b.x, b.gain, 0.25);
    b.c.round = 1;
    mt_stream_wait(d, mt_event_record(s));
    mt_rmsnorm_bwd(d, b.y,
                   mt_tensor_add(&b.g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, MT_NORM_BLOCKS, 8, 0, "dgp"),
                   mt_view_part(b.x, 0, 4), b.x, b.rstd, b.gain, MT_NONE);
    mt_fill0(s, mt_view_part(b.x, 1, 2));
    CHECK_INT(b.q.n, 4);
    const struct mt_rec *r = b.q.rec;
    CHECK(r[0].op == MT_OP_rmsnorm_fwd && r[0].stream == MT_COMPUTE && r[0].seq == 1 && r[0].round == 0 &&
          r[0].n_args == 4);
    CHECK(r[0].dim['N' - 'A'] == 4 && r[0].dim['D' - 'A'] == 8 && r[0].dtype == MT_F32);
    CHECK_CLOSE(r[0].scalar[0].f, 0.25, 0);
    CHECK(r[1].op == MT_OP_wait && r[1].stream == MT_D2H && r[1].seq == 1 && r[1].ev.stream == MT_COMPUTE &&
          r[1].ev.seq == 1);
    CHECK(r[2].op == MT_OP_rmsnorm_bwd && r[2].seq == 2 && r[2].round == 1 && r[2].n_args == 6);
    const struct mt_rec_arg *a = &b.q.arg[r[0].arg];
    CHECK(a[0].row == b.y.row && a[0].dir == MT_OUT && a[0].whole && a[2].dir == MT_IN && a[2].bytes == 128);
    a = &b.q.arg[r[3].arg];
    CHECK(a[0].row == b.x.row && !a[0].whole && a[0].off == 32 && a[0].bytes == 64);
    bench_release(&b);
}

TEST(padded_rows_count_as_whole)
{
    struct bench b;
    bench_init(&b);
    mt_view p = mt_tensor_add_ld(&b.g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 4, 8, 24, "padded");
    mt_rmsnorm_fwd(&b.c.stream[MT_COMPUTE], p, b.rstd, b.x, b.gain, 0.25);
    CHECK(b.q.arg[0].whole && b.q.arg[0].bytes == (3 * 24 + 8) * 4);
    bench_release(&b);
}

TEST(skipped_waits_leave_no_trace)
{
    struct toy t;
    toy_init(&t, 2);
    struct mt_recording all = toy_record(&t, 0, -1);
    int64_t waits = 0, asked = 0;
    for (int64_t i = 0; i < all.n; i++) waits += all.rec[i].op == MT_OP_wait;
    CHECK(waits > 20);
    for (int64_t k = 0, gone = 0; gone < waits && k < 1000; k++, asked++) {
        struct mt_recording q = toy_record(&t, 0, k);
        int64_t left = 0;
        for (int64_t i = 0; i < q.n; i++) left += q.rec[i].op == MT_OP_wait;
        CHECK(left == waits || (left == waits - 1 && mt_recording_hash(&q) != mt_recording_hash(&all)));
        gone += left == waits - 1;
        mt_recording_release(&q);
    }
    CHECK(asked < 1000);
    mt_recording_release(&all);
    toy_release(&t);
}

TEST(hash_sees_schedule_and_shapes_only)
{
    struct toy t, wider;
    toy_init(&t, 2);
    toy_init(&wider, 4);
    struct mt_recording a = toy_record(&t, 2, -1), b = toy_record(&t, 2, -1), c = toy_record(&t, 1, -1),
                        d = toy_record(&wider, 2, -1);
    CHECK(mt_recording_hash(&a) == mt_recording_hash(&b));
    CHECK(mt_recording_hash(&a) != mt_recording_hash(&c));
    CHECK(mt_recording_hash(&a) != mt_recording_hash(&d));
    for (int64_t i = 0; i < b.n; i++)
        if (b.rec[i].op == MT_OP_rmsnorm_fwd) b.rec[i].scalar[0].f = 0.5;
    CHECK(mt_recording_hash(&a) == mt_recording_hash(&b));
    b.rec[b.n - 1].dim[3]++;
    CHECK(mt_recording_hash(&a) != mt_recording_hash(&b));
    struct mt_recording *all[] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; i++) mt_recording_release(all[i]);
    toy_release(&t);
    toy_release(&wider);
}

/* The record of the run on the cpu, host reads answered by data, is the record on sim given the same
 * answers. */
TEST(sim_records_what_the_cpu_runs)
{
    struct toy t;
    toy_init(&t, 4);
    struct toy_job j;
    struct mt_recording q[4] = {{0}}, sim = toy_record(&t, 0, -1);
    toy_job_open(&j, &t, (struct mt_exec_options){.workers = 2});
    for (int step = 0; step < 2; step++) {
        for (int r = 0; r < 4; r++) j.ctx[r].recording = &q[r], q[r].n = q[r].n_args = 0;
        CHECK_INT(toy_job_step(&j), MT_OK);
        for (int r = 0; r < 4; r++) {
            CHECK_INT(q[r].n, sim.n);
            CHECK(mt_recording_hash(&q[r]) == mt_recording_hash(&sim));
            for (int64_t i = 0; i < sim.n && i < q[r].n; i++)
                CHECK(q[r].rec[i].op == sim.rec[i].op && q[r].rec[i].round == sim.rec[i].round &&
                      q[r].rec[i].seq == sim.rec[i].seq);
        }
    }
    toy_job_close(&j);
    for (int r = 0; r < 4; r++) mt_recording_release(&q[r]);
    mt_recording_release(&sim);
    toy_release(&t);
}

TEST(sim_answers_host_reads)
{
    struct bench b;
    bench_init(&b);
    float tape[8] = {1, 2, 3, 4, 5, 6, 7, 8}, got[4] = {9, 9, 9, 9};
    mt_host_read(&b.c.stream[MT_COMPUTE], MT_READ_COUNTS, 1, b.rstd, got);
    CHECK(got[0] == 0 && got[3] == 0);
    b.c.tape[MT_READ_COUNTS] = (const char *)tape;
    mt_host_read(&b.c.stream[MT_COMPUTE], MT_READ_COUNTS, 1, b.rstd, got);
    CHECK(got[0] == 5 && got[3] == 8);
    mt_host_read(&b.c.stream[MT_COMPUTE], MT_READ_LOSS, 1, b.rstd, got);
    CHECK(got[0] == 0);
    b.c.answer = toy_answer;
    b.c.tape[MT_READ_COUNTS] = NULL;
    mt_host_read(&b.c.stream[MT_COMPUTE], MT_READ_COUNTS, 2, b.rstd, got);
    CHECK(got[0] == 3);
    CHECK(b.q.n == 4 && b.q.rec[3].op == MT_OP_read_back && b.q.rec[3].scalar[0].i == MT_READ_COUNTS &&
          b.q.rec[3].scalar[1].i == 2);
    bench_release(&b);
}

int main(void)
{
    RUN(ledger_rows);
    RUN(targets_agree_with_gemm);
    RUN(a_call_that_does_not_fit_stops_the_program);
    RUN(only_copies_cross_from_one_memory_to_the_other);
    RUN(record_holds_what_was_enqueued);
    RUN(padded_rows_count_as_whole);
    RUN(skipped_waits_leave_no_trace);
    RUN(hash_sees_schedule_and_shapes_only);
    RUN(sim_records_what_the_cpu_runs);
    RUN(sim_answers_host_reads);
    return DONE();
}
