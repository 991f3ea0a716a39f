#include "train/startup.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/binding.h"
#include "device/backend.h"
#include "train/metrics.h"
#include "train/say.h"

/* Since this process began, in hundredths of a second; 0 where the system does not tell. */
static double age(void)
{
    char text[1024];
    unsigned long long begun = 0;
    struct timespec t;
    FILE *f = fopen("/proc/self/stat", "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    if (!at ||
        sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &begun) != 1)
        return 0;
    clock_gettime(CLOCK_BOOTTIME, &t);
    double s = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec - (double)begun / (double)sysconf(_SC_CLK_TCK);
    return s > 0 ? s : 0;
}

struct build {
    char *out;
    size_t size;
};
/* The notes of the first object, which is the program. */
static int read_notes(struct dl_phdr_info *x, size_t size, void *p)
{
    struct build *b = p;
    (void)size;
    for (int i = 0; i < x->dlpi_phnum; i++) {
        if (x->dlpi_phdr[i].p_type != PT_NOTE) continue;
        const char *at = (const char *)(x->dlpi_addr + x->dlpi_phdr[i].p_vaddr),
                   *end = at + x->dlpi_phdr[i].p_memsz;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *n = (const void *)at;
            const unsigned char *id = (const void *)(at + sizeof *n + (n->n_namesz + 3u) / 4 * 4);
            bool is = n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && !memcmp(at + sizeof *n, "GNU", 4);
            for (size_t k = 0; is && k < n->n_descsz && 2 * k + 3 <= b->size; k++)
                snprintf(b->out + 2 * k, 3, "%02x", id[k]);
            at = (const char *)id + (n->n_descsz + 3u) / 4 * 4;
        }
    }
    return 1;
}
void mt_startup_build(char *out, size_t size)
{
    out[0] = 0;
    dl_iterate_phdr(read_notes, &(struct build){out, size});
}

static void add(struct mt_startup *x, const char *name, double s)
{
    if (x->n < MT_STARTUP_PHASES) x->phase[x->n++] = (struct mt_startup_phase){name, s};
}
void mt_startup_begin(struct mt_startup *x)
{
    *x = (struct mt_startup){.last = mt_now()};
    add(x, "launch", age());
}
void mt_startup_mark(struct mt_startup *x, const char *name)
{
    double now = mt_now();
    add(x, name, now - x->last);
    x->last = now;
}

/* Time and rank in one number, so that the largest says whose it is. */
enum { RANKS = 1 << 20 };
void mt_startup_say(const struct mt_startup *x, const struct mt_job *job)
{
    int64_t slowest[MT_STARTUP_PHASES], fastest[MT_STARTUP_PHASES];
    for (int i = 0; i < x->n; i++) {
        int64_t us = (int64_t)(1e6 * x->phase[i].s);
        slowest[i] = us * RANKS + job->me;
        fastest[i] = -us;
    }
    mt_job_most(job, slowest, x->n);
    mt_job_most(job, fastest, x->n);
    if (job->me != 0) return;
    mt_say("phases   ");
    for (int i = 0; i < x->n; i++) {
        double most = 1e-6 * (double)(slowest[i] / RANKS), least = -1e-6 * (double)fastest[i];
        mt_say("%s %s %.2f s", i ? "," : "", x->phase[i].name, most);
        if (most > 2 * least + 0.1)
            mt_say(" (rank %lld; the fastest %.2f)", (long long)(slowest[i] % RANKS), least);
    }
    mt_say("\n");
}

/* The bus id of the GPU that this process will use; "": none, or that cannot be told. */
static void own_gpu(const mt_config *c, char *bus, size_t size)
{
    const struct mt_backend_ops *b = mt_backend_find_cuda();
    char found[256];
    int gpu = -1;
    mt_err e = {0};
    bus[0] = 0;
    if (!b || c->device_type == MT_DEVICE_TYPE_CPU || !b->find(found, sizeof found)) return;
    if (mt_launch_gpu(b->probe->devices(), getenv, &gpu, &e) == MT_OK && gpu >= 0)
        b->probe->bus(gpu, bus, size);
}

mt_status mt_startup_binding(const struct mt_job *job, const mt_config *c, mt_err *e)
{
    enum { WORDS = sizeof(struct mt_binding) / sizeof(int64_t) };
    char bus[32], text[2048];
    if (job->n == 1) return MT_OK;
    int64_t *word = calloc((size_t)job->n, sizeof(struct mt_binding));
    mt_status st = word ? MT_OK : mt_err_set(e, MT_IO, "no memory for the bindings of %d processes", job->n);
    MT_TRY(mt_job_agree(job, st, e));
    struct mt_binding *all = (void *)word;
    own_gpu(c, bus, sizeof bus);
    mt_binding_here(&all[job->me], "/sys", bus);
    mt_job_sum(job, word, (int64_t)job->n * WORDS);
    int64_t *flaws = calloc((size_t)job->n, sizeof *flaws);
    st = flaws ? MT_OK : mt_err_set(e, MT_IO, "no memory for the bindings of %d processes", job->n);
    st = mt_job_agree(job, st, e);
    if (st == MT_OK) {
        flaws[job->me] = mt_binding_flaws(all, job->n, job->me);
        mt_job_sum(job, flaws, job->n);
        for (int i = 0; i < job->n; i++) all[i].flaws = flaws[i];
        if (job->me == 0 && mt_binding_text(all, job->n, NULL, -1, text, sizeof text))
            mt_say("binding   %s\n", text);
    }
    free(flaws);
    free(word);
    return st;
}
