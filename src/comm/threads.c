#include <stdlib.h>

#include "comm/comm.h"

mt_status mt_comm_open_threads(struct mt_comm *c, struct mt_ctx *const ctxs[], int n, mt_err *e)
{
    *c = (struct mt_comm){0};
    int *rank = calloc((size_t)n, sizeof *rank);
    MT_REQUIRE(rank, e, MT_IO, "opening the world of %d ranks: out of memory", n);
    for (int i = 0; i < n; i++) rank[i] = ctxs[i]->rank;
    mt_status st = mt_group_open(&c->group[MT_GROUP_WORLD], rank, n, e);
    free(rank);
    MT_TRY(st);
    c->n = 1;
    for (int i = 0; i < n; i++) ctxs[i]->group[MT_GROUP_WORLD] = c->group[MT_GROUP_WORLD];
    return MT_OK;
}

void mt_comm_close(struct mt_comm *c)
{
    for (int i = 0; i < c->n; i++) mt_group_close(c->group[i]);
    *c = (struct mt_comm){0};
}
