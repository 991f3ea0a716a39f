/* progress.h: how far some work is, for another thread to look at. */
#ifndef MT_BASE_PROGRESS_H
#define MT_BASE_PROGRESS_H
#include <stdint.h>

struct mt_progress {
    _Atomic int64_t done, total; /* bytes; total is there before done grows */
};
#endif
