/* test: variants=release,asan,aarch64
 *
 * Whose processors or GPU cannot be what was meant: of nodes that are made up, and of a system's folders that are. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "comm/binding.h"

enum { RANKS = 8, PER_NODE = 4 };
static struct mt_binding all[RANKS];
static char said[2048];

static struct mt_set set(const char *text)
{
    struct mt_set s = {0};
    CHECK(mt_set_parse(&s, text) >= 0);
    return s;
}
/* Two nodes of four superchips, each rank on its own. */
static void jupiter(void)
{
    memset(all, 0, sizeof all);
    for (int i = 0; i < RANKS; i++) {
        char text[32];
        int seat = i % PER_NODE;
        snprintf(text, sizeof text, "%d-%d", 72 * seat, 72 * seat + 71);
        all[i].cpus = all[i].near = set(text);
        snprintf(all[i].node, sizeof all[i].node, "n%d", i / PER_NODE);
        snprintf(all[i].gpu, sizeof all[i].gpu, "000%d:01:00.0", seat);
    }
}
static const char *flaws(const char *node, int64_t kinds)
{
    for (int i = 0; i < RANKS; i++) all[i].flaws = mt_binding_flaws(all, RANKS, i);
    CHECK(mt_binding_text(all, RANKS, node, kinds, said, sizeof said) == (said[0] != 0));
    return said;
}
static bool says(const char *what)
{
    bool is = strstr(said, what) != NULL;
    if (!is) printf("  %s\n", said);
    return is;
}

TEST(as_it_should_be)
{
    jupiter();
    CHECK_STR(flaws(NULL, -1), "");
    for (int i = 0; i < RANKS; i++) all[i].near = (struct mt_set){0}; /* nobody says where GPUs are */
    CHECK_STR(flaws(NULL, -1), "");
}
TEST(processors_of_another_superchip)
{
    jupiter();
    struct mt_set first = all[5].cpus;
    all[5].cpus = all[6].cpus;
    all[6].cpus = first;
    flaws(NULL, -1);
    CHECK(says("ranks 5-6 may use processors that are not beside the GPU (rank 5 on n1: 144-215, its GPU "
               "0001:01:00.0 is beside 72-143): srun"));
    CHECK(!strstr(said, "share") && !strstr(said, "fewer"));
    CHECK_STR(flaws("n0", -1), "");
    CHECK_STR(flaws("n1", (int64_t)1 << MT_BINDING_FEW), "");
}
TEST(processors_in_common)
{
    jupiter();
    all[1].cpus = set("71-142");
    flaws(NULL, -1);
    CHECK(says("ranks 0-1 share processors with other ranks of their node (rank 0 on n0: 0-71): "));
    CHECK(says("rank 1 may use processors that are not beside the GPU (rank 1 on n0: 71-142, "));
    jupiter();
    all[4].cpus = set("1-71");
    flaws(NULL, -1);
    CHECK(says("rank 4 may use fewer processors than others (rank 4 on n1: 1-71): "));
    CHECK(!strstr(said, "share")); /* the same numbers on another node are other processors */
}
TEST(one_gpu_for_two)
{
    jupiter();
    snprintf(all[3].gpu, sizeof all[3].gpu, "%s", all[0].gpu);
    flaws(NULL, -1);
    CHECK(says("ranks 0, 3 have the same GPU as another rank of their node (rank 0 on n0: 0000:01:00.0): "));
}
TEST(nobody_was_bound)
{
    jupiter();
    for (int i = 0; i < RANKS; i++) {
        all[i].cpus = set("0-287");
        all[i].whole = 1;
    }
    flaws(NULL, -1);
    CHECK(says("ranks 0-7 may use processors that are not beside the GPU (rank 0 on n0: 0-287, "));
    CHECK(!strstr(said, "share"));
    for (int i = 0; i < RANKS; i++) all[i].near = (struct mt_set){0};
    CHECK_STR(flaws(NULL, -1), "");
}
TEST(a_rank_with_a_node_for_itself)
{
    jupiter();
    for (int i = 0; i < RANKS; i++) {
        all[i].cpus = set("0-287");
        snprintf(all[i].node, sizeof all[i].node, "m%d", i);
    }
    CHECK_STR(flaws(NULL, -1), "");
    for (int i = 0; i < RANKS; i++) all[i].cpus = set("0-71");
    flaws(NULL, -1);
    CHECK(says("ranks 1-3, 5-7 may use processors that are not beside the GPU (rank 1 on m1: 0-71, "));
}

/* The system's folders, as a GPU of NVIDIA lies in them. */
static char sys[] = "/tmp/test_binding.XXXXXX";
static const char *const folders[] = {"/bus", "/bus/pci", "/bus/pci/devices",
                                      "/bus/pci/devices/0009:01:00.0"};
static void put_near(const char *text)
{
    char path[256];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", sys, folders[i]);
        mkdir(path, 0755);
    }
    snprintf(path, sizeof path, "%s%s/local_cpulist", sys, folders[3]);
    FILE *f = fopen(path, "w");
    if (!CHECK(f)) return;
    fputs(text, f);
    fclose(f);
}
static void remove_near(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s%s/local_cpulist", sys, folders[3]);
    unlink(path);
    for (int i = 3; i >= 0; i--) {
        snprintf(path, sizeof path, "%s%s", sys, folders[i]);
        rmdir(path);
    }
    rmdir(sys);
}
static const char *near_of(const char *bus)
{
    static char text[128];
    struct mt_binding b;
    mt_binding_here(&b, sys, bus);
    mt_set_text(&b.near, text, sizeof text);
    return text;
}
TEST(what_the_system_tells)
{
    struct mt_binding b;
    cpu_set_t mine;
    put_near("72-143,300\n");
    CHECK_STR(near_of("0009:01:00.0"), "72-143,300");
    CHECK_STR(near_of("00000009:01:00.0"), "72-143,300"); /* as nvidia-smi writes it */
    CHECK_STR(near_of("000A:01:00.0"), "");
    CHECK_STR(near_of(""), "");
    CHECK_STR(near_of("../../../etc"), "");
    put_near("everywhere\n");
    CHECK_STR(near_of("0009:01:00.0"), "");
    put_near("");
    CHECK_STR(near_of("0009:01:00.0"), "");
    mt_binding_here(&b, sys, "0009:0A:00.0");
    CHECK_STR(b.gpu, "0009:0a:00.0");
    CHECK(b.node[0] && !b.flaws);
    sched_getaffinity(0, sizeof mine, &mine);
    CHECK_INT(mt_set_count(&b.cpus), CPU_COUNT(&mine));
}

int main(void)
{
    CHECK(mkdtemp(sys));
    RUN(as_it_should_be);
    RUN(processors_of_another_superchip);
    RUN(processors_in_common);
    RUN(one_gpu_for_two);
    RUN(nobody_was_bound);
    RUN(a_rank_with_a_node_for_itself);
    RUN(what_the_system_tells);
    remove_near();
    return DONE();
}
