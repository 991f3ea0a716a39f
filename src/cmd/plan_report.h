/* plan_report.h: what `moetitan plan` tells: docs/plan.md explains each line and each key. */
#ifndef MT_CMD_PLAN_REPORT_H
#define MT_CMD_PLAN_REPORT_H
#include <stdio.h>

#include "train/forecast.h"

enum { MT_PLAN_ROWS = 24 };
struct mt_plan_request {
    const char *config; /* the file, as given */
    struct mt_cluster cluster;
    enum mt_algorithm algorithm;
    double price; /* of a device for an hour; 0: not given */
};
/* Checkpoints on the nodes' own disks (ckpt.local_dir), each as large as every other; all 0: there are none. Disks have no rate in a
 * cluster's file: the time is that of sending. */
struct mt_plan_local {
    double own, wards; /* bytes of one on the node that has most: of its own ranks, of others' */
    double need;       /* of all that a node holds at most */
    double sent;       /* by a rank to its buddy, of one */
    int64_t steps;     /* between which it is sent, */
    double slice_s;    /* and seconds that a step waits for that */
};
struct mt_plan_report {
    const struct mt_plan_request *ask;
    const struct mt_forecast *f;
    const struct mt_forecast_times *t;
    double record_s, replay_s; /* what this program took */
    bool fits;
    int64_t limit[MT_N_ARENAS];
    int64_t class_bytes[MT_N_ARENAS][MT_N_ROW_CLASSES]; /* at the fullest point of the step */
    int32_t row[MT_N_ARENAS][MT_PLAN_ROWS];             /* the largest rows there */
    int n_rows[MT_N_ARENAS];
    int64_t params_total, params_active, tokens;
    double rate; /* tokens a second and rank */
    double mfu, mfu_full;
    const char *routing; /* how experts are chosen: "balanced", "skewed", "measured"; empty: there are none */
    struct {
        double step_s, rate, mfu;
    } even; /* the same step with every expert as busy as the others */
    double floor[MT_N_BOUNDS];
    enum mt_plan_bound bound;
    double exposed_s; /* collectives that the compute stream waited for, mean over the ranks */
    int64_t ckpt_bytes;
    double ckpt_s, joules, cost; /* a token; a million tokens */
    struct mt_plan_local local;
    /* Sent in a step by a rank, by group and link. */
    double sent_mean[MT_N_GROUPS][MT_N_LINKS];
    int64_t sent_most[MT_N_GROUPS][MT_N_LINKS], received_most[MT_N_GROUPS][MT_N_LINKS];
};
MT_MUST_USE mt_status mt_plan_report_init(struct mt_plan_report *r, const struct mt_plan_request *ask,
                                          const struct mt_forecast *f, const struct mt_forecast_times *t,
                                          mt_err *e);
/* The step time of a balanced routing beside the report's own. */
void mt_plan_report_even(struct mt_plan_report *r, double step_s);
/* The largest rows at the fullest point of each arena. */
void mt_plan_report_rows(const struct mt_plan_report *r, FILE *out);
void mt_plan_report_print(const struct mt_plan_report *r, FILE *out);
/* The report as JSON, the caller's. */
struct cJSON *mt_plan_report_object(const struct mt_plan_report *r);
#endif
