/* doctor.c: `moetitan doctor`: is this machine, or each node of this allocation, fit to train? `--calibrate FILE`: this machine as a
 * cluster file; with --cluster: that file, with what copies take here. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/cmd.h"
#include "cmd/doctor_verdict.h"
#include "launch/chain.h"
#include "launch/site.h"
#include "train/calibrate.h"

#define USAGE                                                                                                \
    "usage: moetitan doctor [CONFIG.yaml [key=value ...]] [--cluster NAME|FILE] [--tolerance X] [--quick]; " \
    "under srun or mpirun "                                                                                  \
    "for many nodes; moetitan doctor --calibrate FILE.yaml [--cluster NAME|FILE] [--quick]"

struct asked {
    const char *calibrate, *cluster;
    double tolerance;
    bool quick;
    char **args; /* CONFIG, key=value */
    int n_args;
};

static mt_status write_cluster(const struct mt_cluster *c, const char *what, FILE *f, const char *path,
                               mt_err *e)
{
    fprintf(f, "# %s, by `moetitan doctor --calibrate`: docs/plan.md.\n", what);
    mt_cluster_write(c, f);
    MT_REQUIRE(!fflush(f) && !ferror(f), e, MT_IO, "cannot write '%s': disk full?", path);
    return MT_OK;
}

/* Products by type and size, experts' by rows, attention by tokens. */
static void print_rates(const struct mt_calibration *k)
{
    printf("%-22s %5s %6s %6s %6s %9s %9s %8s\n", "operation", "batch", "m", "n", "k", "us", "GFLOP/s",
           "samples");
    for (int64_t i = 0; i < k->n; i++) {
        const struct mt_op_timing *s = &k->timing[i];
        enum mt_work_kind kind = mt_work_kind_of((enum mt_op)s->work.op);
        char name[64];
        if (kind != MT_WORK_GEMM && kind != MT_WORK_GROUPED && kind != MT_WORK_ATTENTION) continue;
        mt_work_name(&s->work, name, sizeof name);
        printf("%-22s %5lld %6lld %6lld %6lld %9.1f %9.1f %8lld\n", name, (long long)s->work.batch,
               (long long)s->work.m, (long long)s->work.n, (long long)s->work.k, 1e6 * s->seconds,
               s->seconds > 0 ? 1e-9 * s->work.flops / s->seconds : 0, (long long)s->n);
    }
}
static void print_summary(const struct mt_calibration *k, const char *path)
{
    printf("%lld samples, of which %lld pre-empted and dropped\n", (long long)k->taken,
           (long long)k->preempted);
    printf("copies, GB/s read and written: %.1f in 1 MiB, %.1f in 16 MiB, %.1f in 256 MiB\n",
           1e-9 * k->copy[0], 1e-9 * k->copy[1], 1e-9 * k->copy[2]);
    printf("the executor: %.2f us an operation\n", 1e6 * MT_OF(&k->cluster, launch_kernel));
    printf("%d operations by type: %s\n", k->cluster.n_ops, path);
}

static mt_status calibrate(const char *path, bool quick, mt_err *e)
{
    struct mt_calibration *k = calloc(1, sizeof *k);
    FILE *f = fopen(path, "w"); /* before minutes are spent */
    mt_status st = !k   ? mt_err_set(e, MT_IO, "no memory for a calibration")
                   : !f ? mt_err_set(e, MT_IO, "cannot write '%s': %s", path, strerror(errno))
                        : mt_calibrate(k, quick, e);
    if (st == MT_OK) st = write_cluster(&k->cluster, "One worker of this machine's cpu", f, path, e);
    if (st == MT_OK) {
        print_rates(k);
        print_summary(k, path);
    }
    if (f) fclose(f);
    if (k) mt_calibration_release(k);
    free(k);
    return st;
}

static mt_status load_cluster(const char *name, struct mt_cluster *c, mt_err *e)
{
    char path[MT_CONFIG_PATH], shared[128];
    if (strchr(name, '/') || strstr(name, ".yaml")) return mt_cluster_load(c, name, e);
    snprintf(shared, sizeof shared, "configs/clusters/%.60s.yaml", name);
    MT_REQUIRE(mt_site_shared(shared, path, sizeof path), e, MT_CONFIG, "no %s here or in the installation",
               shared);
    return mt_cluster_load(c, path, e);
}

