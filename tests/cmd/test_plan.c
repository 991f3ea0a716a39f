/* `moetitan plan`: its report, the keys of its JSON and their page, what it refuses; without data files, MPI or a GPU. */
#include "command.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <sys/stat.h>

static char printed[1 << 16], page[1 << 16];

#define TINY                                                                                                 \
    "model:\n  vocab: 64\n  dim: 64\n  layers: 2\n  heads: 2\n  kv_heads: 1\n  head_dim: 32\n  experts: 8\n" \
    "  top_k: 2\n  expert_ffn: 32\n  shared_ffn: 32\n"                                                       \
    "mesh:\n  ep: 4\n"                                                                                       \
    "train:\n  seq_len: 64\n  global_batch: 16\n  dtype: bf16\n"                                             \
    "data:\n  train: no/such/file\n"

/* Runs `plan WORDS` with what it prints in `printed`. */
static mt_status run(const char *words)
{
    char text[1024];
    snprintf(text, sizeof text, "plan %s", words);
    mt_status s = command_run(mt_cmd_plan, text, in_folder("printed"));
    command_text(in_folder("printed"), printed, sizeof printed);
    return s;
}
static const char *with_config(const char *words)
{
    static char text[1024];
    put_file(in_folder("tiny.yaml"), TINY, sizeof TINY - 1);
    snprintf(text, sizeof text, "%s%s%s", in_folder("tiny.yaml"), *words ? " " : "", words);
    return text;
}

static void prints(const char *words, const char *part)
{
    if (!CHECK_INT(run(with_config(words)), MT_OK)) printf("  %s\n", e.msg);
    if (!CHECK(strstr(printed, part))) printf("  wanted \"%s\" in: %s\n", part, printed);
}
static void refuses(const char *words, mt_status code, const char *part)
{
    CHECK_INT(run(with_config(words)), code);
    if (!CHECK(strstr(e.msg, part))) printf("  wanted \"%s\" in: %s\n", part, e.msg);
}

TEST(the_table)
{
    prints("", "16 ranks, 4 nodes of 4; for cuda/sm90");
    prints("--ranks 8", "8 ranks, 2 nodes of 4");
    prints("--nodes 2", "8 ranks, 2 nodes of 4");
    prints("--cluster h100 --ranks 16", "on H100 SXM: 16 ranks, 2 nodes of 8");
    prints("--cluster configs/clusters/h200.yaml --nodes=1", "on H200 SXM: 8 ranks, 1 nodes of 8");
    prints("--cluster laptop mesh.ep=1 --ranks 1", "for cpu/avx2");
    prints("mesh.replicas=2 --seed 3 --skew 0.4 --documents 10:0.5", "bound ");
    prints("--documents 10:1.5 --seed 3 train.global_batch=64 --ranks 8 data.balance=attention",
           "in the order of the data");
    prints("--price 4", "a million tokens");
    prints("--rows", "the largest of ");
    prints("--ranks 4 --assumptions", "gemm.efficiency");
    prints("--ranks 4 --assumptions", "net.efficiency"); /* measured, but on another machine */
    prints("--ranks 4 --assumptions", "checkpoint +25.0% -16.7%");
    prints("--ranks 4 --assumptions", "energy -20.0% +20.0%");
    snprintf(page, sizeof page, "--ranks 8 --trace %s --trace-rank 5", in_folder("trace.json"));
    prints(page, "rank 5, for ui.perfetto.dev");
    CHECK(get_file(in_folder("trace.json"), printed, sizeof printed - 1) > 0 &&
          strstr(printed, "traceEvents"));
}

TEST(what_is_refused)
{
    refuses("--ranks 0", MT_CONFIG, "--ranks needs a whole number");
    refuses("--ranks 5", MT_CONFIG, "5");
    refuses("--ranks 4 --nodes 1", MT_CONFIG, "not both");
    refuses("--cluster none", MT_CONFIG, "configs/clusters/none.yaml");
    refuses("--documents short", MT_CONFIG, "--documents");
    refuses("--documents index", MT_DATA, "no/such/file");
    refuses("--collectives magic", MT_CONFIG, "hierarchical");
    refuses("--trace-rank 16 --trace /dev/null", MT_CONFIG, "the job has 16 ranks");
    refuses("--skew -1", MT_CONFIG, "--skew");
    refuses("--what 1", MT_CONFIG, "usage: moetitan plan");
    refuses("--ranks", MT_CONFIG, "needs a value");
    refuses("model.dimm=3", MT_CONFIG, "did you mean model.dim?");
    refuses("cluster.net.bandwith=3", MT_CONFIG, "did you mean net.bandwidth?");
    refuses("cluster.size.device=1e6 cluster.size.device_other=9e5", MT_NOFIT, "does not fit");
    CHECK(strstr(printed, "does NOT fit"));
    CHECK_INT(run(""), MT_CONFIG);
    CHECK_INT(run("--ranks 8"), MT_CONFIG);
}

