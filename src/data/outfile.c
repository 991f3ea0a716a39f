#include "data/outfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

mt_status mt_outfile_open(mt_outfile *f, const char *prefix, const char *suffix, mt_err *e)
{
    *f = (mt_outfile){0};
    if (asprintf(&f->path, "%s%s", prefix, suffix) < 0) f->path = NULL;
    if (asprintf(&f->temporary, "%s%s.tmp", prefix, suffix) < 0) f->temporary = NULL;
    MT_REQUIRE(f->path && f->temporary, e, MT_IO, "writing %s%s: out of memory", prefix, suffix);
    f->file = fopen(f->temporary, "wbe");
    MT_REQUIRE(f->file, e, MT_IO, "cannot create %s: %s", f->temporary, strerror(errno));
    return MT_OK;
}

mt_status mt_outfile_write(mt_outfile *f, const void *data, int64_t bytes, mt_err *e)
{
    MT_REQUIRE(fwrite(data, 1, (size_t)bytes, f->file) == (size_t)bytes, e, MT_IO, "cannot write %s: %s",
               f->temporary, strerror(errno));
    return MT_OK;
}

mt_status mt_outfile_finish(mt_outfile *f, mt_err *e)
{
    bool ok = !fflush(f->file) && !fsync(fileno(f->file));
    int why = errno;
    if (fclose(f->file) && ok) {
        ok = false;
        why = errno;
    }
    f->file = NULL;
    MT_REQUIRE(ok, e, MT_IO, "cannot write %s: %s", f->temporary, strerror(why));
    return MT_OK;
}

mt_status mt_outfile_place(mt_outfile *f, mt_err *e)
{
    MT_REQUIRE(!rename(f->temporary, f->path), e, MT_IO, "cannot rename %s to %s: %s", f->temporary, f->path,
               strerror(errno));
    free(f->temporary);
    f->temporary = NULL;
    return MT_OK;
}

void mt_outfile_release(mt_outfile *f)
{
    if (f->file) fclose(f->file);
    if (f->temporary) unlink(f->temporary);
    free(f->temporary);
    free(f->path);
    *f = (mt_outfile){0};
}
