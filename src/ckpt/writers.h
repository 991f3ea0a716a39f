/* writers.h: threads that write this process's parts of a checkpoint while training goes on.
 *
 * A writer takes the next bytes of the present file from the arena into a buffer of its own, checksums them, and writes them
 * past the system's cache while another takes the next. The optimizer may overwrite a part once its bytes are in a buffer:
 * mt_writers_gate waits for that and nothing else. Writers have a lower priority than the thread that opens them, by 10 of `nice`.
 *
 * A store that hangs keeps writers in its calls. Such a save is cancelled; a writer stays there, with its buffer, and takes part
 * again when the call has ended. One more than work at a time are there, so that the next save can be tried. */
#ifndef MT_CKPT_WRITERS_H
#define MT_CKPT_WRITERS_H
#include "ckpt/parts.h"

struct mt_writers;
/* For functions that a save waits for: whether it has been given up meanwhile. */
struct mt_turn {
    struct mt_writers *w;
    int64_t turn;
};
bool mt_turn_is_over(const struct mt_turn *t);
struct mt_writers_options {
    int threads; /* at work at a time, and one in reserve, for when they hang; 0: the caller of mt_writers_wait does the work */
    int64_t chunk;    /* bytes of a buffer, a multiple of MT_PART_ALIGN */
    char *buffer;     /* threads + 1 of them, at a multiple of MT_PART_ALIGN; borrowed */
    int64_t rate;     /* bytes a second, at most; 0: no bound */
    bool check;       /* every file is read back before it counts as written */
    double timeout_s; /* mt_writers_gate cancels a save that takes longer; 0: never */
    mt_status (*prepare)(void *arg,
                         mt_err *e); /* before the first file; NULL: nothing. Must not use the writers */
    /* When all files are written and on the disk, as the last part of it; NULL: nothing. */
    mt_status (*finish)(void *arg, const struct mt_turn *turn, mt_err *e);
    void *arg; /* of both */
};
enum mt_written { MT_WRITTEN_NOTHING, MT_WRITTEN_BUSY, MT_WRITTEN_DONE, MT_WRITTEN_FAILED };

/* parts and buffer are borrowed. IO: memory or threads. */
MT_MUST_USE mt_status mt_writers_open(struct mt_writers **w, const struct mt_writers_options *o,
                                      const struct mt_parts *parts, mt_err *e);
/* False: writers hang, and are left behind with what they use. */
bool mt_writers_close(struct mt_writers *w);

/* Begins to write the files into a folder, which is made if need be. Nothing of an earlier save may be under way. IO: every writer
 * still hangs in an earlier one. */
MT_MUST_USE mt_status mt_writers_begin(struct mt_writers *w, const char *folder, mt_err *e);
/* One of the writers runs a function, which must not use w. Otherwise as mt_writers_begin. */
MT_MUST_USE mt_status mt_writers_call(struct mt_writers *w, mt_status (*fn)(void *arg, mt_err *e), void *arg,
                                      mt_err *e);
/* What has become of what was begun; of a failure, its message. */
enum mt_written mt_writers_look(struct mt_writers *w, mt_err *e);
/* The same when it is no longer BUSY, or so many seconds later. */
enum mt_written mt_writers_wait(struct mt_writers *w, double seconds, mt_err *e);
/* It counts as failed, and no byte of the arenas is read any more. */
void mt_writers_cancel(struct mt_writers *w, const char *why);
/* With nothing under way: whether a writer is still in a call of what was given up, and may make a file there. */
bool mt_writers_linger(struct mt_writers *w);

/* Returns when what comes `when` in the update of a rank, and everything before it, has been read by the save under way, if there
 * is one. Any thread. */
void mt_writers_gate(struct mt_writers *w, int rank, int64_t when);
/* Since the last mt_writers_begin: what it took to write everything, without reading it back, and what callers of the gate waited, the most of one rank. */
struct mt_writers_report {
    double write_s, stalled_s;
};
struct mt_writers_report mt_writers_report(struct mt_writers *w);
#endif
