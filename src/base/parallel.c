#include "base/parallel.h"

#include <pthread.h>
#include <unistd.h>

enum { LEAST = 8, MOST = 16 };

int mt_parallel_threads(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < LEAST ? LEAST : n > MOST ? MOST : (int)n;
}

void mt_parallel(int n, void *(*work)(void *arg), void *arg)
{
    pthread_t thread[MOST];
    int made = 0;
    while (made + 1 < n && made < MOST && !pthread_create(&thread[made], NULL, work, arg)) made++;
    work(arg);
    while (made > 0) pthread_join(thread[--made], NULL);
}

void mt_tasks_open(struct mt_tasks *t, int64_t n, mt_err *e)
{
    *t = (struct mt_tasks){.n = n, .failed = n, .e = e};
}

mt_status mt_tasks_run(struct mt_tasks *t, void *(*work)(void *arg), void *arg)
{
    int threads = mt_parallel_threads();
    if (!t->n) return MT_OK;
    pthread_mutex_init(&t->lock, NULL);
    mt_parallel(t->n < threads ? (int)t->n : threads, work, arg);
    pthread_mutex_destroy(&t->lock);
    return t->failed < t->n ? t->e->code : MT_OK;
}

bool mt_tasks_next(struct mt_tasks *t, int64_t *i)
{
    *i = atomic_fetch_add(&t->next, 1);
    return *i < t->n;
}

void mt_tasks_fail(struct mt_tasks *t, int64_t i, const mt_err *e)
{
    pthread_mutex_lock(&t->lock);
    if (i < t->failed) {
        t->failed = i;
        *t->e = *e;
    }
    pthread_mutex_unlock(&t->lock);
}

void mt_tasks_stop(struct mt_tasks *t)
{
    atomic_store(&t->next, t->n);
}
