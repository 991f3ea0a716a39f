/* numa.h: on which memory nodes a process's host memory belongs.
 *
 * A node without processors is another device's memory that the system shows as its own: the HBM of a GPU on GH200. No
 * choice here ever includes one. */
#ifndef MT_DEVICE_NUMA_H
#define MT_DEVICE_NUMA_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A set of numbers below 1024: memory nodes (Linux has no more), processors. */
enum { MT_SET_MOST = 1024, MT_SET_WORDS = MT_SET_MOST / 64 };
struct mt_set {
    uint64_t word[MT_SET_WORDS];
};
static inline void mt_set_add(struct mt_set *s, int i)
{
    s->word[i / 64] |= (uint64_t)1 << i % 64;
}
static inline bool mt_set_has(const struct mt_set *s, int i)
{
    return i >= 0 && i < MT_SET_MOST && s->word[i / 64] >> i % 64 & 1;
}
int mt_set_count(const struct mt_set *s);
int mt_set_first(const struct mt_set *s); /* -1: empty */
static inline bool mt_sets_meet(const struct mt_set *a, const struct mt_set *b)
{
    uint64_t both = 0;
    for (int i = 0; i < MT_SET_WORDS; i++) both |= a->word[i] & b->word[i];
    return both != 0;
}
static inline bool mt_set_within(const struct mt_set *a, const struct mt_set *b)
{
    uint64_t beyond = 0;
    for (int i = 0; i < MT_SET_WORDS; i++) beyond |= a->word[i] & ~b->word[i];
    return beyond == 0;
}
/* Adds what a text like "0-3,8" has below MT_SET_MOST. How many numbers it has in all; -1: it is no list. */
long mt_set_parse(struct mt_set *s, const char *text);
/* "0-3,8" */
void mt_set_text(const struct mt_set *s, char *out, size_t size);

/* Processors that this process may run on. */
struct mt_set mt_cpus_mine(void);

struct mt_numa {
    struct mt_set all, cpu, local; /* all nodes, those with processors, those with this process's */
    int64_t local_bytes;           /* memory of the local ones; 0: not told */
};
/* The machine as `root` (/sys/devices/system/node) shows it, for a process that may run on `cpus`. Without that folder no
 * nodes: a system that does not tell them apart. DEVICE: a file there makes no sense. */
MT_MUST_USE mt_status mt_numa_read(struct mt_numa *m, const char *root, const struct mt_set *cpus, mt_err *e);

enum mt_numa_policy { MT_NUMA_LEAVE, MT_NUMA_BIND, MT_NUMA_INTERLEAVE };
struct mt_numa_choice {
    enum mt_numa_policy policy;
    struct mt_set nodes; /* of BIND and INTERLEAVE */
    bool required;       /* a node that was asked for by number: not to get it is an error */
};
/* setting: host.numa. "off": LEAVE. "auto": the nodes of this process's processors if `bytes` fit there, else any with
 * processors; nothing where there is one node only. A number: that node, CONFIG if it does not exist or has no
 * processors. */
MT_MUST_USE mt_status mt_numa_choose(const struct mt_numa *m, const char *setting, int64_t bytes,
                                     struct mt_numa_choice *choice, mt_err *e);
/* Pages of [at, at + bytes) that are not touched yet will come from the chosen nodes. IO: the system refuses. */
MT_MUST_USE mt_status mt_numa_apply(const struct mt_numa_choice *choice, void *at, size_t bytes, mt_err *e);
#endif
