/* test: variants=release,asan
 *
 * The memory of arenas: where it begins and ends, what faults, and which pages the system gave. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "device/mapping.h"

static const struct mt_numa_choice anywhere = {.policy = MT_NUMA_LEAVE};

static struct mt_mapping_options options(enum mt_huge huge)
{
    return (struct mt_mapping_options){
        .huge = huge,
        .huge_bytes = mt_huge_page_bytes("/sys/kernel/mm/transparent_hugepage"),
        .numa = &anywhere,
        .threads = 2};
}
static bool opened(struct mt_mapping *m, int64_t bytes, const struct mt_mapping_options *o)
{
    mt_err e = {0};
    bool ok = mt_mapping_open(m, bytes, 64, o, &e) == MT_OK;
    if (!ok) printf("  %s\n", e.msg);
    return CHECK(ok);
}

/* Does a write there end the process? */
static bool faults(char *at)
{
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO); /* a sanitizer's report */
        *(volatile char *)at = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
}

TEST(ends_fault)
{
    static const int64_t sizes[] = {0, 1, 63, 64, 4095, 4096, 4097, 100000, (3 << 20) + 5, 4 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct mt_mapping m;
        struct mt_mapping_options o = options(MT_HUGE_AUTO);
        if (!opened(&m, sizes[i], &o)) continue;
        int64_t n = sizes[i] ? sizes[i] : 1, end = (n + 63) / 64 * 64;
        CHECK((uintptr_t)m.base % 64 == 0 && m.base >= m.usable);
        memset(m.base, 1, (size_t)n);
        CHECK(m.base + end == m.usable + m.usable_bytes);
        CHECK(!faults(m.base + end - 1) && faults(m.base + end)); /* one byte past its last 64 */
        CHECK(!faults(m.usable) && faults(m.usable - 1));
        mt_mapping_close(&m);
        CHECK(!m.map);
        mt_mapping_close(&m);
    }
}

TEST(mappings_never_meet)
{
    enum { N = 12 };
    struct mt_mapping m[N];
    struct mt_mapping_options o = options(MT_HUGE_AUTO);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < N; i++) opened(&m[i], (int64_t)page * (i + 1) * 99, &o);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            char *end = m[i].usable + m[i].usable_bytes;
            CHECK(i == k || m[k].usable >= end + page ||
                  m[k].usable + m[k].usable_bytes + page <= m[i].usable);
        }
    for (int i = 0; i < N; i++) mt_mapping_close(&m[i]);
}

TEST(all_of_it_is_there)
{
    struct mt_mapping m;
    struct mt_mapping_options o = options(MT_HUGE_OFF);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char there[4096];
    if (!opened(&m, (int64_t)page * 4096, &o)) return;
    CHECK(!mincore(m.usable, m.usable_bytes, there));
    int n = 0;
    for (int i = 0; i < 4096; i++) n += there[i] & 1;
    CHECK_INT(n, 4096);
    mt_mapping_close(&m);
}

/* Large enough for several threads. */
TEST(threads_share_the_touching)
{
    struct mt_mapping m;
    struct mt_mapping_options o = options(MT_HUGE_AUTO);
    o.threads = 3;
    struct mt_pages p;
    mt_err e = {0};
    if (!opened(&m, (INT64_C(200) << 20) + 12345, &o)) return;
    CHECK_INT(mt_pages_find(&p, (const struct mt_mapping *const[]){&m}, 1, &o, "/proc/self", &e), MT_OK);
    CHECK_INT(p.bytes, m.usable_bytes);
    mt_mapping_close(&m);
}

static struct mt_pages found(const struct mt_mapping *m, const struct mt_mapping_options *o, const char *proc)
{
    struct mt_pages p;
    mt_err e = {0};
    CHECK_INT(mt_pages_find(&p, &m, 1, o, proc, &e), MT_OK);
    return p;
}

TEST(huge_pages_here)
{
    struct mt_mapping m;
    struct mt_mapping_options o = options(MT_HUGE_AUTO);
    if (!o.huge_bytes || o.huge_bytes > 16 << 20) SKIP("no huge pages, or too large ones for a test");
    if (!opened(&m, 5 * (int64_t)o.huge_bytes + 1000, &o)) return;
    struct mt_pages p = found(&m, &o, "/proc/self");
    CHECK_INT(p.bytes, m.usable_bytes);
    CHECK_INT(p.want_huge, 5 * o.huge_bytes); /* it begins at one */
    CHECK(p.huge <= p.want_huge && p.huge % (int64_t)o.huge_bytes == 0);
    mt_mapping_close(&m);
    o.huge = MT_HUGE_OFF;
    if (!opened(&m, 5 * (int64_t)o.huge_bytes, &o)) return;
    CHECK_INT(found(&m, &o, "/proc/self").huge, 0);
    mt_mapping_close(&m);
}

