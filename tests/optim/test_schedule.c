/* The learning rate against the table that PyTorch's schedulers wrote (tests/oracle/generate.py), and its shape. */
#include "check.h"
#include "optim/schedule.h"

#include <cjson/cJSON.h>

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *text = calloc(1, 1 << 20);
    if (text && fread(text, 1, (1 << 20) - 1, f) == 0) text[0] = 0;
    fclose(f);
    return text;
}

static double number(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNumber(v) ? v->valuedouble : (double)NAN;
}

static mt_choice_decay shape_of(const char *name)
{
    for (int i = 0; name && mt_choices_decay[i]; i++)
        if (!strcmp(mt_choices_decay[i], name)) return (mt_choice_decay)i;
    CHECK(false);
    return MT_DECAY_LINEAR;
}

static int compare(const cJSON *table)
{
    const cJSON *factor = cJSON_GetObjectItemCaseSensitive(table, "factor");
    int64_t total = (int64_t)number(table, "total"), warmup = (int64_t)number(table, "warmup");
    double ratio = number(table, "decay_ratio"), min = number(table, "min");
    mt_choice_decay shape = shape_of(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(table, "shape")));
    if (isnan(ratio))
        ratio = (double)(total - warmup) / (double)total; /* the fall begins where the warm-up ends */
    CHECK_INT(cJSON_GetArraySize(factor), total);
    for (int64_t s = 0; s < total; s++)
        CHECK_CLOSE(mt_lr_factor(s, total, warmup, ratio, shape, min),
                    cJSON_GetArrayItem(factor, (int)s)->valuedouble, 1e-12);
    return (int)total;
}

TEST(table)
{
    char *text = read_text("tests/golden/lr_table.json");
    cJSON *json = text ? cJSON_Parse(text) : NULL;
    const cJSON *table;
    int n = 0, values = 0;
    cJSON_ArrayForEach(table, cJSON_GetObjectItemCaseSensitive(json, "tables"))
    {
        values += compare(table);
        n++;
    }
    CHECK(n >= 4 && values >= 60);
    cJSON_Delete(json);
    free(text);
}

TEST(shape)
{
    for (int shape = MT_DECAY_LINEAR; shape <= MT_DECAY_COSINE; shape++)
        for (int64_t warmup = 0; warmup <= 20; warmup += 10) {
            double before = 0;
            for (int64_t s = 0; s < 100; s++) {
                double f = mt_lr_factor(s, 100, warmup, 0.3, (mt_choice_decay)shape, 0.1);
                CHECK(f > 0.1 * (s >= warmup) && f <= 1);
                CHECK(s < warmup ? f > before : s < 71 ? f >= 1 : f < before);
                before = f;
            }
            CHECK(before < 0.2);
        }
}

/* A rate that is constant, one that only falls, a run of one step. */
TEST(ends)
{
    for (int64_t s = 0; s < 10; s++) CHECK_CLOSE(mt_lr_factor(s, 10, 0, 0, MT_DECAY_LINEAR, 0), 1, 0);
    for (int64_t s = 0; s < 10; s++)
        CHECK_CLOSE(mt_lr_factor(s, 10, 0, 1, MT_DECAY_LINEAR, 0), 1 - (double)s / 10, 1e-12);
    CHECK_CLOSE(mt_lr_factor(0, 1, 1, 0, MT_DECAY_COSINE, 0), 1, 0);
    CHECK_CLOSE(mt_lr_factor(0, 1, 0, 1, MT_DECAY_COSINE, 0), 1, 1e-12);
    CHECK_CLOSE(mt_lr_factor(999999999, 1000000000, 100, 0.2, MT_DECAY_LINEAR, 0.1), 0.1 + 0.9 / 2e8, 1e-12);
}

int main(void)
{
    RUN(table);
    RUN(shape);
    RUN(ends);
    return DONE();
}
