/* tensorboard.h: event files that TensorBoard reads: records of a length, its checksum, a protocol buffer `Event`, its checksum. */
#ifndef MT_TRAIN_TENSORBOARD_H
#define MT_TRAIN_TENSORBOARD_H
#include "base/status.h"
#include "train/scalars.h"

struct mt_tensorboard {
    int fd; /* -1: not open */
    uint32_t crc[256];
};
/* Begins FOLDER/events.out.tfevents.SECONDS.HOST.PROCESS for a run that goes on after `step` steps: what older files there have of
 * later steps TensorBoard then leaves out. IO. */
MT_MUST_USE mt_status mt_tensorboard_open(struct mt_tensorboard *t, const char *folder, int64_t step,
                                          mt_err *e);
/* One event with the numbers that are there. What cannot be written is lost. Allocates nothing. */
void mt_tensorboard_write(const struct mt_tensorboard *t, const struct mt_scalars *s);
void mt_tensorboard_close(struct mt_tensorboard *t);
#endif
