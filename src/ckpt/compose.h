/* compose.h: the tensors of a new checkpoint, written by several threads from wherever they come. */
#ifndef MT_CKPT_COMPOSE_H
#define MT_CKPT_COMPOSE_H
#include "ckpt/manifest.h"
#include "ckpt/parts.h"

/* Where the bytes come from. A thread has a reader, and for each file that it writes seeks to its begin, reads all parts of it in
 * their order, and finishes: then what was read only in part may be verified. */
struct mt_compose_source {
    void *arg;
    mt_status (*open)(void *arg, void **reader, mt_err *e);
    mt_status (*seek)(void *reader, int rank, mt_err *e);
    mt_status (*read)(void *reader, void *to, int64_t bytes, mt_err *e); /* a multiple of 4 */
    mt_status (*finish)(void *reader, mt_err *e);
    void (*close)(void *reader); /* of an open that failed too */
};
/* A new folder, with those above it. Errors: those of mt_ckpt_vacant. */
MT_MUST_USE mt_status mt_compose_folder(const char *to, mt_err *e);
/* Writes rank-*.safetensors and rank-*.json of the parts, whose addresses are not looked at, to the folder, and adds them to the
 * manifest, which with everything else is the caller's to write. progress: see mt_ckpt_verify_told. */
MT_MUST_USE mt_status mt_compose(const char *to, struct mt_parts *parts, const struct mt_compose_source *from,
                                 struct mt_manifest *manifest, struct mt_progress *progress, mt_err *e);
#endif
