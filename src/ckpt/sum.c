#include "ckpt/sum.h"

#include "ckpt/sum_kernel.h"

struct mt_sum *mt_sum_open(void)
{
    XXH3_state_t *s = XXH3_createState();
    if (s) XXH3_64bits_reset(s);
    return (struct mt_sum *)s;
}
void mt_sum_reset(struct mt_sum *s)
{
    XXH3_64bits_reset((XXH3_state_t *)s);
}
void mt_sum_add(struct mt_sum *s, const void *p, int64_t bytes)
{
#if defined(__x86_64__)
    /* A save's bytes come from memory at little more than the rate of the baseline's sums, and each is summed twice. */
    if (__builtin_cpu_supports("avx2")) {
        mt_sum_add_avx2((XXH3_state_t *)s, p, bytes);
        return;
    }
#endif
    XXH3_64bits_update((XXH3_state_t *)s, p, (size_t)bytes);
}
uint64_t mt_sum_value(const struct mt_sum *s)
{
    return XXH3_64bits_digest((const XXH3_state_t *)s);
}
void mt_sum_close(struct mt_sum *s)
{
    XXH3_freeState((XXH3_state_t *)s);
}
