/* A sweep under way: what its folders say of runs, who is dominated, rounds of halving, what is due. No run is made here: the
 * folders are written by hand. */
#include "sweep/study.h"

#include "../data/files.h"
#include "ckpt/file.h"

#include <math.h>

static mt_sweep s;
static struct mt_study t;
static mt_err e;

/* The study of a sweep file of these lines, in the temporary folder's folder NAME. */
static void open_study(const char *name, const char *lines)
{
    char text[2048], path[300];
    int n = snprintf(text, sizeof text, "dir: %s\n%s", in_folder(name), lines);
    snprintf(path, sizeof path, "%s.yaml", in_folder(name));
    put_file(path, text, n);
    mt_study_close(&t);
    mt_sweep_close(&s);
    e = (mt_err){0};
    bool ok = mt_sweep_open(&s, path, &e) == MT_OK && mt_sweep_expand(&s, &e) == MT_OK &&
              mt_study_open(&t, &s, &e) == MT_OK;
    if (!CHECK(ok)) printf("  %s\n", e.msg);
}

/* Steps of a run: 100 tokens each, of so many seconds; the losses fall from `loss` by 0.1 a step. */
static void put_run(int point, int repeat, int steps, double seconds, double loss, int exit_code)
{
    char dir[512], path[600], line[512], name[32];
    snprintf(name, sizeof name, "run-%d", repeat + 1);
    CHECK(mt_study_path(&t, &t.point[point], name, dir, sizeof dir));
    CHECK_INT(mt_make_folders(dir, &e), MT_OK);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *f = fopen(path, "w");
    for (int i = 1; i <= steps; i++)
        fprintf(f,
                "{\"step\": %d, \"tokens\": %d, \"loss\": %.3f, \"tokens_per_s\": %.6f, \"mfu\": 0.5, "
                "\"device_bytes\": 1000, "
                "\"host_bytes\": 7}\n",
                i, 100 * i, loss - 0.1 * i, 100 / (i == 1 ? 50 : seconds));
    fprintf(f, "{\"step\": %d, \"val_loss\": 4.5}\n{\"step\": 99, \"loss\"", steps);
    fclose(f);
    snprintf(path, sizeof path, "%s.json", dir);
    int n = snprintf(line, sizeof line, "{\"exit_code\": %d, \"seconds\": 1.5, \"why\": \"so it is\"}\n",
                     exit_code);
    if (exit_code >= 0) put_file(path, line, n);
}
static int due(void)
{
    struct mt_study_item *list;
    int n;
    CHECK_INT(mt_study_due(&t, &list, &n, &e), MT_OK);
    free(list);
    return n;
}

TEST(numbers_of_a_run)
{
    open_study("one", "set: {train.steps: 20, optim.warmup_steps: 1}\nrepeats: 3\ndrop: 1\n");
    CHECK_INT(due(), 3);
    put_run(0, 0, 20, 0.5, 5, 0);
    put_run(0, 1, 20, 0.25, 5, 0);
    CHECK_INT(mt_study_collect(&t, &e), MT_OK);
    const struct mt_study_point *p = &t.point[0];
    CHECK_INT(p->done, 2);
    CHECK_INT(due(), 1);
    CHECK_CLOSE(p->run[0].value[MT_METRIC_TOKENS_PER_S], 200, 1e-3); /* without the first step */
    CHECK_CLOSE(p->run[0].value[MT_METRIC_STEP_S], 0.5, 1e-6);
    CHECK_CLOSE(p->run[0].value[MT_METRIC_LOSS], 3.05, 1e-9); /* of steps 19 and 20 */
    CHECK_CLOSE(p->run[0].value[MT_METRIC_VAL_LOSS], 4.5, 0);
    CHECK_CLOSE(p->run[0].value[MT_METRIC_MFU], 0.5, 1e-9);
    CHECK_CLOSE(p->run[0].value[MT_METRIC_DEVICE_BYTES], 1000, 0);
    CHECK_CLOSE(p->run[0].value[MT_METRIC_HOST_BYTES], 7, 0);
    CHECK_CLOSE(p->mean[MT_METRIC_TOKENS_PER_S], 300, 1e-3);
    CHECK_CLOSE(p->low[MT_METRIC_TOKENS_PER_S], 200, 1e-3);
    CHECK_CLOSE(p->high[MT_METRIC_TOKENS_PER_S], 400, 1e-3);
    CHECK(isnan(p->run[2].value[MT_METRIC_LOSS]));
    CHECK_CLOSE(p->run[0].seconds, 1.5, 0);
}

