/* family.h: which family of Hugging Face models a configuration belongs to, and the tensors of a model under both names. */
#ifndef MT_HF_FAMILY_H
#define MT_HF_FAMILY_H
#include "model/param.h"

enum mt_hf_family {
#define FAMILY(id, model_type, class, kind) MT_HF_##id,
#include "hf/family.def"
    MT_HF_FAMILIES
};
const char *mt_hf_type(enum mt_hf_family f);  /* "qwen3_moe" */
const char *mt_hf_class(enum mt_hf_family f); /* "Qwen3MoeForCausalLM" */
/* By config.json's model_type. CONFIG: it is none of these; the message says why, and which are. */
MT_MUST_USE mt_status mt_hf_family_named(const char *model_type, enum mt_hf_family *f, mt_err *e);
/* By a configuration. CONFIG names the option that the nearest family cannot express. */
MT_MUST_USE mt_status mt_hf_family_of(const mt_config *c, enum mt_hf_family *f, mt_err *e);
/* Whether it has names for modules that predict further tokens (model.mtp_depth). */
bool mt_hf_has_mtp(enum mt_hf_family f);
/* Sets what every model of the family has. */
void mt_hf_imply(enum mt_hf_family f, mt_config *c);

enum { MT_HF_NAME = 96 };
/* A tensor of a model, an expert's by itself. */
struct mt_hf_tensor {
    char ours[MT_HF_NAME];   /* as in our checkpoints */
    char theirs[MT_HF_NAME]; /* "": the family has no such tensor; ours is all zeros */
    char plain[MT_HF_NAME];  /* another name for it, of the table of parameters; "": none */
    int64_t rows, cols;      /* cols 0: a vector */
    int64_t
        their_rows; /* of theirs, which may hold more tensors of ours, or rows in another order (hf/rows.h) */
    int kind;       /* MT_P_*; MT_N_TENSOR_KINDS: a router's selection bias */
    int layer;      /* -1: embedding and head */
    int64_t expert;
};
struct mt_hf_tensors {
    struct mt_hf_tensor *x; /* owned: n of them, by layer */
    int64_t n;
};
MT_MUST_USE mt_status mt_hf_tensors_open(struct mt_hf_tensors *t, enum mt_hf_family f,
                                         const struct mt_shape *s, mt_err *e);
void mt_hf_tensors_close(struct mt_hf_tensors *t);
#endif
