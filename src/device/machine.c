#include "device/machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

/* The group of this process, "/slurm/job_7" of the line "0::/slurm/job_7"; "": there is none. */
static void group_find(const char *proc, char group[PATH])
{
    char path[PATH], line[PATH];
    snprintf(path, sizeof path, "%s/cgroup", proc);
    group[0] = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "0::/", 4)) snprintf(group, PATH, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
    if (f) fclose(f);
}

/* The limit in a file: a number of bytes; -1: "max", or no such file. */
static int64_t limit_read(const char *groups, const char *group)
{
    char path[2 * PATH];
    long long bytes = -1;
    snprintf(path, sizeof path, "%s%s/memory.max", groups, group);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    if (fscanf(f, "%lld", &bytes) != 1) bytes = -1;
    fclose(f);
    return bytes;
}

struct mt_machine_memory mt_machine_memory(const char *proc, const char *groups)
{
    char group[PATH];
    struct mt_machine_memory m = {(int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), false};
    group_find(proc, group);
    /* A group is held to its own limit and to those of the groups around it. */
    while (group[0]) {
        int64_t limit = limit_read(groups, group);
        if (limit >= 0 && limit < m.bytes) m = (struct mt_machine_memory){limit, true};
        *strrchr(group, '/') = 0;
    }
    return m;
}
