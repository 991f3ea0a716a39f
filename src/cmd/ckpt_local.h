/* ckpt_local.h: the nodes' folders in a folder of ckpt.local_dir. */
#ifndef MT_CMD_CKPT_LOCAL_H
#define MT_CMD_CKPT_LOCAL_H
#include "ckpt/ckpt.h"

struct mt_local_nodes {
    char (*path)[MT_CKPT_PATH]; /* owned; of each, in the place of a run's folder */
    int n;
};
/* dir: what ckpt.local_dir names, or the folder of one run in it. None is no failure. IO: it cannot be listed, or there is no memory;
 * mt_local_nodes_close is due even so. */
MT_MUST_USE mt_status mt_local_nodes_find(struct mt_local_nodes *x, const char *dir, mt_err *e);
void mt_local_nodes_close(struct mt_local_nodes *x);
#endif
