/* report_draw.h: the pictures of a report. */
#ifndef MT_CMD_REPORT_DRAW_H
#define MT_CMD_REPORT_DRAW_H
#include <stdio.h>

#include "cmd/report_read.h"

/* A curve of the report: one of metrics.jsonl, or communication that was not hidden, as a share of the step. */
#define MT_REPORT_CURVES(X)                                                                         \
    X(LOSS, "loss", "Loss", "nats a token")                                                         \
    X(VALIDATION, "validation", "Validation loss", "nats a token")                                  \
    X(RATE, "throughput", "Throughput", "tokens/s")                                                 \
    X(MFU, "mfu", "Share of the peak", "MFU, %")                                                    \
    X(NORM, "gradient-norm", "Gradient norm", "norm before clipping")                               \
    X(LR, "learning-rate", "Learning rate", "optim.lr times the schedule")                          \
    X(MEMORY, "memory", "Memory of a rank", "MiB")                                                  \
    X(DATA, "data-wait", "Waiting for data", "ms a step")                                           \
    X(BALANCE, "expert-balance", "Busiest expert", "times the mean, in the worst layer")            \
    X(IMBALANCE, "rank-imbalance", "Costliest rank", "times the mean, by the lengths of documents") \
    X(EXPOSED, "exposed", "Communication that was not hidden",                                      \
      "% of a step, mean over the first process's ranks")
enum mt_report_curve {
#define X(name, file, title, unit) MT_CURVE_##name,
    MT_REPORT_CURVES(X)
#undef X
        MT_N_CURVES
};
const char *mt_curve_file(enum mt_report_curve c); /* of a picture: its name without .svg */
const char *mt_curve_title(enum mt_report_curve c);
/* Whether some run has numbers for it. */
bool mt_curve_there(const struct mt_report_run *run, int n, enum mt_report_curve c);
/* All runs in one picture, with the first run's events if it is alone. IO: no memory. */
MT_MUST_USE mt_status mt_curve_draw(FILE *f, const struct mt_report_run *run, int n, enum mt_report_curve c,
                                    bool alone, mt_err *e);

/* Rows of experts: of every layer's busiest expert over the steps; of every expert in the last of them. Neither without
 * experts.jsonl. IO: no memory. */
MT_MUST_USE mt_status mt_experts_draw(FILE *f, const struct mt_report_run *run, bool over_steps, bool alone,
                                      mt_err *e);
#endif
