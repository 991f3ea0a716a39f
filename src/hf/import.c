#include "hf/import.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/compose.h"
#include "ckpt/file.h"
#include "ckpt/publish.h"
#include "ckpt/read.h"
#include "hf/config.h"
#include "hf/half.h"
#include "hf/match.h"
#include "hf/rows.h"
#include "hf/tokenizer.h"

enum { FILE_BYTES = 1 << 30, CONFIG_MOST = 1 << 24 };

struct importing {
    struct mt_hf_folder folder;
    struct mt_hf_tensors tensors;
    struct mt_hf_source *source; /* owned: where each is */
    mt_config *cfg;
    struct mt_shape shape;
    const char *to;
    struct mt_ckpt_items items; /* as the tensors */
    struct mt_parts parts;
    int64_t *first; /* owned, [ranks]: the first tensor of a new file */
    int ranks;
    FILE *notes;    /* what is to be told if nothing is refused */
    char *note;     /* owned: its text, as of the last flush */
    size_t n_notes; /* bytes of it */
    float nowhere;  /* the address of what is no more than a source */
    struct mt_manifest manifest;
};

/* ---- reading ---- */
/* A thread's: the bytes of all tensors, one behind the other, as f32. */
struct reader {
    const struct importing *x;
    int64_t tensor, done; /* the one at hand, and elements of it that are read */
    int fd, file;         /* open; -1 */
    char path[MT_HF_PATH + MT_HF_FILE];
    char *raw; /* MT_READ_CHUNK bytes */
};

static mt_status open_reader(void *arg, void **out, mt_err *e)
{
    struct reader *r = calloc(1, sizeof *r);
    *out = r;
    MT_REQUIRE(r, e, MT_IO, "no memory to read tensors");
    r->x = arg;
    r->fd = r->file = -1;
    r->raw = malloc(MT_READ_CHUNK);
    MT_REQUIRE(r->raw, e, MT_IO, "no memory to read tensors");
    return MT_OK;
}
static void close_reader(void *reader)
{
    struct reader *r = reader;
    if (r->fd >= 0) close(r->fd);
    free(r->raw);
    free(r);
}
static mt_status seek_rank(void *reader, int rank, mt_err *e)
{
    struct reader *r = reader;
    (void)e;
    r->tensor = r->x->first[rank];
    r->done = 0;
    return MT_OK;
}
static mt_status finish_rank(void *reader, mt_err *e)
{
    (void)reader, (void)e;
    return MT_OK;
}

static void convert(enum mt_tensor_type type, const char *raw, float *to, int64_t n)
{
    uint16_t h;
    if (type == MT_TENSOR_F32) {
        memcpy(to, raw, (size_t)n * 4);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(&h, raw + 2 * i, 2);
        to[i] = type == MT_TENSOR_BF16 ? mt_f32_of(h) : mt_f32_of_half(h);
    }
}

static mt_status open_file(struct reader *r, int file, mt_err *e)
{
    int64_t bytes;
    const struct mt_hf_folder *h = &r->x->folder;
    if (r->file == file) return MT_OK;
    if (r->fd >= 0) close(r->fd);
    r->file = r->fd = -1;
    snprintf(r->path, sizeof r->path, "%s/%s", h->path, h->name[file]);
    MT_TRY(mt_read_open(&r->fd, r->path, &bytes, e));
    r->file = file;
    return MT_OK;
}

/* Where the next element is in their tensor; *most: at most to the end of a run of rows that lie there as they do here. */
static int64_t place(const struct reader *r, int64_t *most)
{
    const struct mt_hf_tensor *t = &r->x->tensors.x[r->tensor];
    int64_t run, cols = t->cols ? t->cols : 1, in_row = r->done % cols;
    if (mt_hf_rows_alike(&r->x->shape, t->kind)) return r->done;
    int64_t row = mt_hf_their_row(&r->x->shape, t->kind, r->done / cols, &run);
    if (run <= t->rows && *most > run * cols - in_row) *most = run * cols - in_row;
    return row * cols + in_row;
}

