#include "launch/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/script.h"

/* Texts of a script, while it is rendered. */
struct texts {
    char time[32], nodes[24], tasks[24], cpus[24], signal[32], name[128], pack[24], at_once[24], ranks[24],
        stalled[24];
    char tolerance[24];
    char exclude[MT_CHAIN_NODES];
    char output[2 * MT_CHAIN_PATH + MT_CONFIG_PATH];
    char self[MT_CONFIG_PATH], where[MT_CONFIG_PATH], points[MT_CONFIG_PATH];
    char cluster[MT_CONFIG_PATH];
    char *quoted[5]; /* owned */
};

static const char *said(const char *text)
{
    return text[0] ? text : NULL;
}
static const char *number(char *out, size_t size, int64_t n)
{
    snprintf(out, size, "%lld", (long long)n);
    return n ? out : NULL;
}

/* Slurm replaces %j and its like, also in the folder's part. */
static mt_status name_output(const struct mt_request *q, struct texts *t, mt_err *e)
{
    char folder[2 * MT_CONFIG_PATH];
    size_t n = 0;
    snprintf(folder, sizeof folder, "%s%s%s", q->run[0] == '/' ? "" : t->where, q->run[0] == '/' ? "" : "/",
             q->run);
    MT_REQUIRE(!strpbrk(folder, "\"\\\n"), e, MT_CONFIG,
               "run.dir is '%s': sbatch takes no path with quotes, backslashes or line breaks", folder);
    for (const char *p = folder; *p && n + 3 < sizeof t->output; p++) {
        if (*p == '%') t->output[n++] = '%';
        t->output[n++] = *p;
    }
    snprintf(t->output + n, sizeof t->output - n, "/jobs/%s.log", q->array ? "%A_%a" : "%j");
    return MT_OK;
}
static void name_job(const struct mt_request *q, struct texts *t)
{
    size_t n = strlen(q->run), from;
    while (n > 0 && q->run[n - 1] == '/') n--;
    for (from = n; from > 0 && q->run[from - 1] != '/'; from--) continue;
    snprintf(t->name, sizeof t->name, "%.*s", (int)(n - from), q->run + from);
    if (!t->name[0] || strpbrk(t->name, "\"\\\n%")) snprintf(t->name, sizeof t->name, "moetitan");
}

static mt_status collect(const struct mt_request *q, struct texts *t, mt_err *e)
{
    const struct mt_site *s = q->site;
    ssize_t n = readlink("/proc/self/exe", t->self, sizeof t->self - 1);
    MT_REQUIRE(n > 0 && getcwd(t->where, sizeof t->where), e, MT_IO, "where am I? %s", strerror(errno));
    t->self[n] = 0;
    if (s->time[0]) MT_TRY(mt_site_time(s->time, t->time, e));
    MT_TRY(mt_chain_excluded(q->run, s->exclude_file, s->exclude, t->exclude, e));
    MT_TRY(name_output(q, t, e));
    if (s->job_name[0])
        snprintf(t->name, sizeof t->name, "%.100s", s->job_name);
    else
        name_job(q, t);
    snprintf(t->tolerance, sizeof t->tolerance, "%g", s->tolerance);
    if (s->notice > 0) snprintf(t->signal, sizeof t->signal, "USR1@%.0f", s->notice);
    return MT_OK;
}