/* ---- what copies to, from and between GPUs take, for a cluster file that says the rest ---- */
static void set_rate(struct mt_cluster *c, enum mt_cluster_key k, double rate, const char *source)
{
    const struct mt_cluster_row *row = &mt_cluster_rows[k];
    if (isnan(rate)) {
        printf("%-10s %8.1f GB/s, as it was: %s\n", row->key, 1e-9 * c->of[k].value, c->of[k].source);
        return;
    }
    c->of[k].value = fmin(fmax(rate, row->low), row->high);
    snprintf(c->of[k].source, sizeof c->of[k].source, "%s", source);
    printf("%-10s %8.1f GB/s, %s\n", row->key, 1e-9 * c->of[k].value, source);
}
static mt_status measure_copies(struct mt_cluster *c, const struct asked *a, mt_err *e)
{
    const struct mt_job job = mt_job_alone(1);
    char source[MT_CLUSTER_TEXT], date[16];
    time_t now = time(NULL);
    struct tm day;
    struct mt_rank_facts f;
    MT_TRY(load_cluster(a->cluster, c, e));
    MT_REQUIRE(!strcmp(c->target, "cuda"), e, MT_CONFIG,
               "doctor --calibrate with --cluster measures copies of GPUs, and %s is a cluster file for %s; "
               "without --cluster this machine's cpu is measured",
               a->cluster, c->target);
    mt_doctor_forget(&f);
    mt_doctor_copies(&f, 0, &job, a->quick);
    MT_REQUIRE(f.x[MT_FACT_works] == 1, e, MT_DEVICE,
               "doctor --calibrate with --cluster: no GPU to measure: %s", f.device);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    snprintf(source, sizeof source, "measured here, %s, %.120s%s", date, f.device,
             a->quick ? ", quickly" : "");
    set_rate(c, MT_CLUSTER_host_h2d, f.x[MT_FACT_h2d], source);
    set_rate(c, MT_CLUSTER_host_d2h, f.x[MT_FACT_d2h], source);
    set_rate(c, MT_CLUSTER_node_pair, f.x[MT_FACT_p2p], source);
    return MT_OK;
}
static mt_status calibrate_copies(const struct asked *a, mt_err *e)
{
    struct mt_cluster *c = calloc(1, sizeof *c);
    mt_status st = c ? measure_copies(c, a, e) : mt_err_set(e, MT_IO, "no memory for a cluster file");
    FILE *f = NULL;
    if (st == MT_OK) {
        f = fopen(a->calibrate, "w");
        st = f ? write_cluster(c, "A cluster file, with this machine's copies to, from and between GPUs", f,
                               a->calibrate, e)
               : mt_err_set(e, MT_IO, "cannot write '%s': %s", a->calibrate, strerror(errno));
    }
    if (f) fclose(f);
    free(c);
    return st;
}

/* All ranks' facts, on all ranks. */
static void gather(const struct mt_job *job, struct mt_rank_facts *all)
{
    for (int i = 0; i < job->n; i++) mt_job_broadcast(job, &all[i], sizeof all[i], i);
}

/* By the first rank: the table, the verdict, and the run's list of nodes to stay away from. */
static mt_status judge(const struct asked *a, const struct mt_rank_facts *all, int n,
                       const struct mt_cluster *c, const mt_config *cfg, mt_err *e)
{
    char bad[MT_CHAIN_NODES], kept[MT_CONFIG_PATH + 64] = "";
    int made, count = mt_doctor_verdict(all, n, c, a->tolerance, bad, sizeof bad);
    if (!count) {
        printf("all nodes are fit\n");
        return MT_OK;
    }
    if (cfg) {
        MT_TRY(mt_chain_make(cfg->run_dir, &made, e));
        MT_TRY(mt_chain_exclude(cfg->run_dir, bad, e));
        snprintf(kept, sizeof kept, "; noted in %s/jobs/exclude", cfg->run_dir);
    }
    fflush(stdout);
    MT_FAIL(e, MT_DEVICE, "not fit to train, for the reasons above: %s%s", bad, kept);
}