/* At most to the end of the tensor at hand. */
static mt_status read_some(struct reader *r, float *to, int64_t most, int64_t *got, mt_err *e)
{
    const struct mt_hf_source *s = &r->x->source[r->tensor];
    int64_t all = mt_ckpt_item_bytes(&r->x->items.item[r->tensor]) / 4;
    *got = most < all - r->done ? most : all - r->done;
    if (*got > MT_READ_CHUNK / 4) *got = MT_READ_CHUNK / 4;
    if (s->file < 0)
        memset(to, 0, (size_t)*got * 4);
    else {
        int64_t size = mt_tensor_element(s->type), at = place(r, got);
        MT_TRY(open_file(r, s->file, e));
        MT_TRY(mt_read_at(r->fd, r->path, s->at + at * size, r->raw, *got * size, e));
        convert(s->type, r->raw, to, *got);
    }
    r->done += *got;
    if (r->done < all) return MT_OK;
    r->tensor++;
    r->done = 0;
    return MT_OK;
}

static mt_status read_bytes(void *reader, void *to, int64_t bytes, mt_err *e)
{
    float *p = to;
    for (int64_t left = bytes / 4, got; left > 0; left -= got, p += got)
        MT_TRY(read_some(reader, p, left, &got, e));
    return MT_OK;
}

/* ---- writing ---- */
/* Each tensor is in one file: that in whose share of all bytes it begins. */
static mt_status cut(struct importing *x, mt_err *e)
{
    int64_t n = x->tensors.n, all = 0, at = 0;
    x->items.item = calloc((size_t)n, sizeof *x->items.item);
    x->items.piece = calloc((size_t)n, sizeof *x->items.piece);
    MT_REQUIRE(x->items.item && x->items.piece, e, MT_IO, "no memory to list %" PRId64 " tensors", n);
    for (int64_t i = 0; i < n; i++) {
        const struct mt_hf_tensor *t = &x->tensors.x[i];
        x->items.item[i] = (struct mt_ckpt_item){.rows = t->rows, .cols = t->cols, .first = i, .n = 1};
        memcpy(x->items.item[i].name, t->ours, sizeof t->ours);
        all += mt_ckpt_item_bytes(&x->items.item[i]);
    }
    x->ranks = all / FILE_BYTES < 4095 ? (int)(all / FILE_BYTES) + 1 : 4096;
    x->first = malloc((size_t)x->ranks * sizeof *x->first);
    MT_REQUIRE(x->first, e, MT_IO, "no memory to list %d files", x->ranks);
    for (int64_t i = 0; i < n; i++) {
        int rank = (int)((double)at / (double)all * x->ranks);
        x->items.piece[i] =
            (struct mt_ckpt_piece){.data = &x->nowhere, .rows = x->items.item[i].rows, .rank = rank};
        if (!i || x->items.piece[i - 1].rank != rank) x->first[rank] = i;
        at += mt_ckpt_item_bytes(&x->items.item[i]);
    }
    x->items.n = x->items.n_pieces = n;
    return mt_parts_open(&x->parts, &x->items, x->ranks, NULL, e);
}

static mt_status write_config(struct importing *x, mt_err *e)
{
    char path[MT_CKPT_PATH + 16], *text;
    int64_t bytes;
    uint64_t sum;
    snprintf(path, sizeof path, "%s/config.yaml", x->to);
    MT_TRY(mt_saving_config(x->cfg, &text, &bytes, e));
    mt_status st = mt_write_file(path, text, bytes, &sum, e);
    free(text);
    MT_TRY(st);
    return mt_manifest_add(&x->manifest, "config.yaml", bytes, sum, e);
}

static mt_status write_all(struct importing *x, struct mt_progress *progress, mt_err *e)
{
    const struct mt_compose_source from = {x, open_reader, seek_rank, read_bytes, finish_rank, close_reader};
    x->manifest.world = x->ranks;
    MT_TRY(mt_compose(x->to, &x->parts, &from, &x->manifest, progress, e));
    MT_TRY(write_config(x, e));
    return mt_manifest_write(&x->manifest, x->to, e);
}

static mt_status tell(struct importing *x, FILE *told, mt_err *e)
{
    MT_REQUIRE(!fflush(x->notes) && !ferror(x->notes), e, MT_IO, "no memory for what is to be told");
    fwrite(x->note, 1, x->n_notes, told);
    return MT_OK;
}

