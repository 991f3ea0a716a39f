/* tracing_sum.h: where the time of a traced step went, over all traced ranks of a job. */
#ifndef MT_TRAIN_TRACING_SUM_H
#define MT_TRAIN_TRACING_SUM_H
#include "train/tracing.h"

struct mt_trace_op { /* of all traced ranks */
    int64_t calls, time, kflop, bytes;
};
struct mt_trace_sums {
    int n;                        /* ranks: 0 to n - 1 */
    struct mt_timeline_sum *rank; /* owned: by rank, zeros where another process has it, until shared */
    struct mt_trace_op op[MT_N_OPS];
};
/* This process's ranks. mt_trace_sums_close is due whatever became of it. */
MT_MUST_USE mt_status mt_trace_sums_open(struct mt_trace_sums *a, const struct mt_tracing *t,
                                         const struct mt_session *s, mt_err *e);
void mt_trace_sums_close(struct mt_trace_sums *a);
/* All processes, together: then each has all ranks. */
void mt_trace_sums_share(struct mt_trace_sums *a, const struct mt_session *s);
/* The table to the terminal; path: of the trace. And RUN/trace-STEP-summary.json. */
void mt_trace_sums_print(const struct mt_trace_sums *a, int64_t step, const char *path);
MT_MUST_USE mt_status mt_trace_sums_write(const struct mt_trace_sums *a, const struct mt_session *s,
                                          int64_t step, mt_err *e);
#endif
