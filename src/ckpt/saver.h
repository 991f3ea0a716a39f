/* saver.h: the saves of a run, over all its processes, while training goes on.
 *
 * Each process writes the files of its own ranks; when the first finds all of them in the folder, it writes the manifest and gives the
 * folder its name. All learn that together, and whether one has failed, by two numbers that they bring to their agreement
 * between two steps anyway (train/control.def). Otherwise they do not speak to each other.
 *
 * A save to the nodes' own disks (tier.h) is written in the same way; then the processes copy their files to their buddies' nodes, a slice
 * at each of these agreements, and every node gives its folder the name.
 *
 * A save that fails in one process, or takes longer than its time, is given up by all: when no writer is in it any more, or hangs,
 * what it left is removed, and the next is tried. */
#ifndef MT_CKPT_SAVER_H
#define MT_CKPT_SAVER_H
#include "ckpt/tier_saver.h"
#include "ckpt/writers.h"

struct mt_saver;
struct mt_saver_options {
    const char *run_dir; /* borrowed, as is the job */
    const mt_config *cfg;
    const struct mt_job *job;
    struct mt_writers_options writers;
    double timeout_s; /* of each phase; 0: none */
    double
        step_waits_s; /* the longest that an optimizer step waits, where timeout_s is longer; 0: as long as that */
    const int64_t *when;        /* see mt_parts_open */
    const struct mt_tier *tier; /* borrowed; NULL: none */
    struct mt_tier_copies copies;
};
/* All processes. The items' pieces must stay where they are. What saves left that did not end is removed. */
MT_MUST_USE mt_status mt_saver_open(struct mt_saver **s, const struct mt_saver_options *o,
                                    const struct mt_ckpt_items *items, mt_err *e);
void mt_saver_close(struct mt_saver *s);

struct mt_saver_begin {
    struct mt_ckpt_meta meta;
    struct mt_ckpt_keep keep; /* of the older ones, when it is there */
    int64_t metrics_bytes;    /* of RUN/metrics.jsonl, to go into it; 0: none. The first process's counts */
    double waited_s;          /* what training has waited for it already */
    bool local;               /* to the nodes' own disks; keep and metrics_bytes are not used */
};
/* By rank, of its safetensors: [world]. */
const int64_t *mt_saver_file_bytes(const struct mt_saver *s);
/* All processes, between two steps, with no save under way. */
void mt_saver_begin(struct mt_saver *s, const struct mt_saver_begin *b);
bool mt_saver_under_way(const struct mt_saver *s);

/* What this process brings to the agreement. A failure here is printed, once. */
void mt_saver_tell(struct mt_saver *s, int64_t *busy, int64_t *failed);
/* What came of the save by what all have brought. All processes, while no executor has work. */
enum mt_saver_event { MT_SAVER_NOTHING, MT_SAVER_SAVED, MT_SAVER_GIVEN_UP };
enum mt_saver_event mt_saver_heard(struct mt_saver *s, int64_t busy, int64_t failed);
/* For callers that have nothing else to do: until this process's part of the phase is over, or some milliseconds. */
void mt_saver_pause(struct mt_saver *s);

/* See mt_writers_gate. */
void mt_saver_gate(struct mt_saver *s, int rank, int64_t when);

/* Of the last one, as this process saw it. */
struct mt_saver_report {
    double seconds,
        write_s; /* from its begin until it was complete, where this process knows, and to the end of its own part */
    double stalled_s; /* that training waited for it: the most of one rank here */
    int64_t bytes;    /* of all processes */
};
struct mt_saver_report mt_saver_report(const struct mt_saver *s);
#endif