/* ---- experts that differ ---- */
static const char *run_dir(const char *name, const char *experts)
{
    static char dir[512];
    char path[600];
    snprintf(dir, sizeof dir, "%s", in_folder(name));
    mkdir(dir, 0755);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    put_file(path, "{\"step\": 1}\n", 12);
    snprintf(path, sizeof path, "%s/experts.jsonl", dir);
    put_file(path, experts, (int64_t)strlen(experts));
    return dir;
}
TEST(routing_of_a_run)
{
    static const char uneven[] =
        "{\"step\": 1, \"layers\": {\"0\": [1,1,1,1,1,1,1,1], \"1\": [1,1,1,1,1,1,1,1]}}\n"
        "{\"step\": 9, \"layers\": {\"0\": [90,9,9,9,9,9,9,9], \"1\": [9,9,90,9,9,9,9,9]}}\n",
                      other[] = "{\"step\": 1, \"layers\": {\"0\": [1,2], \"1\": [2,1]}}\n",
                      none[] =
                          "{\"step\": 1, \"layers\": {\"0\": [0,0,0,0,0,0,0,0], \"1\": [1,1,1,1,1,1,1,1]}}\n";
    char words[1024];
    prints("--ranks 8", "routing   balanced: an upper bound");
    prints("--ranks 8 --skew 0.7", "skewed by --skew; balanced it would be ");
    snprintf(words, sizeof words, "--ranks 8 --experts %s", run_dir("uneven", uneven));
    prints(words, "as a run measured it; balanced it would be ");
    snprintf(words, sizeof words, "--ranks 8 moe.routing=balanced --experts %s", run_dir("uneven", uneven));
    prints(words, "routing   balanced");
    snprintf(words, sizeof words, "--experts %s", run_dir("other", other));
    refuses(words, MT_CONFIG, "has 2 experts in 2 blocks, and this model has 8 in 2");
    snprintf(words, sizeof words, "--experts %s", run_dir("none", none));
    refuses(words, MT_CONFIG, "no expert of block 0 got a row");
    refuses("--experts no/run", MT_CONFIG, "no/run");
    refuses("--experts a --skew 1", MT_CONFIG, "not both");
}

/* ---- JSON ---- */
static cJSON *json(const char *words, mt_status want)
{
    char text[512];
    snprintf(text, sizeof text, "%s%s--json -", words, *words ? " " : "");
    if (!CHECK_INT(run(with_config(text)), want)) printf("  %s\n", e.msg);
    cJSON *o = cJSON_Parse(printed);
    CHECK(o);
    return o;
}
static double number(const cJSON *o, const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!CHECK(cJSON_IsNumber(x))) printf("  no number %s\n", key);
    return x ? x->valuedouble : 0;
}

/* Its keys stand in docs/plan.md. */
static void documented(const cJSON *o)
{
    int64_t n = get_file("docs/plan.md", page, sizeof page - 1);
    page[n > 0 ? n : 0] = 0;
    CHECK(n > 0);
    for (const cJSON *x = o ? o->child : NULL; x; x = x->next) {
        char quoted[96];
        snprintf(quoted, sizeof quoted, "`%s`", x->string);
        if (!CHECK(strstr(page, quoted))) printf("  docs/plan.md does not name %s\n", quoted);
    }
}

