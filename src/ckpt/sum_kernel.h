/* sum_kernel.h: XXH3 as one instruction set does it. The state's layout does not depend on that. */
#ifndef MT_CKPT_SUM_KERNEL_H
#define MT_CKPT_SUM_KERNEL_H
#define XXH_INLINE_ALL
#include <stdint.h>
#include <xxhash.h>

/* In a file named for what it needs, entered only after a look at the processor. */
void mt_sum_add_avx2(XXH3_state_t *s, const void *p, int64_t bytes);
#endif
