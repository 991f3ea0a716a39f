#include "device/cpu/exec_watch.h"

#if MT_WATCH
#include <errno.h>
#include <sanitizer/tsan_interface.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

/* SYNCS: names of positions of a stream. They are used again after so many, which can only hide a race, and
 * only one between operations so far apart. */
enum { NO_SYNC = 1, SYNCS = 4096, STREAM_STACK_BYTES = 256 << 10 };

struct stream_run {
    struct mt_fiber fiber;
    struct mt_exec_rank *rank;
    struct mt_node *node;
    void *scratch;
};
struct mt_watch {
    struct stream_run run[MT_N_STREAMS];
    char sync[MT_N_STREAMS][SYNCS];
};

static void *name_of(struct mt_exec_rank *r, int stream, int64_t seq)
{
    return &r->watch->sync[stream][seq % SYNCS];
}

MT_UNWATCHED static void stream_main(void *arg)
{
    struct stream_run *s = arg;
    mt_cpu_thread_setup();
    for (;;) {
        struct mt_node *n = s->node;
        __tsan_acquire(n);
        if (n->meet) __tsan_acquire(&n->meet->sync[0]);
        mt_exec_part(s->rank->exec, n, 0, s->scratch);
        if (n->meet) __tsan_release(&n->meet->sync[1]);
        __tsan_release(name_of(s->rank, n->stream, n->seq));
        mt_fiber_yield(&s->fiber);
    }
}

mt_status mt_watch_open(struct mt_exec_rank *r, mt_err *e)
{
    r->watch = calloc(1, sizeof *r->watch);
    MT_REQUIRE(r->watch, e, MT_IO, "opening the executor: out of memory");
    for (int s = 0; s < MT_N_STREAMS; s++) {
        struct stream_run *run = &r->watch->run[s];
        run->rank = r;
        run->scratch = mmap(NULL, MT_SCRATCH_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (run->scratch == MAP_FAILED) run->scratch = NULL;
        MT_REQUIRE(run->scratch, e, MT_IO, "mapping a stream's scratch: %s", strerror(errno));
        MT_TRY(mt_fiber_open(&run->fiber, STREAM_STACK_BYTES, false, stream_main, run, e));
    }
    return MT_OK;
}
void mt_watch_close(struct mt_exec_rank *r)
{
    for (int s = 0; r->watch && s < MT_N_STREAMS; s++) {
        mt_fiber_close(&r->watch->run[s].fiber);
        if (r->watch->run[s].scratch) munmap(r->watch->run[s].scratch, MT_SCRATCH_BYTES);
    }
    free(r->watch);
    r->watch = NULL;
}

void mt_watch_fill(void)
{
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
void mt_watch_filled(struct mt_node *n)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    __tsan_release(n);
}

/* Stands in a stream's fiber to let it learn (acquire) or tell (release) something. */
MT_UNWATCHED static void as_stream(struct mt_exec_rank *r, int stream, void *learn, void *tell)
{
    void *self = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(r->watch->run[stream].fiber.tsan, NO_SYNC);
    __tsan_acquire(learn);
    __tsan_release(tell);
    __tsan_switch_to_fiber(self, NO_SYNC);
}
MT_UNWATCHED void mt_watch_waited(struct mt_exec_rank *r, struct mt_node *n)
{
    as_stream(r, n->stream, name_of(r, n->ev.stream, n->ev.seq), name_of(r, n->stream, n->seq));
}
MT_UNWATCHED void mt_watch_arrive(struct mt_exec_rank *r, struct mt_node *n)
{
    as_stream(r, n->stream, n, &n->meet->sync[0]);
}
MT_UNWATCHED void mt_watch_leave(struct mt_exec_rank *r, struct mt_node *n)
{
    as_stream(r, n->stream, &n->meet->sync[1], name_of(r, n->stream, n->seq));
}
void mt_watch_host_read(struct mt_exec_rank *r, mt_event ev)
{
    __tsan_acquire(name_of(r, ev.stream, ev.seq));
}
void mt_watch_ended(struct mt_exec_rank *r)
{
    for (int s = 0; s < MT_N_STREAMS; s++) __tsan_acquire(name_of(r, s, r->queue[s].done));
}

MT_UNWATCHED void mt_watch_run(struct mt_exec_rank *r, struct mt_node *n)
{
    struct stream_run *s = &r->watch->run[n->stream];
    s->node = n;
    mt_fiber_resume(&s->fiber);
}
#endif
