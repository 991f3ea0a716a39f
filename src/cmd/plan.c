#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/print.h"
#include "cmd/cmd.h"
#include "cmd/plan_effects.h"
#include "cmd/plan_html.h"
#include "cmd/plan_report.h"
#include "cmd/plan_search.h"
#include "cmd/report_read.h"

enum { MOST_RANKS = 1 << 20, MOST_OVERRIDES = 128 };
#define USAGE                                                                                           \
    "usage: moetitan plan CONFIG.yaml [key=value ...] [cluster.key=value ...] [--ranks N | --nodes N] " \
    "[--cluster "                                                                                       \
    "NAME|FILE] [--json FILE] [--html FILE] [--trace FILE] [--trace-rank R] [--documents "              \
    "full|MEAN[:SIGMA]|index] "                                                                         \
    "[--skew S | --experts RUN_DIR] [--seed N] [--collectives "                                         \
    "direct|ring|tree|hierarchical] [--price P] [--assumptions] [--rows] "                              \
    "[--search[=varied] | --fewest-nodes | --longest-sequence | --target TOKENS_PER_S] "                \
    "[--vary KEY=VALUE,VALUE...] [--budget PLANS] [--finalists N]"

struct arguments {
    const char *config, *cluster, *json, *html, *documents, *trace, *experts;
    int64_t ranks, nodes, trace_rank;
    double skew, price;
    uint64_t seed;
    enum mt_algorithm algorithm;
    bool assumptions, rows;
    char *option[MOST_OVERRIDES]; /* key=value */
    char *number[MOST_OVERRIDES]; /* cluster.key=value, from the key on */
    int n_options, n_numbers;
    struct mt_search_words search;
    int questions; /* inverse ones */
    const char *vary[MOST_OVERRIDES];
};

/* ---- the command line ---- */
static mt_status whole(const char *what, const char *text, int64_t least, int64_t most, int64_t *out,
                       mt_err *e)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    MT_REQUIRE(end != text && !*end && !errno && v >= least && v <= most, e, MT_CONFIG,
               "%s needs a whole number, %lld to %lld, not '%.40s'", what, (long long)least, (long long)most,
               text);
    *out = v;
    return MT_OK;
}
static mt_status real(const char *what, const char *text, double most, double *out, mt_err *e)
{
    char *end;
    double v = strtod(text, &end);
    MT_REQUIRE(end != text && !*end && v >= 0 && v <= most, e, MT_CONFIG,
               "%s needs a number, 0 to %g, not '%.40s'", what, most, text);
    *out = v;
    return MT_OK;
}

static mt_status algorithm(const char *text, enum mt_algorithm *out, mt_err *e)
{
    for (int i = 0; i < MT_N_ALGORITHMS; i++)
        if (!strcmp(text, mt_algorithm_name((enum mt_algorithm)i))) {
            *out = (enum mt_algorithm)i;
            return MT_OK;
        }
    MT_FAIL(e, MT_CONFIG, "--collectives: '%.40s' is none of direct, ring, tree, hierarchical", text);
}

/* An inverse question searches, too. */
static void ask(struct arguments *a, int what)
{
    if (what != MT_SEARCH_TABLE) a->questions++;
    if (what != MT_SEARCH_TABLE || !a->search.what) a->search.what = what;
}
/* The flags of a search. False: it is none of them. */
static bool of_search(struct arguments *a, const char *flag, const char *value, mt_status *st, mt_err *e)
{
    struct mt_search_words *w = &a->search;
    *st = MT_OK;
    if (!strcmp(flag, "--budget")) {
        *st = whole(flag, value, 1, 1 << 16, &w->budget, e);
    } else if (!strcmp(flag, "--finalists")) {
        *st = whole(flag, value, 1, 1 << 16, &w->finalists, e);
    } else if (!strcmp(flag, "--target")) {
        ask(a, MT_SEARCH_TARGET);
        *st = real(flag, value, 1e15, &w->target, e);
    } else if (!strcmp(flag, "--vary") && w->n_vary < MOST_OVERRIDES) {
        a->vary[w->n_vary++] = value;
    } else if (!strcmp(flag, "--search") && !strcmp(value, "varied")) {
        ask(a, MT_SEARCH_TABLE);
        w->varied = true;
    } else {
        return false;
    }
    return true;
}
/* Those without a value. */
static bool bare(struct arguments *a, const char *flag)
{
    static const struct {
        const char *flag;
        int what;
    } asks[] = {{"--search", MT_SEARCH_TABLE},
                {"--fewest-nodes", MT_SEARCH_FEWEST},
                {"--longest-sequence", MT_SEARCH_LONGEST}};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++)
        if (!strcmp(flag, asks[i].flag)) return ask(a, asks[i].what), true;
    return false;
}

