#include "ckpt/tier.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "ckpt/file.h"

/* ---- who is where ---- */
/* The place of a process in the order of nodes, and within each of processes. */
static int place_of(const struct mt_tier *t, int p)
{
    int place = 0;
    for (int q = 0; q < t->job.n; q++)
        place += t->node[q] < t->node[p] || (t->node[q] == t->node[p] && q < p);
    return place;
}

/* All places move by the size of the largest node: a process's buddy is on another one if that has no more than half. */
static mt_status find_buddies(struct mt_tier *t, mt_err *e)
{
    int n = t->job.n, largest = 0, mine = place_of(t, t->job.me);
    for (int p = 0; p < n; p++) {
        int here = 0;
        for (int q = 0; q < n; q++) here += t->node[q] == t->node[p];
        if (here > largest) largest = here;
        t->nodes += t->node[p] == p;
    }
    t->to = t->from = -1;
    if (t->nodes == 1) return MT_OK;
    MT_REQUIRE(2 * largest <= n, e, MT_CONFIG,
               "ckpt.local_dir: one node has %d of the %d processes, more than half, so that not every one "
               "has a buddy on another node; spread them evenly, or leave ckpt.local_dir empty",
               largest, n);
    t->sends_first = mine / largest % 2 == 0;
    for (int p = 0; p < n; p++) {
        int place = place_of(t, p);
        if (place == (mine + largest) % n) t->to = p;
        if (mine == (place + largest) % n) t->from = p;
    }
    return MT_OK;
}

static mt_status find_root(struct mt_tier *t, const struct mt_tier_options *o, mt_err *e)
{
    char real[MT_CKPT_PATH + 1] = "", *path = t->job.me ? NULL : realpath(o->run_dir, NULL);
    mt_status st = !t->job.me && !path
                       ? mt_err_set(e, MT_IO, "cannot find '%s': %s", o->run_dir, strerror(errno))
                       : MT_OK;
    if (path) snprintf(real, sizeof real, "%s", path);
    free(path);
    MT_TRY(mt_job_agree(&t->job, st, e));
    mt_job_broadcast(&t->job, real, sizeof real, 0);
    uint64_t run = mt_xxh3(real, (int64_t)strlen(real));
    int n = snprintf(t->root, sizeof t->root, "%s/%016" PRIx64 "/%s", o->dir, run, o->node[t->job.me]);
    MT_REQUIRE(n < (int)sizeof t->root, e, MT_CONFIG, "ckpt.local_dir is too long: '%.60s...'", o->dir);
    return mt_make_folders(t->root, e);
}

mt_status mt_tier_open(struct mt_tier *t, const struct mt_tier_options *o, const struct mt_job *job,
                       mt_err *e)
{
    *t = (struct mt_tier){.job = *job, .keep = o->keep, .node = calloc((size_t)job->n, sizeof *t->node)};
    mt_status st = t->node ? MT_OK : mt_err_set(e, MT_IO, "no memory for %d processes", job->n);
    MT_TRY(mt_job_agree(job, st, e));
    for (int p = 0; p < job->n; p++)
        while (strcmp(o->node[t->node[p]], o->node[p])) t->node[p]++;
    t->leads = t->node[job->me] == job->me;
    MT_TRY(mt_job_agree(job, find_buddies(t, e), e));
    return mt_job_agree(job, find_root(t, o, e), e);
}

void mt_tier_close(struct mt_tier *t)
{
    free(t->node);
    t->node = NULL;
}

/* ---- room ---- */
static int64_t bytes_below(const char *path)
{
    int64_t bytes = 0;
    struct stat st;
    DIR *d = opendir(path);
    for (struct dirent *f; d && (f = readdir(d));)
        if (strcmp(f->d_name, ".") && strcmp(f->d_name, "..") &&
            !fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
            bytes += st.st_size;
    if (d) closedir(d);
    return bytes;
}

static int64_t bytes_held(const struct mt_tier *t, mt_err *e)
{
    int64_t *step, n, bytes = 0;
    if (mt_ckpt_list(t->root, &step, &n, e) != MT_OK) return 0;
    for (int64_t i = 0; i < n; i++) {
        char folder[MT_CKPT_PATH];
        mt_ckpt_folder(t->root, step[i], folder);
        bytes += bytes_below(folder);
    }
    free(step);
    return bytes;
}

/* The ranks of a job are one in each of several processes, or all in one. */
static mt_status count(const struct mt_tier *t, const int64_t *file_bytes, struct mt_tier_room *room,
                       mt_err *e)
{
    int n = t->job.n, here = t->node[t->job.me];
    int64_t *wards = calloc((size_t)n, sizeof *wards); /* by the first process of a node */
    mt_status st = wards ? MT_OK : mt_err_set(e, MT_IO, "no memory for %d processes", n);
    MT_TRY(mt_job_agree(&t->job, st, e));
    *room = (struct mt_tier_room){0};
    for (int r = 0; r < t->job.world; r++)
        if (n == 1 || t->node[r] == here) room->own += file_bytes[r];
    if (t->from >= 0) wards[here] = file_bytes[t->from];
    mt_job_sum(&t->job, wards, n);
    room->wards = wards[here];
    room->need = (t->keep + 1) * (room->own + room->wards);
    free(wards);
    return MT_OK;
}

static mt_status check_room(const struct mt_tier *t, struct mt_tier_room *room, mt_err *e)
{
    struct statvfs v;
    const double mib = 1 << 20;
    MT_REQUIRE(!statvfs(t->root, &v), e, MT_IO, "cannot ask for the room in '%s': %s", t->root,
               strerror(errno));
    MT_REQUIRE(!(v.f_flag & ST_RDONLY), e, MT_IO, "cannot write to '%s': %s", t->root, strerror(EROFS));
    room->free = (int64_t)v.f_bavail * (int64_t)v.f_frsize + bytes_held(t, e);
    MT_TRY(e->code);
    MT_REQUIRE(
        room->need <= room->free, e, MT_NOFIT,
        "'%s' (ckpt.local_dir) has room for %.1f MiB, and %" PRId64
        " checkpoints (ckpt.local_keep, and the one that is written) of %.1f MiB of this node's ranks and "
        "%.1f MiB of their buddies' take %.1f MiB: keep fewer, name a folder with more room, or leave "
        "ckpt.local_dir empty",
        t->root, (double)room->free / mib, t->keep + 1, (double)room->own / mib, (double)room->wards / mib,
        (double)room->need / mib);
    return MT_OK;
}

mt_status mt_tier_find_room(const struct mt_tier *t, const int64_t *file_bytes, struct mt_tier_room *room,
                            mt_err *e)
{
    MT_TRY(count(t, file_bytes, room, e));
    return mt_job_agree(&t->job, t->leads ? check_room(t, room, e) : MT_OK, e);
}
