/* prometheus.h: the newest numbers of a run in Prometheus's text format, for the textfile collector of node_exporter. */
#ifndef MT_TRAIN_PROMETHEUS_H
#define MT_TRAIN_PROMETHEUS_H
#include <stdbool.h>

#include "train/scalars.h"

/* Replaces the file, whose name should end with .prom, as a whole; `run` is a label of every number. Numbers that are NaN are
 * left out. False: it could not be written, and errno says why. Allocates nothing. */
bool mt_prometheus_write(const char *path, const char *run, const struct mt_scalars *s);
#endif
