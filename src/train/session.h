/* session.h: everything a process needs before step 1, opened in order: device, ledger, model, optimizer, recording,
 * layout, arenas, executor. Training and sampling are sessions; a plan is one without arenas. */
#ifndef MT_TRAIN_SESSION_H
#define MT_TRAIN_SESSION_H
#include "ckpt/items.h"
#include "comm/comm.h"
#include "config/config.h"
#include "device/backend.h"
#include "device/cpu/exec.h"
#include "device/mapping.h"
#include "device/record.h"
#include "device/traffic.h"
#include "train/step.h"

/* What each rank has of its own. Models differ between ranks only in which pieces are theirs. */
struct mt_session_rank {
    struct mt_model model;
    struct mt_optim optim;
    struct mt_ctx ctx;
    struct mt_step step;
    struct mt_traffic traffic;            /* of the last run */
    struct mt_mapping arena[MT_N_ARENAS]; /* owned: plan.peak bytes each; not with a backend */
};
struct mt_session {
    const mt_config *cfg; /* borrowed */
    struct mt_cpu_dev dev;
    const struct mt_target *target;
    struct mt_mesh mesh;
    struct mt_ledger ledger; /* one for all ranks: their rows are equal */
    struct mt_plan_info plan;
    int32_t save_row;  /* of the buffers of checkpoint writers; -1: none */
    int32_t slice_row; /* of what goes to another node of a checkpoint; -1: nothing does */
    int rounds;        /* of dispatch, everywhere, in the record that was laid out */
    struct mt_job job; /* its processes; borrowed */
    struct mt_comm comm;
    struct mt_exec *exec;                /* NULL where there is a backend */
    const struct mt_backend_ops *device; /* NULL: the cpu's executor */
    void *backend;
    int gpu;         /* the backend's device, among those that this process sees */
    char found[256]; /* what was looked for and found of it */
    uint8_t used
        [MT_MAX_GROUPS]; /* streams on which the recorded step has collectives of each group, a bit each */
    struct mt_session_rank
        *rank;   /* owned: this process's, n_local of them; ranks [first, first + n_local) of world */
    void **args; /* owned: their steps, for the executor */
    int world, first, n_local;
    struct mt_mapping_options mapping; /* of all arenas here */
    struct mt_numa_choice numa;
    struct mt_pages pages; /* what the system gave them */
    bool inference;
};

/* Opens all of it for `world` ranks in this process; the masters are not filled yet. What does not fit: NOFIT, see
 * train/fit.h. After a failure mt_session_close is still due. */
MT_MUST_USE mt_status mt_session_open(struct mt_session *s, const mt_config *cfg, int world, bool inference,
                                      mt_err *e);
/* The same for this process's ranks of a job, whose processes call it together and come to the same status. */
MT_MUST_USE mt_status mt_session_open_job(struct mt_session *s, const mt_config *cfg,
                                          const struct mt_job *job, bool inference, mt_err *e);
/* One rank of such a job, recorded and laid out for a target, with neither arenas nor an executor: what a dry run looks at. It
 * may be closed like any other, and recorded, but not run. Limits of memory are not looked at. */
MT_MUST_USE mt_status mt_session_plan(struct mt_session *s, const mt_config *cfg,
                                      const struct mt_target *target, int world, int rank, mt_err *e);
/* The same without a layout, and so sooner: good for mt_session_enqueue alone. */
MT_MUST_USE mt_status mt_session_describe(struct mt_session *s, const mt_config *cfg,
                                          const struct mt_target *target, int world, mt_err *e);
void mt_session_close(struct mt_session *s);
/* Enqueues the train step of any one rank of a planned session, and nothing else, on the caller's device. ctx: initialised
 * with that device and the session's ledger, and to be so again for another rank; it answers the step's reads, among them
 * those of the rows that experts get, on which the dispatch rounds depend. The session becomes that rank's. */
MT_MUST_USE mt_status mt_session_enqueue(struct mt_session *s, struct mt_ctx *ctx, mt_err *e);
/* Runs one host function on every rank of this process to its end, and gives the first one's sticky error. */
MT_MUST_USE mt_status mt_session_run(struct mt_session *s, void (*host)(struct mt_ctx *, void *), mt_err *e);

/* What a checkpoint holds of this process's ranks: mt_ckpt_items_open. */
MT_MUST_USE mt_status mt_session_items(const struct mt_session *s, struct mt_ckpt_items *x, mt_err *e);
/* The first rank's step of this session recorded on sim, with so many dispatch rounds everywhere; the caller releases it. */
MT_MUST_USE mt_status mt_session_record(const struct mt_session *s, int rounds, struct mt_recording *q,
                                        mt_err *e);
/* Tells in which order the first rank's optimizer step overwrites its state, by recording a step. */
MT_MUST_USE mt_status mt_session_touches(const struct mt_session *s, const struct mt_touching *touch,
                                         mt_err *e);
/* What all ranks of a job must have alike: where everything is stored and cut, who owns what, and in which order. */
uint64_t mt_session_hash(const struct mt_session *s, int local);
/* What arenas such a session takes: recorded and laid out like mt_session_plan, but the layout is not proved. */
MT_MUST_USE mt_status mt_session_peak(const mt_config *cfg, const struct mt_target *target, int world,
                                      int rank, bool inference, int64_t peak[MT_N_ARENAS], mt_err *e);
#endif
