#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "ckpt/fetch.h"
#include "ckpt/restore.h"
#include "ckpt/source.h"

/* A load under way. Its phases are agreed on one by one: after each, all processes go on or all leave. */
struct loading {
    const struct mt_ckpt_items *items;
    const struct mt_job *job;
    bool weights_only, local;
    int first;    /* the process that reads the manifest */
    int64_t *has; /* where files are on nodes: struct mt_deal_holders */
    struct mt_source s;
    struct mt_stored_list list;  /* of the files that this process looks into */
    struct mt_deal_piece *piece; /* of all, by item and row */
    int64_t n_pieces;
    struct mt_deal_need *need; /* of all processes */
    int64_t n_needs;
    struct mt_deal deal;
};

static bool is_moment(const char *name)
{
    return !strncmp(name, "optim.", 6);
}

/* ---- what the checkpoint holds ---- */
/* The first process, of those that have it, reads the manifest, and checks the files that hold no tensors. */
static mt_status open_first(struct loading *l, const char *path, char **text, int64_t *bytes, mt_err *e)
{
    MT_TRY(mt_source_manifest(path, text, bytes, e));
    MT_TRY(mt_source_open_as(&l->s, path, *text, *bytes, e));
    MT_TRY(mt_source_surplus(&l->s, e));
    for (int64_t i = 0; i < l->s.manifest.n; i++) {
        const char *name = l->s.manifest.file[i].name;
        char *content;
        int64_t size;
        if (mt_source_of_rank(name)) continue;
        MT_TRY(mt_source_text(&l->s, name, &content, &size, e));
        free(content);
    }
    return MT_OK;
}

static mt_status open_others(struct loading *l, const char *path, char *text, int64_t bytes, mt_err *e)
{
    if (l->job->me == l->first) return MT_OK;
    MT_REQUIRE(text, e, MT_IO, "no memory for a manifest of %" PRId64 " bytes", bytes);
    return mt_source_open_as(&l->s, path, text, bytes, e);
}

/* The first process whose node has a manifest there, if any has. */
static void find_first(struct loading *l, const char *path)
{
    int64_t x = l->local && mt_ckpt_was_complete(path) ? l->job->n - l->job->me : 0;
    if (l->local) mt_job_most(l->job, &x, 1);
    l->first = x ? l->job->n - (int)x : 0;
}

static mt_status open_text(struct loading *l, const char *path, mt_err *e)
{
    const struct mt_job *job = l->job;
    char *text = NULL;
    int64_t bytes = 0;
    bool mine = job->me == l->first;
    mt_status st = mt_job_agree(job, mine ? open_first(l, path, &text, &bytes, e) : MT_OK, e);
    if (st == MT_OK) {
        mt_job_broadcast(job, &bytes, sizeof bytes, l->first);
        if (!mine) text = malloc((size_t)bytes + 1);
        st = mt_job_agree(job, !text ? open_others(l, path, NULL, bytes, e) : MT_OK, e);
    }
    if (st == MT_OK) {
        mt_job_broadcast(job, text, bytes, l->first);
        st = mt_job_agree(job, open_others(l, path, text, bytes, e), e);
    }
    free(text);
    return st;
}

/* Each file is looked into by one process, the first that has it. */
static mt_status list_held(struct loading *l, mt_err *e)
{
    for (int f = 0; f < l->s.n; f++) {
        int p = 0;
        while (p < l->job->n && !l->has[f * (int64_t)l->job->n + p]) p++;
        MT_REQUIRE(p < l->job->n, e, MT_CKPT, "no node of this job has rank-%05d.safetensors of '%s'",
                   l->s.rank[f], l->s.path);
        if (p == l->job->me) MT_TRY(mt_source_list(&l->s, f, &l->list, e));
    }
    return MT_OK;
}

