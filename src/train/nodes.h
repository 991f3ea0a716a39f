/* nodes.h: on which node each process of a job runs, for messages. */
#ifndef MT_TRAIN_NODES_H
#define MT_TRAIN_NODES_H
#include "comm/job.h"

enum { MT_NODE_NAME = 64 };
struct mt_nodes {
    char (*name)[MT_NODE_NAME]; /* of every process; owned */
    const struct mt_job *job;
};
/* All processes call it. IO: no memory. */
MT_MUST_USE mt_status mt_nodes_open(struct mt_nodes *x, const struct mt_job *job, mt_err *e);
void mt_nodes_close(struct mt_nodes *x);
/* Into nodes of `most` processes each, where the machine has more: "name.1" and so on. That of a process to `name`. */
enum { MT_NODE_PART = MT_NODE_NAME + 16 };
void mt_nodes_part(const struct mt_nodes *x, int process, int64_t most, char name[MT_NODE_PART]);
/* Of a rank, of any process. */
const char *mt_nodes_of(const struct mt_nodes *x, int rank);
#endif
