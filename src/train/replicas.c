#include "train/replicas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ckpt/file.h"

static int places(const struct mt_session *s)
{
    return s->world / s->mesh.replicas;
}

mt_status mt_replicas_open(struct mt_replicas *x, const struct mt_session *s, mt_err *e)
{
    int64_t units = s->rank[0].model.store.n_units, n = places(s) * units;
    *x = (struct mt_replicas){.good = -1};
    if (s->mesh.replicas == 1 || !s->cfg->guard_replica_hash_interval) return MT_OK;
    x->most = calloc((size_t)(2 * n + s->mesh.replicas + s->n_local * units), sizeof *x->most);
    MT_REQUIRE(x->most, e, MT_IO, "no memory for the hashes of %lld units", (long long)n);
    x->least = x->most + n;
    x->here = x->least + n;
    x->own = x->here + s->mesh.replicas;
    return MT_OK;
}
void mt_replicas_close(struct mt_replicas *x)
{
    free(x->copy);
    free(x->most);
    *x = (struct mt_replicas){0};
}

/* ---- hashes: 0 or more ---- */
/* A view's bytes go into h; of a device that the host does not reach, through a copy. */
static mt_status hash_view(struct mt_replicas *x, const struct mt_ctx *c, mt_view v, int64_t bytes,
                           uint64_t *h, mt_err *e)
{
    const void *from = mt_address(c, v);
    if (c->dev->copy) {
        if (x->copy_bytes < bytes) {
            free(x->copy);
            x->copy = malloc((size_t)bytes);
            x->copy_bytes = x->copy ? bytes : 0;
        }
        MT_REQUIRE(x->copy, e, MT_IO, "no memory to hash a tensor of %lld bytes", (long long)bytes);
        MT_TRY(mt_copy_now(c, x->copy, from, bytes, e));
        from = x->copy;
    }
    *h = mt_hash_mix(*h, mt_xxh3(from, bytes));
    return MT_OK;
}
/* Of a rank's masters, added to those of their units. */
static mt_status hash_tensors(struct mt_replicas *x, const struct mt_session_rank *r, uint64_t *unit,
                              mt_err *e)
{
    const struct mt_store *st = &r->model.store;
    for (int t = 0; t < st->n_tensors; t++) {
        uint64_t *h = &unit[st->matrix[st->tensor[t].matrix].unit];
        mt_view v = mt_store_local_state(st, t, MT_STATE_MASTER);
        for (int64_t i = 0, parts = mt_store_local(st, t).parts; i < parts; i++) {
            mt_view p = mt_view_part(v, i, 1);
            MT_TRY(hash_view(x, &r->ctx, p, 4 * p.dim[1] * p.dim[2], h, e));
        }
    }
    return MT_OK;
}
static mt_status hash_biases(struct mt_replicas *x, const struct mt_session_rank *r, uint64_t *unit,
                             mt_err *e)
{
    const struct mt_shape *d = &r->model.shape;
    for (int l = 0; l < (int)d->L; l++)
        if (mt_is_moe(d, l))
            MT_TRY(hash_view(x, &r->ctx, r->model.layer[l].bias, 4 * d->E, &unit[r->model.layer[l].unit], e));
    return MT_OK;
}
/* To unit[], which is as long as the store has units. */
static mt_status hash_rank(struct mt_replicas *x, const struct mt_session_rank *r, int64_t *unit, mt_err *e)
{
    uint64_t *h = (uint64_t *)unit;
    int n = r->model.store.n_units;
    memset(unit, 0, (size_t)n * sizeof *unit);
    MT_TRY(hash_tensors(x, r, h, e));
    MT_TRY(hash_biases(x, r, h, e));
    for (int u = 0; u < n; u++) unit[u] = (int64_t)(h[u] >> 1);
    return MT_OK;
}

