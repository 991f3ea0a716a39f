/* usage.h: what takes a run's memory: bytes by class, the fullest moment of its step, who is live then; as a table and as
 * RUN/ledger.json (docs/memory.md). */
#ifndef MT_TRAIN_USAGE_H
#define MT_TRAIN_USAGE_H
#include <stdio.h>

#include "device/lifetimes.h"
#include "train/session.h"

struct mt_usage {
    const struct mt_session *s; /* borrowed, laid out */
    struct mt_recording q;      /* owned: its step, as it was laid out */
    struct mt_lifetimes lives;  /* owned */
    int64_t all[MT_N_ARENAS][MT_N_ROW_CLASSES], live[MT_N_ARENAS][MT_N_ROW_CLASSES]; /* then: plan.fullest */
};
/* mt_usage_release is due after a failure too. */
MT_MUST_USE mt_status mt_usage_find(struct mt_usage *u, const struct mt_session *s, mt_err *e);
void mt_usage_release(struct mt_usage *u);

/* Does row's contents matter at a record? Contents of lasting classes always do. */
bool mt_usage_live(const struct mt_usage *u, int32_t row, int64_t record);

/* By arena: a line a class (bytes of all its rows, and of those live at the fullest moment), the layout, and the `largest`
 * biggest rows of that moment. Arenas without rows are left out. */
void mt_usage_print(const struct mt_usage *u, int largest, FILE *out);
/* Every row with its place and lifetimes, and the name of every record. */
void mt_usage_json(const struct mt_usage *u, FILE *out);

/* A line if the system has put pages where host.numa does not want them. */
void mt_usage_warn(const struct mt_session *s);
/* run.memory: the table to the terminal and RUN/ledger.json, from the first process of a job. */
MT_MUST_USE mt_status mt_usage_report(const struct mt_session *s, mt_err *e);
#endif
