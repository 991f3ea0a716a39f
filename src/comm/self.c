#include "comm/comm.h"

mt_status mt_comm_open_self(struct mt_comm *c, struct mt_ctx *ctx, mt_err *e)
{
    return mt_comm_open_threads(c, &ctx, 1, e);
}
