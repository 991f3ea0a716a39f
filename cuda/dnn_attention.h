/* dnn_attention.h: attention through cuDNN, for shapes that were prepared. One a process: its ranks take turns.
 *
 * cuDNN wants documents as offsets and lengths, in a number that the graph fixes: a kernel makes them of the op's `begin`. Where there
 * are more documents than there is room for, cuDNN is given empty ones and our own kernels, which always follow, do the work;
 * otherwise they do nothing. Only the device knows which, so that the host's order does not depend on data. */
#ifndef MT_CUDA_DNN_ATTENTION_H
#define MT_CUDA_DNN_ATTENTION_H
#include "kernels.h"

#include <stdbool.h>

#include "base/status.h"

struct mt_sdpa;
/* DEVICE: why there is no cuDNN. */
MT_MUST_USE mt_status mt_sdpa_open(struct mt_sdpa **sdpa, mt_err *e);
void mt_sdpa_close(struct mt_sdpa *sdpa);        /* NULL is fine; everything is over */
int mt_sdpa_version(const struct mt_sdpa *sdpa); /* 91900 */

/* Tokens of a sequence, by the call's pairs. */
int64_t mt_sdpa_rows(const struct mt_call *c);
/* Makes a plan for calls of this shape, layout and type (attention_fwd or attention_bwd; pointers do not matter), whose scratch
 * memory has scratch_bytes. DEVICE: why not, in few words. */
MT_MUST_USE mt_status mt_sdpa_prepare(struct mt_sdpa *sdpa, const struct mt_call *c, size_t scratch_bytes,
                                      mt_err *e);
/* Whether cuDNN would take such a call on a device that is described by JSON, and in how many bytes of scratch memory: without a GPU.
 * DEVICE: why not. */
MT_MUST_USE mt_status mt_sdpa_support(const struct mt_call *c, const char *device_json, int64_t *bytes,
                                      mt_err *e);
/* Takes it back: it did not do well. */
void mt_sdpa_forget(struct mt_sdpa *sdpa, const struct mt_call *c);
/* Enqueues the call if it was prepared; *taken: it was, and our own kernels are to follow with the call *own, in which they find
 * whether anything is left to do. Scratch memory holds what they look at. sdpa may be NULL. DEVICE. */
MT_MUST_USE mt_status mt_sdpa_run(struct mt_sdpa *sdpa, const struct mt_call *c, const struct mt_cuda_lane *q,
                                  bool *taken, struct mt_call *own, mt_err *e);
#endif
