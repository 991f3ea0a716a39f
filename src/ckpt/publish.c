#include "ckpt/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/file.h"
#include "ckpt/manifest.h"

enum { FILE_PATH = MT_CKPT_PATH + 80 };
static const char saving_end[] = ".saving";

void mt_saving_folder(const char *run_dir, int64_t step, char path[MT_CKPT_PATH])
{
    char folder[MT_CKPT_PATH];
    mt_ckpt_folder(run_dir, step, folder);
    snprintf(path, MT_CKPT_PATH, "%.*s%s", MT_CKPT_PATH - 8, folder, saving_end);
}

mt_status mt_saving_room(const char *run_dir, int64_t bytes, mt_err *e)
{
    struct statvfs v;
    MT_REQUIRE(!statvfs(run_dir, &v), e, MT_IO, "cannot ask for the room in '%s': %s", run_dir,
               strerror(errno));
    MT_REQUIRE(!(v.f_flag & ST_RDONLY), e, MT_IO, "cannot write to '%s': %s", run_dir, strerror(EROFS));
    double room = (double)v.f_bavail * (double)v.f_frsize;
    MT_REQUIRE(room >= (double)bytes, e, MT_IO,
               "cannot write to '%s': the checkpoint takes %" PRId64
               " bytes, the file system has room for %.0f: %s",
               run_dir, bytes, room, strerror(ENOSPC));
    return MT_OK;
}

mt_status mt_saving_config(const mt_config *cfg, char **text, int64_t *bytes, mt_err *e)
{
    size_t n = 0;
    *text = NULL;
    FILE *f = open_memstream(text, &n);
    MT_REQUIRE(f, e, MT_IO, "no memory for the configuration's text");
    mt_config_dump(cfg, f);
    bool ok = !ferror(f);
    MT_REQUIRE(!fclose(f) && ok, e, MT_IO, "no memory for the configuration's text");
    *bytes = (int64_t)n;
    return MT_OK;
}

/* ---- the files ---- */
mt_status mt_saving_told(const char *folder, int rank, int64_t bytes, uint64_t *xxh3, mt_err *e)
{
    char path[FILE_PATH], head[80] = "", digits[17] = "";
    int64_t told = -1;
    snprintf(path, sizeof path, "%s/rank-%05d.json", folder, rank);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof head - 1);
    int error = errno;
    if (fd >= 0) close(fd);
    MT_REQUIRE(n >= 0, e, MT_IO, "cannot read '%s': %s", path, strerror(error));
    bool ok = sscanf(head, "{\"file\": {\"bytes\": %" SCNd64 ", \"xxh3\": \"%16[0-9a-f]\"", &told, digits) ==
              2;
    MT_REQUIRE(ok && told == bytes, e, MT_IO, "'%s' tells of %" PRId64 " bytes; rank %d writes %" PRId64,
               path, told, rank, bytes);
    *xxh3 = strtoull(digits, NULL, 16);
    return MT_OK;
}

static mt_status add_tensors(struct mt_manifest *m, const char *folder, int rank, int64_t bytes, mt_err *e)
{
    char name[64];
    uint64_t sum;
    MT_TRY(mt_saving_told(folder, rank, bytes, &sum, e));
    snprintf(name, sizeof name, "rank-%05d.safetensors", rank);
    return mt_manifest_add(m, name, bytes, sum, e);
}

static mt_status add_whole(struct mt_manifest *m, const char *folder, const char *name, mt_err *e)
{
    char path[FILE_PATH];
    int64_t bytes;
    uint64_t sum;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    MT_TRY(mt_hash_file(path, &bytes, &sum, e));
    return mt_manifest_add(m, name, bytes, sum, e);
}

/* The sums come last, and whole. */
static mt_status wait_for(const char *folder, const char *sums, const struct mt_turn *turn, mt_err *e)
{
    char path[FILE_PATH];
    struct timespec pause = {0, 1000000};
    snprintf(path, sizeof path, "%s/%s", folder, sums);
    while (access(path, F_OK)) {
        MT_REQUIRE(errno == ENOENT, e, MT_IO, "cannot look for '%s': %s", path, strerror(errno));
        MT_REQUIRE(turn && !mt_turn_is_over(turn), e, MT_IO, "'%s' is missing", path);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 100000000) pause.tv_nsec *= 2;
    }
    return MT_OK;
}