static mt_status open_held(struct loading *l, mt_err *e)
{
    int64_t n = l->job->n, all = l->s.n * n;
    l->has = calloc((size_t)all, sizeof *l->has);
    mt_status st = l->has ? MT_OK : mt_err_set(e, MT_IO, "no memory for a table of %d files", l->s.n);
    MT_TRY(mt_job_agree(l->job, st, e));
    for (int f = 0; f < l->s.n; f++) l->has[f * n + l->job->me] = mt_source_has(&l->s, f);
    for (int64_t at = 0; at < all; at += n) mt_job_sum(l->job, l->has + at, n);
    return mt_job_agree(l->job, list_held(l, e), e);
}

static mt_status open_all(struct loading *l, const char *path, mt_err *e)
{
    find_first(l, path);
    MT_TRY(open_text(l, path, e));
    if (l->local) return open_held(l, e);
    /* Each file is looked into by one process. */
    return mt_job_agree(l->job, mt_source_list_some(&l->s, l->job->me, l->job->n, &l->list, e), e);
}

/* ---- against the items ---- */
static int by_name(const void *a, const void *b, void *items)
{
    const struct mt_ckpt_item *item = items;
    return strcmp(item[*(const int64_t *)a].name, item[*(const int64_t *)b].name);
}

/* The item of a name among those sorted, or -1. */
static int64_t find_item(const struct mt_ckpt_items *x, const int64_t *sorted, const char *name)
{
    int64_t low = 0, high = x->n;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        int order = strcmp(x->item[sorted[mid]].name, name);
        if (!order) return sorted[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return -1;
}

/* What this process has listed, by items. A tensor that is none is remembered and told after what is missing. */
static mt_status match(struct loading *l, const int64_t *sorted, mt_err *surplus, mt_err *e)
{
    l->piece = malloc((size_t)(l->list.n + 1) * sizeof *l->piece);
    MT_REQUIRE(l->piece, e, MT_IO, "no memory to list %" PRId64 " pieces of tensors", l->list.n);
    for (int64_t i = 0; i < l->list.n; i++) {
        const struct mt_stored *x = &l->list.x[i];
        char path[MT_SOURCE_FILE];
        if (l->weights_only && is_moment(x->name)) continue;
        mt_source_tensors(&l->s, x->file, path);
        int64_t k = find_item(l->items, sorted, x->name);
        if (k < 0) {
            mt_err_set(surplus, MT_CKPT,
                       "'%s' holds tensor '%.100s', which this configuration does not have: it is of another "
                       "model",
                       path, x->name);
            continue;
        }
        const struct mt_ckpt_item *it = &l->items->item[k];
        MT_REQUIRE(x->rows == it->rows && x->cols == it->cols, e, MT_CKPT,
                   "'%s': tensor '%s' is [%" PRId64 ", %" PRId64 "], this configuration needs [%" PRId64
                   ", %" PRId64 "] (0: a vector)",
                   path, x->name, x->rows, x->cols, it->rows, it->cols);
        l->piece[l->n_pieces++] = (struct mt_deal_piece){k, x->row0, x->n, x->file, x->at, x->xxh3};
    }
    return MT_OK;
}

/* Every process's n records of `size` bytes, one process's behind the other's, to all: in place of this process's own. */
static mt_status share(const struct mt_job *job, void **array, int64_t *n, size_t size, int64_t *counts,
                       mt_err *e)
{
    int64_t total = 0, at = 0;
    for (int p = 0; p < job->n; p++) {
        counts[p] = *n;
        mt_job_broadcast(job, &counts[p], sizeof *counts, p);
        total += counts[p];
    }
    char *all = malloc((size_t)(total + 1) * size);
    mt_status st = all ? MT_OK
                       : mt_err_set(e, MT_IO, "no memory to list %" PRId64 " pieces of tensors", total);
    st = mt_job_agree(job, st, e);
    for (int p = 0; p < job->n && st == MT_OK; p++) {
        if (p == job->me && counts[p]) memcpy(all + (size_t)at * size, *array, (size_t)counts[p] * size);
        mt_job_broadcast(job, all + (size_t)at * size, counts[p] * (int64_t)size, p);
        at += counts[p];
    }
    if (st != MT_OK) {
        free(all);
        return st;
    }
    free(*array);
    *array = all;
    *n = total;
    return MT_OK;
}

static int by_row(const void *a, const void *b)
{
    const struct mt_deal_piece *x = a, *y = b;
    if (x->item != y->item) return x->item < y->item ? -1 : 1;
    if (x->row0 != y->row0) return x->row0 < y->row0 ? -1 : 1;
    return x->file < y->file ? -1 : x->file > y->file;
}

/* Some rows of every item, at least. */
static mt_status check_missing(const struct loading *l, mt_err *e)
{
    for (int64_t i = 0, k = 0; i < l->items->n; i++) {
        while (k < l->n_pieces && l->piece[k].item < i) k++;
        bool there = k < l->n_pieces && l->piece[k].item == i;
        MT_REQUIRE(there || (l->weights_only && l->items->item[i].moment), e, MT_CKPT,
                   "'%s' has no tensor '%s', which this configuration needs", l->s.path,
                   l->items->item[i].name);
    }
    return MT_OK;
}

static mt_status fit_sorted(struct loading *l, const int64_t *sorted, int64_t *counts, mt_err *e)
{
    mt_err surplus = {0};
    MT_TRY(mt_job_agree(l->job, match(l, sorted, &surplus, e), e));
    void *piece = l->piece;
    mt_status st = share(l->job, &piece, &l->n_pieces, sizeof *l->piece, counts, e);
    l->piece = piece;
    MT_TRY(st);
    if (l->n_pieces) qsort(l->piece, (size_t)l->n_pieces, sizeof *l->piece, by_row);
    MT_TRY(check_missing(l, e));
    if (surplus.code != MT_OK) mt_err_set(e, surplus.code, "%s", surplus.msg);
    return mt_job_agree(l->job, surplus.code, e);
}

static mt_status fit(struct loading *l, mt_err *e)
{
    int64_t *sorted = malloc((size_t)(l->items->n + 1) * sizeof *sorted),
            *counts = calloc((size_t)l->job->n, sizeof *counts);
    mt_status st =
        sorted && counts ? MT_OK : mt_err_set(e, MT_IO, "no memory to list %" PRId64 " tensors", l->items->n);
    st = mt_job_agree(l->job, st, e);
    for (int64_t i = 0; i < l->items->n && st == MT_OK; i++) sorted[i] = i;
    if (st == MT_OK && l->items->n)
        qsort_r(sorted, (size_t)l->items->n, sizeof *sorted, by_name, l->items->item);
    if (st == MT_OK) st = fit_sorted(l, sorted, counts, e);
    free(sorted);
    free(counts);
    return st;
}

/* The same on all processes: they have the same list. */
static mt_status check_cover(const struct loading *l, mt_err *e)
{
    int64_t next = 0;
    for (int64_t i = 0; i < l->n_pieces; i++) {
        const struct mt_deal_piece *x = &l->piece[i];
        const struct mt_ckpt_item *it = &l->items->item[x->item];
        bool first = !i || x[-1].item != x->item, last = i + 1 == l->n_pieces || x[1].item != x->item;
        if (first) next = 0;
        MT_TRY(mt_source_next(&l->s, it->name, next, first ? -1 : (int)x[-1].file, x->row0, (int)x->file, e));
        next = x->row0 + x->rows;
        if (last) MT_TRY(mt_source_next(&l->s, it->name, next, (int)x->file, it->rows, -1, e));
    }
    return MT_OK;
}

/* ---- who needs what, and its bytes ---- */
static mt_status own_needs(struct loading *l, mt_err *e)
{
    const struct mt_ckpt_items *x = l->items;
    l->need = malloc((size_t)(x->n_pieces + 1) * sizeof *l->need);
    MT_REQUIRE(l->need, e, MT_IO, "no memory to list %" PRId64 " pieces of tensors", x->n_pieces);
    for (int64_t i = 0; i < x->n; i++) {
        if (l->weights_only && x->item[i].moment) continue;
        for (const struct mt_ckpt_piece *p = &x->piece[x->item[i].first], *end = p + x->item[i].n; p < end;
             p++)
            l->need[l->n_needs++] = (struct mt_deal_need){i, p->row0, p->rows, p->data, (int32_t)l->job->me};
    }
    return MT_OK;
}

static mt_status deal_out(struct loading *l, struct mt_deal_budget budget, mt_err *e)
{
    int64_t *counts = calloc((size_t)l->job->n, sizeof *counts);
    mt_status st = counts ? own_needs(l, e) : mt_err_set(e, MT_IO, "no memory for %d processes", l->job->n);
    st = mt_job_agree(l->job, st, e);
    void *need = l->need;
    if (st == MT_OK) st = share(l->job, &need, &l->n_needs, sizeof *l->need, counts, e);
    l->need = need;
    free(counts);
    MT_TRY(st);
    st = mt_deal_make(&l->deal, l->items, l->job, l->piece, l->n_pieces, l->need, l->n_needs, budget,
                      (struct mt_deal_holders){l->has}, e);
    l->piece = NULL;
    return mt_job_agree(l->job, st, e);
}

static int64_t needed_bytes(const struct loading *l)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < l->items->n; i++)
        if (!l->weights_only || !l->items->item[i].moment) bytes += mt_ckpt_item_bytes(&l->items->item[i]);
    return bytes;
}