TEST(bound_here)
{
    struct mt_mapping m;
    struct mt_numa_choice zero = {.policy = MT_NUMA_BIND, .required = true};
    struct mt_mapping_options o = options(MT_HUGE_OFF);
    mt_err e = {0};
    mt_set_add(&zero.nodes, 0);
    o.numa = &zero;
    if (access("/proc/self/numa_maps", R_OK)) SKIP("this system does not tell memory nodes");
    mt_status st = mt_mapping_open(&m, 1 << 20, 64, &o, &e);
    if (st != MT_OK) {
        mt_mapping_close(&m);
        CHECK(st == MT_IO && strstr(e.msg, "binding"));
        SKIP("%s", e.msg);
    }
    struct mt_pages p = found(&m, &o, "/proc/self");
    CHECK(p.placed == 1 << 20 && p.elsewhere == 0);
    CHECK(mt_set_has(&p.nodes, 0) && mt_set_count(&p.nodes) == 1);
    mt_mapping_close(&m);
    /* A node that no machine has. */
    zero = (struct mt_numa_choice){.policy = MT_NUMA_BIND, .required = true};
    mt_set_add(&zero.nodes, MT_SET_MOST - 1);
    e = (mt_err){0};
    CHECK_INT(mt_mapping_open(&m, 4096, 64, &o, &e), MT_IO);
    CHECK(strstr(e.msg, "memory node 1023") && strstr(e.msg, "host.numa: off"));
    mt_mapping_close(&m);
    zero.required = false; /* nobody asked for it: looked at, not refused */
    e = (mt_err){0};
    CHECK_INT(mt_mapping_open(&m, 4096, 64, &o, &e), MT_OK);
    CHECK(found(&m, &o, "/proc/self").elsewhere == (int64_t)m.usable_bytes);
    mt_mapping_close(&m);
}

/* What another machine would tell of two mappings, one with pages of a GPU's node. */
TEST(pages_elsewhere)
{
    char dir[] = "/tmp/test_mapping.XXXXXX", path[64];
    if (!CHECK(mkdtemp(dir))) return;
    const struct mt_mapping a = {.usable = (char *)0x7f0000200000, .usable_bytes = 5 << 20},
                            b = {.usable = (char *)0x7f0001001000, .usable_bytes = 8192};
    snprintf(path, sizeof path, "%s/smaps", dir);
    FILE *f = fopen(path, "w");
    fprintf(f, "7f00001ff000-7f0000200000 ---p 00000000 00:00 0 \nRss: 4096 kB\nAnonHugePages: 4096 kB\n"
               "7f0000200000-7f0000700000 rw-p 00000000 00:00 0 \nSize: 5120 kB\nRss:    5000 kB\n"
               "AnonHugePages:      4096 kB\nVmFlags: rd wr\n"
               "7f0001001000-7f0001003000 rw-p 00000000 00:00 0 [heap]\nRss: 8 kB\nAnonHugePages: 0 kB\n"
               "7f0001003000-7f0001004000 rw-p 00000000 00:00 0 \nRss: 64 kB\n");
    fclose(f);
    struct mt_numa_choice one = {.policy = MT_NUMA_BIND};
    mt_set_add(&one.nodes, 1);
    struct mt_mapping_options o = {.huge_bytes = 2 << 20, .numa = &one};
    struct mt_pages p;
    mt_err e = {0};
    const struct mt_mapping *const both[] = {&a, &b};
    CHECK_INT(mt_pages_find(&p, both, 2, &o, dir, &e), MT_OK); /* without numa_maps */
    CHECK(p.bytes == 5008 * 1024 && p.huge == 4096 * 1024 && p.want_huge == 4 << 20 && !p.placed);
    snprintf(path, sizeof path, "%s/numa_maps", dir);
    f = fopen(path, "w");
    fprintf(f, "7f00001ff000 default N0=9 kernelpagesize_kB=4\n"
               "7f0000200000 bind:1 anon=20 dirty=20 active=0 N1=17 N4=3 kernelpagesize_kB=64\n"
               "7f0001001000 bind:1 anon=2 N1=2 kernelpagesize_kB=4\n7f0001003000 default N7=1 "
               "kernelpagesize_kB=4\n");
    fclose(f);
    CHECK_INT(mt_pages_find(&p, both, 2, &o, dir, &e), MT_OK);
    CHECK_INT(p.placed, 20 * 65536 + 8192);
    CHECK_INT(p.elsewhere, 3 * 65536);
    CHECK(mt_set_has(&p.nodes, 1) && mt_set_has(&p.nodes, 4) && mt_set_count(&p.nodes) == 2);
    unlink(path);
    snprintf(path, sizeof path, "%s/smaps", dir);
    unlink(path);
    CHECK_INT(mt_pages_find(&p, both, 2, &o, dir, &e), MT_IO);
    rmdir(dir);
}

TEST(more_than_there_is)
{
    struct mt_mapping m;
    struct mt_mapping_options o = options(MT_HUGE_OFF);
    mt_err e = {0};
    CHECK_INT(mt_mapping_open(&m, INT64_C(1) << 55, 64, &o, &e), MT_NOFIT);
    CHECK(strstr(e.msg, "36028797018"));
    mt_mapping_close(&m);
}

int main(void)
{
    RUN(ends_fault);
    RUN(mappings_never_meet);
    RUN(all_of_it_is_there);
    RUN(threads_share_the_touching);
    RUN(huge_pages_here);
    RUN(bound_here);
    RUN(pages_elsewhere);
    RUN(more_than_there_is);
    return DONE();
}
