/* plan_effects.h: --assumptions: what the numbers of a cluster that have no source matter for a plan's results. */
#ifndef MT_CMD_PLAN_EFFECTS_H
#define MT_CMD_PLAN_EFFECTS_H
#include "cmd/plan_report.h"

/* A plan's results with one number changed. */
struct mt_plan_outcome {
    double step_s, ckpt_s, joules;
    bool fits;
};
/* [number][0]: that number 20% lower; [1]: 20% higher; as far as its range goes. Of assumed ones only. */
struct mt_plan_effects {
    bool known;
    struct mt_plan_outcome with[MT_N_CLUSTER_KEYS][2];
};
/* Of the report's plan. IO: no memory; INTERNAL. */
MT_MUST_USE mt_status mt_plan_effects_find(struct mt_plan_effects *x, const struct mt_plan_report *r,
                                           mt_err *e);
/* Of the step time, as "+1.25%". 0 has no fifth: "". */
void mt_plan_effect_step(const struct mt_plan_effects *x, const struct mt_plan_report *r, int key, int side,
                         char *out, size_t size);
/* Besides the step: "checkpoint +25.0% -16.7%", "does not fit if higher"; "": nothing. */
void mt_plan_effect_rest(const struct mt_plan_effects *x, const struct mt_plan_report *r, int key, char *out,
                         size_t size);
void mt_plan_effects_print(const struct mt_plan_effects *x, const struct mt_plan_report *r, FILE *out);
#endif
