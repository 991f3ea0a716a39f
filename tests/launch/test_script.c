/* Batch scripts from templates, site files and their flags, lists of nodes, chains of jobs. */
#include "../data/files.h"
#include "launch/chain.h"
#include "launch/script.h"
#include "launch/site.h"
#include "launch/spawn.h"

#include <sys/stat.h>

#define VALUES "moetitan=moetitan\nargs=(a)\n# ---- end of values\nmoetitan=stays\n"

static const char *rendered(const struct mt_script *s, const char *template, mt_err *e)
{
    static char out[4096];
    char *text;
    *e = (mt_err){0};
    if (mt_script_render(s, "t.sbatch", template, &text, e) != MT_OK) return NULL;
    snprintf(out, sizeof out, "%s", text);
    free(text);
    return out;
}

TEST(lines_are_replaced_or_added)
{
    mt_err e;
    struct mt_script s = {.nodes = "8", .exclude = "n1", .value.moetitan = "/bin/m"};
    CHECK_STR(rendered(&s,
                       "#!/bin/sh\n#SBATCH --nodes=1\n#SBATCH --nodesx=2\n#SBATCH --nodes=3\n\n#SBATCH "
                       "--time=1\n" VALUES,
                       &e),
              "#!/bin/sh\n#SBATCH --nodes=8\n#SBATCH --nodesx=2\n#SBATCH --exclude=n1\n\n#SBATCH --time=1\n"
              "moetitan=/bin/m\nargs=(a)\n# ---- end of values\nmoetitan=stays\n");
    CHECK_STR(rendered(&(struct mt_script){0}, "#!/bin/sh\n" VALUES, &e), "#!/bin/sh\n" VALUES);
    CHECK_STR(rendered(&(struct mt_script){.account = "a b"}, "#!/bin/sh\n# ---- end of values", &e),
              "#!/bin/sh\n# ---- end of values\n#SBATCH --account=\"a b\"\n");
}
TEST(what_is_no_template)
{
    mt_err e;
    CHECK(!rendered(&(struct mt_script){0}, "echo\n", &e) && e.code == MT_CONFIG && strstr(e.msg, "#!"));
    CHECK(!rendered(&(struct mt_script){0}, "#!/bin/sh\n", &e) && strstr(e.msg, "end of values"));
    CHECK(!rendered(&(struct mt_script){.value.chain = "self"}, "#!/bin/sh\n" VALUES, &e) &&
          strstr(e.msg, "chain=..."));
}
TEST(words_of_shell)
{
    static const char *const words[] = {"plain/a-b_c.d", "",  "two words", "it's",    "$x `y` \"z\" \\",
                                        "a\nb",          "*", "~",         "k=[1, 2]"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct mt_spawned x;
        mt_err e = {0};
        char *text;
        size_t bytes;
        FILE *f = open_memstream(&text, &bytes);
        fputs("printf '%s.' ", f);
        mt_script_quote(f, words[i]);
        fclose(f);
        CHECK_INT(mt_spawn(&x, (const char *const[]){"sh", "-s", NULL}, text, &e), MT_OK);
        if (CHECK_INT(strlen(x.out), strlen(words[i]) + 1))
            CHECK(!strncmp(x.out, words[i], strlen(words[i])));
        free(text);
    }
}

TEST(another_program)
{
    struct mt_spawned x;
    mt_err e = {0};
    CHECK_INT(mt_spawn(&x, (const char *const[]){"sh", "-c", "cat; echo no >&2; exit 3", NULL}, "in\n", &e),
              MT_OK);
    CHECK_INT(x.code, 3);
    CHECK_STR(x.out, "in");
    CHECK_STR(x.err, "no");
    CHECK_INT(mt_spawn(&x, (const char *const[]){"sh", "-c", "kill -9 $$", NULL}, NULL, &e), MT_OK);
    CHECK_INT(x.code, 128 + 9);
    CHECK_INT(mt_spawn(&x, (const char *const[]){"seq", "100000", NULL}, NULL, &e),
              MT_OK); /* more than is kept */
    CHECK_INT(strlen(x.out), MT_SPAWN_TEXT - 1);
}
TEST(no_such_program)
{
    struct mt_spawned x;
    mt_err e = {0};
    CHECK_INT(mt_spawn(&x, (const char *const[]){"/nowhere/at-all", NULL}, NULL, &e), MT_IO);
    CHECK(strstr(e.msg, "cannot run /nowhere/at-all"));
}

