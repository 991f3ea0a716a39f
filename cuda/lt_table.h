/* lt_table.h: cuBLASLt, found at run time, so that one program serves machines with and without it. */
#ifndef MT_CUDA_LT_TABLE_H
#define MT_CUDA_LT_TABLE_H
#include <cublasLt.h>

#include "base/status.h"

#define MT_LT_FUNCTIONS(X)                  \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtGetStatusString)              \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)

/* Members have the header's own types: a call that does not fit the library does not compile. */
struct mt_lt_table {
#define X(f) __typeof__(f) *f;
    MT_LT_FUNCTIONS(X)
#undef X
    void *library; /* NULL: it was in the process already */
};
/* DEVICE: the library, or a function of it, is not there. */
MT_MUST_USE mt_status mt_lt_table_open(struct mt_lt_table *t, mt_err *e);
void mt_lt_table_close(struct mt_lt_table *t);
#endif
