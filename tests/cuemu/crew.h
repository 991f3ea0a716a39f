/* crew.h: threads that stand for the processes of a job, one rank in each: what a job needs outside of its steps. */
#ifndef MT_TESTS_CREW_H
#define MT_TESTS_CREW_H
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

enum { CREW_MOST = 4 };
struct crew {
    pthread_barrier_t at;
    int n;
    void *slot[CREW_MOST];
};
struct crew_hand {
    struct crew *crew;
    int me;
};

static inline void crew_meet(const struct crew_hand *h)
{
    pthread_barrier_wait(&h->crew->at);
}
static inline void crew_broadcast(void *impl, void *data, int64_t bytes, int from)
{
    struct crew_hand *h = impl;
    h->crew->slot[h->me] = data;
    crew_meet(h);
    if (h->me != from) memcpy(data, h->crew->slot[from], (size_t)bytes);
    crew_meet(h);
}
static inline void crew_reduce(struct crew_hand *h, int64_t *x, int64_t n, bool most)
{
    int64_t *all = calloc((size_t)n + 1, sizeof *all);
    MT_ASSERT(all);
    h->crew->slot[h->me] = x;
    crew_meet(h);
    for (int p = 0; p < h->crew->n; p++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t its = ((const int64_t *)h->crew->slot[p])[i];
            all[i] = !p ? its : !most ? all[i] + its : its > all[i] ? its : all[i];
        }
    crew_meet(h);
    memcpy(x, all, (size_t)n * sizeof *x);
    free(all);
}
static inline void crew_sum(void *impl, int64_t *x, int64_t n)
{
    crew_reduce(impl, x, n, false);
}
static inline void crew_most(void *impl, int64_t *x, int64_t n)
{
    crew_reduce(impl, x, n, true);
}
static inline void crew_send(void *impl, int to, const void *data, int64_t bytes)
{
    (void)impl, (void)to, (void)data, (void)bytes;
    MT_ASSERT(!"a message between two processes");
}
static inline void crew_receive(void *impl, int from, void *data, int64_t bytes)
{
    crew_send(impl, from, data, bytes);
}
static inline void __attribute__((noreturn)) crew_stop(void *impl, int code)
{
    (void)impl;
    exit(code);
}
static inline struct mt_job_call crew_call(void *impl)
{
    (void)impl;
    return (struct mt_job_call){.peer = -1};
}
static inline bool crew_note(void *impl, int to, const void *data, int64_t bytes)
{
    (void)impl, (void)to, (void)data, (void)bytes;
    return false;
}
static inline int crew_noted(void *impl, void *data, int64_t bytes)
{
    (void)impl, (void)data, (void)bytes;
    return -1;
}
/* The device has to carry everything. */
static inline void crew_wire_start(struct mt_wire *w, int stream, const struct mt_move *move)
{
    (void)w, (void)stream, (void)move;
    MT_ASSERT(!"a collective that goes by the host");
}
static inline bool crew_wire_test(struct mt_wire *w, int stream)
{
    crew_wire_start(w, stream, NULL);
    return true;
}
static inline void crew_wire_close(struct mt_wire *w)
{
    free(w);
}
static inline mt_status crew_wire(void *impl, const int *ranks, int n, struct mt_wire **wire, mt_err *e)
{
    (void)impl, (void)ranks;
    *wire = n > 1 ? calloc(1, sizeof **wire) : NULL;
    MT_REQUIRE(*wire || n < 2, e, MT_IO, "no memory");
    if (*wire) **wire = (struct mt_wire){crew_wire_start, crew_wire_test, crew_wire_close};
    return MT_OK;
}
static const struct mt_job_ops crew_ops = {.broadcast = crew_broadcast,
                                           .sum = crew_sum,
                                           .most = crew_most,
                                           .send = crew_send,
                                           .receive = crew_receive,
                                           .stop = crew_stop,
                                           .call = crew_call,
                                           .note = crew_note,
                                           .noted = crew_noted,
                                           .wire = crew_wire};

static inline void crew_open(struct crew *c, int n)
{
    MT_ASSERT(n <= CREW_MOST);
    *c = (struct crew){.n = n};
    pthread_barrier_init(&c->at, NULL, (unsigned)n);
}
static inline void crew_close(struct crew *c)
{
    pthread_barrier_destroy(&c->at);
}
/* h: alive as long as the job. */
static inline struct mt_job crew_job(struct crew *c, struct crew_hand *h, int me)
{
    *h = (struct crew_hand){c, me};
    return (struct mt_job){.n = c->n,
                           .me = me,
                           .on_node = c->n,
                           .world = c->n,
                           .first = me,
                           .n_local = 1,
                           .ops = &crew_ops,
                           .impl = h};
}
#endif
