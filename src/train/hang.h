/* hang.h: where every rank of a job stands, and which of them the others wait for. */
#ifndef MT_TRAIN_HANG_H
#define MT_TRAIN_HANG_H
#include <stdio.h>

#include "device/cpu/exec_stand.h"
#include "mesh/mesh.h"

/* One rank's, sent between processes as it is. */
struct mt_hang_state {
    int32_t answered; /* 0: nothing is known but what the process that asked knows */
    int32_t rank, phase;
    int32_t peer;  /* of the call between processes; -1: all */
    int64_t step;  /* under way, from 1 */
    double for_s;  /* in this phase */
    int64_t calls; /* collective calls between processes, outside of steps, that it has entered */
    char call[32]; /* the one under way; "": none */
    char node[64];
    int32_t stands; /* whether there is: */
    struct mt_rank_stand stand;
};

/* Of n ranks, state[r] rank r's; mesh: of their groups, NULL where there are none yet. Puts into missing[] the ranks that hold the
 * job up, and returns how many: those that did not answer, then those that others wait for and that wait for nobody themselves, or
 * are at work; 0: nobody can be blamed. why: a sentence about the first of them, or of a
 * collective that all have entered; else "". */
enum { MT_HANG_WHY = 512 };
int mt_hang_missing(const struct mt_hang_state *state, int n, const struct mt_mesh *mesh, int *missing,
                    char why[MT_HANG_WHY]);
/* A rank's phase, host code and streams, a line each; with `last` its last collectives too. */
void mt_hang_print(FILE *out, const struct mt_hang_state *s, bool last);
const char *mt_phase_text(int phase); /* "a step" */
#endif
