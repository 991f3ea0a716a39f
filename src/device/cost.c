#include "device/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* ---- kinds ---- */
enum mt_work_kind mt_work_kind_of(enum mt_op op)
{
    switch (op) {
    case MT_OP_fresh:
    case MT_OP_keep: return MT_WORK_NONE;
    case MT_OP_linear_fwd:
    case MT_OP_linear_bwdx:
    case MT_OP_linear_bwdw:
    case MT_OP_logits_fwd:
    case MT_OP_router_logits:
    case MT_OP_router_bwdx:
    case MT_OP_router_bwdw: return MT_WORK_GEMM;
    case MT_OP_grouped_fwd:
    case MT_OP_grouped_fwd_into:
    case MT_OP_grouped_bwdx:
    case MT_OP_grouped_bwdx_into:
    case MT_OP_grouped_bwdw: return MT_WORK_GROUPED;
    case MT_OP_attention_fwd:
    case MT_OP_attention_fwd_top:
    case MT_OP_attention_bwd: return MT_WORK_ATTENTION;
    case MT_OP_newton_schulz:
    case MT_OP_turn_left:
    case MT_OP_turn_right:
    case MT_OP_gram_left:
    case MT_OP_gram_right:
    case MT_OP_eigen_basis: return MT_WORK_NEWTON_SCHULZ;
    case MT_OP_embed_fwd:
    case MT_OP_embed_bwd:
    case MT_OP_gather_rows:
    case MT_OP_expert_sort:
    case MT_OP_expert_unsort:
    case MT_OP_gather_gates:
    case MT_OP_combine_fwd:
    case MT_OP_combine_bwd:
    case MT_OP_route_sort: return MT_WORK_ROWS;
    case MT_OP_copy_h2d:
    case MT_OP_copy_d2h: return MT_WORK_COPY;
    default: return MT_WORK_STREAM;
    }
}

const char *mt_work_kind_name(enum mt_work_kind k)
{
    static const char *const name[MT_N_WORK_KINDS] = {"none",      "products",      "expert products",
                                                      "attention", "Newton-Schulz", "element-wise",
                                                      "by row",    "copies"};
    return name[k];
}

/* m, n, k of the product that an op is. */
static void product(struct mt_work *w, const struct mt_call *c)
{
    int64_t N = mt_dim(c, 'N'), O = mt_dim(c, 'O'), I = mt_dim(c, 'I'), E = mt_dim(c, 'E'),
            D = mt_dim(c, 'D');
    int64_t rows = E > 0 && mt_op_info[c->op].n_scalars > 1 ? (c->scalar[1].i + E - 1) / E : 0;
    w->batch = 1;
    switch (c->op) {
    case MT_OP_linear_fwd:
    case MT_OP_logits_fwd: w->m = N, w->n = O, w->k = I; break;
    case MT_OP_linear_bwdx: w->m = N, w->n = I, w->k = O; break;
    case MT_OP_linear_bwdw: w->m = O, w->n = I, w->k = N; break;
    case MT_OP_router_logits: w->m = N, w->n = E, w->k = D; break;
    case MT_OP_router_bwdx: w->m = N, w->n = D, w->k = E; break;
    case MT_OP_router_bwdw: w->m = E, w->n = D, w->k = N; break;
    case MT_OP_grouped_fwd:
    case MT_OP_grouped_fwd_into: w->batch = E, w->m = rows, w->n = O, w->k = I; break;
    case MT_OP_grouped_bwdx:
    case MT_OP_grouped_bwdx_into: w->batch = E, w->m = rows, w->n = I, w->k = O; break;
    case MT_OP_grouped_bwdw: w->batch = E, w->m = O, w->n = I, w->k = rows; break;
    default: w->batch = 0;
    }
}

void mt_work_of(struct mt_work *w, const struct mt_call *c, bool on_host)
{
    const struct mt_op_info *f = &mt_op_info[c->op];
    *w = (struct mt_work){.op = c->op, .dtype = c->dtype, .on_host = on_host};
    w->flops = f->flops(c->dim, c->bytes, c->scalar);
    w->bytes = f->bytes(c->dim, c->bytes, c->scalar);
    enum mt_work_kind k = mt_work_kind_of((enum mt_op)c->op);
    if (k == MT_WORK_GEMM || k == MT_WORK_GROUPED) product(w, c);
    if (k == MT_WORK_ATTENTION) {
        w->batch = mt_dim(c, 'H');
        w->m = mt_dim(c, 'N');
        w->n = c->scalar[1].i; /* pairs: FLOPs are in proportion to them */
        w->k = (mt_dim(c, 'A') + mt_dim(c, 'B')) / 2;
    }
    if (k == MT_WORK_NEWTON_SCHULZ) {
        bool square = c->op == MT_OP_eigen_basis;
        int64_t R = mt_dim(c, square ? 'S' : 'R'), C = mt_dim(c, square ? 'S' : 'C');
        w->batch = mt_dim(c, 'B');
        w->m = R < C ? R : C;
        w->n = R < C ? C : R;
    }
    /* The router and the loss are f32 whatever the weights' type. */
    if (c->op == MT_OP_router_logits || c->op == MT_OP_router_bwdx || c->op == MT_OP_router_bwdw)
        w->dtype = MT_F32;
}

