/* forecast.h: a whole job on a cluster that is not there: every rank's train step recorded and laid out by the code that
 * runs, and replayed by the clock (device/simclock.h). */
#ifndef MT_TRAIN_FORECAST_H
#define MT_TRAIN_FORECAST_H
#include "data/balance.h"
#include "device/simclock.h"
#include "device/timeline.h"
#include "train/session.h"

/* Lengths of documents: every sequence one document; log-normal ones; those of data.train in the run's first step. */
enum mt_documents { MT_DOCUMENTS_FULL, MT_DOCUMENTS_LOGNORMAL, MT_DOCUMENTS_INDEX };

struct mt_forecast_options {
    int world;
    uint64_t seed;
    enum mt_documents documents;
    double mean, sigma;   /* of log-normal lengths: mean in tokens, sigma of the logarithm */
    double skew;          /* sigma of the logarithm of the experts' popularity; 0: all get the same */
    const double *shares; /* instead: rows of every expert over the mean, [blocks of experts][E]; borrowed */
    bool record_all;      /* record ranks of every replica, instead of one replica's: for tests */
    int sample; /* not 0: record only so many first ranks, by the calling thread and without a layout; others do as they do */
};

/* Bytes that one rank sends and receives in a step, by group and link. */
struct mt_forecast_traffic {
    int64_t sent[MT_N_GROUPS][MT_N_LINKS], received[MT_N_GROUPS][MT_N_LINKS];
};

struct mt_forecast {
    struct mt_forecast_options o;
    const mt_config *cfg; /* borrowed */
    struct mt_shape shape;
    struct mt_session s; /* the model of some rank; its layout is rank 0's */
    struct mt_simclock *clock;
    struct mt_forecast_traffic *traffic; /* owned: [world] */
    int32_t *popular; /* owned: [L][E] rows that every rank sends to an expert, of a micro-batch */
    double *pairs,
        *near; /* owned: [world][micro] token pairs of one head, in layers without and with a window */
    int64_t micro;
    mt_imbalance imbalance;       /* by documents: the costliest rank over the mean */
    double mean_pairs, mean_near; /* of a micro-batch, over all ranks */
};
/* Parts of opening. popular; pairs, and sequences placed by data.balance (forecast_data.c); s, clock, traffic
 * (forecast_record.c). answer: of a recorded step's reads; arg is the forecast. */
MT_MUST_USE mt_status mt_forecast_routing(struct mt_forecast *f, mt_err *e);
MT_MUST_USE mt_status mt_forecast_documents(struct mt_forecast *f, mt_err *e);
MT_MUST_USE mt_status mt_forecast_record(struct mt_forecast *f, const struct mt_target *target,
                                         int nodes_per_group, mt_err *e);
void mt_forecast_answer(void *arg, enum mt_read_kind kind, int64_t index, mt_view src, void *dst);

/* Records all ranks. cluster: for its topology. CONFIG, NOFIT (no table of this machine is asked), DATA, IO. mt_forecast_close
 * is due whatever came of it. */
MT_MUST_USE mt_status mt_forecast_open(struct mt_forecast *f, const mt_config *cfg,
                                       const struct mt_cluster *cluster, const struct mt_target *target,
                                       const struct mt_forecast_options *o, mt_err *e);
void mt_forecast_close(struct mt_forecast *f);

/* What lies in an arena at the fullest point of the step: bytes by class, and the rows, largest first, of which at most `max`
 * are named; *n: how many there are. */
MT_MUST_USE mt_status mt_forecast_fullest(const struct mt_forecast *f, enum mt_arena arena,
                                          int64_t by_class[MT_N_ROW_CLASSES], int32_t *rows, int max, int *n,
                                          mt_err *e);

/* A replay, on any cluster of the same topology; may be repeated with other numbers. */
struct mt_forecast_times {
    struct mt_simclock_rank *rank; /* owned: [world] */
    double step_s;
    struct mt_simclock_rank mean, most; /* over the ranks; most: of each number by itself */
    double busy_s;                      /* mean over the ranks of all that the compute stream did */
    double compute_floor_s;             /* the busiest rank's */
    int64_t operations;                 /* replayed */
};
MT_MUST_USE mt_status mt_forecast_replay(const struct mt_forecast *f, const struct mt_cluster *cluster,
                                         enum mt_algorithm algorithm, struct mt_forecast_times *t, mt_err *e);
/* The same, with one rank's time line in the form of a run's trace (device/timeline.h) to `path`, and where its time went. */
MT_MUST_USE mt_status mt_forecast_trace(struct mt_forecast *f, const struct mt_cluster *cluster,
                                        enum mt_algorithm algorithm, int rank, const char *path,
                                        struct mt_timeline_sum *sum, mt_err *e);
void mt_forecast_times_release(struct mt_forecast_times *t);
/* One rank's time line of a replay. The forecast's session becomes that rank's. mt_forecast_line_close is due whatever came of
 * it. */
struct mt_forecast_line {
    struct mt_recording q; /* owned */
    int64_t *times;        /* owned: [3][q.n] */
    struct mt_timeline line;
};
MT_MUST_USE mt_status mt_forecast_line_open(struct mt_forecast_line *l, struct mt_forecast *f,
                                            const struct mt_cluster *cluster, enum mt_algorithm algorithm,
                                            int rank, mt_err *e);
void mt_forecast_line_close(struct mt_forecast_line *l);

/* What bounds a step: the largest of these floors, each what its resource would take alone on the rank where that is most. */
#define MT_PLAN_BOUNDS(X)                                     \
    X(COMPUTE, compute, "compute")                            \
    X(INTERCONNECT, interconnect, "links between nodes")      \
    X(NODE, node, "links inside nodes")                       \
    X(HOST_LINK, host_link, "copies between host and device") \
    X(LAUNCH, launch, "the host that enqueues")
enum mt_plan_bound {
#define X(name, key, text) MT_BOUND_##name,
    MT_PLAN_BOUNDS(X)
#undef X
        MT_N_BOUNDS
};
const char *mt_plan_bound_key(enum mt_plan_bound b);
const char *mt_plan_bound_text(enum mt_plan_bound b);
/* floor: seconds. */
enum mt_plan_bound mt_forecast_bound(const struct mt_forecast *f, const struct mt_cluster *cluster,
                                     const struct mt_forecast_times *t, double floor[MT_N_BOUNDS]);
/* Bytes that a rank's arenas may take: the cluster's, or device.memory and host.memory if less. */
void mt_forecast_limits(const mt_config *cfg, const struct mt_cluster *cluster, int64_t limit[MT_N_ARENAS]);

/* The target that a cluster names. CONFIG: there is none of that name. */
MT_MUST_USE mt_status mt_forecast_target(const struct mt_cluster *c, const struct mt_target **target,
                                         mt_err *e);
#endif
