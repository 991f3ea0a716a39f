/* test: variants=release,asan,aarch64
 *
 * Memory nodes and huge pages: what is read of a machine, on trees that tell of other machines, and what is chosen there. */
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "device/machine.h"
#include "device/mapping.h"

static char root[] = "/tmp/test_numa.XXXXXX";

static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(path, 0755);
    }
    FILE *f = fopen(path, "w");
    if (!CHECK(f)) return;
    fputs(text, f);
    fclose(f);
}
static int drop(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}
static void empty(void)
{
    nftw(root, drop, 8, FTW_DEPTH | FTW_PHYS);
    mkdir(root, 0755);
}

static struct mt_set cpus(int first, int last)
{
    struct mt_set s = {0};
    for (int c = first; c <= last; c++) mt_set_add(&s, c);
    return s;
}

/* A node as JUPITER has them: four Graces of 72 cores and 120 GiB, four GPUs whose memory the system shows as nodes
 * without processors. */
static void put_gh200(void)
{
    empty();
    for (int i = 0; i < 4; i++) {
        char name[64], text[64];
        snprintf(name, sizeof name, "node%d/cpulist", i);
        snprintf(text, sizeof text, "%d-%d\n", 72 * i, 72 * i + 71);
        put(name, text);
        snprintf(name, sizeof name, "node%d/meminfo", i);
        snprintf(text, sizeof text, "Node %d MemTotal:       125829120 kB\n", i);
        put(name, text);
        snprintf(name, sizeof name, "node%d/cpulist", 4 + 8 * i);
        put(name, "\n");
        snprintf(name, sizeof name, "node%d/meminfo", 4 + 8 * i);
        put(name, "Node 4 MemTotal:       100663296 kB\n");
    }
    put("online", "0-4,12,20,28\n");
}

static struct mt_numa machine(struct mt_set mine)
{
    struct mt_numa m;
    mt_err e = {0};
    CHECK_INT(mt_numa_read(&m, root, &mine, &e), MT_OK);
    return m;
}
static const char *text(const struct mt_set *s)
{
    static char out[128];
    mt_set_text(s, out, sizeof out);
    return out;
}
/* "bind 0-3", or the error. */
static const char *chosen(const struct mt_numa *m, const char *setting, int64_t bytes)
{
    static const char *const name[] = {"leave", "bind", "interleave"};
    static char out[512];
    struct mt_numa_choice c;
    mt_err e = {0};
    mt_status st = mt_numa_choose(m, setting, bytes, &c, &e);
    if (st == MT_OK)
        snprintf(out, sizeof out, "%s %s%s", name[c.policy], text(&c.nodes), c.required ? " required" : "");
    else
        snprintf(out, sizeof out, "%s %.400s", mt_status_name(st), e.msg);
    return out;
}

TEST(gh200)
{
    put_gh200();
    struct mt_numa m = machine(cpus(72, 143));
    CHECK_STR(text(&m.all), "0-4,12,20,28");
    CHECK_STR(text(&m.cpu), "0-3");
    CHECK_STR(text(&m.local), "1");
    CHECK_INT(m.local_bytes, INT64_C(125829120) * 1024);
    CHECK_STR(chosen(&m, "auto", INT64_C(108) << 30), "bind 1");
    CHECK_STR(chosen(&m, "auto", INT64_C(121) << 30), "bind 0-3"); /* never a GPU's, however full */
    CHECK_STR(chosen(&m, "off", 1), "leave ");
    CHECK_STR(chosen(&m, "2", INT64_C(500) << 30), "bind 2 required");
    CHECK(strstr(chosen(&m, "4", 1), "CONFIG host.numa: node 4 has no processors"));
    CHECK(strstr(chosen(&m, "28", 1), "CONFIG host.numa: node 28 has no processors"));
    CHECK(strstr(chosen(&m, "5", 1),
                 "CONFIG host.numa: this machine has no node 5; nodes with processors: 0-3"));
    for (const char *const *bad =
             (const char *const[]){"", "x", "1x", "-1", "1024", "99999999999999999999", NULL};
         *bad; bad++)
        CHECK(!strncmp(chosen(&m, *bad, 1), "CONFIG", 6));
    /* All ranks of the node in one process: interleaving could end in a GPU's memory, so it is bound. */
    m = machine(cpus(0, 287));
    CHECK_STR(chosen(&m, "auto", INT64_C(400) << 30), "bind 0-3");
    /* Processors that no node has: any with some. */
    m = machine(cpus(600, 601));
    CHECK_STR(chosen(&m, "auto", 1), "bind 0-3");
}