TEST(sites)
{
    static struct mt_site s;
    mt_err e = {0};
    bool known;
    char time[32];
    if (!CHECK_INT(mt_site_load(&s, "slurm/sites/jupiter.yaml", &e), MT_OK)) printf("  %s\n", e.msg);
    CHECK_STR(s.name, "JUPITER Booster");
    CHECK_INT(s.cpus_per_task, 72);
    CHECK_INT(s.chain, MT_CHAIN_SELF);
    CHECK_CLOSE(s.notice, 600, 0);
    CHECK_INT(mt_site_flag(&s, "--cpus-per-task", "36", &known, &e), MT_OK);
    CHECK(known && s.cpus_per_task == 36);
    CHECK_INT(mt_site_flag(&s, "--dry-run", NULL, &known, &e), MT_OK);
    CHECK(!known);
    CHECK_INT(mt_site_flag(&s, "--chain", "sometimes", &known, &e), MT_CONFIG);
    CHECK(known && strstr(e.msg, "--chain"));
    e = (mt_err){0};
    CHECK_INT(mt_site_flag(&s, "--nodes", NULL, &known, &e), MT_CONFIG);
    e = (mt_err){0};
    CHECK_INT(mt_site_time("90m", time, &e), MT_OK);
    CHECK_STR(time, "01:30:00");
    CHECK_INT(mt_site_time("36h", time, &e), MT_OK);
    CHECK_STR(time, "36:00:00");
    CHECK_INT(mt_site_time("1-12:00", time, &e), MT_OK);
    CHECK_STR(time, "1-12:00");
    CHECK_INT(mt_site_time("soon", time, &e), MT_CONFIG);
}
TEST(damaged_sites)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"nodes: many\n", ":1:8: nodes"},
               {"- a\n", "map"},
               {"tasks_per_nodes: 4\n", "did you mean tasks_per_node"},
               {"tasks_per_node: 0\n", "tasks_per_node"},
               {"time: {a: 1}\n", "a map"},
               {"chain:\n", "chain must be"}};
    static struct mt_site s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mt_err e = {0};
        put_file(in_folder("bad.yaml"), bad[i].text, (int64_t)strlen(bad[i].text));
        CHECK_INT(mt_site_load(&s, in_folder("bad.yaml"), &e), MT_CONFIG);
        if (!CHECK(strstr(e.msg, bad[i].says))) printf("  %s\n", e.msg);
    }
}

TEST(lists_of_nodes)
{
    char out[MT_CHAIN_NODES], run[256];
    mt_err e = {0};
    int made;
    snprintf(run, sizeof run, "%s", in_folder("a/b"));
    CHECK_INT(mt_chain_make(run, &made, &e), MT_OK);
    CHECK_INT(made, 3);
    CHECK_INT(mt_chain_exclude(run, "n1,n[2,4-5],n1", &e), MT_OK);
    CHECK_INT(mt_chain_exclude(run, "n7,n1", &e), MT_OK);
    CHECK_INT(mt_chain_excluded(run, NULL, "n9,n7", out, &e), MT_OK);
    CHECK_STR(out, "n9,n7,n1,n[2,4-5]");
    CHECK_INT(mt_chain_excluded(in_folder("none"), "", "", out, &e), MT_OK);
    CHECK_STR(out, "");
    mt_chain_unmake(run, made); /* there is a file in it */
    CHECK_INT(mt_chain_excluded(run, NULL, "", out, &e), MT_OK);
    CHECK_STR(out, "n1,n[2,4-5],n7");
}
TEST(what_was_made_is_unmade)
{
    char run[256];
    mt_err e = {0};
    int made;
    snprintf(run, sizeof run, "%s", in_folder("c/d"));
    CHECK_INT(mt_chain_make(run, &made, &e), MT_OK);
    mt_chain_unmake(run, made);
    CHECK(access(in_folder("c"), F_OK) != 0);
    CHECK(access(in_folder("."), F_OK) == 0);
}

TEST(a_chain)
{
    static struct mt_chain c;
    static const char *const ids[] = {"7", "8", "70", "7", "9"};
    char run[256];
    mt_err e = {0};
    int made;
    snprintf(run, sizeof run, "%s", in_folder("chain"));
    CHECK_INT(mt_chain_make(run, &made, &e), MT_OK);
    for (int i = 0; i < 5; i++) CHECK_INT(mt_chain_enter(run, ids[i], i == 0 || i == 4, &e), MT_OK);
    CHECK_INT(mt_chain_read(&c, run, &e), MT_OK);
    CHECK_INT(c.n, 1); /* 9 is a chain of its own */
    CHECK_INT(mt_chain_enter(run, "10", false, &e), MT_OK);
    CHECK_INT(mt_chain_read(&c, run, &e), MT_OK);
    CHECK_INT(mt_chain_find(&c, "10"), 1);
    CHECK_INT(mt_chain_find(&c, "7"), c.n);
    CHECK_INT(mt_chain_saved(run), -1);
}
TEST(steps_saved)
{
    static const char *const folders[] = {"steps", "steps/ckpt", "steps/ckpt/step-00000012",
                                          "steps/ckpt/step-00000100.aside", "steps/ckpt/step-x"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) mkdir(in_folder(folders[i]), 0700);
    CHECK_INT(mt_chain_saved(in_folder("steps")), 12);
}

int main(void)
{
    RUN(lines_are_replaced_or_added);
    RUN(what_is_no_template);
    RUN(words_of_shell);
    RUN(another_program);
    RUN(no_such_program);
    RUN(sites);
    RUN(damaged_sites);
    RUN(lists_of_nodes);
    RUN(what_was_made_is_unmade);
    RUN(a_chain);
    RUN(steps_saved);
    remove_temporary_folder();
    return DONE();
}
