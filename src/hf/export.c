#include "hf/export.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/parallel.h"
#include "ckpt/ckpt.h"
#include "ckpt/file.h"
#include "ckpt/read.h"
#include "ckpt/scan.h"
#include "ckpt/sink.h"
#include "hf/config.h"
#include "hf/rows.h"
#include "hf/shards.h"

enum { NAME_MOST = MT_SOURCE_FILE - MT_CKPT_PATH }; /* bytes of a file's name, with its end */

struct exporting {
    const struct mt_hf_export *how;
    const char *to, *folder; /* in the end, and while it is written */
    struct mt_source source;
    struct mt_stored_list list;
    struct mt_shape shape;
    struct mt_hf_tensors tensors;
    int64_t *piece,
        *second; /* owned: [tensors.n] the first of each in the list; that of the tensor of ours that theirs holds besides, of
                                the next kind; -1 */
    struct mt_hf_shards shards;
    struct mt_tasks files;
};
/* A thread's. */
struct writer {
    struct exporting *x;
    struct mt_scan scan;
    struct mt_sink sink;
    float *numbers; /* MT_READ_CHUNK bytes of what is read */
    float *whole;   /* a tensor whose rows are put in another order; room: numbers */
    int64_t room;
};

/* ---- a file ---- */
static mt_status put_bf16(struct writer *w, const float *numbers, int64_t n, mt_err *e)
{
    for (int64_t i = 0; i < n;) {
        int64_t room;
        char *to = mt_sink_room(&w->sink, &room);
        int64_t some = n - i < room / 2 ? n - i : room / 2;
        for (int64_t k = 0; k < some; k++) {
            mt_bf16 h = mt_bf16_of(numbers[i + k]);
            memcpy(to + 2 * k, &h, 2);
        }
        i += some;
        MT_TRY(mt_sink_took(&w->sink, 2 * some, e));
    }
    return MT_OK;
}

static mt_status put(struct writer *w, const struct mt_hf_tensor *t, const float *numbers, int64_t n,
                     mt_err *e)
{
    if (mt_hf_is_bf16(t, w->x->how->bf16))
        MT_TRY(put_bf16(w, numbers, n, e));
    else
        MT_TRY(mt_sink_put(&w->sink, numbers, 4 * n, e));
    if (w->x->how->progress) atomic_fetch_add(&w->x->how->progress->done, 4 * n);
    return MT_OK;
}

/* Rows of a tensor of ours to their places in theirs; read in order, so that they are verified. */
static mt_status place_rows(struct writer *w, int kind, int64_t piece, int64_t cols, mt_err *e)
{
    const struct mt_shape *s = &w->x->shape;
    int64_t rows = w->x->list.x[piece].rows;
    mt_scan_seek(&w->scan, piece, 0);
    for (int64_t row = 0, n; row < rows; row += n) {
        int64_t to = mt_hf_their_row(s, kind, row, &n);
        if (n > rows - row) n = rows - row;
        MT_TRY(mt_scan_read(&w->scan, w->whole + to * cols, 4 * n * cols, e));
    }
    return MT_OK;
}

static mt_status put_reordered(struct writer *w, int64_t i, mt_err *e)
{
    const struct mt_hf_tensor *t = &w->x->tensors.x[i];
    int64_t all = mt_hf_numbers(t);
    if (all > w->room) {
        free(w->whole);
        w->whole = malloc((size_t)all * sizeof *w->whole);
        w->room = w->whole ? all : 0;
        MT_REQUIRE(w->whole, e, MT_IO, "no memory for '%s'", t->theirs);
    }
    MT_TRY(place_rows(w, t->kind, w->x->piece[i], t->cols, e));
    if (w->x->second[i] >= 0) MT_TRY(place_rows(w, t->kind + 1, w->x->second[i], t->cols, e));
    return put(w, t, w->whole, all, e);
}