static mt_status read_files(const struct asked *a, struct mt_cluster *c, mt_config *cfg, mt_err *e)
{
    if (a->cluster) MT_TRY(load_cluster(a->cluster, c, e));
    return a->n_args ? mt_config_load(cfg, a->args[0], a->n_args - 1, a->args + 1, e) : MT_OK;
}

static mt_status examine(const struct asked *a, const struct mt_job *job, mt_err *e)
{
    struct mt_rank_facts *all = calloc((size_t)job->n, sizeof *all);
    struct mt_cluster *c = calloc(1, sizeof *c);
    mt_config *cfg = calloc(1, sizeof *cfg);
    mt_status st = all && c && cfg ? read_files(a, c, cfg, e)
                                   : mt_err_set(e, MT_IO, "no memory for %d ranks", job->n);
    st = mt_job_agree(job, st, e);
    if (st == MT_OK) st = mt_doctor_here(&all[job->me], job, a->quick, e);
    if (st == MT_OK && job->n > 1) {
        gather(job, all);
        st = mt_doctor_links(&all[job->me], all, job, a->quick, e);
    }
    if (st == MT_OK) {
        gather(job, all);
        st = job->me ? MT_OK : judge(a, all, job->n, a->cluster ? c : NULL, a->n_args ? cfg : NULL, e);
        st = mt_job_agree(job, st, e);
    }
    free(cfg);
    free(c);
    free(all);
    return st;
}

static mt_status read_arguments(int argc, char **argv, struct asked *a, mt_err *e)
{
    for (int i = 1; i < argc; i++) {
        char *end;
        bool has_value = i + 1 < argc;
        if (!strcmp(argv[i], "--quick")) {
            a->quick = true;
        } else if (!strcmp(argv[i], "--calibrate") && has_value) {
            a->calibrate = argv[++i];
        } else if (!strcmp(argv[i], "--cluster") && has_value) {
            a->cluster = argv[++i];
        } else if (!strcmp(argv[i], "--tolerance") && has_value) {
            a->tolerance = strtod(argv[++i], &end);
            MT_REQUIRE(end != argv[i] && !*end && a->tolerance >= 0 && a->tolerance <= 1, e, MT_CONFIG,
                       "--tolerance is a share from 0 to 1, not '%.40s'", argv[i]);
        } else if (!strcmp(argv[i], "--calibrate") || !strcmp(argv[i], "--cluster") ||
                   !strcmp(argv[i], "--tolerance")) {
            MT_FAIL(e, MT_CONFIG, "doctor: %s needs a value; " USAGE, argv[i]);
        } else if (strncmp(argv[i], "--", 2) != 0) {
            a->args[a->n_args++] = argv[i];
        } else {
            MT_FAIL(e, MT_CONFIG, "doctor: '%.40s' is not understood; " USAGE, argv[i]);
        }
    }
    return MT_OK;
}

static mt_status examine_job(const struct asked *a, mt_err *e)
{
    struct mt_launch launch;
    struct mt_job job;
    MT_TRY(mt_launch_find(&launch, getenv, e));
    MT_TRY(mt_job_open(&job, &launch, e));
    mt_status st = examine(a, &job, e);
    mt_job_close(&job, st, e);
    return st;
}

mt_status mt_cmd_doctor(int argc, char **argv, mt_err *e)
{
    struct asked *a = calloc(1, sizeof *a + (size_t)argc * sizeof *a->args);
    MT_REQUIRE(a, e, MT_IO, "no memory for the arguments");
    a->args = (char **)(a + 1);
    a->tolerance = 0.8;
    mt_status st = read_arguments(argc, argv, a, e);
    if (st == MT_OK)
        st = !a->calibrate ? examine_job(a, e)
             : a->cluster  ? calibrate_copies(a, e)
                           : calibrate(a->calibrate, a->quick, e);
    free(a);
    return st;
}
