#include "train/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/print.h"
#include "ckpt/file.h"

/* Two jobs would write the same checkpoints and metrics. The system drops the lock with the process, however that ends; a
 * file system without locks does without. */
static mt_status lock_folder(const char *dir, int *lock, mt_err *e)
{
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MT_REQUIRE(*lock >= 0, e, MT_IO, "cannot open the folder '%s': %s", dir, strerror(errno));
    bool taken = flock(*lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (taken) close(*lock);
    if (taken) *lock = -1;
    MT_REQUIRE(!taken, e, MT_IO, "another process trains in '%s': wait for its end, or set another run.dir",
               dir);
    return MT_OK;
}

mt_status mt_folder_open(const mt_config *c, int *lock, mt_err *e)
{
    MT_TRY(mt_make_folders(c->run_dir, e));
    return lock_folder(c->run_dir, lock, e);
}

/* Through a temporary name, so that a crash leaves the old one or the new one. */
static mt_status replace(const char *path, const char *text, int64_t bytes, mt_err *e)
{
    char tmp[MT_CONFIG_PATH + 32];
    uint64_t sum;
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    MT_TRY(mt_write_file(tmp, text, bytes, &sum, e));
    if (!rename(tmp, path)) return MT_OK;
    mt_err_set(e, MT_IO, "cannot rename '%s' to '%s': %s", tmp, path, strerror(errno));
    unlink(tmp);
    return e->code;
}

mt_status mt_folder_metrics(const mt_config *c, const char *resume, mt_err *e)
{
    char path[MT_CONFIG_PATH + 16], *text;
    int64_t bytes;
    struct stat st;
    snprintf(path, sizeof path, "%s/metrics.jsonl", c->run_dir);
    MT_TRY(mt_ckpt_metrics(resume, &text, &bytes, e));
    bool shorter = stat(path, &st) ? errno == ENOENT : st.st_size < bytes;
    mt_status done = text && shorter ? replace(path, text, bytes, e) : MT_OK;
    free(text);
    return done;
}

mt_status mt_folder_config(const mt_config *c, mt_err *e)
{
    char path[MT_CONFIG_PATH + 16];
    snprintf(path, sizeof path, "%s/config.yaml", c->run_dir);
    FILE *f;
    MT_TRY(mt_print_open(&f, path, e));
    mt_config_dump(c, f);
    return mt_print_close(f, path, e);
}
