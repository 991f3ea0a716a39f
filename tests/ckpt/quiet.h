/* quiet.h: what a function writes to stderr, kept. */
#ifndef MT_TESTS_CKPT_QUIET_H
#define MT_TESTS_CKPT_QUIET_H
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct quiet {
    int kept, file;
    char said[16384];
};
static inline void quiet_begin(struct quiet *q)
{
    char name[] = "/tmp/moetitan-said-XXXXXX";
    fflush(stderr);
    q->kept = dup(2);
    q->file = mkstemp(name);
    if (q->kept < 0 || q->file < 0) abort();
    unlink(name);
    dup2(q->file, 2);
}
static inline void quiet_end(struct quiet *q)
{
    fflush(stderr);
    dup2(q->kept, 2);
    ssize_t n = pread(q->file, q->said, sizeof q->said - 1, 0);
    q->said[n > 0 ? n : 0] = 0;
    close(q->kept);
    close(q->file);
}
#endif
