/* sweep_tell.h: what a sweep found, as a table, as CSV, and as pictures. docs/sweep.md explains the columns. */
#ifndef MT_CMD_SWEEP_TELL_H
#define MT_CMD_SWEEP_TELL_H
#include <stdio.h>

#include "sweep/study.h"

/* Best first: the metric with its spread over repeats, the ratio to the baseline, memory, what differs, and why a point has no
 * number. */
void mt_sweep_table(const struct mt_study *t, FILE *out);
/* A line a point, in the same order; IO. */
MT_MUST_USE mt_status mt_sweep_csv(const struct mt_study *t, const char *path, mt_err *e);
/* DIR/option-KEY.svg for every option that points differ in: the metric over its values; DIR/pareto.svg: speed over memory. IO.
 * Points that have not run are not in them. */
MT_MUST_USE mt_status mt_sweep_pictures(const struct mt_study *t, mt_err *e);

/* A metric's unit of display, and its name with that unit. */
double mt_metric_unit(enum mt_choice_metric m);
const char *mt_metric_text(enum mt_choice_metric m);
#endif
