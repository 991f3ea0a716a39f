/* telemetry.h: those who watch a run from outside: TensorBoard's files, Prometheus's text file. */
#ifndef MT_TRAIN_TELEMETRY_H
#define MT_TRAIN_TELEMETRY_H
#include "config/config.h"
#include "train/tensorboard.h"

struct mt_telemetry {
    const mt_config *cfg; /* borrowed; NULL: not open */
    struct mt_tensorboard tensorboard;
    bool told; /* that Prometheus's file cannot be written */
};
/* For the first process of a run that goes on after `step` steps. IO. */
MT_MUST_USE mt_status mt_telemetry_open(struct mt_telemetry *t, const mt_config *c, int64_t step, mt_err *e);
/* show: the step is one that the terminal shows; Prometheus's file is written at these. Allocates nothing. */
void mt_telemetry_tell(struct mt_telemetry *t, const struct mt_scalars *s, bool show);
void mt_telemetry_close(struct mt_telemetry *t); /* zeros are fine */
#endif
