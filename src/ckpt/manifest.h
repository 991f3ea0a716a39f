/* manifest.h: the last file of a checkpoint: what it holds, with sizes and checksums, and a checksum of
 * itself. */
#ifndef MT_CKPT_MANIFEST_H
#define MT_CKPT_MANIFEST_H
#include "ckpt/ckpt.h"

enum { MT_MANIFEST_FILES = 4096 * 2 + 8 };

struct mt_manifest_file {
    char name[64];
    int64_t bytes;
    uint64_t xxh3;
};
struct mt_manifest {
    struct mt_ckpt_meta meta;
    int version; /* of the format: 1, or 2 */
    int world;   /* ranks of the run that wrote it */
    int64_t n;
    struct mt_manifest_file *file; /* owned */
};
MT_MUST_USE mt_status mt_manifest_add(struct mt_manifest *m, const char *name, int64_t bytes, uint64_t xxh3,
                                      mt_err *e);
/* NULL: it lists no such file. */
const struct mt_manifest_file *mt_manifest_find(const struct mt_manifest *m, const char *name);
/* To FOLDER/manifest.json, through a temporary name; the folder is synced before and after. */
MT_MUST_USE mt_status mt_manifest_write(const struct mt_manifest *m, const char *folder, mt_err *e);
/* Of bytes in memory; name stands for them in messages. A failure leaves nothing to release. */
MT_MUST_USE mt_status mt_manifest_parse(struct mt_manifest *m, const char *name, const char *text,
                                        int64_t bytes, mt_err *e);
void mt_manifest_release(struct mt_manifest *m);
#endif
