#include "cmd/progress.h"
#include "base/clock.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 24 };

void mt_bar_text(char out[96], const char *what, int64_t done, int64_t total, double seconds)
{
    char cells[CELLS + 1], rest[16] = "--:--";
    double part = total > 0 ? (double)done / (double)total : 0,
           rate = seconds > 0 ? (double)done / seconds : 0;
    if (part > 1) part = 1;
    for (int i = 0; i < CELLS; i++) cells[i] = i < (int)(part * CELLS) ? '#' : '.';
    cells[CELLS] = 0;
    double left = rate > 0 ? (double)(total - done) / rate : -1;
    if (left >= 0 && left < 6000) snprintf(rest, sizeof rest, "%d:%02d", (int)left / 60, (int)left % 60);
    snprintf(out, 96, "%-8.8s %s %3d%% %.2f GiB, %.0f MiB/s, %s left", what, cells, (int)(100 * part),
             (double)total / (1 << 30), rate / (1 << 20), rest);
}

static void *draw(void *arg)
{
    struct mt_bar *b = arg;
    char text[96];
    while (!atomic_load(&b->over)) {
        mt_bar_text(text, b->what, atomic_load(&b->work.done), atomic_load(&b->work.total),
                    mt_now() - b->begun);
        fprintf(stderr, "\r%s\033[K", text);
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    fprintf(stderr, "\r\033[K");
    return NULL;
}

void mt_bar_open(struct mt_bar *b, const char *what)
{
    *b = (struct mt_bar){.what = what, .begun = mt_now()};
    if (isatty(2)) b->drawn = !pthread_create(&b->thread, NULL, draw, b);
}

void mt_bar_close(struct mt_bar *b)
{
    atomic_store(&b->over, true);
    if (b->drawn) pthread_join(b->thread, NULL);
    b->drawn = false;
}
