/* watchdog.h: a thread of each process that watches over its run: how long a phase takes, and the signals.
 *
 * A phase may take its floor (train/phase.def), or watchdog.factor times the longest that was seen of it, whichever is more.
 * A process whose phase takes longer asks all others where they stand; those answer from their watchdogs, whatever they do.
 * The first process asks, the last one where the first does not, and where both are silent each tells what it knows. Who is
 * missing goes to the terminal and to exit.json, every rank with its streams and last collectives to hang.txt in run.dir, and
 * the job ends with HANG. Time in which the process itself is stopped does not count.
 *
 * It also looks whether the device's communicators have failed, of which nobody's call tells, and ends the job if so. */
#ifndef MT_TRAIN_WATCHDOG_H
#define MT_TRAIN_WATCHDOG_H
#include "train/ending.h"
#include "train/nodes.h"
#include "train/session.h"

enum mt_phase {
#define MT_PHASE(name, text, floor) MT_PHASE_##name,
#include "train/phase.def"
#undef MT_PHASE
    MT_N_PHASES
};
struct mt_watchdog;

/* Begins with the phase SETUP. ending, nodes: borrowed. IO: no thread. */
MT_MUST_USE mt_status mt_watchdog_open(struct mt_watchdog **w, struct mt_ending *ending,
                                       const struct mt_nodes *nodes, mt_err *e);
void mt_watchdog_close(struct mt_watchdog *w); /* NULL is fine */
/* Whose ranks it may ask; NULL before that one is closed. w NULL is fine. */
void mt_watchdog_session(struct mt_watchdog *w, const struct mt_session *s);
/* The phase before is over, and its time known. step: under way, from 1. */
void mt_watchdog_enter(struct mt_watchdog *w, enum mt_phase phase, int64_t step);
/* Seconds of the longest of them so far, the one under way too; 0: there was none. */
double mt_watchdog_longest(struct mt_watchdog *w, enum mt_phase phase);
/* Whether this process was asked to stop, by SIGTERM, SIGINT or SIGUSR1. A second SIGINT ends the process at once. */
bool mt_watchdog_stop(const struct mt_watchdog *w);
#endif
