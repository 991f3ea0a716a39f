/* documents.h: where documents begin, in the form in which cuDNN wants it. */
#ifndef MT_CUDA_DOCUMENTS_H
#define MT_CUDA_DOCUMENTS_H
#include <cuda_runtime_api.h>
#include <stdint.h>

enum { MT_DOCUMENT_LISTS = 9 };

/* In scratch memory. */
struct mt_documents {
    const int32_t *begin; /* n tokens: where the document of each begins */
    int64_t n, room, rows;
    int32_t *
        fit; /* 1: there are no more than `room`, none longer than `rows`; 0: all lengths are 0, also where a window
                         * begins inside a document */
    int32_t *length[2];                /* room each, equal */
    int32_t *first[MT_DOCUMENT_LISTS]; /* room + 1 each: times[i] for each token before the document */
    int32_t times[MT_DOCUMENT_LISTS];
    int lists;
};
#ifdef __cplusplus
extern "C" {
#endif
cudaError_t mt_cuda_documents(const struct mt_documents *d, cudaStream_t s);
#ifdef __cplusplus
}
#endif
#endif
