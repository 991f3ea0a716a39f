/* A save from its begin to its name, in one process: what others are told in each phase, what it takes besides its buffers.
 * mkdir below takes the place of the C library's. */
#include "ckpt/saver.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/clock.h"

#include "helper.h"

enum { WRITERS = 2, CHUNK = 1 << 20, BIG = 16 << 20 };

struct run {
    struct mt_saver *saver;
    struct mt_job job;
    char *buffer;
    mt_config cfg;
};

static void open_saver(struct run *r, const struct mt_ckpt_items *items)
{
    mt_err e = {0};
    mt_config_defaults(&r->cfg);
    r->buffer = aligned_alloc(MT_PART_ALIGN, (WRITERS + 1) * CHUNK);
    memset(r->buffer, 1, (WRITERS + 1) * CHUNK); /* as an arena is */
    const struct mt_saver_options o = {.run_dir = run_folder(),
                                       .cfg = &r->cfg,
                                       .job = &r->job,
                                       .writers = {.threads = WRITERS, .chunk = CHUNK, .buffer = r->buffer}};
    CHECK_INT(mt_make_folders(run_folder(), &e), MT_OK);
    CHECK_INT(mt_saver_open(&r->saver, &o, items, &e), MT_OK);
}
static void open_run(struct run *r, const struct mt_ckpt_items *items)
{
    r->job = mt_job_alone(1);
    open_saver(r, items);
}
static void close_run(struct run *r)
{
    mt_saver_close(r->saver);
    free(r->buffer);
}

static const char *step_folder(int64_t step)
{
    static char path[MT_CKPT_PATH];
    mt_ckpt_folder(run_folder(), step, path);
    return path;
}

/* Until it is over. */
static enum mt_saver_event finish(struct run *r)
{
    enum mt_saver_event event = MT_SAVER_NOTHING;
    while (event == MT_SAVER_NOTHING) {
        int64_t busy, failed;
        mt_saver_pause(r->saver);
        mt_saver_tell(r->saver, &busy, &failed);
        event = mt_saver_heard(r->saver, busy, failed);
        CHECK(mt_saver_under_way(r->saver) == (event == MT_SAVER_NOTHING));
    }
    return event;
}
static void begin(struct run *r, int64_t step, int64_t metrics)
{
    const struct mt_saver_begin b = {.meta = {.step = step, .tokens = 10 * step},
                                     .keep = {.last = 2, .every = 4, .step = 1, .back = 2},
                                     .metrics_bytes = metrics};
    mt_saver_begin(r->saver, &b);
}

TEST(it_is_there_when_all_know)
{
    static struct world w;
    static struct run r;
    struct mt_ckpt_meta meta;
    int64_t busy, failed;
    mt_err e = {0};
    make_world(&w, 1);
    open_run(&r, &w.items);
    mt_saver_tell(r.saver, &busy, &failed);
    CHECK(!busy && !failed && mt_saver_heard(r.saver, 1, 1) == MT_SAVER_NOTHING); /* nothing is under way */
    for (int64_t step = 1; step <= 7; step++) {
        begin(&r, step, 0);
        CHECK(!exists(step_folder(step)));
        CHECK_INT(finish(&r), MT_SAVER_SAVED);
        CHECK_INT(mt_ckpt_verify(step_folder(step), &meta, &e), MT_OK);
        CHECK(meta.step == step && meta.tokens == 10 * step);
    }
    for (int64_t step = 1; step <= 7; step++)
        CHECK(exists(step_folder(step)) == (step == 1 || step == 2 || step == 4 || step >= 6)); /* see keep */
    CHECK(mt_saver_report(r.saver).bytes > 4096);
    close_run(&r);
}

/* Two processes: what the other one has to write, and nothing to say. */
static int64_t others[2][2];
static void sum(void *impl, int64_t *x, int64_t n)
{
    const int64_t *other = impl;
    for (int64_t i = 0; i < n; i++) x[i] += other[i];
}
static void most(void *impl, int64_t *x, int64_t n)
{
    (void)impl, (void)x, (void)n;
}
static const struct mt_job_ops ops = {.sum = sum, .most = most};

