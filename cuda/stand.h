/* stand.h: where a rank's streams stand, for whoever watches over them from another thread: notes of the last positions,
 * whose events say which of them are over. Kept where ranks meet between processes. */
#ifndef MT_CUDA_STAND_H
#define MT_CUDA_STAND_H
#include "device/cpu/exec_stand.h"

struct mt_cuda;
struct mt_cuda_stand;
/* IO: no memory. */
MT_MUST_USE mt_status mt_cuda_stand_open(struct mt_cuda_stand **stand, mt_err *e);
void mt_cuda_stand_close(struct mt_cuda_stand *stand); /* NULL is fine */

/* ---- by the thread that enqueues ---- */
/* A run begins, whose positions count from 1, and ends. */
void mt_cuda_stand_run(struct mt_cuda *d, bool begins);
/* Position s->seq is about to be enqueued: an operation, which what describes if it is a collective, or a wait for ev
 * (op MT_OP_wait). Waits until the position is over whose event it takes. DEVICE. */
MT_MUST_USE mt_status mt_cuda_stand_begin(struct mt_cuda *d, const struct mt_stream *s, int op, mt_event ev,
                                          const struct mt_collective *what, mt_err *e);
void mt_cuda_stand_end(struct mt_cuda *d, int stream, int64_t seq); /* it is enqueued */
/* Host code waits for a read, or goes on. */
void mt_cuda_stand_waits(struct mt_cuda *d, bool waits);

/* ---- by another ---- */
/* false: it cannot be told now. */
bool mt_cuda_stand(struct mt_cuda *d, struct mt_rank_stand *out);
/* The first collective on that group that stream s has not come out of; false: there is none. */
bool mt_cuda_stand_in(struct mt_cuda *d, int group, int s, struct mt_collective *what);
#endif
