/* tier.h: the fast tier: checkpoints on the nodes' own disks or in their memory.
 *
 * LOCAL/RUN/NODE/ckpt/step-00000500/, on every node, is a checkpoint's folder as in a run's, but of its files it has only those of the
 * ranks of this node and, of each of its processes, those of another's ranks, on another node: its ward, to which it is the buddy.
 * So the files of every rank are on two nodes. config.yaml and manifest.json, which lists the files of all ranks, are on every
 * node; there is no metrics.jsonl. */
#ifndef MT_CKPT_TIER_H
#define MT_CKPT_TIER_H
#include "ckpt/ckpt.h"
#include "ckpt/publish.h"
#include "comm/job.h"

enum { MT_TIER_NODE = 80, MT_TIER_ROOT = MT_CKPT_PATH - MT_CKPT_ROOM };

struct mt_tier_options {
    const char *dir, *run_dir; /* run_dir: of the first process */
    const char (*node)
        [MT_TIER_NODE]; /* the name of each process's node, all different; letters, digits, '-', '_', '.' */
    int64_t keep;
};
struct mt_tier {
    struct mt_job job;
    char root[MT_TIER_ROOT]; /* LOCAL/RUN/NODE, in the place of a run's folder */
    int64_t keep;            /* checkpoints that stay while the next is written */
    int nodes, *node;        /* node: by process, the first process there; owned */
    int to, from;            /* this process's buddy, and its ward; -1: there is one node */
    bool sends_first;        /* one of every circle of buddies at least does, and one does not */
    bool leads;              /* the first process of its node */
};
/* All processes. CONFIG: a node has more than half of them, or a path is too long. IO: the folder cannot be made. A failure leaves
 * what mt_tier_close releases. */
MT_MUST_USE mt_status mt_tier_open(struct mt_tier *t, const struct mt_tier_options *o,
                                   const struct mt_job *job, mt_err *e);
void mt_tier_close(struct mt_tier *t);

/* Bytes that a node holds at most, and what its file system has for them. */
struct mt_tier_room {
    int64_t own, wards; /* of one checkpoint: of ranks here, of others */
    int64_t need;       /* all that stay, and the one that is written */
    int64_t free;       /* free now or taken by what is there already */
};
/* file_bytes: [world]. All processes: NOFIT with the numbers if some node has not enough. */
MT_MUST_USE mt_status mt_tier_find_room(const struct mt_tier *t, const int64_t *file_bytes,
                                        struct mt_tier_room *room, mt_err *e);

/* What a rank's two files came to. */
struct mt_tier_file {
    int64_t bytes[2], xxh3[2]; /* rank-*.safetensors, rank-*.json; 0 bytes: it has none */
};
void mt_tier_path(const char *folder, int rank, int kind, char path[MT_CKPT_PATH + 80]);
/* Of a rank of this process, from what its writers have left in the folder. */
MT_MUST_USE mt_status mt_tier_told(const char *folder, int rank, int64_t bytes, struct mt_tier_file *f,
                                   mt_err *e);
/* By the first process of a node, when all files are there: what is missing, and the name. p: of the run. */
MT_MUST_USE mt_status mt_tier_publish(const struct mt_tier *t, const struct mt_publishing *p,
                                      const struct mt_tier_file *file, mt_err *e);
/* Likewise, when all nodes have it: what is older than those that stay, and what is later, of a history that the run has left. */
MT_MUST_USE mt_status mt_tier_prune(const struct mt_tier *t, int64_t step, mt_err *e);
/* Likewise: what is there of a step that was given up. */
MT_MUST_USE mt_status mt_tier_drop(const struct mt_tier *t, int64_t step, mt_err *e);
#endif
