/* doctor_verdict.h: which nodes are not fit, by what their ranks found. */
#ifndef MT_CMD_DOCTOR_VERDICT_H
#define MT_CMD_DOCTOR_VERDICT_H
#include "cmd/doctor_here.h"
#include "launch/cluster.h"

/* Prints a line a node (its least of each fact), then what is wrong, by node and ranks. c: what should be; NULL: only the others say.
 * bad: the names of nodes that are not fit, with commas. Returns how many. */
int mt_doctor_verdict(const struct mt_rank_facts *f, int n, const struct mt_cluster *c, double tolerance,
                      char *bad, size_t size);
#endif
