/* wire.h: what a run tells of its collectives: bytes by group and link of the last step, as fields of metrics.jsonl, as a
 * table and as RUN/traffic.json; and which collectives the ranks called. docs/communication.md has the formulas.
 *
 * Sums are over all ranks, of all processes, each of which calls these functions. */
#ifndef MT_TRAIN_WIRE_H
#define MT_TRAIN_WIRE_H
#include "train/session.h"

/* Of one group, stream and operation, or of several; mt_lane's `calls` then counts the calls of all members. */
struct mt_lane mt_wire_sum(const struct mt_session *s, int group, int stream, int op);
struct mt_lane mt_wire_sum_group(const struct mt_session *s, int group); /* group < 0: all */
/* Padding that was received: what the format pads, and what moved beyond what was asked for. */
int64_t mt_lane_padding(const struct mt_lane *l, enum mt_link link);

/* The fields of a metrics line, each after a comma, to out; returns their length. by_group: these too. */
int mt_wire_fields(const struct mt_session *s, bool by_group, char *out, size_t size);
/* The table to the terminal, and all of it, rank by rank, to RUN/traffic.json: of several processes
 * each to its own, RUN/traffic-RANK.json. */
MT_MUST_USE mt_status mt_wire_report(const struct mt_session *s, int64_t step, mt_err *e);

/* run.trace_collectives: from now on a line a collective and rank, in RUN/collectives-RANK.log. mt_wire_trace_end is due
 * whatever became of it, when no rank runs. */
MT_MUST_USE mt_status mt_wire_trace(struct mt_session *s, mt_err *e);
void mt_wire_trace_end(struct mt_session *s);
/* After a run that failed: the last collectives of every rank, to RUN/collectives.txt, as far as that can be written. */
void mt_wire_dump(const struct mt_session *s);
#endif