/* ---- kernels ---- */
static double peak(const struct mt_work *w, const struct mt_cluster *c)
{
    return w->dtype == MT_F32 ? MT_OF(c, peak_f32) : MT_OF(c, peak_bf16);
}

/* Tiles of the result are computed whole, `units` at a time; a last wave that is not full costs its share, as kernels that
 * keep their place between tiles have it, but a first one that is not full costs a whole one. */
static double product_seconds(const struct mt_work *w, const struct mt_cluster *c, double efficiency,
                              double half)
{
    double rows = MT_OF(c, gemm_tile_rows), cols = MT_OF(c, gemm_tile_cols), units = MT_OF(c, gemm_units);
    double tiles = (double)w->batch * ceil((double)w->m / rows) * ceil((double)w->n / cols);
    double computed = most(tiles, units) * rows * cols * ((double)w->k + half);
    return w->flops > 0 ? 2 * computed / (peak(w, c) * efficiency) : 0;
}

/* A pair costs by the width of a head, and `half` elements of width besides. */
static double attention_seconds(const struct mt_work *w, const struct mt_cluster *c, double pairs,
                                double half)
{
    double efficiency = w->op == MT_OP_attention_bwd ? MT_OF(c, attention_backward)
                                                     : MT_OF(c, attention_forward);
    double seen = pairs < 0 ? (double)w->n : pairs;
    double per_pair = w->n > 0 ? w->flops / (double)w->n : 0;
    double computed = seen + (double)w->m * MT_OF(c, attention_tile) / 2, head = MT_OF(c, attention_head);
    double narrow = w->k > 0 ? (1 + half / (double)w->k) / (1 + half / head) : 1;
    return per_pair * computed * narrow / (peak(w, c) * efficiency);
}

static double newton_schulz_seconds(const struct mt_work *w, const struct mt_cluster *c, double half)
{
    double computed = w->m > 0 ? w->flops * (1 + half / (double)w->m) : 0;
    return computed / (peak(w, c) * MT_OF(c, newton_schulz_efficiency));
}

void mt_work_name(const struct mt_work *w, char *out, size_t size)
{
    snprintf(out, size, "%s.%s", mt_op_info[w->op].name, w->dtype == MT_BF16 ? "bf16" : "f32");
}

static bool known(const char *name)
{
    char one[64];
    for (int op = 0; op < MT_N_OPS; op++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct mt_work w = {.op = (uint16_t)op, .dtype = bf16 ? MT_BF16 : MT_F32};
            mt_work_name(&w, one, sizeof one);
            if (!strcmp(one, name)) return true;
        }
    return false;
}
mt_status mt_work_check(const struct mt_cluster *c, mt_err *e)
{
    for (int i = 0; i < c->n_ops; i++)
        MT_REQUIRE(known(c->op[i].name), e, MT_CONFIG,
                   "cluster %s: ops: there is no operation '%.40s': write the name of one of device/op.def, "
                   "and .f32 or .bf16",
                   c->name, c->op[i].name);
    return MT_OK;
}

bool mt_work_has_half(enum mt_work_kind k)
{
    return k == MT_WORK_GEMM || k == MT_WORK_GROUPED || k == MT_WORK_ATTENTION || k == MT_WORK_NEWTON_SCHULZ;
}
static double class_half(enum mt_work_kind k, const struct mt_cluster *c)
{
    return k == MT_WORK_ATTENTION       ? MT_OF(c, attention_pair)
           : k == MT_WORK_NEWTON_SCHULZ ? MT_OF(c, newton_schulz_half)
                                        : MT_OF(c, gemm_depth_half);
}

