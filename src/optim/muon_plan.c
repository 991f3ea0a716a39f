/* muon_plan.c: which matrices go together, where, and who iterates on them. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "device/cpu/muon_ws.h"
#include "model/param.h"
#include "optim/muon.h"

static bool is_muon(const struct mt_store *s, int t)
{
    return s->tensor[t].optimizer == MT_MUON;
}
static int64_t rows_of(const struct mt_store *s, int t)
{
    return s->tensor[t].rows;
}
static int64_t cols_of(const struct mt_store *s, int t)
{
    return s->matrix[s->tensor[t].matrix].cols;
}
static bool experts(const struct mt_store *s, int t)
{
    return s->unit[mt_piece_bucket(s, t)->unit].experts;
}
/* The member that has a dense matrix which is owned whole; -1: it is no such matrix. */
static int owner_of(const struct mt_store *s, int t)
{
    return s->matrix[s->tensor[t].matrix].owner;
}
/* Where a matrix is: experts, and all of a group of one, are at home everywhere; others on their owner; others cut. */
enum where { AT_HOME, OWNED, CUT };
static enum where where(const struct mt_store *s, int t)
{
    if (experts(s, t) || mt_piece_bucket(s, t)->members == 1) return AT_HOME;
    return owner_of(s, t) >= 0 ? OWNED : CUT;
}
static bool is_cut(const struct mt_store *s, int t)
{
    return where(s, t) == CUT;
}
static bool same_shape(const struct mt_store *s, int a, int b)
{
    const struct mt_heads *x = &s->tensor[a].heads, *y = &s->tensor[b].heads;
    return rows_of(s, a) == rows_of(s, b) && cols_of(s, a) == cols_of(s, b) && x->n == y->n &&
           x->columns == y->columns;
}

/* Iterations on one matrix of a tensor, and its bytes. */
static struct mt_load cost_of(const struct mt_muon *u, int t, int64_t steps)
{
    const struct mt_store *s = &u->m->store;
    int64_t dim[MT_LETTERS] = {0}, bytes[MT_MAX_ARGS] = {0};
    union mt_scalar scalar[MT_MAX_SCALARS] = {{.i = steps}};
    const struct mt_blocks block = mt_store_blocks(s, t);
    dim['B' - 'A'] = block.n;
    dim['R' - 'A'] = block.rows;
    dim['C' - 'A'] = block.cols;
    return (struct mt_load){mt_op_info[MT_OP_newton_schulz].flops(dim, bytes, scalar),
                            rows_of(s, t) * cols_of(s, t) * mt_dtype_bytes(u->dtype)};
}
/* Matrices of a batch or window on one rank. */
static int64_t capacity(const struct mt_muon *u, int t)
{
    int64_t bytes = cost_of(u, t, 1).bytes;
    return u->batch_bytes / bytes > 1 ? u->batch_bytes / bytes : 1;
}
static bool shape_seen(const struct mt_store *s, int t)
{
    for (int i = 0; i < t; i++)
        if (is_muon(s, i) && where(s, i) == where(s, t) && same_shape(s, i, t)) return true;
    return false;
}

/* ---- what is whole here ---- */
/* Appends tensor t's parts to the open batch of its shape, opening further ones as they fill up. */
static void batch_tensor(struct mt_muon *u, int t, int64_t cap)
{
    for (int64_t at = 0, parts = mt_piece_most(&u->m->store, t), n; at < parts; at += n) {
        struct mt_muon_batch *b = &u->batch[u->n_batches - 1];
        if (b->n == cap) {
            u->batch[u->n_batches++] = (struct mt_muon_batch){b->rows, b->cols, 0, b->heads, u->n_pieces, 0};
            b++;
        }
        n = parts - at < cap - b->n ? parts - at : cap - b->n;
        u->piece[u->n_pieces++] = (struct mt_piece){t, at, n};
        b->n += n;
        b->n_pieces++;
    }
}
static void batch_shape(struct mt_muon *u, int first)
{
    const struct mt_store *s = &u->m->store;
    u->batch[u->n_batches++] = (struct mt_muon_batch){rows_of(s, first),      cols_of(s, first), 0,
                                                      s->tensor[first].heads, u->n_pieces,       0};
    for (int t = first; t < s->n_tensors; t++)
        if (is_muon(s, t) && where(s, t) == AT_HOME && same_shape(s, t, first))
            batch_tensor(u, t, capacity(u, first));
}

