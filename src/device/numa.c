#include "device/numa.h"

#include <dirent.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int mt_set_count(const struct mt_set *s)
{
    int n = 0;
    for (int i = 0; i < MT_SET_WORDS; i++) n += __builtin_popcountll(s->word[i]);
    return n;
}

int mt_set_first(const struct mt_set *s)
{
    for (int i = 0; i < MT_SET_MOST; i++)
        if (mt_set_has(s, i)) return i;
    return -1;
}

long mt_set_parse(struct mt_set *s, const char *text)
{
    long n = 0;
    while (*text) {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (end == text) return -1;
        if (*end == '-') {
            text = end + 1;
            last = strtoul(text, &end, 10);
        }
        if (end == text || last < first || last > 1u << 20 || (*end && *end != ',')) return -1;
        n += (long)(last - first) + 1;
        for (unsigned long i = first; i <= last && i < MT_SET_MOST; i++) mt_set_add(s, (int)i);
        text = *end ? end + 1 : end;
    }
    return n;
}

void mt_set_text(const struct mt_set *s, char *out, size_t size)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < MT_SET_MOST && n < size; i++) {
        int last = i;
        if (!mt_set_has(s, i)) continue;
        while (mt_set_has(s, last + 1)) last++;
        n += (size_t)snprintf(out + n, size - n, last > i ? "%s%d-%d" : "%s%d", n ? "," : "", i, last);
        i = last;
    }
}

/* ---- the machine ---- */
struct mt_set mt_cpus_mine(void)
{
    struct mt_set s = {0};
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus)) return s;
    for (int i = 0; i < CPU_SETSIZE && i < MT_SET_MOST; i++)
        if (CPU_ISSET(i, &cpus)) mt_set_add(&s, i);
    return s;
}

/* The first line of a file of a node, without its end. False: there is no such file. */
static bool line_read(const char *root, int node, const char *name, char *line, int size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/node%d/%s", root, node, name);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    if (!fgets(line, size, f)) line[0] = 0;
    fclose(f);
    line[strcspn(line, "\n")] = 0;
    return true;
}

static int64_t node_bytes(const char *root, int node)
{
    char line[256];
    long long kib = 0;
    if (!line_read(root, node, "meminfo", line, sizeof line)) return 0;
    const char *at = strstr(line, "MemTotal:");
    return at && sscanf(at, "MemTotal: %lld kB", &kib) == 1 ? kib * 1024 : 0;
}

static mt_status node_read(struct mt_numa *m, const char *root, int node, const struct mt_set *cpus,
                           mt_err *e)
{
    char line[4096];
    struct mt_set its = {0};
    if (!line_read(root, node, "cpulist", line, sizeof line)) return MT_OK;
    long n = mt_set_parse(&its, line);
    MT_REQUIRE(n >= 0, e, MT_DEVICE,
               "reading %s/node%d/cpulist: \"%.40s\" is no list of processors; host.numa: off does without",
               root, node, line);
    mt_set_add(&m->all, node);
    if (n > 0) mt_set_add(&m->cpu, node);
    if (!mt_sets_meet(&its, cpus)) return MT_OK;
    mt_set_add(&m->local, node);
    m->local_bytes += node_bytes(root, node);
    return MT_OK;
}

mt_status mt_numa_read(struct mt_numa *m, const char *root, const struct mt_set *cpus, mt_err *e)
{
    *m = (struct mt_numa){0};
    DIR *d = opendir(root);
    if (!d) return MT_OK;
    mt_status st = MT_OK;
    for (const struct dirent *f; st == MT_OK && (f = readdir(d));) {
        char *end;
        if (strncmp(f->d_name, "node", 4) != 0) continue;
        long node = strtol(f->d_name + 4, &end, 10);
        if (end == f->d_name + 4 || *end || node < 0 || node >= MT_SET_MOST) continue;
        st = node_read(m, root, (int)node, cpus, e);
    }
    closedir(d);
    return st;
}

/* ---- the choice ---- */
static void choose_auto(const struct mt_numa *m, int64_t bytes, struct mt_numa_choice *c)
{
    bool fits = !m->local_bytes || bytes <= m->local_bytes;
    if (mt_set_count(&m->all) < 2 || !mt_set_count(&m->cpu)) return;
    c->nodes = mt_set_count(&m->local) && fits ? m->local : m->cpu;
    /* Interleaved pages go to any node when theirs is full: not where that could be a device's. */
    bool even = mt_set_count(&c->nodes) > 1 && mt_set_count(&m->cpu) == mt_set_count(&m->all);
    c->policy = even ? MT_NUMA_INTERLEAVE : MT_NUMA_BIND;
}

mt_status mt_numa_choose(const struct mt_numa *m, const char *setting, int64_t bytes,
                         struct mt_numa_choice *c, mt_err *e)
{
    char with[128];
    char *end;
    *c = (struct mt_numa_choice){.policy = MT_NUMA_LEAVE};
    if (!strcmp(setting, "off")) return MT_OK;
    if (!strcmp(setting, "auto")) {
        choose_auto(m, bytes, c);
        return MT_OK;
    }
    long node = strtol(setting, &end, 10);
    MT_REQUIRE(end != setting && !*end && node >= 0 && node < MT_SET_MOST, e, MT_CONFIG,
               "host.numa: \"%s\" is neither auto nor off nor the number of a node", setting);
    mt_set_text(&m->cpu, with, sizeof with);
    MT_REQUIRE(mt_set_has(&m->all, (int)node), e, MT_CONFIG,
               "host.numa: this machine has no node %ld; nodes with processors: %s", node,
               with[0] ? with : "none known");
    MT_REQUIRE(
        mt_set_has(&m->cpu, (int)node), e, MT_CONFIG,
        "host.numa: node %ld has no processors: it is a device's own memory; nodes with processors: %s", node,
        with);
    c->policy = MT_NUMA_BIND;
    c->required = true;
    mt_set_add(&c->nodes, (int)node);
    return MT_OK;
}

mt_status mt_numa_apply(const struct mt_numa_choice *c, void *at, size_t bytes, mt_err *e)
{
    unsigned long mask[MT_SET_MOST / (8 * sizeof(unsigned long))];
    char nodes[128];
    if (c->policy == MT_NUMA_LEAVE) return MT_OK;
    _Static_assert(sizeof mask == sizeof c->nodes.word, "the kernel reads the same words");
    memcpy(mask, c->nodes.word, sizeof mask);
    mt_set_text(&c->nodes, nodes, sizeof nodes);
    /* The kernel counts one bit less than it is told. */
    long rc = syscall(SYS_mbind, at, bytes, c->policy == MT_NUMA_BIND ? MPOL_BIND : MPOL_INTERLEAVE, mask,
                      (unsigned long)MT_SET_MOST + 1, 0u);
    MT_REQUIRE(!rc, e, MT_IO,
               "binding %zu bytes to memory node %s: %s; host.numa: off leaves it to the system", bytes,
               nodes, strerror(errno));
    return MT_OK;
}
