#include "ckpt/source.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/file.h"
#include "ckpt/read.h"
#include "ckpt/tensors.h"

enum { MANIFEST_MOST = 16 << 20 };
static const char tensors_end[] = ".safetensors", sums_end[] = ".json";

static void file_path(char path[MT_SOURCE_FILE], const struct mt_source *s, const char *name)
{
    snprintf(path, MT_SOURCE_FILE, "%s/%s", s->path, name);
}
static void rank_name(char name[64], int rank, const char *end)
{
    snprintf(name, 64, "rank-%05d%s", rank, end);
}
/* The rank in the name of its file; -1: it is another one's name. */
static int rank_of(const char *name, const char *end)
{
    char again[64];
    if (strncmp(name, "rank-", 5)) return -1;
    long rank = strtol(name + 5, NULL, 10);
    if (rank < 0 || rank >= 1 << 24) return -1;
    rank_name(again, (int)rank, end);
    return strcmp(name, again) ? -1 : (int)rank;
}

bool mt_source_of_rank(const char *name)
{
    return rank_of(name, tensors_end) >= 0 || rank_of(name, sums_end) >= 0;
}

void mt_source_tensors(const struct mt_source *s, int f, char path[MT_SOURCE_FILE])
{
    char name[64];
    rank_name(name, s->rank[f], tensors_end);
    file_path(path, s, name);
}

