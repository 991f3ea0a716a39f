/* What is written of a configuration: the dump, the hash, the comparison on resume, the documentation. */
#include "cmd/cmd.h"
#include "config/group.h"
#include "config/table.h"
#include "helper.h"

static mt_config a, b;

/* A text that sets every option to something else than its default. */
static const char *const changed =
    "model: {vocab: 300, dim: 64, layers: 5, attention: mla, q_lora_rank: 20, kv_lora_rank: 12, heads: 8, "
    "kv_heads: 8, head_dim: 32, v_head_dim: 16, "
    "rotary_dims: 8,\n"
    "  rope_theta: 12345.678, rope_factor: 40, rope_original: 2000, rope_beta_fast: 16, rope_beta_slow: 2, "
    "rope_mscale: 0.7,\n"
    "  rope_mscale_all: 0.8, norm_eps: 1e-5, first_dense: 1, ffn: 96, tied: "
    "true,\n  window: 100, window_full_first: 1, window_full_every: 3,\n"
    "  experts: 8, top_k: 2, expert_ffn: 16, shared_ffn: 24, score: sigmoid, route_norm: false, route_scale: "
    "2.5,\n"
    "  n_group: 4, topk_group: 2, group_score: max, mtp_depth: 2, mtp_loss_weight: 0.1, bias_rate: 1e-3, "
    "init_std: 0.013}\n"
    "moe: {buffer_factor: 0.7, capacity_factor: 1.5, drop: position, routing: balanced,\n  "
    " aux_loss_sequence: 1e-4, aux_loss_global: 1e-2, z_loss: 1e-3}\n"
    "mesh: {ep: 2, replicas: 3, ranks_per_node: 6}\n"
    "wire: {reduce: bf16, gather_experts: fp8, gather_dense: fp8}\n"
    "train: {steps: 2k, seq_len: 1Ki, global_batch: 36, micro_batch: 3, dtype: f32, seed: 7, loss_chunk: "
    "77,\n"
    "  log_interval: 3, eval_interval: 0, eval_batches: 5, micro_order: layer, trace: {steps: [3, 4], ranks: "
    "2}}\n"
    "shard: {prefetch: 3, prefetch_memory: 2GiB, keep_last: 2, grads: 1, hierarchy: flat, reshard_dense: "
    "node, reshard_experts: none,\n"
    "  host_weights: dense, groups: [{match: '*.mlp.*', "
    "placement: owned, "
    "gather: "
    "fp8},\n"
    "  {match: embed.weight, placement: block, optional: true}]}\n"
    "optim: {lr: 0.1, warmup_steps: 9, decay_ratio: 0.3, decay: cosine, min_lr_ratio: 0.05, clip: 0.5, "
    "qk_clip: 90,\n"
    "  weight_decay: 0.01, compute: host, groups: [{match: '\"x\\y*\"', optimizer: adamw, weight_decay: "
    "0.3}, {match: '*', "
    "optimizer: "
    "muon}]}\n"
    "adamw: {beta1: 0.8, beta2: 0.99, eps: 1e-9}\n"
    "muon: {momentum: 0.9, nesterov: false, steps: 6, coefficients: polar_express, scale: spectral, dtype: "
    "f32,\n"
    "  dense: gather, batch_bytes: 1MiB, per_head: true}\n"
    "shampoo: {beta1: 0.8, beta2: 0.91, eps: 1e-7, graft_eps: 1e-6, frequency: 4, start: 5, max_dim: 78,\n"
    "  batch_bytes: 2MiB}\n"
    "soap: {beta1: 0.9, beta2: 0.9, eps: 1e-7, frequency: 3, max_dim: 77, batch_bytes: 1MiB}\n"
    "data: {train: 'a \"b\" \\c # d', valid: \"\\u00e4\", valid_fraction: 0.1, mode: packed, eod: 3, "
    "tokenizer: t, "
    "document_mask: false,\n"
    "  reset_positions: false, balance: attention, prefetch: 4,\n"
    "  blend: [{path: 'a \"b\"', weight: 0.25}, {path: c, weight: 3}]}\n"
    "device: {type: cpu, isa: avx2, workers: 3, memory: 1536, scratch: 2GiB, attention: own, graphs: on, "
    "order_seed: 5}\n"
    "host: {memory: 3GiB, huge_pages: require, numa: '1'}\n"
    "offload: {activations: {fraction: 0.5, prefetch: 3}, masters: host, moments: host, grads: host, slots: "
    "3,\n"
    "  slot_bytes: 2MiB}\n"
    "recompute: {policy: none, keep: 'qkv, attention', keep_on: host, keep_memory: 1GiB}\n"
    "ckpt: {interval: 7, interval_time: 30m, keep_last: 9, keep_every: 70, writers: 3, buffer: 2MiB, "
    "rate_limit: 5MiB, verify: false, "
    "timeout: 70s, local_dir: l, local_interval: 6, local_keep: 3, local_slice: 8KiB, export_dir: x, "
    "export_wait: 9s, resume: never, at_end: "
    "false}\n"
    "init: {from: x}\n"
    "run: {dir: '~', tensorboard: true, prometheus: p, print_owners: true, memory: true, traffic: true, "
    "expert_interval: 7, trace_collectives: "
    "true, stop_after: "
    "4, "
    "hang_timeout: 90s, time_limit: 12h, time_margin: 5m}\n"
    "guard: {nonfinite: rollback, spike: skip, spike_factor: 3, spike_norm_factor: 5, spike_window: 9, "
    "max_skips: 2, replica_hash_interval: 8, straggler_factor: 0}\n"
    "watchdog: {factor: 3, setup: 1m, first_step: 2m, validation: 3m, save: 4m}\n";

