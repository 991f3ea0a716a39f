/* nccl_table.h: NCCL, found at run time, so that one program serves machines with and without it. */
#ifndef MT_CUDA_NCCL_TABLE_H
#define MT_CUDA_NCCL_TABLE_H
#include <nccl.h>

#include "base/status.h"

#define MT_NCCL_FUNCTIONS(X)  \
    X(ncclAllGather)          \
    X(ncclCommAbort)          \
    X(ncclCommDeregister)     \
    X(ncclCommDestroy)        \
    X(ncclCommFinalize)       \
    X(ncclCommGetAsyncError)  \
    X(ncclCommInitRankConfig) \
    X(ncclCommRegister)       \
    X(ncclCommSplit)          \
    X(ncclGetErrorString)     \
    X(ncclGetLastError)       \
    X(ncclGetUniqueId)        \
    X(ncclGetVersion)         \
    X(ncclGroupEnd)           \
    X(ncclGroupStart)         \
    X(ncclMemAlloc)           \
    X(ncclMemFree)            \
    X(ncclRecv)               \
    X(ncclSend)

/* The oldest that has all of them. */
enum { MT_NCCL_LEAST = NCCL_VERSION(2, 19, 1) };

/* Members have the header's own types: a call that does not fit the library does not compile. */
struct mt_nccl_table {
#define X(f) __typeof__(f) *f;
    MT_NCCL_FUNCTIONS(X)
#undef X
    void *library; /* NULL: it was in the process already */
    int version;   /* the library's, as NCCL_VERSION counts */
};
/* from: the file to open where the functions are not in the process; NULL: the system's. DEVICE: the library, or a function of it, is not
 * there, or it is of another major version than the headers, or older than MT_NCCL_LEAST. */
MT_MUST_USE mt_status mt_nccl_table_open(struct mt_nccl_table *t, const char *from, mt_err *e);
void mt_nccl_table_close(struct mt_nccl_table *t);
/* "2.28.9" */
enum { MT_NCCL_VERSION_TEXT = 32 };
void mt_nccl_version_text(int version, char text[MT_NCCL_VERSION_TEXT]);
#endif
