#include "cmd/ckpt_local.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* LOCAL_DIR/RUN/NODE/ckpt: RUN is a hash. */
static bool names_run(const char *name)
{
    return strspn(name, "0123456789abcdef") == 16 && !name[16];
}

static bool is_run(const char *dir)
{
    char *path = realpath(dir, NULL), *name = path ? strrchr(path, '/') : NULL;
    bool is = name && names_run(name + 1);
    free(path);
    return is;
}

static mt_status add(struct mt_local_nodes *x, const char *path, mt_err *e)
{
    char name[MT_CKPT_PATH + 8];
    snprintf(name, sizeof name, "%.*s/ckpt", MT_CKPT_PATH, path);
    if (access(name, F_OK)) return MT_OK;
    void *more = realloc(x->path, (size_t)(x->n + 1) * sizeof *x->path);
    MT_REQUIRE(more, e, MT_IO, "no memory to list %d folders of nodes", x->n + 1);
    x->path = more;
    snprintf(x->path[x->n++], MT_CKPT_PATH, "%s", path);
    return MT_OK;
}

static mt_status find(struct mt_local_nodes *x, const char *dir, bool run, mt_err *e)
{
    struct dirent **entry;
    mt_status st = MT_OK;
    int n = scandir(dir, &entry, NULL, alphasort);
    if (n < 0 && (errno == ENOENT || errno == ENOTDIR)) return MT_OK;
    MT_REQUIRE(n >= 0, e, MT_IO, "cannot list '%s': %s", dir, strerror(errno));
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name;
        char path[MT_CKPT_PATH];
        bool fits = snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path - MT_CKPT_ROOM;
        if (st == MT_OK && fits && run && name[0] != '.') st = add(x, path, e);
        if (st == MT_OK && fits && !run && names_run(name)) st = find(x, path, true, e);
        free(entry[i]);
    }
    free(entry);
    return st;
}

mt_status mt_local_nodes_find(struct mt_local_nodes *x, const char *dir, mt_err *e)
{
    *x = (struct mt_local_nodes){0};
    return find(x, dir, is_run(dir), e);
}

void mt_local_nodes_close(struct mt_local_nodes *x)
{
    free(x->path);
}
