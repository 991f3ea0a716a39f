#include "hf/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t bytes_of(const struct mt_hf_tensor *t, bool bf16)
{
    return mt_hf_numbers(t) * (mt_hf_is_bf16(t, bf16) ? 2 : 4);
}

static mt_status no_memory(mt_err *e)
{
    MT_FAIL(e, MT_IO, "no memory to list the tensors of an export");
}

/* Names are the table's: nothing in them that JSON would escape. */
static mt_status print_head(struct mt_hf_shard *x, const struct mt_hf_tensors *t, bool bf16, mt_err *e)
{
    uint64_t length = 0;
    size_t bytes = 0;
    int64_t at = 0;
    FILE *f = open_memstream(&x->head, &bytes);
    if (!f) return no_memory(e);
    fwrite(&length, 8, 1, f);
    fprintf(f, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = x->first; i < x->first + x->n; i++) {
        const struct mt_hf_tensor *p = &t->x[i];
        int64_t end = at + bytes_of(p, bf16);
        fprintf(f, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRId64, p->theirs,
                mt_hf_is_bf16(p, bf16) ? "BF16" : "F32", p->rows);
        if (p->cols) fprintf(f, ",%" PRId64, p->cols);
        fprintf(f, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, end);
        at = end;
    }
    putc('}', f);
    while (ftell(f) % 8) putc(' ', f);
    bool ok = !ferror(f);
    if (fclose(f) || !ok) return no_memory(e);
    length = bytes - 8;
    memcpy(x->head, &length, 8);
    x->head_bytes = (int64_t)bytes;
    x->bytes = x->head_bytes + at;
    return MT_OK;
}

/* A tensor that no longer fits begins another file. */
static void cut(struct mt_hf_shards *s, const struct mt_hf_tensors *t, bool bf16, int64_t shard_bytes)
{
    int64_t fill = 0;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t bytes = bytes_of(&t->x[i], bf16);
        if (!s->n || bytes > shard_bytes - fill) {
            s->x[s->n++].first = i;
            fill = 0;
        }
        s->x[s->n - 1].n++;
        fill += bytes;
        s->bytes += bytes;
    }
}

mt_status mt_hf_shards_open(struct mt_hf_shards *s, const struct mt_hf_tensors *t, bool bf16,
                            int64_t shard_bytes, mt_err *e)
{
    *s = (struct mt_hf_shards){.x = calloc((size_t)t->n, sizeof *s->x)};
    if (!s->x) return no_memory(e);
    cut(s, t, bf16, shard_bytes);
    for (int i = 0; i < s->n; i++) {
        struct mt_hf_shard *x = &s->x[i];
        if (s->n == 1)
            snprintf(x->name, sizeof x->name, "model.safetensors");
        else
            snprintf(x->name, sizeof x->name, "model-%05d-of-%05d.safetensors", i + 1, s->n);
        MT_TRY(print_head(x, t, bf16, e));
    }
    return MT_OK;
}

void mt_hf_shards_close(struct mt_hf_shards *s)
{
    for (int i = 0; i < s->n; i++) free(s->x[i].head);
    free(s->x);
    *s = (struct mt_hf_shards){0};
}

mt_status mt_hf_shards_index(const struct mt_hf_shards *s, const struct mt_hf_tensors *t, char **text,
                             int64_t *bytes, mt_err *e)
{
    size_t size = 0;
    *text = NULL;
    FILE *f = open_memstream(text, &size);
    if (!f) return no_memory(e);
    fprintf(f, "{\n  \"metadata\": {\n    \"total_size\": %" PRId64 "\n  },\n  \"weight_map\": {", s->bytes);
    for (int k = 0; k < s->n; k++)
        for (int64_t i = s->x[k].first; i < s->x[k].first + s->x[k].n; i++)
            fprintf(f, "%s\n    \"%s\": \"%s\"", i ? "," : "", t->x[i].theirs, s->x[k].name);
    fprintf(f, "\n  }\n}\n");
    bool ok = !ferror(f);
    ok = !fclose(f) && ok;
    *bytes = (int64_t)size;
    if (ok) return MT_OK;
    free(*text);
    *text = NULL;
    return no_memory(e);
}
