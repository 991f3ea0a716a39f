#include "train/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

mt_status mt_nodes_open(struct mt_nodes *x, const struct mt_job *job, mt_err *e)
{
    int64_t *word =
        calloc((size_t)job->n, sizeof *x->name); /* the names as numbers: every process adds its own */
    *x = (struct mt_nodes){.name = (void *)word, .job = job};
    mt_status st = word ? MT_OK : mt_err_set(e, MT_IO, "no memory for the names of %d nodes", job->n);
    MT_TRY(mt_job_agree(job, st, e));
    if (gethostname(x->name[job->me], MT_NODE_NAME - 1)) x->name[job->me][0] = '?';
    mt_job_sum(job, word, (int64_t)job->n * MT_NODE_NAME / (int64_t)sizeof *word);
    return MT_OK;
}

void mt_nodes_close(struct mt_nodes *x)
{
    free(x->name);
    *x = (struct mt_nodes){0};
}

const char *mt_nodes_of(const struct mt_nodes *x, int rank)
{
    return x->name[x->job->n > 1 ? rank : 0];
}

void mt_nodes_part(const struct mt_nodes *x, int process, int64_t most, char name[MT_NODE_PART])
{
    int64_t before = 0;
    for (int p = 0; p < process; p++) before += !strcmp(x->name[p], x->name[process]);
    snprintf(name, MT_NODE_PART, "%s.%d", x->name[process], (int)(before / most));
}
