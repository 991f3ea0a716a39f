/* publish.h: what the first process does around the writers: room, manifest, the folder's name, what is to be removed. */
#ifndef MT_CKPT_PUBLISH_H
#define MT_CKPT_PUBLISH_H
#include "ckpt/ckpt.h"
#include "ckpt/writers.h"

/* A folder is written under a name that no reader looks at. */
void mt_saving_folder(const char *run_dir, int64_t step, char path[MT_CKPT_PATH]);

struct mt_publishing {
    const char *run_dir;
    struct mt_ckpt_meta meta;
    int world;
    const int64_t *file_bytes; /* [world] of the rank's safetensors; 0: it has none */
    const char *config;        /* its text */
    int64_t config_bytes;
    int64_t metrics_bytes; /* of RUN/metrics.jsonl, the lines up to this step; 0: none */
};
/* Waits until the files of all ranks are written, by whatever processes, and makes a checkpoint of them: config.yaml, metrics.jsonl, the
 * manifest, and then the name. IO: turn (NULL: nobody gives it up) is over.
 * A checkpoint of the same step is replaced. Then what the new one makes void is set aside or removed, which if it fails is told
 * and no more. */
MT_MUST_USE mt_status mt_publish(const struct mt_publishing *p, const struct mt_turn *turn, mt_err *e);
/* The checksum of a rank's tensors, as its writer left it beside them. IO: it tells of another size. */
MT_MUST_USE mt_status mt_saving_told(const char *folder, int rank, int64_t bytes, uint64_t *xxh3, mt_err *e);
/* The text of config.yaml: malloc'ed, the caller's. */
MT_MUST_USE mt_status mt_saving_config(const mt_config *cfg, char **text, int64_t *bytes, mt_err *e);
/* IO: the file system has no room for so many bytes, or says that it is read-only. */
MT_MUST_USE mt_status mt_saving_room(const char *run_dir, int64_t bytes, mt_err *e);
/* Removes what saves left that did not end. */
MT_MUST_USE mt_status mt_saving_clean(const char *run_dir, mt_err *e);
#endif
