/* simclock.h: what a recorded step takes on a cluster, for all ranks of a job.
 *
 * Every rank's step is enqueued once on `mt_device_simclock`, which keeps of each operation what its time depends on. Ranks that
 * enqueue the same share one program; those whose pieces alone differ in size share all of it but the sizes. The clock then
 * replays all ranks: streams in order, waits on events, a host that enqueues ahead and stops at its reads, collectives that
 * begin when their last member has come and end for all members together. Transfers that meet on a link of some rank share it in
 * proportion to what they ask of it, and a collective goes at the pace of its slowest member. docs/plan.md states the model. */
#ifndef MT_DEVICE_SIMCLOCK_H
#define MT_DEVICE_SIMCLOCK_H
#include "base/status.h"
#include "device/cost.h"
#include "device/device.h"

struct mt_simclock;

struct mt_simclock_options {
    int world, ranks_per_node, nodes_per_group, n_groups;
    int (*members)(const void *mesh, int group, int rank, int *out); /* as mt_comm_open's */
    const void *mesh;                                                /* borrowed */
};
MT_MUST_USE mt_status mt_simclock_open(struct mt_simclock **clock, const struct mt_simclock_options *o,
                                       mt_err *e);
void mt_simclock_close(struct mt_simclock *k); /* NULL is fine */

/* Between begin and end, ctx->rank's step is enqueued on ctx, which was initialised with mt_device_simclock; ctx->traffic then
 * has its bytes, until the next begin. */
extern const struct mt_device_ops mt_device_simclock;
void mt_simclock_begin(struct mt_simclock *k, struct mt_ctx *ctx);
void mt_simclock_end(struct mt_simclock *k, struct mt_ctx *ctx);
/* Rank `rank` enqueues what `like` does. */
void mt_simclock_same(struct mt_simclock *k, int rank, int like);
/* Takes over what ranks were recorded on `from`, a clock of the same options. */
void mt_simclock_merge(struct mt_simclock *k, const struct mt_simclock *from);
int64_t mt_simclock_bytes(const struct mt_simclock *k);                /* of memory that the programs take */
int mt_simclock_programs(const struct mt_simclock *k);                 /* different ones */
int64_t mt_simclock_operations(const struct mt_simclock *k, int rank); /* waits included, as in a recording */

/* Why the compute stream stood still. */
#define MT_STANDS(X)                                       \
    X(WEIGHTS, weights, "weights being gathered")          \
    X(GRADIENTS, gradients, "gradients being reduced")     \
    X(DISPATCH, dispatch, "rows to and from experts")      \
    X(OWNERS, owners, "matrices to and from their owners") \
    X(SMALL, small, "small collectives")                   \
    X(LATE, late, "ranks that come late to one of these")  \
    X(COPIES, copies, "copies between host and device")    \
    X(SERIAL, serial, "other streams' turns")              \
    X(HOST, host, "the host that enqueues")
enum mt_stand {
#define X(name, key, text) MT_STAND_##name,
    MT_STANDS(X)
#undef X
        MT_N_STANDS
};
const char *mt_stand_key(enum mt_stand c);
const char *mt_stand_text(enum mt_stand c);
enum mt_stand mt_stand_of_move(int op); /* what a collective moves */

enum mt_sim_link { MT_ON_NODE, MT_ON_NET, MT_ON_H2D, MT_ON_D2H, MT_N_SIM_LINKS };

/* What one rank's step took, seconds. */
struct mt_simclock_rank {
    double end;
    double busy[MT_N_WORK_KINDS]; /* of the compute stream, by what it did */
    double idle[MT_N_STANDS];     /* of the compute stream */
    double side;                  /* kernels of the other streams */
    double link[MT_N_SIM_LINKS];  /* transfers, as if each were alone */
};
struct mt_simclock_run {
    const struct mt_cluster *cluster;
    enum mt_algorithm algorithm;
    const double *compute, *net; /* by rank: times as long; NULL: 1 */
    const double
        *pairs; /* [world][micro] token pairs that a micro-batch's attention sees; NULL: the recorded */
    const double
        *near; /* likewise, of attention that was recorded with near_recorded pairs: that of a window */
    int64_t near_recorded; /* -1: none was */
    int64_t micro;
    int traced; /* a rank whose times are kept, or -1 */
    int64_t *begin, *ready,
        *end; /* of it: nanoseconds by record, as in device/timeline.h; each may be NULL */
};
/* out: [world]. INTERNAL: ranks that wait for each other. Returns with *steps, if not NULL, the operations replayed. */
MT_MUST_USE mt_status mt_simclock_replay(const struct mt_simclock *k, const struct mt_simclock_run *run,
                                         struct mt_simclock_rank *out, int64_t *steps, mt_err *e);
#endif
