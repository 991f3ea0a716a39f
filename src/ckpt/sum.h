/* sum.h: XXH3, 64 bits, seed 0, of bytes that come one part after another. */
#ifndef MT_CKPT_SUM_H
#define MT_CKPT_SUM_H
#include <stdint.h>

struct mt_sum;
/* The caller's, for mt_sum_close; NULL: no memory. */
struct mt_sum *mt_sum_open(void);
void mt_sum_reset(struct mt_sum *s);
void mt_sum_add(struct mt_sum *s, const void *p, int64_t bytes);
uint64_t mt_sum_value(const struct mt_sum *s);
void mt_sum_close(struct mt_sum *s);
#endif
