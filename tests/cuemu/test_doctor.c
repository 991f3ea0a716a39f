/* test: variants=cuemu */
/* `moetitan doctor` on emulated GPUs: copies to, from and between them, against a cluster file and against each other; a GPU that
 * changes what it gets, and a slow one. Rates of an emulator are its own: bounds are far from all of them. */
#include "cmd/command.h"
#include "cmd/doctor_verdict.h"

static char printed[8192];
static struct mt_cluster cluster;

/* As in the cluster file that was read, for so many bytes a second. */
static void expect_rates(double h2d, double d2h, double p2p)
{
    memset(&cluster, 0, sizeof cluster);
    snprintf(cluster.name, sizeof cluster.name, "Emulated");
    snprintf(cluster.target, sizeof cluster.target, "cuda");
    cluster.of[MT_CLUSTER_host_h2d].value = h2d;
    cluster.of[MT_CLUSTER_host_d2h].value = d2h;
    cluster.of[MT_CLUSTER_node_pair].value = p2p;
}
/* The ranks of two nodes of one GPU each: the job is this process, and each is looked at in turn. */
static void look(struct mt_rank_facts facts[2])
{
    struct mt_job job = mt_job_alone(1);
    job.on_node = 2;
    for (int i = 0; i < 2; i++) {
        mt_doctor_forget(&facts[i]);
        snprintf(facts[i].node, sizeof facts[i].node, "n%d", i);
        mt_doctor_copies(&facts[i], i, &job, true);
    }
}
static int verdict(const struct mt_rank_facts *facts, const struct mt_cluster *c, double tolerance)
{
    char bad[128];
    fflush(stdout);
    int saved = dup(1), fd = open(in_folder("verdict"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(fd, 1);
    close(fd);
    int n = mt_doctor_verdict(facts, 2, c, tolerance, bad, sizeof bad);
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    command_text(in_folder("verdict"), printed, sizeof printed);
    return n;
}

TEST(every_gpu_has_its_rates)
{
    struct mt_rank_facts facts[2];
    look(facts);
    for (int i = 0; i < 2; i++) {
        CHECK(facts[i].x[MT_FACT_works] == 1 && facts[i].devices == 2);
        CHECK(facts[i].x[MT_FACT_h2d] > 0 && facts[i].x[MT_FACT_d2h] > 0 && facts[i].x[MT_FACT_p2p] > 0);
    }
    CHECK_INT(verdict(facts, NULL, 0), 0);
    CHECK(!strstr(printed, "no device"));
}
TEST(less_than_the_cluster_file_says)
{
    struct mt_rank_facts facts[2];
    look(facts);
    expect_rates(1e15, 1, 1);
    CHECK_INT(verdict(facts, &cluster, 0.8), 2);
    CHECK(strstr(printed, "n0: rank 0: h2d GB/s is ") &&
          strstr(printed, "should be 800000.0, 0.8 of Emulated"));
    expect_rates(1, 1e15, 1);
    CHECK_INT(verdict(facts, &cluster, 0.8), 2);
    CHECK(strstr(printed, "n1: rank 1: d2h GB/s is "));
    expect_rates(1, 1, 1e15);
    CHECK_INT(verdict(facts, &cluster, 0.8), 2);
    CHECK(strstr(printed, "n1: rank 1: p2p GB/s is "));
    expect_rates(1, 1, 1);
    CHECK_INT(verdict(facts, &cluster, 1e-9), 0);
}
TEST(a_slow_gpu_is_named)
{
    struct mt_rank_facts facts[2];
    setenv("CUEMU_SLOW", "1", 1);
    look(facts);
    unsetenv("CUEMU_SLOW");
    CHECK_INT(verdict(facts, NULL, 0.3), 1);
    CHECK(strstr(printed, "n1: rank 1: h2d GB/s is ") && strstr(printed, "n1: rank 1: d2h GB/s is "));
    CHECK(!strstr(printed, "n0: rank"));
}
TEST(a_gpu_that_changes_bytes_is_named)
{
    struct mt_rank_facts facts[2];
    setenv("CUEMU_FLIP", "0", 1);
    look(facts);
    unsetenv("CUEMU_FLIP");
    CHECK(facts[0].x[MT_FACT_works] == 0);
    CHECK(strstr(facts[0].device, "CUDA device 0: byte 0 of 1048576 is "));
    CHECK(facts[1].x[MT_FACT_works] == 0 && facts[1].x[MT_FACT_h2d] > 0); /* it takes from the bad one */
    CHECK(strstr(facts[1].device, "after a copy from device 0"));
    expect_rates(1, 1, 1);
    CHECK_INT(verdict(facts, &cluster, 1e-9), 2);
    CHECK(strstr(printed, "n0: rank 0: CUDA is 0, and should be 1") &&
          strstr(printed, "n0: rank 0: CUDA device 0: byte 0 of "));
}
TEST(one_gpu_has_no_peer)
{
    struct mt_rank_facts facts[2];
    setenv("CUEMU_DEVICES", "1", 1);
    look(facts);
    setenv("CUEMU_DEVICES", "2", 1);
    CHECK(facts[0].x[MT_FACT_h2d] > 0 && isnan(facts[0].x[MT_FACT_p2p]));
    verdict(facts, NULL, 0);
    CHECK(!strstr(printed, "its ranks see one GPU each"));
}
TEST(no_gpu)
{
    struct mt_rank_facts facts[2];
    setenv("CUEMU_DEVICES", "0", 1);
    look(facts);
    setenv("CUEMU_DEVICES", "2", 1);
    CHECK(facts[0].x[MT_FACT_works] == 0 && isnan(facts[0].x[MT_FACT_h2d]));
    CHECK_INT(verdict(facts, NULL, 0.8), 0);
    CHECK(strstr(printed, " no device no device no device "));
    CHECK(strstr(printed,
                 "n0: note: nothing is copied to, from or between GPUs, there is no device: no CUDA device"));
    expect_rates(1, 1, 1);
    CHECK_INT(verdict(facts, &cluster, 0.8), 2);
}

/* The command itself, alone: it looks at all GPUs that it sees. */
static mt_status doctor(const char *arguments)
{
    char words[1024];
    snprintf(words, sizeof words, "doctor --quick %s", arguments);
    mt_status st = command_run(mt_cmd_doctor, words, in_folder("printed"));
    command_text(in_folder("printed"), printed, sizeof printed);
    return st;
}
TEST(the_command_calibrates_and_judges)
{
    static struct mt_cluster here;
    char words[768];
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    snprintf(words, sizeof words, "--cluster configs/clusters/jupiter.yaml --calibrate %s",
             in_folder("here.yaml"));
    if (!CHECK_INT(doctor(words), MT_OK)) printf("  %s\n", e.msg);
    CHECK_INT(mt_cluster_load(&here, in_folder("here.yaml"), &e), MT_OK);
    static const enum mt_cluster_key measured[] = {MT_CLUSTER_host_h2d, MT_CLUSTER_host_d2h,
                                                   MT_CLUSTER_node_pair};
    for (int i = 0; i < 3; i++) CHECK(!strncmp(here.of[measured[i]].source, "measured here, 20", 17));
    CHECK(strstr(here.of[MT_CLUSTER_net_bandwidth].source, "configuration page"));
    CHECK_STR(here.target, "cuda");
    snprintf(words, sizeof words, "--tolerance 0 --cluster %s", in_folder("here.yaml"));
    setenv("CUEMU_FLIP", "1", 1); /* the second of those that one process sees */
    CHECK_INT(doctor(words), MT_DEVICE);
    unsetenv("CUEMU_FLIP");
    CHECK(strstr(printed, "CUDA device ") && strstr(printed, "CUDA is 0, and should be 1"));
}
TEST(a_calibration_without_a_gpu)
{
    char words[768];
    setenv("CUEMU_DEVICES", "0", 1);
    snprintf(words, sizeof words, "--cluster configs/clusters/jupiter.yaml --calibrate %s",
             in_folder("none.yaml"));
    CHECK_INT(doctor(words), MT_DEVICE);
    CHECK(strstr(e.msg, "no CUDA device"));
    CHECK(access(in_folder("none.yaml"), F_OK) != 0);
}

int main(void)
{
    setenv("CUEMU_DEVICES", "2", 1);
    RUN(every_gpu_has_its_rates);
    RUN(less_than_the_cluster_file_says);
    RUN(a_slow_gpu_is_named);
    RUN(a_gpu_that_changes_bytes_is_named);
    RUN(one_gpu_has_no_peer);
    RUN(no_gpu);
    RUN(the_command_calibrates_and_judges);
    RUN(a_calibration_without_a_gpu);
    remove_temporary_folder();
    return DONE();
}