double mt_work_class_seconds(const struct mt_work *w, const struct mt_cluster *c, double pairs, double half)
{
    enum mt_work_kind k = mt_work_kind_of((enum mt_op)w->op);
    if (half < 0) half = class_half(k, c);
    double share = k == MT_WORK_ROWS ? MT_OF(c, memory_rows) : MT_OF(c, memory_stream), t = 0;
    if (k == MT_WORK_NONE) return 0;
    if (k == MT_WORK_COPY)
        return w->bytes / (w->op == MT_OP_copy_h2d ? MT_OF(c, host_h2d) : MT_OF(c, host_d2h)) +
               MT_OF(c, host_latency);
    if (w->on_host)
        return most(w->flops / MT_OF(c, host_f32),
                    w->bytes / (MT_OF(c, host_memory) * MT_OF(c, memory_stream)));
    if (k == MT_WORK_GEMM) t = product_seconds(w, c, MT_OF(c, gemm_efficiency), half);
    if (k == MT_WORK_GROUPED) t = product_seconds(w, c, MT_OF(c, grouped_efficiency), half);
    if (k == MT_WORK_ATTENTION) t = attention_seconds(w, c, pairs, half);
    if (k == MT_WORK_NEWTON_SCHULZ) t = newton_schulz_seconds(w, c, half);
    if (k == MT_WORK_STREAM || k == MT_WORK_ROWS) t = w->flops / MT_OF(c, peak_f32);
    return most(t, w->bytes / (MT_OF(c, memory_bandwidth) * share));
}

double mt_work_seconds(const struct mt_work *w, const struct mt_cluster *c, double pairs)
{
    enum mt_work_kind k = mt_work_kind_of((enum mt_op)w->op);
    const struct mt_cluster_op *op = NULL;
    char name[64];
    if (k == MT_WORK_NONE) return 0;
    if (c->n_ops && !w->on_host) {
        mt_work_name(w, name, sizeof name);
        op = mt_cluster_op(c, name);
    }
    double t = mt_work_class_seconds(w, c, pairs, op && op->has_half ? op->half : -1);
    if (op) t = mt_cluster_op_seconds(op, t);
    return k == MT_WORK_COPY || w->on_host ? t : t + MT_OF(c, launch_kernel);
}

/* ---- collectives ---- */
const char *mt_algorithm_name(enum mt_algorithm a)
{
    static const char *const name[MT_N_ALGORITHMS] = {"direct", "ring", "tree", "hierarchical"};
    return name[a];
}

/* Into a device from `near` - 1 neighbours, each over its own link. */
static double node_bandwidth(const struct mt_cluster *c, int near)
{
    double all = MT_OF(c, node_pair) * (near > 1 ? near - 1 : 1);
    return all < MT_OF(c, node_total) ? all : MT_OF(c, node_total);
}

/* Gathers and scatters that need not be direct. */
static bool may_relay(const struct mt_transfer *t)
{
    return t->op == MT_OP_gather || t->op == MT_OP_gather_cut || t->op == MT_OP_scatter ||
           t->op == MT_OP_scatter_cut;
}

/* direct: every member moves its own bytes over both links at once. ring, hierarchical: what a node needs of others enters it
 * once, split over its members' adapters, and goes on inside; many rings, or every member's column of the nodes. tree: as many
 * bytes as direct, in log2 steps. */
struct mt_transfer_time mt_transfer_seconds(const struct mt_transfer *t, const struct mt_cluster *c,
                                            enum mt_algorithm a)
{
    bool far = t->members > t->near;
    double step = far ? MT_OF(c, net_latency) : MT_OF(c, node_latency),
           message = far ? MT_OF(c, net_message) : MT_OF(c, node_message);
    double net = (double)t->net_bytes, node = (double)t->node_bytes;
    double latency = step + message * t->messages;
    if (!may_relay(t)) a = MT_ALG_DIRECT;
    if (a == MT_ALG_RING) latency = step * (t->members / t->near + (far ? 0 : t->near - 1));
    if (a == MT_ALG_TREE) latency = step * ceil(log2((double)t->members));
    if (a == MT_ALG_HIERARCHICAL)
        latency = step + message * (t->members / t->near) + (far ? MT_OF(c, node_latency) : 0);
    if (a == MT_ALG_RING || a == MT_ALG_HIERARCHICAL) {
        node += net * (t->near - 1) / t->near;
        net /= t->near;
    }
    return (struct mt_transfer_time){
        latency,
        {[MT_LINK_NODE] =
             most(node / node_bandwidth(c, t->near), (double)t->pair_bytes / MT_OF(c, node_pair)),
         [MT_LINK_NET] = net / (MT_OF(c, net_bandwidth) * MT_OF(c, net_efficiency))}};
}
