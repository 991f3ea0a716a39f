/* The writers of a checkpoint: what reaches the files, what the optimizer waits for, and stores that fail, refuse or hang.
 * Some calls below take the place of the C library's. */
#include "ckpt/writers.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "helper.h"

/* ---- the store ---- */
static struct {
    atomic_int hang;        /* calls from now on wait until it is 0 */
    atomic_int most;        /* of them; the others go on */
    atomic_int hanging;     /* do so now */
    atomic_int fail;        /* error of pwrite */
    atomic_int fail_sync;   /* of fsync */
    atomic_bool no_direct;  /* direct writes are refused */
    atomic_int direct, all; /* writes */
    atomic_int
        flip; /* the first write from this one on, by number, leaves another byte on the disk; 0: none */
    struct timespec begun; /* with a rate: bytes a second, */
    double rate;           /* which writes must not be ahead of */
    atomic_llong bytes;
    atomic_int ahead;
} store;

static double seconds_since(struct timespec a)
{
    struct timespec b;
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}
static void note_bytes(int64_t n)
{
    if (!(store.rate > 0)) return;
    double all = (double)(store.bytes += n);
    store.ahead += !(all <= store.rate * seconds_since(store.begun));
}
static void spoil(int fd, off_t at)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR);
    unsigned char x = 0;
    if (again < 0 || pread(again, &x, 1, at + 5) != 1) abort();
    x ^= 4;
    if (syscall(SYS_pwrite64, again, &x, 1, at + 5) != 1 || syscall(SYS_fsync, again)) abort();
    close(again);
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}
static void pass(void)
{
    if (!store.hang) return;
    if (store.hanging++ < store.most)
        while (store.hang) nap();
    store.hanging--;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    bool direct = fcntl(fd, F_GETFL) & O_DIRECT;
    pass();
    int number = ++store.all, flip = store.flip;
    store.direct += direct;
    errno = store.fail ? store.fail : EINVAL;
    if (store.fail || (direct && store.no_direct)) return -1;
    note_bytes((int64_t)n);
    ssize_t done = syscall(SYS_pwrite64, fd, p, n, at);
    if (flip && number >= flip && atomic_exchange(&store.flip, 0)) spoil(fd, at);
    return done;
}
int fsync(int fd)
{
    errno = store.fail_sync;
    return errno ? -1 : (int)syscall(SYS_fsync, fd);
}

/* ---- a process ---- */
enum { RANKS = 2, ITEMS = 5, COLS = 100, ROWS = 150, PER = ROWS / RANKS * COLS, FOR_EVER = 100 };
struct process {
    struct mt_ckpt_item item[ITEMS];
    struct mt_ckpt_piece piece[ITEMS * RANKS];
    struct mt_ckpt_items items;
    struct mt_parts parts;
    struct mt_writers *w;
    char *buffer;
    float data[ITEMS * RANKS][PER];
};

static void fill(struct process *p, float x)
{
    for (int i = 0; i < ITEMS * RANKS; i++)
        for (int k = 0; k < PER; k++) p->data[i][k] = x + (float)(i * PER + k);
}

/* Each rank has half the rows of every item; the update overwrites the last item first. */
static void open_process(struct process *p, struct mt_writers_options o)
{
    static const int64_t when[ITEMS] = {4, 3, 2, 1, 0};
    mt_err e = {0};
    memset(p, 0, sizeof *p);
    memset(&store, 0, sizeof store);
    store.most = 100;
    for (int i = 0; i < ITEMS; i++) {
        p->item[i] =
            (struct mt_ckpt_item){.rows = ROWS, .cols = COLS, .touch = i, .first = i * RANKS, .n = RANKS};
        snprintf(p->item[i].name, sizeof p->item[i].name, "item.%d", i);
        for (int r = 0; r < RANKS; r++)
            p->piece[i * RANKS + r] = (struct mt_ckpt_piece){
                .data = p->data[i * RANKS + r], .row0 = r * ROWS / RANKS, .rows = ROWS / RANKS, .rank = r};
    }
    p->items =
        (struct mt_ckpt_items){.item = p->item, .piece = p->piece, .n = ITEMS, .n_pieces = ITEMS * RANKS};
    fill(p, 1);
    o.chunk = o.chunk ? o.chunk : 8192;
    p->buffer = o.buffer = aligned_alloc(MT_PART_ALIGN, (size_t)(o.chunk * 8));
    CHECK_INT(mt_parts_open(&p->parts, &p->items, RANKS, when, &e), MT_OK);
    CHECK_INT(mt_writers_open(&p->w, &o, &p->parts, &e), MT_OK);
}
static void close_process(struct process *p)
{
    store.hang = 0;
    CHECK(mt_writers_close(p->w));
    mt_parts_close(&p->parts);
    free(p->buffer);
}