/* Owned matrices of one shape: in batch w are those that are their owner's w-th fill, and room for the fullest owner's. */
static void batch_owned(struct mt_muon *u, int first, int64_t *owned)
{
    const struct mt_store *s = &u->m->store;
    int64_t cap = capacity(u, first), done = 0, of_shape = 0;
    for (int t = first; t < s->n_tensors; t++)
        of_shape += is_muon(s, t) && where(s, t) == OWNED && same_shape(s, t, first);
    for (int64_t w = 0; done < of_shape; w++) {
        struct mt_muon_batch *b = &u->batch[u->n_batches++];
        *b = (struct mt_muon_batch){rows_of(s, first),      cols_of(s, first), 0,
                                    s->tensor[first].heads, u->n_pieces,       0};
        memset(owned, 0, (size_t)u->members * sizeof *owned);
        for (int t = first; t < s->n_tensors; t++) {
            if (!is_muon(s, t) || where(s, t) != OWNED || !same_shape(s, t, first)) continue;
            int64_t k = owned[owner_of(s, t)]++;
            if (k / cap != w) continue;
            u->piece[u->n_pieces++] = (struct mt_piece){t, 0, 1};
            b->n_pieces++;
            if (k % cap + 1 > b->n) b->n = k % cap + 1;
        }
        done += b->n_pieces;
    }
}

static void plan_whole(struct mt_muon *u)
{
    const struct mt_store *s = &u->m->store;
    int64_t *owned = calloc((size_t)u->members, sizeof *owned);
    MT_ASSERT(owned);
    for (int t = 0; t < s->n_tensors; t++) {
        if (!is_muon(s, t) || is_cut(s, t) || shape_seen(s, t)) continue;
        if (where(s, t) == OWNED)
            batch_owned(u, t, owned);
        else
            batch_shape(u, t);
    }
    free(owned);
}

/* ---- dense matrices and their owners ---- */
/* How a dense matrix's rows are cut: as its bucket is, within it. Members of the shard group bring them to one. */
static int rows_cut(struct mt_store *s, int t, mt_dtype dtype)
{
    const struct mt_bucket *b = mt_piece_bucket(s, t);
    const struct mt_matrix *m = &s->matrix[s->tensor[t].matrix];
    int64_t off = m->off + s->tensor[t].row0 * m->cols, n = s->tensor[t].rows * m->cols,
            el = mt_dtype_bytes(dtype);
    int64_t *at = calloc((size_t)b->members + 1, sizeof *at);
    MT_ASSERT(at);
    for (int i = 0; i <= b->members; i++) {
        int64_t x = b->edge[i] - off;
        at[i] = el * (x < 0 ? 0 : x > n ? n : x);
    }
    int cut = mt_store_add_cut(s, b->members, at, s->shard_piece);
    free(at);
    return cut;
}

/* What every rank of the replica does for its experts and the dense matrices that it has whole. */
static void load_whole(struct mt_muon *u, const int *rank, int64_t steps)
{
    const struct mt_store *s = &u->m->store;
    for (int t = 0; t < s->n_tensors; t++) {
        if (!is_muon(s, t) || is_cut(s, t)) continue;
        const struct mt_bucket *b = mt_piece_bucket(s, t);
        struct mt_load one = cost_of(u, t, steps);
        for (int i = 0; i < u->members; i++) {
            if (where(s, t) == OWNED) {
                u->load[i].flops += i == owner_of(s, t) ? one.flops : 0;
                u->load[i].bytes += i == owner_of(s, t) ? one.bytes : 0;
                continue;
            }
            int k = experts(s, t) ? mt_mesh_piece(&s->mesh, MT_GROUP_SLOT,
                                                  mt_mesh_place(&s->mesh, MT_GROUP_SLOT, rank[i]).me)
                                  : 0;
            int64_t parts = (b->edge[k + 1] - b->edge[k]) / b->elements;
            u->load[i].flops += (double)parts * one.flops;
            u->load[i].bytes += parts * one.bytes;
        }
    }
}

