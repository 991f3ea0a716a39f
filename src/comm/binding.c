#include "comm/binding.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/who.h"

/* As in the system's folders: lower case, a domain of four digits, of which nvidia-smi writes eight. */
static void bus_name(const char *bus, char *out, size_t size)
{
    if (strcspn(bus, ":") == 8 && !strncmp(bus, "0000", 4)) bus += 4;
    snprintf(out, size, "%s", bus);
    for (char *c = out; *c; c++) *c = (char)tolower((unsigned char)*c);
}

static void near_read(struct mt_binding *b, const char *sys)
{
    char path[512], line[4096] = "";
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/local_cpulist", sys, b->gpu);
    FILE *f = fopen(path, "r");
    if (f && !fgets(line, sizeof line, f)) line[0] = 0;
    if (f) fclose(f);
    line[strcspn(line, "\n")] = 0;
    if (mt_set_parse(&b->near, line) < 0) b->near = (struct mt_set){0};
}

void mt_binding_here(struct mt_binding *b, const char *sys, const char *bus)
{
    *b = (struct mt_binding){.cpus = mt_cpus_mine()};
    gethostname(b->node, sizeof b->node - 1);
    b->whole = mt_set_count(&b->cpus) >= sysconf(_SC_NPROCESSORS_ONLN);
    if (strchr(bus, '/')) return;
    bus_name(bus, b->gpu, sizeof b->gpu);
    if (b->gpu[0]) near_read(b, sys);
}

int64_t mt_binding_flaws(const struct mt_binding *all, int n, int me)
{
    const struct mt_binding *b = &all[me];
    bool alone = true, few = false, shared = false, same_gpu = false;
    for (int i = 0; i < n; i++) {
        few = few || mt_set_count(&all[i].cpus) > mt_set_count(&b->cpus);
        if (i == me || strcmp(all[i].node, b->node) != 0) continue;
        alone = false;
        shared = shared || (mt_sets_meet(&all[i].cpus, &b->cpus) && !(all[i].whole && b->whole));
        same_gpu = same_gpu || (b->gpu[0] && !strcmp(all[i].gpu, b->gpu));
    }
    /* A process that has a node for itself may use all of it. */
    bool told = mt_set_count(&b->near) > 0;
    bool far = told && (alone ? !mt_sets_meet(&b->cpus, &b->near) : !mt_set_within(&b->cpus, &b->near));
    return (int64_t)few << MT_BINDING_FEW | (int64_t)shared << MT_BINDING_SHARED |
           (int64_t)same_gpu << MT_BINDING_GPU | (int64_t)far << MT_BINDING_FAR;
}

static void example(const struct mt_binding *b, int rank, int flaw, char *out, size_t size)
{
    char cpus[160], near[160];
    mt_set_text(&b->cpus, cpus, sizeof cpus);
    mt_set_text(&b->near, near, sizeof near);
    int used = snprintf(out, size, "rank %d on %s: ", rank, b->node);
    if (used < 0 || (size_t)used >= size) return;
    if (flaw == MT_BINDING_GPU)
        snprintf(out + used, size - (size_t)used, "%s", b->gpu);
    else if (flaw == MT_BINDING_FAR)
        snprintf(out + used, size - (size_t)used, "%s, its GPU %s is beside %s", cpus, b->gpu, near);
    else
        snprintf(out + used, size - (size_t)used, "%s", cpus);
}

bool mt_binding_text(const struct mt_binding *all, int n, const char *node, int64_t kinds, char *out,
                     size_t size)
{
    static const struct {
        const char *says, *cure;
    } flaw[] = {
#define MT_BINDING_FLAW(name, says, cure) {says, cure},
#include "comm/binding.def"
    };
    size_t used = 0;
    out[0] = 0;
    for (int k = 0; k < MT_N_BINDING_FLAWS; k++) {
        struct mt_who who = mt_who_none();
        char first[512] = "";
        for (int i = 0; i < n; i++) {
            if (!(all[i].flaws & kinds & (int64_t)1 << k) || (node && strcmp(all[i].node, node) != 0))
                continue;
            if (!who.n) example(&all[i], i, k, first, sizeof first);
            mt_who_add(&who, i);
        }
        if (!who.n || used >= size) continue;
        used += (size_t)snprintf(out + used, size - used, "%srank%s %s %s (%s): %s", used ? "; " : "",
                                 who.n > 1 ? "s" : "", mt_who_text(&who), flaw[k].says, first, flaw[k].cure);
    }
    return used > 0;
}
