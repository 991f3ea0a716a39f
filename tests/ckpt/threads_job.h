/* threads_job.h: a job whose processes are threads of this one, for what processes say to each other outside of the step. */
#ifndef MT_TESTS_CKPT_THREADS_JOB_H
#define MT_TESTS_CKPT_THREADS_JOB_H
#include "comm/job.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MOST = 16 };

/* One message between two of them at a time: it is there from its sending to its receipt. */
struct letter {
    const void *data;
    int64_t bytes;
};
struct hub {
    int n;
    pthread_barrier_t all;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *from; /* of a broadcast */
    int64_t sum[64];
    struct letter letter[THREADS_MOST][THREADS_MOST]; /* [to][from] */
    int64_t sent;                                     /* bytes, of all */
};
struct seat {
    struct hub *hub;
    int me;
};

static inline void hub_broadcast(void *impl, void *data, int64_t bytes, int from)
{
    struct seat *s = impl;
    if (s->me == from) s->hub->from = data;
    pthread_barrier_wait(&s->hub->all);
    if (s->me != from && bytes) memcpy(data, s->hub->from, (size_t)bytes);
    pthread_barrier_wait(&s->hub->all);
}
static inline void hub_reduce(struct seat *s, int64_t *x, int64_t n, bool most)
{
    struct hub *h = s->hub;
    if (n > 64) abort();
    if (s->me == 0)
        for (int64_t i = 0; i < n; i++) h->sum[i] = most ? INT64_MIN : 0;
    pthread_barrier_wait(&h->all);
    pthread_mutex_lock(&h->lock);
    for (int64_t i = 0; i < n; i++)
        h->sum[i] = !most ? h->sum[i] + x[i] : x[i] > h->sum[i] ? x[i] : h->sum[i];
    pthread_mutex_unlock(&h->lock);
    pthread_barrier_wait(&h->all);
    memcpy(x, h->sum, (size_t)n * sizeof *x);
    pthread_barrier_wait(&h->all);
}
static inline void hub_sum(void *impl, int64_t *x, int64_t n)
{
    hub_reduce(impl, x, n, false);
}
static inline void hub_most(void *impl, int64_t *x, int64_t n)
{
    hub_reduce(impl, x, n, true);
}
/* Returns when it has been received: whoever waits in a circle hangs. */
static inline void hub_send(void *impl, int to, const void *data, int64_t bytes)
{
    struct seat *s = impl;
    struct letter *l = &s->hub->letter[to][s->me];
    pthread_mutex_lock(&s->hub->lock);
    *l = (struct letter){data, bytes};
    s->hub->sent += bytes;
    pthread_cond_broadcast(&s->hub->changed);
    while (l->data) pthread_cond_wait(&s->hub->changed, &s->hub->lock);
    pthread_mutex_unlock(&s->hub->lock);
}
static inline void hub_receive(void *impl, int from, void *data, int64_t bytes)
{
    struct seat *s = impl;
    struct letter *l = &s->hub->letter[s->me][from];
    pthread_mutex_lock(&s->hub->lock);
    while (!l->data) pthread_cond_wait(&s->hub->changed, &s->hub->lock);
    if (l->bytes != bytes) abort(); /* the two do not speak of the same */
    memcpy(data, l->data, (size_t)bytes);
    l->data = NULL;
    pthread_cond_broadcast(&s->hub->changed);
    pthread_mutex_unlock(&s->hub->lock);
}

static const struct mt_job_ops hub_ops = {
    .broadcast = hub_broadcast, .sum = hub_sum, .most = hub_most, .send = hub_send, .receive = hub_receive};

/* Calls work(arg, job) on n threads, each a process of one rank of the job; returns the bytes they sent. */
struct hub_thread {
    pthread_t thread;
    struct seat seat;
    struct mt_job job;
    void (*work)(void *arg, const struct mt_job *job);
    void *arg;
};
static inline void *hub_thread(void *arg)
{
    struct hub_thread *t = arg;
    t->work(t->arg, &t->job);
    return NULL;
}
static inline int64_t hub_run(int n, void (*work)(void *arg, const struct mt_job *job), void *arg)
{
    static struct hub hub;
    struct hub_thread t[THREADS_MOST];
    memset(&hub, 0, sizeof hub);
    hub.n = n;
    pthread_barrier_init(&hub.all, NULL, (unsigned)n);
    pthread_mutex_init(&hub.lock, NULL);
    pthread_cond_init(&hub.changed, NULL);
    for (int i = 0; i < n; i++) {
        t[i] = (struct hub_thread){.seat = {&hub, i}, .work = work, .arg = arg};
        t[i].job = (struct mt_job){.n = n,
                                   .me = i,
                                   .on_node = n,
                                   .world = n,
                                   .first = i,
                                   .n_local = 1,
                                   .ops = &hub_ops,
                                   .impl = &t[i].seat};
        if (pthread_create(&t[i].thread, NULL, hub_thread, &t[i])) abort();
    }
    for (int i = 0; i < n; i++) pthread_join(t[i].thread, NULL);
    pthread_barrier_destroy(&hub.all);
    pthread_mutex_destroy(&hub.lock);
    pthread_cond_destroy(&hub.changed);
    return hub.sent;
}
#endif
