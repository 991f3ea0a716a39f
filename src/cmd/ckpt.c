#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "ckpt/tensors.h"
#include "cmd/cmd.h"

static mt_status list(const char *run, mt_err *e)
{
    enum { MOST = 4096 };
    int64_t step[MOST];
    int n = mt_ckpt_list(run, step, MOST);
    MT_REQUIRE(n, e, MT_CKPT, "'%s/ckpt' holds no checkpoint; give the run's folder", run);
    for (int i = 0; i < n; i++) {
        char path[MT_CKPT_PATH];
        struct mt_ckpt_meta meta;
        mt_err why = {0};
        mt_ckpt_folder(run, step[i], path);
        if (mt_ckpt_verify(path, &meta, &why) == MT_OK) printf("%s  step %" PRId64 "  %" PRId64 " tokens  valid\n", path, meta.step, meta.tokens);
        else printf("%s  NOT VALID: %s\n", path, why.msg);
    }
    return MT_OK;
}

static mt_status show(const char *path, mt_err *e)
{
    struct mt_ckpt_meta meta;
    struct mt_tensors t;
    char file[MT_CKPT_PATH + 64];
    MT_TRY(mt_ckpt_verify(path, &meta, e));
    snprintf(file, sizeof file, "%s/rank-00000.safetensors", path);
    mt_status st = mt_tensors_open(&t, file, e);
    if (st == MT_OK)
        printf("%s\n  step    %" PRId64 "\n  tokens  %" PRId64 "\n  tensors %" PRId64 "\n  bytes   %" PRId64 "\n", path, meta.step, meta.tokens,
               mt_tensors_count(&t), t.file.bytes);
    mt_tensors_close(&t);
    return st;
}

static mt_status verify(const char *path, mt_err *e)
{
    struct mt_ckpt_meta meta;
    MT_TRY(mt_ckpt_verify(path, &meta, e));
    printf("%s: valid, step %" PRId64 "\n", path, meta.step);
    return MT_OK;
}

mt_status mt_cmd_ckpt(int argc, char **argv, mt_err *e)
{
    static const struct {
        const char *name;
        mt_status (*run)(const char *, mt_err *);
    } verb[] = {{"ls", list}, {"show", show}, {"verify", verify}};
    for (int i = 0; i < 3 && argc == 3; i++)
        if (!strcmp(argv[1], verb[i].name)) return verb[i].run(argv[2], e);
    MT_FAIL(e, MT_CONFIG, "usage: moetitan ckpt ls RUN_DIR | show CHECKPOINT | verify CHECKPOINT");
}