static mt_status add_ranks(struct mt_manifest *m, const struct mt_publishing *p, const char *folder,
                           const struct mt_turn *turn, mt_err *e)
{
    char name[64];
    for (int rank = 0; rank < p->world; rank++) {
        if (!p->file_bytes[rank]) continue;
        snprintf(name, sizeof name, "rank-%05d.json", rank);
        MT_TRY(wait_for(folder, name, turn, e));
        MT_TRY(add_tensors(m, folder, rank, p->file_bytes[rank], e));
        MT_TRY(add_whole(m, folder, name, e));
    }
    return MT_OK;
}

static mt_status add_config(struct mt_manifest *m, const struct mt_publishing *p, const char *folder,
                            mt_err *e)
{
    char path[FILE_PATH];
    uint64_t sum;
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    MT_TRY(mt_write_file(path, p->config, p->config_bytes, &sum, e));
    return mt_manifest_add(m, "config.yaml", p->config_bytes, sum, e);
}

static mt_status add_metrics(struct mt_manifest *m, const struct mt_publishing *p, const char *folder,
                             mt_err *e)
{
    char from[FILE_PATH], to[FILE_PATH];
    if (!p->metrics_bytes) return MT_OK;
    snprintf(from, sizeof from, "%s/metrics.jsonl", p->run_dir);
    snprintf(to, sizeof to, "%s/metrics.jsonl", folder);
    MT_TRY(mt_copy_file(to, from, p->metrics_bytes, e));
    return add_whole(m, folder, "metrics.jsonl", e);
}

/* What an earlier try left there. */
static mt_status remove_others(const struct mt_manifest *m, const char *folder, mt_err *e)
{
    DIR *d = opendir(folder);
    MT_REQUIRE(d, e, MT_IO, "cannot open the folder '%s': %s", folder, strerror(errno));
    mt_status st = MT_OK;
    for (struct dirent *f; st == MT_OK && (f = readdir(d));) {
        if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, "..") || mt_manifest_find(m, f->d_name)) continue;
        if (unlinkat(dirfd(d), f->d_name, 0))
            st = mt_err_set(e, MT_IO, "cannot remove '%s/%s': %s", folder, f->d_name, strerror(errno));
    }
    closedir(d);
    return st;
}

static mt_status complete(const struct mt_publishing *p, const char *folder, const struct mt_turn *turn,
                          mt_err *e)
{
    struct mt_manifest m = {.meta = p->meta, .world = p->world};
    mt_status st = add_ranks(&m, p, folder, turn, e);
    if (st == MT_OK) st = add_config(&m, p, folder, e);
    if (st == MT_OK) st = add_metrics(&m, p, folder, e);
    if (st == MT_OK) st = remove_others(&m, folder, e);
    if (st == MT_OK) st = mt_manifest_write(&m, folder, e);
    mt_manifest_release(&m);
    return st;
}

/* ---- the name ---- */
static void aside_of(const char *folder, char path[MT_CKPT_PATH])
{
    snprintf(path, MT_CKPT_PATH, "%.*s.aside", MT_CKPT_PATH - 8, folder);
}

/* Renames a complete checkpoint to *.aside, where nothing reads it; removes an incomplete one. */
static mt_status set_aside(const char *folder, bool *kept, mt_err *e)
{
    char aside[MT_CKPT_PATH];
    *kept = mt_ckpt_was_complete(folder);
    if (!*kept) return mt_remove_folder(folder, NULL, e);
    aside_of(folder, aside);
    MT_TRY(mt_remove_folder(aside, "manifest.json", e));
    MT_REQUIRE(!rename(folder, aside), e, MT_IO, "cannot rename '%s' to '%s': %s", folder, aside,
               strerror(errno));
    return MT_OK;
}

