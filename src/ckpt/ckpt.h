/* ckpt.h: checkpoints of a run.
 *
 * RUN/ckpt/step-00000500/
 *   rank-00000.safetensors   f32 rows of parameters by canonical name, "optim.m.NAME", "optim.v.NAME", router biases
 *   rank-00000.json          which rows of which tensors, with checksums; a pair for each rank that has something to write
 *   config.yaml              the resolved configuration
 *   metrics.jsonl            the run's metrics up to this step
 *   manifest.json            step, tokens, world, and name, size and xxh3 of every file above; written last
 *
 * Everything is fsynced, then the folder, then the manifest, then its rename: a folder without a manifest is not
 * a checkpoint. Nothing in it is executable. docs/checkpoints.md describes it well enough to write another
 * reader. */
#ifndef MT_CKPT_CKPT_H
#define MT_CKPT_CKPT_H
#include <stdbool.h>
#include <stdint.h>

#include "base/progress.h"
#include "ckpt/items.h"
#include "config/config.h"

enum {
    MT_CKPT_PATH = 1200, /* bytes of a checkpoint's path, with its end */
    MT_CKPT_ROOM = 64,   /* of these, what may follow the run's folder */
};

struct mt_ckpt_meta {
    int64_t step;   /* optimizer steps done; the data position is step * train.global_batch */
    int64_t tokens; /* seen */
};

/* Writes RUN/ckpt/step-STEP. On failure nothing of it is left, older ones stay, and the run can go on. A
 * checkpoint of the same step is replaced only by a complete one. Checkpoints of later steps are of a history
 * that this run has left (they were passed over, or the run began anew): they are renamed to *.aside, so that
 * neither reading nor pruning takes them for the newest, and named on stderr. */
MT_MUST_USE mt_status mt_ckpt_save(const char *run_dir, const struct mt_ckpt_items *items,
                                   const struct mt_ckpt_meta *meta, const mt_config *cfg, mt_err *e);
/* Steps of checkpoints that were found damaged; more than there is room for are left out. */
enum { MT_CKPT_STEPS = 16 };
struct mt_ckpt_steps {
    int64_t n, step[MT_CKPT_STEPS];
};
/* What stays: the newest `last` (1 or more) complete checkpoints, of which `damaged` count for none, those of steps that
 * `every` divides (0: none), and those of `step`, `back` and `read` (0 or less: none). */
struct mt_ckpt_keep {
    int64_t last, every, step, back, read;
    struct mt_ckpt_steps damaged;
};
/* Removes what is older than the newest complete checkpoints that stay, and incomplete folders older than the newest of them. */
MT_MUST_USE mt_status mt_ckpt_prune(const char *run_dir, const struct mt_ckpt_keep *keep, mt_err *e);

/* The newest checkpoint of the run whose every file has the size and checksum of its manifest: its folder, or
 * "" if the run has saved none. Damaged ones are named on stderr and passed over; if nothing else is left, CKPT
 * names them, as beginning anew would throw the run away. One that the system does not let us read is an
 * error. */
MT_MUST_USE mt_status mt_ckpt_newest(const char *run_dir, char path[MT_CKPT_PATH], mt_err *e);
/* Checks the manifest, and that its files are there with their sizes; *bytes of all of them. Reads no
 * tensor. */
MT_MUST_USE mt_status mt_ckpt_look(const char *path, struct mt_ckpt_meta *meta, int64_t *bytes, mt_err *e);
/* CKPT: a folder with the name of a step holds another's, as a link or a copy does: it is no checkpoint of either, and keeps none from
 * being kept. */
MT_MUST_USE mt_status mt_ckpt_named(const char *path, int64_t step, const struct mt_ckpt_meta *meta,
                                    mt_err *e);
/* Checks one folder completely, each byte read once, by several threads: manifest, sizes, checksums, headers, every tensor,
 * and that no row of one is missing or there twice. CKPT names file and tensor. progress: of its bytes, or NULL. */
MT_MUST_USE mt_status mt_ckpt_verify(const char *path, struct mt_ckpt_meta *meta, mt_err *e);
MT_MUST_USE mt_status mt_ckpt_verify_told(const char *path, struct mt_ckpt_meta *meta,
                                          struct mt_progress *progress, mt_err *e);

