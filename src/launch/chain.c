#include "launch/chain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *at(const char *run, const char *name, char path[static MT_CHAIN_PATH])
{
    snprintf(path, MT_CHAIN_PATH, "%s/jobs%s", run, name);
    return path;
}

mt_status mt_chain_make(const char *run, int *made, mt_err *e)
{
    char path[MT_CHAIN_PATH];
    at(run, "", path);
    *made = 0;
    for (char *p = path + 1;; p++) {
        bool last = !*p;
        if (*p != '/' && !last) continue;
        *p = 0;
        if (!mkdir(path, 0777))
            ++*made;
        else
            MT_REQUIRE(errno == EEXIST, e, MT_IO, "cannot make the folder '%s': %s", path, strerror(errno));
        if (last) return MT_OK;
        *p = '/';
    }
}

void mt_chain_unmake(const char *run, int made)
{
    char path[MT_CHAIN_PATH], *slash;
    at(run, "", path);
    while (made-- > 0 && !rmdir(path)) {
        if (!(slash = strrchr(path, '/'))) return;
        *slash = 0;
    }
}

/* Opened for both, and this process's alone until it is closed. */
static FILE *open_alone(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    FILE *f = fd >= 0 ? fdopen(fd, "a+") : NULL;
    if (f) (void)flock(fd, LOCK_EX); /* a file system without locks does without */
    if (!f && fd >= 0) close(fd);
    return f;
}

/* Does a line of the file begin with the word? */
static bool has_word(FILE *f, const char *word)
{
    char line[256];
    size_t n = strlen(word);
    rewind(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, word, n) && strchr(" \n", line[n])) return true;
    return false;
}
static mt_status close_file(FILE *f, const char *path, mt_err *e)
{
    bool ok = !ferror(f);
    ok = !fclose(f) && ok;
    MT_REQUIRE(ok, e, MT_IO, "cannot write '%s': disk full?", path);
    return MT_OK;
}

mt_status mt_chain_enter(const char *run, const char *id, bool first, mt_err *e)
{
    char path[MT_CHAIN_PATH];
    FILE *f = open_alone(at(run, "/chain", path));
    MT_REQUIRE(f, e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    if (!has_word(f, id)) fprintf(f, "%s %s\n", id, first ? "first" : "next");
    return close_file(f, path, e);
}

mt_status mt_chain_read(struct mt_chain *c, const char *run, mt_err *e)
{
    char path[MT_CHAIN_PATH], line[256], id[MT_SLURM_ID], kind[8];
    c->n = 0;
    snprintf(c->run, sizeof c->run, "%s", run);
    FILE *f = open_alone(at(run, "/chain", path));
    MT_REQUIRE(f, e, MT_IO, "cannot read '%s': %s", path, strerror(errno));
    rewind(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%31s %7s", id, kind) != 2) continue;
        if (!strcmp(kind, "first")) c->n = 0;
        if (c->n == MT_CHAIN_JOBS) { /* the oldest matter least */
            memmove(c->id[0], c->id[1], sizeof c->id - sizeof c->id[0]);
            c->n--;
        }
        memcpy(c->id[c->n++], id, sizeof id);
    }
    return close_file(f, path, e);
}

int mt_chain_find(const struct mt_chain *c, const char *id)
{
    int i = 0;
    while (i < c->n && strcmp(c->id[i], id) != 0) i++;
    return i;
}
bool mt_chain_cut(const struct mt_chain *c, int place)
{
    bool all = true;
    for (int i = place + 1; i < c->n; i++) all = mt_slurm_cancel_pending(c->id[i]) && all;
    return all;
}

bool mt_chain_stopped(const char *run)
{
    char path[MT_CHAIN_PATH];
    return !access(at(run, "/stop", path), F_OK);
}
void mt_chain_unstop(const char *run)
{
    char path[MT_CHAIN_PATH];
    (void)unlink(at(run, "/stop", path));
}

int64_t mt_chain_saved(const char *run)
{
    static const char head[] = "step-";
    char path[MT_CHAIN_PATH], *end;
    int64_t newest = -1;
    snprintf(path, sizeof path, "%s/ckpt", run);
    DIR *d = opendir(path);
    for (struct dirent *x; d && (x = readdir(d));) {
        if (strncmp(x->d_name, head, sizeof head - 1) != 0) continue;
        int64_t step = strtoll(x->d_name + sizeof head - 1, &end, 10);
        if (*end || end == x->d_name + sizeof head - 1) continue; /* set aside, or being written */
        if (step > newest) newest = step;
    }
    if (d) closedir(d);
    return newest;
}

/* The length of the first name of a list, where a comma in brackets belongs to the name. */
static size_t first_name(const char *list)
{
    bool inside = false;
    size_t n = 0;
    for (; list[n] && (inside || list[n] != ','); n++)
        if (list[n] == '[' || list[n] == ']') inside = list[n] == '[';
    return n;
}
static bool in_list(const char *list, const char *name, size_t n)
{
    for (size_t k; *list; list += k + (list[k] == ',')) {
        k = first_name(list);
        if (k == n && !strncmp(list, name, n)) return true;
    }
    return false;
}
static bool add_names(char out[static MT_CHAIN_NODES], const char *list)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = first_name(list);
        size_t used = strlen(out);
        if (!n || in_list(out, list, n)) continue;
        if (used + n + 2 > MT_CHAIN_NODES) return false;
        snprintf(out + used, MT_CHAIN_NODES - used, "%s%.*s", used ? "," : "", (int)n, list);
    }
    return true;
}
static bool add_file(char out[static MT_CHAIN_NODES], FILE *f)
{
    char line[1024], *save, *word;
    bool fits = true;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "#")] = 0;
        for (char *p = line; fits && (word = strtok_r(p, " \t\r\n", &save)); p = NULL)
            fits = add_names(out, word);
    }
    return fits;
}

mt_status mt_chain_excluded(const char *run, const char *file, const char *more,
                            char out[static MT_CHAIN_NODES], mt_err *e)
{
    char path[MT_CHAIN_PATH];
    const char *files[] = {file && *file ? file : NULL, at(run, "/exclude", path)};
    out[0] = 0;
    bool fits = add_names(out, more);
    for (int i = 0; i < 2 && fits; i++) {
        FILE *f = files[i] ? fopen(files[i], "r") : NULL;
        MT_REQUIRE(f || !files[i] || i == 1, e, MT_CONFIG, "cannot read the list of nodes '%s': %s", files[i],
                   strerror(errno));
        if (!f) continue;
        fits = add_file(out, f);
        fclose(f);
    }
    MT_REQUIRE(fits, e, MT_CONFIG,
               "the names of excluded nodes take more than %d bytes: write them as n[1-9]", MT_CHAIN_NODES);
    return MT_OK;
}

mt_status mt_chain_exclude(const char *run, const char *nodes, mt_err *e)
{
    char path[MT_CHAIN_PATH], name[256];
    FILE *f = open_alone(at(run, "/exclude", path));
    MT_REQUIRE(f, e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    for (size_t n; *nodes; nodes += n + (nodes[n] == ',')) {
        n = first_name(nodes);
        snprintf(name, sizeof name, "%.*s", (int)n, nodes);
        if (n && !has_word(f, name)) fprintf(f, "%s\n", name);
    }
    return close_file(f, path, e);
}
