/* test: variants=cuemu */
/* Checkpoints of the cuda device, under the emulator. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "ckpt/file.h"
#include "small_model.h"
#include "train/replicas.h"
#include "train/run.h"

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
    small_batch(&from, 0, 0);
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
    small_batch(t, 0, 0);
    CHECK(mt_session_run(&t->s, mt_train_step, &e) == MT_OK && ranks_values_take(want, t));
    r->at.step = 1;
    held = true;
    mt_run_save(r);
    CHECK(mt_saver_under_way(r->saver)); /* nobody waited for it */
    struct mt_touching *touch = &t->s.rank[0].step.rank.touch;
    struct update u = {.gate = *touch};
    *touch = (struct mt_touching){release, &u};
    small_batch(t, 1, 0);
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

/* Weights in the device's memory: alike in both replicas; a bit that flips is found. */
TEST(replicas)
{
    struct training t = {0};
    struct mt_replicas x;
    struct mt_nodes nodes;
    const struct mt_job job = mt_job_alone(2);
    unsigned char byte;
    mt_err e = {0};
    if (!small_open(&t, "device.type=cuda mesh.replicas=2 guard.replica_hash_interval=1", 2)) return;
    CHECK(mt_nodes_open(&nodes, &job, &e) == MT_OK);
    CHECK(mt_replicas_open(&x, &t.s, &e) == MT_OK);
    small_batch(&t, 0, 0);
    CHECK(mt_session_run(&t.s, mt_train_step, &e) == MT_OK);
    CHECK_INT(mt_replicas_check(&x, &t.s, &nodes, 1, &e), MT_OK);
    const struct mt_ctx *c = &t.s.rank[1].ctx;
    char *at = mt_address(c, mt_store_local_state(&t.s.rank[1].model.store, 0, MT_STATE_MASTER));
    CHECK(mt_copy_now(c, &byte, at + 2, 1, &e) == MT_OK);
    byte ^= 4;
    CHECK(mt_copy_now(c, at + 2, &byte, 1, &e) == MT_OK);
    CHECK_INT(mt_replicas_check(&x, &t.s, &nodes, 2, &e), MT_CORRUPT);
    if (!CHECK(strstr(e.msg, "rank 1"))) printf("  %s\n", e.msg);
    mt_replicas_close(&x);
    mt_nodes_close(&nodes);
    training_close(&t);
}

int main(void)
{
    RUN(checkpoint);
    RUN(saved_while_it_trains);
    RUN(replicas);
    return DONE();
}