static const char *folder(int i)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%d", run_folder(), i);
    return path;
}

/* The file of a rank holds what the items had when x was in them. */
static void check_file(const struct process *p, const char *in, int rank, float x)
{
    static struct {
        unsigned char at[1 << 19];
    } b;
    char path[300];
    snprintf(path, sizeof path, "%s/rank-%05d.safetensors", in, rank);
    FILE *f = fopen(path, "rb");
    if (!CHECK(f)) return;
    int64_t n = (int64_t)fread(b.at, 1, sizeof b.at, f);
    fclose(f);
    const struct mt_part_file *want = &p->parts.file[rank];
    CHECK_INT(n, want->bytes);
    CHECK_INT(n, want->head_bytes + ITEMS * PER * 4);
    CHECK(!memcmp(b.at, want->head, (size_t)want->head_bytes));
    bool same = true;
    for (int i = 0; i < ITEMS; i++) { /* in the order of the update */
        const float *got = (const float *)(const void *)(b.at + want->head_bytes) + i * PER;
        for (int k = 0; k < PER; k++)
            same &= got[k] == x + (float)(((ITEMS - 1 - i) * RANKS + rank) * PER + k);
    }
    CHECK(same);
    uint64_t sum = mt_xxh3(b.at, n);
    char text[80];
    snprintf(text, sizeof text, "{\"file\": {\"bytes\": %" PRId64 ", \"xxh3\": \"%016" PRIx64 "\"}", n, sum);
    snprintf(path, sizeof path, "%s/rank-%05d.json", in, rank);
    f = fopen(path, "rb");
    if (!CHECK(f)) return;
    n = (int64_t)fread(b.at, 1, sizeof b.at - 1, f);
    fclose(f);
    b.at[n] = 0;
    CHECK(!strncmp((const char *)b.at, text, strlen(text)));
    snprintf(text, sizeof text, "\"item.%d@%d\": {\"shape\": [150,100], \"row\": %d, \"xxh3\": ", 2,
             75 * rank, 75 * rank);
    CHECK(strstr((const char *)b.at, text));
}

static void save(struct process *p, int i, enum mt_written want, const char *says)
{
    mt_err e = {0};
    CHECK_INT(mt_writers_begin(p->w, folder(i), &e), MT_OK);
    CHECK_INT(mt_writers_wait(p->w, FOR_EVER, &e), want);
    if (want == MT_WRITTEN_FAILED && !CHECK(strstr(e.msg, says))) printf("    %s\n", e.msg);
}

/* The sums of all ranks. */
static bool exists_both(int i)
{
    char path[RANKS][300];
    for (int r = 0; r < RANKS; r++) snprintf(path[r], sizeof path[r], "%s/rank-%05d.json", folder(i), r);
    return exists(path[0]) && exists(path[1]);
}

static void check_files(const struct process *p, int i, float x)
{
    for (int r = 0; r < RANKS; r++) check_file(p, folder(i), r, x);
}

TEST(files_hold_the_bytes)
{
    static struct process p;
    static const struct mt_writers_options o[] = {{.threads = 0},
                                                  {.threads = 1},
                                                  {.threads = 4},
                                                  {.threads = 3, .chunk = 4096},
                                                  {.threads = 2, .chunk = 1 << 20}};
    for (int i = 0; i < 5; i++) {
        open_process(&p, o[i]);
        save(&p, i, MT_WRITTEN_DONE, "");
        check_files(&p, i, 1);
        fill(&p, 2);
        save(&p, 10 + i, MT_WRITTEN_DONE, "");
        check_files(&p, 10 + i, 2);
        save(&p, i, MT_WRITTEN_DONE, ""); /* over other files */
        check_files(&p, i, 2);
        close_process(&p);
    }
}

