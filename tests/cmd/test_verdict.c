/* Which nodes `moetitan doctor` finds unfit, from what ranks have found. */
#include "cmd/doctor_verdict.h"
#include "command.h"

enum { RANKS = 8, PER_NODE = 2 };
static struct mt_rank_facts facts[RANKS];
static struct mt_cluster cluster;
static char bad[256], printed[8192];

/* Four nodes of two ranks, alike. */
static void healthy(void)
{
    static const double x[MT_N_FACTS] = {
        [MT_FACT_cores] = 72,         [MT_FACT_clock] = 3e9, [MT_FACT_memory] = 100e9,
        [MT_FACT_copy] = 400e9,       [MT_FACT_gpus] = 4,    [MT_FACT_gpu_memory] = 96e9,
        [MT_FACT_gpu_clock] = 1.98e9, [MT_FACT_works] = 1,   [MT_FACT_h2d] = 400e9,
        [MT_FACT_d2h] = 170e9,        [MT_FACT_p2p] = 130e9, [MT_FACT_link] = 10e9,
        [MT_FACT_net] = 20e9};
    memset(facts, 0, sizeof facts);
    for (int i = 0; i < RANKS; i++) {
        memcpy(facts[i].x, x, sizeof x);
        facts[i].devices = 4;
        snprintf(facts[i].node, sizeof facts[i].node, "n%d", i / PER_NODE);
        snprintf(facts[i].binding.node, sizeof facts[i].binding.node, "n%d", i / PER_NODE);
        mt_set_add(&facts[i].binding.cpus, i % PER_NODE);
    }
    memset(&cluster, 0, sizeof cluster);
    snprintf(cluster.name, sizeof cluster.name, "Here");
    snprintf(cluster.target, sizeof cluster.target, "cuda");
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++) cluster.of[k].value = 1;
}