/* ---- opening ---- */
static int ascending(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

/* The ranks by the manifest: each has two files. */
static mt_status find_ranks(struct mt_source *s, mt_err *e)
{
    const struct mt_manifest *m = &s->manifest;
    MT_REQUIRE(mt_manifest_find(m, "config.yaml"), e, MT_CKPT, "'%s/manifest.json' does not list config.yaml",
               s->path);
    s->rank = malloc((size_t)m->n * sizeof *s->rank);
    MT_REQUIRE(s->rank, e, MT_IO, "no memory to list the files of '%s'", s->path);
    for (int64_t i = 0; i < m->n; i++) {
        char other[64];
        int tensors = rank_of(m->file[i].name, tensors_end), sums = rank_of(m->file[i].name, sums_end);
        if (tensors < 0 && sums < 0) continue;
        rank_name(other, tensors >= 0 ? tensors : sums, tensors >= 0 ? sums_end : tensors_end);
        MT_REQUIRE(mt_manifest_find(m, other), e, MT_CKPT, "'%s/manifest.json' lists %s and not %s", s->path,
                   m->file[i].name, other);
        MT_REQUIRE((tensors >= 0 ? tensors : sums) < (m->version == 1 ? 1 : m->world), e, MT_CKPT,
                   "'%s/manifest.json' lists %s in a checkpoint of %d ranks", s->path, m->file[i].name,
                   m->version == 1 ? 1 : m->world);
        if (tensors >= 0) s->rank[s->n++] = tensors;
    }
    MT_REQUIRE(s->n, e, MT_CKPT, "'%s/manifest.json' lists no rank-00000.safetensors nor any other rank's",
               s->path);
    qsort(s->rank, (size_t)s->n, sizeof *s->rank, ascending);
    return MT_OK;
}

/* Tensors that the manifest does not know are of another save: a reader that goes by names would take them. */
mt_status mt_source_surplus(const struct mt_source *s, mt_err *e)
{
    mt_status st = MT_OK;
    DIR *d = opendir(s->path);
    MT_REQUIRE(d, e, MT_IO, "cannot list '%s': %s", s->path, strerror(errno));
    for (struct dirent *f; st == MT_OK && (f = readdir(d));)
        if (mt_source_of_rank(f->d_name) && !mt_manifest_find(&s->manifest, f->d_name))
            st = mt_err_set(e, MT_CKPT,
                            "'%s/%s' is not in the checkpoint's manifest: it is of another save; remove it",
                            s->path, f->d_name);
    closedir(d);
    return st;
}

mt_status mt_source_open_as(struct mt_source *s, const char *path, const char *text, int64_t bytes, mt_err *e)
{
    char name[MT_SOURCE_FILE];
    *s = (struct mt_source){0};
    MT_REQUIRE(strlen(path) < MT_CKPT_PATH, e, MT_CONFIG,
               "the path of the checkpoint is too long: '%.60s...'", path);
    snprintf(s->path, sizeof s->path, "%s", path);
    file_path(name, s, "manifest.json");
    MT_TRY(mt_manifest_parse(&s->manifest, name, text, bytes, e));
    mt_status st = find_ranks(s, e);
    if (st != MT_OK) mt_source_close(s);
    return st;
}

mt_status mt_source_manifest(const char *path, char **text, int64_t *bytes, mt_err *e)
{
    char name[MT_SOURCE_FILE];
    *text = NULL;
    MT_REQUIRE(strlen(path) < MT_CKPT_PATH, e, MT_CONFIG,
               "the path of the checkpoint is too long: '%.60s...'", path);
    snprintf(name, sizeof name, "%s/ckpt", path);
    MT_REQUIRE(access(name, F_OK), e, MT_CKPT,
               "'%s' is the folder of a run: name one of its checkpoints, as '%s/step-00000500'", path, name);
    snprintf(name, sizeof name, "%s/manifest.json", path);
    return mt_read_whole(name, MANIFEST_MOST, text, bytes, e);
}

void mt_source_list_of_node(const char *path, char list[MT_SOURCE_FILE])
{
    snprintf(list, MT_SOURCE_FILE, "%.*s/%s", MT_CKPT_PATH - 1, path, MT_HELD_FILE);
}
bool mt_source_of_node(const char *path)
{
    char list[MT_SOURCE_FILE];
    mt_source_list_of_node(path, list);
    return !access(list, F_OK);
}

mt_status mt_source_open(struct mt_source *s, const char *path, mt_err *e)
{
    char *text;
    int64_t bytes;
    *s = (struct mt_source){0};
    MT_TRY(mt_source_manifest(path, &text, &bytes, e));
    mt_status st = mt_source_open_as(s, path, text, bytes, e);
    free(text);
    if (st == MT_OK) st = mt_source_surplus(s, e);
    if (st != MT_OK) mt_source_close(s);
    return st;
}

void mt_source_close(struct mt_source *s)
{
    mt_manifest_release(&s->manifest);
    free(s->rank);
    *s = (struct mt_source){0};
}

/* ---- files ---- */
mt_status mt_source_size(const struct mt_source *s, const struct mt_manifest_file *f, mt_err *e)
{
    char path[MT_SOURCE_FILE];
    struct stat st;
    file_path(path, s, f->name);
    MT_REQUIRE(!stat(path, &st), e, errno == ENOENT ? MT_CKPT : MT_IO, "cannot find '%s': %s", path,
               strerror(errno));
    MT_REQUIRE(S_ISREG(st.st_mode) && st.st_size == f->bytes, e, MT_CKPT,
               "'%s' has %lld bytes, its manifest says %" PRId64, path, (long long)st.st_size, f->bytes);
    return MT_OK;
}

bool mt_source_is_here(const struct mt_source *s, const char *name)
{
    int tensors = rank_of(name, tensors_end), rank = tensors >= 0 ? tensors : rank_of(name, sums_end);
    bool here = rank < 0 || !s->part;
    for (int f = 0; f < s->n && !here; f++) here = s->rank[f] == rank;
    return here;
}

bool mt_source_has(const struct mt_source *s, int f)
{
    char name[64];
    mt_err e = {0};
    rank_name(name, s->rank[f], tensors_end);
    if (mt_source_size(s, mt_manifest_find(&s->manifest, name), &e) != MT_OK) return false;
    rank_name(name, s->rank[f], sums_end);
    return mt_source_size(s, mt_manifest_find(&s->manifest, name), &e) == MT_OK;
}

mt_status mt_source_text(const struct mt_source *s, const char *name, char **text, int64_t *bytes, mt_err *e)
{
    char path[MT_SOURCE_FILE];
    const struct mt_manifest_file *f = mt_manifest_find(&s->manifest, name);
    file_path(path, s, name);
    *text = NULL;
    MT_REQUIRE(f, e, MT_CKPT, "'%s/manifest.json' does not list %s", s->path, name);
    MT_TRY(mt_source_size(s, f, e));
    MT_TRY(mt_read_whole(path, f->bytes, text, bytes, e));
    uint64_t sum = mt_xxh3(*text, *bytes);
    if (*bytes == f->bytes && sum == f->xxh3) return MT_OK;
    free(*text);
    *text = NULL;
    MT_FAIL(e, MT_CKPT,
            "'%s' is damaged: %" PRId64 " bytes with checksum %016" PRIx64 ", its manifest says %" PRId64
            " with %016" PRIx64,
            path, *bytes, sum, f->bytes, f->xxh3);
}

/* ---- what a file holds ---- */
static mt_status add(struct mt_stored_list *l, const struct mt_stored *x, mt_err *e)
{
    if (l->n == l->room) {
        int64_t room = l->room ? 2 * l->room : 256;
        struct mt_stored *more = realloc(l->x, (size_t)room * sizeof *more);
        MT_REQUIRE(more, e, MT_IO, "no memory to list %" PRId64 " pieces of tensors", room);
        l->x = more;
        l->room = room;
    }
    l->x[l->n++] = *x;
    return MT_OK;
}

/* A file with what was written beside it: header, checksums, and their paths. */
struct pair {
    const struct mt_tensors *t;
    const struct mt_sums *sums;
    const char *path, *sums_path;
    int file;
};

static mt_status stored_of(const struct pair *p, const struct mt_tensor_entry *x,
                           const struct mt_sums_entry *sum, struct mt_stored *out, mt_err *e)
{
    *out = (struct mt_stored){.file = p->file, .at = p->t->data + x->begin, .xxh3 = sum->xxh3};
    MT_REQUIRE(mt_sums_key(sum->key, out->name, &out->row0), e, MT_CKPT,
               "'%s' lists a tensor with no plain name", p->sums_path);
    out->n = x->shape[0];
    out->rows = sum->whole ? x->shape[0] : sum->rows;
    out->cols = sum->whole ? x->shape[1] : sum->cols;
    MT_REQUIRE(!sum->whole || !strchr(sum->key, '@'), e, MT_CKPT,
               "'%s' has rows of tensor '%.100s', in a checkpoint of whole ones", p->path, out->name);
    MT_REQUIRE(x->shape[1] == out->cols && out->row0 <= out->rows && out->n <= out->rows - out->row0, e,
               MT_CKPT,
               "'%s': tensor '%.120s' is [%" PRId64 ", %" PRId64 "], which are no rows of the [%" PRId64
               ", %" PRId64 "] of '%s' (0: a vector)",
               p->path, x->name, x->shape[0], x->shape[1], out->rows, out->cols, p->sums_path);
    MT_REQUIRE(out->n || !out->rows, e, MT_CKPT, "'%s': tensor '%.120s' has no rows", p->path, x->name);
    return MT_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct mt_stored *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Both lists are in the order of their keys. */
static mt_status join(const struct pair *p, struct mt_stored_list *list, mt_err *e)
{
    int64_t first = list->n;
    for (int64_t i = 0, k = 0; i < p->t->n || k < p->sums->n; i++, k++) {
        const struct mt_tensor_entry *x = i < p->t->n ? &p->t->entry[i] : NULL;
        const struct mt_sums_entry *sum = k < p->sums->n ? &p->sums->entry[k] : NULL;
        int order = !x ? 1 : !sum ? -1 : strcmp(x->name, sum->key);
        struct mt_stored stored;
        MT_REQUIRE(order >= 0, e, MT_CKPT, "'%s' holds tensor '%.120s', which '%s' does not list", p->path,
                   x->name, p->sums_path);
        MT_REQUIRE(order <= 0, e, MT_CKPT, "'%s' lists tensor '%.120s', which '%s' does not hold",
                   p->sums_path, sum->key, p->path);
        MT_TRY(stored_of(p, x, sum, &stored, e));
        MT_TRY(add(list, &stored, e));
    }
    if (list->n > first) qsort(list->x + first, (size_t)(list->n - first), sizeof *list->x, by_place);
    return MT_OK;
}

/* What the header says of itself; nothing else in it but white space is without meaning. */
static mt_status check_metadata(const struct mt_source *s, const struct pair *p, mt_err *e)
{
    char rank[16], world[16];
    bool first = s->manifest.version == 1;
    snprintf(rank, sizeof rank, "%d", s->rank[p->file]);
    snprintf(world, sizeof world, "%d", s->manifest.world);
    MT_REQUIRE(mt_tensors_told(p->t, "format", "pt") &&
                   mt_tensors_told(p->t, "moetitan", first ? "1" : "2") &&
                   mt_tensors_told(p->t, "rank", rank) && mt_tensors_told(p->t, "world", world),
               e, MT_CKPT, "'%s': the header does not say that this is rank %s's file of %s, version %d",
               p->path, rank, world, s->manifest.version);
    return MT_OK;
}

static mt_status list_pair(const struct mt_source *s, struct pair *p, const struct mt_manifest_file *f,
                           struct mt_stored_list *list, mt_err *e)
{
    struct mt_tensors t;
    MT_REQUIRE(p->sums->has_file == (s->manifest.version != 1), e, MT_CKPT,
               "'%s' is of another version than its manifest, which says %d", p->sums_path,
               s->manifest.version);
    MT_REQUIRE(!p->sums->has_file || (p->sums->bytes == f->bytes && p->sums->xxh3 == f->xxh3), e, MT_CKPT,
               "'%s' tells of a file of %" PRId64 " bytes with checksum %016" PRIx64
               ", the manifest of %" PRId64 " with %016" PRIx64,
               p->sums_path, p->sums->bytes, p->sums->xxh3, f->bytes, f->xxh3);
    MT_TRY(mt_tensors_open(&t, p->path, e));
    p->t = &t;
    mt_status st = check_metadata(s, p, e);
    if (st == MT_OK) st = join(p, list, e);
    mt_tensors_close(&t);
    return st;
}

mt_status mt_source_list(const struct mt_source *s, int f, struct mt_stored_list *list, mt_err *e)
{
    char name[64], path[MT_SOURCE_FILE], sums_path[MT_SOURCE_FILE], *text;
    struct mt_sums sums;
    struct pair p = {.sums = &sums, .path = path, .sums_path = sums_path, .file = f};
    int64_t bytes;
    rank_name(name, s->rank[f], tensors_end);
    file_path(path, s, name);
    const struct mt_manifest_file *file = mt_manifest_find(&s->manifest, name);
    MT_TRY(mt_source_size(s, file, e));
    rank_name(name, s->rank[f], sums_end);
    file_path(sums_path, s, name);
    MT_TRY(mt_source_text(s, name, &text, &bytes, e));
    mt_status st = mt_sums_parse(&sums, sums_path, text, bytes, e);
    free(text);
    MT_TRY(st);
    st = list_pair(s, &p, file, list, e);
    mt_sums_release(&sums);
    return st;
}