/* A configuration of it, and of what mla, which it asks for, excludes. */
static const char *parse_changed(mt_config *c)
{
    static mt_config other;
    const char *message = parse(&other, "model: {qk_norm: true, attn_bias: true}\n");
    if (!message[0]) message = parse(c, changed);
    c->model_qk_norm = other.model_qk_norm, c->model_attn_bias = other.model_attn_bias;
    c->origin[MT_OPTION_model_qk_norm] = other.origin[MT_OPTION_model_qk_norm];
    c->origin[MT_OPTION_model_attn_bias] = other.origin[MT_OPTION_model_attn_bias];
    return message;
}

TEST(the_changed_text_changes_everything)
{
    char before[MT_VALUE_TEXT], after[MT_VALUE_TEXT];
    mt_config_defaults(&a);
    CHECK_STR(parse_changed(&b), "");
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        CHECK_INT(b.origin[i].from, MT_FROM_FILE);
        if (o->list) CHECK(mt_groups_count(&a, o) != mt_groups_count(&b, o));
        if (o->list) continue;
        if (!CHECK(strcmp(mt_value_text(o, &a, before), mt_value_text(o, &b, after)) != 0))
            printf("  %s\n", o->key);
    }
}

static void check_same_values(const mt_config *x, const mt_config *y)
{
    char before[MT_VALUE_TEXT], after[MT_VALUE_TEXT];
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (o->list) {
            CHECK_INT(mt_groups_count(y, o), mt_groups_count(x, o));
            CHECK(!memcmp(mt_groups_entry(y, o, 0), mt_groups_entry(x, o, 0), o->size));
        } else {
            CHECK_STR(mt_value_text(o, y, after), mt_value_text(o, x, before));
        }
    }
}

/* dump, load, dump: the same values, and from then on the same text. */
TEST(dumps_load_again)
{
    for (int variant = 0; variant < 2; variant++) {
        CHECK_STR(variant ? parse(&a, changed) : OVERRIDE(&a, "model.dim=64"), "");
        char *first = dump(&a);
        CHECK_STR(parse(&b, first), "");
        check_same_values(&a, &b);
        CHECK(mt_config_hash(&a) == mt_config_hash(&b));
        char *second = dump(&b);
        CHECK_STR(parse(&b, second), "");
        char *third = dump(&b);
        CHECK_STR(third, second);
        free(first);
        free(second);
        free(third);
    }
}

