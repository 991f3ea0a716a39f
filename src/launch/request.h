/* request.h: a job as it is asked of a site: its batch script, and the way into the queue. */
#ifndef MT_LAUNCH_REQUEST_H
#define MT_LAUNCH_REQUEST_H
#include "launch/chain.h"
#include "launch/site.h"

struct mt_request {
    const struct mt_site *site;
    const char *run;   /* folder of the run, or of the sweep: it gets jobs/ with the logs */
    char *const *args; /* a run: what `moetitan train` gets */
    int n_args;
    const char *array;  /* a sweep: "0-5%2"; NULL: a run */
    const char *points; /* a sweep: the file of its points, a line each, words between tabs */
    int pack;           /* a sweep: points of one task of the array, */
    int at_once, ranks; /* so many side by side, of so many ranks each */
};
/* From the site's template (sweep_template for a sweep), with absolute paths and the nodes that are excluded so far; touches
 * nothing. The text is the caller's to free. CONFIG: the template or a value is not usable. */
MT_MUST_USE mt_status mt_request_render(const struct mt_request *q, char **text, mt_err *e);
/* Queues it, with the jobs that are to follow under chain: dependency. *n ids, in order, at most `room`. CONFIG: Slurm refused one,
 * with its words: then none stays in the queue, and no new folder. */
MT_MUST_USE mt_status mt_request_submit(const struct mt_request *q, const char *text,
                                        char (*ids)[MT_SLURM_ID], int room, int *n, mt_err *e);
#endif