TEST(stores_without_direct_writes)
{
    static struct process p;
    open_process(&p, (struct mt_writers_options){.threads = 2});
    store.no_direct = true;
    save(&p, 0, MT_WRITTEN_DONE, "");
    check_files(&p, 0, 1);
    int refused = store.direct;
    store.no_direct = false;
    save(&p, 1, MT_WRITTEN_DONE, "");
    printf("  %d of %d writes were direct, %d were refused\n", store.direct - refused, store.all, refused);
    CHECK(refused <= RANKS * 2); /* both writers may try before the first is told */
    close_process(&p);
}

/* ---- the gate ---- */
struct update {
    struct process *p;
    int rank;
};
/* Overwrites a rank's items in the order of the update, each as soon as it may. */
static void *update(void *arg)
{
    struct update *u = arg;
    for (int when = 0; when < ITEMS; when++) {
        mt_writers_gate(u->p->w, u->rank, when);
        float *x = u->p->data[(ITEMS - 1 - when) * RANKS + u->rank];
        for (int k = 0; k < PER; k++) x[k] = -1;
    }
    return NULL;
}

static void save_and_update(struct process *p, int i)
{
    pthread_t id[RANKS];
    struct update u[RANKS];
    mt_err e = {0};
    fill(p, 3);
    CHECK_INT(mt_writers_begin(p->w, folder(i), &e), MT_OK);
    for (int r = 0; r < RANKS; r++) {
        u[r] = (struct update){p, r};
        if (pthread_create(&id[r], NULL, update, &u[r])) abort();
    }
    CHECK_INT(mt_writers_wait(p->w, FOR_EVER, &e), MT_WRITTEN_DONE);
    for (int r = 0; r < RANKS; r++) pthread_join(id[r], NULL);
    check_files(p, i, 3);
    CHECK(p->data[0][0] < 0 && p->data[ITEMS * RANKS - 1][PER - 1] < 0);
}

TEST(what_is_overwritten_behind_the_gate_is_not_saved)
{
    static struct process p;
    for (int i = 0; i < 30; i++) {
        open_process(&p, (struct mt_writers_options){.threads = 1 + i % 3, .chunk = 4096 << i % 3});
        save_and_update(&p, i);
        close_process(&p);
    }
}

/* At a rate of a file in half a second, from the first byte on: the update waits, and writing takes its time. */
TEST(a_low_rate_is_kept)
{
    static struct process p;
    static const int64_t chunks[] = {8192, 65536, 1 << 20};
    for (int i = 0; i < 3; i++) {
        open_process(&p, (struct mt_writers_options){.threads = 2, .rate = 600000, .chunk = chunks[i]});
        store.rate = 600000;
        clock_gettime(CLOCK_MONOTONIC, &store.begun);
        save_and_update(&p, i);
        double s = seconds_since(store.begun), least = (double)p.parts.bytes / 600000;
        struct mt_writers_report r = mt_writers_report(p.w);
        printf("  %.2f s, at least %.2f; the update waited %.2f s\n", s, least, r.stalled_s);
        CHECK(s >= least && r.write_s >= least && r.stalled_s > 0);
        CHECK_INT(store.ahead, 0);
        close_process(&p);
    }
}

/* A disk that keeps another byte than it was given, be it of the header, of a tensor, or in the last write of a file. */
TEST(what_is_read_back)
{
    static struct process p;
    for (int i = 0; i < 3; i++) {
        open_process(&p, (struct mt_writers_options){.threads = i, .check = true});
        save(&p, 0, MT_WRITTEN_DONE, "");
        int all = store.all;
        for (int k = 0; k < 4; k++) {
            store.no_direct = k == 3;
            store.flip = store.all + (const int[]){1, 7, all / RANKS, 3}[k];
            save(&p, 10 + 10 * i + k, MT_WRITTEN_FAILED, "' is not what was written: read back, its ");
            CHECK(!exists_both(10 + 10 * i + k));
            store.flip = 0;
            save(&p, 1, MT_WRITTEN_DONE, "");
            check_files(&p, 1, 1);
        }
        close_process(&p);
    }
    open_process(&p, (struct mt_writers_options){.threads = 1});
    store.flip = 7;
    save(&p, 2, MT_WRITTEN_DONE, ""); /* who does not look does not see it */
    close_process(&p);
}

