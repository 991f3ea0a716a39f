/* Files: every kind of mistake with its line and column, extends, overrides, origins. */
#include "helper.h"

static mt_config c;

static const struct {
    const char *text, *message;
} refused[] = {
    /* nothing, or not options */
    {"", "t.yaml:1:1: the file holds no options"},
    {"# only this\n", "t.yaml:1:1: the file holds no options"},
    {"---\n", "t.yaml:1:1: the file holds no options"},
    {"~\n", "t.yaml:1:1: the file holds no options"},
    {"\nhello\n", "t.yaml:2:1: expected options such as `model:`, got 'hello'"},
    {"- a\n", "t.yaml:1:1: expected options such as `model:`, got a list"},
    /* unknown names */
    {"model:\n  dim: 64\n  layer: 2\n", "t.yaml:3:3: no option 'model.layer'; did you mean model.layers?"},
    {"modle:\n  dim: 64\n", "t.yaml:1:1: no option 'modle'; did you mean model?"},
    {"qqqq:\n  dim: 64\n", "t.yaml:1:1: no option 'qqqq'"},
    {"train:\n  optim:\n    lr: 1\n", "t.yaml:2:3: no option 'train.optim'"},
    {"vocab: 64\n", "t.yaml:1:1: no option 'vocab'; did you mean model.vocab?"},
    {"train.stepz: 64\n", "t.yaml:1:1: no option 'train.stepz'; did you mean train.steps?"},
    {"model:\n  dim: 64\n  qqqqqqqqqqqqqqqqqqq: 2\n", "t.yaml:3:3: no option 'model.qqqqqqqqqqqqqqqqqqq'"},
    {"model:\n  \"a\\tb\": 2\n", "t.yaml:2:3: no option 'model.a?b'"},
    {"<<: 1\n", "t.yaml:1:1: no option '<<'"},
    /* values */
    {"model:\n  dim: wide\n",
     "t.yaml:2:8: model.dim: expected a whole number such as 512, 64Ki or 2M, got 'wide'"},
    {"model:\n  dim:   4\n", "t.yaml:2:10: model.dim: 4 is outside [8, 128Ki]"},
    {"model: {dim: 64, heads: 4x}\n",
     "t.yaml:1:25: model.heads: expected a whole number such as 512, 64Ki or 2M, got "
     "'4x': units are Ki, Mi, Gi, Ti, k, M, G, T"},
    {"model:\n  dim:\n  heads: 2\n", "t.yaml:2:3: model.dim has no value"},
    {"run:\n  dir: ~\n", "t.yaml:2:3: run.dir has no value"},
    {"train:\n  trace:\n    step: 3\n",
     "t.yaml:3:5: no option 'train.trace.step'; did you mean train.trace.steps?"},
    {"train: {trace: {steps: [3, [4]]}}\n",
     "t.yaml:1:28: train.trace.steps: expected a whole number, got a list"},
    {"train: {trace: {steps: [3, x]}}\n",
     "t.yaml:1:24: train.trace.steps: expected whole numbers such as [3, 4], got 'x'"},
    {"train: {trace: {}}\n", "t.yaml:1:9: train.trace holds no options"},
    {"train: {trace: 3}\n", "t.yaml:1:16: train.trace: expected options below it, got '3'"},
    {"train: {trace: {ranks: 2}, trace.ranks: 3}\n",
     "t.yaml:1:28: train.trace.ranks is given twice: first in line 1"},
    {"model:\n  dim: [64]\n", "t.yaml:2:8: model.dim: expected one value (INT), got a list"},
    {"model:\n  dim:\n    x: 64\n", "t.yaml:3:5: model.dim: expected one value (INT), got a map"},
    {"run:\n  dir: \"\xc3\xa4\\n\"\n",
     "t.yaml:2:8: run.dir: byte 3 of the text is not printable UTF-8 (0x0a)"},
    {"# \xc3\xa4\xc3\xa4\nrun: {dir: \xc3\xa4, stop_after: x}\n",
     "t.yaml:2:27: run.stop_after: expected a whole number such as 512, 64Ki or 2M, got 'x'"},
    /* sections */
    {"model:\ntrain:\n  steps: 3\n", "t.yaml:1:1: model holds no options"},
    {"model: {}\n", "t.yaml:1:1: model holds no options"},
    {"model: 5\n", "t.yaml:1:8: model: expected options below it, got '5'"},
    {"model: [5]\n", "t.yaml:1:8: model: expected options below it, got a list"},
    /* twice */
    {"model:\n  dim: 64\n  heads: 2\n  dim: 32\n", "t.yaml:4:3: dim is given twice: first in line 2"},
    {"model:\n  dim: 64\ntrain:\n  steps: 9\nmodel:\n  heads: 1\n",
     "t.yaml:5:1: model is given twice: first in line 1"},
    {"model:\n  dim: 64\nmodel.dim: 64\n", "t.yaml:3:1: model.dim is given twice: first in line 2"},
    /* YAML that is not supported, or not YAML */
    {"model:\n  dim: &d 64\n", "t.yaml:2:8: anchors (&name) are not supported: write the value out"},
    {"model: &m\n  dim: 64\n", "t.yaml:1:8: anchors (&name) are not supported: write the values out"},
    {"model:\n  dim: *d\n", "t.yaml:2:8: aliases (*name) are not supported: write the value out"},
    {"model:\n  dim: !!int 64\n", "t.yaml:2:8: tags (!name) are not supported: write the value alone"},
    {"model: !x {dim: 64}\n", "t.yaml:1:8: tags (!name) are not supported: write the values alone"},
    {"? [a]\n: 1\n", "t.yaml:1:3: a key must be text, not a list"},
    {"? {a: b}\n: 1\n", "t.yaml:1:3: a key must be text, not a map"},
    {"model: {dim: 64}\n---\nmodel: {dim: 32}\n",
     "t.yaml:2:1: a second document (---) begins: one file holds one"},
    {"model:\n  dim: 64\n heads: 2\n",
     "t.yaml:3:2: not YAML: did not find expected key while parsing a block mapping"},
    {"model: {dim: 64\n",
     "t.yaml:2:1: not YAML: did not find expected ',' or '}' while parsing a flow mapping"},
    {"model:\n\tdim: 64\n",
     "t.yaml:2:1: not YAML: found character that cannot start any token while scanning for the next token"},
    {"a: [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]\n", "t.yaml:1:19: nested more than 16 deep"},
    {"run:\n  dir: a\xff\n", "t.yaml:2:9: byte 0xff is not printable UTF-8 text"},
    {"run:\n  dir: \xc3\xa4\x01\n", "t.yaml:2:9: byte 0x01 is not printable UTF-8 text"},
    {"\xff\xfem\1o\1", "t.yaml:1:1: byte 0xff is not printable UTF-8 text"},
    {"run:\n  dir: \"a\\0b\"\n", "t.yaml:2:8: the text holds a NUL character"},
    {"extends: other.yaml\n", "t.yaml:1:1: extends: this text is no file"},
    /* optim.groups */
    {"optim:\n  groups: muon\n", "t.yaml:2:11: optim.groups: expected a list of entries, got 'muon'"},
    {"optim:\n  groups: []\n", "t.yaml:2:11: optim.groups: expected a list of entries, got an empty one"},
    {"optim:\n  groups:\n", "t.yaml:2:3: optim.groups has no value"},
    {"optim:\n  groups: [a]\n",
     "t.yaml:2:12: optim.groups: expected an entry such as {match: \"*norm*\", optimizer: "
     "adamw}, got 'a'"},
    {"optim:\n  groups:\n    - match: x\n      optimiser: muon\n",
     "t.yaml:4:7: optim.groups: an entry has no 'optimiser'; did you mean optimizer?"},
    {"optim:\n  groups:\n    - match: x\n",
     "t.yaml:3:7: optim.groups: the entry needs optimizer: adamw, muon, soap, shampoo or none"},
    {"optim:\n  groups:\n    - optimizer: muon\n",
     "t.yaml:3:7: optim.groups: the entry needs match: a pattern for parameters' names"},
    {"optim:\n  groups:\n    - {match: x, optimizer: moun}\n",
     "t.yaml:3:29: optim.groups: optimizer: expected one of "
     "adamw, muon, soap, shampoo, none, got 'moun'; did you mean muon?"},
    {"optim:\n  groups:\n    - {match: x, optimizer: muon, lr_scale: }\n",
     "t.yaml:3:35: optim.groups: lr_scale has no value"},
    {"optim:\n  groups:\n    - {match: [x], optimizer: muon}\n",
     "t.yaml:3:15: optim.groups: match: expected one value, got a list"},
    {"optim:\n  groups:\n    - {match: x, optimizer: muon, weight_decay: -0.5}\n",
     "t.yaml:3:7: optim.groups: weight_decay is -0.5: give 0 or more, or -1 for optim.weight_decay"},
    /* shard.groups */
    {"shard:\n  groups: {match: x}\n", "t.yaml:2:11: shard.groups: expected a list of entries, got a map"},
    {"shard:\n  groups: [owned]\n", "t.yaml:2:12: shard.groups: expected an entry such as {match: "
                                    "\"layers.*.attn.q.weight\", placement: owned}, got "
                                    "'owned'"},
    {"shard:\n  groups:\n    - placement: owned\n",
     "t.yaml:3:7: shard.groups: the entry needs match: a pattern for parameters' names"},
    {"shard:\n  groups:\n    - {match: x, placemnt: owned}\n",
     "t.yaml:3:18: shard.groups: an entry has no 'placemnt'; did you mean placement?"},
    {"shard:\n  groups:\n    - {match: x, placement: ownd}\n",
     "t.yaml:3:29: shard.groups: placement: expected one of auto, flat, block, owned, got 'ownd'; did you "
     "mean owned?"},
    {"shard:\n  groups:\n    - {match: x, gather: fp9}\n",
     "t.yaml:3:26: shard.groups: gather: expected one of auto, f32, bf16, fp8, got 'fp9'; did you mean fp8?"},
    {"optim:\n  groups:\n    - {match: x, match: y}\n", "t.yaml:3:18: match is given twice: first in line 3"},
};

