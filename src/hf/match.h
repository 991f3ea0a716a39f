/* match.h: where in a folder each tensor of a model lies. */
#ifndef MT_HF_MATCH_H
#define MT_HF_MATCH_H
#include <stdio.h>

#include "hf/family.h"
#include "hf/folder.h"

/* All of a tensor, or an expert's part of a fused one. */
struct mt_hf_source {
    int file; /* -1: zeros */
    enum mt_tensor_type type;
    int64_t at; /* of the first byte, in the file */
};
/* source: [t->n]. Marks entries used; tells of those that are ignored, and why, a line each. CKPT names a tensor that is missing, of
 * another shape or type, or that nothing here knows. */
MT_MUST_USE mt_status mt_hf_match(const struct mt_hf_folder *h, const struct mt_hf_tensors *t,
                                  const struct mt_shape *s, struct mt_hf_source *source, FILE *told,
                                  mt_err *e);
#endif
