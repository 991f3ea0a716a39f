#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/file.h"
#include "ckpt/publish.h"
#include "ckpt/writers.h"

enum { CHUNK = 1 << 20 };

/* What one save needs, and no thread. */
struct save {
    struct mt_parts parts;
    struct mt_writers *writers;
    char *buffer, *config;
    int64_t config_bytes, *file_bytes;
    int world;
};

static void release(struct save *s)
{
    (void)mt_writers_close(s->writers);
    mt_parts_close(&s->parts);
    free(s->buffer);
    free(s->config);
    free(s->file_bytes);
}

static int world_of(const struct mt_ckpt_items *x)
{
    int world = 1;
    for (int64_t i = 0; i < x->n_pieces; i++)
        if (x->piece[i].rank >= world) world = x->piece[i].rank + 1;
    return world;
}

static mt_status prepare(struct save *s, const struct mt_ckpt_items *items, const mt_config *cfg, mt_err *e)
{
    s->world = world_of(items);
    s->buffer = aligned_alloc(MT_PART_ALIGN, CHUNK);
    s->file_bytes = calloc((size_t)s->world, sizeof *s->file_bytes);
    MT_REQUIRE(s->buffer && s->file_bytes, e, MT_IO, "no memory for the buffer of a checkpoint's writer");
    MT_TRY(mt_saving_config(cfg, &s->config, &s->config_bytes, e));
    MT_TRY(mt_parts_open(&s->parts, items, s->world, NULL, e));
    for (int i = 0; i < s->parts.n_files; i++) s->file_bytes[s->parts.file[i].rank] = s->parts.file[i].bytes;
    const struct mt_writers_options o = {.chunk = CHUNK, .buffer = s->buffer};
    return mt_writers_open(&s->writers, &o, &s->parts, e);
}

static mt_status write_parts(struct save *s, const char *run_dir, const char *folder, mt_err *e)
{
    MT_TRY(mt_make_folders(run_dir, e));
    MT_TRY(mt_saving_room(run_dir, s->parts.bytes, e));
    MT_TRY(mt_writers_begin(s->writers, folder, e));
    return mt_writers_wait(s->writers, 0, e) == MT_WRITTEN_DONE ? MT_OK : e->code;
}

static mt_status save(struct save *s, const char *run_dir, const struct mt_ckpt_items *items,
                      const struct mt_ckpt_meta *meta, const mt_config *cfg, mt_err *e)
{
    char folder[MT_CKPT_PATH];
    mt_saving_folder(run_dir, meta->step, folder);
    MT_TRY(prepare(s, items, cfg, e));
    mt_status st = write_parts(s, run_dir, folder, e);
    const struct mt_publishing p = {.run_dir = run_dir,
                                    .meta = *meta,
                                    .world = s->world,
                                    .file_bytes = s->file_bytes,
                                    .config = s->config,
                                    .config_bytes = s->config_bytes};
    if (st == MT_OK) st = mt_publish(&p, NULL, e);
    mt_err ignored = {0};
    if (st != MT_OK && mt_remove_folder(folder, "manifest.json", &ignored) != MT_OK)
        fprintf(stderr, "moetitan: %s\n", ignored.msg);
    return st;
}

mt_status mt_ckpt_save(const char *run_dir, const struct mt_ckpt_items *items,
                       const struct mt_ckpt_meta *meta, const mt_config *cfg, mt_err *e)
{
    struct save s = {0};
    MT_REQUIRE(strlen(run_dir) + MT_CKPT_ROOM < MT_CKPT_PATH, e, MT_CONFIG, "run.dir is too long: '%.60s...'",
               run_dir);
    mt_status st = save(&s, run_dir, items, meta, cfg, e);
    release(&s);
    if (st != MT_OK) mt_err_while(e, "saving the checkpoint of step %" PRId64, meta->step);
    return st;
}
