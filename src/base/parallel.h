/* parallel.h: the same function on several threads at once, for work that is cut by a counter they share. */
#ifndef MT_BASE_PARALLEL_H
#define MT_BASE_PARALLEL_H

/* Threads for such work on this machine: as many as cores, but 8 at least, as they wait for disks, and 16 at most. */
int mt_parallel_threads(void);
/* Runs work(arg) on up to n threads, the caller's among them, and returns when all are done. Threads that the system refuses
 * are done without: one call at least is made. */
void mt_parallel(int n, void *(*work)(void *arg), void *arg);
#endif
