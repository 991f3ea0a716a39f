/* sqlite.h: results in SQLite. Included by registry.c alone, where the library is there. */
#ifndef MT_SWEEP_SQLITE_H
#define MT_SWEEP_SQLITE_H
#include "sweep/study.h"

/* mt_study_store of a build that has SQLite. */
MT_MUST_USE mt_status mt_sqlite_store(const struct mt_study *t, const char *path, mt_err *e);
#endif
