#include "comm/who.h"

#include <stdio.h>
#include <string.h>

static void write_run(struct mt_who *w)
{
    enum { ROOM = 40 }; /* of a run, and of the dots behind it */
    char *at = w->text + w->used;
    size_t left = sizeof w->text - w->used;
    if (w->from > w->to || !left) return;
    const char *comma = w->used ? ", " : "";
    if (left < ROOM) {
        snprintf(at, left, ", ...");
        w->used = sizeof w->text;
    } else if (w->from == w->to) {
        w->used += (size_t)snprintf(at, left, "%s%d", comma, w->from);
    } else {
        w->used += (size_t)snprintf(at, left, "%s%d-%d", comma, w->from, w->to);
    }
}

void mt_who_add(struct mt_who *w, int rank)
{
    w->n++;
    if (w->from <= w->to && rank == w->to + 1) {
        w->to = rank;
        return;
    }
    write_run(w);
    w->from = w->to = rank;
}

const char *mt_who_text(struct mt_who *w)
{
    write_run(w);
    w->from = 1, w->to = 0;
    return w->text;
}
