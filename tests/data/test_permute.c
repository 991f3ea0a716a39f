#include "check.h"
#include "data/permute.h"

static void is_bijection(uint64_t seed, uint64_t epoch, int64_t n, char *seen)
{
    int64_t wrong = 0;
    memset(seen, 0, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t p = mt_permute(seed, epoch, i, n);
        if (p < 0 || p >= n || seen[p]++) wrong++;
    }
    CHECK_INT(wrong, 0);
}

TEST(bijection_of_every_small_size)
{
    static char seen[300000];
    for (int64_t n = 1; n <= 600; n++)
        for (uint64_t epoch = 0; epoch < 4; epoch++) is_bijection(n, epoch, n, seen);
    const int64_t sizes[] = {1023, 1024, 1025, 4096, 65535, 65537, 131073, 299999};
    for (int i = 0; i < 8; i++) is_bijection(UINT64_MAX, UINT64_MAX - i, sizes[i], seen);
}

TEST(stays_below_huge_sizes)
{
    const int64_t n = (INT64_C(1) << 62) + 12345;
    int64_t far = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t p = mt_permute(7, 0, n - 1 - i, n);
        CHECK(p >= 0 && p < n);
        far += p < n / 2;
    }
    CHECK(far > 400 && far < 600);
}

TEST(epochs_and_seeds_differ)
{
    const int64_t n = 5000;
    int64_t same_epoch = 0, same_seed = 0, still = 0, neighbours = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t p = mt_permute(1, 0, i, n);
        same_epoch += p == mt_permute(1, 1, i, n);
        same_seed += p == mt_permute(2, 0, i, n);
        still += p == i;
        if (i) neighbours += labs((long)(p - mt_permute(1, 0, i - 1, n))) == 1;
    }
    /* Of independent permutations about 1, 1, 1 and 2; the bound is far in the tail. */
    CHECK(same_epoch < 12 && same_seed < 12 && still < 12 && neighbours < 15);
}

/* Each tenth of the epoch draws on each tenth of the data about evenly. */
TEST(spread_is_even)
{
    const int64_t n = 20000;
    int64_t count[10][10] = {{0}};
    for (int64_t i = 0; i < n; i++) count[i * 10 / n][mt_permute(3, 5, i, n) * 10 / n]++;
    double chi = 0;
    for (int a = 0; a < 10; a++)
        for (int b = 0; b < 10; b++) chi += pow((double)count[a][b] - 200, 2) / 200;
    CHECK(chi > 30 && chi < 150); /* 81 degrees of freedom */
}

int main(void)
{
    RUN(bijection_of_every_small_size);
    RUN(stays_below_huge_sizes);
    RUN(epochs_and_seeds_differ);
    RUN(spread_is_even);
    return DONE();
}
