/* search.h: the options with which a job would be fastest, or fit, on a cluster that is not there. Every candidate is a
 * configuration that the program would run: its rules decide what is legal, the planner what fits, the clock what is fast. */
#ifndef MT_TRAIN_SEARCH_H
#define MT_TRAIN_SEARCH_H
#include "train/forecast.h"
#include "train/savings.h"
#include "train/space.h"

/* What a replay says. */
struct mt_estimate {
    double step_s, tokens, rate;                     /* rate: tokens a second and rank; 0: not replayed */
    double busy[MT_N_WORK_KINDS], idle[MT_N_STANDS]; /* seconds, mean over the ranks */
    enum mt_plan_bound bound;
};
enum mt_verdict { MT_REFUSED, MT_TOO_LARGE, MT_FITS };
struct mt_point {
    struct mt_choice choice;
    enum mt_verdict verdict;
    char why[192]; /* it was refused */
    int64_t peak[MT_N_ARENAS], excess;
    struct mt_estimate sample, whole; /* by the first ranks; by all, of the best few only */
};

struct mt_search {
    /* To be set. */
    const mt_config *cfg;
    const struct mt_cluster *cluster;
    const struct mt_target *target;
    struct mt_forecast_options forecast; /* world, documents, ... */
    enum mt_algorithm algorithm;
    struct mt_space space;
    int budget;    /* plans at most, the given configuration's among them */
    int finalists; /* replayed with all ranks */
    struct mt_choice
        start;     /* planned second; of the given one and this, the better is where the way begins */
    bool brief;    /* each option is turned once, alone */
    bool only_fit; /* nothing is timed: ends with the first that fits */
    double enough; /* not 0: ends with the first that has this rate */
    /* The answer. */
    struct mt_point *point; /* owned: [n], in the order of planning; the first is the given configuration */
    int n, best;            /* best: of point, the fastest that fits, or what lacks least */
    int timed, sampled;     /* candidates that were timed; ranks by which they were, 0: by all */
    bool all;               /* every combination was planned */
    int64_t limit[MT_N_ARENAS];
};
/* Combinations are all planned if they are within the budget. Else one option after the other is set to its best value until
 * none helps; then pairs, of which one makes room for the other. Plans run on as many threads as this process has processors;
 * their order, and the answer, depend on none of that. IO: no memory. mt_search_release is due. */
MT_MUST_USE mt_status mt_search_run(struct mt_search *s, mt_err *e);
void mt_search_release(struct mt_search *s);

/* The estimate to compare by: of all ranks where there is one. */
const struct mt_estimate *mt_point_estimate(const struct mt_point *p);
/* Best first. order: [n]. */
void mt_search_order(const struct mt_search *s, int *order);
/* Why point i is not the best; "" of the best itself. */
void mt_search_reason(const struct mt_search *s, int i, char *out, size_t size);

/* ---- inverse questions ---- */
enum mt_question { MT_FEWEST_NODES, MT_LONGEST_SEQUENCE, MT_TARGET_RATE };
struct mt_asked {
    enum mt_question question;
    bool found;
    int64_t value,
        beyond; /* nodes or tokens of a sequence; the next value that was planned and does not do, 0: none is legal */
    int tried; /* searches, brief ones among them */
    struct mt_search
        yes; /* at value, for speed; not found: at the value that lacks least, to see what lacks */
    struct mt_search no;         /* at beyond, if that is not 0 */
    mt_config *cfg_yes, *cfg_no; /* owned: what these two started from */
};
/* like: a search whose first part is set, of as many ranks as there may be. target: tokens a second of the whole job.
 * mt_asked_release is due. */
MT_MUST_USE mt_status mt_search_ask(struct mt_asked *a, enum mt_question question,
                                    const struct mt_search *like, double target, mt_err *e);
void mt_asked_release(struct mt_asked *a);
#endif
