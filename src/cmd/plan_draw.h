/* plan_draw.h: the pictures of a plan's page, in SVG. Colours are classes of the page: c0, c1, ... */
#ifndef MT_CMD_PLAN_DRAW_H
#define MT_CMD_PLAN_DRAW_H
#include <stdio.h>

#include "cmd/plan_picture.h"
#include "cmd/plan_report.h"

/* Each stream over a part of the step. IO: no memory. */
MT_MUST_USE mt_status mt_draw_streams(FILE *f, const struct mt_timeline *t, const struct mt_window *w,
                                      mt_err *e);
/* An arena over the step, stacked by class, against its limit and the layout's peak, bytes. */
void mt_draw_memory(FILE *f, const struct mt_filling *m, int64_t length, int64_t peak, int64_t limit,
                    const char *label);
/* The compute stream's time, mean over the ranks, and the floors below it. */
void mt_draw_time(FILE *f, const struct mt_plan_report *r);
void mt_draw_traffic(FILE *f, const struct mt_plan_report *r);
#endif
