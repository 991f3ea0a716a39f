#include "hf/match.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *shape_text(const int64_t *shape, int dims, char *out, size_t size)
{
    size_t at = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < dims && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (at < size) snprintf(out + at, size - at, "]");
    return out;
}

static mt_status check(const struct mt_hf_folder *h, const struct mt_hf_entry *x, const int64_t *shape,
                       int dims, mt_err *e)
{
    char is[96], wants[96];
    bool same = x->dims == dims;
    for (int i = 0; i < dims && same; i++) same = x->shape[i] == shape[i];
    MT_REQUIRE(same, e, MT_CKPT, "'%s/%s': tensor '%.100s' is %s, config.json makes it %s", h->path,
               h->name[x->file], x->name, shape_text(x->shape, x->dims, is, sizeof is),
               shape_text(shape, dims, wants, sizeof wants));
    MT_REQUIRE(x->type != MT_TENSOR_OTHER, e, MT_CKPT,
               "'%s/%s': the dtype of tensor '%.100s' is none of F32, BF16 and F16", h->path,
               h->name[x->file], x->name);
    return MT_OK;
}

static mt_status take_whole(const struct mt_hf_folder *h, const struct mt_hf_tensor *t, struct mt_hf_entry *x,
                            struct mt_hf_source *out, mt_err *e)
{
    MT_TRY(check(h, x, (int64_t[]){t->their_rows, t->cols}, t->cols ? 2 : 1, e));
    *out = (struct mt_hf_source){x->file, x->type, x->at};
    x->used = true;
    return MT_OK;
}

/* Gate's rows come before those of up. */
static mt_status take_fused(const struct mt_hf_folder *h, const struct mt_hf_tensor *t,
                            const struct mt_shape *s, struct mt_hf_entry *x, struct mt_hf_source *out,
                            mt_err *e)
{
    int halves = t->kind == MT_P_expert_down ? 1 : 2;
    int64_t of_expert = halves * t->rows * t->cols;
    MT_TRY(check(h, x, (int64_t[]){s->E, halves * t->rows, t->cols}, 3, e));
    int64_t first = t->expert * of_expert + (t->kind == MT_P_expert_up ? t->rows * t->cols : 0);
    *out = (struct mt_hf_source){x->file, x->type, x->at + first * mt_tensor_element(x->type)};
    x->used = true;
    return MT_OK;
}

static struct mt_hf_entry *find_fused(const struct mt_hf_folder *h, const struct mt_hf_tensor *t)
{
    char name[MT_HF_NAME];
    if (t->kind == MT_N_TENSOR_KINDS || !mt_param_of_expert(t->kind)) return NULL;
    mt_param_fill(t->kind == MT_P_expert_down ? "model.layers.%d.mlp.experts.down_proj"
                                              : "model.layers.%d.mlp.experts.gate_up_proj",
                  t->layer, 0, name);
    return mt_hf_find(h, name);
}

static mt_status take(const struct mt_hf_folder *h, const struct mt_hf_tensor *t, const struct mt_shape *s,
                      struct mt_hf_source *out, mt_err *e)
{
    *out = (struct mt_hf_source){.file = -1};
    if (!t->theirs[0]) return MT_OK;
    struct mt_hf_entry *x = mt_hf_find(h, t->theirs);
    if (!x && t->plain[0]) x = mt_hf_find(h, t->plain);
    if (x) return take_whole(h, t, x, out, e);
    x = find_fused(h, t);
    MT_REQUIRE(x, e, MT_CKPT, "'%s' has no tensor '%s'", h->path, t->theirs);
    return take_fused(h, t, s, x, out, e);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && !strcmp(name + n - k, end);
}

/* Why a tensor may be there that the model has no place for; NULL: nothing is known of it. */
static const char *why_ignored(const char *name, const struct mt_shape *s)
{
    static const char layers[] = "model.layers.";
    if (ends_with(name, ".rotary_emb.inv_freq")) return "computed from rope_theta";
    if (s->tied && !strcmp(name, "lm_head.weight")) return "the head is the embedding (tie_word_embeddings)";
    if (strncmp(name, layers, sizeof layers - 1) != 0) return NULL;
    char *end;
    long layer = strtol(name + sizeof layers - 1, &end, 10);
    if (end == name + sizeof layers - 1 || *end != '.' || layer < mt_own_layers(s)) return NULL;
    if (layer >= s->L)
        return "of a layer behind the last (multi-token prediction); --mtp reads what config.json counts";
    if (!strcmp(end, ".embed_tokens.weight") || !strcmp(end, ".shared_head.head.weight"))
        return "a module's copy of the model's embedding or head, which it shares here";
    return NULL;
}

mt_status mt_hf_match(const struct mt_hf_folder *h, const struct mt_hf_tensors *t, const struct mt_shape *s,
                      struct mt_hf_source *source, FILE *told, mt_err *e)
{
    for (int64_t i = 0; i < t->n; i++) MT_TRY(take(h, &t->x[i], s, &source[i], e));
    for (int64_t i = 0; i < h->n; i++) {
        if (h->entry[i].used) continue;
        const char *why = why_ignored(h->entry[i].name, s);
        MT_REQUIRE(why, e, MT_CKPT,
                   "'%s/%s': nothing is known of tensor '%.100s' in a model of this config.json", h->path,
                   h->name[h->entry[i].file], h->entry[i].name);
        fprintf(told, "ignored: %s: %s\n", h->entry[i].name, why);
    }
    return MT_OK;
}
