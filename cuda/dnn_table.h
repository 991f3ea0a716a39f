/* dnn_table.h: the part of cuDNN that attention needs (the graph API), found at run time (library.h). */
#ifndef MT_CUDA_DNN_TABLE_H
#define MT_CUDA_DNN_TABLE_H
#include <cudnn_graph.h>

#include "base/status.h"

#define MT_DNN_FUNCTIONS(X)          \
    X(cudnnBackendCreateDescriptor)  \
    X(cudnnBackendDestroyDescriptor) \
    X(cudnnBackendExecute)           \
    X(cudnnBackendFinalize)          \
    X(cudnnBackendGetAttribute)      \
    X(cudnnBackendSetAttribute)      \
    X(cudnnCreate)                   \
    X(cudnnDestroy)                  \
    X(cudnnGetErrorString)           \
    X(cudnnGetLastErrorString)       \
    X(cudnnGetVersion)               \
    X(cudnnSetStream)

struct mt_dnn_table {
#define X(f) __typeof__(f) *f;
    MT_DNN_FUNCTIONS(X)
#undef X
    void *library; /* NULL: it was in the process already */
};
/* DEVICE: the library, or a function of it, is not there. */
MT_MUST_USE mt_status mt_dnn_table_open(struct mt_dnn_table *t, mt_err *e);
void mt_dnn_table_close(struct mt_dnn_table *t);
#endif
