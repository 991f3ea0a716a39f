#include "device/mapping.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

size_t mt_huge_page_bytes(const char *root)
{
    char path[512], line[128] = "";
    unsigned long long bytes = 0;
    snprintf(path, sizeof path, "%s/enabled", root);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    bool given = fgets(line, sizeof line, f) && !strstr(line, "[never]");
    fclose(f);
    snprintf(path, sizeof path, "%s/hpage_pmd_size", root);
    f = given ? fopen(path, "r") : NULL;
    if (!f) return 0;
    if (fscanf(f, "%llu", &bytes) != 1 || (bytes & (bytes - 1))) bytes = 0;
    fclose(f);
    return (size_t)bytes;
}

/* ---- touching ---- */
enum { MOST_THREADS = 64 };
static const size_t least_share = (size_t)64 << 20; /* a thread is not worth its start for less */

struct share {
    pthread_t thread;
    char *at;
    size_t bytes;
    int failed; /* errno */
};

/* One write a page does where the system has no call for it. */
static void *touch(void *arg)
{
    struct share *s = arg;
    if (!madvise(s->at, s->bytes, MADV_POPULATE_WRITE)) return NULL;
    s->failed = errno == EINVAL || errno == ENOSYS ? 0 : errno;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < s->bytes && !s->failed; i += page) *(volatile char *)(s->at + i) = 0;
    return NULL;
}

static mt_status touch_all(const struct mt_mapping *m, const struct mt_mapping_options *o, mt_err *e)
{
    struct share share[MOST_THREADS];
    size_t unit = o->huge_bytes ? o->huge_bytes : (size_t)sysconf(_SC_PAGESIZE);
    size_t n = m->usable_bytes / least_share, started = 0;
    if (n > (size_t)o->threads) n = (size_t)o->threads;
    if (n > MOST_THREADS) n = MOST_THREADS;
    if (n < 1) n = 1;
    size_t each = (m->usable_bytes / n + unit - 1) / unit * unit, at = 0;
    for (; at < m->usable_bytes; at += each, started++) {
        size_t bytes = m->usable_bytes - at < each ? m->usable_bytes - at : each;
        share[started] = (struct share){.at = m->usable + at, .bytes = bytes};
        if (started && pthread_create(&share[started].thread, NULL, touch, &share[started])) break;
    }
    if (at < m->usable_bytes) share[0].bytes = 0; /* a thread is missing: all of it here */
    struct share whole = {.at = m->usable, .bytes = m->usable_bytes};
    touch(share[0].bytes ? &share[0] : &whole);
    int failed = share[0].bytes ? share[0].failed : whole.failed;
    for (size_t i = 1; i < started; i++) {
        pthread_join(share[i].thread, NULL);
        if (share[i].failed) failed = share[i].failed;
    }
    MT_REQUIRE(!failed, e, MT_NOFIT, "the system does not give the %zu bytes that were mapped: %s",
               m->usable_bytes, strerror(failed));
    return MT_OK;
}

/* ---- mapping ---- */
static char *align_up(char *p, size_t to)
{
    return p + (size_t)(-(uintptr_t)p % to);
}

/* Room for a page that faults on either side, and for the pages themselves to begin at a huge one. */
static mt_status reserve(struct mt_mapping *m, int64_t bytes, int64_t align,
                         const struct mt_mapping_options *o, mt_err *e)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), want = bytes > 0 ? (size_t)bytes : 1;
    MT_ASSERT(align > 0 && !(align & (align - 1)) && (size_t)align <= page);
    m->usable_bytes = (want + page - 1) / page * page;
    bool huge = o->huge != MT_HUGE_OFF && o->huge_bytes > page && m->usable_bytes >= o->huge_bytes;
    size_t begin = huge ? o->huge_bytes : page;
    m->map_bytes = m->usable_bytes + page + begin;
    m->map = mmap(NULL, m->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m->map == MAP_FAILED) m->map = NULL;
    MT_REQUIRE(m->map, e, MT_NOFIT, "cannot map %zu bytes: %s", m->map_bytes, strerror(errno));
    m->usable = align_up((char *)m->map + page, begin);
    m->base = m->usable + (m->usable_bytes - (want + (size_t)align - 1) / (size_t)align * (size_t)align);
    return MT_OK;
}

mt_status mt_mapping_open(struct mt_mapping *m, int64_t bytes, int64_t align,
                          const struct mt_mapping_options *o, mt_err *e)
{
    mt_err ignored = {0};
    *m = (struct mt_mapping){0};
    MT_TRY(reserve(m, bytes, align, o, e));
    MT_REQUIRE(!mprotect(m->usable, m->usable_bytes, PROT_READ | PROT_WRITE), e, MT_NOFIT,
               "the system does not give %zu bytes: %s", m->usable_bytes, strerror(errno));
    /* Both are requests; what came of them is looked at when the pages are there. */
    if (o->huge_bytes)
        madvise(m->usable, m->usable_bytes, o->huge == MT_HUGE_OFF ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    mt_status st = mt_numa_apply(o->numa, m->usable, m->usable_bytes, &ignored);
    if (st != MT_OK && o->numa->required) return mt_err_set(e, st, "%s", ignored.msg);
    return touch_all(m, o, e);
}

void mt_mapping_close(struct mt_mapping *m)
{
    if (m->map) munmap(m->map, m->map_bytes);
    *m = (struct mt_mapping){0};
}
