/* history.h: what a run's metrics.jsonl says, read back: for reports, and to compare the runs of a sweep. */
#ifndef MT_TRAIN_HISTORY_H
#define MT_TRAIN_HISTORY_H
#include <stdint.h>

#include "base/status.h"

enum mt_history_key {
#define MT_HISTORY(key) MT_HISTORY_##key,
#include "train/history.def"
    MT_N_HISTORY
};
/* A line: of a step, or of a validation. */
struct mt_history_row {
    int64_t step;
    double value[MT_N_HISTORY]; /* NaN: the line does not have it, or the step was skipped */
    bool skipped;               /* its update was not applied */
    int64_t back;               /* skipped: the step whose weights came back; -1: none */
};
struct mt_history {
    struct mt_history_row *row; /* owned: [n], in the order of the file */
    int64_t n;
    int64_t unread; /* lines that are no JSON object with a step: a torn last one, for instance */
    int64_t steps;  /* the last step that was done, or skipped; 0: none */
};
/* No file is a history of no rows. IO: the file cannot be read, or no memory. mt_history_close is due whatever came of it. */
MT_MUST_USE mt_status mt_history_open(struct mt_history *h, const char *path, mt_err *e);
void mt_history_close(struct mt_history *h);
/* The name of a number in the file. */
const char *mt_history_key(enum mt_history_key k);

/* Calls f for every line of a file of JSON lines that is an object; *others counts the rest. No file: no call. IO. */
struct cJSON;
MT_MUST_USE mt_status mt_json_lines(const char *path,
                                    mt_status (*f)(void *arg, const struct cJSON *o, mt_err *e), void *arg,
                                    int64_t *others, mt_err *e);
#endif
