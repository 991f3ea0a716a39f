/* ckpt_diff.h: what differs between the tensors of two checkpoints. */
#ifndef MT_CMD_CKPT_DIFF_H
#define MT_CMD_CKPT_DIFF_H
#include "base/status.h"

/* Prints, by name, every tensor that one of them lacks, that has another shape, or that is not the same to the bit, with the
 * largest difference of an element and norm(a - b) / norm(a). What is compared is verified while it is read. CKPT if there is
 * any, or if one is damaged. */
MT_MUST_USE mt_status mt_ckpt_diff(const char *a, const char *b, mt_err *e);
#endif