/* Balanced over the whole model, on top of what is whole somewhere. In gather mode everyone iterates on everything. */
static void assign_owners(struct mt_muon *u, struct mt_muon_dense *d, int n, int64_t steps)
{
    struct mt_load *item = calloc((size_t)n + 1, sizeof *item);
    int *owner = calloc((size_t)n + 1, sizeof *owner);
    MT_ASSERT(item && owner);
    for (int i = 0; i < n; i++) item[i] = cost_of(u, d[i].tensor, steps);
    if (u->exchange) mt_owners_assign(owner, u->load, u->members, item, n);
    for (int i = 0; i < n; i++) {
        d[i].owner = u->exchange ? owner[i] : -1;
        for (int k = 0; k < u->members && !u->exchange; k++) {
            u->load[k].flops += item[i].flops;
            u->load[k].bytes += item[i].bytes;
        }
    }
    free(item);
    free(owner);
}

/* ---- windows ---- */
/* What differs between ranks: where this rank's rows of the window's matrices lie, and how many it iterates on. */
static void window_mine(struct mt_muon *u, struct mt_muon_window *w)
{
    int64_t at = 0;
    w->mine = 0;
    for (int i = w->first; i < w->first + w->n; i++) {
        struct mt_muon_dense *d = &u->dense[i];
        const struct mt_cut *cut = &u->m->store.cut[d->cut];
        d->rows_at = at;
        at += (mt_cut_to(cut, u->me) - mt_cut_from(cut, u->me) + 63) / 64 * 64;
        w->mine += d->owner == u->me || d->owner < 0;
    }
}
static void window_place(struct mt_muon *u, struct mt_muon_window *w)
{
    const struct mt_store *s = &u->m->store;
    for (int k = 0; k < u->members; k++) {
        int64_t at = 0;
        for (int i = w->first; i < w->first + w->n; i++) {
            const struct mt_cut *cut = &s->cut[u->dense[i].cut];
            at += (mt_cut_to(cut, k) - mt_cut_from(cut, k) + 63) / 64 * 64;
        }
        if (at > u->rows_bytes) u->rows_bytes = at;
    }
    for (int i = w->first; i < w->first + w->n; i++)
        if (u->dense[i].index >= w->most) w->most = u->dense[i].index + 1;
    window_mine(u, w);
}

/* Windows of one shape: in window w are those matrices that are their owner's w-th fill. */
static void window_shape(struct mt_muon *u, const struct mt_muon_dense *all, int n, int shape, int64_t *owned)
{
    const struct mt_store *s = &u->m->store;
    int64_t cap = capacity(u, shape), done = 0, of_shape = 0;
    for (int i = 0; i < n; i++) of_shape += same_shape(s, all[i].tensor, shape);
    for (int64_t w = 0; done < of_shape; w++) {
        struct mt_muon_window *x = &u->window[u->n_windows++];
        *x = (struct mt_muon_window){.rows = rows_of(s, shape),
                                     .cols = cols_of(s, shape),
                                     .heads = s->tensor[shape].heads,
                                     .first = u->n_dense};
        memset(owned, 0, (size_t)u->members * sizeof *owned);
        for (int i = 0; i < n; i++) {
            if (!same_shape(s, all[i].tensor, shape)) continue;
            int64_t k = owned[all[i].owner < 0 ? 0 : all[i].owner]++;
            if (k / cap != w) continue;
            u->dense[u->n_dense] = all[i];
            u->dense[u->n_dense++].index = k % cap;
            x->n++;
        }
        done += x->n;
        window_place(u, x);
    }
}

/* rank: the members of the group; all: room for every dense matrix. */
static void plan_dense(struct mt_muon *u, struct mt_store *s, const int *rank, const mt_config *c,
                       struct mt_muon_dense *all)
{
    int64_t *owned = calloc((size_t)u->members, sizeof *owned);
    int n = 0;
    MT_ASSERT(owned);
    load_whole(u, rank, c->muon_steps);
    for (int t = 0; t < s->n_tensors; t++)
        if (is_muon(s, t) && is_cut(s, t))
            all[n++] = (struct mt_muon_dense){.tensor = t, .cut = rows_cut(s, t, u->dtype)};
    assign_owners(u, all, n, c->muon_steps);
    for (int t = 0; t < s->n_tensors; t++)
        if (is_muon(s, t) && is_cut(s, t) && !shape_seen(s, t)) window_shape(u, all, n, t, owned);
    free(owned);
}

