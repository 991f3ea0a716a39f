#include <stdlib.h>

#include "comm/comm.h"

/* All groups of this process's rank. The wires are made for every one even after a failure: the others wait
 * there. */
static mt_status open_wired(struct mt_comm *c, const struct mt_job *job, struct mt_ctx *ctx, int n_groups,
                            mt_comm_members *members, const void *arg, int *rank, mt_err *e)
{
    mt_status st = MT_OK;
    for (int id = 0; id < n_groups; id++) {
        int n = members(arg, id, ctx->rank, rank);
        struct mt_wire *wire;
        mt_err here = {0};
        mt_status its = job->ops->wire(job->impl, rank, n, &wire, &here);
        if (its == MT_OK) its = mt_group_open(&c->group[c->n], rank, n, &here);
        if (its == MT_OK) {
            ctx->group[id] = c->group[c->n++];
            if (wire) its = mt_group_carry(ctx->group[id], wire, &here);
        } else if (wire) {
            wire->close(wire);
        }
        if (its != MT_OK) st = mt_err_set(e, its, "%s", here.msg);
    }
    return st;
}

mt_status mt_comm_open(struct mt_comm *c, const struct mt_job *job, struct mt_ctx *const ctxs[], int n_groups,
                       mt_comm_members *members, const void *arg, mt_err *e)
{
    if (!job->ops) return mt_comm_open_threads(c, ctxs, job->world, n_groups, members, arg, e);
    MT_ASSERT(n_groups >= 1 && n_groups <= MT_MAX_GROUPS && job->n_local == 1);
    int *rank = calloc((size_t)job->world, sizeof *rank);
    *c = (struct mt_comm){.group = calloc((size_t)n_groups, sizeof *c->group)};
    mt_status st = rank && c->group ? MT_OK
                                    : mt_err_set(e, MT_IO, "opening the groups of a rank: out of memory");
    st = mt_job_agree(job, st, e);
    if (st == MT_OK) st = open_wired(c, job, ctxs[0], n_groups, members, arg, rank, e);
    free(rank);
    return st;
}
