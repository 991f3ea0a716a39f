#include "train/control.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

/* Blocked in every thread and polled between steps, so that no handler and no global is needed. */
static sigset_t stop_signals(void)
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
    sigset_t set = stop_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void mt_control_signals(struct mt_control *c)
{
    sigset_t set = stop_signals();
    if (sigtimedwait(&set, NULL, &(struct timespec){0, 0}) > 0) c->x[MT_CONTROL_STOP] = 1;
}

/* A launcher passes signals on to each process in its own time. */
void mt_control_agree(struct mt_control *c, const struct mt_job *job)
{
    mt_job_most(job, c->x, MT_N_CONTROLS);
}
