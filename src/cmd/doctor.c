/* doctor.c: `moetitan doctor --calibrate FILE`: this machine as a cluster file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "train/calibrate.h"

#define USAGE "usage: moetitan doctor --calibrate FILE.yaml [--quick]"

static mt_status write_cluster(const struct mt_cluster *c, FILE *f, const char *path, mt_err *e)
{
    fprintf(f, "# One worker of this machine's cpu, by `moetitan doctor --calibrate`: docs/plan.md.\n");
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

mt_status mt_cmd_doctor(int argc, char **argv, mt_err *e)
{
    const char *path = NULL;
    bool quick = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            quick = true;
        else if (!strcmp(argv[i], "--calibrate") && i + 1 < argc)
            path = argv[++i];
        else
            MT_FAIL(e, MT_CONFIG, "doctor: '%.40s' is not understood; " USAGE, argv[i]);
    }
    MT_REQUIRE(path, e, MT_CONFIG, USAGE);
    struct mt_calibration *k = calloc(1, sizeof *k);
    FILE *f = fopen(path, "w"); /* before minutes are spent */
    mt_status st = !k   ? mt_err_set(e, MT_IO, "no memory for a calibration")
                   : !f ? mt_err_set(e, MT_IO, "cannot write '%s': %s", path, strerror(errno))
                        : mt_calibrate(k, quick, e);
    if (st == MT_OK) st = write_cluster(&k->cluster, f, path, e);
    if (st == MT_OK) {
        print_rates(k);
        print_summary(k, path);
    }
    if (f) fclose(f);
    if (k) mt_calibration_release(k);
    free(k);
    return st;
}