TEST(json_says_what_the_page_documents)
{
    cJSON *o = json("--ranks 8 --price 2", MT_OK);
    documented(o);
    static const char *const numbers[] = {"step_s",         "tokens_per_s_per_gpu", "mfu",
                                          "params_total",   "params_active",        "device_peak_bytes",
                                          "host_peak_bytes"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) CHECK(number(o, numbers[i]) > 0);
    CHECK(cJSON_IsTrue(cJSON_GetObjectItem(o, "fits")) && cJSON_IsString(cJSON_GetObjectItem(o, "bound")));
    CHECK_CLOSE(number(o, "tokens_per_s_per_gpu") * number(o, "step_s") * 8, 16 * 64, 1e-6);
    double idle = 0, busy = number(o, "compute_s");
    for (const cJSON *x = cJSON_GetObjectItem(o, "idle_by_cause_s")->child; x; x = x->next)
        idle += x->valuedouble;
    CHECK_CLOSE((idle + busy) / number(o, "step_s"), 1,
                0.02); /* mean of the ranks, against the last one's end */
    CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(o, "routing")), "balanced");
    CHECK_CLOSE(number(o, "balanced_step_s") / number(o, "step_s"), 1, 1e-12);
    cJSON_Delete(o);
    o = json("--ranks 8 --skew 1.5", MT_OK); /* slower for being uneven */
    CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(o, "routing")), "skewed");
    CHECK(number(o, "balanced_step_s") < number(o, "step_s") && number(o, "balanced_mfu") > number(o, "mfu"));
    CHECK_CLOSE(number(o, "balanced_tokens_per_s_per_gpu") * number(o, "balanced_step_s") * 8, 16 * 64, 1e-6);
    cJSON_Delete(o);
    o = json("--ranks 8 cluster.size.device=1e6 cluster.size.device_other=9e5", MT_NOFIT);
    CHECK(cJSON_IsFalse(cJSON_GetObjectItem(o, "fits")));
    cJSON_Delete(o);
}

TEST(a_search)
{
    static const char small[] = "--nodes 2 --search=varied --vary mesh.ep=1,2,4 --vary train.micro_batch=1,2 "
                                "--vary recompute.policy=full,none";
    char words[512];
    prints("--nodes 2 --search --budget 12 --finalists 2",
           "12 of 6879707136000 combinations planned for 8 ranks (budget 12)");
    prints(small, "12 of 12 combinations");
    CHECK(strstr(printed, "as given -- slower by "));
    refuses("--search=all", MT_CONFIG, "no flag '--search'");
    refuses("--search --vary mesh.epp=1", MT_CONFIG, "mesh.ep?");
    refuses("--search --vary mesh.ep", MT_CONFIG, "KEY=VALUE");
    refuses("--search --budget 0", MT_CONFIG, "--budget needs a whole number");
    refuses("--fewest-nodes --target 3", MT_CONFIG, "one of --fewest-nodes");
    refuses("--vary mesh.ep=1", MT_CONFIG, "--vary goes with --search");
    refuses("--target much", MT_CONFIG, "--target needs a number");
    refuses("--nodes 2 --search --budget 4 cluster.size.device=1e6 cluster.size.device_other=9e5", MT_NOFIT,
            "none of 4 combinations fits");
    CHECK(strstr(printed, "does not fit: "));
    prints("--nodes 4 --fewest-nodes --search=varied", "At least 1 nodes: ");
    CHECK(strstr(printed, "No harder size is legal"));
    prints("--nodes 1 train.micro_batch=4 --longest-sequence --search=varied --vary train.seq_len=32",
           "tokens a sequence");
    refuses("--nodes 4 --target 1e12 --budget 3", MT_NOFIT, "does not get there");
    CHECK(strstr(printed, "Not found for 1e+12 tokens/s: even with 4 nodes"));
    snprintf(words, sizeof words, "%s", small);
    cJSON *o = json(words, MT_OK), *first = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "candidates"), 0);
    CHECK_INT(number(o, "planned"), 12);
    CHECK_INT(cJSON_GetArraySize(cJSON_GetObjectItem(o, "candidates")), 12);
    CHECK(cJSON_IsTrue(cJSON_GetObjectItem(o, "every_combination")));
    CHECK_STR(cJSON_GetObjectItem(first, "verdict")->valuestring, "fits");
    CHECK(number(first, "tokens_per_s_per_gpu") > 0 && cJSON_IsTrue(cJSON_GetObjectItem(first, "all_ranks")));
    documented(o);
    documented(first);
    cJSON_Delete(o);
    o = json("--nodes 4 --target 1000 --search=varied --vary mesh.ep=1,2", MT_OK);
    CHECK_INT(number(o, "value"), 1);
    documented(o);
    cJSON_Delete(o);
}

