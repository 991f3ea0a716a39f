/* tracing.h: train.trace: what each operation of a chosen step took, as RUN/trace-STEP.json, and where the time went, on the
 * terminal and as RUN/trace-STEP-summary.json. docs/trace.md says how to read them.
 *
 * All processes of a job call these together, in the same order. A traced step does what any other does, to the bit. */
#ifndef MT_TRAIN_TRACING_H
#define MT_TRAIN_TRACING_H
#include "device/timeline.h"
#include "train/session.h"

struct mt_tracing {
    struct mt_times *times; /* owned: of the first n ranks of this process */
    int n, world;           /* traced here, and in the job: its first ranks */
};
/* Takes all memory that tracing needs; none if no step is to be traced. mt_tracing_close is due whatever became of it. This
 * one talks to no other process. */
MT_MUST_USE mt_status mt_tracing_open(struct mt_tracing *t, const struct mt_session *s, mt_err *e);
void mt_tracing_close(struct mt_tracing *t);
bool mt_tracing_wants(const struct mt_session *s, int64_t step); /* the number it has in metrics.jsonl */
/* Around the run of the step. */
void mt_tracing_begin(struct mt_tracing *t, struct mt_session *s);
void mt_tracing_end(struct mt_tracing *t, struct mt_session *s);
/* The i-th traced rank of this process, from mt_tracing_end to mt_tracing_write or the next begin. */
struct mt_timeline mt_tracing_timeline(const struct mt_tracing *t, const struct mt_session *s, int i);
/* Files and table; the trace is then forgotten. All processes come to the same status. */
MT_MUST_USE mt_status mt_tracing_write(struct mt_tracing *t, const struct mt_session *s, int64_t step,
                                       mt_err *e);
#endif
