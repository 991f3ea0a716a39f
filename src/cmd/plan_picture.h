/* plan_picture.h: what the pictures of a plan show, as numbers: of one rank's simulated step, what each stream did and what
 * memory held, by columns of a picture. */
#ifndef MT_CMD_PLAN_PICTURE_H
#define MT_CMD_PLAN_PICTURE_H
#include "device/simclock.h"
#include "device/timeline.h"

enum { MT_COLUMNS = 840 };

/* Colours: kinds of work but "none" and copies, then causes to stand still. The compute stream
 * that waits, and a collective that waits for other ranks, have the colour of what they wait for, and MT_N_INKS more. */
enum { MT_INK_OF_STANDS = MT_WORK_COPY - 1, MT_N_INKS = MT_INK_OF_STANDS + MT_N_STANDS };
int mt_ink_of_work(enum mt_work_kind k);
const char *mt_ink_text(int ink); /* of what is done */

/* Columns [from, to) of a stream in which one thing took most of the time at work. */
struct mt_run {
    int from, to, ink;  /* ink below 2 MT_N_INKS */
    int64_t operations; /* that began there, of this ink */
    int64_t longest;    /* of them, a record */
};
/* A part of the step that is shown, ns. */
struct mt_window {
    int64_t from, to;
    const char *text;
};
enum { MT_MOST_WINDOWS = 4 };
/* The step, and in it a block forward, one backward, the optimizer, as far as they are there. */
int mt_picture_windows(const struct mt_timeline *t, struct mt_window w[MT_MOST_WINDOWS]);
/* Returns how many runs there are; columns in none show that the stream was idle, as many as it was idle for. IO: no memory. */
MT_MUST_USE mt_status mt_picture_stream(const struct mt_timeline *t, int stream, const struct mt_window *w,
                                        struct mt_run run[MT_COLUMNS], int *n, mt_err *e);

/* An arena over the step. */
struct mt_filling {
    int64_t held[MT_COLUMNS][MT_N_ROW_CLASSES]; /* bytes, at the column's fullest point */
    int64_t most, at;                           /* the most, and ns when it is */
    int fullest;                                /* its column */
};
/* A row that does not last holds its bytes from the begin of the operation that defines it to the end of the last that
 * accesses it. INTERNAL, IO. */
MT_MUST_USE mt_status mt_picture_memory(const struct mt_timeline *t, enum mt_arena arena,
                                        struct mt_filling *m, mt_err *e);
#endif
