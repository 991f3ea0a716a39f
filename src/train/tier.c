#include <inttypes.h>
#include <stdlib.h>

#include "train/run.h"
#include "train/say.h"

static mt_status open_named(struct mt_run *r, char (*node)[MT_TIER_NODE], mt_err *e)
{
    _Static_assert((int)MT_TIER_NODE >= (int)MT_NODE_PART, "a node's name fits");
    const struct mt_tier_options o = {.dir = r->cfg->ckpt_local_dir,
                                      .run_dir = r->cfg->run_dir,
                                      .node = (const char(*)[MT_TIER_NODE])node,
                                      .keep = r->cfg->ckpt_local_keep};
    for (int p = 0; p < r->job->n; p++) mt_nodes_part(&r->nodes, p, r->cfg->mesh_ranks_per_node, node[p]);
    return mt_tier_open(&r->tier, &o, r->job, e);
}

mt_status mt_run_open_tier(struct mt_run *r, mt_err *e)
{
    if (!r->cfg->ckpt_local_dir[0]) return MT_OK;
    char(*node)[MT_TIER_NODE] = calloc((size_t)r->job->n, sizeof *node);
    mt_status st = node ? MT_OK : mt_err_set(e, MT_IO, "no memory for the names of %d nodes", r->job->n);
    st = mt_job_agree(r->job, st, e);
    if (st == MT_OK) st = open_named(r, node, e);
    free(node);
    return st;
}

mt_status mt_run_tier_room(struct mt_run *r, mt_err *e)
{
    struct mt_tier_room x;
    const double mib = 1 << 20;
    if (!r->tier.node) return MT_OK;
    MT_TRY(mt_tier_find_room(&r->tier, mt_saver_file_bytes(r->saver), &x, e));
    if (r->job->me == 0)
        mt_say("local     %s: on this node %" PRId64
               " x (%.1f + %.1f of others) = %.1f MiB of %.1f; %d node%s\n",
               r->tier.root, r->tier.keep + 1, (double)x.own / mib, (double)x.wards / mib,
               (double)x.need / mib, (double)x.free / mib, r->tier.nodes, r->tier.nodes > 1 ? "s" : "");
    return MT_OK;
}

void mt_run_save_local(struct mt_run *r)
{
    if (mt_saver_under_way(r->saver) || r->saved == r->at.step) return;
    r->saving = r->at.step;
    r->saving_local = true;
    mt_saver_begin(r->saver, &(struct mt_saver_begin){.meta = r->at, .local = true});
}