/* One number of the cluster changes, and what follows from it. Bytes between nodes are fewer in the program's own two levels, or where
 * the library moves a flat gather so. */
#define SLOW_NET " cluster.net.bandwidth=1e8"
TEST(numbers_matter)
{
    cJSON *a = json("--ranks 8", MT_OK), *b = json("--ranks 8" SLOW_NET, MT_OK),
          *flat = json("shard.hierarchy=flat --ranks 8" SLOW_NET, MT_OK),
          *relayed = json("shard.hierarchy=flat --ranks 8 --collectives hierarchical" SLOW_NET, MT_OK);
    CHECK(number(b, "step_s") > number(a, "step_s") && number(flat, "step_s") > number(b, "step_s"));
    CHECK(number(relayed, "step_s") < number(flat, "step_s"));
    CHECK_STR(cJSON_GetObjectItem(b, "bound")->valuestring, "interconnect");
    CHECK_CLOSE(number(a, "device_peak_bytes"), number(b, "device_peak_bytes"), 0);
    cJSON_Delete(a);
    cJSON_Delete(b);
    cJSON_Delete(flat);
    cJSON_Delete(relayed);
}

/* 8 ranks on 2 nodes; a slice smaller than what a rank has to send, then a larger one; replicas, of which the first one writes; one node. */
TEST(local_checkpoints)
{
#define LOCAL "--ranks 8 cluster.net.bandwidth=1e9 cluster.net.efficiency=0.5"
    cJSON *without = json(LOCAL, MT_OK),
          *with = json(LOCAL " ckpt.local_dir=/disk ckpt.local_slice=4KiB", MT_OK),
          *large = json(LOCAL " ckpt.local_dir=/disk ckpt.local_keep=3", MT_OK),
          *replicas = json(LOCAL " ckpt.local_dir=/disk mesh.ep=2 mesh.replicas=2", MT_OK),
          *alone = json("--ranks 4 ckpt.local_dir=/disk", MT_OK);
    double bytes = number(without, "checkpoint_bytes"), each = bytes / 8;
    CHECK_CLOSE(number(without, "local_node_bytes"), 0, 0);
    CHECK_CLOSE(number(with, "local_sent_bytes"), each, 1);
    CHECK_CLOSE(number(with, "local_node_bytes"), 2 * (4 + 4) * each, 1);
    CHECK_CLOSE(number(with, "local_steps"), ceil(each / 4096), 0);
    CHECK_CLOSE(number(with, "local_slice_s"), 4096 / 0.5e9, 1e-9);
    CHECK_CLOSE(number(large, "local_node_bytes"), 4 * (4 + 4) * each, 1);
    CHECK_CLOSE(number(large, "local_steps"), 1, 0);
    CHECK_CLOSE(number(large, "local_slice_s"), each / 0.5e9, 1e-9);
    CHECK_CLOSE(number(replicas, "local_sent_bytes"), 2 * each, 1);
    CHECK_CLOSE(number(replicas, "local_node_bytes"), 2 * (4 + 4) * 2 * each, 1);
    CHECK_CLOSE(number(alone, "local_node_bytes"), 2 * bytes, 1);
    CHECK_CLOSE(number(alone, "local_sent_bytes"), 0, 0);
    /* the buffer of a slice is in the host arena */
    CHECK_CLOSE(number(large, "host_peak_bytes") - number(without, "host_peak_bytes"), 64 << 20, 4096);
    cJSON *const all[] = {without, with, large, replicas, alone};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cJSON_Delete(all[i]);
    prints(LOCAL " ckpt.local_dir=/dev/shm ckpt.local_slice=4KiB ckpt.local_interval=2",
           "too slow, those that are due");
    CHECK(strstr(printed, "memory that the host arena does not have"));
}

int main(void)
{
    RUN(the_table);
    RUN(what_is_refused);
    RUN(routing_of_a_run);
    RUN(json_says_what_the_page_documents);
    RUN(a_search);
    RUN(numbers_matter);
    RUN(local_checkpoints);
    remove_temporary_folder();
    return DONE();
}
