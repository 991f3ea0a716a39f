#include "cmd/doctor_here.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/backend.h"
#include "device/numa.h"
#include "launch/launch.h"
#include "launch/spawn.h"
#include "train/metrics.h"

/* A chain of additions, of which a core does one a cycle. */
static double clock_of_a_core(bool quick)
{
    double best = 0;
    for (int round = 0; round < (quick ? 3 : 10); round++) {
        uint64_t x = (uint64_t)round;
        enum { ADDS = 1 << 22 };
        double t0 = mt_now();
        for (int i = 0; i < ADDS; i++) {
            x += 3;
            __asm__ volatile("" : "+r"(x)); /* neither folded nor unrolled into one */
        }
        double rate = ADDS / (mt_now() - t0);
        if (rate > best) best = rate;
    }
    return best;
}

struct copier {
    pthread_t thread;
    char *from, *to;
    size_t bytes;
    int rounds;
};
static void *copy(void *p)
{
    struct copier *c = p;
    for (int i = 0; i < c->rounds; i++) {
        memcpy(c->to, c->from, c->bytes);
        __asm__ volatile("" : : "r"(c->to) : "memory");
    }
    return NULL;
}
static double copy_all(struct copier *c, int n)
{
    int started = 0;
    double t0 = mt_now();
    while (started < n && !pthread_create(&c[started].thread, NULL, copy, &c[started])) started++;
    for (int i = 0; i < started; i++) pthread_join(c[i].thread, NULL);
    double s = mt_now() - t0, bytes = 0;
    for (int i = 0; i < started; i++) bytes += 2.0 * (double)c[i].bytes * c[i].rounds;
    return bytes / s;
}
/* By as many threads as the rank has processors, on pages that they have touched, past all caches. */
static mt_status copy_rate(const struct mt_job *job, bool quick, int cores, double *rate, mt_err *e)
{
    enum { MOST = 128 };
    struct copier c[MOST];
    size_t all = (size_t)(quick ? 32 : 256) << 20;
    int n = cores < 1 ? 1 : cores > MOST ? MOST : cores;
    char *room = malloc(2 * all);
    MT_TRY(
        mt_job_agree(job, room ? MT_OK : mt_err_set(e, MT_IO, "no memory for a copy of %zu bytes", all), e));
    for (int i = 0; i < n; i++) {
        size_t part = all / (size_t)n;
        c[i] = (struct copier){
            .from = room + part * (size_t)i, .to = room + all + part * (size_t)i, .bytes = part, .rounds = 1};
        memset(c[i].from, i + 1, part);
        memset(c[i].to, 0, part);
    }
    copy_all(c, n);
    for (int i = 0; i < n; i++) c[i].rounds = quick ? 2 : 5;
    (void)mt_job_any(job, false); /* all ranks begin */
    *rate = copy_all(c, n);
    free(room);
    return MT_OK;
}

static double memory_free(void)
{
    char line[256];
    double kib = NAN;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %lf", &kib) != 1) continue;
    if (f) fclose(f);
    return 1024 * kib;
}

/* Entries of a list of visible ones, which ends at the first that is none. */
static int listed_gpus(const char *visible)
{
    int n = 0;
    for (; *visible && *visible != '-'; visible += *visible == ',') {
        n++;
        visible += strcspn(visible, ",");
    }
    return n;
}
/* Those whose file this process may open: a job's control group hides others of the node, and leaves their files. */
static int opened_gpus(void)
{
    enum { MOST = 64 };
    char path[32];
    int n = 0;
    for (int i = 0; i < MOST; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        n += fd >= 0;
        if (fd >= 0) close(fd);
    }
    return n;
}
static int smi_gpus(void)
{
    const char *const argv[] = {"nvidia-smi", "--list-gpus", NULL};
    struct mt_spawned x;
    mt_err e = {0};
    int n = 0;
    if (mt_spawn(&x, argv, NULL, &e) != MT_OK || x.code) return -1;
    for (const char *at = x.out; at && *at; at = strchr(at, '\n'), at += at ? 1 : 0)
        n += !strncmp(at, "GPU ", 4);
    return n;
}
/* By CUDA, which knows what is visible and can be used; where there is none, by what the launcher says, by nvidia-smi, by the
 * system's files. */
