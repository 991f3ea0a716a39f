#include "launch/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/spawn.h"

/* Clusters that do not enforce their limits at once take such a job and never start it. */
static bool never_starts(const char *id, char why[static 64])
{
    static const char *const reasons[] = {"PartitionConfig", "PartitionTimeLimit", "PartitionNodeLimit"};
    struct mt_spawned x;
    mt_err e = {0};
    const char *const argv[] = {"squeue", "-h", "-j", id, "-o", "%r", NULL};
    if (mt_spawn(&x, argv, NULL, &e) != MT_OK || x.code) return false;
    snprintf(why, 64, "%.63s", x.out);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (!strcmp(x.out, reasons[i])) return true;
    return false;
}

mt_status mt_slurm_submit(const char *script, const char *const *flags, char id[static MT_SLURM_ID],
                          mt_err *e)
{
    enum { MOST = 16 };
    const char *argv[MOST + 1] = {"sbatch", "--parsable"};
    struct mt_spawned x;
    for (int i = 0; flags && flags[i]; i++) {
        MT_ASSERT(i + 2 < MOST);
        argv[i + 2] = flags[i];
    }
    if (mt_spawn(&x, argv, script, e) != MT_OK) {
        mt_err_while(e, "submitting a job needs Slurm's commands in PATH (--dry-run does not)");
        return e->code;
    }
    MT_REQUIRE(x.code == 0, e, MT_CONFIG, "Slurm refused the job:\n%s", x.err);
    size_t n = strspn(x.out, "0123456789"); /* "12;cluster" */
    MT_REQUIRE(n > 0 && n < MT_SLURM_ID, e, MT_CONFIG, "sbatch answered '%.100s', which is no job", x.out);
    snprintf(id, MT_SLURM_ID, "%.*s", (int)n, x.out);
    char why[64];
    if (!never_starts(id, why)) return MT_OK;
    bool gone = mt_slurm_cancel_pending(id);
    MT_FAIL(
        e, MT_CONFIG,
        "Slurm took the job and would not start it, for %s: its partition allows less time or fewer nodes "
        "(scontrol show partition)%s",
        why, gone ? "" : "; it is still in the queue");
}

/* Of "JobId=7 ... JobState=RUNNING Reason=None ..." */
static void state_of(const char *shown, char state[static 64])
{
    static const char key[] = "JobState=";
    const char *at = strstr(shown, key);
    if (at) snprintf(state, 64, "%.*s", (int)strcspn(at + sizeof key - 1, " \n"), at + sizeof key - 1);
}

/* The controller forgets a job minutes after its end; the accounts, where there are any, know who cancelled it. */
void mt_slurm_state(const char *id, char state[static 64])
{
    struct mt_spawned x;
    mt_err e = {0};
    state[0] = 0;
    if (mt_spawn(&x, (const char *const[]){"scontrol", "show", "job", id, NULL}, NULL, &e) == MT_OK &&
        x.code == 0)
        state_of(x.out, state);
    if (state[0] && strcmp(state, "CANCELLED") != 0) return;
    const char *const accounts[] = {"sacct", "-n", "-X", "-P", "-j", id, "-o", "State", NULL};
    if (mt_spawn(&x, accounts, NULL, &e) == MT_OK && x.code == 0 && x.out[0])
        snprintf(state, 64, "%.*s", (int)strcspn(x.out, "\n"), x.out);
}

bool mt_slurm_by_person(const char *state)
{
    return !strncmp(state, "CANCELLED", 9) && strcmp(state, "CANCELLED by 0") != 0;
}

bool mt_slurm_cancel_pending(const char *id)
{
    struct mt_spawned x;
    mt_err e = {0};
    const char *const argv[] = {"scancel", "--state=PENDING", id, NULL};
    return mt_spawn(&x, argv, NULL, &e) == MT_OK && x.code == 0;
}

bool mt_slurm_exclude(const char *id, const char *nodes)
{
    struct mt_spawned x;
    mt_err e = {0};
    char job[MT_SLURM_ID + 16], list[MT_SPAWN_TEXT + 32];
    snprintf(job, sizeof job, "JobId=%s", id);
    snprintf(list, sizeof list, "ExcNodeList=%s", nodes);
    const char *const argv[] = {"scontrol", "update", job, list, NULL};
    return mt_spawn(&x, argv, NULL, &e) == MT_OK && x.code == 0;
}
