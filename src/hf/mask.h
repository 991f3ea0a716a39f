/* mask.h: the families' ids as bits, which the columns of family.def are sums of. */
#ifndef MT_HF_MASK_H
#define MT_HF_MASK_H
#include "hf/family.h"

enum mt_hf_mask {
#define FAMILY(id, model_type, class, kind) id = 1 << MT_HF_##id,
#include "hf/family.def"
    ALL = (1 << MT_HF_FAMILIES) - 1
};
#endif
