/* import.h: a Hugging Face folder as a checkpoint of step 0. */
#ifndef MT_HF_IMPORT_H
#define MT_HF_IMPORT_H
#include <stdio.h>

#include "ckpt/ckpt.h"

/* Writes the checkpoint `to`, which must not be there yet: weights and router biases, no moments, with a configuration whose model.*
 * options are those of config.json; the manifest last, everything fsynced. By several threads, with a few MiB each. Sources may be
 * F32, BF16 or F16, experts each by themselves or fused (gate_up_proj [E, 2F, D], down_proj [E, D, F]). What is ignored, and why,
 * is told to `told`, a line each, once nothing is left to refuse and before the tensors are written. After a failure nothing of
 * it is left. CKPT names the file, and the tensor: missing, of another shape or type, or unknown. CONFIG names the key of
 * config.json that cannot be expressed. mtp: with the modules that predict further tokens, as many as config.json says; CONFIG: it
 * says none. progress: see mt_ckpt_verify_told. */
MT_MUST_USE mt_status mt_hf_import(const char *from, const char *to, bool mtp, FILE *told,
                                   struct mt_progress *progress, mt_err *e);
#endif
