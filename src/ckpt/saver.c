#include "ckpt/saver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "ckpt/file.h"
#include "ckpt/publish.h"

/* COPYING to PRUNING: of a save to the nodes' own disks. LEAVING and CLEANING: of one that was given up. */
enum phase { IDLE, WRITING, COPYING, NAMING, PRUNING, LEAVING, CLEANING };
/* A writer that takes longer to leave what was given up hangs. */
static const double LEAVING_S = 5;
struct mt_saver {
    struct mt_job job;
    double timeout_s;
    struct mt_parts parts;
    struct mt_writers *writers;
    struct mt_publishing what;
    struct mt_tier_saver tier;
    bool local; /* the present save is to the nodes' own disks */
    char run_dir[MT_CKPT_PATH], *config;
    struct mt_ckpt_keep keep;
    int64_t *file_bytes; /* [world] */
    int64_t bytes;       /* of all of them */
    enum phase phase;
    bool mine;   /* this process has a part in the phase, which its writers look after; */
    bool failed; /* or could not begin it */
    bool told;
    double begun, phase_begun;
    double complete; /* when the first process had given the folder its name */
    struct mt_saver_report report;
};

/* ---- opening ---- */
static mt_status room(void *arg, mt_err *e)
{
    const struct mt_saver *s = arg;
    if (s->local) return MT_OK; /* asked for when the tier was opened */
    return mt_saving_room(s->run_dir, s->bytes, e);
}

/* The first process's, when its files are written: the others' may not be. */
static mt_status publish(void *arg, const struct mt_turn *turn, mt_err *e)
{
    struct mt_saver *s = arg;
    mt_err later = {0};
    if (s->local) return MT_OK;
    MT_TRY(mt_publish(&s->what, turn, e));
    s->complete = mt_now();
    if (mt_ckpt_prune(s->run_dir, &s->keep, &later) != MT_OK) fprintf(stderr, "moetitan: %s\n", later.msg);
    return MT_OK;
}

static mt_status open_here(struct mt_saver *s, const struct mt_saver_options *o,
                           const struct mt_ckpt_items *items, mt_err *e)
{
    int world = s->job.world;
    struct mt_writers_options w = o->writers;
    snprintf(s->run_dir, sizeof s->run_dir, "%s", o->run_dir);
    w.timeout_s = o->timeout_s;
    if (o->step_waits_s > 0 && (!(w.timeout_s > 0) || o->step_waits_s < w.timeout_s))
        w.timeout_s = o->step_waits_s;
    if (s->job.me == 0) {
        w.prepare = room;
        w.finish = publish;
        w.arg = s;
        MT_TRY(mt_saving_clean(s->run_dir, e));
    }
    s->file_bytes = calloc((size_t)world, sizeof *s->file_bytes);
    MT_REQUIRE(s->file_bytes, e, MT_IO, "no memory for a table of %d ranks", world);
    MT_TRY(mt_saving_config(o->cfg, &s->config, &s->what.config_bytes, e));
    MT_TRY(mt_parts_open(&s->parts, items, world, o->when, e));
    for (int i = 0; i < s->parts.n_files; i++) s->file_bytes[s->parts.file[i].rank] = s->parts.file[i].bytes;
    s->what.run_dir = s->run_dir;
    s->what.world = world;
    s->what.file_bytes = s->file_bytes;
    s->what.config = s->config;
    MT_TRY(mt_tier_saver_open(&s->tier, o->tier, o->copies, &s->what, e));
    return mt_writers_open(&s->writers, &w, &s->parts, e);
}

mt_status mt_saver_open(struct mt_saver **out, const struct mt_saver_options *o,
                        const struct mt_ckpt_items *items, mt_err *e)
{
    struct mt_saver *s = calloc(1, sizeof *s);
    *out = s;
    mt_status st = s ? MT_OK : mt_err_set(e, MT_IO, "no memory for the saves of a run");
    if (s) {
        s->job = *o->job;
        s->timeout_s = o->timeout_s;
        st = open_here(s, o, items, e);
    }
    MT_TRY(mt_job_agree(o->job, st, e));
    mt_job_sum(o->job, s->file_bytes, o->job->world);
    for (int i = 0; i < o->job->world; i++) s->bytes += s->file_bytes[i];
    return MT_OK;
}

void mt_saver_close(struct mt_saver *s)
{
    if (!s || !mt_writers_close(s->writers)) return; /* what hangs may still use it */
    mt_parts_close(&s->parts);
    mt_tier_saver_close(&s->tier);
    free(s->config);
    free(s->file_bytes);
    free(s);
}

/* ---- phases ---- */
static void enter(struct mt_saver *s, enum phase phase)
{
    s->phase = phase;
    s->phase_begun = mt_now();
    s->mine = s->failed = s->told = false;
}

static void fail(struct mt_saver *s, const mt_err *e)
{
    s->failed = true;
    if (s->told) return;
    s->told = true;
    char who[32] = "";
    if (s->job.n > 1) snprintf(who, sizeof who, "process %d: ", s->job.me);
    fprintf(stderr, "moetitan: %ssaving the checkpoint of step %" PRId64 ": %s\n", who, s->what.meta.step,
            e->msg);
}

static void set_off(struct mt_saver *s, mt_status st, const mt_err *e)
{
    s->mine = st == MT_OK;
    if (st != MT_OK) fail(s, e);
}