TEST(refused_texts)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK_STR(parse(&c, refused[i].text), refused[i].message);
}

TEST(accepted_texts)
{
    CHECK_STR(parse(&c, "train:\n  trace:\n    steps:\n      - 3\n      - 4k\n    ranks: 1\n"), "");
    CHECK_INT(c.train_trace_steps.n, 2);
    CHECK_INT(c.train_trace_steps.at[1], 4000);
    CHECK_INT(c.train_trace_ranks, 1);
    CHECK_STR(parse(&c, "train: {trace.steps: 5, trace: {ranks: 3}}\n"), "");
    CHECK_INT(c.train_trace_steps.at[0], 5);
    CHECK_INT(c.train_trace_ranks, 3);
    CHECK_STR(parse(&c, "train.trace: {steps: []}\n"), "");
    CHECK_INT(c.train_trace_steps.n, 0);
    CHECK_STR(parse(&c, "model:\n  dim: 64\n"), "");
    CHECK_INT(c.model_dim, 64);
    CHECK_STR(parse(&c, "\xef\xbb\xbfmodel.dim: 72\r\nmodel.heads: '8'\r\n"), "");
    CHECK_INT(c.model_dim, 72);
    CHECK_INT(c.model_heads, 8);
    CHECK_STR(parse(&c, "%YAML 1.1\n---\n{\"model\": {\"dim\": 80}, \"run\": {\"dir\": \"\"}}\n...\n"),
              "t.yaml:3:39: run.dir: is empty: name the folder the run writes to");
    CHECK_INT(c.model_dim, 80);
    CHECK_STR(parse(&c, "run:\n  dir: >-\n    one\n    two\n"), "");
    CHECK_STR(c.run_dir, "one two");
    CHECK_STR(parse(&c, "run:\n  dir: \"\xf0\x9f\x98\x80 \\u00e4\"\n"), "");
    CHECK_STR(c.run_dir, "\xf0\x9f\x98\x80 \xc3\xa4");
}

