/* chain.h: the jobs of a run, one after another, as its folder keeps them:
 *
 *   RUN/jobs/chain      a line for each job, in the order in which they were queued: "ID first", "ID next"; a chain goes from a
 *                       "first", which a person queued, to the one before the next "first"
 *   RUN/jobs/exclude    nodes that its jobs stay away from, a name a line
 *   RUN/jobs/stop       if there is such a file, the chain ends with the job under way; a new one removes it
 *   RUN/jobs/ID.log     what the job printed, also RUN/jobs/ID/log
 *   RUN/jobs/ID/        what else is known of the job (cmd/job.c) */
#ifndef MT_LAUNCH_CHAIN_H
#define MT_LAUNCH_CHAIN_H
#include <stdint.h>

#include "config/config.h"
#include "launch/slurm.h"

enum { MT_CHAIN_JOBS = 1024, MT_CHAIN_PATH = MT_CONFIG_PATH + 64, MT_CHAIN_NODES = 4096 };

struct mt_chain {
    char run[MT_CONFIG_PATH];
    char id[MT_CHAIN_JOBS][MT_SLURM_ID]; /* from the last "first" on */
    int n;
};
/* RUN/jobs, made if it is not there; what was made is counted, for mt_chain_unmake. IO. */
MT_MUST_USE mt_status mt_chain_make(const char *run, int *made, mt_err *e);
/* Removes that again, where it is still empty. */
void mt_chain_unmake(const char *run, int made);
/* Adds the job to RUN/jobs/chain, unless it is there. IO. */
MT_MUST_USE mt_status mt_chain_enter(const char *run, const char *id, bool first, mt_err *e);
/* The chain to which the last job of the file belongs. */
MT_MUST_USE mt_status mt_chain_read(struct mt_chain *c, const char *run, mt_err *e);
/* Its place; c->n if it is none of them. */
int mt_chain_find(const struct mt_chain *c, const char *id);
/* The jobs behind the place are taken from the queue. False: one may still be there. */
bool mt_chain_cut(const struct mt_chain *c, int place);

/* Is RUN/jobs/stop there? */
bool mt_chain_stopped(const char *run);
void mt_chain_unstop(const char *run);

/* Steps of the newest checkpoint in RUN/ckpt, by the names of its folders; -1: none. */
int64_t mt_chain_saved(const char *run);

/* The nodes of RUN/jobs/exclude and of `file` (NULL or "": none; one that is named must be there) behind those of `more`, as
 * Slurm takes them: "n1,n[3-5]". CONFIG: no such file, or too many. */
MT_MUST_USE mt_status mt_chain_excluded(const char *run, const char *file, const char *more,
                                        char out[static MT_CHAIN_NODES], mt_err *e);
/* Adds to RUN/jobs/exclude what is not there, a list with commas. IO. */
MT_MUST_USE mt_status mt_chain_exclude(const char *run, const char *nodes, mt_err *e);
#endif
