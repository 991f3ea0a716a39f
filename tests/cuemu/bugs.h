#ifndef BUGS_H
#define BUGS_H
#include <cuda_runtime_api.h>
enum {
    BUG_NONE,
    BUG_NONE_WARP,
    BUG_NONE_ASYNC,
    BUG_NONE_FENCE,
    BUG_NO_SYNC,
    BUG_NO_SECOND_SYNC,
    BUG_NO_SYNCWARP,
    BUG_DIVERGENT,
    BUG_EXITED,
    BUG_HALF_WARP,
    BUG_OOB_GLOBAL,
    BUG_OOB_STATIC,
    BUG_OOB_DYN,
    BUG_UNINIT,
    BUG_NO_WAIT,
    BUG_BLOCK_RACE,
    BUG_NO_FENCE,
    BUG_MISALIGNED,
    BUG_TOO_MUCH_SMEM,
    BUG_KERNELS
};
#ifdef __cplusplus
extern "C" {
#endif
cudaError_t bug_kernel(int which, float *x, float *aux, unsigned *count, int n, cudaStream_t s);
cudaError_t bug_scale(float *y, const float *x, float a, int n, cudaStream_t s);
#ifdef __cplusplus
}
#endif
#endif