TEST(groups)
{
    CHECK_STR(parse(&c, "optim:\n  groups:\n"
                        "    - {match: \"*norm*\", optimizer: adamw, weight_decay: 0, lr_scale: 0.5}\n"
                        "    - match: \"*\"\n      optimizer: muon\n      optional: true\n"),
              "");
    if (!CHECK_INT(c.optim_groups_count, 2)) return;
    CHECK_STR(c.optim_groups[0].match, "*norm*");
    CHECK_INT(c.optim_groups[0].optimizer, MT_OPTIMIZER_ADAMW);
    CHECK_CLOSE(c.optim_groups[0].weight_decay, 0, 0);
    CHECK_CLOSE(c.optim_groups[0].lr_scale, 0.5, 0);
    CHECK(!c.optim_groups[0].optional);
    CHECK_INT(c.optim_groups[1].optimizer, MT_OPTIMIZER_MUON);
    CHECK_CLOSE(c.optim_groups[1].weight_decay, -1, 0);
    CHECK_CLOSE(c.optim_groups[1].lr_scale, 1, 0);
    CHECK(c.optim_groups[1].optional);
    CHECK_STR(OVERRIDE(&c, "optim.groups=[{match: a*, optimizer: none}]"), "");
    CHECK_INT(c.optim_groups_count, 1);
    CHECK_STR(c.optim_groups[0].match, "a*");
    CHECK_INT(c.optim_groups[0].optimizer, MT_OPTIMIZER_NONE);
    CHECK_STR(OVERRIDE(&c, "optim.groups="), "command line: optim.groups has no value");
    CHECK_STR(OVERRIDE(&c, "optim.groups=[{match: a, optimizer: mon}]"),
              "command line:1:24: optim.groups: optimizer: expected one of adamw, muon, soap, shampoo, none, "
              "got 'mon'; did "
              "you mean "
              "muon?");
}

