/* exec_stand.h: where the ranks of an executor stand, for whoever watches over them from another thread. Plain data: it is sent
 * to other processes as it is. */
#ifndef MT_DEVICE_CPU_EXEC_STAND_H
#define MT_DEVICE_CPU_EXEC_STAND_H
#include "device/cpu/exec.h"
#include "device/trace.h"

enum { MT_STAND_LAST = 8 };
enum mt_stand_kind { MT_STAND_EMPTY, MT_STAND_RUNS, MT_STAND_WAITS, MT_STAND_MEETS };

/* The first operation of a stream that is not over. */
struct mt_stand_stream {
    enum mt_stand_kind kind;
    int64_t seq;               /* its position, from 1 */
    uint16_t op;               /* RUNS, MEETS */
    mt_event ev;               /* WAITS: for this */
    struct mt_collective what; /* MEETS: a collective, and */
    int32_t members, here; /* in this process: how many have come; between processes: 0 of them are known */
};
struct mt_rank_stand {
    int32_t rank;
    int32_t host; /* what its host code does: mt_stand_host */
    bool working; /* some worker of this process runs an operation, or host code */
    int64_t run;  /* number of the run (mt_exec_run): the same on all ranks at one place of the program */
    struct mt_stand_stream stream[MT_N_STREAMS];
    int64_t entered[MT_TRACE_GROUPS][MT_TRACE_STREAMS]; /* number of the last collective begun in this run */
    int64_t n_last;                                     /* collectives begun in all; the last few: */
    struct mt_collective last[MT_STAND_LAST];           /* number i at i % MT_STAND_LAST */
};
/* Of the i-th rank of the executor. false: its lock could not be had within half a second. */
bool mt_exec_stand(struct mt_exec *x, int i, struct mt_rank_stand *out);
const char *mt_stand_host(int host); /* "waits for a host read" */
#endif