TEST(dump_names_origins)
{
    CHECK_STR(OVERRIDE(&a, "model.dim=64"), "");
    char *text = dump(&a);
    CHECK(strstr(text, "  vocab: 256                           # default\n") != NULL);
    CHECK(strstr(text, "  dim: 64                              # command line\n") != NULL);
    CHECK(strstr(text, "  v_head_dim: 64                       # from another option\n") != NULL);
    free(text);
    CHECK_STR(parse(&a, changed), "");
    text = dump(&a);
    CHECK(strstr(text, "  buffer_factor: 0.7                   # t.yaml:7\n") != NULL);
    CHECK(strstr(text, "    - {match: \"\\\"x\\\\y*\\\"\", optimizer: adamw, lr_scale: 1, weight_decay: 0.3, "
                       "optional: false}\n") != NULL);
    CHECK(strstr(text,
                 "  groups:                              # t.yaml:14\n    - {match: \"*.mlp.*\", placement: "
                 "owned, gather: fp8, optional: false}\n") != NULL);
    free(text);
    mt_config_defaults(&a);
    text = dump(&a);
    CHECK(strstr(text, "  groups: []                           # default\n") != NULL);
    free(text);
}

/* A file's name may hold what no comment may. */
TEST(dump_of_a_file_with_an_odd_name)
{
    mt_err e = {0};
    const char *text = "model.dim: 64\n", *name = "a\nb: c\xff\xe2\x80\xa8.yaml";
    CHECK_INT(mt_config_parse(&a, name, text, strlen(text), &e), MT_OK);
    char *out = dump(&a);
    CHECK(strstr(out, "# a?b: c??.yaml:1\n") != NULL);
    CHECK_STR(parse(&b, out), "");
    free(out);
}

TEST(hash_covers_what_all_ranks_share)
{
    mt_config_defaults(&a);
    uint64_t defaults = mt_config_hash(&a);
    CHECK_STR(parse_changed(&b), "");
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        mt_config_defaults(&a);
        if (o->list == &mt_list_optim_group)
            a.optim_groups[1].lr_scale = 0.5;
        else if (o->list)
            memcpy((char *)&a + o->list->count, &(int64_t){1}, 8);
        else
            memcpy((char *)&a + o->offset, (char *)&b + o->offset, o->size);
        if (!CHECK((mt_config_hash(&a) != defaults) == o->same)) printf("  %s\n", o->key);
    }
}

static const char *resume(void)
{
    static mt_err e;
    e = (mt_err){0};
    mt_status s = mt_config_resume_check(&a, &b, &e);
    CHECK_INT(s, e.code);
    return e.msg;
}

TEST(resume_refuses_what_is_fixed)
{
    mt_config other;
    CHECK_STR(parse_changed(&other), "");
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        mt_config_defaults(&a);
        b = a;
        if (o->list == &mt_list_optim_group)
            b.optim_groups_count--;
        else if (o->list)
            memcpy((char *)&b + o->list->count, &(int64_t){1}, 8);
        else
            memcpy((char *)&b + o->offset, (char *)&other + o->offset, o->size);
        const char *message = resume();
        if (!CHECK((message[0] != 0) == o->fixed)) printf("  %s\n", o->key);
        CHECK(message[0] == 0 || strstr(message, o->key));
    }
}

TEST(resume_messages)
{
    CHECK_STR(OVERRIDE(&a, "train.seed=1"), "");
    CHECK_STR(OVERRIDE(&b, "train.seed=2", "train.steps=2000"), "");
    CHECK_STR(
        resume(),
        "can't resume: train.seed is 2 (command line), but the checkpoint's run has 1, and this may not "
        "change within a run; set it back, or begin a new run.dir with init.from");
    CHECK_STR(OVERRIDE(&b, "train.steps=2000", "optim.lr=1"), "");
    CHECK_STR(resume(), "");
    b = a;
    b.optim_groups[2].lr_scale = 0.5;
    CHECK_STR(resume(), "");
    b.optim_groups[2].optimizer = MT_OPTIMIZER_MUON;
    CHECK_STR(
        resume(),
        "can't resume: optimizer of entry 3 of optim.groups is muon (default), but the checkpoint's run "
        "has adamw, and this may not change within a run; set it back, or begin a new run.dir with "
        "init.from");
    b.optim_groups_count = 2;
    CHECK_STR(resume(),
              "can't resume: the number of optim.groups is 2 (default), but the checkpoint's run has 6, and "
              "this may not change within a run; set it back, or begin a new run.dir with init.from");
}

