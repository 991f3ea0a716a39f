/* pages.c: which pages the system gave to mappings, by its own account. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/mapping.h"

struct finder {
    struct mt_pages *p;
    const struct mt_mapping *const *m;
    int n;
    const struct mt_mapping_options *o;
};

/* An area lies inside of one mapping or outside of all: what faults separates them. */
static bool ours(const struct finder *f, unsigned long long at)
{
    for (int i = 0; i < f->n; i++)
        if (at - (uintptr_t)f->m[i]->usable < f->m[i]->usable_bytes) return true;
    return false;
}

/* "7f00-7f10 rw-p ...", then a line a field: "AnonHugePages:    2048 kB". */
static void smaps_line(struct finder *f, const char *line, bool *inside)
{
    unsigned long long begin, end;
    long long kib;
    if (sscanf(line, "%llx-%llx ", &begin, &end) == 2)
        *inside = ours(f, begin);
    else if (!*inside)
        return;
    else if (sscanf(line, "Rss: %lld kB", &kib) == 1)
        f->p->bytes += kib * 1024;
    else if (sscanf(line, "AnonHugePages: %lld kB", &kib) == 1)
        f->p->huge += kib * 1024;
}

/* "7f00 bind:0 anon=3 N0=2 N4=1 kernelpagesize_kB=4": pages by node. */
static void numa_line(struct finder *f, char *line)
{
    long long pages[MT_SET_MOST] = {0}, kib = 0, n;
    int node;
    if (!ours(f, strtoull(line, NULL, 16))) return;
    char *rest = line;
    for (const char *word; (word = strtok_r(rest, " \n", &rest));) {
        if (sscanf(word, "N%d=%lld", &node, &n) == 2 && node >= 0 && node < MT_SET_MOST)
            pages[node] += n;
        else
            (void)sscanf(word, "kernelpagesize_kB=%lld", &kib);
    }
    for (int i = 0; i < MT_SET_MOST; i++) {
        if (!pages[i]) continue;
        mt_set_add(&f->p->nodes, i);
        f->p->placed += pages[i] * kib * 1024;
        if (f->o->numa->policy != MT_NUMA_LEAVE && !mt_set_has(&f->o->numa->nodes, i))
            f->p->elsewhere += pages[i] * kib * 1024;
    }
}

static void want(struct mt_pages *p, const struct mt_mapping *m, size_t huge)
{
    if (!huge) return;
    uintptr_t begin = ((uintptr_t)m->usable + huge - 1) / huge * huge,
              end = ((uintptr_t)m->usable + m->usable_bytes) / huge * huge;
    if (end > begin) p->want_huge += (int64_t)(end - begin);
}

mt_status mt_pages_find(struct mt_pages *p, const struct mt_mapping *const m[], int n,
                        const struct mt_mapping_options *o, const char *proc, mt_err *e)
{
    char path[512], *line = NULL;
    size_t room = 0;
    bool inside = false;
    struct finder f = {p, m, n, o};
    *p = (struct mt_pages){0};
    for (int i = 0; i < n; i++) want(p, m[i], o->huge_bytes);
    snprintf(path, sizeof path, "%s/smaps", proc);
    FILE *in = fopen(path, "r");
    MT_REQUIRE(in, e, MT_IO, "reading '%s' for the pages of the arenas: %s", path, strerror(errno));
    while (getline(&line, &room, in) > 0) smaps_line(&f, line, &inside);
    fclose(in);
    snprintf(path, sizeof path, "%s/numa_maps", proc);
    in = fopen(path, "r");
    while (in && getline(&line, &room, in) > 0) numa_line(&f, line);
    if (in) fclose(in);
    free(line);
    return MT_OK;
}
