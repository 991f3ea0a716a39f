/* parts.h: what the ranks of this process write of a checkpoint: a file each, its pieces in the order in which the
 * optimizer will overwrite them. All of it but bytes and checksums is known before step 1, and nothing here is allocated
 * afterwards. */
#ifndef MT_CKPT_PARTS_H
#define MT_CKPT_PARTS_H
#include "ckpt/items.h"

enum { MT_PART_ALIGN = 4096 }; /* where a file's data begins, and the unit of direct writes */

struct mt_part {
    const char *data; /* in an arena */
    int64_t bytes;
    int64_t sum_at; /* in the file's sums: where the 16 digits of its checksum belong */
    int64_t when;   /* its place in the order of the update: ascending within a file */
};
struct mt_part_file {
    int rank;
    int64_t first, n;   /* its parts, in mt_parts.part */
    int64_t bytes;      /* of the whole file */
    char *head;         /* length and header, up to where the data begins; owned */
    int64_t head_bytes; /* a multiple of MT_PART_ALIGN */
    char *sums;         /* the text of rank-*.json, with zeros for checksums; owned */
    int64_t sums_bytes;
    int64_t sum_at; /* of the whole file's checksum */
};
struct mt_parts {
    const struct mt_ctx *reach; /* mt_ckpt_items.reach */
    struct mt_part *part;       /* owned: n of them, by file */
    struct mt_part_file *file;
    int64_t n, bytes; /* bytes: of all files */
    int n_files;      /* of ranks that have something to write */
};
/* when: by mt_ckpt_item.touch, place in the order of the update; NULL: the order of the items. The pieces must stay where they
 * are. */
MT_MUST_USE mt_status mt_parts_open(struct mt_parts *p, const struct mt_ckpt_items *items, int world,
                                    const int64_t *when, mt_err *e);
void mt_parts_close(struct mt_parts *p);
/* How many of all parts must have been read before what comes `when` in the update of a rank may be overwritten. */
int64_t mt_parts_before(const struct mt_parts *p, int rank, int64_t when);
#endif
