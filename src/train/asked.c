/* asked.c: what asks a run to save or to stop, besides its own options: signals, files in its folder, the job's time. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launch/limit.h"
#include "train/run.h"
#include "train/say.h"

void mt_run_find_end(struct mt_run *r)
{
    double left = r->cfg->run_time_limit;
    if (r->job->me == 0 && !(left > 0)) left = mt_limit_left(getenv, (double)time(NULL));
    r->end = mt_now() + left;
}

/* Whether there is a file of that name in the run's folder; it is gone then. */
static bool file_asks(const struct mt_run *r, const char *name)
{
    char path[MT_CONFIG_PATH + 16];
    snprintf(path, sizeof path, "%s/%s", r->cfg->run_dir, name);
    if (access(path, F_OK)) return false;
    if (unlink(path)) {
        fprintf(stderr, "moetitan: '%s' is there and cannot be removed, so it is not followed: %s\n", path,
                strerror(errno));
        return false;
    }
    mt_say("step %5lld  '%s' was there\n", (long long)r->at.step, path);
    return true;
}

/* Seconds that one more step may take, with what follows it and the last checkpoint: by the longest of each so far. */
static double seconds_for_another(const struct mt_run *r)
{
    const mt_config *c = r->cfg;
    int64_t next = r->at.step + 1;
    double first = mt_watchdog_longest(r->watchdog, MT_PHASE_FIRST_STEP),
           step = mt_watchdog_longest(r->watchdog, MT_PHASE_STEP),
           save = fmax(r->save_longest, mt_watchdog_longest(r->watchdog, MT_PHASE_SAVE)),
           valid = c->train_eval_interval && next % c->train_eval_interval == 0
                       ? mt_watchdog_longest(r->watchdog, MT_PHASE_VALIDATION)
                       : 0;
    return 1.5 * (step > 0 ? step : first) + valid + 2 * save + c->run_time_margin;
}

static bool time_is_over(const struct mt_run *r)
{
    double left = r->end - mt_now(), needed = seconds_for_another(r);
    if (left > needed) return false;
    mt_say("step %5lld  the job has %.0f s left, and another step with its checkpoint may take %.0f s\n",
           (long long)r->at.step, left, needed);
    return true;
}

void mt_run_ask(struct mt_run *r)
{
    int64_t *x = r->control.x;
    x[MT_CONTROL_STOP] = mt_watchdog_stop(r->watchdog);
    x[MT_CONTROL_SAVE] = 0;
    if (r->job->me == 0) {
        x[MT_CONTROL_STOP] |= file_asks(r, "stop") | time_is_over(r);
        x[MT_CONTROL_SAVE] = file_asks(r, "save");
        if (file_asks(r, "export")) x[MT_CONTROL_SAVE] = r->exports.asked = true;
    }
    mt_run_save_tell(r);
    mt_control_agree(&r->control, r->job);
    mt_run_save_heard(r);
}