static mt_status set_later_aside(const char *run_dir, int64_t than, mt_err *e)
{
    int64_t *step, n;
    mt_status st = MT_OK;
    MT_TRY(mt_ckpt_list(run_dir, &step, &n, e));
    for (int64_t i = n - 1; i >= 0 && step[i] > than && st == MT_OK; i--) {
        char folder[MT_CKPT_PATH];
        bool kept;
        mt_ckpt_folder(run_dir, step[i], folder);
        st = set_aside(folder, &kept, e);
        if (st == MT_OK && kept)
            fprintf(stderr,
                    "moetitan: '%s' is later than step %" PRId64
                    ", which this run has reached: now %s.aside\n",
                    folder, than, folder);
    }
    free(step);
    return st;
}

/* The new name is on the disk, or everything has the name it had. */
static mt_status give_name(const char *run_dir, const char *saving, const char *folder, mt_err *e)
{
    char parent[MT_CKPT_PATH];
    snprintf(parent, sizeof parent, "%.*s/ckpt", MT_CKPT_PATH - 8, run_dir);
    MT_REQUIRE(!rename(saving, folder), e, MT_IO, "cannot rename '%s' to '%s': %s", saving, folder,
               strerror(errno));
    mt_status st = mt_sync_folder(parent, e);
    if (st != MT_OK && rename(folder, saving)) fprintf(stderr, "moetitan: cannot rename '%s' back\n", folder);
    return st;
}

static mt_status replace(const struct mt_publishing *p, const char *saving, mt_err *e)
{
    char folder[MT_CKPT_PATH], aside[MT_CKPT_PATH];
    bool kept;
    mt_err later = {0};
    mt_ckpt_folder(p->run_dir, p->meta.step, folder);
    aside_of(folder, aside);
    MT_TRY(set_aside(folder, &kept, e));
    mt_status st = give_name(p->run_dir, saving, folder, e);
    if (st != MT_OK) {
        if (kept && rename(aside, folder)) fprintf(stderr, "moetitan: cannot rename '%s' back\n", aside);
        return st;
    }
    /* It is complete, so that a failure from here on is told and no more. */
    st = set_later_aside(p->run_dir, p->meta.step, &later);
    if (st == MT_OK && kept) st = mt_remove_folder(aside, "manifest.json", &later);
    if (st == MT_OK) st = mt_saving_clean(p->run_dir, &later);
    if (st != MT_OK)
        fprintf(stderr, "moetitan: after the checkpoint of step %" PRId64 ": %s\n", p->meta.step, later.msg);
    return MT_OK;
}

mt_status mt_publish(const struct mt_publishing *p, const struct mt_turn *turn, mt_err *e)
{
    char saving[MT_CKPT_PATH];
    mt_saving_folder(p->run_dir, p->meta.step, saving);
    MT_TRY(complete(p, saving, turn, e));
    MT_REQUIRE(!turn || !mt_turn_is_over(turn), e, MT_IO, "'%s' was given up", saving);
    return replace(p, saving, e);
}

/* ---- what did not end ---- */
static bool is_saving(const char *name)
{
    size_t n = strlen(name), end = sizeof saving_end - 1;
    return n > end && !strncmp(name, "step-", 5) && !strcmp(name + n - end, saving_end);
}

mt_status mt_saving_clean(const char *run_dir, mt_err *e)
{
    char path[FILE_PATH];
    mt_status st = MT_OK;
    snprintf(path, sizeof path, "%s/ckpt", run_dir);
    DIR *d = opendir(path);
    if (!d && (errno == ENOENT || errno == ENOTDIR)) return MT_OK;
    MT_REQUIRE(d, e, MT_IO, "cannot list '%s': %s", path, strerror(errno));
    for (struct dirent *f; st == MT_OK && (f = readdir(d));) {
        if (!is_saving(f->d_name)) continue;
        snprintf(path, sizeof path, "%s/ckpt/%.60s", run_dir, f->d_name);
        st = mt_remove_folder(path, "manifest.json", e);
    }
    closedir(d);
    return st;
}