TEST(groups_of_shards)
{
    CHECK_STR(OVERRIDE(&c, "shard.groups=[]"), "");
    CHECK_INT(c.shard_groups_count, 0);
    CHECK_STR(
        parse(&c,
              "shard.groups:\n- {match: a*, placement: block}\n- {match: b, gather: fp8, optional: true}\n"
              "- {match: c}\n"),
        "");
    if (!CHECK_INT(c.shard_groups_count, 3)) return;
    CHECK_STR(c.shard_groups[0].match, "a*");
    CHECK_INT(c.shard_groups[0].placement, MT_PLACEMENT_BLOCK);
    CHECK_INT(c.shard_groups[0].gather, MT_GATHER_AUTO);
    CHECK(!c.shard_groups[0].optional);
    CHECK_INT(c.shard_groups[1].placement, MT_PLACEMENT_AUTO);
    CHECK_INT(c.shard_groups[1].gather, MT_GATHER_FP8);
    CHECK(c.shard_groups[1].optional);
    CHECK_STR(c.shard_groups[2].match, "c");
    CHECK_INT(c.optim_groups_count, 6); /* the other list is as it was */
}

TEST(more_groups_than_fit)
{
    char text[4096] = "optim.groups:\n";
    for (int i = 0; i < MT_CONFIG_GROUPS; i++) strcat(text, "- {match: x, optimizer: muon}\n");
    CHECK_STR(parse(&c, text), "");
    CHECK_INT(c.optim_groups_count, MT_CONFIG_GROUPS);
    strcat(text, "- {match: x, optimizer: muon}\n");
    CHECK_STR(parse(&c, text), "t.yaml:34:3: optim.groups: more than 32 entries");
}