static int visible_gpus(const struct mt_backend_ops *cuda)
{
    char found[256];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (cuda && cuda->find(found, sizeof found)) return cuda->probe->devices();
    if (visible) return listed_gpus(visible);
    int n = smi_gpus();
    return n < 0 ? opened_gpus() : n;
}
/* The name that nvidia-smi knows the GPU by: an entry of the list of visible ones, or its number. */
static void gpu_name(int gpu, char out[static 64])
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    if (!at || !*at) {
        snprintf(out, 64, "--id=%d", gpu);
        return;
    }
    for (; gpu > 0 && strchr(at, ','); gpu--) at = strchr(at, ',') + 1;
    snprintf(out, 64, "--id=%.*s", (int)strcspn(at, ","), at);
}
static bool ask_gpu(const char *id, const char *query, char out[MT_SPAWN_TEXT])
{
    struct mt_spawned x;
    mt_err e = {0};
    char what[128];
    snprintf(what, sizeof what, "--query-gpu=%s", query);
    const char *const argv[] = {"nvidia-smi", id, what, "--format=csv,noheader,nounits", NULL};
    bool ok = mt_spawn(&x, argv, NULL, &e) == MT_OK && x.code == 0;
    if (ok) memcpy(out, x.out, sizeof x.out);
    return ok;
}
static void look_at_gpu(struct mt_rank_facts *f, int gpu)
{
    char id[64], text[MT_SPAWN_TEXT];
    double mib, mhz, ecc;
    if (gpu < 0) return;
    gpu_name(gpu, id);
    if (ask_gpu(id, "memory.total,clocks.max.sm,name", text) &&
        sscanf(text, "%lf, %lf, %63[^\n]", &mib, &mhz, f->gpu) == 3) {
        f->x[MT_FACT_gpu_memory] = mib * 1048576;
        f->x[MT_FACT_gpu_clock] = mhz * 1e6;
    }
    if (ask_gpu(id, "pci.bus_id", text)) sscanf(text, "%31s", f->bus);
    if (ask_gpu(id, "ecc.errors.uncorrected.volatile.total", text) && sscanf(text, "%lf", &ecc) == 1)
        f->x[MT_FACT_gpu_ecc] = ecc;
    if (ask_gpu(id, "clocks_throttle_reasons.hw_slowdown", text))
        f->x[MT_FACT_gpu_slowed] = !strncmp(text, "Active", 6);
}

void mt_doctor_forget(struct mt_rank_facts *f)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < MT_N_FACTS; i++) f->x[i] = NAN;
}

mt_status mt_doctor_here(struct mt_rank_facts *f, const struct mt_job *job, bool quick, mt_err *e)
{
    struct mt_set cpus = mt_cpus_mine();
    struct mt_numa numa;
    const struct mt_backend_ops *cuda = mt_backend_find_cuda();
    const int seen = visible_gpus(cuda);
    int gpu = -1;
    mt_doctor_forget(f);
    gethostname(f->node, sizeof f->node - 1);
    f->x[MT_FACT_cores] = mt_set_count(&cpus);
    mt_set_text(&cpus, f->cpus, sizeof f->cpus);
    mt_status st = mt_numa_read(&numa, "/sys/devices/system/node", &cpus, e);
    if (st == MT_OK) mt_set_text(&numa.local, f->numa, sizeof f->numa);
    f->x[MT_FACT_memory] = memory_free() / job->on_node;
    f->x[MT_FACT_gpus] = seen;
    if (st == MT_OK) st = mt_launch_gpu(seen, getenv, &gpu, e);
    MT_TRY(mt_job_agree(job, st, e));
    look_at_gpu(f, gpu);
    if (cuda && gpu >= 0 && gpu < cuda->probe->devices()) cuda->probe->bus(gpu, f->bus, sizeof f->bus);
    mt_binding_here(&f->binding, "/sys", f->bus);
    f->x[MT_FACT_clock] = clock_of_a_core(quick);
    MT_TRY(copy_rate(job, quick, mt_set_count(&cpus), &f->x[MT_FACT_copy], e));
    mt_doctor_copies(f, gpu, job, quick);
    return MT_OK;
}