/* ---- comparing ---- */
/* The largest hash of each place and unit, and of the complements, which is that of the smallest. */
static mt_status gather(struct mt_replicas *x, const struct mt_session *s, int64_t n, mt_err *e)
{
    int units = s->rank[0].model.store.n_units;
    mt_status st = MT_OK;
    for (int64_t i = 0; i < n; i++) x->most[i] = x->least[i] = INT64_MIN;
    for (int i = s->n_local - 1; i >= 0; i--) {
        int64_t at = (int64_t)((s->first + i) % places(s)) * units;
        int64_t *own = x->own + (int64_t)i * units;
        if (st == MT_OK) st = hash_rank(x, &s->rank[i], own, e);
        for (int u = 0; u < units; u++) {
            if (own[u] > x->most[at + u]) x->most[at + u] = own[u];
            if (~own[u] > x->least[at + u]) x->least[at + u] = ~own[u];
        }
    }
    MT_TRY(mt_job_agree(&s->job, st, e));
    mt_job_most(&s->job, x->most, 2 * n);
    return MT_OK;
}

static void unit_name(const struct mt_session *s, int u, char *out, size_t size)
{
    const struct mt_unit *t = &s->rank[0].model.store.unit[u];
    if (t->layer >= 0)
        snprintf(out, size, "the %s of block %d", t->experts ? "experts" : "dense part", t->layer);
    else
        snprintf(out, size, "%s", u == s->rank[0].model.head_unit ? "the head" : "the embedding");
}

/* Which replicas differ from most others, or with no majority from the first: to the message. */
static mt_status refuse(struct mt_replicas *x, const struct mt_session *s, const struct mt_nodes *nodes,
                        int64_t at, int64_t more, int64_t step, mt_err *e)
{
    int units = s->rank[0].model.store.n_units, place = (int)(at / units), unit = (int)(at % units);
    int n = s->mesh.replicas, who = 0, most = 0, used = 0, odd = 0;
    char name[80], good[80] = "", ranks[400] = "";
    memset(x->here, 0, (size_t)n * sizeof *x->here);
    for (int i = 0; i < s->n_local; i++)
        if ((s->first + i) % places(s) == place)
            x->here[(s->first + i) / places(s)] = x->own[(int64_t)i * units + unit];
    mt_job_sum(&s->job, x->here, n);
    for (int i = 0; i < n; i++) {
        int same = 0;
        for (int k = 0; k < n; k++) same += x->here[k] == x->here[i];
        if (same > most) who = i, most = same;
    }
    for (int i = 0; i < n; i++) {
        int rank = i * places(s) + place;
        if (x->here[i] == x->here[who]) continue;
        if (odd++ < 4)
            used += snprintf(ranks + used, sizeof ranks - (size_t)used, "%srank %d (node %s)",
                             odd > 1 ? ", " : "", rank, mt_nodes_of(nodes, rank));
    }
    unit_name(s, unit, name, sizeof name);
    if (x->good >= 0) snprintf(good, sizeof good, "; all were alike after step %lld", (long long)x->good);
    MT_FAIL(e, MT_CORRUPT,
            "after step %lld, %s is not the same in all replicas: %s%s hold%s other weights than rank %d "
            "(node %s)%s; %lld "
            "more units of shards differ%s. Some memory, processor or network adapter fails unnoticed: leave "
            "these nodes out, "
            "and go on from a checkpoint of before",
            (long long)step, name, ranks, odd > 4 ? " and others" : "", odd > 1 ? "" : "s",
            who * places(s) + place, mt_nodes_of(nodes, who * places(s) + place),
            2 * most > n ? " and most others" : ", and no majority tells which are right", (long long)more,
            good);
}

mt_status mt_replicas_check(struct mt_replicas *x, const struct mt_session *s, const struct mt_nodes *nodes,
                            int64_t step, mt_err *e)
{
    int64_t n = (int64_t)places(s) * s->rank[0].model.store.n_units, first = -1, bad = 0;
    if (!x->most) return MT_OK;
    MT_TRY(gather(x, s, n, e));
    for (int64_t i = 0; i < n; i++) {
        if (x->most[i] == ~x->least[i]) continue;
        if (!bad++) first = i;
    }
    if (bad) return refuse(x, s, nodes, first, bad - 1, step, e);
    x->good = step;
    return MT_OK;
}
