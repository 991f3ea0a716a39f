/* Sweep files: which points there are and in which order, what is refused and where. */
#include "config/sweep.h"
#include "helper.h"

static mt_sweep s;
static mt_err e;

/* "" or the message. Points are there after "". */
static const char *points(const char *text)
{
    e = (mt_err){0};
    mt_sweep_close(&s);
    mt_status st = mt_sweep_parse(&s, "dir/t.yaml", text, strlen(text), &e);
    s.base[0] = 0; /* the table's defaults */
    if (st == MT_OK) st = mt_sweep_expand(&s, &e);
    CHECK_INT(st, e.code);
    return e.msg;
}
static const char *words(int i)
{
    static char out[512];
    return i < s.n ? mt_sweep_words(&s.point[i], out, sizeof out) : "(none)";
}

TEST(products)
{
    CHECK_STR(points("grid:\n  shard.prefetch: [1, 2]\n  recompute: {policy: [full, none]}\n"), "");
    CHECK_INT(s.n, 4);
    CHECK_STR(words(0), "shard.prefetch=1 recompute.policy=full");
    CHECK_STR(words(1), "shard.prefetch=1 recompute.policy=none");
    CHECK_STR(words(3), "shard.prefetch=2 recompute.policy=none");
    CHECK_INT(s.at_baseline, 0);
    CHECK_STR(s.o.dir, "runs/t");
    CHECK_STR(points("zip: {train.micro_batch: [1, 2], train.global_batch: [8, 16]}\n"
                     "list: [{optim.lr: 1e-3}, {}, {optim.lr: 0.002, optim.clip: 0.8}]\n"
                     "set: {train.steps: 20, optim: {lr: 0.1}}\n"
                     "grid: {shard.prefetch: [1, 2]}\n"),
              "");
    CHECK_INT(s.n, 12);
    CHECK_STR(words(0), "optim.lr=0.001 train.micro_batch=1 train.global_batch=8 shard.prefetch=1");
    CHECK_STR(words(3), "optim.lr=0.001 train.micro_batch=2 train.global_batch=16 shard.prefetch=2");
    CHECK_STR(words(4), "train.micro_batch=1 train.global_batch=8 shard.prefetch=1");
    CHECK_STR(words(11),
              "optim.lr=0.002 optim.clip=0.8 train.micro_batch=2 train.global_batch=16 shard.prefetch=2");
    CHECK_STR(mt_sweep_value(&s.point[4], MT_OPTION_optim_lr), "0.1");
    CHECK_STR(mt_sweep_value(&s.point[0], MT_OPTION_optim_lr), "0.001");
    CHECK_STR(mt_sweep_value(&s.point[0], MT_OPTION_train_steps), "20");
    CHECK(!mt_sweep_value(&s.point[0], MT_OPTION_train_seed));
    CHECK_STR(points("zip: [{train.micro_batch: [1, 2]}, {shard.prefetch: [1, 2, 3]}]\n"), "");
    CHECK_INT(s.n, 6);
    CHECK_STR(points("set: {train.steps: 20}\n"), "");
    CHECK_INT(s.n, 1);
    CHECK_STR(words(0), "as set");
}

/* Equal values are one text; lists and entries are values, too. */
TEST(values)
{
    CHECK_STR(points("grid: {train.seq_len: [1Ki, 2048], train.trace.steps: [[1, 2], []], "
                     "shard.groups: [[{match: \"layers.*\", placement: owned}], []]}\n"),
              "");
    CHECK_INT(s.n, 8);
    CHECK_STR(mt_sweep_value(&s.point[0], MT_OPTION_train_seq_len), "1024");
    CHECK_STR(mt_sweep_value(&s.point[7], MT_OPTION_train_seq_len), "2048");
    CHECK_STR(mt_sweep_value(&s.point[0], MT_OPTION_train_trace_steps), "[1, 2]");
    mt_config c;
    CHECK_INT(mt_sweep_config(&s, &s.point[0], true, &c, &e), MT_OK);
    CHECK_INT(c.shard_groups_count, 1);
    CHECK_STR(c.shard_groups[0].match, "layers.*");
    CHECK_INT(c.train_trace_steps.n, 2);
    CHECK_INT(c.train_seq_len, 1024);
    CHECK_INT(mt_sweep_config(&s, &s.point[7], true, &c, &e), MT_OK);
    CHECK_INT(c.shard_groups_count, 0);
}

