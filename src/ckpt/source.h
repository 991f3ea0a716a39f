/* source.h: a checkpoint that is read: its files, and where in them every tensor lies. Both versions of the format. */
#ifndef MT_CKPT_SOURCE_H
#define MT_CKPT_SOURCE_H
#include "ckpt/manifest.h"
#include "ckpt/sums.h"

enum { MT_SOURCE_FILE = MT_CKPT_PATH + 80 }; /* bytes of a path in a checkpoint, with its end */

struct mt_source {
    char path[MT_CKPT_PATH];
    struct mt_manifest manifest;
    int *rank; /* owned: the n ranks that have written tensors, ascending. "File f" is rank[f]'s */
    int n;
    bool part; /* files of other ranks are elsewhere (held.h): `rank` has those that are here */
};
/* Rows [row0, row0 + n) of a tensor, in one file. */
struct mt_stored {
    char name[MT_TENSOR_NAME];
    int64_t rows, cols; /* of the whole tensor; cols 0: a vector */
    int64_t row0, n;
    int64_t at; /* of the first byte, in the file */
    uint64_t xxh3;
    int file;
};
struct mt_stored_list {
    struct mt_stored *x; /* owned */
    int64_t n, room;
};
static inline int64_t mt_stored_row_bytes(const struct mt_stored *x)
{
    return 4 * (x->cols ? x->cols : 1);
}

/* Reads the manifest, and checks that it lists what a checkpoint has and the folder no tensors that it does not list. Looks at
 * no other file. CKPT names the file; CONFIG: the path is too long. A failure leaves nothing to close. */
MT_MUST_USE mt_status mt_source_open(struct mt_source *s, const char *path, mt_err *e);
/* The same by the text of a manifest, without a look at the folder. */
MT_MUST_USE mt_status mt_source_open_as(struct mt_source *s, const char *path, const char *text,
                                        int64_t bytes, mt_err *e);
/* CKPT: the folder has tensors that the manifest does not list. */
MT_MUST_USE mt_status mt_source_surplus(const struct mt_source *s, mt_err *e);
void mt_source_close(struct mt_source *s);

/* The file that a folder on a node's own disk has besides (held.h): whether it is there, and its path. */
#define MT_HELD_FILE "node.json"
bool mt_source_of_node(const char *path);
void mt_source_list_of_node(const char *path, char list[MT_SOURCE_FILE]);
/* The text of a folder's manifest, malloc'ed, the caller's. */
MT_MUST_USE mt_status mt_source_manifest(const char *path, char **text, int64_t *bytes, mt_err *e);
/* Whether it is the name of tensors, or of what was written beside them. */
bool mt_source_of_rank(const char *name);
/* "PATH/rank-00007.safetensors" of file f. */
void mt_source_tensors(const struct mt_source *s, int f, char path[MT_SOURCE_FILE]);
/* Whether a file is there with the size that the manifest says: CKPT, or IO if the system refuses. */
MT_MUST_USE mt_status mt_source_size(const struct mt_source *s, const struct mt_manifest_file *f, mt_err *e);
/* Whether the manifest's file is one that should be in this folder: always, but for `part`. */
bool mt_source_is_here(const struct mt_source *s, const char *name);
/* Checks that the files are there with their sizes; *bytes of all. See mt_ckpt_verify_told for the second. */
MT_MUST_USE mt_status mt_source_sizes(const struct mt_source *s, int64_t *bytes, mt_err *e);
MT_MUST_USE mt_status mt_source_verify(const struct mt_source *s, struct mt_progress *progress, mt_err *e);
/* Whether both of file f's rank are there, with the sizes that the manifest says. */
bool mt_source_has(const struct mt_source *s, int f);
/* A small file of the checkpoint, checked against the manifest: malloc'ed, the caller's, a 0 behind it. CKPT: it is not
 * listed, or damaged. */
MT_MUST_USE mt_status mt_source_text(const struct mt_source *s, const char *name, char **text, int64_t *bytes,
                                     mt_err *e);
/* What file f holds, added to the list, in the order of the bytes: its size, rank-*.json against the manifest, header against
 * that. No tensor is read. */
MT_MUST_USE mt_status mt_source_list(const struct mt_source *s, int f, struct mt_stored_list *list,
                                     mt_err *e);
/* The same of files first, first + stride, ..., by several threads. list->x is the caller's even after a failure. */
MT_MUST_USE mt_status mt_source_list_some(const struct mt_source *s, int first, int stride,
                                          struct mt_stored_list *list, mt_err *e);
/* The same of all files; then sorted by name and row, and, unless it is a part, every tensor must be there as a whole: no row
 * missing, none twice. CKPT names the tensor and the files, or says that the folder is what one node has of a checkpoint. */
MT_MUST_USE mt_status mt_source_list_all(const struct mt_source *s, struct mt_stored_list *list, mt_err *e);
/* The pieces of file f are list->x[order[first[f]]] up to first[f + 1], in the order of their bytes. Both malloc'ed, the
 * caller's. */
MT_MUST_USE mt_status mt_source_by_file(const struct mt_source *s, const struct mt_stored_list *list,
                                        int64_t **first, int64_t **order, mt_err *e);
/* CKPT, which names file, tensor and rows, unless the checksum is what was written. */
MT_MUST_USE mt_status mt_source_compare(const struct mt_stored *x, const char *path, uint64_t sum, mt_err *e);
/* One step of mt_source_list_all's check: a piece of rows [row0, ...) in file f, behind rows up to `next` of the same tensor, the last of them in file
 * `before` (-1: none). The end: row0 is the number of all rows, f is -1. */
MT_MUST_USE mt_status mt_source_next(const struct mt_source *s, const char *name, int64_t next, int before,
                                     int64_t row0, int f, mt_err *e);
#endif