static void close_loading(struct loading *l)
{
    mt_source_close(&l->s);
    free(l->list.x);
    free(l->piece);
    free(l->need);
    free(l->has);
    mt_deal_close(&l->deal);
}

static mt_status check_step(const struct loading *l, const struct mt_ckpt_demand *want, mt_err *e)
{
    int64_t step = l->s.manifest.meta.step;
    MT_REQUIRE(want->step < 0 || step == want->step, e, MT_CKPT, "'%s' holds step %" PRId64, l->s.path, step);
    return MT_OK;
}

static mt_status check_config(const struct loading *l, const struct mt_ckpt_demand *want, mt_err *e)
{
    mt_config old;
    if (!want->now || l->job->me != l->first) return MT_OK;
    MT_TRY(mt_ckpt_config(l->s.path, &old, e));
    return mt_config_resume_check(&old, want->now, e);
}

static mt_status load(struct loading *l, const char *path, const struct mt_ckpt_demand *want, bool *damaged,
                      mt_err *e)
{
    *damaged = true;
    MT_TRY(open_all(l, path, e));
    MT_TRY(check_step(l, want, e));
    *damaged = false;
    MT_TRY(mt_job_agree(l->job, check_config(l, want, e), e));
    MT_TRY(fit(l, e));
    *damaged = true;
    MT_TRY(check_cover(l, e));
    MT_TRY(deal_out(l, want->budget, e));
    return mt_fetch(&l->s, l->items, &l->deal, l->job, e);
}