static mt_status write_folder(struct importing *x, FILE *told, struct mt_progress *progress, mt_err *e)
{
    mt_err ignored = {0};
    MT_TRY(mt_compose_folder(x->to, e));
    mt_status st = tell(x, told, e);
    if (st == MT_OK) st = write_all(x, progress, e);
    if (st != MT_OK && mt_remove_folder(x->to, "manifest.json", &ignored) != MT_OK)
        mt_err_while(e, "'%s' could not be removed after a failure", x->to);
    return st;
}

/* ---- what is there ---- */
static mt_status read_config(const char *from, mt_config *c, enum mt_hf_family *f, FILE *told, mt_err *e)
{
    char path[MT_HF_PATH + 16], *text, unused[MT_HF_UNUSED];
    int64_t bytes;
    MT_REQUIRE(strlen(from) < MT_HF_PATH, e, MT_CONFIG, "the path of the folder is too long: '%.60s...'",
               from);
    snprintf(path, sizeof path, "%s/config.json", from);
    MT_TRY(mt_read_whole(path, CONFIG_MOST, &text, &bytes, e));
    mt_status st = mt_hf_config_read(c, f, path, text, bytes, unused, e);
    free(text);
    MT_TRY(st);
    fprintf(told, "family: %s\n", mt_hf_type(*f));
    if (unused[0]) fprintf(told, "ignored: of config.json, as no option here depends on it: %s\n", unused);
    return MT_OK;
}

/* A run that begins with the configuration passes the files on to its exports. */
static mt_status note_tokenizer(const char *from, mt_config *c, FILE *told, mt_err *e)
{
    struct mt_hf_tokenizer t;
    char whole[PATH_MAX];
    MT_TRY(mt_hf_tokenizer_find(&t, from, e));
    if (!t.n || !realpath(from, whole) || strlen(whole) >= sizeof c->data_tokenizer) return MT_OK;
    memcpy(c->data_tokenizer, whole, strlen(whole) + 1);
    fprintf(told, "tokenizer: data.tokenizer is %s, for exports\n", whole);
    return MT_OK;
}

static mt_status import(struct importing *x, enum mt_hf_family f, FILE *told, struct mt_progress *progress,
                        mt_err *e)
{
    x->shape = mt_shape_of(x->cfg);
    MT_TRY(mt_hf_tensors_open(&x->tensors, f, &x->shape, e));
    x->source = calloc((size_t)x->tensors.n, sizeof *x->source);
    MT_REQUIRE(x->source, e, MT_IO, "no memory to list %" PRId64 " tensors", x->tensors.n);
    MT_TRY(mt_hf_match(&x->folder, &x->tensors, &x->shape, x->source, x->notes, e));
    MT_TRY(cut(x, e));
    return write_folder(x, told, progress, e);
}

static mt_status import_noting(struct importing *x, const char *from, bool mtp, FILE *told,
                               struct mt_progress *progress, mt_err *e)
{
    enum mt_hf_family f;
    MT_TRY(read_config(from, x->cfg, &f, x->notes, e));
    MT_REQUIRE(!mtp || x->cfg->model_mtp_depth, e, MT_CONFIG,
               "'%s' has no layers that predict further tokens (num_nextn_predict_layers); leave out --mtp",
               from);
    if (!mtp) x->cfg->model_mtp_depth = 0;
    MT_TRY(note_tokenizer(from, x->cfg, x->notes, e));
    MT_TRY(mt_hf_folder_open(&x->folder, from, e));
    mt_status st = import(x, f, told, progress, e);
    free(x->first);
    free(x->source);
    mt_parts_close(&x->parts);
    mt_ckpt_items_close(&x->items);
    mt_manifest_release(&x->manifest);
    mt_hf_tensors_close(&x->tensors);
    mt_hf_folder_close(&x->folder);
    return st;
}

mt_status mt_hf_import(const char *from, const char *to, bool mtp, FILE *told, struct mt_progress *progress,
                       mt_err *e)
{
    static mt_config const zero;
    mt_config cfg = zero;
    struct importing x = {.cfg = &cfg, .to = to};
    x.notes = open_memstream(&x.note, &x.n_notes);
    MT_REQUIRE(x.notes, e, MT_IO, "no memory for what is to be told");
    mt_status st = import_noting(&x, from, mtp, told, progress, e);
    fclose(x.notes);
    free(x.note);
    return st;
}