/* "(a b 'c d')" for a list, "a" for one word. */
static mt_status quote(struct texts *t, int i, char *const *words, int n, bool list, mt_err *e)
{
    size_t bytes = 0;
    FILE *f = open_memstream(&t->quoted[i], &bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for a batch script");
    if (list) fputc('(', f);
    for (int k = 0; k < n; k++) {
        if (k) fputc(' ', f);
        mt_script_quote(f, words[k]);
    }
    if (list) fputc(')', f);
    MT_REQUIRE(!fclose(f), e, MT_IO, "no memory for a batch script");
    return MT_OK;
}
static mt_status quote_values(const struct mt_request *q, struct texts *t, mt_err *e)
{
    snprintf(t->points, sizeof t->points, "%s", q->points ? q->points : "");
    MT_TRY(quote(t, 0, (char *[]){t->self}, 1, false, e));
    MT_TRY(quote(t, 1, (char *[]){t->where}, 1, false, e));
    MT_TRY(quote(t, 2, q->args, q->n_args, true, e));
    snprintf(t->cluster, sizeof t->cluster, "%s", q->site->cluster);
    MT_TRY(quote(t, 3, (char *[]){t->points}, 1, false, e));
    return quote(t, 4, (char *[]){t->cluster}, 1, false, e);
}

static struct mt_script script_of(const struct mt_request *q, struct texts *t)
{
    const struct mt_site *s = q->site;
    struct mt_script x = {.job_name = t->name,
                          .account = said(s->account),
                          .partition = said(s->partition),
                          .qos = said(s->qos),
                          .reservation = said(s->reservation),
                          .constraint = said(s->constraint),
                          .nodes = number(t->nodes, sizeof t->nodes, s->nodes),
                          .tasks_per_node = number(t->tasks, sizeof t->tasks, s->tasks_per_node),
                          .cpus_per_task = number(t->cpus, sizeof t->cpus, s->cpus_per_task),
                          .gres = said(s->gres),
                          .time = said(t->time),
                          .signal = said(t->signal),
                          .array = q->array,
                          .exclude = said(t->exclude),
                          .output = t->output,
                          .value.moetitan = t->quoted[0],
                          .value.where = t->quoted[1]};
    if (q->array) {
        x.value.points = t->quoted[3];
        x.value.pack = number(t->pack, sizeof t->pack, q->pack);
        x.value.at_once = number(t->at_once, sizeof t->at_once, q->at_once);
        x.value.ranks = number(t->ranks, sizeof t->ranks, q->ranks);
    } else {
        x.value.args = t->quoted[2];
        x.value.chain = mt_chain_name(s->chain);
        x.value.check = s->check ? "true" : "false";
        x.value.cluster = t->quoted[4];
        x.value.tolerance = t->tolerance;
        x.value.stalled = number(t->stalled, sizeof t->stalled, s->stalled);
    }
    return x;
}

mt_status mt_request_render(const struct mt_request *q, char **text, mt_err *e)
{
    const char *name = q->array ? q->site->sweep_template : q->site->template;
    struct mt_text template = {0};
    struct texts *t = calloc(1, sizeof *t);
    *text = NULL;
    MT_REQUIRE(t, e, MT_IO, "no memory for a batch script");
    mt_status st = mt_site_template(q->site, name, &template, e);
    if (st == MT_OK) st = collect(q, t, e);
    if (st == MT_OK) st = quote_values(q, t, e);
    if (st == MT_OK) {
        struct mt_script x = script_of(q, t);
        st = mt_script_render(&x, name, template.at, text, e);
    }
    for (size_t i = 0; i < sizeof t->quoted / sizeof *t->quoted; i++) free(t->quoted[i]);
    mt_text_release(&template);
    free(t);
    return st;
}

/* The first waits for what --after says, the others each for the one before. */
static mt_status submit_jobs(const struct mt_request *q, const char *text, char (*ids)[MT_SLURM_ID], int jobs,
                             int *n, mt_err *e)
{
    for (*n = 0; *n < jobs; ++*n) {
        char after[64];
        const char *on = *n ? ids[*n - 1] : q->site->after;
        snprintf(after, sizeof after, "--dependency=afterany:%.32s", on);
        MT_TRY(mt_slurm_submit(text, on[0] ? (const char *const[]){after, NULL} : NULL, ids[*n], e));
    }
    return MT_OK;
}

static mt_status note_jobs(const struct mt_request *q, char (*ids)[MT_SLURM_ID], int n, mt_err *e)
{
    char nodes[MT_CHAIN_NODES];
    for (int i = 0; i < n && !q->array; i++) MT_TRY(mt_chain_enter(q->run, ids[i], i == 0, e));
    MT_TRY(mt_chain_excluded(q->run, q->site->exclude_file, q->site->exclude, nodes, e));
    return nodes[0] ? mt_chain_exclude(q->run, nodes, e) : MT_OK;
}

mt_status mt_request_submit(const struct mt_request *q, const char *text, char (*ids)[MT_SLURM_ID], int room,
                            int *n, mt_err *e)
{
    int made = 0, jobs = q->site->chain == MT_CHAIN_DEPENDENCY && !q->array ? (int)q->site->jobs : 1;
    *n = 0;
    MT_REQUIRE(jobs <= room, e, MT_CONFIG,
               "%d jobs are more than the %d that a chain may have queued at once", jobs, room);
    mt_status st = mt_chain_make(q->run, &made, e);
    if (st == MT_OK) mt_chain_unstop(q->run); /* before the job may look */
    if (st == MT_OK) st = submit_jobs(q, text, ids, jobs, n, e);
    if (st == MT_OK) st = note_jobs(q, ids, *n, e);
    if (st == MT_OK) return st;
    while (*n > 0) (void)mt_slurm_cancel_pending(ids[--*n]);
    mt_chain_unmake(q->run, made);
    return st;
}
