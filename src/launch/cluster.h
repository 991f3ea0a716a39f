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

enum { MT_CLUSTER_TEXT = 192 };
struct mt_cluster {
    char name[64];
    char target[24]; /* "cuda", or an instruction set of the cpu */
    struct {
        double value;
        char source[MT_CLUSTER_TEXT];
        bool given;
    } of[MT_N_CLUSTER_KEYS];
};
#define MT_OF(cluster, field) ((cluster)->of[MT_CLUSTER_##field].value)

/* Reads a file, or a text that goes by `name`. CONFIG, with file:line:col: unknown or missing keys, values out of range or
 * without a source. */
MT_MUST_USE mt_status mt_cluster_load(struct mt_cluster *c, const char *path, mt_err *e);
MT_MUST_USE mt_status mt_cluster_parse(struct mt_cluster *c, const char *name, const char *text, size_t size,
                                       mt_err *e);
/* "net.bandwidth=20e9"; CONFIG as above. The source becomes "command line". */
MT_MUST_USE mt_status mt_cluster_override(struct mt_cluster *c, const char *assignment, mt_err *e);
/* Has the number no source? */
bool mt_cluster_assumed(const struct mt_cluster *c, enum mt_cluster_key k);
#endif
