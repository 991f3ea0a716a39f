#include "device/backend.h"

/* Defined in cuda/, which the program is linked with or not. */
extern const struct mt_backend_ops mt_backend_cuda __attribute__((weak));

const struct mt_backend_ops *mt_backend_find_cuda(void)
{
    return &mt_backend_cuda;
}
