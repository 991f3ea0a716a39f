#include "base/hash.h"
#include "base/rng.h"

#include "../check.h"
#include "../golden.h"

/* "6627e8d5 e169c58d ..." */
static bool parse_words(uint32_t *out, const cJSON *row, const char *key, int n)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, key));
    for (int i = 0; s && i < n; i++) {
        char *end;
        out[i] = (uint32_t)strtoul(s, &end, 16);
        if (end == s) return false;
        s = end;
    }
    return s != NULL;
}

TEST(philox_known_answers)
{
    cJSON *json = golden_json("philox.json");
    const cJSON *row, *rows = cJSON_GetObjectItemCaseSensitive(json, "philox4x32_10");
    CHECK_INT(cJSON_GetArraySize(rows), 3);
    cJSON_ArrayForEach(row, rows)
    {
        uint32_t counter[4], key[2], want[4], got[4];
        bool parsed = parse_words(counter, row, "counter", 4) && parse_words(key, row, "key", 2) &&
                      parse_words(want, row, "out", 4);
        if (!CHECK(parsed)) break;
        mt_philox4x32(got, counter, key);
        for (int i = 0; i < 4; i++) CHECK_INT(got[i], want[i]);
    }
    cJSON_Delete(json);
}

static uint64_t hex64(const cJSON *row, const char *key)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, key));
    return s ? strtoull(s, NULL, 16) : 0;
}

TEST(streams_equal_oracle)
{
    cJSON *json = golden_json("philox.json");
    const cJSON *row, *z, *rows = cJSON_GetObjectItemCaseSensitive(json, "streams");
    CHECK_INT(cJSON_GetArraySize(rows), 3);
    cJSON_ArrayForEach(row, rows)
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "name"));
        if (!CHECK(name != NULL)) break;
        uint64_t key = mt_rng_key(hex64(row, "seed"), name);
        CHECK(key == hex64(row, "key"));
        int64_t index = (int64_t)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(row, "first"));
        cJSON_ArrayForEach(z, cJSON_GetObjectItemCaseSensitive(row, "normal"))
        {
            /* Same formula in double on both sides: only the last bits of log, cos and sin may differ. */
            CHECK_CLOSE(mt_rng_normal(key, index), z->valuedouble, 1e-14);
            index++;
        }
    }
    cJSON_Delete(json);
}

TEST(fill_does_not_depend_on_cuts)
{
    enum { n = 101 };
    const uint64_t key = mt_rng_key(7, "x.weight");
    const int64_t start = ((int64_t)1 << 33) - 50; /* crosses a carry into the counter's second word */
    float whole[n], parts[n + 1];
    mt_rng_fill_normal(whole, key, start, n, 0.02);
    for (int64_t cut = 0; cut <= n; cut++) {
        memset(parts, 0, sizeof parts);
        mt_rng_fill_normal(parts, key, start, cut, 0.02);
        CHECK(parts[cut] == 0.0f); /* nothing behind the end */
        mt_rng_fill_normal(parts + cut, key, start + cut, n - cut, 0.02);
        CHECK(!memcmp(whole, parts, sizeof whole));
        CHECK(parts[n] == 0.0f);
    }
    for (int i = 0; i < n; i++) CHECK(whole[i] == (float)(0.02 * mt_rng_normal(key, start + i)));
}

/* log, cos and sin are the generator's own, so that a run begins with the same bits on every machine, instruction set and libm:
 * the sum is what each of them has to give. */
TEST(fill_gives_the_same_bits_everywhere)
{
    enum { n = 1 << 16 };
    float *x = malloc(n * sizeof *x);
    if (!CHECK(x != NULL)) return;
    mt_rng_fill_normal(x, mt_rng_key(3, "same"), 5, n, 0.02);
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, x + i, sizeof word);
        sum = mt_hash_mix(sum, word);
    }
    CHECK(sum == UINT64_C(0xe3e52d8ab3937176));
    free(x);
}

/* The formula in long double: what is left is the rounding of a few operations in double. */
TEST(normals_are_accurate)
{
    const uint64_t key = mt_rng_key(4, "accurate");
    double worst = 0;
    for (uint32_t pair = 0; pair < 1 << 13; pair++) {
        uint32_t r[4];
        mt_philox4x32(r, (uint32_t[]){pair, 0, 0, 0}, (uint32_t[]){(uint32_t)key, (uint32_t)(key >> 32)});
        long double u = ((double)(((uint64_t)r[1] << 32 | r[0]) >> 11) + 0.5) * 0x1p-53;
        long double turn = 2 * acosl(-1) * (((double)(((uint64_t)r[3] << 32 | r[2]) >> 11) + 0.5) * 0x1p-53);
        double x = (double)(sqrtl(-2 * logl(u)) * cosl(turn)), y = (double)(sqrtl(-2 * logl(u)) * sinl(turn));
        worst = fmax(
            worst, fmax(fabs(mt_rng_normal(key, 2 * pair) - x), fabs(mt_rng_normal(key, 2 * pair + 1) - y)));
    }
    CHECK_CLOSE(worst, 0, 4e-15);
}

TEST(keys_differ)
{
    uint64_t a = mt_rng_key(0, "layers.0.attn.q.weight");
    CHECK(a != mt_rng_key(1, "layers.0.attn.q.weight"));
    CHECK(a != mt_rng_key(0, "layers.0.attn.k.weight"));
    CHECK(mt_rng_key(0, "") != mt_rng_key(1, ""));
}

/* Moments of N(0, 1) within five standard errors, and no correlation inside a pair or between two streams. */
TEST(normal_moments)
{
    enum { n = 1 << 16 };
    const uint64_t key = mt_rng_key(1, "a"), other = mt_rng_key(1, "b");
    double sum = 0, square = 0, fourth = 0, in_pair = 0, across = 0;
    for (int64_t i = 0; i < n; i += 2) {
        double x = mt_rng_normal(key, i), y = mt_rng_normal(key, i + 1);
        sum += x + y;
        square += x * x + y * y;
        fourth += x * x * x * x + y * y * y * y;
        in_pair += x * y;
        across += x * mt_rng_normal(other, i);
    }
    const double error = 5 / sqrt((double)n);
    CHECK_CLOSE(sum / n, 0, error);
    CHECK_CLOSE(square / n, 1, sqrt(2.0) * error);
    CHECK_CLOSE(fourth / n, 3, sqrt(96.0) * error);
    CHECK_CLOSE(in_pair / (n / 2), 0, sqrt(2.0) * error);
    CHECK_CLOSE(across / (n / 2), 0, sqrt(2.0) * error);
}

int main(void)
{
    RUN(philox_known_answers);
    RUN(streams_equal_oracle);
    RUN(fill_does_not_depend_on_cuts);
    RUN(fill_gives_the_same_bits_everywhere);
    RUN(normals_are_accurate);
    RUN(keys_differ);
    RUN(normal_moments);
    return DONE();
}