TEST(conditions)
{
    CHECK_STR(points("grid: {train.micro_batch: [1, 2, 4], shard.prefetch: [1, 2, 3]}\n"
                     "where: [train.micro_batch * shard.prefetch <= 4, not (train.micro_batch == 1 and "
                     "shard.prefetch == 3)]\n"),
              "");
    CHECK_INT(s.n, 5);
    CHECK_INT(s.left_out, 4);
    CHECK_STR(words(4), "train.micro_batch=4 shard.prefetch=1");
    /* A condition is asked of values that rules would refuse. */
    CHECK_STR(points("grid: {train.micro_batch: [1, 3], train.global_batch: [4]}\nwhere: train.global_batch "
                     "% train.micro_batch == 0\n"),
              "");
    CHECK_INT(s.n, 1);
    CHECK_STR(points("grid: {train.micro_batch: [1, 2]}\nwhere: train.micro_batch > 4\n"),
              "dir/t.yaml: where holds for none of 2 combinations");
    CHECK_STR(points("grid: {train.micro_batch: [1, 2]}\n\nwhere: train.micro > 4\n"),
              "dir/t.yaml:3:8: where: train.micro > 4: at character 1: no option 'train.micro'");
}

TEST(baselines)
{
    CHECK_STR(points("grid: {shard.prefetch: [1, 2], train.micro_batch: [1, 2]}\nbaseline: "
                     "{train.micro_batch: 2, shard.prefetch: 2}\n"),
              "");
    CHECK_INT(s.n, 4);
    CHECK_INT(s.at_baseline, 3);
    CHECK_STR(
        points("grid: {shard.prefetch: [1, 2]}\nset: {train.steps: 20}\nbaseline: {shard.prefetch: 3}\n"),
        "");
    CHECK_INT(s.n, 3);
    CHECK_INT(s.at_baseline, 0);
    CHECK_STR(words(0), "shard.prefetch=3");
    CHECK_STR(mt_sweep_value(&s.point[0], MT_OPTION_train_steps), "20");
    CHECK_STR(words(2), "shard.prefetch=2");
}

TEST(of_the_sweep_itself)
{
    CHECK_STR(
        points("repeats: 3\nmetric: loss\nplan:\n  cluster: laptop\n  margin: 0.2\nhalving: {from: 10}\n"
               "timeout: 5m\ndir: here\nslurm.pack: 4\n"),
        "");
    CHECK_INT(s.o.repeats, 3);
    CHECK_INT(s.o.metric, MT_METRIC_LOSS);
    CHECK_STR(s.o.plan_cluster, "laptop");
    CHECK_CLOSE(s.o.plan_margin, 0.2, 0);
    CHECK_INT(s.o.halving_from, 10);
    CHECK_INT(s.o.halving_factor, 3);
    CHECK_CLOSE(s.o.timeout, 300, 0);
    CHECK_INT(s.o.slurm_pack, 4);
    CHECK_STR(s.o.dir, "here");
}