static void make_process(struct world *w, int me)
{
    make_world(w, (uint32_t)me);
    for (int t = 0; t < TENSORS; t++) {
        w->piece[t].rank = me;
        w->piece[t].rows = w->item[t].rows / 2;
        w->piece[t].row0 = me ? w->item[t].rows / 2 : 0;
        if (me) w->piece[t].rows = w->item[t].rows - w->piece[t].row0;
    }
    struct mt_parts parts;
    mt_err e = {0};
    CHECK_INT(mt_parts_open(&parts, &w->items, 2, NULL, &e), MT_OK);
    others[!me][me] = parts.file[0].bytes; /* what the other will be told */
    mt_parts_close(&parts);
}
static void join(struct run *r, const struct world *w, int me)
{
    r->job = (struct mt_job){.n = 2,
                             .me = me,
                             .on_node = 2,
                             .world = 2,
                             .first = me,
                             .n_local = 1,
                             .ops = &ops,
                             .impl = others[me]};
    open_saver(r, &w->items);
}

/* The first has all its files and waits for the other's; when these are there, it needs nobody's word. */
TEST(published_when_all_have_written)
{
    static struct world w[2];
    static struct run r[2];
    struct mt_ckpt_meta meta;
    int64_t busy, failed;
    mt_err e = {0};
    for (int i = 0; i < 2; i++) make_process(&w[i], i);
    for (int i = 0; i < 2; i++) join(&r[i], &w[i], i);
    begin(&r[0], 1, 0);
    for (int i = 0; i < 20; i++) {
        mt_saver_pause(r[0].saver);
        mt_saver_tell(r[0].saver, &busy, &failed);
        CHECK(busy && !failed && !exists(step_folder(1)));
    }
    begin(&r[1], 1, 0);
    for (busy = 1; busy;) {
        mt_saver_pause(r[0].saver);
        mt_saver_tell(r[0].saver, &busy, &failed);
    }
    CHECK_INT(mt_ckpt_verify(step_folder(1), &meta, &e), MT_OK);
    for (int i = 0; i < 2; i++) CHECK_INT(finish(&r[i]), MT_SAVER_SAVED);
    /* the other one fails before it has written: the first waits for it no longer */
    begin(&r[0], 2, 0);
    CHECK_INT(mt_saver_heard(r[0].saver, 1, 1), MT_SAVER_NOTHING);
    CHECK_INT(finish(&r[0]), MT_SAVER_GIVEN_UP);
    CHECK(!exists(step_folder(2)));
    for (int i = 0; i < 2; i++) close_run(&r[i]);
}