TEST(two_sockets)
{
    empty();
    put("node0/cpulist", "0-15,32-47\n");
    put("node0/meminfo", "Node 0 MemTotal:  1048576 kB\nNode 0 MemFree: 1 kB\n");
    put("node1/cpulist", "16-31,48-63\n");
    put("node1/meminfo", "Node 1 MemTotal:  1048576 kB\n");
    put("node_state", "");
    struct mt_numa m = machine(cpus(40, 40));
    CHECK_STR(chosen(&m, "auto", 1 << 30), "bind 0");
    CHECK_STR(chosen(&m, "auto", (1 << 30) + 1), "interleave 0-1");
    m = machine(cpus(0, 63));
    CHECK_STR(chosen(&m, "auto", 1), "interleave 0-1");
}

TEST(one_node_or_none)
{
    empty();
    put("node0/cpulist", "0-1\n");
    struct mt_numa m = machine(cpus(0, 1));
    CHECK_STR(chosen(&m, "auto", 1), "leave ");
    CHECK_STR(chosen(&m, "0", 1), "bind 0 required");
    empty();
    m = machine(cpus(0, 1));
    CHECK_STR(chosen(&m, "auto", 1), "leave ");
    CHECK(strstr(chosen(&m, "0", 1), "no node 0"));
    rmdir(root);
    m = machine(cpus(0, 1));
    CHECK_INT(mt_set_count(&m.all), 0);
    CHECK_INT(mt_set_first(&m.all), -1);
}

TEST(a_tree_that_makes_no_sense)
{
    for (const char *const *bad = (const char *const[]){"x\n", "3-\n", "5-2\n", "1,,2\n", "1;2\n", NULL};
         *bad; bad++) {
        struct mt_numa m;
        struct mt_set mine = cpus(0, 1);
        mt_err e = {0};
        empty();
        put("node0/cpulist", *bad);
        CHECK_INT(mt_numa_read(&m, root, &mine, &e), MT_DEVICE);
        CHECK(strstr(e.msg, "node0/cpulist") && strstr(e.msg, "host.numa: off"));
    }
}

TEST(huge_page_sizes)
{
    empty();
    CHECK_INT(mt_huge_page_bytes(root), 0);
    put("enabled", "always [madvise] never\n");
    CHECK_INT(mt_huge_page_bytes(root), 0);
    put("hpage_pmd_size", "536870912\n");
    CHECK_INT(mt_huge_page_bytes(root), 512 << 20);
    put("enabled", "always madvise [never]\n");
    CHECK_INT(mt_huge_page_bytes(root), 0);
    put("enabled", "[always] madvise never\n");
    put("hpage_pmd_size", "12345\n");
    CHECK_INT(mt_huge_page_bytes(root), 0);
}

TEST(control_groups)
{
    empty();
    int64_t all = mt_machine_memory(root, root).bytes;
    CHECK_INT(all, (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
    put("cgroup", "0::/slurm/job_7/step_0\n");
    CHECK_INT(mt_machine_memory(root, root).bytes, all);
    put("slurm/job_7/step_0/memory.max", "max\n");
    put("slurm/job_7/memory.max", "1048576\n");
    put("slurm/memory.max", "2097152\n");
    struct mt_machine_memory m = mt_machine_memory(root, root);
    CHECK(m.bytes == 1048576 && m.by_cgroup);
    put("slurm/job_7/memory.max", "1152921504606846976\n");
    CHECK_INT(mt_machine_memory(root, root).bytes, 2097152);
    put("slurm/memory.max", "max\n");
    m = mt_machine_memory(root, root);
    CHECK(m.bytes == all && !m.by_cgroup);
    put("cgroup", "4:memory:/old\n"); /* version 1 is not read */
    CHECK_INT(mt_machine_memory(root, root).bytes, all);
}

int main(void)
{
    if (!mkdtemp(root)) return 1;
    RUN(gh200);
    RUN(two_sockets);
    RUN(one_node_or_none);
    RUN(a_tree_that_makes_no_sense);
    RUN(huge_page_sizes);
    RUN(control_groups);
    empty();
    rmdir(root);
    return DONE();
}
