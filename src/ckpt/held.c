#include "ckpt/held.h"

#include <stdio.h>
#include <stdlib.h>

#include "ckpt/file.h"
#include "ckpt/json.h"
#include "ckpt/read.h"

enum { LIST_MOST = 1 << 20 };

static bool has(const cJSON *list, int rank)
{
    int64_t x;
    for (const cJSON *j = list ? list->child : NULL; j; j = j->next)
        if (mt_json_count(j, &x) && x == rank) return true;
    return false;
}

/* Of the ranks that the manifest knows, those that are said to be here. */
static mt_status narrow(struct mt_held *h, const cJSON *o, mt_err *e)
{
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(o, "own"),
                *copies = cJSON_GetObjectItemCaseSensitive(o, "copies");
    MT_REQUIRE(cJSON_IsArray(own) && cJSON_IsArray(copies), e, MT_CKPT,
               "'%s/%s' does not say which files are this node's own, and which are copies", h->s.path,
               MT_HELD_FILE);
    h->own = calloc((size_t)h->s.n, sizeof *h->own);
    MT_REQUIRE(h->own, e, MT_IO, "no memory to list the files of '%s'", h->s.path);
    h->world = h->s.n;
    h->s.n = 0;
    for (int f = 0; f < h->world; f++) {
        bool mine = has(own, h->s.rank[f]);
        if (!mine && !has(copies, h->s.rank[f])) continue;
        h->own[h->s.n] = mine;
        h->s.rank[h->s.n++] = h->s.rank[f];
        h->n_own += mine;
    }
    h->s.part = h->s.n < h->world;
    MT_REQUIRE(h->s.n == cJSON_GetArraySize(own) + cJSON_GetArraySize(copies), e, MT_CKPT,
               "'%s/%s' lists ranks that its manifest does not", h->s.path, MT_HELD_FILE);
    return MT_OK;
}

static mt_status read_list(struct mt_held *h, const char *path, mt_err *e)
{
    char *text;
    int64_t bytes;
    MT_TRY(mt_read_whole(path, LIST_MOST, &text, &bytes, e));
    cJSON *o = mt_json_object(text, bytes);
    free(text);
    mt_status st = narrow(h, o, e);
    cJSON_Delete(o);
    return st;
}

static mt_status open_local(struct mt_held *h, const char *path, mt_err *e)
{
    char *text;
    int64_t bytes;
    MT_TRY(mt_source_manifest(path, &text, &bytes, e));
    mt_status st = mt_source_open_as(&h->s, path, text, bytes, e);
    free(text);
    MT_TRY(st);
    char list[MT_SOURCE_FILE];
    mt_source_list_of_node(path, list);
    st = mt_source_surplus(&h->s, e);
    if (st == MT_OK) st = read_list(h, list, e);
    if (st != MT_OK) mt_held_close(h);
    return st;
}

mt_status mt_held_open(struct mt_held *h, const char *path, mt_err *e)
{
    *h = (struct mt_held){.local = mt_source_of_node(path)};
    if (h->local) return open_local(h, path, e);
    MT_TRY(mt_source_open(&h->s, path, e));
    h->world = h->s.n;
    return MT_OK;
}

void mt_held_close(struct mt_held *h)
{
    mt_source_close(&h->s);
    free(h->own);
    h->own = NULL;
}

static void put_ranks(FILE *f, const char *key, const bool *own, bool which, const bool *here, int world)
{
    const char *comma = "";
    fprintf(f, "\"%s\": [", key);
    for (int r = 0; r < world; r++) {
        if (!here[r] || own[r] != which) continue;
        fprintf(f, "%s%d", comma, r);
        comma = ", ";
    }
    fputs("]", f);
}

mt_status mt_held_write(const char *folder, const bool *own, const bool *here, int world, mt_err *e)
{
    char path[MT_SOURCE_FILE], *text = NULL;
    size_t bytes = 0;
    uint64_t sum;
    FILE *f = open_memstream(&text, &bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for '%s/%s'", folder, MT_HELD_FILE);
    fputs("{", f);
    put_ranks(f, "own", own, true, here, world);
    fputs(", ", f);
    put_ranks(f, "copies", own, false, here, world);
    fputs("}\n", f);
    mt_status st = fclose(f) ? mt_err_set(e, MT_IO, "no memory for '%s/%s'", folder, MT_HELD_FILE) : MT_OK;
    mt_source_list_of_node(folder, path);
    if (st == MT_OK) st = mt_write_file(path, text, (int64_t)bytes, &sum, e);
    free(text);
    return st;
}
