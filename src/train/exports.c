#include "train/exports.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "ckpt/ckpt.h"
#include "ckpt/file.h"
#include "train/events.h"
#include "train/say.h"

static void failed(const struct mt_exports *x, const mt_config *c, const struct mt_job *job, int64_t step,
                   const char *why)
{
    fprintf(stderr, "moetitan: the checkpoint of step %" PRId64 " is not exported to '%s': %s\n", step, x->to,
            why);
    mt_note(c, job, step, MT_NOTE_UNEXPORTED, "%s: %s", x->to, why);
}

/* ---- the begin ---- */
mt_status mt_exports_check(const mt_config *c, mt_err *e)
{
    if (!c->ckpt_export_dir[0] || !c->data_tokenizer[0]) return MT_OK;
    MT_REQUIRE(!access(c->data_tokenizer, R_OK), e, MT_CONFIG,
               "data.tokenizer: cannot read '%s', which exports to ckpt.export_dir are to get: %s",
               c->data_tokenizer, strerror(errno));
    return MT_OK;
}

static mt_status start(struct mt_exports *x, const mt_config *c, int64_t step, mt_err *e)
{
    char from[MT_CKPT_PATH];
    mt_ckpt_folder(c->run_dir, step, from);
    if (c->ckpt_export_dir[0]) MT_TRY(mt_make_folders(c->ckpt_export_dir, e));
    return mt_child_start(&x->child,
                          (const char *const[]){"/proc/self/exe", "ckpt", "export", from, x->to, NULL}, e);
}

void mt_exports_saved(struct mt_exports *x, const mt_config *c, const struct mt_job *job, int64_t step)
{
    mt_err e = {0};
    char to[sizeof x->to];
    if (!c->ckpt_export_dir[0] && !x->asked) return;
    mt_exports_look(x, c, job);
    if (x->step) {
        mt_say("step %5lld  not exported: the export of step %lld is not over\n", (long long)step,
               (long long)x->step);
        x->left_out = step;
        return;
    }
    snprintf(to, sizeof to, "%s/%sstep-%08" PRId64, c->ckpt_export_dir[0] ? c->ckpt_export_dir : c->run_dir,
             c->ckpt_export_dir[0] ? "" : "export-", step);
    memcpy(x->to, to, sizeof to);
    x->asked = false;
    x->left_out = 0;
    x->begun = mt_now();
    if (start(x, c, step, &e) == MT_OK)
        x->step = step;
    else
        failed(x, c, job, step, e.msg);
}

void mt_exports_here(struct mt_exports *x, const mt_config *c, const struct mt_job *job, int64_t step)
{
    if (x->asked) mt_exports_saved(x, c, job, step);
}

/* ---- the end ---- */
static const char *without_name(const char *text)
{
    static const char name[] = "moetitan: ";
    return strncmp(text, name, sizeof name - 1) ? text : text + sizeof name - 1;
}

void mt_exports_look(struct mt_exports *x, const mt_config *c, const struct mt_job *job)
{
    struct mt_spawned end;
    char why[64];
    if (!x->step || !mt_child_ended(&x->child, &end)) return;
    int64_t step = x->step;
    double seconds = mt_now() - x->begun;
    x->step = 0;
    if (end.code) {
        snprintf(why, sizeof why, "it ended with code %d", end.code);
        failed(x, c, job, step, end.err[0] ? without_name(end.err) : why);
        return;
    }
    mt_say("step %5lld  exported to %s in %.2f s\n", (long long)step, end.out, seconds);
    mt_note(c, job, step, MT_NOTE_EXPORT, "%s in %.2f s", end.out, seconds);
}

/* What it has written so far counts for nothing. */
static void give_up(struct mt_exports *x, const mt_config *c, const struct mt_job *job)
{
    char left[sizeof x->to + 16];
    mt_err e = {0};
    int64_t step = x->step;
    mt_child_kill(&x->child);
    x->step = 0;
    snprintf(left, sizeof left, "%s.exporting", x->to);
    failed(x, c, job, step, "the run ends before it was over; `moetitan ckpt export` does it later");
    if (mt_remove_folder(left, NULL, &e) != MT_OK) fprintf(stderr, "moetitan: %s\n", e.msg);
}

void mt_exports_end(struct mt_exports *x, const mt_config *c, const struct mt_job *job, double seconds)
{
    double until = mt_now() + seconds;
    for (mt_exports_look(x, c, job); (x->step || x->left_out) && mt_now() < until;
         mt_exports_look(x, c, job)) {
        if (!x->step) mt_exports_saved(x, c, job, x->left_out);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    if (x->step) give_up(x, c, job);
}
