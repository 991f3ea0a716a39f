/* What the guard knows, allows and decides; and a step that is above its limits. */
#include <unistd.h>

#include "train/guard.h"
#include "training.h"

static mt_config cfg_;
static struct mt_guard guard_;
static void begin(void)
{
    mt_err e = {0};
    mt_config_defaults(&cfg_);
    cfg_.guard_spike = MT_ON_SPIKE_SKIP;
    cfg_.guard_spike_window = 3;
    cfg_.guard_spike_factor = 2;
    cfg_.guard_spike_norm_factor = 4;
    CHECK(mt_guard_open(&guard_, &cfg_, &e) == MT_OK);
}

TEST(limits_follow_the_last_steps)
{
    struct mt_step t = {.loss_limit = 5, .norm_limit = 5};
    begin();
    for (int i = 0; i < 5; i++) {
        mt_guard_limit(&guard_, &t);
        CHECK_CLOSE(t.loss_limit, i < 3 ? 0 : 2 * (99 + i), 1e-12); /* losses of 100 + step */
        CHECK_CLOSE(t.norm_limit, i < 3 ? 0 : 4 * (i - 1), 1e-12);
        mt_guard_add(&guard_, 101 + i, i + 1);
    }
    cfg_.guard_spike = MT_ON_SPIKE_OFF;
    mt_guard_limit(&guard_, &t);
    CHECK(!(t.loss_limit > 0) && !(t.norm_limit > 0));
    mt_guard_close(&guard_);
}

TEST(verdicts)
{
    struct mt_step t = {.loss = 30, .valid = 10, .norm = 2, .loss_limit = 2.5, .norm_limit = 9};
    begin();
    struct mt_guard_verdict v = mt_guard_judge(&guard_, &t);
    CHECK(v.spike && v.what == MT_GUARD_SKIP);
    CHECK_STR(v.why, "the loss is 3 and the gradient norm 2; after the last 3 steps a loss of 2.5 is allowed "
                     "and a norm of 9");
    cfg_.guard_spike = MT_ON_SPIKE_ROLLBACK;
    CHECK(mt_guard_judge(&guard_, &t).what == MT_GUARD_ROLLBACK);
    cfg_.guard_spike = MT_ON_SPIKE_ABORT;
    CHECK(mt_guard_judge(&guard_, &t).what == MT_GUARD_ABORT);
    t.norm = (double)INFINITY;
    v = mt_guard_judge(&guard_, &t);
    CHECK(!v.spike && v.what == MT_GUARD_ABORT);
    CHECK_STR(v.why, "the loss is 3 and the gradient norm inf");
    cfg_.guard_nonfinite = MT_ON_NONFINITE_SKIP;
    CHECK(mt_guard_judge(&guard_, &t).what == MT_GUARD_SKIP);
    cfg_.guard_nonfinite = MT_ON_NONFINITE_ROLLBACK;
    CHECK(mt_guard_judge(&guard_, &t).what == MT_GUARD_ROLLBACK);
    mt_guard_close(&guard_);
}

/* Lines of metrics.jsonl: updates, validation, a step left out, and a rollback that takes back the update of step 4. */
TEST(the_metrics_are_recalled)
{
    static const char lines[] =
        "{\"step\": 1, \"tokens\": 64, \"loss\": 5, \"grad_norm\": 1.5, \"lr\": 0}\n"
        "{\"step\": 2, \"tokens\": 128, \"loss\": 4.25, \"grad_norm\": 1.25, \"lr\": 0}\n"
        "{\"step\": 2, \"val_loss\": 9}\n"
        "{\"step\": 3, \"skipped\": \"nonfinite\", \"loss\": null, \"grad_norm\": null}\n"
        "{\"step\": 4, \"tokens\": 256, \"loss\": 3, \"grad_norm\": 1, \"lr\": 0}\n"
        "{\"step\": 5, \"rollback\": 3, \"skipped\": \"spike\", \"loss\": 8, \"grad_norm\": 1}\n"
        "{\"step\": 6, \"tokens\": 384, \"loss\": 0.10000000000000001, \"grad_norm\": 2, \"lr\": 0}\n";
    char dir[] = "/tmp/test_guard.XXXXXX", path[64];
    struct mt_job job = mt_job_alone(1);
    struct mt_step t = {0};
    mt_err e = {0};
    begin();
    MT_ASSERT(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    snprintf(cfg_.run_dir, sizeof cfg_.run_dir, "%s", dir);
    CHECK(mt_guard_recall(&guard_, &job, &e) == MT_OK);
    CHECK_INT(guard_.n, 0);
    FILE *f = fopen(path, "w");
    fputs(lines, f);
    fclose(f);
    for (int i = 0; i < 2; i++) {
        CHECK(mt_guard_recall(&guard_, &job, &e) == MT_OK);
        CHECK_INT(guard_.n, 3);
        CHECK_INT(guard_.skips, 1);
        CHECK_INT(guard_.backs, 1);
        mt_guard_limit(&guard_, &t);
        CHECK(t.loss_limit == 2 * ((5 + 4.25 + 0.1) / 3));
        CHECK(t.norm_limit == 4 * ((1.5 + 1.25 + 2) / 3));
    }
    unlink(path);
    rmdir(dir);
    mt_guard_close(&guard_);
}

TEST(a_step_above_its_limit_changes_nothing)
{
    struct training t;
    if (!training_open(&t, TRAINING_BASE TRAINING_MOE)) return;
    struct mt_step *step = &t.s.rank[0].step;
    training_run(&t, mt_fill_step);
    training_steps(&t, 0, 1);
    double loss = training_loss(&t), norm = step->norm;
    for (int i = 0; i < 4; i++) {
        training_run(&t, mt_fill_step);
        step->loss = step->norm = 0;
        uint64_t before = training_hash(&t);
        step->loss_limit = i == 0 ? 0.99 * loss : i == 1 ? 1.01 * loss : 0;
        step->norm_limit = i == 2 ? 0.99 * norm : i == 3 ? 1.01 * norm : 0;
        training_batch(&t, 0);
        step->step = 0;
        training_run(&t, mt_train_step);
        CHECK(step->updated == (i == 1 || i == 3));
        step->loss = step->norm = 0;
        CHECK((training_hash(&t) == before) == (i == 0 || i == 2));
    }
    training_close(&t);
}

int main(void)
{
    RUN(limits_follow_the_last_steps);
    RUN(verdicts);
    RUN(the_metrics_are_recalled);
    RUN(a_step_above_its_limit_changes_nothing);
    return DONE();
}
