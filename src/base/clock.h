/* clock.h: time that only goes forward, for durations and deadlines. */
#ifndef MT_BASE_CLOCK_H
#define MT_BASE_CLOCK_H
#include <stdint.h>
#include <time.h>

static inline int64_t mt_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline double mt_now(void) /* seconds */
{
    return 1e-9 * (double)mt_now_ns();
}
#endif
