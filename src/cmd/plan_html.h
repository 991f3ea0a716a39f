/* plan_html.h: a plan as one page that needs nothing else: no script, nothing from elsewhere. */
#ifndef MT_CMD_PLAN_HTML_H
#define MT_CMD_PLAN_HTML_H
#include "cmd/plan_effects.h"
#include "cmd/plan_report.h"

/* line: of the rank whose streams and memory are shown. Its numbers are those of the report's JSON, each in an element
 * <data data-key="KEY" value="NUMBER">. IO: it cannot be written; INTERNAL. */
MT_MUST_USE mt_status mt_plan_html(const struct mt_plan_report *r, const struct mt_plan_effects *x,
                                   const struct mt_timeline *line, const char *path, mt_err *e);
#endif
