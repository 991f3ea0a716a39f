/* cluster.h: a machine as a cluster file describes it: what `moetitan plan` computes times from.
 *
 *   name: JUPITER Booster
 *   target: cuda
 *   net:
 *     bandwidth: {value: 25e9, source: "one NDR200 adapter for each GPU: the centre's configuration page"}
 *     latency: {value: 12e-6, source: "assumed"}
 *
 * Every number of cluster.def is there, each with its source: a publication, a page of the vendor or of the centre, a
 * measurement. A source that begins with "assumed" says that there is none; what follows it may say why. */
#ifndef MT_LAUNCH_CLUSTER_H
#define MT_LAUNCH_CLUSTER_H
#include <stdio.h>

#include "base/status.h"

enum mt_cluster_key {
#define MT_CLUSTER(key, field, low, high, unit, doc) MT_CLUSTER_##field,
#include "launch/cluster.def"
    MT_N_CLUSTER_KEYS
};
struct mt_cluster_row {
    const char *key, *unit, *doc;
    double low, high;
};
extern const struct mt_cluster_row mt_cluster_rows[MT_N_CLUSTER_KEYS];

/* Optional section `ops`: what single operations take of one type, where their class says it badly:
 *
 *   ops:
 *     source: "measured here"
 *     rmsnorm_fwd.bf16: {times: 1.7, plus: 2e-6, above: 1e-4, then: 2.5}
 *     attention_fwd.bf16: {half: 96, times: 1.2, plus: 0}
 *
 * times: as long as their class's numbers say; plus: seconds a call; then: instead of times, for what their class's numbers say
 * beyond `above` seconds, as caches overflow; half: instead of gemm.depth_half, attention.pair or newton_schulz.half in what
 * their class says. Names are device/op.def's, which this layer does not know:
 * device/cost.h checks them. */
enum { MT_CLUSTER_TEXT = 192, MT_CLUSTER_OPS = 256 };
struct mt_cluster_op {
    char name[40];                   /* "rmsnorm_fwd.bf16" */
    double times, plus, above, then; /* above 0: times holds everywhere */
    double half;                     /* counts if has_half */
    bool has_half;
};
struct mt_cluster {
    char name[64];
    char target[24]; /* "cuda", or an instruction set of the cpu */
    struct {
        double value;
        char source[MT_CLUSTER_TEXT];
        bool given;
    } of[MT_N_CLUSTER_KEYS];
    struct mt_cluster_op op[MT_CLUSTER_OPS];
    char op_source[MT_CLUSTER_TEXT];
    int n_ops;
};
#define MT_OF(cluster, field) ((cluster)->of[MT_CLUSTER_##field].value)

/* Reads a file, or a text that goes by `name`. CONFIG, with file:line:col: unknown or missing keys, values out of range or
 * without a source. */
MT_MUST_USE mt_status mt_cluster_load(struct mt_cluster *c, const char *path, mt_err *e);
/* The path of a cluster: `name` if that is a file (it has a slash, or ends in .yaml), else clusters/NAME.yaml beside the
 * configuration, or in configs/. Returns out. */
char *mt_cluster_path(const char *name, const char *config, char *out, size_t size);
MT_MUST_USE mt_status mt_cluster_parse(struct mt_cluster *c, const char *name, const char *text, size_t size,
                                       mt_err *e);
/* "net.bandwidth=20e9"; CONFIG as above. The source becomes "command line". */
MT_MUST_USE mt_status mt_cluster_override(struct mt_cluster *c, const char *assignment, mt_err *e);
/* Of x seconds by the class. */
static inline double mt_cluster_op_seconds(const struct mt_cluster_op *op, double x)
{
    bool far = op->above > 0 && x > op->above;
    return op->plus + op->times * (far ? op->above : x) + (far ? op->then * (x - op->above) : 0);
}
/* NULL: nothing is said of it. */
const struct mt_cluster_op *mt_cluster_op(const struct mt_cluster *c, const char *name);
/* In the form that mt_cluster_load reads; errors of f are the caller's to look for. Texts have no quotes in them. */
void mt_cluster_write(const struct mt_cluster *c, FILE *f);
/* Has the number no source? */
bool mt_cluster_assumed(const struct mt_cluster *c, enum mt_cluster_key k);
#endif
