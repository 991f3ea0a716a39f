/* events.h: what happened to a run beside its steps, as RUN/events.jsonl: starts, checkpoints, stops. A line an event, by the
 * first process of a job, never taken back: a run that goes on from an earlier step has the events of both its lives.
 *
 *   {"time": "2026-01-31T12:00:00Z", "step": 50, "event": "checkpoint", "text": "in 0.03 s"}
 *
 * step: steps done then. Skipped steps are in metrics.jsonl. */
#ifndef MT_TRAIN_EVENTS_H
#define MT_TRAIN_EVENTS_H
#include "comm/job.h"
#include "config/config.h"

/* START: anew; RESUME: from a checkpoint; CHECKPOINT: saved; UNSAVED: one could not be written; EXPORT: of weights, done; UNEXPORTED: not
 * done; STOP: asked to, saved; END: the last step is done. */
#define MT_NOTES(X)             \
    X(START, "start")           \
    X(RESUME, "resume")         \
    X(CHECKPOINT, "checkpoint") \
    X(UNSAVED, "unsaved")       \
    X(EXPORT, "export")         \
    X(UNEXPORTED, "unexported") \
    X(STOP, "stop")             \
    X(END, "end")
enum mt_note_kind {
#define X(name, text) MT_NOTE_##name,
    MT_NOTES(X)
#undef X
        MT_N_NOTES
};
const char *mt_note_text(enum mt_note_kind k);
/* What cannot be written is lost: that must not end a run. */
void mt_note(const mt_config *c, const struct mt_job *job, int64_t step, enum mt_note_kind k, const char *fmt,
             ...) MT_PRINTF(5, 6);
#endif
