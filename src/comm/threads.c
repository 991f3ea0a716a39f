#include <stdlib.h>

#include "comm/comm.h"

static int whole_world(const void *arg, int id, int rank, int *out)
{
    int n = *(const int *)arg;
    (void)id, (void)rank;
    for (int i = 0; i < n; i++) out[i] = i;
    return n;
}

/* The group `id` of every rank: opened at its first member, found by the others. */
static mt_status open_groups(struct mt_comm *c, struct mt_ctx *const ctxs[], int n, int id,
                             mt_comm_members *members, const void *arg, int *rank, mt_err *e)
{
    for (int i = 0; i < n; i++) {
        int k = members(arg, id, i, rank);
        MT_ASSERT(k > 0 && mt_group_in(rank, k, i) >= 0);
        if (rank[0] != i) continue;
        MT_TRY(mt_group_open(&c->group[c->n], rank, k, e));
        for (int j = 0; j < k; j++) ctxs[rank[j]]->group[id] = c->group[c->n];
        c->n++;
    }
    return MT_OK;
}

mt_status mt_comm_open_threads(struct mt_comm *c, struct mt_ctx *const ctxs[], int n, int n_groups,
                               mt_comm_members *members, const void *arg, mt_err *e)
{
    MT_ASSERT(n_groups >= 1 && n_groups <= MT_MAX_GROUPS);
    int *rank = calloc((size_t)n, sizeof *rank);
    *c = (struct mt_comm){.group = calloc((size_t)n * (size_t)n_groups, sizeof *c->group)};
    mt_status st =
        rank && c->group ? MT_OK : mt_err_set(e, MT_IO, "opening the groups of %d ranks: out of memory", n);
    for (int id = 0; id < n_groups && st == MT_OK; id++)
        st = open_groups(c, ctxs, n, id, members ? members : whole_world, members ? arg : &n, rank, e);
    free(rank);
    return st;
}

void mt_comm_close(struct mt_comm *c)
{
    for (int i = 0; i < c->n; i++) mt_group_close(c->group[i]);
    free(c->group);
    *c = (struct mt_comm){0};
}