TEST(ends_of_runs)
{
    open_study("ends",
               "set: {train.steps: 10, optim.warmup_steps: 1}\ngrid: {train.seed: [1, 2, 3, 4, 5]}\n");
    put_run(0, 0, 10, 1, 5, 0);
    put_run(1, 0, 4, 1, 5, 75); /* stopped: goes on */
    put_run(2, 0, 4, 1, 5, 9);
    put_run(3, 0, 4, 1, 5, -1); /* killed, before anybody could note it */
    put_run(4, 0, 4, 1, 5, 0);  /* says it is done, and is not */
    CHECK_INT(mt_study_collect(&t, &e), MT_OK);
    CHECK_INT(t.point[0].run[0].state, MT_RUN_DONE);
    CHECK_INT(t.point[1].run[0].state, MT_RUN_WAITING);
    CHECK_INT(t.point[1].run[0].steps, 4);
    CHECK_INT(t.point[2].run[0].state, MT_RUN_FAILED);
    CHECK_STR(t.point[2].run[0].why, "so it is");
    CHECK_INT(t.point[2].failed, 1);
    CHECK_INT(t.point[3].run[0].state, MT_RUN_WAITING);
    CHECK_INT(t.point[4].run[0].state, MT_RUN_FAILED);
    CHECK_STR(t.point[4].run[0].why, "ended after 4 steps of 10");
    CHECK_INT(due(), 2);
    CHECK_INT(mt_study_forget_failures(&t, &e), MT_OK);
    CHECK_INT(due(), 4);
    char call[MT_CALL_BYTES];
    CHECK_INT(mt_study_call(&t, (struct mt_study_item){1, 0}, call, &e), MT_OK);
    CHECK(strstr(call, "/config.yaml\trun.dir=") && !strstr(call, "stop_after") && !strstr(call, "seed"));
}

TEST(seeds)
{
    char call[MT_CALL_BYTES];
    open_study("seeds", "set: {train.seed: 40}\nrepeats: 3\nseeds: different\n");
    CHECK_INT(mt_study_call(&t, (struct mt_study_item){0, 0}, call, &e), MT_OK);
    CHECK(!strstr(call, "train.seed"));
    CHECK_INT(mt_study_call(&t, (struct mt_study_item){0, 2}, call, &e), MT_OK);
    CHECK(strstr(call, "/run-3\ttrain.seed=42"));
}

/* The id is of what a configuration says, not of how it is said; one configuration runs once. */
TEST(ids)
{
    char id[17];
    open_study("ids",
               "list: [{train.steps: 2048}, {train.steps: 2k}, {train.steps: 2000}, {model.heads: 3}]\n");
    CHECK_INT(t.point[0].verdict, MT_POINT_RUNS);
    CHECK_INT(t.point[1].verdict, MT_POINT_RUNS);
    CHECK_INT(t.point[2].verdict, MT_POINT_TWICE);
    CHECK_STR(t.point[2].why, "the same configuration as point 2");
    CHECK_INT(t.point[3].verdict, MT_POINT_REFUSED);
    CHECK(strstr(t.point[3].why, "model.kv_heads"));
    memcpy(id, t.point[0].id, sizeof id);
    open_study("other", "set: {train.steps: 2Ki}\n");
    CHECK_STR(t.point[0].id, id);
    open_study("other", "set: {train.steps: 2Ki, train.seed: 9}\n");
    CHECK(strcmp(t.point[0].id, id) != 0);
}

