/* mapping.h: the memory of one arena: pages of its own between pages that fault, huge ones where the system has them, on
 * chosen memory nodes, all touched when it is opened. */
#ifndef MT_DEVICE_MAPPING_H
#define MT_DEVICE_MAPPING_H
#include "device/numa.h"

enum mt_huge { MT_HUGE_AUTO, MT_HUGE_OFF, MT_HUGE_REQUIRE };

struct mt_mapping {
    char *base;   /* the arena; it ends where the page that faults begins, but for the alignment */
    char *usable; /* its pages */
    size_t usable_bytes;
    void *map; /* owned: with what faults before and behind */
    size_t map_bytes;
};
struct mt_mapping_options {
    enum mt_huge huge;
    size_t huge_bytes; /* of a huge page; 0: there are none */
    const struct mt_numa_choice *numa;
    int threads; /* that touch large ones */
};
/* Bytes of the system's transparent huge pages, from /sys/kernel/mm/transparent_hugepage (root); 0: it has none, or
 * never gives them. */
size_t mt_huge_page_bytes(const char *root);

/* Maps and touches. align: of the base, a power of two, at most a page. Huge pages and nodes are asked for; what came of
 * that is for mt_pages_find to see, but a node that is required and refused is an error: IO. NOFIT: there is not so
 * much memory. After a failure mt_mapping_close is still due. */
MT_MUST_USE mt_status mt_mapping_open(struct mt_mapping *m, int64_t bytes, int64_t align,
                                      const struct mt_mapping_options *o, mt_err *e);
void mt_mapping_close(struct mt_mapping *m);

/* What pages the system gave. */
struct mt_pages {
    int64_t bytes, huge;       /* that are present, and those in huge pages */
    int64_t want_huge;         /* bytes of whole huge pages that the mappings have room for */
    int64_t placed, elsewhere; /* bytes whose node is told, and of these outside the chosen nodes */
    struct mt_set nodes;       /* where any are */
};
/* Reads proc/smaps and proc/numa_maps (proc: /proc/self) for n mappings. Without numa_maps nothing is told of nodes. IO:
 * smaps cannot be read. */
MT_MUST_USE mt_status mt_pages_find(struct mt_pages *p, const struct mt_mapping *const m[], int n,
                                    const struct mt_mapping_options *o, const char *proc, mt_err *e);
#endif
