/* calibrate_fit.c: a cluster's numbers from samples. A class's tile is looked for among a few values, for all its operations
 * together, and for each of them the depth, width or side that its time has besides (`half`); each operation then has a
 * line, seconds = plus + times x what its class says, that is least wrong in proportion. memory.bandwidth is the cache's: what operations of larger working sets take more is in their lines. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/calibrate.h"

enum { TEXT = MT_CLUSTER_TEXT };

static void set(struct mt_cluster *c, enum mt_cluster_key k, double value, const char *source)
{
    const struct mt_cluster_row *row = &mt_cluster_rows[k];
    c->of[k].value = value < row->low ? row->low : value > row->high ? row->high : value;
    snprintf(c->of[k].source, TEXT, "%s", source);
    c->of[k].given = true;
}

/* ---- one operation ---- */
struct line {
    double times, plus, wrong; /* wrong: sum of squares of relative errors of the line before */
    double half;               /* -1: the class has none */
    int n;
};
static double said_by_class(const struct mt_work *w, const struct mt_cluster *c, double half)
{
    return mt_work_class_seconds(w, c, -1, half);
}
/* One round of least squares, each sample weighted by 1 / (its time x what the line of before says). */
static struct line fit_round(const struct mt_calibration *k, const struct mt_cluster *c,
                             const struct mt_work *what, const struct line *before)
{
    double n = 0, s0 = 0, sx = 0, sxx = 0, sy = 0, sxy = 0;
    struct line l = {.times = 1, .half = before->half};
    for (int64_t i = 0; i < k->n; i++) {
        const struct mt_op_timing *s = &k->timing[i];
        if (s->work.op != what->op || s->work.dtype != what->dtype || s->seconds <= 0) continue;
        double x = said_by_class(&s->work, c, l.half), y = s->seconds,
               said = before->plus + before->times * x, w = 1 / (y * (before->n ? said : y));
        if (before->n) l.wrong += (said - y) * (said - y) * w;
        n += 1, s0 += w, sx += w * x, sxx += w * x * x, sy += w * y, sxy += w * x * y;
    }
    double det = s0 * sxx - sx * sx;
    l.n = (int)n;
    if (!l.n) return l;
    bool two = det > 1e-6 * s0 * sxx;
    if (two) l.times = (s0 * sxy - sx * sy) / det, l.plus = (sxx * sy - sx * sxy) / det;
    if (!two || l.plus < 0) l.plus = 0, l.times = sxx > 0 ? sxy / sxx : 0;
    if (l.times <= 0) l.times = 0, l.plus = sy / s0;
    return l;
}

/* Rounds make the weights those of the ratio between sample and line, whichever is larger: a plain fit of relative errors says too
 * little where samples scatter. */
static struct line fit_with(const struct mt_calibration *k, const struct mt_cluster *c,
                            const struct mt_work *what, double half)
{
    struct line l = {.half = half};
    for (int round = 0; round < 8; round++) l = fit_round(k, c, what, &l);
    return l;
}
static struct line fit_line(const struct mt_calibration *k, const struct mt_cluster *c, uint16_t op,
                            uint8_t dtype)
{
    static const double halves[] = {0, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512};
    struct mt_work what = {.op = op, .dtype = dtype};
    struct line best = fit_with(k, c, &what, -1);
    if (!best.n || !mt_work_has_half(mt_work_kind_of((enum mt_op)op))) return best;
    best.wrong = HUGE_VAL;
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        struct line l = fit_with(k, c, &what, halves[i]);
        if (l.wrong < best.wrong) best = l;
    }
    return best;
}

/* ---- a bend ---- */
/* The sum of squares of any line. */
static double wrong_with(const struct mt_calibration *k, const struct mt_cluster *c,
                         const struct mt_work *what, const struct mt_cluster_op *op)
{
    double wrong = 0;
    for (int64_t i = 0; i < k->n; i++) {
        const struct mt_op_timing *s = &k->timing[i];
        if (s->work.op != what->op || s->work.dtype != what->dtype || s->seconds <= 0) continue;
        double x = said_by_class(&s->work, c, op->has_half ? op->half : -1), y = s->seconds,
               said = mt_cluster_op_seconds(op, x);
        wrong += (said - y) * (said - y) / (y * said);
    }
    return wrong;
}

/* The slope beyond op->above, by least squares of what the line up to there leaves; false: fewer than three samples there. */
static bool fit_beyond(const struct mt_calibration *k, const struct mt_cluster *c, const struct mt_work *what,
                       struct mt_cluster_op *op)
{
    double up = 0, down = 0, base = op->plus + op->times * op->above;
    int n = 0;
    for (int64_t i = 0; i < k->n; i++) {
        const struct mt_op_timing *s = &k->timing[i];
        if (s->work.op != what->op || s->work.dtype != what->dtype || s->seconds <= 0) continue;
        double x = said_by_class(&s->work, c, op->has_half ? op->half : -1) - op->above,
               w = 1 / (s->seconds * s->seconds);
        if (x <= 0) continue;
        up += w * x * (s->seconds - base), down += w * x * x, n++;
    }
    op->then = n && up > 0 ? up / down : 0;
    return n >= 3;
}

