/* report_read.h: what a run's folder tells of it, for its report. */
#ifndef MT_CMD_REPORT_READ_H
#define MT_CMD_REPORT_READ_H
#include <stdio.h>

#include "config/config.h"
#include "train/history.h"

struct mt_report_event {
    int64_t step;
    char kind[16], time[24], text[256]; /* of events.jsonl; of metrics.jsonl "skipped"; of exit.json "exit" */
};
/* Rows that every expert of every layer got in a step: mean is 1. */
struct mt_report_experts {
    int64_t step;
    double *share; /* owned: [layers][experts] */
};
/* Where a traced step's time went: a cause's share of the compute stream, mean over the ranks. */
enum { MT_REPORT_CAUSES = 16 };
struct mt_report_trace {
    int64_t step;
    double mean_ms;
    int n;
    struct {
        char name[32];
        double ms;
        bool exposed;
    } cause[MT_REPORT_CAUSES];
};
struct mt_report_run {
    char dir[MT_CONFIG_PATH], name[64]; /* name: the end of dir, or all of it where two ends are alike */
    bool configured;                    /* config.yaml is there, and read */
    mt_config cfg;
    struct mt_history h;
    struct mt_report_event *event; /* owned, in the order of their steps as far as they have them */
    int n_events;
    struct mt_report_experts *experts; /* owned, in the order of the file */
    int n_experts, layers, width;      /* layers with experts, and experts of one */
    int layer[1024];                   /* which layers */
    struct mt_report_trace *trace;     /* owned, by step */
    int n_traces;
};
/* CONFIG: no folder of a run, which has metrics.jsonl. IO. mt_report_release is due whatever came of it. */
MT_MUST_USE mt_status mt_report_read(struct mt_report_run *r, const char *dir, mt_err *e);
void mt_report_release(struct mt_report_run *r);
#endif
