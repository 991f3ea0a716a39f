/* metrics.h: what a run tells: RUN/metrics.jsonl, a line a step, RUN/experts.jsonl, and lines on the terminal. Of a job's processes only
 * the first tells anything. Nothing here allocates. */
#ifndef MT_TRAIN_METRICS_H
#define MT_TRAIN_METRICS_H
#include <stdint.h>

#include "base/clock.h"
#include "data/balance.h"
#include "train/session.h"
#include "train/telemetry.h"

struct mt_metrics {
    int fd; /* of metrics.jsonl; -1: not this process's to write, or not open */
    double
        peak_flops; /* what MFU is a share of: the best GEMM rate measured at start, times workers, times processes */
    double flops_per_token;
    double started, last_log; /* seconds */
    int64_t first_step;       /* of this process */
    int64_t tokens_since_log;
    double step_s_since_log;
    struct mt_telemetry telemetry;
    int statm; /* /proc/self/statm; -1: not there */
    /* experts.jsonl, and the room for one of its lines, owned; -1 and NULL: not wanted. */
    int experts_fd;
    char *line;
    size_t line_room;
};
struct mt_metrics_step {
    int64_t step, steps, tokens, step_tokens; /* steps done, of the run; tokens seen, in this step */
    double loss, grad_norm, lr, step_s, data_wait_s;
    double
        exposed_s; /* that the compute stream stood still for other streams, or in collectives: mean of this process's ranks */
    double mtp_loss; /* mean over the modules for further tokens of their mean losses; 0: there are none */
    double top;      /* largest attention score, with optim.qk_clip */
    double aux[MT_N_AUX];   /* means over tokens and blocks of experts, without coefficients */
    double dropped;         /* share of the rows that experts had no room for */
    double balance;         /* busiest expert over the mean, worst layer; 0: no experts */
    const char *ranks;      /* fields of the ranks' times (train/stragglers.h); borrowed */
    const int64_t *routed;  /* borrowed: [L][E] rows of every expert, over all ranks and micro-batches */
    mt_imbalance imbalance; /* of ranks, by the documents of their sequences; 0: none is possible */
};

/* Opens the files for a run that goes on after `step` steps: lines of later steps, and a torn last line, are
 * removed. Measures the peak. */
MT_MUST_USE mt_status mt_metrics_open(struct mt_metrics *m, const struct mt_session *s, int64_t step,
                                      mt_err *e);
void mt_metrics_close(struct mt_metrics *m);
/* The start-up table: model, device, memory. */
void mt_metrics_banner(const struct mt_metrics *m, const struct mt_session *s);
/* A line of metrics.jsonl; `show`: one on the terminal too. */
void mt_metrics_step(struct mt_metrics *m, const struct mt_session *s, const struct mt_metrics_step *x,
                     bool show);
/* Instead, of a step that was not applied: loss and gradient norm may be no numbers. rollback: the step whose weights came back;
 * -1: none did. */
void mt_metrics_left_out(struct mt_metrics *m, const struct mt_metrics_step *x, bool spike, int64_t rollback);
void mt_metrics_valid(struct mt_metrics *m, int64_t step, double val_loss);
#endif