/* What has been read may be overwritten, though not one byte of it is written; the rest may not. */
TEST(the_gate_waits_for_nothing_else)
{
    static struct process p;
    mt_err e = {0};
    /* head and the first two pieces of rank 0, which come to 64096 bytes, fit into four buffers; a piece more does not */
    open_process(&p, (struct mt_writers_options){.threads = 4, .chunk = 16384, .timeout_s = 0.3});
    store.hang = 1;
    CHECK_INT(mt_writers_begin(p.w, folder(0), &e), MT_OK);
    mt_writers_gate(p.w, 0, 1);
    CHECK_INT(mt_writers_look(p.w, &e), MT_WRITTEN_BUSY);
    mt_writers_gate(p.w, 0, 2); /* until its time is over */
    CHECK_INT(mt_writers_look(p.w, &e), MT_WRITTEN_FAILED);
    CHECK(strstr(e.msg, "after 0.3 s the store has not taken what the next update overwrites"));
    close_process(&p);
}

TEST(the_gate_is_open_when_nothing_is_saved)
{
    static struct process p;
    open_process(&p, (struct mt_writers_options){.threads = 1});
    for (int when = 0; when < ITEMS; when++) mt_writers_gate(p.w, 0, when);
    save(&p, 0, MT_WRITTEN_DONE, "");
    for (int when = 0; when < ITEMS; when++) mt_writers_gate(p.w, 1, when);
    mt_writers_gate(p.w, 7, 0); /* a rank that writes nothing */
    close_process(&p);
}

/* ---- failures ---- */
TEST(errors_are_told_and_the_next_save_succeeds)
{
    static struct process p;
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS};
    for (int threads = 0; threads < 4; threads++) {
        open_process(&p, (struct mt_writers_options){.threads = threads});
        for (int i = 0; i < 4; i++) {
            store.fail = errors[i];
            save(&p, 0, MT_WRITTEN_FAILED, strerror(errors[i]));
            store.fail = 0;
            save(&p, 1, MT_WRITTEN_DONE, "");
            check_files(&p, 1, 1);
            store.fail_sync = errors[i];
            save(&p, 2, MT_WRITTEN_FAILED, strerror(errors[i]));
            store.fail_sync = 0;
            save(&p, 2, MT_WRITTEN_DONE, "");
            check_files(&p, 2, 1);
        }
        close_process(&p);
    }
}

static mt_status refuse(void *arg, mt_err *e)
{
    MT_FAIL(e, MT_IO, "%s", (const char *)arg);
}
static mt_status count(void *arg, mt_err *e)
{
    (void)e;
    ++*(int *)arg;
    return MT_OK;
}

TEST(a_function_is_called_once)
{
    static struct process p;
    mt_err e = {0};
    char why[] = "no such thing";
    int n = 0;
    open_process(&p, (struct mt_writers_options){.threads = 4, .prepare = refuse, .arg = why});
    save(&p, 0, MT_WRITTEN_FAILED, why); /* before the first file */
    CHECK(!exists(folder(0)));
    CHECK_INT(mt_writers_call(p.w, count, &n, &e), MT_OK);
    CHECK_INT(mt_writers_wait(p.w, FOR_EVER, &e), MT_WRITTEN_DONE);
    CHECK_INT(n, 1);
    CHECK_INT(mt_writers_call(p.w, refuse, why, &e), MT_OK);
    CHECK_INT(mt_writers_wait(p.w, FOR_EVER, &e), MT_WRITTEN_FAILED);
    CHECK_STR(e.msg, why);
    close_process(&p);
}

static void wait_for_hanging(int n)
{
    while (store.hanging < n) nap();
}

