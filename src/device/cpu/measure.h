/* measure.h: the cpu device without its executor: each operation runs in the caller's thread when it is enqueued, and is timed.
 *
 * For one rank that is alone in its groups. The same kernels in the same parts and order of the program as one worker of the
 * executor runs them, so caches are as warm as in a run. Time is the thread's own (CLOCK_THREAD_CPUTIME_ID). */
#ifndef MT_DEVICE_CPU_MEASURE_H
#define MT_DEVICE_CPU_MEASURE_H
#include "device/cpu/kernels.h"
#include "device/device.h"

struct mt_measure {
    const struct mt_cpu_dev *dev; /* borrowed */
    void *scratch;                /* owned: MT_SCRATCH_BYTES */
    double clock_s;               /* what reading the clock twice takes: not part of any sample */
    /* Every operation but fresh and keep. whole: the thread was not pre-empted meanwhile. */
    void (*sample)(void *arg, const struct mt_call *c, double seconds, bool whole);
    void *arg;
};
/* IO: no memory. */
MT_MUST_USE mt_status mt_measure_open(struct mt_measure *m, const struct mt_cpu_dev *dev, mt_err *e);
void mt_measure_close(struct mt_measure *m);
double mt_measure_now(void);        /* seconds of this thread */
int64_t mt_measure_preempted(void); /* times this thread was */

/* ctx->exec is the struct mt_measure. */
extern const struct mt_device_ops mt_device_measure;
#endif
