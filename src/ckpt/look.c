#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/ckpt.h"
#include "ckpt/source.h"

mt_status mt_source_sizes(const struct mt_source *s, int64_t *bytes, mt_err *e)
{
    *bytes = 0;
    for (int64_t i = 0; i < s->manifest.n; i++) {
        if (!mt_source_is_here(s, s->manifest.file[i].name)) continue;
        MT_TRY(mt_source_size(s, &s->manifest.file[i], e));
        *bytes += s->manifest.file[i].bytes;
    }
    return MT_OK;
}

mt_status mt_ckpt_look(const char *path, struct mt_ckpt_meta *meta, int64_t *bytes, mt_err *e)
{
    struct mt_source s;
    *meta = (struct mt_ckpt_meta){0};
    MT_TRY(mt_source_open(&s, path, e));
    *meta = s.manifest.meta;
    mt_status st = mt_source_sizes(&s, bytes, e);
    mt_source_close(&s);
    return st;
}

mt_status mt_ckpt_named(const char *path, int64_t step, const struct mt_ckpt_meta *meta, mt_err *e)
{
    MT_REQUIRE(meta->step == step, e, MT_CKPT, "'%s' holds step %" PRId64, path, meta->step);
    return MT_OK;
}

static mt_status read_config(const struct mt_source *s, mt_config *cfg, mt_err *e)
{
    char *text, path[MT_SOURCE_FILE];
    int64_t bytes;
    MT_TRY(mt_source_text(s, "config.yaml", &text, &bytes, e));
    snprintf(path, sizeof path, "%s/config.yaml", s->path);
    mt_status st = mt_config_parse(cfg, path, text, (size_t)bytes, e);
    free(text);
    return st;
}

mt_status mt_ckpt_config(const char *path, mt_config *cfg, mt_err *e)
{
    struct mt_source s;
    mt_status st = mt_source_open(&s, path, e);
    if (st == MT_OK) {
        st = read_config(&s, cfg, e);
        mt_source_close(&s);
    }
    if (st != MT_OK) mt_err_while(e, "reading the checkpoint's configuration");
    return st;
}

mt_status mt_ckpt_metrics(const char *path, char **text, int64_t *bytes, mt_err *e)
{
    struct mt_source s;
    *text = NULL;
    *bytes = 0;
    MT_TRY(mt_source_open(&s, path, e));
    mt_status st = MT_OK;
    if (mt_manifest_find(&s.manifest, "metrics.jsonl"))
        st = mt_source_text(&s, "metrics.jsonl", text, bytes, e);
    mt_source_close(&s);
    return st;
}
