/* control.h: what the processes of a run agree on between two steps, and the signals that ask for it. */
#ifndef MT_TRAIN_CONTROL_H
#define MT_TRAIN_CONTROL_H
#include <signal.h>

#include "comm/job.h"

enum mt_control_row {
#define MT_CONTROL(name) MT_CONTROL_##name,
#include "train/control.def"
#undef MT_CONTROL
    MT_N_CONTROLS
};
struct mt_control {
    int64_t x[MT_N_CONTROLS];
};
/* Those that ask a run to stop: SIGTERM, SIGINT and SIGUSR1. */
sigset_t mt_control_stop_signals(void);
/* Keeps them for the run's watchdog: before any thread is made, and before the job is joined. */
void mt_control_block_signals(void);
/* Every process comes to the same numbers. All processes, while no executor has work. */
void mt_control_agree(struct mt_control *c, const struct mt_job *job);
#endif
