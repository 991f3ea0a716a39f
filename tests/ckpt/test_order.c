/* The order in which a save reaches the disk, and what is left if the system refuses or the process ends at
 * any of its calls. The calls below take the place of the C library's. */
#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct {
    char line[64][400];
    int n, fail_at, die_at; /* -1: never */
} calls = {.fail_at = -1, .die_at = -1};

static bool refused(const char *what, const char *path)
{
    if (calls.n == calls.die_at) _exit(0);
    if (calls.n < 64) snprintf(calls.line[calls.n], sizeof calls.line[0], "%s %s", what, path);
    if (calls.n++ != calls.fail_at) return false;
    errno = EIO;
    return true;
}

int fsync(int fd)
{
    char link[64], path[300];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return refused("sync", path) ? -1 : (int)syscall(SYS_fsync, fd);
}
int rename(const char *from, const char *to)
{
    return refused("rename", to) ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}
int mkdir(const char *path, mode_t mode)
{
    return refused("mkdir", path) ? -1 : mkdirat(AT_FDCWD, path, mode);
}
int unlinkat(int fd, const char *name, int flags)
{
    return refused("unlink", name) ? -1 : (int)syscall(SYS_unlinkat, fd, name, flags);
}
int rmdir(const char *path)
{
    return refused("rmdir", path) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

static void watch(int fail_at, int die_at)
{
    calls.n = 0;
    calls.fail_at = fail_at;
    calls.die_at = die_at;
}

static mt_status save(const struct world *w, int64_t step, mt_err *e)
{
    static mt_config cfg;
    struct mt_ckpt_meta meta = {.step = step};
    *e = (mt_err){0};
    mt_config_defaults(&cfg);
    return mt_ckpt_save(run_folder(), &w->items, &meta, &cfg, e);
}

/* Step of the newest valid one; -1. It is always of its own bits: those that fill_world gives by `seed`. */
static int64_t newest(struct world *r)
{
    char path[MT_CKPT_PATH];
    struct mt_ckpt_meta meta = {.step = -1};
    mt_err e = {0};
    watch(-1, -1);
    CHECK_INT(mt_ckpt_newest(run_folder(), path, &e), MT_OK);
    if (path[0]) CHECK_INT(load(path, &r->items, false, &meta, &e), MT_OK);
    return meta.step;
}

static void check_calls(const char *const *want, int n)
{
    CHECK_INT(calls.n, n);
    for (int i = 0; i < n && i < calls.n; i++) {
        char got[400], *at = strstr(calls.line[i], run_folder());
        size_t skip = strlen(run_folder());
        snprintf(got, sizeof got, "%s", calls.line[i]);
        if (at) snprintf(got + (at - calls.line[i]), 200, "RUN%.190s", at + skip);
        CHECK_STR(got, want[i]);
    }
}

TEST(files_then_folder_then_manifest)
{
    static struct world w;
    char parent[200];
    mt_err e;
    snprintf(parent, sizeof parent, "sync %s", temporary_folder());
#define STEP "RUN/ckpt/step-00000001"
    const char *want[] = {"mkdir RUN",
                          parent,
                          "mkdir RUN",
                          "mkdir RUN/ckpt",
                          "sync RUN",
                          "mkdir " STEP ".saving",
                          "sync RUN/ckpt",
                          "sync " STEP ".saving/rank-00000.safetensors",
                          "sync " STEP ".saving/rank-00000.json.tmp",
                          "rename " STEP ".saving/rank-00000.json",
                          "sync " STEP ".saving",
                          "sync " STEP ".saving/config.yaml",
                          "sync " STEP ".saving",
                          "sync " STEP ".saving/manifest.json.tmp",
                          "rename " STEP ".saving/manifest.json",
                          "sync " STEP ".saving",
                          "rename " STEP,
                          "sync RUN/ckpt"};
    make_world(&w, 1);
    CHECK_INT(mt_make_folders(temporary_folder(), &e), MT_OK);
    watch(-1, -1);
    CHECK_INT(save(&w, 1, &e), MT_OK);
    /* the folders above were there: their making is tried and refused by the system */
    int n = 0;
    for (int i = 0; i < calls.n; i++)
        if (strncmp(calls.line[i], "mkdir ", 6) || strstr(calls.line[i], check_.test))
            memmove(calls.line[n++], calls.line[i], sizeof calls.line[0]);
    calls.n = n;
    check_calls(want, sizeof want / sizeof *want);
}

TEST(the_manifest_goes_first)
{
    static struct world w;
    mt_err e;
    make_world(&w, 1);
    CHECK_INT(save(&w, 1, &e), MT_OK);
    CHECK_INT(save(&w, 2, &e), MT_OK);
    watch(-1, -1);
    CHECK_INT(mt_ckpt_prune(run_folder(), &(struct mt_ckpt_keep){.last = 1, .step = -1}, &e), MT_OK);
    CHECK_INT(calls.n, 6);
    CHECK_STR(calls.line[0], "unlink manifest.json");
    CHECK(!strncmp(calls.line[1], "sync ", 5) && strstr(calls.line[1], "/ckpt/step-00000001"));
    CHECK(!strncmp(calls.line[5], "rmdir ", 6));
}

static int calls_of_a_save(const struct world *w, int64_t step)
{
    mt_err e;
    watch(-1, -1);
    CHECK_INT(save(w, step, &e), MT_OK);
    return calls.n;
}

/* A new step: what is refused leaves the older one and nothing else, and the next try succeeds. */
TEST(any_call_may_fail)
{
    static struct world w, r;
    char folder[MT_CKPT_PATH];
    mt_err e;
    make_world(&w, 1);
    make_world(&r, 9);
    CHECK_INT(save(&w, 1, &e), MT_OK);
    int n = calls_of_a_save(&w, 2), refusals = 0;
    for (int at = 0; at < n; at++) {
        int64_t step = 3 + at;
        watch(at, -1);
        mt_status st = save(&w, step, &e);
        if (st == MT_OK) continue; /* a folder that was there already need not be made */
        refusals++;
        CHECK(failed_so(st, &e, MT_IO, "saving the checkpoint"));
        mt_ckpt_folder(run_folder(), step, folder);
        CHECK(!exists(folder));
        CHECK(newest(&r) < step);
        CHECK_INT(save(&w, step, &e), MT_OK);
        CHECK_INT(newest(&r), step);
    }
    CHECK(refusals >= 9);
}

/* The same step once more: the old one or the new one is there, whole. */
TEST(any_call_may_fail_in_a_replacement)
{
    static struct world old, new, r;
    mt_err e;
    make_world(&old, 1);
    make_world(&new, 2);
    make_world(&r, 9);
    CHECK_INT(save(&old, 1, &e), MT_OK);
    int n = calls_of_a_save(&old, 1), refusals = 0;
    for (int at = 0; at < n; at++) {
        CHECK_INT(save(&old, 1, &e), MT_OK);
        watch(at, -1);
        mt_status st = save(&new, 1, &e);
        refusals += st != MT_OK;
        CHECK_INT(newest(&r), 1);
        CHECK(same_world(&r, st == MT_OK ? &new : &old));
    }
    CHECK(refusals >= 9);
}

static void die_in_save(const struct world *w, int64_t step, int at)
{
    mt_err e;
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) abort();
    if (!child) {
        watch(-1, at);
        (void)!save(w, step, &e);
        _exit(1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
}

TEST(the_process_may_end_at_any_call)
{
    static struct world old, new, r;
    mt_err e;
    make_world(&old, 1);
    make_world(&new, 2);
    make_world(&r, 9);
    CHECK_INT(save(&old, 1, &e), MT_OK);
    int n = calls_of_a_save(&old, 2), whole = 0;
    for (int at = 0; at < n; at++) {
        int64_t step = 3 + at;
        die_in_save(&new, step, at);
        bool complete = newest(&r) == step;
        whole += complete;
        CHECK(same_world(&r, complete ? &new : &old));
        CHECK_INT(save(&old, step, &e), MT_OK); /* over whatever is left */
        CHECK_INT(mt_ckpt_prune(run_folder(), &(struct mt_ckpt_keep){.last = 1, .step = -1}, &e), MT_OK);
        CHECK_INT(newest(&r), step);
        CHECK(same_world(&r, &old));
    }
    CHECK(whole == 1); /* at the sync behind the rename */
}

int main(void)
{
    RUN(files_then_folder_then_manifest);
    RUN(the_manifest_goes_first);
    RUN(any_call_may_fail);
    RUN(any_call_may_fail_in_a_replacement);
    RUN(the_process_may_end_at_any_call);
    remove_temporary_folder();
    return DONE();
}