static void planned(int i, double rate, int64_t device, int64_t host)
{
    t.point[i].planned = rate;
    t.point[i].peak[MT_DEVICE_ARENA] = device;
    t.point[i].peak[MT_HOST_ARENA] = host;
}
TEST(domination)
{
    open_study("plans", "grid: {train.seed: [1, 2, 3, 4, 5, 6]}\nbaseline: {train.seed: 6}\n");
    planned(0, 100, 50, 10);
    planned(1, 109, 50, 10); /* within the margin of the first */
    planned(2, 90, 49, 10);  /* slower, and smaller */
    planned(3, 90, 50, 10);  /* beaten by 1 */
    planned(4, 95, 60, 9);   /* larger, but less of the host's */
    planned(5, 10, 90, 90);  /* the baseline runs, whatever is planned of it */
    mt_study_dominate(&t);
    for (int i = 0; i < 6; i++) CHECK_INT(t.point[i].verdict, i == 3 ? MT_POINT_DOMINATED : MT_POINT_RUNS);
    CHECK_STR(t.point[3].why, "point 2 is planned to be 1.21 times as fast, in no more memory");
    open_study("plans", "grid: {train.seed: [1, 2]}\nplan.dominated: run\n");
    planned(0, 100, 50, 10);
    planned(1, 900, 50, 10);
    mt_study_dominate(&t);
    CHECK_INT(t.point[0].verdict, MT_POINT_RUNS);
    open_study("plans", "grid: {train.seed: [1, 2, 3]}\nmetric: loss\n");
    planned(1, 100, 50, 10);
    planned(2, 900, 50, 10);
    mt_study_dominate(&t);
    CHECK_INT(t.point[1].verdict, MT_POINT_RUNS); /* speed is not what is asked for */
}

TEST(what_fits)
{
    open_study("fits", "set: {train.steps: 1000, model.dim: 64, device.memory: 40MiB}\n"
                       "grid: {train.seq_len: [64, 64Ki]}\n");
    CHECK_INT(mt_study_plan(&t, &e), MT_OK);
    if (!CHECK_INT(t.point[0].verdict, MT_POINT_RUNS)) printf("  %s\n", t.point[0].why);
    CHECK_INT(t.point[1].verdict, MT_POINT_TOO_LARGE);
    CHECK(strstr(t.point[1].why, "device memory: ") && strstr(t.point[1].why, " MiB of 40.00"));
    CHECK(t.point[0].peak[MT_DEVICE_ARENA] > 0 && t.point[0].planned <= 0);
    int64_t peak = t.point[0].peak[MT_DEVICE_ARENA];
    /* Kept: the same without planning again. */
    char path[512], line[256];
    CHECK(mt_study_path(&t, &t.point[0], "plan", path, sizeof path));
    int64_t n = get_file(path, line, sizeof line - 1);
    CHECK(n > 30);
    open_study("fits", "set: {train.steps: 1000, model.dim: 64, device.memory: 40MiB}\n"
                       "grid: {train.seq_len: [64, 64Ki]}\n");
    CHECK_INT(mt_study_plan(&t, &e), MT_OK);
    CHECK_INT(t.point[0].peak[MT_DEVICE_ARENA], peak);
    CHECK_INT(t.point[1].verdict, MT_POINT_TOO_LARGE);
    /* With a cluster, times too. */
    open_study(
        "fits",
        "set: {train.steps: 1000, model.dim: 64}\ngrid: {train.seq_len: [64, 128]}\nplan.cluster: laptop\n");
    CHECK_INT(mt_study_plan(&t, &e), MT_OK);
    CHECK(t.point[0].planned > 0 && t.point[1].planned > 0);
    open_study("fits", "plan.cluster: nowhere.yaml\n");
    CHECK_INT(mt_study_plan(&t, &e), MT_CONFIG);
}

