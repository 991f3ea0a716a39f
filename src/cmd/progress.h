/* progress.h: a bar on the terminal for work that takes a while: how much is done, at which rate, how long the rest takes. */
#ifndef MT_CMD_PROGRESS_H
#define MT_CMD_PROGRESS_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/progress.h"

struct mt_bar {
    struct mt_progress work; /* for whoever does it */
    const char *what;
    atomic_bool over;
    bool drawn;
    double begun;
    pthread_t thread;
};
/* A thread draws it on stderr until mt_bar_close, where that is a terminal; else nothing is drawn. */
void mt_bar_open(struct mt_bar *b, const char *what);
/* Removes it. */
void mt_bar_close(struct mt_bar *b);
/* Its text, of at most 80 columns: `done` of `total` bytes after so many seconds. */
void mt_bar_text(char out[96], const char *what, int64_t done, int64_t total, double seconds);
#endif
