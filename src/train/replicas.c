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
    MT_REQUIRE(!s->device, e, MT_CONFIG,
               "guard.replica_hash_interval: the cuda device's weights are not hashed; set it to 0, or "
               "device.type: cpu");
    x->most = calloc((size_t)(2 * n + s->mesh.replicas + s->n_local * units), sizeof *x->most);
    MT_REQUIRE(x->most, e, MT_IO, "no memory for the hashes of %lld units", (long long)n);
    x->least = x->most + n;
    x->here = x->least + n;
    x->own = x->here + s->mesh.replicas;
    return MT_OK;
}
void mt_replicas_close(struct mt_replicas *x)
{
    free(x->most);
    *x = (struct mt_replicas){0};
}

/* ---- hashes: 0 or more ---- */
/* Of a rank's masters, added to those of their units. */
static void hash_tensors(const struct mt_session_rank *r, uint64_t *unit)
{
    const struct mt_store *st = &r->model.store;
    for (int t = 0; t < st->n_tensors; t++) {
        uint64_t *h = &unit[st->matrix[st->tensor[t].matrix].unit];
        mt_view v = mt_store_local_state(st, t, MT_STATE_MASTER);
        for (int64_t i = 0, parts = mt_store_local(st, t).parts; i < parts; i++) {
            mt_view p = mt_view_part(v, i, 1);
            *h = mt_hash_mix(*h, mt_xxh3(mt_address(&r->ctx, p), 4 * p.dim[1] * p.dim[2]));
        }
    }
}
static void hash_biases(const struct mt_session_rank *r, uint64_t *unit)
{
    const struct mt_shape *d = &r->model.shape;
    for (int l = 0; l < (int)d->L; l++) {
        if (!mt_is_moe(d, l)) continue;
        uint64_t *h = &unit[r->model.layer[l].unit];
        *h = mt_hash_mix(*h, mt_xxh3(mt_address(&r->ctx, r->model.layer[l].bias), 4 * d->E));
    }
}
/* To unit[], which is as long as the store has units. */
static void hash_rank(const struct mt_session_rank *r, int64_t *unit)
{
    uint64_t *h = (uint64_t *)unit;
    int n = r->model.store.n_units;
    memset(unit, 0, (size_t)n * sizeof *unit);
    hash_tensors(r, h);
    hash_biases(r, h);
    for (int u = 0; u < n; u++) unit[u] = (int64_t)(h[u] >> 1);
}

/* ---- comparing ---- */
/* The largest hash of each place and unit, and of the complements, which is that of the smallest. */
static void gather(struct mt_replicas *x, const struct mt_session *s, int64_t n)
{
    int units = s->rank[0].model.store.n_units;
    for (int64_t i = 0; i < n; i++) x->most[i] = x->least[i] = INT64_MIN;
    for (int i = s->n_local - 1; i >= 0; i--) {
        int64_t at = (int64_t)((s->first + i) % places(s)) * units;
        int64_t *own = x->own + (int64_t)i * units;
        hash_rank(&s->rank[i], own);
        for (int u = 0; u < units; u++) {
            if (own[u] > x->most[at + u]) x->most[at + u] = own[u];
            if (~own[u] > x->least[at + u]) x->least[at + u] = ~own[u];
        }
    }
    mt_job_most(&s->job, x->most, 2 * n);
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
    gather(x, s, n);
    for (int64_t i = 0; i < n; i++) {
        if (x->most[i] == ~x->least[i]) continue;
        if (!bad++) first = i;
    }
    if (bad) return refuse(x, s, nodes, first, bad - 1, step, e);
    x->good = step;
    return MT_OK;
}