void mt_saver_begin(struct mt_saver *s, const struct mt_saver_begin *b)
{
    char folder[MT_CKPT_PATH];
    mt_err e = {0};
    MT_ASSERT(s->phase == IDLE);
    s->what.meta = b->meta;
    s->what.metrics_bytes = b->metrics_bytes;
    s->keep = b->keep;
    s->begun = mt_now();
    s->report = (struct mt_saver_report){.bytes = s->bytes, .stalled_s = b->waited_s};
    s->local = b->local;
    mt_saving_folder(s->local ? s->tier.t->root : s->run_dir, b->meta.step, folder);
    enter(s, WRITING);
    set_off(s, mt_writers_begin(s->writers, folder, &e), &e);
}

static mt_status clean(void *arg, mt_err *e)
{
    const struct mt_saver *s = arg;
    return mt_saving_clean(s->run_dir, e);
}

/* A phase in which the first process, of each node where the save is to these, has something to do. */
static void enter_call(struct mt_saver *s, enum phase phase, mt_status (*fn)(void *arg, mt_err *e), void *arg)
{
    mt_err e = {0};
    enter(s, phase);
    if (s->local ? s->tier.t->leads : s->job.me == 0)
        set_off(s, mt_writers_call(s->writers, fn, arg, &e), &e);
}

/* Nothing is removed before the writers of all processes have left it: they would put files there again. */
static void give_up(struct mt_saver *s)
{
    mt_writers_cancel(s->writers, "it failed elsewhere");
    enter(s, LEAVING);
}

static void begin_cleaning(struct mt_saver *s)
{
    if (s->local)
        enter_call(s, CLEANING, mt_tier_saver_drop, &s->tier);
    else
        enter_call(s, CLEANING, clean, s);
}

bool mt_saver_under_way(const struct mt_saver *s)
{
    return s->phase != IDLE;
}

static bool leaves(const struct mt_saver *s)
{
    return s->phase == LEAVING && mt_now() - s->phase_begun < LEAVING_S && mt_writers_linger(s->writers);
}

void mt_saver_tell(struct mt_saver *s, int64_t *busy, int64_t *failed)
{
    mt_err e = {0};
    enum mt_written state = s->mine ? mt_writers_look(s->writers, &e) : MT_WRITTEN_NOTHING;
    if (state == MT_WRITTEN_BUSY && s->timeout_s > 0 && mt_now() - s->phase_begun > s->timeout_s) {
        char why[120];
        snprintf(why, sizeof why, "given up after %.0f s, the time that ckpt.timeout allows the store",
                 mt_now() - s->phase_begun);
        mt_writers_cancel(s->writers, why);
        state = mt_writers_look(s->writers, &e);
    }
    if (state == MT_WRITTEN_FAILED) fail(s, &e);
    *busy = state == MT_WRITTEN_BUSY || (s->phase == COPYING && mt_buddy_left(&s->tier.buddy)) || leaves(s);
    *failed = s->phase != IDLE && s->failed;
}

static enum mt_saver_event end(struct mt_saver *s, enum mt_saver_event event)
{
    struct mt_writers_report w = mt_writers_report(s->writers);
    s->report.seconds = (event == MT_SAVER_SAVED && !s->local && s->job.me == 0 ? s->complete : mt_now()) -
                        s->begun;
    s->report.write_s = w.write_s;
    s->report.stalled_s += w.stalled_s;
    s->phase = IDLE;
    return event;
}

static void copy(struct mt_saver *s)
{
    mt_err e = {0};
    if (mt_buddy_slice(&s->tier.buddy, &e) != MT_OK) fail(s, &e);
}

/* The files of all ranks are written, on their nodes. */
static void begin_copies(struct mt_saver *s)
{
    mt_err e = {0};
    enter(s, COPYING);
    if (mt_tier_saver_gather(&s->tier, &s->parts, &e) != MT_OK) fail(s, &e);
}

/* The next phase of a save whose present one is over, and has not failed. */
static enum mt_saver_event go_on(struct mt_saver *s)
{
    if (s->phase == WRITING && !s->local) return end(s, MT_SAVER_SAVED);
    if (s->phase == WRITING)
        begin_copies(s);
    else if (s->phase == COPYING)
        enter_call(s, NAMING, mt_tier_saver_publish, &s->tier);
    else if (s->phase == NAMING)
        enter_call(s, PRUNING, mt_tier_saver_prune, &s->tier);
    else
        begin_cleaning(s);
    return MT_SAVER_NOTHING;
}

enum mt_saver_event mt_saver_heard(struct mt_saver *s, int64_t busy, int64_t failed)
{
    if (s->phase == IDLE) return MT_SAVER_NOTHING;
    if (s->phase == CLEANING) return failed || !busy ? end(s, MT_SAVER_GIVEN_UP) : MT_SAVER_NOTHING;
    if (s->phase == PRUNING) return failed || !busy ? end(s, MT_SAVER_SAVED) : MT_SAVER_NOTHING;
    if (failed)
        give_up(s);
    else if (!busy)
        return go_on(s);
    else if (s->phase == COPYING)
        copy(s);
    return MT_SAVER_NOTHING;
}

void mt_saver_pause(struct mt_saver *s)
{
    mt_err e = {0};
    if (s->mine && mt_writers_wait(s->writers, 0.05, &e) == MT_WRITTEN_BUSY) return;
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

void mt_saver_gate(struct mt_saver *s, int rank, int64_t when)
{
    mt_writers_gate(s->writers, rank, when);
}

const int64_t *mt_saver_file_bytes(const struct mt_saver *s)
{
    return s->file_bytes;
}

struct mt_saver_report mt_saver_report(const struct mt_saver *s)
{
    return s->report;
}
