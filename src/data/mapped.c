#include "data/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static mt_status map_descriptor(mt_mapped *m, const char *path, mt_err *e)
{
    struct stat st;
    MT_REQUIRE(!fstat(m->fd, &st), e, MT_IO, "%s: cannot read its size: %s", path, strerror(errno));
    MT_REQUIRE(S_ISREG(st.st_mode), e, MT_DATA, "%s: not a regular file", path);
    m->bytes = st.st_size;
    if (!m->bytes) return MT_OK; /* mmap refuses a length of zero */
    void *at = mmap(NULL, (size_t)m->bytes, PROT_READ, MAP_SHARED, m->fd, 0);
    MT_REQUIRE(at != MAP_FAILED, e, MT_IO, "%s: cannot map %lld bytes: %s", path, (long long)m->bytes,
               strerror(errno));
    m->at = at;
    return MT_OK;
}

mt_status mt_mapped_open(mt_mapped *m, const char *path, mt_err *e)
{
    *m = (mt_mapped){.fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (m->fd < 0) {
        int why = errno;
        memset(m, 0, sizeof *m);
        MT_FAIL(e, MT_DATA, "%s: cannot open: %s", path, strerror(why));
    }
    mt_status s = map_descriptor(m, path, e);
    if (s != MT_OK) {
        close(m->fd);
        memset(m, 0, sizeof *m);
    }
    return s;
}

mt_status mt_mapped_check(const mt_mapped *m, const char *path, mt_err *e)
{
    struct stat st;
    MT_REQUIRE(!fstat(m->fd, &st), e, MT_IO, "%s: cannot read its size: %s", path, strerror(errno));
    MT_REQUIRE(st.st_size >= m->bytes, e, MT_DATA,
               "%s: has shrunk from %lld to %lld bytes while in use; data files must not change during a run",
               path, (long long)m->bytes, (long long)st.st_size);
    return MT_OK;
}

void mt_mapped_close(mt_mapped *m)
{
    if (m->at) munmap((void *)(uintptr_t)m->at, (size_t)m->bytes);
    if (m->fd > 0) close(m->fd);
    memset(m, 0, sizeof *m);
}
