/* exec_watch.h: what ThreadSanitizer is told.
 *
 * Plain, it is nearly blind to a missing wait: the executor's lock orders everything. So a build with
 * -fsanitize=thread runs each operation as its stream: on a ThreadSanitizer fiber that learns only from
 * stream order, events, collectives and the host code that enqueued it, and on a stack of its own, or the
 * locals of kernels would look shared. With MT_TSAN_PLAIN the executor itself is watched instead. */
#ifndef MT_DEVICE_CPU_EXEC_WATCH_H
#define MT_DEVICE_CPU_EXEC_WATCH_H
#include "device/cpu/exec_core.h"

#if defined(__SANITIZE_THREAD__) && !defined(MT_TSAN_PLAIN)
#define MT_WATCH 1
mt_status mt_watch_open(struct mt_exec_rank *r, mt_err *e);
void mt_watch_close(struct mt_exec_rank *r);
/* Host code fills a node in between: what it writes into the node is the executor's, not the step's. */
void mt_watch_fill(void);
void mt_watch_filled(struct mt_node *n);
void mt_watch_waited(struct mt_exec_rank *r, struct mt_node *n); /* a wait is met */
void mt_watch_arrive(struct mt_exec_rank *r, struct mt_node *n); /* at a collective */
void mt_watch_leave(struct mt_exec_rank *r, struct mt_node *n);
void mt_watch_host_read(struct mt_exec_rank *r, mt_event ev);
void mt_watch_run(struct mt_exec_rank *r, struct mt_node *n); /* the node, as its stream */
void mt_watch_ended(struct mt_exec_rank *r);                  /* a run: whoever called it knows all streams */
#else
#define MT_WATCH 0
#define mt_watch_open(r, e) ((void)(r), (void)(e), MT_OK)
#define mt_watch_close(r) ((void)(r))
#define mt_watch_fill() ((void)0)
#define mt_watch_filled(n) ((void)(n))
#define mt_watch_waited(r, n) ((void)(r), (void)(n))
#define mt_watch_arrive(r, n) ((void)(r), (void)(n))
#define mt_watch_leave(r, n) ((void)(r), (void)(n))
#define mt_watch_host_read(r, ev) ((void)(r), (void)(ev))
#define mt_watch_run(r, n) ((void)(r), (void)(n))
#define mt_watch_ended(r) ((void)(r))
#endif

/* The executor's bookkeeping is under its lock, but is also read while standing in a stream's fiber, which by
 * design knows nothing of the lock. */
#if MT_WATCH
#define MT_UNWATCHED __attribute__((no_sanitize("thread"), noinline))
#else
#define MT_UNWATCHED
#endif
#endif
