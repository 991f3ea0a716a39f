/* registry.c: what this build can keep results in. */
#include "base/features.h"
#include "sweep/sqlite.h"

mt_status mt_study_store(const struct mt_study *t, const char *path, bool *written, mt_err *e)
{
    *written = MT_HAVE_SQLITE;
#if MT_HAVE_SQLITE
    return mt_sqlite_store(t, path, e);
#else
    (void)t, (void)path, (void)e;
    return MT_OK;
#endif
}
