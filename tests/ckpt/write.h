/* write.h: checkpoints written by the tests themselves, from docs/checkpoints.md, in both versions: sound ones, and ones that are
 * wrong in one place while every checksum fits. */
#ifndef MT_TESTS_CKPT_WRITE_H
#define MT_TESTS_CKPT_WRITE_H
#include "helper.h"

#include <dirent.h>

/* Rows of a tensor of a world, for a rank's file. */
struct slice {
    int tensor;
    int64_t row0, rows;
};
struct written {
    int version, world;
    int64_t step;
    char folder[300];
};

static inline void begin_checkpoint(struct written *c, const char *run, int version, int world, int64_t step)
{
    mt_err e = {0};
    *c = (struct written){.version = version, .world = world, .step = step};
    snprintf(c->folder, sizeof c->folder, "%.200s/ckpt/step-%08" PRId64, run, step);
    if (mt_remove_folder(c->folder, NULL, &e) != MT_OK || mt_make_folders(c->folder, &e) != MT_OK) abort();
}

static inline void print_shape(FILE *f, int64_t rows, int64_t cols)
{
    fprintf(f, cols ? "[%" PRId64 ",%" PRId64 "]" : "[%" PRId64 "]", rows, cols);
}
static inline void print_key(FILE *f, const struct world *w, const struct slice *s)
{
    fprintf(f, "\"%s", w->item[s->tensor].name);
    if (s->rows != w->item[s->tensor].rows) fprintf(f, "@%" PRId64, s->row0);
    fprintf(f, "\"");
}
static inline int64_t slice_bytes(const struct world *w, const struct slice *s)
{
    return s->rows * mt_ckpt_row_bytes(&w->item[s->tensor]);
}
static inline const char *slice_data(const struct world *w, const struct slice *s)
{
    return (const char *)w->data[s->tensor] + s->row0 * mt_ckpt_row_bytes(&w->item[s->tensor]);
}

