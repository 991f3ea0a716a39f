#include "comm/job.h"

#include "comm/who.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

mt_status mt_job_open(struct mt_job *j, const struct mt_launch *l, mt_err *e)
{
    *j = mt_job_alone(1);
    return l->by ? mt_job_join(j, l, e) : MT_OK;
}

/* Printed here, before anyone leaves: a launcher ends the others when the first process has gone with an
 * error. */
void mt_job_close(struct mt_job *j, mt_status st, mt_err *e)
{
    if (!j->ops) return;
    if (st != MT_OK) {
        if (j->me == 0) fprintf(stderr, "moetitan: %s\n", e->msg);
        fflush(stderr);
        e->msg[0] = 0;
    }
    (void)mt_job_any(j, false);
    j->ops->leave(j->impl);
    *j = mt_job_alone(1);
}

/* A bit each, in as many sums as it takes. */
struct mt_who mt_job_who(const struct mt_job *j, bool here)
{
    enum { WORDS = 32, BITS = 62, PART = WORDS * BITS };
    struct mt_who w = mt_who_none();
    for (int from = 0; from < j->n; from += PART) {
        int64_t word[WORDS] = {0};
        int mine = j->me - from;
        if (here && mine >= 0 && mine < PART) word[mine / BITS] |= (int64_t)1 << mine % BITS;
        mt_job_sum(j, word, WORDS);
        for (int i = 0; i < PART && from + i < j->n; i++)
            if (word[i / BITS] >> i % BITS & 1) mt_who_add(&w, from + i);
    }
    return w;
}

mt_status mt_job_agree(const struct mt_job *j, mt_status st, mt_err *e)
{
    if (!j->ops) return st;
    int64_t worst = st == MT_OK ? 0 : j->n - j->me; /* the first process has the most */
    j->ops->most(j->impl, &worst, 1);
    if (!worst) return MT_OK;
    int first = j->n - (int)worst;
    mt_err found = *e;
    mt_job_broadcast(j, &found, sizeof found, first);
    *e = found;
    struct mt_who who = mt_job_who(j, st != MT_OK);
    if (who.n > 1 && who.n < j->n)
        mt_err_while(e, "ranks %s; rank %d", mt_who_text(&who), first);
    else
        mt_err_while(e, "rank %d", first);
    return e->code;
}

/* The first line in which two texts differ, of each; lines are cut at `size`. */
static void first_difference(const char *a, const char *b, char *line_a, char *line_b, size_t size)
{
    size_t from = 0, i = 0;
    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == '\n') from = i + 1;
    snprintf(line_a, size, "%.*s", (int)strcspn(a + from, "\n"), a + from);
    snprintf(line_b, size, "%.*s", (int)strcspn(b + from, "\n"), b + from);
}

mt_status mt_job_same(const struct mt_job *j, const char *what, const char *text, mt_err *e)
{
    if (!j->ops) return MT_OK;
    int64_t bytes = (int64_t)strlen(text) + 1;
    char mine[160], its[160];
    mt_job_broadcast(j, &bytes, sizeof bytes, 0);
    char *first = malloc((size_t)bytes);
    MT_TRY(mt_job_agree(j, first ? MT_OK : mt_err_set(e, MT_IO, "no memory to compare %s", what), e));
    if (j->me == 0) memcpy(first, text, (size_t)bytes);
    mt_job_broadcast(j, first, bytes, 0);
    mt_status st = MT_OK;
    if (strcmp(text, first)) {
        first_difference(text, first, mine, its, sizeof mine);
        st = mt_err_set(e, MT_RANKS,
                        "%s differs between ranks: here \"%s\", on rank 0 \"%s\"; all must be the same", what,
                        mine, its);
    }
    free(first);
    return mt_job_agree(j, st, e);
}

mt_status mt_job_fatal(const struct mt_job *j, mt_status st, const mt_err *e)
{
    if (st == MT_OK || !j->ops) return st;
    fprintf(stderr, "moetitan: rank %d: %s\n", j->me, e->msg);
    fflush(stderr);
    j->ops->stop(j->impl, (int)st);
}

void mt_job_stop(const struct mt_job *j, int code)
{
    if (j->ops) j->ops->stop(j->impl, code);
    _exit(code);
}
struct mt_job_call mt_job_call(const struct mt_job *j)
{
    return j->ops ? j->ops->call(j->impl) : (struct mt_job_call){.peer = -1};
}
bool mt_job_note(const struct mt_job *j, int to, const void *data, int64_t bytes)
{
    return j->ops && j->ops->note(j->impl, to, data, bytes);
}
int mt_job_noted(const struct mt_job *j, void *data, int64_t bytes)
{
    return j->ops ? j->ops->noted(j->impl, data, bytes) : -1;
}
void mt_job_broadcast(const struct mt_job *j, void *data, int64_t bytes, int from)
{
    if (j->ops) j->ops->broadcast(j->impl, data, bytes, from);
}
void mt_job_sum(const struct mt_job *j, int64_t *x, int64_t n)
{
    if (j->ops) j->ops->sum(j->impl, x, n);
}
void mt_job_most(const struct mt_job *j, int64_t *x, int64_t n)
{
    if (j->ops) j->ops->most(j->impl, x, n);
}
bool mt_job_any(const struct mt_job *j, bool here)
{
    int64_t x = here;
    mt_job_most(j, &x, 1);
    return x;
}
void mt_job_send(const struct mt_job *j, int to, const void *data, int64_t bytes)
{
    MT_ASSERT(j->ops);
    j->ops->send(j->impl, to, data, bytes);
}
void mt_job_receive(const struct mt_job *j, int from, void *data, int64_t bytes)
{
    MT_ASSERT(j->ops);
    j->ops->receive(j->impl, from, data, bytes);
}