/* ---- all of it ---- */
/* Workspace of the iterations on n matrices. */
static int64_t ws_bytes(const struct mt_muon *u, int64_t n, int64_t rows, int64_t cols, struct mt_heads p)
{
    if (!p.n) return mt_newton_schulz_ws_bytes(n, rows, cols, u->dtype);
    if (p.columns) return mt_newton_schulz_ws_bytes(p.n, rows, cols / p.n, u->dtype);
    return mt_newton_schulz_ws_bytes(n * p.n, rows / p.n, cols, u->dtype);
}
static void add_rows(struct mt_muon *u, struct mt_ledger *g)
{
    int64_t el = mt_dtype_bytes(u->dtype), ws;
    for (int i = 0; i < u->n_batches; i++) {
        const struct mt_muon_batch *b = &u->batch[i];
        if (el * b->n * b->rows * b->cols > u->u_bytes) u->u_bytes = el * b->n * b->rows * b->cols;
        if ((ws = ws_bytes(u, b->n, b->rows, b->cols, b->heads)) > u->ws_bytes[u->side])
            u->ws_bytes[u->side] = ws;
    }
    for (int i = 0; i < u->n_windows; i++) {
        const struct mt_muon_window *w = &u->window[i];
        if (el * w->most * w->rows * w->cols > u->whole_bytes)
            u->whole_bytes = el * w->most * w->rows * w->cols;
        if ((ws = ws_bytes(u, w->most, w->rows, w->cols, w->heads)) > u->ws_bytes[MT_DEVICE_ARENA])
            u->ws_bytes[MT_DEVICE_ARENA] = ws;
    }
    if (u->n_batches) u->u_row = mt_row_add(g, u->side, MT_ROW_OPTIM, u->u_bytes, "muon.u");
    for (int a = 0; a < MT_N_ARENAS; a++)
        if (u->ws_bytes[a])
            u->ws_row[a] = mt_row_add(g, (enum mt_arena)a, MT_ROW_OPTIM, u->ws_bytes[a], "muon.ws.%d", a);
    for (int i = 0; i < MT_MUON_SLOTS && i < u->n_windows; i++) {
        u->rows_row[i] = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, u->rows_bytes, "muon.rows.%d", i);
        u->whole_row[i] = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, u->whole_bytes, "muon.whole.%d", i);
    }
}

static bool allocate(struct mt_muon *u, size_t n)
{
    u->piece = calloc(n, sizeof *u->piece);
    u->batch = calloc(n, sizeof *u->batch);
    u->dense = calloc(n, sizeof *u->dense);
    u->window = calloc(n, sizeof *u->window);
    u->load = calloc((size_t)u->members, sizeof *u->load);
    return u->piece && u->batch && u->dense && u->window && u->load;
}

/* What is iterated on together is so on one side; a matrix without a working copy, a router's, stays on the device. */
static mt_status one_side(const struct mt_muon *u, mt_err *e)
{
    const struct mt_store *s = &u->m->store;
    char name[96];
    for (int t = 0; t < s->n_tensors; t++) {
        if (!is_muon(s, t) || is_cut(s, t) || mt_strip_side(s, t) == u->side) continue;
        mt_param_name(&s->tensor[t], 0, name);
        MT_FAIL(e, MT_CONFIG,
                "optim.compute: host, but '%s' is on Muon and stays on the device: give it to adamw in "
                "optim.groups",
                name);
    }
    return MT_OK;
}

mt_status mt_muon_init(struct mt_muon *u, struct mt_model *m, const mt_config *c, struct mt_ledger *g,
                       mt_err *e)
{
    const struct mt_store *s = &m->store;
    struct mt_place p = mt_mesh_place(&s->mesh, MT_GROUP_SHARD, s->rank);
    size_t n = 1;
    for (int t = 0; t < s->n_tensors; t++)
        if (is_muon(s, t)) n += (size_t)mt_piece_most(s, t);
    *u = (struct mt_muon){.m = m,
                          .members = p.n,
                          .me = p.me,
                          .exchange = c->muon_dense == MT_MUON_DENSE_EXCHANGE,
                          .batch_bytes = c->muon_batch_bytes,
                          .dtype = c->train_dtype == MT_F32 ? MT_F32 : c->muon_dtype,
                          .u_row = -1,
                          .side = s->offload.host_compute ? MT_HOST_ARENA : MT_DEVICE_ARENA,
                          .ws_row = {-1, -1},
                          .rows_row = {-1, -1},
                          .whole_row = {-1, -1}};
    MT_TRY(one_side(u, e));
    struct mt_muon_dense *all = calloc(n, sizeof *all);
    int *rank = calloc((size_t)p.n, sizeof *rank);
    bool ok = allocate(u, n) && all && rank;
    if (ok) {
        plan_whole(u);
        mt_mesh_members(&s->mesh, MT_GROUP_SHARD, s->rank, rank);
        plan_dense(u, &m->store, rank, c, all);
        add_rows(u, g);
    }
    free(all);
    free(rank);
    MT_REQUIRE(ok, e, MT_IO, "cannot allocate the plan of %zu Muon matrices over %d ranks", n, p.n);
    return MT_OK;
}