/* A flag with a value. */
static mt_status valued(struct arguments *a, const char *flag, const char *value, mt_err *e)
{
    int64_t seed;
    mt_status st;
    if (of_search(a, flag, value, &st, e)) return st;
    if (!strcmp(flag, "--ranks")) return whole(flag, value, 1, MOST_RANKS, &a->ranks, e);
    if (!strcmp(flag, "--nodes")) return whole(flag, value, 1, MOST_RANKS, &a->nodes, e);
    if (!strcmp(flag, "--trace-rank")) return whole(flag, value, 0, MOST_RANKS, &a->trace_rank, e);
    if (!strcmp(flag, "--skew")) return real(flag, value, 4, &a->skew, e);
    if (!strcmp(flag, "--price")) return real(flag, value, 1e6, &a->price, e);
    if (!strcmp(flag, "--collectives")) return algorithm(value, &a->algorithm, e);
    if (!strcmp(flag, "--seed")) {
        MT_TRY(whole(flag, value, 0, INT64_C(1) << 32, &seed, e));
        a->seed = (uint64_t)seed;
        return MT_OK;
    }
    const char **text = !strcmp(flag, "--cluster")     ? &a->cluster
                        : !strcmp(flag, "--json")      ? &a->json
                        : !strcmp(flag, "--html")      ? &a->html
                        : !strcmp(flag, "--trace")     ? &a->trace
                        : !strcmp(flag, "--documents") ? &a->documents
                        : !strcmp(flag, "--experts")   ? &a->experts
                                                       : NULL;
    MT_REQUIRE(text, e, MT_CONFIG, "plan: no flag '%.40s'; " USAGE, flag);
    *text = value;
    return MT_OK;
}

static mt_status positional(struct arguments *a, char *text, mt_err *e)
{
    if (!a->config) {
        a->config = text;
        return MT_OK;
    }
    bool number = !strncmp(text, "cluster.", 8);
    MT_REQUIRE((number ? a->n_numbers : a->n_options) < MOST_OVERRIDES, e, MT_CONFIG,
               "more than %d options on the command line", MOST_OVERRIDES);
    if (number)
        a->number[a->n_numbers++] = text + 8;
    else
        a->option[a->n_options++] = text;
    return MT_OK;
}

