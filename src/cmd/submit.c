/* submit.c: `moetitan submit`: a run as a chain of jobs of a Slurm cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "launch/request.h"

#define USAGE                                                                                       \
    "usage: moetitan submit CONFIG.yaml [key=value ...] [--site NAME|FILE] [--nodes N] [--time T] " \
    "[--dry-run] ...; "                                                                             \
    "moetitan submit --help lists the flags"

enum { MOST_JOBS = 100 };
struct asked {
    struct mt_site site;
    char **args; /* CONFIG, key=value */
    int n_args;
    bool dry, help;
};

/* Flags win over the site's file wherever they stand, so the file is read first. */
static mt_status read_site(int argc, char **argv, struct mt_site *s, mt_err *e)
{
    const char *site = "generic";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--site") != 0) continue;
        MT_REQUIRE(i + 1 < argc, e, MT_CONFIG, "--site needs a name or a file; " USAGE);
        site = argv[i + 1];
    }
    return mt_site_load(s, site, e);
}

static mt_status read_arguments(int argc, char **argv, struct asked *a, mt_err *e)
{
    for (int i = 1; i < argc; i++) a->help = a->help || !strcmp(argv[i], "--help");
    if (a->help) return MT_OK;
    MT_TRY(read_site(argc, argv, &a->site, e));
    for (int i = 1; i < argc; i++) {
        bool known;
        char meant[96];
        if (!strcmp(argv[i], "--dry-run")) {
            a->dry = true;
        } else if (!strcmp(argv[i], "--site")) {
            i++;
        } else if (!strncmp(argv[i], "--", 2)) {
            MT_TRY(mt_site_flag(&a->site, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &known, e));
            MT_REQUIRE(known, e, MT_CONFIG, "submit: no flag '%.40s'%s " USAGE, argv[i],
                       mt_site_meant(argv[i], meant));
            i++;
        } else {
            a->args[a->n_args++] = argv[i];
        }
    }
    MT_REQUIRE(a->n_args > 0, e, MT_CONFIG, USAGE);
    return MT_OK;
}

static void print_help(void)
{
    printf(USAGE "\nFlags, which are also the keys of a site file (slurm/sites):\n");
    mt_site_usage(stdout);
}

static void print_jobs(const struct mt_request *q, char (*ids)[MT_SLURM_ID], int n)
{
    for (int i = 0; i < n; i++)
        printf("job %s%s%s: %s/jobs/%s.log\n", ids[i], i ? " after " : "", i ? ids[i - 1] : "", q->run,
               ids[i]);
    if (q->site->chain == MT_CHAIN_SELF) printf("each job of the chain queues the next one as it begins\n");
}

static mt_status submit(struct asked *a, const mt_config *cfg, mt_err *e)
{
    struct mt_request q = {.site = &a->site, .run = cfg->run_dir, .args = a->args, .n_args = a->n_args};
    char *text = NULL, ids[MOST_JOBS][MT_SLURM_ID];
    int n = 0;
    mt_status st = mt_request_render(&q, &text, e);
    if (st == MT_OK && a->dry)
        fputs(text, stdout);
    else if (st == MT_OK)
        st = mt_request_submit(&q, text, ids, MOST_JOBS, &n, e);
    if (st == MT_OK && !a->dry) print_jobs(&q, ids, n);
    free(text);
    return st;
}

mt_status mt_cmd_submit(int argc, char **argv, mt_err *e)
{
    char **words = mt_site_words(&argc, argv);
    struct asked *a = calloc(1, sizeof *a + (size_t)argc * sizeof *a->args);
    mt_config *cfg = calloc(1, sizeof *cfg);
    mt_status st = words && a && cfg ? MT_OK : mt_err_set(e, MT_IO, "no memory for a configuration");
    if (st == MT_OK) {
        a->args = (char **)(a + 1);
        st = read_arguments(argc, words, a, e);
    }
    if (st == MT_OK && a->help) {
        print_help();
    } else if (st == MT_OK) {
        const struct mt_site *s = &a->site;
        st = mt_config_load(cfg, a->args[0], a->n_args - 1, a->args + 1, e);
        if (st == MT_OK && !s->nodes)
            st = mt_err_set(e, MT_CONFIG,
                            "how many nodes? Say --nodes N, or nodes: N in %s: without, a job has one",
                            s->file);
        if (st == MT_OK) st = mt_config_check_world(cfg, s->nodes * s->tasks_per_node, e);
        if (st == MT_OK) st = submit(a, cfg, e);
    }
    free(cfg);
    free(a);
    free(words);
    return st;
}
