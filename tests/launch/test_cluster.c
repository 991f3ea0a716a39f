/* Cluster files: those that are shipped, what the parser refuses and where it points, overrides. */
#include "check.h"
#include "launch/cluster.h"

static char text[1 << 15];

/* A file in which every number is 1, or its least value, but for one line that is put in place of `key`'s. */
static size_t write_file(const char *key, const char *line)
{
    size_t n = (size_t)snprintf(text, sizeof text, "name: toy\ntarget: cuda\n");
    char section[32] = "";
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++) {
        const struct mt_cluster_row *r = &mt_cluster_rows[k];
        const char *dot = strchr(r->key, '.');
        double v = r->low > 1 ? r->low : r->high < 1 ? r->high : 1;
        if (strncmp(section, r->key, (size_t)(dot - r->key) + 1) != 0) {
            snprintf(section, sizeof section, "%.*s.", (int)(dot - r->key), r->key);
            n += (size_t)snprintf(text + n, sizeof text - n, "%.*s:\n", (int)(dot - r->key), r->key);
        }
        if (key && !strcmp(r->key, key))
            n += (size_t)snprintf(text + n, sizeof text - n, "%s\n", line);
        else
            n += (size_t)snprintf(text + n, sizeof text - n, "  %s: {value: %.17g, source: \"a table\"}\n",
                                  dot + 1, v);
    }
    return n;
}

static void refuses(const char *key, const char *line, const char *part)
{
    struct mt_cluster c;
    mt_err e = {0};
    size_t n = write_file(key, line);
    CHECK_INT(mt_cluster_parse(&c, "toy.yaml", text, n, &e), MT_CONFIG);
    if (!CHECK(strstr(e.msg, part))) printf("  wanted \"%s\" in: %s\n", part, e.msg);
}

TEST(shipped_files)
{
    static const char *const name[] = {"jupiter", "gh200", "h100", "h200", "laptop"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char path[64];
        struct mt_cluster c;
        mt_err e = {0};
        snprintf(path, sizeof path, "configs/clusters/%s.yaml", name[i]);
        if (!CHECK(mt_cluster_load(&c, path, &e) == MT_OK)) printf("  %s\n", e.msg);
        for (int k = 0; k < MT_N_CLUSTER_KEYS; k++) CHECK(c.of[k].given && c.of[k].source[0]);
        CHECK(MT_OF(&c, topology_ranks_per_node) >= 1);
    }
}

TEST(a_whole_file)
{
    struct mt_cluster c;
    mt_err e = {0};
    size_t n = write_file("net.latency", "  latency: {value: 0.25, source: \"assumed: a guess\"}");
    if (!CHECK(mt_cluster_parse(&c, "toy.yaml", text, n, &e) == MT_OK)) printf("  %s\n", e.msg);
    CHECK_STR(c.name, "toy");
    CHECK_CLOSE(MT_OF(&c, net_latency), 0.25, 0);
    CHECK(mt_cluster_assumed(&c, MT_CLUSTER_net_latency) && !mt_cluster_assumed(&c, MT_CLUSTER_node_latency));
}

TEST(what_is_refused)
{
    refuses("peak.f32", "  f32: {value: fast, source: \"x\"}",
            "toy.yaml:5:16: peak.f32 is a number of FLOP/s; 'fast'");
    refuses("peak.f32", "  f32: {value: 3, source: \"x\"}",
            "toy.yaml:5:16: peak.f32 must be in [1e+09, 1e+18] FLOP/s");
    refuses("peak.f32", "  f32: {value: nan, source: \"x\"}", "toy.yaml:5:16: peak.f32 is a number");
    refuses("peak.f32", "  f32: {value: 1e12}", "toy.yaml:5:8: peak.f32 has no source");
    refuses("peak.f32", "  f32: {value: 1e12, source: \"\"}", "toy.yaml:5:30: the source must be text");
    refuses("peak.f32", "  f32: {source: \"x\"}", "toy.yaml:5:8: peak.f32 has no value");
    refuses("peak.f32", "  f32: 1e12", "toy.yaml:5:8: peak.f32 must be {value: NUMBER, source: TEXT}");
    refuses("peak.f32", "  f32: {value: 1e12, from: \"x\"}",
            "toy.yaml:5:22: peak.f32 has a value and a source");
    refuses("peak.f32", "  f23: {value: 1e12, source: \"x\"}",
            "toy.yaml:5:3: 'peak.f23' is no number of a cluster; did you mean peak.f32?");
    refuses("peak.f32", "  # nothing", "the file has no peak.f32");
    refuses("power.device", "  device: {value: 1, source: x}\nnett: {}", "'nett' is no number of a cluster");
    struct mt_cluster c;
    mt_err e = {0};
    CHECK_INT(mt_cluster_parse(&c, "toy.yaml", "- 1\n", 4, &e), MT_CONFIG);
    CHECK(strstr(e.msg, "toy.yaml:1:1: a cluster file is a map"));
    e = (mt_err){0};
    CHECK_INT(mt_cluster_parse(&c, "toy.yaml", "", 0, &e), MT_CONFIG);
    e = (mt_err){0};
    CHECK_INT(mt_cluster_load(&c, "no/such.yaml", &e), MT_CONFIG);
}

