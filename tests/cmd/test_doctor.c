/* test: timeout=120 variants=release
 *
 * `moetitan doctor --calibrate`: the file that it writes is a cluster file, its numbers are possible ones, and a plan runs with it.
 * How good they are is bench-plan's question: times decide no test. Under a sanitizer long operations are pre-empted each time, and have no
 * samples. */
#include <sys/stat.h>

#include "command.h"
#include "device/backend.h"
#include "device/cost.h"

static mt_status run(mt_status (*command)(int, char **, mt_err *), const char *words)
{
    return command_run(command, words, in_folder("printed"));
}

/* Once: what it takes is measured. */
static void calibrate(char *path, size_t size)
{
    char words[512];
    snprintf(path, size, "%s", in_folder("here.yaml"));
    if (!access(path, F_OK)) return;
    snprintf(words, sizeof words, "doctor --quick --calibrate %s", path);
    if (!CHECK_INT(run(mt_cmd_doctor, words), MT_OK)) printf("  %s\n", e.msg);
}

TEST(the_file_is_a_cluster_file)
{
    static const enum mt_cluster_key positive[] = {MT_CLUSTER_peak_bf16,          MT_CLUSTER_peak_f32,
                                                   MT_CLUSTER_gemm_efficiency,    MT_CLUSTER_memory_bandwidth,
                                                   MT_CLUSTER_grouped_efficiency, MT_CLUSTER_node_pair,
                                                   MT_CLUSTER_size_device};
    static struct mt_cluster c;
    char path[256], why[64];
    calibrate(path, sizeof path);
    if (!CHECK(mt_cluster_load(&c, path, &e) == MT_OK && mt_work_check(&c, &e) == MT_OK))
        printf("  %s\n", e.msg);
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++) CHECK(c.of[positive[i]].value > 0);
    CHECK(strstr(c.of[MT_CLUSTER_peak_f32].source, "measured here, 20"));
    CHECK(!mt_cluster_assumed(&c, MT_CLUSTER_launch_kernel) &&
          mt_cluster_assumed(&c, MT_CLUSTER_net_bandwidth));
    static const enum mt_op timed[] = {MT_OP_linear_fwd,    MT_OP_linear_bwdw,   MT_OP_grouped_fwd,
                                       MT_OP_attention_fwd, MT_OP_attention_bwd, MT_OP_rmsnorm_bwd,
                                       MT_OP_newton_schulz, MT_OP_gather_rows};
    for (size_t i = 0; i < sizeof timed / sizeof *timed; i++)
        for (int t = 0; t < 2; t++) {
            struct mt_work w = {.op = (uint16_t)timed[i], .dtype = t ? MT_BF16 : MT_F32};
            mt_work_name(&w, why, sizeof why);
            const struct mt_cluster_op *op = mt_cluster_op(&c, why);
            if (!CHECK(op && op->times + op->plus > 0)) printf("  %s\n", why);
        }
}

#define SHAPE                                                                                                \
    "model:\n  vocab: 64\n  dim: 64\n  layers: 2\n  heads: 2\n  kv_heads: 1\n  head_dim: 32\n  experts: 4\n" \
    "  top_k: 2\n  expert_ffn: 32\n  shared_ffn: 32\n"                                                       \
    "train:\n  seq_len: 64\n  global_batch: 2\n  dtype: bf16\n"                                              \
    "data:\n  train: no/such/file\n"

TEST(a_plan_runs_with_it)
{
    char path[256], words[768];
    calibrate(path, sizeof path);
    put_file(in_folder("tiny.yaml"), SHAPE, sizeof SHAPE - 1);
    snprintf(words, sizeof words, "plan %s --ranks 1 --cluster %s", in_folder("tiny.yaml"), path);
    if (!CHECK_INT(run(mt_cmd_plan, words), MT_OK)) printf("  %s\n", e.msg);
}

TEST(what_is_refused)
{
    CHECK_INT(run(mt_cmd_doctor, "doctor --no-such-flag"), MT_CONFIG);
    CHECK(strstr(e.msg, "--no-such-flag"));
    CHECK_INT(run(mt_cmd_doctor, "doctor --calibrate"), MT_CONFIG);
    CHECK(strstr(e.msg, "--calibrate needs a value; usage"));
    CHECK_INT(run(mt_cmd_doctor, "doctor --calibrate /dev/null --fast"), MT_CONFIG);
    CHECK(strstr(e.msg, "--fast"));
    CHECK_INT(run(mt_cmd_doctor, "doctor --quick --calibrate /no/such/folder/x.yaml"), MT_IO);
}

/* GPUs as a driver's program lists them that is not there on this machine, nor is CUDA. */
static bool sees(const char *gpus)
{
    char words[64] = "doctor --quick --tolerance 0", printed[8192], *at;
    const struct mt_backend_ops *cuda = mt_backend_find_cuda();
    char found[256];
    if (cuda && cuda->find(found, sizeof found)) return true;
    if (!CHECK_INT(run(mt_cmd_doctor, words), MT_OK)) printf("  %s\n", e.msg);
    command_text(in_folder("printed"), printed, sizeof printed);
    at = strchr(printed, '\n');
    if (!CHECK(at)) return false;
    char was[32] = "";
    sscanf(at, "%*s %*s %*s %*s %*s %*s %31s", was); /* node, ranks, cores, GHz, mem GiB, copy GB/s, GPUs */
    if (strcmp(was, gpus) != 0) printf("  %s GPUs\n%s", was, printed);
    return !strcmp(was, gpus);
}
TEST(gpus_are_counted)
{
    static const char smi[] = "#!/bin/sh\ncase $1 in --list-gpus) echo 'GPU 0: A (UUID: 1)'; echo 'GPU 1: B "
                              "(UUID: 2)' ;;\n*) exit 2 ;; esac\n";
    char path[4096];
    snprintf(path, sizeof path, "%s:%s", in_folder(""), getenv("PATH"));
    put_file(in_folder("nvidia-smi"), smi, sizeof smi - 1);
    chmod(in_folder("nvidia-smi"), 0755);
    setenv("PATH", path, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK(sees("2")); /* whatever files /dev has */
    setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5,-1,4", 1);
    CHECK(sees("2")); /* nothing behind what is none */
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    CHECK(sees("0"));
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    CHECK(sees("0"));
    unsetenv("CUDA_VISIBLE_DEVICES");
}

int main(void)
{
    RUN(the_file_is_a_cluster_file);
    RUN(a_plan_runs_with_it);
    RUN(what_is_refused);
    RUN(gpus_are_counted);
    remove_temporary_folder();
    return DONE();
}
