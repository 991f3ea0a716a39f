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
