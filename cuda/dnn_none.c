/* In place of dnn_*.c where cuDNN's headers were not found. */
#include "dnn_attention.h"

mt_status mt_sdpa_open(struct mt_sdpa **sdpa, mt_err *e)
{
    *sdpa = NULL;
    MT_FAIL(e, MT_DEVICE, "this program was built without cuDNN's headers");
}
void mt_sdpa_close(struct mt_sdpa *sdpa)
{
    (void)sdpa;
}
int64_t mt_sdpa_rows(const struct mt_call *c)
{
    return mt_dim(c, 'N');
}
int mt_sdpa_version(const struct mt_sdpa *sdpa)
{
    (void)sdpa;
    return 0;
}
mt_status mt_sdpa_prepare(struct mt_sdpa *sdpa, const struct mt_call *c, size_t scratch_bytes, mt_err *e)
{
    (void)sdpa, (void)c, (void)scratch_bytes;
    MT_FAIL(e, MT_INTERNAL, "there is no cuDNN to prepare");
}
void mt_sdpa_forget(struct mt_sdpa *sdpa, const struct mt_call *c)
{
    (void)sdpa, (void)c;
}
mt_status mt_sdpa_run(struct mt_sdpa *sdpa, const struct mt_call *c, const struct mt_cuda_lane *q,
                      bool *taken, struct mt_call *own, mt_err *e)
{
    (void)sdpa, (void)c, (void)q, (void)own, (void)e;
    *taken = false;
    return MT_OK;
}
