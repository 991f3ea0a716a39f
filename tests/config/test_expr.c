/* Conditions over options: what holds, what is no condition, and where. */
#include "config/expr.h"
#include "helper.h"

static mt_config c;
static char why[MT_VALUE_WHY];

static const struct {
    const char *text;
    bool holds;
} conditions[] = {
    {"train.micro_batch == 2", true},
    {"train.micro_batch != 2", false},
    {"train.micro_batch * shard.prefetch <= 4", true},
    {"train.micro_batch * shard.prefetch < 4", false},
    {"2 + 3 * 2 == 8 and 2 * 3 + 2 == 8", true},
    {"(2 + 3) * 2 == 10", true},
    {"10 - 3 - 2 == 5", true},
    {"12 / 3 / 2 == 2", true},
    {"7 % 4 == 3", true},
    {"-2 < 1 and - - 2 == 2 and 3 - -1 == 4", true},
    {"recompute.policy == full", true},
    {"recompute.policy == 'full' and recompute.policy != \"none\"", true},
    {"recompute.policy == none or train.steps > 5", true},
    {"not recompute.policy == none", true},
    {"not not train.steps > 5", true},
    {"not (train.steps > 5 or train.steps < 2)", false},
    {"true or false and false", true},
    {"model.qk_norm", true},
    {"not model.qk_norm or ckpt.at_end", false},
    {"device.memory >= 64Ki and device.memory == 64KiB", true},
    {"run.hang_timeout == 10m", true},
    {"optim.lr > 1e-4 and optim.lr < 1E-1", true},
    {"train.trace.steps == '[3, 4]'", true},
    {"data.train == ''", true},
    {"  train.steps==20  ", true},
    {"order == other", false},
};

static const struct {
    const char *text, *why;
} wrong[] = {
    {"", "at character 1: expected a number, an option or text"},
    {"train.stepz > 1", "at character 1: no option 'train.stepz'; did you mean train.steps?"},
    {"train.steps", "at character 12: a condition is needed here, such as model.dim < 512"},
    {"train.steps > ", "at character 15: expected a number, an option or text"},
    {"(train.steps > 1", "at character 17: expected )"},
    {"train.steps > 1)", "at character 16: what begins here belongs to nothing"},
    {"train.steps > 1 train.steps < 9", "at character 17: what begins here belongs to nothing"},
    {"1 < 2 < 3", "at character 7: what begins here belongs to nothing"},
    {"recompute.policy > full", "at character 24: a number is needed here, not full"},
    {"recompute.policy + 1 > 2", "at character 22: a number is needed here, not full"},
    {"train.steps == full", "at character 20: a number is needed here, not full"},
    {"1 / 0 > 1", "at character 6: a division by zero"},
    {"1 % (2 - 2) > 1", "at character 12: a division by zero"},
    {"not 3", "at character 6: a condition is needed here, such as model.dim < 512"},
    {"1 < 2 and 3", "at character 12: a condition is needed here, such as model.dim < 512"},
    {"false and 3", "at character 12: a condition is needed here, such as model.dim < 512"},
    {"3qq > 1", "at character 1: '3qq' is no number"},
    {"1e999 > 1", "at character 1: '1e999' is no number"},
    {"'full == 1", "at character 2: text in quotes does not end, or is longer than 127 characters"},
    {"optim.groups == 1", "at character 1: optim.groups is a list of entries, which has no value to compare"},
    {"train.steps & 1", "at character 13: what begins here belongs to nothing"},
    {"((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))) > 0",
     "at character 34: nested more than 32 deep"},
};

TEST(what_holds)
{
    CHECK_STR(OVERRIDE(&c, "train.micro_batch=2", "train.global_batch=4", "shard.prefetch=2",
                       "recompute.policy=full", "train.steps=20", "model.qk_norm=true", "ckpt.at_end=false",
                       "device.memory=64KiB", "train.trace.steps=[3, 4]", "optim.warmup_steps=2"),
              "");
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        bool holds = !conditions[i].holds;
        if (!CHECK(mt_expr_holds(conditions[i].text, &c, &holds, why)))
            printf("  %s: %s\n", conditions[i].text, why);
        if (!CHECK_INT(holds, conditions[i].holds)) printf("  %s\n", conditions[i].text);
    }
}

TEST(what_is_no_condition)
{
    mt_config_defaults(&c);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bool holds;
        why[0] = 0;
        if (!CHECK(!mt_expr_holds(wrong[i].text, &c, &holds, why))) printf("  %s\n", wrong[i].text);
        CHECK_STR(why, wrong[i].why);
    }
}

int main(void)
{
    RUN(what_holds);
    RUN(what_is_no_condition);
    return DONE();
}