static char *document(bool markdown, const char *prefix, int *n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    *n = mt_config_document(f, markdown, prefix);
    fclose(f);
    return text;
}

TEST(documentation_names_every_option)
{
    int n;
    for (int markdown = 0; markdown < 2; markdown++) {
        char *text = document(markdown, NULL, &n), key[80];
        CHECK_INT(n, MT_OPTION_COUNT);
        for (int i = 0; i < MT_OPTION_COUNT; i++) {
            snprintf(key, sizeof key, markdown ? "\n| `%s` |" : "%s ", mt_options[i].key);
            if (!CHECK(strstr(text, key) != NULL)) printf("  %s\n", key);
        }
        free(text);
    }
    char *text = document(false, "moe.buffer", &n);
    CHECK_INT(n, 1);
    free(text);
    text = document(false, "shard.groups", &n);
    CHECK_INT(n, 1);
    CHECK(strstr(text, "An entry of shard.groups\n") && !strstr(text, "An entry of optim.groups"));
    free(text);
    text = document(false, "moe.buffer", &n);
    CHECK_STR(text, "moe.buffer_factor        FLOAT   1.25  of (0, 1024]\n"
                    "    Rows of the receive buffer of an expert exchange, over the rows of a balanced load. "
                    "What is past\n"
                    "    it takes further rounds: nothing is dropped, and memory does not grow.\n");
    free(text);
    free(document(false, "nothing", &n));
    CHECK_INT(n, 0);
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *text = calloc(1, 1 << 20);
    CHECK(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

TEST(options_md_is_up_to_date)
{
    char *committed = read_file("configs/OPTIONS.md");
    if (!committed) SKIP("configs/OPTIONS.md is not seen from here: run from the repository's root");
    int n;
    char *written = document(true, NULL, &n);
    if (!CHECK(!strcmp(committed, written)))
        printf("  write it again: moetitan options --markdown > configs/OPTIONS.md\n");
    free(committed);
    free(written);
}

TEST(shipped_configurations_load)
{
    if (access("configs/quickstart.yaml", R_OK) != 0) SKIP("configs/ is not seen from here");
    CHECK_STR(load(&a, "configs/quickstart.yaml", NULL), "");
    CHECK_STR(a.run_dir, "runs/quickstart");
    CHECK_STR(load(&a, "configs/models/jupiter-952b.yaml", NULL), "");
    CHECK_STR(load(&a, "configs/jupiter-952b.yaml", NULL), "");
    CHECK_INT(a.model_experts, 384);
    CHECK_INT(a.train_seq_len, 65536);
    mt_err e = {0};
    CHECK_INT(mt_config_check_world(&a, 384, &e), MT_OK);
}

static char **words(const char *second)
{
    static const char *argv[2] = {"options"};
    argv[1] = second;
    return (char **)argv;
}

TEST(the_command_refuses_what_it_does_not_know)
{
    mt_err e = {0};
    CHECK_INT(mt_cmd_options(2, words("--html"), &e), MT_CONFIG);
    CHECK_STR(e.msg,
              "options: unexpected '--html'; usage: moetitan options [--markdown] [KEY or its beginning]");
    e = (mt_err){0};
    CHECK_INT(mt_cmd_options(2, words("nosuch"), &e), MT_CONFIG);
    CHECK_STR(e.msg, "options: no option begins with 'nosuch'; `moetitan options` lists all");
}

int main(void)
{
    RUN(the_changed_text_changes_everything);
    RUN(dumps_load_again);
    RUN(dump_names_origins);
    RUN(dump_of_a_file_with_an_odd_name);
    RUN(hash_covers_what_all_ranks_share);
    RUN(resume_refuses_what_is_fixed);
    RUN(resume_messages);
    RUN(documentation_names_every_option);
    RUN(options_md_is_up_to_date);
    RUN(shipped_configurations_load);
    RUN(the_command_refuses_what_it_does_not_know);
    return DONE();
}