void mt_muon_turn(struct mt_muon *u)
{
    u->me = mt_mesh_place(&u->m->store.mesh, MT_GROUP_SHARD, u->m->store.rank).me;
    for (int i = 0; i < u->n_windows; i++) window_mine(u, &u->window[i]);
}

void mt_muon_release(struct mt_muon *u)
{
    free(u->piece);
    free(u->batch);
    free(u->dense);
    free(u->window);
    free(u->load);
    *u = (struct mt_muon){0};
}

uint64_t mt_muon_hash(const struct mt_muon *u)
{
    const int64_t x[] = {u->exchange,    u->dtype,       u->members,    u->u_bytes,
                         u->ws_bytes[0], u->ws_bytes[1], u->rows_bytes, u->whole_bytes};
    uint64_t h = mt_hash_ints(mt_store_hash(&u->m->store), x, sizeof x / sizeof *x);
    for (int i = 0; i < u->n_pieces; i++)
        h = mt_hash_ints(h, (const int64_t[]){u->piece[i].tensor, u->piece[i].first, u->piece[i].n}, 3);
    for (int i = 0; i < u->n_batches; i++)
        h = mt_hash_ints(h, (const int64_t[]){u->batch[i].n, u->batch[i].first_piece, u->batch[i].n_pieces},
                         3);
    for (int i = 0; i < u->n_dense; i++)
        h = mt_hash_ints(h,
                         (const int64_t[]){u->dense[i].tensor, (int64_t)u->m->store.cut[u->dense[i].cut].hash,
                                           u->dense[i].owner, u->dense[i].index},
                         4);
    for (int i = 0; i < u->n_windows; i++)
        h = mt_hash_ints(h, (const int64_t[]){u->window[i].first, u->window[i].n, u->window[i].most}, 3);
    return h;
}

static void print_owner(const struct mt_store *s, int t, int owner, const char *how, FILE *out)
{
    char name[96], cols[32] = "";
    mt_param_name(&s->tensor[t], 0, name);
    if (cols_of(s, t)) snprintf(cols, sizeof cols, ", %lld", (long long)cols_of(s, t));
    fprintf(out, "rank %d owns %s [%lld%s]%s\n", owner, name, (long long)rows_of(s, t), cols, how);
}

void mt_muon_print(const struct mt_muon *u, FILE *out)
{
    const struct mt_store *s = &u->m->store;
    double sum = 0;
    for (int k = 0; k < u->members; k++) sum += u->load[k].flops;
    fprintf(out,
            "Muon over %d ranks of a replica: %d dense matrices in %d windows, %s; busiest rank %.3f of the "
            "mean\n",
            u->members, u->n_dense, u->n_windows, u->exchange ? "each with its owner" : "all on every rank",
            mt_owners_imbalance(u->load, u->members));
    fprintf(out, "%6s %14s %8s %12s\n", "rank", "GFLOP a step", "of mean", "MiB");
    for (int k = 0; k < u->members; k++)
        fprintf(out, "%6d %14.3f %8.3f %12.2f\n", k, u->load[k].flops * 1e-9,
                sum > 0 ? u->load[k].flops * u->members / sum : 0, (double)u->load[k].bytes / (1 << 20));
    for (int i = 0; i < u->n_dense; i++)
        if (u->dense[i].owner >= 0) print_owner(s, u->dense[i].tensor, u->dense[i].owner, "", out);
    for (int t = 0; t < s->n_tensors; t++)
        if (owner_of(s, t) >= 0) print_owner(s, t, owner_of(s, t), ", placed there", out);
    fflush(out);
}
