/* startup.h: what the time before the first step goes to, and whether the processes were started alike. */
#ifndef MT_TRAIN_STARTUP_H
#define MT_TRAIN_STARTUP_H
#include <stddef.h>

#include "comm/job.h"
#include "config/config.h"

enum { MT_STARTUP_PHASES = 16 };
struct mt_startup {
    struct mt_startup_phase {
        const char *name; /* not owned */
        double s;
    } phase[MT_STARTUP_PHASES];
    int n;
    double last;
};
/* What the linker called this program, as digits; "" if it gave no name. */
void mt_startup_build(char *out, size_t size);
/* The first phase, "launch", is from the start of the process to here. */
void mt_startup_begin(struct mt_startup *x);
/* What was since the last mark. */
void mt_startup_mark(struct mt_startup *x, const char *name);
/* Each phase by the slowest process, and who that is where it took much longer than the fastest. All processes; the first prints. */
void mt_startup_say(const struct mt_startup *x, const struct mt_job *job);
/* Warns of processes whose processors or GPU cannot be what was meant (comm/binding.def), in one message that names them. All
 * processes; the first prints. IO: no memory. */
MT_MUST_USE mt_status mt_startup_binding(const struct mt_job *job, const mt_config *c, mt_err *e);
#endif
