#include "ckpt/share.h"

#include <stdlib.h>
#include <string.h>

/* What a process tells of a piece: whose, and where it is in its list. */
struct told {
    int64_t item, row0, rows, at;
};
struct request {
    int64_t at, bytes; /* at -1: the end */
};

/* All but copies: those the first process has itself, or gets from another. */
static int64_t list_own(const struct mt_ckpt_items *x, struct told *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t k = x->item[i].first; k < x->item[i].first + x->item[i].n; k++)
            if (!x->piece[k].copy) out[n++] = (struct told){i, x->piece[k].row0, x->piece[k].rows, k};
    return n;
}

static mt_status tell(const struct mt_ckpt_items *x, const struct mt_job *job, mt_err *e)
{
    struct told *own = malloc((size_t)(x->n_pieces + 1) * sizeof *own);
    int64_t n = own ? list_own(x, own) : 0;
    mt_job_send(job, 0, &n, sizeof n);
    if (n) mt_job_send(job, 0, own, n * (int64_t)sizeof *own);
    free(own);
    MT_REQUIRE(own, e, MT_IO, "no memory for the list of %lld pieces", (long long)x->n_pieces);
    return MT_OK;
}

/* Every other process's list, one behind the other; n[p] entries of process p. */
static struct told *hear(const struct mt_job *job, int64_t *n)
{
    struct told *all = NULL;
    int64_t total = 0;
    for (int p = 1; p < job->n; p++) {
        mt_job_receive(job, p, &n[p], sizeof n[p]);
        struct told *more = realloc(all, (size_t)(total + n[p] + 1) * sizeof *all);
        MT_ASSERT(more); /* its list is on the way, and a few bytes a tensor */
        all = more;
        if (n[p]) mt_job_receive(job, p, all + total, n[p] * (int64_t)sizeof *all);
        total += n[p];
    }
    return all;
}

/* Own pieces, and the others' by process, in the order of their rows. */
static mt_status merge(struct mt_ckpt_items *x, const struct mt_job *job, const struct told *all,
                       const int64_t *n, mt_err *e)
{
    int64_t total = 0, largest = 0, at = 0;
    for (int p = 1; p < job->n; p++) total += n[p];
    struct mt_ckpt_piece *piece = calloc((size_t)(x->n_pieces + total + 1), sizeof *piece);
    int64_t *fill = calloc((size_t)x->n + 1, sizeof *fill);
    for (int64_t k = 0; k < total && fill; k++) fill[all[k].item]++;
    for (int64_t i = 0; i < x->n && piece && fill; i++) {
        struct mt_ckpt_item *it = &x->item[i];
        int64_t more = fill[i];
        memcpy(piece + at, x->piece + it->first, (size_t)it->n * sizeof *piece);
        fill[i] = at + it->n;
        it->first = at;
        it->n += more;
        at += it->n;
    }
    const struct told *t = all;
    for (int p = 1; p < job->n && piece && fill; p++)
        for (int64_t k = 0; k < n[p]; k++, t++) {
            int64_t bytes = t->rows * mt_ckpt_row_bytes(&x->item[t->item]);
            piece[fill[t->item]++] =
                (struct mt_ckpt_piece){.row0 = t->row0, .rows = t->rows, .owner = p, .at = t->at};
            if (bytes > largest) largest = bytes;
        }
    x->fetched = malloc((size_t)largest + 1);
    free(fill);
    if (piece && fill) {
        free(x->piece);
        x->piece = piece;
        x->n_pieces = at;
        for (int64_t i = 0; i < x->n; i++) mt_ckpt_item_sort(x, i);
    }
    MT_REQUIRE(piece && fill && x->fetched, e, MT_IO, "no memory for the list of %lld pieces of a checkpoint",
               (long long)(x->n_pieces + total));
    return MT_OK;
}

mt_status mt_ckpt_items_share(struct mt_ckpt_items *x, const struct mt_job *job, mt_err *e)
{
    if (job->n == 1) return MT_OK;
    x->job = *job;
    if (job->me != 0) return mt_job_agree(job, tell(x, job, e), e);
    int64_t *n = calloc((size_t)job->n, sizeof *n);
    MT_ASSERT(n);
    struct told *all = hear(job, n);
    mt_status st = merge(x, job, all, n, e);
    free(all);
    free(n);
    return mt_job_agree(job, st, e);
}

const void *mt_ckpt_fetch(const struct mt_ckpt_items *x, const struct mt_ckpt_item *i,
                          const struct mt_ckpt_piece *p)
{
    struct request r = {p->at, p->rows * mt_ckpt_row_bytes(i)};
    mt_job_send(&x->job, p->owner, &r, sizeof r);
    mt_job_receive(&x->job, p->owner, x->fetched, r.bytes);
    return x->fetched;
}

void mt_ckpt_fetched(const struct mt_ckpt_items *x)
{
    struct request end = {-1, 0};
    for (int p = 1; p < x->job.n; p++) mt_job_send(&x->job, p, &end, sizeof end);
}

void mt_ckpt_serve(const struct mt_ckpt_items *x)
{
    struct request r;
    for (mt_job_receive(&x->job, 0, &r, sizeof r); r.at >= 0; mt_job_receive(&x->job, 0, &r, sizeof r))
        mt_job_send(&x->job, 0, x->piece[r.at].data, r.bytes);
}