/* ---- loading, by all processes of a job together ----
 * A checkpoint fits any number of ranks and any layout. Each of its bytes is read once by the job: a process reads the pieces of
 * which its ranks need most, by several threads, compares their checksums, and passes rows on to those that need them too. Either
 * all processes have everything, verified, or all get the same failure.
 *
 * Every item must be there with its shape, and nothing else (strict); with weights_only, moments are neither read nor missed. What
 * does not fit so is refused before an item changes. Damage to the tensors themselves is found while they are read: items are then
 * of no use until another load succeeds. */
struct mt_ckpt_loaded {
    struct mt_ckpt_meta meta;
    int64_t needed, read,
        passed; /* bytes of tensors, of the job: needed by some rank, read from files, sent to others */
    double seconds;
    bool local;   /* from the nodes' own disks (tier.h) */
    bool damaged; /* after CKPT: the checkpoint is not sound. Else it is of another model */
    struct mt_ckpt_steps passed_over; /* of the run's folder, where the newest was looked for */
};
MT_MUST_USE mt_status mt_ckpt_load(const char *path, const struct mt_ckpt_items *items,
                                   const struct mt_job *job, bool weights_only, struct mt_ckpt_loaded *out,
                                   mt_err *e);
/* The newest checkpoint of the run that is sound, into the items, and its folder to `path`; "" if the run has saved none.
 * Damaged ones are named on stderr, by the first process, and passed over; if nothing else is left, CKPT names them, as beginning
 * anew would throw the run away. One that the system does not let us read is an error, and so is one of another model, or (CONFIG)
 * of a configuration that `now` cannot go on from. run_dir: of the first process. */
MT_MUST_USE mt_status mt_ckpt_resume(const char *run_dir, const mt_config *now,
                                     const struct mt_ckpt_items *items, const struct mt_job *job,
                                     char path[MT_CKPT_PATH], struct mt_ckpt_loaded *out, mt_err *e);

/* The same with what is on the nodes' own disks, if that is newer: of a step there, every rank's files must be on some node of the
 * job. tier: NULL: there is none. */
struct mt_tier;
MT_MUST_USE mt_status mt_ckpt_resume_tiers(const char *run_dir, const struct mt_tier *tier,
                                           const mt_config *now, const struct mt_ckpt_items *items,
                                           const struct mt_job *job, char path[MT_CKPT_PATH],
                                           struct mt_ckpt_loaded *out, mt_err *e);

/* The newest of steps `least` to `most` in the run's folder alone, likewise. */
struct mt_ckpt_range {
    int64_t least, most;
};
MT_MUST_USE mt_status mt_ckpt_back(const char *run_dir, struct mt_ckpt_range steps, const mt_config *now,
                                   const struct mt_ckpt_items *items, const struct mt_job *job,
                                   char path[MT_CKPT_PATH], struct mt_ckpt_loaded *out, mt_err *e);

/* The configuration it was written under, its file checked against the manifest. */
MT_MUST_USE mt_status mt_ckpt_config(const char *path, mt_config *cfg, mt_err *e);
/* The run's metrics up to its step, checked likewise: malloc'ed, the caller's; NULL: it has none. */
MT_MUST_USE mt_status mt_ckpt_metrics(const char *path, char **text, int64_t *bytes, mt_err *e);

/* The steps of a run's checkpoint folders, complete or not, ascending: n of them, malloc'ed, the caller's. */
MT_MUST_USE mt_status mt_ckpt_list(const char *run_dir, int64_t **step, int64_t *n, mt_err *e);
void mt_ckpt_folder(const char *run_dir, int64_t step, char path[MT_CKPT_PATH]);
/* May a tool make this folder? CONFIG: it is there already, it would lie in a checkpoint, its path is too long. */
MT_MUST_USE mt_status mt_ckpt_vacant(const char *to, mt_err *e);
bool mt_ckpt_steps_have(const struct mt_ckpt_steps *x, int64_t step);
void mt_ckpt_steps_add(struct mt_ckpt_steps *x, int64_t step);
void mt_ckpt_steps_remove(struct mt_ckpt_steps *x, int64_t step);
/* Whether a folder has a manifest, so that a save of it had ended, whatever became of it since. */
bool mt_ckpt_was_complete(const char *folder);
#endif
