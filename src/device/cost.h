/* cost.h: how long an operation takes on a cluster, by its shape, FLOPs and bytes and the numbers of a cluster file.
 * docs/plan.md has the formulas. */
#ifndef MT_DEVICE_COST_H
#define MT_DEVICE_COST_H
#include "device/op.h"
#include "device/traffic.h"
#include "launch/cluster.h"

/* What a kernel or a copy is asked to do: all that its time depends on. Compared as bytes: always zeroed first. */
struct mt_work {
    /* Products: batch of [m, k] x [k, n]. Attention: batch heads k wide, m tokens, n pairs. Newton-Schulz: batch matrices
     * [m, n], m the shorter side. */
    int64_t batch, m, n, k;
    double flops, bytes;
    uint16_t op;
    uint8_t dtype, on_host, zero[4]; /* on_host: done by the host's cores in its memory */
};
void mt_work_of(struct mt_work *w, const struct mt_call *c, bool on_host);

enum mt_work_kind {
    MT_WORK_NONE, /* enqueued for the record alone: no time */
    MT_WORK_GEMM,
    MT_WORK_GROUPED,
    MT_WORK_ATTENTION,
    MT_WORK_NEWTON_SCHULZ,
    MT_WORK_STREAM, /* bound by memory */
    MT_WORK_ROWS,   /* the same, row by row */
    MT_WORK_COPY,   /* between host and device */
    MT_N_WORK_KINDS
};
enum mt_work_kind mt_work_kind_of(enum mt_op op);
const char *mt_work_kind_name(enum mt_work_kind k);

/* CONFIG: the cluster's `ops` names an operation or a type that there is not. */
MT_MUST_USE mt_status mt_work_check(const struct mt_cluster *c, mt_err *e);
/* "rmsnorm_fwd.bf16" */
void mt_work_name(const struct mt_work *w, char *out, size_t size);

/* Seconds on an idle device, the gap to the next operation included. pairs: token pairs of one head that attention sees, -1:
 * those of the call. */
double mt_work_seconds(const struct mt_work *w, const struct mt_cluster *c, double pairs);
/* What the numbers of its class alone say, without that gap. half: instead of the class's gemm.depth_half, attention.pair or
 * newton_schulz.half; -1: the class's. */
double mt_work_class_seconds(const struct mt_work *w, const struct mt_cluster *c, double pairs, double half);
/* Is there such a number in its class? */
bool mt_work_has_half(enum mt_work_kind k);

/* ---- collectives ---- */
enum mt_algorithm { MT_ALG_DIRECT, MT_ALG_RING, MT_ALG_TREE, MT_ALG_HIERARCHICAL, MT_N_ALGORITHMS };
const char *mt_algorithm_name(enum mt_algorithm a);

/* What one member of a collective moves. Compared as bytes. */
struct mt_transfer {
    int64_t node_bytes, net_bytes; /* the larger of sent and received, by link */
    int64_t pair_bytes;            /* of node_bytes, to or from the busiest neighbour */
    int32_t members, near;         /* of the group; of them on this node */
    int32_t messages;              /* to or from others */
    uint16_t op;
    uint8_t group, zero[1];
};
/* Its time alone: seconds on each link, and before the first byte. Between nodes: of one group of nodes. */
struct mt_transfer_time {
    double latency, link[MT_N_LINKS];
};
struct mt_transfer_time mt_transfer_seconds(const struct mt_transfer *t, const struct mt_cluster *c,
                                            enum mt_algorithm a);
#endif