static mt_status read_arguments(int argc, char **argv, struct arguments *a, mt_err *e)
{
    char flag[32];
    *a = (struct arguments){.cluster = "jupiter", .documents = "full", .seed = 1};
    a->search = (struct mt_search_words){.budget = 100, .finalists = 5, .vary = a->vary};
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (strncmp(argv[i], "--", 2) != 0) {
            MT_TRY(positional(a, argv[i], e));
        } else if (!strcmp(argv[i], "--assumptions")) {
            a->assumptions = true;
        } else if (!strcmp(argv[i], "--rows")) {
            a->rows = true;
        } else if (bare(a, argv[i])) {
            continue;
        } else if (equals) {
            snprintf(flag, sizeof flag, "%.*s", (int)(equals - argv[i]), argv[i]);
            MT_TRY(valued(a, flag, equals + 1, e));
        } else {
            MT_REQUIRE(i + 1 < argc, e, MT_CONFIG, "plan: %.40s needs a value; " USAGE, argv[i]);
            MT_TRY(valued(a, argv[i], argv[i + 1], e));
            i++;
        }
    }
    MT_REQUIRE(a->config, e, MT_CONFIG, USAGE);
    MT_REQUIRE(!a->ranks || !a->nodes, e, MT_CONFIG, "plan: give --ranks or --nodes, not both");
    MT_REQUIRE(!a->experts || !(a->skew > 0), e, MT_CONFIG, "plan: give --skew or --experts, not both");
    MT_REQUIRE(a->questions <= 1, e, MT_CONFIG,
               "plan: give one of --fewest-nodes, --longest-sequence, --target");
    MT_REQUIRE(a->search.what || !a->search.n_vary, e, MT_CONFIG,
               "plan: --vary goes with --search or an inverse question");
    return MT_OK;
}

/* ---- what is asked ---- */
static mt_status load_cluster(const struct arguments *a, struct mt_cluster *c, mt_err *e)
{
    char path[1024];
    MT_TRY(mt_cluster_load(c, mt_cluster_path(a->cluster, a->config, path, sizeof path), e));
    for (int i = 0; i < a->n_numbers; i++) MT_TRY(mt_cluster_override(c, a->number[i], e));
    return MT_OK;
}

static mt_status documents(const char *text, struct mt_forecast_options *o, mt_err *e)
{
    char *end;
    if (!strcmp(text, "full") || !strcmp(text, "index")) {
        o->documents = *text == 'f' ? MT_DOCUMENTS_FULL : MT_DOCUMENTS_INDEX;
        return MT_OK;
    }
    o->documents = MT_DOCUMENTS_LOGNORMAL;
    o->mean = strtod(text, &end);
    o->sigma = 1;
    if (end != text && *end == ':') o->sigma = strtod(end + 1, &end);
    MT_REQUIRE(end != text && !*end && o->mean >= 1 && o->mean <= 1e12 && o->sigma >= 0 && o->sigma <= 8, e,
               MT_CONFIG,
               "--documents: full, index, or the mean length of documents, as 4000 or 4000:1.2 with the "
               "sigma of its "
               "logarithm, not '%.40s'",
               text);
    return MT_OK;
}

/* The ranks of one micro-batch a step, where nothing is said. */
static mt_status choose_ranks(const struct arguments *a, mt_config *cfg, const struct mt_cluster *c,
                              int *world, mt_err *e)
{
    int64_t per = (int64_t)MT_OF(c, topology_ranks_per_node), n = a->ranks;
    if (a->nodes) n = a->nodes * per;
    if (!n) n = cfg->train_global_batch / cfg->train_micro_batch;
    MT_REQUIRE(n >= 1 && n <= MOST_RANKS, e, MT_CONFIG, "plan: 1 to %d ranks, not %lld", MOST_RANKS,
               (long long)n);
    cfg->mesh_ranks_per_node = per; /* here the cluster is the launcher that tells */
    *world = (int)n;
    return MT_OK;
}

/* ---- --experts ---- */
/* What every expert got over the mean, by the last line of the run's experts.jsonl. shares: the caller's. */
static mt_status measured(const char *dir, const mt_config *cfg, double **shares, mt_err *e)
{
    struct mt_report_run *run = calloc(1, sizeof *run);
    int64_t blocks = cfg->model_layers + cfg->model_mtp_depth - cfg->model_first_dense,
            E = cfg->model_experts;
    mt_status st = run ? mt_report_read(run, dir, e) : mt_err_set(e, MT_IO, "no memory to read '%s'", dir);
    if (st == MT_OK && (!run->n_experts || run->width != E || run->layers != blocks))
        st = mt_err_set(e, MT_CONFIG,
                        "--experts '%s': its experts.jsonl has %d experts in %d blocks, and this model has "
                        "%lld in %lld: name a run "
                        "of the same (with run.expert_interval)",
                        dir, run->width, run->layers, (long long)E, (long long)blocks);
    for (int64_t i = 0; st == MT_OK && i < blocks * E; i++)
        if (!(run->experts[run->n_experts - 1].share[i] >= 0))
            st = mt_err_set(
                e, MT_CONFIG,
                "--experts '%s': no expert of block %lld got a row in the last line of its experts.jsonl",
                dir, (long long)(cfg->model_first_dense + i / E));
    if (st == MT_OK) {
        *shares = run->experts[run->n_experts - 1].share;
        run->experts[run->n_experts - 1].share = NULL;
    }
    if (run) mt_report_release(run);
    free(run);
    return st;
}