/* A line with a bend, where that is much less wrong: places of the bend and slopes before it are tried in steps. */
static struct mt_cluster_op fit_bend(const struct mt_calibration *k, const struct mt_cluster *c,
                                     const struct mt_work *what, const struct line *l)
{
    struct mt_cluster_op best = {.times = l->times,
                                 .plus = l->plus,
                                 .half = l->half,
                                 .has_half = l->half >= 0},
                         one = best;
    double least = 0.8 * wrong_with(k, c, what, &best);
    for (double above = 1e-7; above < 0.1; above *= 1.5)
        for (double slope = 1.0 / 8; slope < 9; slope *= 1.25)
            for (int plus = 0; plus < 3; plus++) {
                one.times = l->times * slope, one.plus = l->plus * plus / 2, one.above = above;
                if (!fit_beyond(k, c, what, &one)) continue;
                double wrong = wrong_with(k, c, what, &one);
                if (wrong < least) least = wrong, best = one;
            }
    return best;
}

/* All operations of a class. */
static double wrong_of(const struct mt_calibration *k, const struct mt_cluster *c, enum mt_work_kind kind)
{
    double wrong = 0;
    for (int op = 0; op < MT_N_OPS; op++)
        for (int t = 0; t < 2 && mt_work_kind_of((enum mt_op)op) == kind; t++)
            wrong += fit_line(k, c, (uint16_t)op, t ? MT_BF16 : MT_F32).wrong;
    return wrong;
}

/* ---- a class ---- */
static void fit_products(const struct mt_calibration *k, struct mt_cluster *c, const char *source)
{
    static const double rows[] = {1, 4, 8, 16, 32};
    double least = HUGE_VAL;
    struct mt_cluster one = *c;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        set(&one, MT_CLUSTER_gemm_tile_rows, rows[r], source);
        double wrong = wrong_of(k, &one, MT_WORK_GEMM) + wrong_of(k, &one, MT_WORK_GROUPED);
        if (wrong >= least) continue;
        least = wrong;
        set(c, MT_CLUSTER_gemm_tile_rows, rows[r], source);
    }
}
static void fit_attention(const struct mt_calibration *k, struct mt_cluster *c, const char *source)
{
    double least = HUGE_VAL;
    struct mt_cluster one = *c;
    for (double tile = 1; tile <= 256; tile *= 2) {
        set(&one, MT_CLUSTER_attention_tile, tile, source);
        double wrong = wrong_of(k, &one, MT_WORK_ATTENTION);
        if (wrong >= least) continue;
        least = wrong;
        set(c, MT_CLUSTER_attention_tile, tile, source);
    }
}

/* A class has the half of its chief operation. */
static void fit_half(const struct mt_calibration *k, struct mt_cluster *c, enum mt_cluster_key key,
                     enum mt_op op, const char *source)
{
    struct line l = fit_line(k, c, (uint16_t)op, MT_BF16);
    set(c, key, l.n ? l.half : 0, source);
}

/* The share of its peak that an operation has by its line, 1 at most. */
static void fit_share(const struct mt_calibration *k, struct mt_cluster *c, enum mt_cluster_key key,
                      enum mt_op op, const char *source)
{
    struct line l = fit_with(k, c, &(struct mt_work){.op = (uint16_t)op, .dtype = MT_BF16}, -1);
    set(c, key, l.n && l.times > 0 ? c->of[key].value / l.times : 1, source);
}

static double fastest(const struct mt_calibration *k, mt_dtype type)
{
    double most = 0;
    for (int64_t i = 0; i < k->n; i++) {
        const struct mt_op_timing *s = &k->timing[i];
        enum mt_work_kind kind = mt_work_kind_of((enum mt_op)s->work.op);
        if (s->work.dtype != type || (kind != MT_WORK_GEMM && kind != MT_WORK_GROUPED)) continue;
        if (s->seconds > 0 && s->work.flops / s->seconds > most) most = s->work.flops / s->seconds;
    }
    return most;
}

/* Times of the clocks of a busy machine scatter: what is far from its class's line is kept as it is, not thrown away. */
static void fit_ops(const struct mt_calibration *k, struct mt_cluster *c)
{
    struct mt_cluster plain = *c;
    for (int op = 0; op < MT_N_OPS; op++)
        for (int t = 0; t < 2; t++) {
            struct mt_work w = {.op = (uint16_t)op, .dtype = t ? MT_BF16 : MT_F32};
            struct line l = fit_line(k, &plain, w.op, w.dtype);
            if (!l.n || c->n_ops == MT_CLUSTER_OPS) continue;
            struct mt_cluster_op *o = &c->op[c->n_ops++];
            *o = fit_bend(k, &plain, &w, &l);
            mt_work_name(&w, o->name, sizeof o->name);
        }
}