TEST(overrides)
{
    struct mt_cluster c;
    mt_err e = {0};
    CHECK(mt_cluster_parse(&c, "toy.yaml", text, write_file(NULL, NULL), &e) == MT_OK);
    CHECK(mt_cluster_override(&c, "net.bandwidth=5e10", &e) == MT_OK);
    CHECK_CLOSE(MT_OF(&c, net_bandwidth), 5e10, 0);
    CHECK_STR(c.of[MT_CLUSTER_net_bandwidth].source, "command line");
    CHECK_INT(mt_cluster_override(&c, "net.bandwith=5e10", &e), MT_CONFIG);
    CHECK(strstr(e.msg, "did you mean net.bandwidth?"));
    e = (mt_err){0};
    CHECK_INT(mt_cluster_override(&c, "net.bandwidth=-1", &e), MT_CONFIG);
    CHECK(strstr(e.msg, "must be in"));
    e = (mt_err){0};
    CHECK_INT(mt_cluster_override(&c, "net.bandwidth", &e), MT_CONFIG);
}

/* ---- single operations ---- */
static size_t with_ops(const char *lines)
{
    size_t n = write_file(NULL, NULL);
    return n + (size_t)snprintf(text + n, sizeof text - n, "ops:\n%s", lines);
}
static void refuses_ops(const char *lines, const char *part)
{
    static struct mt_cluster c;
    mt_err e = {0};
    CHECK_INT(mt_cluster_parse(&c, "toy.yaml", text, with_ops(lines), &e), MT_CONFIG);
    if (!CHECK(strstr(e.msg, part))) printf("  wanted \"%s\" in: %s\n", part, e.msg);
}
TEST(operations)
{
    refuses_ops("  a.f32: {times: 2}\n", "ops has no source");
    refuses_ops("  source: x\n  a.f32: 2\n", "{times: NUMBER, plus: SECONDS}, not");
    refuses_ops("  source: x\n  a.f32: {plus: 1e-6}\n", "must say times");
    refuses_ops("  source: x\n  a.f32: {times: -1}\n", "times of an operation must be a number");
    refuses_ops("  source: x\n  a.f32: {times: nan}\n", "times of an operation must be a number");
    refuses_ops("  source: x\n  a.f32: {times: 1, plus: 2}\n", "plus of an operation must be a number");
    refuses_ops("  source: x\n  a.f32: {times: 1, above: 2}\n", "above and then together");
    refuses_ops("  source: x\n  a.f32: {times: 1, half: -1}\n", "half of an operation must be a number");
    refuses_ops("  source: x\n  a.f32: {times: 1, minus: 2}\n", "no 'minus'");
}

/* What is written is read as it was. */
TEST(written_and_read)
{
    static struct mt_cluster a, b;
    mt_err e = {0};
    size_t n = with_ops("  source: \"a clock\"\n  a.f32: {times: 2.5, plus: 1e-06, above: 0.5, then: 3}\n  "
                        "b.bf16: {times: 0, half: 96}\n");
    if (!CHECK(mt_cluster_parse(&a, "toy.yaml", text, n, &e) == MT_OK)) printf("  %s\n", e.msg);
    FILE *f = fmemopen(text, sizeof text, "w");
    if (!CHECK(f)) return;
    mt_cluster_write(&a, f);
    n = (size_t)ftell(f);
    fclose(f);
    if (!CHECK(mt_cluster_parse(&b, "again.yaml", text, n, &e) == MT_OK)) printf("  %s\n", e.msg);
    CHECK_INT(b.n_ops, 2);
    CHECK_STR(b.op_source, "a clock");
    CHECK_CLOSE(mt_cluster_op(&b, "a.f32")->plus, 1e-6, 0);
    CHECK_CLOSE(mt_cluster_op_seconds(mt_cluster_op(&b, "a.f32"), 0.5), 1.25 + 1e-6, 1e-12);
    CHECK_CLOSE(mt_cluster_op_seconds(mt_cluster_op(&b, "a.f32"), 0.75), 2 + 1e-6, 1e-12);
    CHECK(mt_cluster_op(&b, "b.bf16")->has_half && !mt_cluster_op(&b, "a.f32")->has_half);
    CHECK_CLOSE(mt_cluster_op(&b, "b.bf16")->half, 96, 0);
    CHECK(!mt_cluster_op(&b, "c.f32"));
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++)
        CHECK_CLOSE(b.of[k].value, a.of[k].value, 1e-5 * a.of[k].value);
}

int main(void)
{
    RUN(shipped_files);
    RUN(a_whole_file);
    RUN(what_is_refused);
    RUN(overrides);
    RUN(operations);
    RUN(written_and_read);
    return DONE();
}
