#include "train/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
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

static mt_status find_resume(const mt_config *c, char path[MT_CKPT_PATH], mt_err *e)
{
    path[0] = 0;
    mt_err why = {0};
    if (c->ckpt_resume == MT_RESUME_NEVER) return MT_OK;
    mt_status st = mt_ckpt_newest(c->run_dir, path, &why);
    MT_REQUIRE(st == MT_OK, e, st, "%s%s", why.msg,
               st != MT_CKPT
                   ? ""
                   : " (each is told above); put a copy back, or begin anew: with ckpt.resume: never, "
                     "or without these folders");
    MT_REQUIRE(path[0] || c->ckpt_resume != MT_RESUME_REQUIRED, e, MT_CKPT,
               "ckpt.resume is 'required' and '%s/ckpt' holds no valid checkpoint; set ckpt.resume: auto to "
               "start anew",
               c->run_dir);
    return MT_OK;
}

mt_status mt_folder_open(const mt_config *c, int *lock, char resume[MT_CKPT_PATH], mt_err *e)
{
    MT_TRY(mt_make_folders(c->run_dir, e));
    MT_TRY(lock_folder(c->run_dir, lock, e));
    return find_resume(c, resume, e);
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