/* ---- what is not timed ---- */
static void set_rest(const struct mt_calibration *k, struct mt_cluster *c, const char *source)
{
    static const struct {
        enum mt_cluster_key key;
        double value;
        const char *source;
    } rest[] = {
        {MT_CLUSTER_gemm_tile_cols, 32, "panels of 32 outputs: the target"},
        {MT_CLUSTER_gemm_units, 1, "one thread"},
        {MT_CLUSTER_attention_head, 64, "a choice: the width for which the shares are written"},
        {MT_CLUSTER_launch_enqueue, 0, "counted in launch.kernel: one processor"},
        {MT_CLUSTER_launch_serial, 1, "one worker"},
        {MT_CLUSTER_launch_read, 0, "counted in launch.kernel: one processor"},
        {MT_CLUSTER_net_bandwidth, 1e9, "assumed: there is no second node"},
        {MT_CLUSTER_net_efficiency, 0.9, "assumed: there is no second node"},
        {MT_CLUSTER_net_latency, 5e-5, "assumed: there is no second node"},
        {MT_CLUSTER_net_message, 1e-6, "assumed: there is no second node"},
        {MT_CLUSTER_net_far, 1, "assumed: there is no second node"},
        {MT_CLUSTER_size_device_other, 0, "assumed"},
        {MT_CLUSTER_topology_ranks_per_node, 1, "one process"},
        {MT_CLUSTER_topology_nodes_per_group, 1, "one machine"},
        {MT_CLUSTER_vary_compute, 0, "one thread's own time"},
        {MT_CLUSTER_vary_net, 0, "there is no second node"},
        {MT_CLUSTER_vary_slow_share, 0, "there is no second node"},
        {MT_CLUSTER_vary_slow_net, 1, "there is no second node"},
        {MT_CLUSTER_storage_node, 1e9, "assumed"},
        {MT_CLUSTER_storage_total, 1e9, "assumed"},
        {MT_CLUSTER_power_device, 10, "assumed"},
    };
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), copy = k->copy[1] / 2,
           call = MT_OF(c, launch_kernel);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        set(c, rest[i].key, rest[i].value, rest[i].source);
    /* Pieces of collectives inside a process, and what goes between its two arenas, are copies in memory. */
    set(c, MT_CLUSTER_node_pair, copy, source);
    set(c, MT_CLUSTER_node_total, copy, source);
    set(c, MT_CLUSTER_node_latency, call, source);
    set(c, MT_CLUSTER_node_message, 0, "counted in node.latency");
    set(c, MT_CLUSTER_host_h2d, copy, source);
    set(c, MT_CLUSTER_host_d2h, copy, source);
    set(c, MT_CLUSTER_host_latency, call, source);
    set(c, MT_CLUSTER_host_memory, k->copy[1], source);
    set(c, MT_CLUSTER_host_f32, MT_OF(c, peak_f32), source);
    set(c, MT_CLUSTER_size_device, memory / 2, "half of this machine's memory");
    set(c, MT_CLUSTER_size_host, memory / 4, "a quarter of this machine's memory");
}

void mt_calibrate_fit(struct mt_calibration *k, const char *source)
{
    struct mt_cluster *c = &k->cluster;
    double overhead = MT_OF(c, launch_kernel);
    for (int i = 0; i < MT_N_CLUSTER_KEYS; i++) set(c, (enum mt_cluster_key)i, 1, source);
    set(c, MT_CLUSTER_launch_kernel, 0, source); /* samples are without it */
    set(c, MT_CLUSTER_peak_bf16, fastest(k, MT_BF16), source);
    set(c, MT_CLUSTER_peak_f32, fastest(k, MT_F32), source);
    set(c, MT_CLUSTER_memory_bandwidth, k->copy[0], source);
    set_rest(k, c, source);
    set(c, MT_CLUSTER_host_latency, 0, source);
    fit_products(k, c, source);
    fit_attention(k, c, source);
    fit_half(k, c, MT_CLUSTER_gemm_depth_half, MT_OP_linear_fwd, source);
    fit_half(k, c, MT_CLUSTER_attention_pair, MT_OP_attention_fwd, source);
    fit_half(k, c, MT_CLUSTER_newton_schulz_half, MT_OP_newton_schulz, source);
    fit_share(k, c, MT_CLUSTER_gemm_efficiency, MT_OP_linear_fwd, source);
    fit_share(k, c, MT_CLUSTER_grouped_efficiency, MT_OP_grouped_fwd, source);
    fit_share(k, c, MT_CLUSTER_attention_forward, MT_OP_attention_fwd, source);
    fit_share(k, c, MT_CLUSTER_attention_backward, MT_OP_attention_bwd, source);
    fit_share(k, c, MT_CLUSTER_newton_schulz_efficiency, MT_OP_newton_schulz, source);
    fit_share(k, c, MT_CLUSTER_memory_stream, MT_OP_swiglu_fwd, source);
    fit_share(k, c, MT_CLUSTER_memory_rows, MT_OP_gather_rows, source);
    fit_ops(k, c);
    snprintf(c->op_source, sizeof c->op_source, "%s", source);
    set(c, MT_CLUSTER_launch_kernel, overhead, source);
    set(c, MT_CLUSTER_node_latency, overhead, source);
    set(c, MT_CLUSTER_host_latency, overhead, source);
}