static mt_status put_tensor(struct writer *w, int64_t i, mt_err *e)
{
    const struct mt_hf_tensor *t = &w->x->tensors.x[i];
    if (!mt_hf_rows_alike(&w->x->shape, t->kind)) return put_reordered(w, i, e);
    mt_scan_seek(&w->scan, w->x->piece[i], 0);
    for (int64_t left = mt_hf_numbers(t), n; left > 0; left -= n) {
        n = left < MT_READ_CHUNK / 4 ? left : MT_READ_CHUNK / 4;
        MT_TRY(mt_scan_read(&w->scan, w->numbers, 4 * n, e));
        MT_TRY(put(w, t, w->numbers, n, e));
    }
    return MT_OK;
}

static mt_status write_shard(struct writer *w, const struct mt_hf_shard *s, mt_err *e)
{
    snprintf(w->sink.path, sizeof w->sink.path, "%s/%s", w->x->folder, s->name);
    MT_TRY(mt_sink_open(&w->sink, s->bytes, e));
    MT_TRY(mt_sink_put(&w->sink, s->head, s->head_bytes, e));
    for (int64_t i = s->first; i < s->first + s->n; i++) MT_TRY(put_tensor(w, i, e));
    return mt_sink_end(&w->sink, e);
}

static mt_status open_writer(struct writer *w, mt_err *e)
{
    w->numbers = malloc(MT_READ_CHUNK);
    MT_REQUIRE(w->numbers, e, MT_IO, "no memory to write '%s'", w->x->folder);
    MT_TRY(mt_sink_init(&w->sink, e));
    return mt_scan_open(&w->scan, &w->x->source, &w->x->list, e);
}

static void *write_some(void *arg)
{
    struct exporting *x = arg;
    struct writer w = {.x = x, .scan.fd = -1, .sink.fd = -1};
    mt_err e = {0};
    mt_status st = open_writer(&w, &e);
    for (int64_t f; mt_tasks_next(&x->files, &f);) {
        if (st == MT_OK) st = write_shard(&w, &x->shards.x[f], &e);
        if (st == MT_OK) continue;
        mt_tasks_stop(&x->files);
        mt_tasks_fail(&x->files, f, &e);
    }
    mt_scan_close(&w.scan);
    mt_sink_release(&w.sink);
    free(w.numbers);
    free(w.whole);
    return NULL;
}

static mt_status write_shards(struct exporting *x, mt_err *e)
{
    mt_tasks_open(&x->files, x->shards.n, e);
    return mt_tasks_run(&x->files, write_some, x);
}

/* ---- all files ---- */
static mt_status write_text(const struct exporting *x, const char *name, const char *text, int64_t bytes,
                            mt_err *e)
{
    char path[MT_SOURCE_FILE];
    uint64_t sum;
    snprintf(path, sizeof path, "%s/%s", x->folder, name);
    return mt_write_file(path, text, bytes, &sum, e);
}

