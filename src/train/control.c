#include "train/control.h"

#include <pthread.h>

/* Blocked in every thread and taken by the watchdog's, so that no handler and no global is needed. */
sigset_t mt_control_stop_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    return set;
}
void mt_control_block_signals(void)
{
    sigset_t set = mt_control_stop_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* A launcher passes signals on to each process in its own time. */
void mt_control_agree(struct mt_control *c, const struct mt_job *job)
{
    mt_job_most(job, c->x, MT_N_CONTROLS);
}