/* ---- --trace ---- */
static mt_status trace(const struct arguments *a, const struct mt_plan_request *ask, struct mt_forecast *f,
                       bool show, mt_err *e)
{
    struct mt_timeline_sum sum;
    int rank = (int)a->trace_rank;
    MT_REQUIRE(rank < f->o.world, e, MT_CONFIG, "--trace-rank %d: the job has %d ranks", rank, f->o.world);
    MT_TRY(mt_forecast_trace(f, &ask->cluster, ask->algorithm, rank, a->trace, &sum, e));
    if (!show) return MT_OK;
    printf("trace     %s: rank %d, for ui.perfetto.dev; its compute stream, s\n", a->trace, rank);
    for (int c = 0; c < MT_N_CAUSES; c++) {
        enum mt_cause cause = (enum mt_cause)c;
        if (sum.spent[c] + sum.busy[c] == 0) continue;
        printf("  %-20s %9.3f", mt_cause_text(cause), 1e-9 * (double)sum.spent[c]);
        if (mt_cause_exposed(cause))
            printf(" exposed, %.3f of it still; moving %.3f, %.1f%% of it hidden",
                   1e-9 * (double)sum.still[c], 1e-9 * (double)sum.busy[c],
                   100 * mt_timeline_hidden(&sum, cause));
        printf("\n");
    }
    return MT_OK;
}

/* ---- --html ---- */
static mt_status html(const struct arguments *a, const struct mt_plan_report *r, struct mt_forecast *f,
                      const struct mt_plan_effects *x, mt_err *e)
{
    struct mt_forecast_line l;
    int rank = (int)a->trace_rank;
    MT_REQUIRE(rank < f->o.world, e, MT_CONFIG, "--trace-rank %d: the job has %d ranks", rank, f->o.world);
    mt_status st = mt_forecast_line_open(&l, f, &r->ask->cluster, r->ask->algorithm, rank, e);
    if (st == MT_OK) st = mt_plan_html(r, x, &l.line, a->html, e);
    mt_forecast_line_close(&l);
    return st;
}

/* ---- the command ---- */
/* The report in all the forms that are asked for. */
static mt_status tell(const struct arguments *a, const struct mt_plan_report *r, struct mt_forecast *f,
                      mt_err *e)
{
    struct mt_plan_effects x = {.known = false};
    bool show = !a->json || strcmp(a->json, "-") != 0;
    if (show) mt_plan_report_print(r, stdout);
    if (a->rows && show) mt_plan_report_rows(r, stdout);
    if (a->assumptions && (show || a->html)) MT_TRY(mt_plan_effects_find(&x, r, e));
    if (x.known && show) mt_plan_effects_print(&x, r, stdout);
    if (a->json) MT_TRY(mt_print_json(mt_plan_report_object(r), true, a->json, e));
    if (a->html) MT_TRY(html(a, r, f, &x, e));
    if (a->trace) MT_TRY(trace(a, r->ask, f, show, e));
    return MT_OK;
}