mt_status mt_ckpt_load_as(const char *path, const struct mt_ckpt_demand *want,
                          const struct mt_ckpt_items *items, const struct mt_job *job,
                          struct mt_ckpt_loaded *out, mt_err *e)
{
    struct loading l = {.items = items, .job = job, .weights_only = want->weights_only, .local = want->local};
    double begun = mt_now();
    *out = (struct mt_ckpt_loaded){0};
    mt_status st = load(&l, path, want, &out->damaged, e);
    out->damaged = out->damaged && st == MT_CKPT;
    if (st == MT_OK) {
        int64_t bytes[] = {l.deal.read, l.deal.passed};
        mt_job_sum(job, bytes, 2);
        out->meta = l.s.manifest.meta;
        out->needed = needed_bytes(&l);
        out->local = want->local;
        out->read = bytes[0];
        out->passed = bytes[1];
        out->seconds = mt_now() - begun;
    }
    close_loading(&l);
    return st;
}

mt_status mt_ckpt_load(const char *path, const struct mt_ckpt_items *items, const struct mt_job *job,
                       bool weights_only, struct mt_ckpt_loaded *out, mt_err *e)
{
    const struct mt_ckpt_demand any = {.step = -1, .weights_only = weights_only, .budget = mt_deal_usual()};
    return mt_ckpt_load_as(path, &any, items, job, out, e);
}