static int left(void)
{
    int n = 0;
    for (int i = 0; i < t.n; i++) n += t.point[i].left;
    return n;
}
TEST(halving)
{
    static const char lines[] =
        "set: {train.steps: 20, optim.warmup_steps: 1}\ngrid: {train.seed: [1, 2, 3, 4, 5, 6, 7]}\n"
        "metric: loss\nhalving: {from: 3, factor: 3}\nbaseline: {train.seed: 7}\n";
    char call[MT_CALL_BYTES];
    open_study("halves", lines);
    CHECK_INT(t.rounds, 3); /* 3, 9, 20 steps */
    CHECK_INT(mt_study_collect(&t, &e), MT_OK);
    CHECK_INT(due(), 7);
    CHECK_INT(t.point[0].due, 3);
    for (int i = 0; i < 7; i++) put_run(i, 0, 3, 1, 5 + i, 75);
    CHECK_INT(mt_study_collect(&t, &e), MT_OK);
    CHECK_INT(left(), 3); /* three of seven go on, and the baseline */
    CHECK_INT(due(), 4);
    CHECK_INT(t.point[2].due, 9);
    CHECK(t.point[3].left && t.point[5].left && !t.point[6].left);
    CHECK_STR(t.point[3].why, "left out after round 1 of 3: place 4 of 7");
    CHECK_INT(mt_study_call(&t, (struct mt_study_item){2, 0}, call, &e), MT_OK);
    CHECK(strstr(call, "\trun.stop_after=6"));
    put_run(0, 0, 9, 1, 8, 75); /* now the worst */
    put_run(1, 0, 9, 1, 6, 75);
    put_run(2, 0, 9, 1, 7, 1); /* failed behind the steps that were due: it has them */
    put_run(6, 0, 9, 1, 11, 75);
    CHECK_INT(mt_study_collect(&t, &e), MT_OK);
    /* Rounds are judged by their own steps: of three steps those of round 1 were the same as before but of point 0. */
    CHECK_INT(due(), 2);
    CHECK(!t.point[1].left && !t.point[6].left && t.point[0].left);
    CHECK(t.point[2].left);
    CHECK_INT(t.point[1].due, 20);
    CHECK_INT(mt_study_call(&t, (struct mt_study_item){1, 0}, call, &e), MT_OK);
    CHECK(!strstr(call, "stop_after"));
    put_run(1, 0, 20, 1, 6, 0);
    put_run(6, 0, 20, 1, 11, 0);
    open_study("halves", lines);
    CHECK_INT(mt_study_collect(&t, &e), MT_OK);
    int order[7];
    mt_study_order(&t, order);
    CHECK_INT(order[0], 1);
    CHECK_INT(due(), 0);
}

/* What failed does not take a place, nor does halving hide that it failed. */
TEST(halving_of_failures)
{
    open_study("fails", "set: {train.steps: 9, optim.warmup_steps: 1}\ngrid: {train.seed: [1, 2, 3, 4]}\n"
                        "metric: loss\nhalving: {from: 3, factor: 2}\n");
    CHECK_INT(mt_study_collect(&t, &e), MT_OK);
    CHECK_INT(due(), 4);
    put_run(0, 0, 3, 1, 8, 75);
    put_run(1, 0, 3, 1, 7, 75);
    put_run(2, 0, 3, 1, 6, 75);
    put_run(3, 0, 0, 1, 0, 4);
    CHECK_INT(mt_study_collect(&t, &e), MT_OK);
    CHECK(!t.point[1].left && !t.point[2].left && !t.point[3].left);
    CHECK_INT(t.point[3].failed, 1);
    CHECK_STR(t.point[3].why, "");
    CHECK_INT(due(), 3); /* the baseline is the first */
    CHECK_INT(mt_study_forget_failures(&t, &e), MT_OK);
    CHECK_INT(due(), 1);
    CHECK_INT(t.point[3].due, 3); /* its first round, before the others' second */
}

int main(void)
{
    RUN(numbers_of_a_run);
    RUN(ends_of_runs);
    RUN(seeds);
    RUN(ids);
    RUN(domination);
    RUN(what_fits);
    RUN(halving);
    RUN(halving_of_failures);
    mt_study_close(&t);
    mt_sweep_close(&s);
    remove_temporary_folder();
    return DONE();
}