static const struct {
    const char *text, *message;
} refused[] = {
    {"", "dir/t.yaml:1:1: expected a sweep: extends, grid, list, ..."},
    {"- 1\n", "dir/t.yaml:1:1: expected a sweep: extends, grid, list, ..."},
    {"gird: {shard.prefetch: [1]}\n", "dir/t.yaml:1:1: a sweep has no 'gird'; did you mean grid?"},
    {"train.steps: 3\n",
     "dir/t.yaml:1:1: a sweep has no 'train.steps': options stand under set, grid, zip or list"},
    {"train: {steps: 3}\n",
     "dir/t.yaml:1:1: a sweep has no 'train': options stand under set, grid, zip or list"},
    {"plan: {clutser: x}\n", "dir/t.yaml:1:8: a sweep has no 'plan.clutser'; did you mean plan.cluster?"},
    {"repeats: 0\n", "dir/t.yaml:1:10: repeats: 0 is outside [1, 100]"},
    {"metric: speed\n", "dir/t.yaml:1:9: metric: expected one of tokens_per_s, mfu, step_s, loss, val_loss, "
                        "device_bytes, host_bytes, "
                        "got 'speed'"},
    {"repeats: [1]\n", "dir/t.yaml:1:10: repeats: expected one value"},
    {"halving.from: 3\nhalving: {from: 4}\n", "dir/t.yaml:2:17: halving.from is given twice"},
    {"grid: {shard.prefetch: 1}\n", "dir/t.yaml:1:24: shard.prefetch: expected a list of values, as [1, 2]"},
    {"grid: {shard.prefetch: []}\n", "dir/t.yaml:1:24: shard.prefetch: expected a list of values, as [1, 2]"},
    {"grid: {shard.prefetch: [1, x]}\n",
     "dir/t.yaml:1:28: shard.prefetch: expected a whole number such as 512, 64Ki or 2M, got 'x'"},
    {"grid: {shard.prefetch: [1, [2]]}\n",
     "dir/t.yaml:1:28: shard.prefetch: expected one value (INT), got a list"},
    {"grid: {shard.prefetc: [1]}\n",
     "dir/t.yaml:1:8: no option 'shard.prefetc'; did you mean shard.prefetch?"},
    {"grid: {shard.prefetch: [1, ~]}\n", "dir/t.yaml:1:28: shard.prefetch has no value"},
    {"grid: [1]\n", "dir/t.yaml:1:7: expected options here, as train.steps: 20, got a list"},
    {"grid: {run.dir: [a, b]}\n", "dir/t.yaml:1:8: run.dir: the sweep sets it for each run"},
    {"grid: {shard.prefetch: [1]}\nzip: {shard.prefetch: [2]}\n",
     "dir/t.yaml:1:24: shard.prefetch is varied twice: by grid, zip or list"},
    {"grid: {shard.prefetch: [1]}\nlist: [{shard.prefetch: 2}]\n",
     "dir/t.yaml:1:24: shard.prefetch is varied twice: by grid, zip or list"},
    {"zip: {train.micro_batch: [1, 2], train.global_batch: [8]}\n",
     "dir/t.yaml:1:54: train.global_batch has 1 values, the option zipped with it 2"},
    {"list: {optim.lr: 1}\n",
     "dir/t.yaml:1:7: list: expected a list of options, as [{optim.lr: 1e-3}, {optim.lr: 3e-3}]"},
    {"list: [3]\n", "dir/t.yaml:1:8: expected options here, as train.steps: 20, got '3'"},
    {"set: {train.steps: 3, train: {steps: 4}}\n", "dir/t.yaml:1:38: train.steps is given twice"},
    {"where: []\nextends: [a, b]\n", "dir/t.yaml:2:10: extends: expected the path of one configuration"},
    {"where: {a: b}\n", "dir/t.yaml:1:8: where: expected a condition, as train.micro_batch <= 4"},
    {"grid: {train.seed: [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16], train.steps: "
     "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17], "
     "model.layers: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}\n",
     "dir/t.yaml:1:136: more than 4096 combinations: take values away, or make several sweeps"},
};

TEST(mistakes)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK_STR(points(refused[i].text), refused[i].message);
}

TEST(files)
{
    char path[256], *left = enter_folder(path);
    FILE *f = fopen("base.yaml", "w");
    fputs("train: {steps: 7, global_batch: 4}\noptim.warmup_steps: 1\n", f);
    fclose(f);
    f = fopen("speed.yaml", "w");
    fputs("extends: base.yaml\ngrid: {train.micro_batch: [1, 3]}\n", f);
    fclose(f);
    mt_config c;
    e = (mt_err){0};
    mt_sweep_close(&s);
    CHECK_INT(mt_sweep_open(&s, "./speed.yaml", &e), MT_OK);
    CHECK_INT(mt_sweep_expand(&s, &e), MT_OK);
    CHECK_STR(s.o.dir, "runs/speed");
    CHECK_STR(s.base, "./base.yaml");
    CHECK_INT(mt_sweep_config(&s, &s.point[0], true, &c, &e), MT_OK);
    CHECK_INT(c.train_steps, 7);
    CHECK_INT(c.train_micro_batch, 1);
    CHECK_INT(mt_sweep_config(&s, &s.point[1], false, &c, &e), MT_OK);
    CHECK_INT(mt_sweep_config(&s, &s.point[1], true, &c, &e), MT_CONFIG);
    mt_sweep_close(&s);
    e = (mt_err){0};
    CHECK_INT(mt_sweep_open(&s, "none.yaml", &e), MT_CONFIG);
    remove("base.yaml");
    remove("speed.yaml");
    leave_folder(path, left);
}

int main(void)
{
    RUN(products);
    RUN(values);
    RUN(conditions);
    RUN(baselines);
    RUN(of_the_sweep_itself);
    RUN(mistakes);
    RUN(files);
    mt_sweep_close(&s);
    return DONE();
}
