/* job.h: the processes of a job, and what they say to each other outside of the step: set-up, agreement,
 * checkpoints.
 *
 * The ranks of a job lie in one process (--fake-ranks), or one in each of several. What is called on a job of
 * one process returns at once. Of several, every process calls the same functions in the same order, while no
 * executor has work. A lost process, or a call that fails, ends the whole job. */
#ifndef MT_COMM_JOB_H
#define MT_COMM_JOB_H
#include <stdint.h>

#include "comm/who.h"
#include "device/group.h"
#include "launch/launch.h"

struct mt_job_ops;
struct mt_job {
    int n, me;                    /* processes, this one */
    int on_node;                  /* processes on this node */
    int world;                    /* ranks of all processes: */
    int first, n_local;           /* this one's are [first, first + n_local) */
    const struct mt_job_ops *ops; /* NULL: one process */
    void *impl;
};

/* All `world` ranks in this process. */
static inline struct mt_job mt_job_alone(int world)
{
    return (struct mt_job){.n = 1, .on_node = 1, .world = world, .n_local = world};
}
/* Joins the job that the process was started in. RANKS: it has several processes and this build no way to
 * talk to them; DEVICE: the library refused. Before other threads are made, with the signals blocked that the
 * program polls. */
MT_MUST_USE mt_status mt_job_open(struct mt_job *j, const struct mt_launch *l, mt_err *e);
/* Leaves it, together. st: what all processes came to, and e its message, which is printed once. */
void mt_job_close(struct mt_job *j, mt_status st, mt_err *e);

/* How a phase went: MT_OK if it did for all; else all get the status and message of the first process where
 * it failed, which names all of them where it did not fail for all. */
MT_MUST_USE mt_status mt_job_agree(const struct mt_job *j, mt_status st, mt_err *e);
/* RANKS on all processes unless they have the same text; the message shows the first line that differs,
 * called `what`. */
MT_MUST_USE mt_status mt_job_same(const struct mt_job *j, const char *what, const char *text, mt_err *e);
/* A failure the others do not know of, in the middle of their step: prints it and ends the job with its code.
 * Returns st where this process is the whole job, or st is MT_OK. */
mt_status mt_job_fatal(const struct mt_job *j, mt_status st, const mt_err *e);

void mt_job_broadcast(const struct mt_job *j, void *data, int64_t bytes, int from);
void mt_job_sum(const struct mt_job *j, int64_t *x, int64_t n);  /* over the processes, to all */
void mt_job_most(const struct mt_job *j, int64_t *x, int64_t n); /* the largest of each, to all */
bool mt_job_any(const struct mt_job *j, bool here);              /* on some process? */
struct mt_who mt_job_who(const struct mt_job *j, bool here);     /* the processes where it holds, to all */
void mt_job_send(const struct mt_job *j, int to, const void *data, int64_t bytes);
void mt_job_receive(const struct mt_job *j, int from, void *data, int64_t bytes);

/* ---- for a thread of its own, at any time ---- */
/* Where this process stands among these calls. A job of one process has made none. */
struct mt_job_call {
    int64_t n;        /* collective calls entered */
    const char *what; /* under way: "a broadcast"; NULL: none */
    int peer;         /* with this process alone; -1: with all */
};
struct mt_job_call mt_job_call(const struct mt_job *j);
/* A note to another process, which may be stopped or gone: nothing waits for it. false: not sent, the library is held by a
 * call that does not return. */
bool mt_job_note(const struct mt_job *j, int to, const void *data, int64_t bytes);
/* Takes a note of so many bytes that has come: its sender, -1 if there is none. */
int mt_job_noted(const struct mt_job *j, void *data, int64_t bytes);
/* Ends the whole job at once, whatever its processes are doing. */
void mt_job_stop(const struct mt_job *j, int code) __attribute__((noreturn));

/* What carries a job of several processes. Each waits until it is done, and sleeps in between. */
struct mt_job_ops {
    void (*broadcast)(void *impl, void *data, int64_t bytes, int from);
    void (*sum)(void *impl, int64_t *x, int64_t n);
    void (*most)(void *impl, int64_t *x, int64_t n); /* the largest of each */
    void (*send)(void *impl, int to, const void *data, int64_t bytes);
    void (*receive)(void *impl, int from, void *data, int64_t bytes);
    void (*stop)(void *impl, int code) __attribute__((noreturn)); /* the job, at once */
    struct mt_job_call (*call)(void *impl);
    bool (*note)(void *impl, int to, const void *data, int64_t bytes);
    int (*noted)(void *impl, void *data, int64_t bytes);
    /* For the collectives of n ranks, ascending, of which this process is one. All processes call it, each
     * for its own group, with a group of one too, which gets none. IO: no memory. */
    mt_status (*wire)(void *impl, const int *ranks, int n, struct mt_wire **wire, mt_err *e);
    void (*leave)(void *impl);
};
/* registry.c: the build's implementation. */
MT_MUST_USE mt_status mt_job_join(struct mt_job *j, const struct mt_launch *l, mt_err *e);
#endif
