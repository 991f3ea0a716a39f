/* parallel.h: the same function on several threads at once, and tasks that they take one by one. */
#ifndef MT_BASE_PARALLEL_H
#define MT_BASE_PARALLEL_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"

/* Threads for such work on this machine: as many as cores, but 8 at least, as they wait for disks, and 16 at most. */
int mt_parallel_threads(void);
/* Runs work(arg) on up to n threads, the caller's among them, and returns when all are done. Threads that the system refuses
 * are done without: one call at least is made. */
void mt_parallel(int n, void *(*work)(void *arg), void *arg);

/* Tasks 0 to n - 1. Of those that fail the first one's message is kept, whichever thread met it and when. */
struct mt_tasks {
    int64_t n;
    atomic_llong next;
    pthread_mutex_t lock; /* of what follows */
    int64_t failed;       /* the first; n: none */
    mt_err *e;
};
/* e: for the message; borrowed until the end. */
void mt_tasks_open(struct mt_tasks *t, int64_t n, mt_err *e);
/* Runs work(arg), which takes tasks of t, on as many threads as there is use for, and gives the first failure's status. */
MT_MUST_USE mt_status mt_tasks_run(struct mt_tasks *t, void *(*work)(void *arg), void *arg);
/* The next one. False: there are none. */
bool mt_tasks_next(struct mt_tasks *t, int64_t *i);
void mt_tasks_fail(struct mt_tasks *t, int64_t i, const mt_err *e);
/* None is begun any more. */
void mt_tasks_stop(struct mt_tasks *t);
#endif
