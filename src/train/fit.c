#include "train/fit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/table.h"
#include "device/machine.h"
#include "train/usage.h"

static int ranks_here(const struct mt_session *s)
{
    return s->n_local * s->job.on_node;
}

int64_t mt_fit_outside(const struct mt_session *s)
{
    const struct mt_set cpus = mt_cpus_mine();
    int64_t workers = s->cfg->device_workers ? s->cfg->device_workers : mt_set_count(&cpus);
    return (int64_t)s->job.on_node * (MT_FIT_PROCESS_BYTES + workers * MT_SCRATCH_BYTES) +
           (int64_t)ranks_here(s) * MT_FIT_RANK_BYTES;
}

/* ---- text ---- */
static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* " device -12.3 MiB": by how much an arena's need changes. */
static void print_change(int arena, int64_t from, int64_t to, bool first, FILE *f)
{
    if (to < from)
        fprintf(f, "%s%s saves %" PRId64 " (%.2f MiB)", first ? "" : ", ", mt_arena_name(arena), from - to,
                mib(from - to));
    else
        fprintf(f, "%s%s takes %" PRId64 " (%.2f MiB) more", first ? "" : ", ", mt_arena_name(arena),
                to - from, mib(to - from));
}

static void print_alone(const struct mt_session *s, const struct mt_saving *x, FILE *f)
{
    char text[96];
    bool first = true;
    snprintf(text, sizeof text, "%s=%s", mt_options[x->option].key, x->value);
    fprintf(f, "  %-28s ", text);
    for (int a = 0; a < MT_N_ARENAS; a++) {
        if (x->peak[a] == s->plan.peak[a]) continue;
        print_change(a, s->plan.peak[a], x->peak[a], first, f);
        first = false;
    }
    fprintf(f, "; costs: %s\n", x->price);
}

/* Those that are enough, or those that are not. */
static int print_some(const struct mt_session *s, const struct mt_savings *v, bool enough, const char *title,
                      FILE *f)
{
    int n = 0;
    for (int i = 0; i < v->n; i++) {
        if ((v->alone[i].excess == 0) != enough) continue;
        if (!n++) fprintf(f, "%s", title);
        print_alone(s, &v->alone[i], f);
    }
    return n;
}

static void print_together(const struct mt_savings *v, FILE *f)
{
    if (!v->n_together) {
        fprintf(f, "No option that was tried lowers this: use more ranks, or a smaller model.\n");
        return;
    }
    fprintf(f, v->together_excess ? "The least that was found, with" : "Enough together:");
    for (int i = 0; i < v->n_together; i++)
        fprintf(f, " %s=%s", mt_options[v->together[i].option].key, v->together[i].value);
    fprintf(f, v->together_excess ? ", still takes" : ", which takes");
    for (int a = 0; a < MT_N_ARENAS; a++)
        fprintf(f, "%s %s %" PRId64, a ? "," : "", mt_arena_name(a), v->together_peak[a]);
    if (v->together_excess)
        fprintf(f, " on a rank: %" PRId64 " too many; use more ranks, or a smaller model",
                v->together_excess);
    fprintf(f, ".\n");
}

static void print_options(const struct mt_session *s, const struct mt_savings *v, FILE *f)
{
    int enough = print_some(s, v, true, "Each of these is enough (bytes, each planned):\n", f);
    print_some(s, v, false,
               enough ? "Not enough alone:\n" : "No option is enough alone (bytes, each planned):\n", f);
    if (!enough) print_together(v, f);
}

static mt_status print_table(const struct mt_session *s, FILE *f, mt_err *e)
{
    struct mt_usage u;
    mt_status st = mt_usage_find(&u, s, e);
    if (st == MT_OK) mt_usage_print(&u, 5, f);
    mt_usage_release(&u);
    return st;
}

/* first: what is needed and what there is. */
static mt_status refuse(const struct mt_session *s, const struct mt_room *room, const char *first, mt_err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    struct mt_savings *v = malloc(sizeof *v);
    FILE *f = open_memstream(&text, &bytes);
    mt_status st = f && v ? MT_OK : mt_err_set(e, MT_IO, "no memory to say what does not fit");
    if (st == MT_OK) {
        fprintf(f, "%s\n", first);
        mt_savings_find(v, s->cfg, s->target, s->world, s->first, s->inference, room, s->plan.peak);
        print_options(s, v, f);
        st = print_table(s, f, e);
    }
    bool ok = f && !fclose(f);
    if (ok && st == MT_OK) {
        if (bytes && text[bytes - 1] == '\n') text[bytes - 1] = 0;
        st = mt_err_set(e, MT_NOFIT, "%s", text);
    }
    free(text);
    free(v);
    return st;
}

/* ---- limits ---- */
static size_t over_limit(const struct mt_session *s, int a, int64_t limit, const char *option, char *out,
                         size_t size)
{
    int64_t peak = s->plan.peak[a];
    if (!limit || peak <= limit) return 0;
    return (size_t)snprintf(out, size,
                            "the run needs %" PRId64 " bytes in the %s arena and %s allows %" PRId64
                            ": %" PRId64 " too many. ",
                            peak, mt_arena_name(a), option, limit, peak - limit);
}

mt_status mt_fit_check_machine(const struct mt_session *s, int64_t machine_bytes, bool by_cgroup, mt_err *e)
{
    char first[512];
    int ranks = ranks_here(s);
    int64_t outside = mt_fit_outside(s),
            each = (s->device ? 0 : s->plan.peak[MT_DEVICE_ARENA]) + s->plan.peak[MT_HOST_ARENA];
    double need = (double)each * ranks + (double)outside, gib = 1 << 30;
    if (need <= (double)machine_bytes) return MT_OK;
    snprintf(
        first, sizeof first,
        "%d ranks on this machine need %.2f GiB (%d arenas of %.1f MiB and %.1f MiB besides) and %s %.2f "
        "GiB: %.2f too many. `moetitan plan CONFIG --ranks %d` looks at the run without taking its memory.",
        ranks, need / gib, ranks, mib(each), mib(outside),
        by_cgroup ? "the job or container may take" : "it has", (double)machine_bytes / gib,
        (need - (double)machine_bytes) / gib, s->world);
    int64_t both = (machine_bytes - outside) / ranks;
    const struct mt_room room = {.arena = {s->cfg->device_memory, s->cfg->host_memory},
                                 .both = both > 0 ? both : 1};
    return refuse(s, &room, first, e);
}

mt_status mt_fit_check(const struct mt_session *s, mt_err *e)
{
    char first[512] = "";
    const struct mt_room room = {.arena = {s->cfg->device_memory, s->cfg->host_memory}};
    size_t n =
        over_limit(s, MT_DEVICE_ARENA, room.arena[MT_DEVICE_ARENA], "device.memory", first, sizeof first);
    n += over_limit(s, MT_HOST_ARENA, room.arena[MT_HOST_ARENA], "host.memory", first + n, sizeof first - n);
    if (n) {
        first[n - 1] = 0; /* the space at its end */
        return refuse(s, &room, first, e);
    }
    struct mt_machine_memory m = mt_machine_memory("/proc/self", "/sys/fs/cgroup");
    return mt_fit_check_machine(s, m.bytes, m.by_cgroup, e);
}