/* The first that makes a folder for a save comes to it only when `slow` is 0 again. */
static atomic_int slow, held;
int mkdir(const char *path, mode_t mode)
{
    if (slow && strstr(path, ".saving") && !held++)
        while (slow) nanosleep(&(struct timespec){0, 1000000}, NULL);
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

/* What both bring to their agreement, and what comes of it for the first. */
static enum mt_saver_event agree(struct run r[2])
{
    int64_t busy[2], failed[2];
    for (int i = 0; i < 2; i++) mt_saver_pause(r[i].saver);
    for (int i = 0; i < 2; i++) mt_saver_tell(r[i].saver, &busy[i], &failed[i]);
    (void)mt_saver_heard(r[1].saver, busy[0] + busy[1], failed[0] + failed[1]);
    return mt_saver_heard(r[0].saver, busy[0] + busy[1], failed[0] + failed[1]);
}

/* Whoever removes what is left of a save waits for the other process, which would put a file there again. */
TEST(removed_when_all_have_left)
{
    static struct world w[2];
    static struct run r[2];
    char saving[MT_CKPT_PATH + 8];
    enum mt_saver_event event = MT_SAVER_NOTHING;
    for (int i = 0; i < 2; i++) make_process(&w[i], i);
    for (int i = 0; i < 2; i++) join(&r[i], &w[i], i);
    snprintf(saving, sizeof saving, "%s.saving", step_folder(9));
    slow = 1;
    begin(&r[1], 9, 0);
    while (!held) mt_saver_pause(r[1].saver);
    begin(&r[0], 9, 0);
    for (int i = 0; i < 2; i++) CHECK_INT(mt_saver_heard(r[i].saver, 1, 1), MT_SAVER_NOTHING);
    for (double t0 = mt_now(); event == MT_SAVER_NOTHING && mt_now() - t0 < 0.5;) event = agree(r);
    CHECK_INT(event, MT_SAVER_NOTHING);
    slow = 0;
    while (event == MT_SAVER_NOTHING) event = agree(r);
    CHECK_INT(event, MT_SAVER_GIVEN_UP);
    for (int i = 0; i < 2; i++) close_run(&r[i]);
    CHECK(!exists(saving));
}

TEST(another_process_fails)
{
    static struct world w;
    static struct run r;
    char saving[MT_CKPT_PATH + 8];
    struct mt_ckpt_meta meta;
    mt_err e = {0};
    make_world(&w, 1);
    open_run(&r, &w.items);
    begin(&r, 1, 0);
    CHECK_INT(mt_saver_heard(r.saver, 1, 1), MT_SAVER_NOTHING);
    CHECK_INT(finish(&r), MT_SAVER_GIVEN_UP);
    snprintf(saving, sizeof saving, "%s.saving", step_folder(1));
    CHECK(!exists(saving));
    if (exists(step_folder(1)))
        CHECK_INT(mt_ckpt_verify(step_folder(1), &meta, &e), MT_OK); /* it was too late */
    begin(&r, 1, 0);
    CHECK_INT(finish(&r), MT_SAVER_SAVED);
    close_run(&r);
}

/* The lines of metrics.jsonl up to the step, whatever has been added since. */
TEST(metrics_up_to_the_step)
{
    static struct world w;
    static struct run r;
    static struct bytes b;
    char path[MT_CKPT_PATH + 20];
    make_world(&w, 1);
    open_run(&r, &w.items);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_folder());
    write_bytes(path, "one\ntwo\nthree\n", 14);
    begin(&r, 2, 8);
    CHECK_INT(finish(&r), MT_SAVER_SAVED);
    snprintf(path, sizeof path, "%s/metrics.jsonl", step_folder(2));
    CHECK(read_bytes(&b, path) && b.n == 8 && !memcmp(b.at, "one\ntwo\n", 8));
    begin(&r, 3, 100); /* the file has become shorter than it was */
    CHECK_INT(finish(&r), MT_SAVER_GIVEN_UP);
    CHECK(!exists(step_folder(3)));
    close_run(&r);
}

/* ---- memory ---- */
static int64_t status(const char *key)
{
    char line[200];
    long long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) abort();
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) CHECK(sscanf(line + strlen(key), ": %lld kB", &kb) == 1);
    fclose(f);
    return kb << 10;
}
static bool reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    bool ok = f && fputs("5", f) >= 0;
    return f && !fclose(f) && ok;
}

/* A save of 64 MiB: its buffers, which were there before, and no more than half a MiB besides. */
TEST(the_buffers_are_all_it_takes)
{
    static struct world w;
    static struct run r;
    enum { HALF_MIB = 1 << 19 };
    make_world(&w, 1);
    float *big = malloc(BIG * sizeof *big);
    if (!big) abort();
    for (int64_t i = 0; i < BIG; i++) big[i] = (float)i;
    w.item[0] = (struct mt_ckpt_item){.name = "embed.weight", .rows = BIG / 1024, .cols = 1024, .n = 1};
    w.piece[0] = (struct mt_ckpt_piece){.data = big, .rows = BIG / 1024};
    open_run(&r, &w.items);
    begin(&r, 1, 0);
    CHECK_INT(finish(&r), MT_SAVER_SAVED);
    int64_t before = status("VmRSS");
    if (!reset_peak()) SKIP("the system does not forget a peak of memory");
    begin(&r, 2, 0);
    CHECK_INT(finish(&r), MT_SAVER_SAVED);
    int64_t peak = status("VmHWM");
    printf("  %d MiB saved: %.2f MiB before it, %.2f at most, of which the buffers take %.2f\n",
           BIG / (1 << 18), (double)before / (1 << 20), (double)peak / (1 << 20),
           (double)((WRITERS + 1) * CHUNK) / (1 << 20));
    CHECK(before > (int64_t)sizeof(float) * BIG && peak - before <= HALF_MIB);
    close_run(&r);
    free(big);
}

int main(void)
{
    RUN(it_is_there_when_all_know);
    RUN(published_when_all_have_written);
    RUN(removed_when_all_have_left);
    RUN(another_process_fails);
    RUN(metrics_up_to_the_step);
    RUN(the_buffers_are_all_it_takes);
    remove_temporary_folder();
    return DONE();
}