TEST(patterns)
{
    CHECK(mt_config_match("*", "") && mt_config_match("*", "a.b"));
    CHECK(mt_config_match("a.*.w", "a.12.w") && !mt_config_match("a.*.w", "a.12.wx"));
    CHECK(mt_config_match("*norm*", "layers.0.norm.weight") && mt_config_match("*norm*", "norm"));
    CHECK(mt_config_match("*ab*ab", "ababab") && mt_config_match("*a*b*", "xaxbx") &&
          !mt_config_match("*a*b", "ba"));
    CHECK(mt_config_match("", "") && !mt_config_match("", "a") && !mt_config_match("a", ""));
    CHECK(!mt_config_match("norm", "norms") && !mt_config_match("norms", "norm") &&
          mt_config_match("**a", "ba"));
}

TEST(overrides)
{
    CHECK_STR(OVERRIDE(&c, "model.dim=64", "model.dim=128"), "");
    CHECK_INT(c.model_dim, 128);
    CHECK_STR(OVERRIDE(&c, "model.dim"), "command line: expected key=value, got 'model.dim'");
    CHECK_STR(OVERRIDE(&c, "=3"), "command line: expected key=value, got '=3'");
    CHECK_STR(OVERRIDE(&c, ""), "command line: expected key=value, got ''");
    CHECK_STR(OVERRIDE(&c, "model.dims=3"),
              "command line: model.dims=3: no option 'model.dims'; did you mean model.dim?");
    CHECK_STR(OVERRIDE(&c, "extends=a.yaml"), "command line: extends=a.yaml: no option 'extends'");
    CHECK_STR(OVERRIDE(&c, "model=3"), "command line: model=3: no option 'model': it is the beginning of "
                                       "others; `moetitan options model` lists them");
}

static const char *origin(mt_option_id id)
{
    static char text[MT_CONFIG_PATH + 16];
    mt_config_origin(&c, id, text, sizeof text);
    return text;
}

TEST(extends_and_origins)
{
    char folder[256], *left = enter_folder(folder);
    CHECK(system("mkdir sub") == 0);
    put_file("sub/base.yaml", "model:\n  dim: 64\n  heads: 8\ntrain:\n  steps: 5000\n");
    put_file("sub/more.yaml", "extends: base.yaml\nmodel:\n  dim: 72\n");
    put_file("other.yaml", "model:\n  heads: 16\n");
    put_file("top.yaml", "model:\n  layers: 3\nextends: [sub/more.yaml, other.yaml]\ntrain:\n  seed: 7\n");
    CHECK_STR(load(&c, "top.yaml", (const char *const[]){"train.seed=9", NULL}), "");
    CHECK_INT(c.model_dim, 72);
    CHECK_STR(origin(MT_OPTION_model_dim), "sub/more.yaml:3");
    CHECK_INT(c.model_heads, 16);
    CHECK_STR(origin(MT_OPTION_model_heads), "other.yaml:2");
    CHECK_INT(c.train_steps, 5000);
    CHECK_STR(origin(MT_OPTION_train_steps), "sub/base.yaml:5");
    CHECK_INT(c.model_layers, 3);
    CHECK_STR(origin(MT_OPTION_model_layers), "top.yaml:2");
    CHECK_INT(c.train_seed, 9);
    CHECK_STR(origin(MT_OPTION_train_seed), "command line");
    CHECK_STR(origin(MT_OPTION_train_seq_len), "default");
    CHECK_STR(origin(MT_OPTION_model_v_head_dim), "from another option");
    CHECK_INT(c.files_count, 4);
    CHECK(system("rm -r sub *.yaml") == 0);
    leave_folder(folder, left);
}

/* A pipe, as bash makes for <(command). */
TEST(configuration_from_a_pipe)
{
    int ends[2];
    char path[32];
    const char *text = "model:\n  dim: 64\n";
    if (!CHECK(pipe(ends) == 0)) return;
    CHECK(write(ends[1], text, strlen(text)) == (ssize_t)strlen(text));
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    CHECK_STR(load(&c, path, NULL), "");
    CHECK_INT(c.model_dim, 64);
    close(ends[0]);
}

