/* calibrate.h: the numbers of a cluster file, measured on this machine: one worker of its cpu. docs/plan.md says how. */
#ifndef MT_TRAIN_CALIBRATE_H
#define MT_TRAIN_CALIBRATE_H
#include "config/config.h"
#include "device/cost.h"
#include "train/session.h"

/* Seconds that operations of one kind and shape took, by the medians of samples that were not pre-empted. */
struct mt_op_timing {
    struct mt_work work;
    double seconds;
    int64_t n; /* samples */
};
struct mt_calibration {
    struct mt_cluster cluster;
    struct mt_op_timing *timing; /* owned */
    int64_t n, cap;
    int64_t taken, preempted; /* samples */
    double copy[3];           /* bytes read and written a second by memcpy: in 1 MiB, 16 MiB, 256 MiB */
};
/* Trains small models for some seconds; quick: very small ones, good for a look at whether it works. CONFIG, IO.
 * mt_calibration_release is due whatever came of it. */
MT_MUST_USE mt_status mt_calibrate(struct mt_calibration *k, bool quick, mt_err *e);
void mt_calibration_release(struct mt_calibration *k);

/* ---- parts: train/calibrate_fit.c ---- */
/* From the samples: the classes' numbers and those of single operations. */
void mt_calibrate_fit(struct mt_calibration *k, const char *source);

/* ---- for those who measure whole steps ---- */
/* Tokens by a fixed rule, every sequence one document, in the first rank's host rows. */
void mt_calibrate_batch(const struct mt_session *s, uint64_t seed);
/* One train step by the executor: processor time of the process. device.workers must be 1. */
MT_MUST_USE mt_status mt_calibrate_step(struct mt_session *s, double *seconds, mt_err *e);
/* A configuration from options "key=value key=value"; for one worker. CONFIG. */
MT_MUST_USE mt_status mt_calibrate_config(mt_config *cfg, const char *options, mt_err *e);
#endif
