/* test: variants=cuemu */
/* Checkpoints of the cuda device, under the emulator. */
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "ckpt/file.h"
#include "small_model.h"

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
        if (!CHECK(training_config(&t->cfg, i ? SMALL_MODEL "device.type=cpu"
                                              : SMALL_MODEL "device.type=cuda offload.moments=host")))
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

int main(void)
{
    RUN(checkpoint);
    return DONE();
}