TEST(extends_refused)
{
    char folder[256], *left = enter_folder(folder);
    CHECK_STR(load(&c, "none.yaml", NULL),
              "none.yaml: can't open the configuration: No such file or directory");
    CHECK_STR(load(&c, ".", NULL), ".: can't read the configuration: Is a directory");
    put_file("a.yaml", "model:\n  dim: 64\nextends: b.yaml\n");
    put_file("b.yaml", "extends:\n  - ./a.yaml\n");
    CHECK_STR(load(&c, "a.yaml", NULL),
              "b.yaml:2:5: extends: ./a.yaml is being read: files extend in a circle");
    put_file("a.yaml", "extends: a.yaml\n");
    CHECK_STR(load(&c, "a.yaml", NULL),
              "a.yaml:1:10: extends: a.yaml is being read: files extend in a circle");
    put_file("a.yaml", "extends: gone.yaml\n");
    CHECK_STR(load(&c, "a.yaml", NULL), "a.yaml:1:10: extends: there is no file gone.yaml");
    put_file("a.yaml", "extends: {b: c}\n");
    CHECK_STR(load(&c, "a.yaml", NULL), "a.yaml:1:10: extends: expected the path of a file, got a map");
    put_file("a.yaml", "extends:\nmodel: {dim: 64}\n");
    CHECK_STR(load(&c, "a.yaml", NULL), "a.yaml:1:9: extends: expected the path of a file, got ''");
    put_file("a.yaml", "extends: [b.yaml, [c]]\n");
    put_file("b.yaml", "model:\n  dim: x\n");
    CHECK_STR(load(&c, "a.yaml", NULL),
              "b.yaml:2:8: model.dim: expected a whole number such as 512, 64Ki or 2M, got 'x'");
    put_file("b.yaml", "model:\n  dim: 64\n");
    CHECK_STR(load(&c, "a.yaml", NULL), "a.yaml:1:19: extends: expected the path of a file, got a list");
    CHECK(system("rm *.yaml") == 0);
    leave_folder(folder, left);
}

/* A chain one longer than fits, then a file reached by two ways, which is no circle and one file. */
TEST(many_files)
{
    char folder[256], name[32], text[64], *left = enter_folder(folder);
    for (int i = 0; i < MT_CONFIG_FILES; i++) {
        snprintf(name, sizeof name, "%d.yaml", i);
        snprintf(text, sizeof text, i ? "extends: %d.yaml\n" : "model.dim: 64\n", i - 1);
        put_file(name, text);
    }
    CHECK_STR(load(&c, "15.yaml", NULL), "");
    CHECK_INT(c.model_dim, 64);
    put_file("16.yaml", "extends: 15.yaml\n");
    CHECK_STR(load(&c, "16.yaml", NULL), "0.yaml: more than 16 files extend each other");
    put_file("16.yaml", "extends: [1.yaml, 1.yaml, 0.yaml]\n");
    CHECK_STR(load(&c, "16.yaml", NULL), "");
    CHECK_INT(c.files_count, 3);
    CHECK(system("rm *.yaml") == 0);
    leave_folder(folder, left);
}

TEST(large_inputs)
{
    size_t size = (1 << 20) + 1;
    char *text = malloc(size + 1);
    mt_err e = {0};
    memset(text, '#', size);
    text[size] = 0;
    CHECK_STR(parse(&c, text), "t.yaml:1:1: larger than 1048576 bytes: not a configuration");
    memset(text, '[', size - 1);
    CHECK_INT(mt_config_parse(&c, "t", text, size - 1, &e), MT_CONFIG);
    CHECK_STR(e.msg, "t:1:17: nested more than 16 deep");
    size_t at = 0;
    at += (size_t)sprintf(text, "a: [");
    for (int i = 0; i < 5000; i++) at += (size_t)sprintf(text + at, "1,\n");
    CHECK_STR(parse(&c, text), "t.yaml:4095:1: more than 4096 values in one file");
    free(text);
}

int main(void)
{
    RUN(refused_texts);
    RUN(accepted_texts);
    RUN(groups);
    RUN(groups_of_shards);
    RUN(more_groups_than_fit);
    RUN(patterns);
    RUN(overrides);
    RUN(extends_and_origins);
    RUN(configuration_from_a_pipe);
    RUN(extends_refused);
    RUN(many_files);
    RUN(large_inputs);
    return DONE();
}