static mt_status write_index(const struct exporting *x, mt_err *e)
{
    char *text;
    int64_t bytes;
    if (x->shards.n == 1) return MT_OK;
    MT_TRY(mt_hf_shards_index(&x->shards, &x->tensors, &text, &bytes, e));
    mt_status st = write_text(x, "model.safetensors.index.json", text, bytes, e);
    free(text);
    return st;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static mt_status copy_tokenizer(const struct exporting *x, mt_err *e)
{
    for (int i = 0; i < x->how->n_tokenizer; i++) {
        char path[MT_SOURCE_FILE];
        const char *from = x->how->tokenizer[i];
        struct stat st;
        MT_REQUIRE(strlen(name_of(from)) < NAME_MOST, e, MT_CONFIG,
                   "the name of the tokenizer's '%.200s' is too long", from);
        snprintf(path, sizeof path, "%s/%s", x->folder, name_of(from));
        MT_REQUIRE(!stat(from, &st) && S_ISREG(st.st_mode), e, MT_IO, "cannot read the tokenizer's '%s'",
                   from);
        MT_REQUIRE(lstat(path, &(struct stat){0}), e, MT_CONFIG,
                   "the tokenizer's '%s' has the name of a file that is there already", from);
        MT_TRY(mt_copy_file(path, from, st.st_size, e));
    }
    return MT_OK;
}

/* The new name is on the disk. */
static mt_status sync_above(const char *folder, mt_err *e)
{
    char above[MT_CKPT_PATH];
    const char *slash = strrchr(folder, '/');
    int n = slash && slash > folder ? (int)(slash - folder) : 1;
    snprintf(above, sizeof above, "%.*s", n, slash ? folder : ".");
    return mt_sync_folder(above, e);
}

static mt_status write_all(struct exporting *x, const mt_config *c, enum mt_hf_family f, mt_err *e)
{
    char *text;
    int64_t bytes;
    MT_TRY(mt_hf_config_write(c, f, x->how->bf16, &text, &bytes, e));
    mt_status st = write_text(x, "config.json", text, bytes, e);
    free(text);
    MT_TRY(st);
    MT_TRY(write_shards(x, e));
    MT_TRY(write_index(x, e));
    MT_TRY(copy_tokenizer(x, e));
    MT_TRY(mt_sync_folder(x->folder, e));
    MT_REQUIRE(!rename(x->folder, x->to), e, MT_IO, "cannot rename '%s' to '%s': %s", x->folder, x->to,
               strerror(errno));
    return sync_above(x->to, e);
}

static mt_status write_folder(struct exporting *x, const mt_config *c, enum mt_hf_family f, mt_err *e)
{
    mt_err ignored = {0};
    MT_TRY(mt_ckpt_vacant(x->to, e));
    MT_TRY(mt_remove_folder(x->folder, NULL, e)); /* of an export that did not end */
    MT_TRY(mt_make_folders(x->folder, e));
    mt_status done = write_all(x, c, f, e);
    if (done != MT_OK && mt_remove_folder(x->folder, NULL, &ignored) != MT_OK)
        mt_err_while(e, "'%s' could not be removed after a failure", x->folder);
    return done;
}

/* ---- what is there ---- */
static int by_stored_name(const void *name, const void *stored)
{
    return strcmp(name, ((const struct mt_stored *)stored)->name);
}

/* The first piece of a tensor, which has its shape. */
static mt_status find(const struct exporting *x, const struct mt_hf_tensor *t, int64_t *piece, mt_err *e)
{
    const struct mt_stored_list *l = &x->list;
    const struct mt_stored *p = l->n ? bsearch(t->ours, l->x, (size_t)l->n, sizeof *l->x, by_stored_name)
                                     : NULL;
    MT_REQUIRE(p, e, MT_CKPT, "'%s' has no tensor '%s', which its configuration asks for", x->source.path,
               t->ours);
    MT_REQUIRE(p->rows == t->rows && p->cols == t->cols, e, MT_CKPT,
               "'%s': tensor '%s' is [%" PRId64 ", %" PRId64 "], its configuration makes it [%" PRId64
               ", %" PRId64 "] (0: a vector)",
               x->source.path, t->ours, p->rows, p->cols, t->rows, t->cols);
    *piece = p - l->x;
    while (*piece && !strcmp(l->x[*piece - 1].name, t->ours)) --*piece;
    return MT_OK;
}

/* What the family has no name for must be nothing. */
static mt_status check_zeros(struct exporting *x, enum mt_hf_family f, const struct mt_hf_tensor *t,
                             int64_t piece, mt_err *e)
{
    struct mt_scan scan;
    float *v = malloc((size_t)mt_hf_numbers(t) * sizeof *v);
    mt_status st = mt_scan_open(&scan, &x->source, &x->list, e);
    if (st == MT_OK && !v) st = mt_err_set(e, MT_IO, "no memory to read '%s'", t->ours);
    if (st == MT_OK) {
        mt_scan_seek(&scan, piece, 0);
        st = mt_scan_read(&scan, v, 4 * mt_hf_numbers(t), e);
    }
    for (int64_t i = 0; i < mt_hf_numbers(t) && st == MT_OK; i++)
        if (v[i] < 0 || !(v[i] <= 0))
            st = mt_err_set(
                e, MT_CONFIG,
                "%s[%" PRId64 "] is %g: model.bias_rate has moved the selection biases, which %s does "
                "not have; only a model with model.score: sigmoid can keep them (glm4_moe, deepseek_v3)",
                t->ours, i, (double)v[i], mt_hf_type(f));
    mt_scan_close(&scan);
    free(v);
    return st;
}

/* Leaves in the list what the family has names for; of several tensors in one of theirs the first, which the next follow. */
static mt_status choose(struct exporting *x, enum mt_hf_family f, mt_err *e)
{
    int64_t n = 0, all = 0;
    x->piece = calloc((size_t)x->tensors.n, sizeof *x->piece);
    x->second = calloc((size_t)x->tensors.n, sizeof *x->second);
    MT_REQUIRE(x->piece && x->second, e, MT_IO, "no memory to list %" PRId64 " tensors", x->tensors.n);
    for (int64_t i = 0; i < x->tensors.n; i++) {
        struct mt_hf_tensor t = x->tensors.x[i];
        MT_TRY(find(x, &t, &x->piece[n], e));
        if (!t.theirs[0]) {
            MT_TRY(check_zeros(x, f, &t, x->piece[n], e));
            continue;
        }
        if (n && !strcmp(x->tensors.x[n - 1].theirs, t.theirs)) {
            x->second[n - 1] = x->piece[n];
            continue;
        }
        t.rows = t.their_rows;
        x->second[n] = -1;
        x->tensors.x[n++] = t;
        all += 4 * mt_hf_numbers(&t);
    }
    x->tensors.n = n;
    if (x->how->progress) atomic_store(&x->how->progress->total, all);
    return MT_OK;
}

/* Of a family without names for them, modules that predict further tokens stay behind: they only help training. */
static void leave_modules(const struct exporting *x, enum mt_hf_family f, struct mt_shape *s)
{
    struct mt_shape alone = mt_shape_alone(s);
    if (!s->mtp || mt_hf_has_mtp(f)) return;
    if (x->how->told)
        fprintf(x->how->told,
                "left out: layers.%" PRId64 " and behind, the modules of model.mtp_depth: %s has none\n",
                alone.L, mt_hf_type(f));
    *s = alone;
}

static mt_status export(struct exporting *x, const mt_config *c, mt_err *e)
{
    enum mt_hf_family f;
    x->shape = mt_shape_of(c);
    MT_TRY(mt_hf_family_of(c, &f, e));
    leave_modules(x, f, &x->shape);
    MT_TRY(mt_source_list_all(&x->source, &x->list, e));
    MT_TRY(mt_hf_tensors_open(&x->tensors, f, &x->shape, e));
    MT_TRY(choose(x, f, e));
    MT_TRY(mt_hf_shards_open(&x->shards, &x->tensors, x->how->bf16, x->how->shard_bytes, e));
    return write_folder(x, c, f, e);
}

/* A slash at the end would make the name of the writing one inside the folder. */
static mt_status name_folders(const char *given, char to[MT_CKPT_PATH], char folder[MT_CKPT_PATH], mt_err *e)
{
    size_t n = strlen(given);
    while (n > 1 && given[n - 1] == '/') n--;
    MT_REQUIRE(n && n + sizeof ".exporting" <= MT_CKPT_PATH, e, MT_CONFIG,
               "the path of the folder is empty or too long: '%.60s'", given);
    snprintf(to, MT_CKPT_PATH, "%.*s", (int)n, given);
    snprintf(folder, MT_CKPT_PATH, "%.*s.exporting", (int)n, given);
    return MT_OK;
}

mt_status mt_hf_export(const char *from, const char *to, const struct mt_hf_export *how, int *files,
                       mt_err *e)
{
    static mt_config const zero;
    mt_config cfg = zero;
    char named[MT_CKPT_PATH], folder[MT_CKPT_PATH];
    struct exporting x = {.how = how, .to = named, .folder = folder};
    MT_TRY(name_folders(to, named, folder, e));
    MT_TRY(mt_ckpt_config(from, &cfg, e));
    MT_TRY(mt_source_open(&x.source, from, e));
    mt_status st = export(&x, &cfg, e);
    *files = x.shards.n;
    mt_hf_shards_close(&x.shards);
    mt_hf_tensors_close(&x.tensors);
    mt_source_close(&x.source);
    free(x.list.x);
    free(x.piece);
    free(x.second);
    return st;
}