static inline void write_tensors_of(const struct written *c, const struct world *w, int rank,
                                    const struct slice *s, int n, uint64_t *sum, size_t *bytes)
{
    char path[400], *text = NULL;
    int64_t at = 0;
    uint64_t length = 0;
    FILE *f = open_memstream(&text, bytes);
    fwrite(&length, 8, 1, f);
    fprintf(f, "{\"__metadata__\":{\"format\":\"pt\",\"moetitan\":\"%d\",\"rank\":\"%d\",\"world\":\"%d\"}",
            c->version, rank, c->world);
    for (int i = 0; i < n; i++) {
        fprintf(f, ",");
        print_key(f, w, &s[i]);
        fprintf(f, ":{\"dtype\":\"F32\",\"shape\":");
        print_shape(f, s[i].rows, w->item[s[i].tensor].cols);
        fprintf(f, ",\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, at + slice_bytes(w, &s[i]));
        at += slice_bytes(w, &s[i]);
    }
    fprintf(f, "}");
    while (ftell(f) % (c->version == 1 ? 8 : 4096)) fprintf(f, " ");
    long head = ftell(f);
    for (int i = 0; i < n; i++) fwrite(slice_data(w, &s[i]), 1, (size_t)slice_bytes(w, &s[i]), f);
    fclose(f);
    length = (uint64_t)head - 8;
    memcpy(text, &length, 8);
    snprintf(path, sizeof path, "%s/rank-%05d.safetensors", c->folder, rank);
    write_bytes(path, text, *bytes);
    *sum = mt_xxh3(text, (int64_t)*bytes);
    free(text);
}

/* Both files of a rank. */
static inline void write_rank(const struct written *c, const struct world *w, int rank, const struct slice *s,
                              int n)
{
    char path[400];
    uint64_t sum;
    size_t bytes;
    write_tensors_of(c, w, rank, s, n, &sum, &bytes);
    snprintf(path, sizeof path, "%s/rank-%05d.json", c->folder, rank);
    FILE *f = fopen(path, "w");
    fprintf(f, "{");
    if (c->version > 1) fprintf(f, "\"file\": {\"bytes\": %zu, \"xxh3\": \"%016" PRIx64 "\"}, ", bytes, sum);
    fprintf(f, "\"tensors\": {");
    for (int i = 0; i < n; i++) {
        uint64_t part = mt_xxh3(slice_data(w, &s[i]), slice_bytes(w, &s[i]));
        fprintf(f, i ? ",\n" : "\n");
        print_key(f, w, &s[i]);
        if (c->version == 1) {
            fprintf(f, ":\"%016" PRIx64 "\"", part);
            continue;
        }
        fprintf(f, ": {\"shape\": ");
        print_shape(f, w->item[s[i].tensor].rows, w->item[s[i].tensor].cols);
        fprintf(f, ", \"row\": %" PRId64 ", \"xxh3\": \"%016" PRIx64 "\"}", s[i].row0, part);
    }
    fprintf(f, "}}\n");
    fclose(f);
}

static inline void write_text(const struct written *c, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", c->folder, name);
    write_bytes(path, text, strlen(text));
}

/* The manifest, of whatever files are there. */
static inline void seal(const struct written *c)
{
    static struct bytes b;
    char path[600], *text = NULL;
    size_t bytes = 0;
    const char *comma = "";
    snprintf(path, sizeof path, "%s/manifest.json", c->folder);
    unlink(path);
    FILE *f = open_memstream(&text, &bytes);
    fprintf(f,
            "{\"format\": \"moetitan checkpoint\", \"version\": %d, \"step\": %" PRId64
            ", \"tokens\": %" PRId64 ", \"world\": %d, \"files\": [",
            c->version, c->step, 1000 * c->step, c->world);
    DIR *d = opendir(c->folder);
    for (struct dirent *x; (x = readdir(d));) {
        if (x->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", c->folder, x->d_name);
        if (!read_bytes(&b, path)) abort();
        fprintf(f, "%s\n  {\"name\": \"%s\", \"bytes\": %zu, \"xxh3\": \"%016" PRIx64 "\"}", comma, x->d_name,
                b.n, mt_xxh3(b.at, (int64_t)b.n));
        comma = ",";
    }
    closedir(d);
    fprintf(f, "\n], \"xxh3\": \"");
    fflush(f);
    fprintf(f, "%016" PRIx64 "\"}\n", mt_xxh3(text, (int64_t)bytes));
    fclose(f);
    snprintf(path, sizeof path, "%s/manifest.json", c->folder);
    write_bytes(path, text, bytes);
    free(text);
}

/* A sound checkpoint of a world: every tensor's rows go round over the ranks; version 1 has one rank. */
static inline int slices_of(const struct world *w, int world, int rank, struct slice *out)
{
    int n = 0;
    for (int t = 0; t < TENSORS; t++) {
        int64_t rows = w->item[t].rows, from = rows * rank / world, to = rows * (rank + 1) / world;
        if (to > from) out[n++] = (struct slice){t, from, to - from};
    }
    return n;
}
static inline void write_sound(struct written *c, const struct world *w, const char *run, int version,
                               int world, int64_t step)
{
    struct slice s[TENSORS];
    char config[64], metrics[80];
    begin_checkpoint(c, run, version, world, step);
    for (int r = 0; r < world; r++) {
        int n = slices_of(w, world, r, s);
        if (n) write_rank(c, w, r, s, n);
    }
    snprintf(config, sizeof config, "train: {seed: %" PRId64 "}\n", 17 + step);
    write_text(c, "config.yaml", config);
    snprintf(metrics, sizeof metrics,
             "{\"step\": 1, \"loss\": 5.5}\n{\"step\": %" PRId64 ", \"loss\": 5.25}\n", step);
    if (version > 1) write_text(c, "metrics.jsonl", metrics);
    seal(c);
}
#endif