/* So many writers hang in a save, which is given up. */
static void hang(struct process *p, int i, int hanging)
{
    mt_err e = {0};
    CHECK_INT(mt_writers_begin(p->w, folder(i), &e), MT_OK);
    wait_for_hanging(hanging);
    CHECK_INT(mt_writers_wait(p->w, 0.01, &e), MT_WRITTEN_BUSY);
    mt_writers_cancel(p->w, "it hangs");
    CHECK_INT(mt_writers_look(p->w, &e), MT_WRITTEN_FAILED);
    CHECK_STR(e.msg, "it hangs");
    mt_writers_gate(p->w, 0, ITEMS); /* open */
}

/* Writers that hang stay where they are; what they write when they come back harms nothing. */
TEST(a_store_that_hangs)
{
    static struct process p;
    mt_err e = {0};
    open_process(&p, (struct mt_writers_options){.threads = 2});
    store.hang = 1;
    hang(&p, 0, 2);
    CHECK_INT(store.hanging, 2);
    hang(&p, 1, 3); /* the one in reserve, too */
    fill(&p, 7);
    CHECK(failed_so(mt_writers_begin(p.w, folder(0), &e), &e, MT_IO,
                    "every writer still hangs in an earlier save"));
    CHECK_INT(mt_writers_call(p.w, count, &(int){0}, &e), MT_IO);
    store.hang = 0;
    while (store.hanging) nap();
    for (int i = 0; i < 2; i++) {
        save(&p, i, MT_WRITTEN_DONE, ""); /* the same files */
        check_files(&p, i, 7);
    }
    close_process(&p);
}

/* The store works again, but not for those who hang. */
TEST(the_one_in_reserve)
{
    static struct process p;
    open_process(&p, (struct mt_writers_options){.threads = 2});
    store.most = 2;
    store.hang = 1;
    hang(&p, 0, 2);
    for (int i = 0; i < 3; i++) {
        fill(&p, (float)(8 + i));
        save(&p, i, MT_WRITTEN_DONE, "");
        check_files(&p, i, (float)(8 + i));
    }
    CHECK_INT(store.hanging, 2);
    close_process(&p);
}

/* The others do the next save, of the same files, and another; only then does it go on with the old one. */
TEST(one_writer_hangs)
{
    static struct process p;
    for (int i = 0; i < 8; i++) {
        open_process(&p, (struct mt_writers_options){.threads = 3, .chunk = 4096 << i});
        store.most = 1;
        store.hang = 1;
        hang(&p, i, 1);
        fill(&p, 5);
        save(&p, i, MT_WRITTEN_DONE, "");
        check_files(&p, i, 5);
        save(&p, 20 + i, MT_WRITTEN_DONE, "");
        CHECK_INT(store.hanging, 1);
        store.hang = 0;
        while (store.hanging) nap();
        save(&p, 40 + i, MT_WRITTEN_DONE, "");
        for (int k = 0; k < 3; k++) check_files(&p, i + 20 * k, 5);
        close_process(&p);
    }
}

TEST(closed_while_it_hangs)
{
    static struct process p;
    mt_err e = {0};
    open_process(&p, (struct mt_writers_options){.threads = 2});
    store.hang = 1;
    CHECK_INT(mt_writers_begin(p.w, folder(0), &e), MT_OK);
    wait_for_hanging(1);
    CHECK(!mt_writers_close(p.w)); /* left behind, with what it uses */
    store.hang = 0;
    while (store.hanging) nap();
}

int main(void)
{
    RUN(files_hold_the_bytes);
    RUN(stores_without_direct_writes);
    RUN(what_is_overwritten_behind_the_gate_is_not_saved);
    RUN(a_low_rate_is_kept);
    RUN(what_is_read_back);
    RUN(the_gate_waits_for_nothing_else);
    RUN(the_gate_is_open_when_nothing_is_saved);
    RUN(errors_are_told_and_the_next_save_succeeds);
    RUN(a_function_is_called_once);
    RUN(a_store_that_hangs);
    RUN(the_one_in_reserve);
    RUN(one_writer_hangs);
    RUN(closed_while_it_hangs);
    remove_temporary_folder();
    return DONE();
}