static int verdict(const struct mt_cluster *c, double tolerance)
{
    fflush(stdout);
    int saved = dup(1), fd = open(in_folder("printed"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(fd, 1);
    close(fd);
    int n = mt_doctor_verdict(facts, RANKS, c, tolerance, bad, sizeof bad);
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    command_text(in_folder("printed"), printed, sizeof printed);
    return n;
}

TEST(nothing_is_wrong)
{
    healthy();
    CHECK_INT(verdict(NULL, 0.8), 0);
    CHECK_INT(verdict(&cluster, 1), 0);
    CHECK_STR(bad, "");
    CHECK(strstr(printed, "\nn3 ") && !strstr(printed, "should be"));
}
TEST(one_is_slower_than_the_others)
{
    healthy();
    facts[5].x[MT_FACT_net] = 15e9;
    CHECK_INT(verdict(NULL, 0.8), 1);
    CHECK_STR(bad, "n2");
    CHECK(strstr(printed, "n2: rank 5: net GB/s is 15.00, and should be 16.00, 0.8 of the ranks' median"));
    CHECK_INT(verdict(NULL, 0.7), 0);
}
TEST(all_are_slower_than_the_cluster)
{
    healthy();
    cluster.of[MT_CLUSTER_net_bandwidth].value = 40e9;
    cluster.of[MT_CLUSTER_net_efficiency].value = 0.75;
    CHECK_INT(verdict(&cluster, 0.8), 4);
    CHECK_STR(bad, "n0,n1,n2,n3");
    CHECK(strstr(printed, "n0: ranks 0-1: net GB/s is 20.00, and should be 24.00, 0.8 of Here"));
    cluster.of[MT_CLUSTER_net_efficiency].value = 0.5; /* 20: as they have */
    CHECK_INT(verdict(&cluster, 1), 0);
}
TEST(copies_of_gpus)
{
    healthy();
    facts[6].x[MT_FACT_p2p] = 26e9;
    facts[1].x[MT_FACT_works] = 0;
    snprintf(facts[1].device, sizeof facts[1].device, "allocating 8 bytes: out of memory");
    CHECK_INT(verdict(NULL, 0.8), 2);
    CHECK_STR(bad, "n0,n3");
    CHECK(strstr(printed, "n3: rank 6: p2p GB/s is 26.0, and should be 104.0, 0.8 of the ranks' median"));
    CHECK(strstr(printed, "n0: rank 1: allocating 8 bytes: out of memory"));
    for (int i = 0; i < RANKS; i++) facts[i].x[MT_FACT_works] = 0;
    CHECK_INT(verdict(NULL, 0), 4); /* alike, and unfit */
    healthy();
    cluster.of[MT_CLUSTER_host_d2h].value = 300e9;
    CHECK_INT(verdict(&cluster, 0.8), 4);
    CHECK(strstr(printed, "n2: ranks 4-5: d2h GB/s is 170.0, and should be 240.0, 0.8 of Here"));
    snprintf(cluster.target, sizeof cluster.target, "avx512"); /* its copies are in host memory */
    CHECK_INT(verdict(&cluster, 0.8), 0);
}
TEST(what_everyone_should_have)
{
    healthy();
    facts[0].x[MT_FACT_cores] = 71;
    facts[7].x[MT_FACT_gpus] = 3;
    CHECK_INT(verdict(NULL, 0.1), 2); /* whatever the tolerance */
    CHECK_STR(bad, "n0,n3");
    healthy();
    for (int i = 0; i < RANKS; i++) facts[i].x[MT_FACT_gpus] = 0;
    CHECK_INT(verdict(NULL, 0.8), 0);
    CHECK_INT(verdict(&cluster, 0.8), 4); /* it has GPUs */
}
TEST(what_no_one_should_have)
{
    healthy();
    facts[2].x[MT_FACT_gpu_ecc] = 1;
    facts[3].x[MT_FACT_gpu_slowed] = 1;
    CHECK_INT(verdict(NULL, 0), 1);
    CHECK(strstr(printed, "n1: rank 2: ECC is 1, and should be 0 (") &&
          strstr(printed, "n1: rank 3: slowed is 1, and should be 0 ("));
}
TEST(what_was_not_measured)
{
    healthy();
    for (int i = 0; i < RANKS; i++)
        for (int k = 0; k < MT_N_FACTS; k++)
            if (i > 0 || k == MT_FACT_net) facts[i].x[k] = (double)NAN;
    CHECK_INT(verdict(&cluster, 1), 0);
}
TEST(processors_in_common)
{
    healthy();
    facts[5].binding.cpus = facts[4].binding.cpus;
    CHECK_INT(verdict(NULL, 0.8), 0);
    CHECK(strstr(printed, "n2: note: ranks 4-5 share processors with other ranks of their node (rank 4 on "
                          "n2: 0): ") &&
          !strstr(printed, "n1: note"));
    for (int i = 4; i < 6; i++) facts[i].binding.whole = 1; /* told here as well */
    CHECK_INT(verdict(NULL, 0.8), 0);
    CHECK(strstr(printed, "n2: note: ranks 4-5 share processors"));
}
TEST(processors_far_from_the_gpu)
{
    healthy();
    for (int i = 0; i < RANKS; i++) facts[i].binding.near = facts[i].binding.cpus;
    CHECK_INT(verdict(NULL, 0.8), 0);
    CHECK(!strstr(printed, "note"));
    facts[3].binding.near = facts[2].binding.near;
    CHECK_INT(verdict(NULL, 0.8), 0); /* the launcher's flags are wrong, and not the node */
    CHECK(strstr(printed,
                 "n1: note: rank 3 may use processors that are not beside the GPU (rank 3 on n1: 1, "));
}
int main(void)
{
    RUN(nothing_is_wrong);
    RUN(one_is_slower_than_the_others);
    RUN(all_are_slower_than_the_cluster);
    RUN(copies_of_gpus);
    RUN(what_everyone_should_have);
    RUN(what_no_one_should_have);
    RUN(what_was_not_measured);
    RUN(processors_in_common);
    RUN(processors_far_from_the_gpu);
    remove_temporary_folder();
    return DONE();
}
