/* strip.h: state in host memory, and the strips in which it passes through device memory (or the other way round).
 *
 * Of a bucket with a working copy the masters, the moments and the gradient accumulators each live in device or in host memory;
 * where the masters are the working copy (norms, biases, routers) everything stays on the device. The arithmetic of the
 * optimizer is done on one side, the device's or the host's; what lives on the other side comes over strip by strip, through the
 * lanes of a few slots (shard/slots.h), and what was changed goes back.
 *
 * A strip is some rows of one part of a tensor's matrix: as many as a lane's bound allows, at multiples of the rows at which the
 * working copy can be written, so that it is made from the strip while that is here. Where a tensor does not begin or end at such a
 * multiple, a strip's master holds rows of its neighbours in the matrix, too, which are packed and not changed. Every rank has as
 * many strips of a tensor as the one with the largest piece; those it lacks have no rows, and occupy their slot all the same, for
 * all ranks have one memory plan. */
#ifndef MT_SHARD_STRIP_H
#define MT_SHARD_STRIP_H
#include "shard/store.h"

struct mt_strip {
    int tensor;
    int64_t i;          /* of its part's */
    int64_t part;       /* expert, counted within the slot */
    int64_t row0, rows; /* of the matrix; rows 0: this rank has none */
    int64_t own0, own;  /* those of the tensor among them */
};
int64_t mt_strip_count(const struct mt_store *s, int tensor); /* the same on all ranks */
/* Strips of one part: part i of this rank's, or of its busiest peer's, begins with strip i times this. */
int64_t mt_strip_per_part(const struct mt_store *s, int tensor);
struct mt_strip mt_strip_at(const struct mt_store *s, int tensor, int64_t i);
/* Whether the strip, on this rank or another, holds rows of the tensor before (by -1) or behind (1) its own. */
bool mt_strip_shares(const struct mt_store *s, const struct mt_strip *p, int by);

/* Where the optimizer's arithmetic on the tensor is done. Dense Muon matrices that are cut over ranks are exchanged between
 * devices: theirs is always there. */
enum mt_arena mt_strip_side(const struct mt_store *s, int tensor);
/* Whether the bucket has state in host memory, or is worked on there. */
bool mt_bucket_offloads(const struct mt_store *s, int bucket);

/* The strip's own rows of a state, where it lives, [own, cols]; of the master all rows. */
mt_view mt_strip_home(const struct mt_store *s, const struct mt_strip *p, enum mt_state what, bool own);
/* Its rows of the working copy and of the fp8 form. The one that is not kept lies at the beginning of `lane`. */
mt_view mt_strip_work(const struct mt_store *s, const struct mt_strip *p, int32_t lane);
mt_view mt_strip_wire(const struct mt_store *s, const struct mt_strip *p, int32_t lane);

/* At the end of mt_store_layout: how tensors are cut into strips, and the slots' rows. */
void mt_strips_layout(struct mt_store *s, struct mt_ledger *g);
#endif