/* The same job with every expert as busy as the others, where that is another one. */
static mt_status price_even(struct mt_plan_report *r, mt_err *e)
{
    struct mt_forecast f;
    struct mt_forecast_times t = {0};
    struct mt_forecast_options o = r->f->o;
    if (!*r->routing || !strcmp(r->routing, "balanced")) return MT_OK;
    o.skew = 0;
    o.shares = NULL;
    mt_status st = mt_forecast_open(&f, r->f->cfg, &r->ask->cluster, r->f->s.target, &o, e);
    if (st == MT_OK) st = mt_forecast_replay(&f, &r->ask->cluster, r->ask->algorithm, &t, e);
    if (st == MT_OK) mt_plan_report_even(r, t.step_s);
    mt_forecast_times_release(&t);
    mt_forecast_close(&f);
    return st;
}

static mt_status report(const struct arguments *a, const struct mt_plan_request *ask, struct mt_forecast *f,
                        double record_s, mt_err *e)
{
    struct mt_forecast_times t;
    struct mt_plan_report r;
    double began = mt_now();
    mt_status st = mt_forecast_replay(f, &ask->cluster, ask->algorithm, &t, e);
    double replay_s = mt_now() - began;
    if (st == MT_OK) st = mt_plan_report_init(&r, ask, f, &t, e);
    if (st == MT_OK) st = price_even(&r, e);
    if (st == MT_OK) {
        r.record_s = record_s;
        r.replay_s = replay_s;
        st = tell(a, &r, f, e);
        if (st == MT_OK && !r.fits)
            st = mt_err_set(e, MT_NOFIT, "the run does not fit the memory of %s", ask->cluster.name);
    }
    mt_forecast_times_release(&t);
    return st;
}

static mt_status search(const struct arguments *a, const mt_config *cfg, const struct mt_plan_request *ask,
                        const struct mt_target *target, const struct mt_forecast_options *o, mt_err *e)
{
    struct mt_search_words w = a->search;
    struct mt_search s = {
        .cfg = cfg, .cluster = &ask->cluster, .target = target, .forecast = *o, .algorithm = ask->algorithm};
    w.json = a->json;
    w.config = a->config;
    w.cluster = ask->cluster.name;
    return mt_plan_search(&w, &s, e);
}

/* shares: owned by the caller, whatever came of it. */
static mt_status plan(const struct arguments *a, mt_config *cfg, struct mt_plan_request *ask, double **shares,
                      mt_err *e)
{
    struct mt_forecast f;
    struct mt_forecast_options o = {.seed = a->seed, .skew = a->skew};
    const struct mt_target *target;
    *ask = (struct mt_plan_request){.config = a->config, .algorithm = a->algorithm, .price = a->price};
    MT_TRY(mt_config_load(cfg, a->config, a->n_options, a->option, e));
    MT_TRY(load_cluster(a, &ask->cluster, e));
    MT_TRY(mt_work_check(&ask->cluster, e));
    MT_TRY(documents(a->documents, &o, e));
    if (a->experts) MT_TRY(measured(a->experts, cfg, shares, e));
    o.shares = *shares;
    MT_TRY(mt_forecast_target(&ask->cluster, &target, e));
    MT_TRY(choose_ranks(a, cfg, &ask->cluster, &o.world, e));
    if (a->search.what) return search(a, cfg, ask, target, &o, e);
    double began = mt_now();
    mt_status st = mt_forecast_open(&f, cfg, &ask->cluster, target, &o, e);
    if (st == MT_OK) st = report(a, ask, &f, mt_now() - began, e);
    mt_forecast_close(&f);
    return st;
}

mt_status mt_cmd_plan(int argc, char **argv, mt_err *e)
{
    struct arguments a;
    double *shares = NULL;
    mt_config *cfg = calloc(1, sizeof *cfg);
    struct mt_plan_request *ask = calloc(1, sizeof *ask);
    mt_status st = cfg && ask ? MT_OK : mt_err_set(e, MT_IO, "no memory for a configuration");
    if (st == MT_OK) st = read_arguments(argc, argv, &a, e);
    if (st == MT_OK) st = plan(&a, cfg, ask, &shares, e);
    free(shares);
    free(cfg);
    free(ask);
    return st;
}
