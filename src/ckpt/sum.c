#include "ckpt/sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

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
