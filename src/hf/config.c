#include "hf/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/json.h"
#include "ckpt/publish.h"
#include "config/table.h"
#include "hf/attention.h"
#include "hf/mask.h"

static const double NEEDED = -1;

/* ---- writing ---- */
static void put_key(FILE *out, const char *key, mt_option_type type, double v)
{
    fprintf(out, ",\n  \"%s\": ", key);
    if (type == MT_VALUE_FLOAT)
        mt_hf_put_float(out, v);
    else if (type == MT_VALUE_BOOL)
        fputs(v > 0 ? "true" : "false", out);
    else
        fprintf(out, "%.0f", v);
}

/* Readers cut the product with the head's width down to a whole number. */
static double rotary_factor(const mt_config *c)
{
    double f = (double)c->model_rotary_dims / (double)c->model_head_dim;
    return (int64_t)((double)c->model_head_dim * f) < c->model_rotary_dims ? nextafter(f, 2) : f;
}

static void put_special(FILE *out, const mt_config *c, enum mt_hf_family f)
{
    if (f == MT_HF_GLM4_MOE) put_key(out, "partial_rotary_factor", MT_VALUE_FLOAT, rotary_factor(c));
    if (f == MT_HF_DEEPSEEK_V3) {
        put_key(out, "qk_nope_head_dim", MT_VALUE_INT, (double)(c->model_head_dim - c->model_rotary_dims));
        if (c->model_q_lora_rank)
            put_key(out, "q_lora_rank", MT_VALUE_INT, (double)c->model_q_lora_rank);
        else
            fputs(",\n  \"q_lora_rank\": null", out);
    }
    if (f == MT_HF_GLM4_MOE || f == MT_HF_DEEPSEEK_V3) {
        put_key(out, "n_shared_experts", MT_VALUE_INT, (double)(c->model_shared_ffn / c->model_expert_ffn));
    }
    if (f == MT_HF_QWEN3_MOE) {
        fprintf(out, ",\n  \"mlp_only_layers\": [");
        for (int64_t l = 0; l < c->model_first_dense; l++) fprintf(out, "%s%" PRId64, l ? ", " : "", l);
        fputc(']', out);
    }
    mt_hf_rope_write(c, out);
    mt_hf_window_write(c, f, out);
    put_key(out, "max_position_embeddings", MT_VALUE_INT, (double)c->train_seq_len);
    fprintf(out, ",\n  \"bos_token_id\": null,\n  \"eos_token_id\": ");
    if (c->data_eod >= 0)
        fprintf(out, "%" PRId64, c->data_eod);
    else
        fputs("null", out);
}

mt_status mt_hf_config_write(const mt_config *c, enum mt_hf_family f, bool bf16, char **text, int64_t *bytes,
                             mt_err *e)
{
    int bit = 1 << f;
    size_t size = 0;
    *text = NULL;
    FILE *out = open_memstream(text, &size);
    MT_REQUIRE(out, e, MT_IO, "no memory for config.json");
    fprintf(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n  \"torch_dtype\": \"%s\"",
            mt_hf_class(f), mt_hf_type(f), bf16 ? "bfloat16" : "float32");
#define KEY(families, key, alias, option, missing) \
    if (bit & (families)) put_key(out, key, mt_options[MT_OPTION_##option].type, (double)c->option);
#define FIXED(families, key, value) \
    if (bit & (families)) fprintf(out, ",\n  \"%s\": %s", key, value);
#include "hf/family.def"
    put_special(out, c, f);
    fprintf(out, ",\n  \"use_cache\": true\n}\n");
    bool ok = !ferror(out);
    ok = !fclose(out) && ok;
    *bytes = (int64_t)size;
    if (ok) return MT_OK;
    free(*text);
    *text = NULL;
    MT_FAIL(e, MT_IO, "no memory for config.json");
}

/* ---- reading ---- */
struct reading {
    const cJSON *json, *rope;
    const char *name;
    enum mt_hf_family f;
    mt_config *c;
};

/* Behind nothing and null alike stands the default. Keys of rotary embedding may be in an object of their own. */
static const cJSON *find(const struct reading *r, const char *key)
{
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(r->json, key);
    if (!j && r->rope) j = cJSON_GetObjectItemCaseSensitive(r->rope, key);
    return j && !cJSON_IsNull(j) ? j : NULL;
}

static bool text_of(const cJSON *j, mt_option_type type, char *out, size_t size)
{
    int64_t n;
    if (type == MT_VALUE_BOOL) {
        snprintf(out, size, "%s", cJSON_IsTrue(j) ? "true" : "false");
        return cJSON_IsBool(j);
    }
    if (type == MT_VALUE_FLOAT) {
        snprintf(out, size, "%.17g", j->valuedouble);
        return cJSON_IsNumber(j);
    }
    if (!mt_json_count(j, &n)) return false;
    snprintf(out, size, "%" PRId64, n);
    return true;
}

static mt_status take(const struct reading *r, const char *key, const char *alias, mt_option_id id,
                      double missing, mt_err *e)
{
    const cJSON *j = find(r, key);
    const mt_option *o = &mt_options[id];
    char text[64], why[MT_VALUE_WHY];
    if (!j && alias) j = find(r, alias);
    MT_REQUIRE(j || missing >= 0, e, MT_CKPT, "'%s' has no %s", r->name, key);
    if (!j && o->type == MT_VALUE_BOOL)
        snprintf(text, sizeof text, "%s", missing > 0 ? "true" : "false");
    else if (!j)
        snprintf(text, sizeof text, "%.17g", missing);
    else
        MT_REQUIRE(text_of(j, o->type, text, sizeof text), e, MT_CKPT, "'%s': %s is no %s", r->name, key,
                   o->type == MT_VALUE_BOOL    ? "truth value"
                   : o->type == MT_VALUE_FLOAT ? "number"
                                               : "whole number");
    MT_REQUIRE(mt_value_set(o, r->c, text, why), e, MT_CONFIG, "'%s': %s, as %s: %s", r->name, key, o->key,
               why);
    return MT_OK;
}

static mt_status fixed(const struct reading *r, const char *key, const char *value, mt_err *e)
{
    const cJSON *j = find(r, key);
    if (!j) return MT_OK;
    cJSON *want = cJSON_Parse(value);
    MT_REQUIRE(want, e, MT_IO, "no memory to read '%s'", r->name);
    bool same = cJSON_Compare(j, want, true);
    cJSON_Delete(want);
    MT_REQUIRE(same, e, MT_CONFIG, "'%s': %s is not %s, which a configuration of %s here cannot express",
               r->name, key, value, mt_hf_type(r->f));
    return MT_OK;
}

static mt_status take_shared(const struct reading *r, mt_err *e)
{
    const cJSON *shared = find(r, "n_shared_experts");
    int64_t n = 1;
    MT_REQUIRE(!shared || (mt_json_count(shared, &n) && n <= 1024), e, MT_CKPT,
               "'%s': n_shared_experts is no whole number up to 1024", r->name);
    r->c->model_shared_ffn = n * r->c->model_expert_ffn;
    return MT_OK;
}

static mt_status take_rotary_factor(const struct reading *r, mt_err *e)
{
    const cJSON *factor = find(r, "partial_rotary_factor");
    MT_REQUIRE(!factor || (cJSON_IsNumber(factor) && factor->valuedouble > 0 && factor->valuedouble <= 1), e,
               MT_CKPT, "'%s': partial_rotary_factor is no number above 0, up to 1", r->name);
    r->c->model_rotary_dims = (int64_t)((double)r->c->model_head_dim * (factor ? factor->valuedouble : 0.5));
    MT_REQUIRE(r->c->model_rotary_dims >= 1, e, MT_CONFIG,
               "'%s': partial_rotary_factor leaves nothing to rotate", r->name);
    return MT_OK;
}

/* null: queries are not compressed; without the key it is what the library has. */
static mt_status take_latent(const struct reading *r, mt_err *e)
{
    const cJSON *own = find(r, "qk_nope_head_dim"),
                *rank = cJSON_GetObjectItemCaseSensitive(r->json, "q_lora_rank");
    int64_t n;
    r->c->model_q_lora_rank = rank ? 0 : 1536;
    MT_REQUIRE(!rank || cJSON_IsNull(rank) ||
                   (mt_json_count(rank, &r->c->model_q_lora_rank) && r->c->model_q_lora_rank <= 1 << 17),
               e, MT_CKPT, "'%s': q_lora_rank is no whole number up to 128 Ki", r->name);
    MT_REQUIRE(own && mt_json_count(own, &n) && n >= 1 && n <= 1024, e, MT_CKPT,
               "'%s': qk_nope_head_dim is no whole number from 1 to 1024", r->name);
    r->c->model_head_dim = n + r->c->model_rotary_dims;
    return MT_OK;
}

static mt_status take_dense_layers(const struct reading *r, mt_err *e)
{
    const cJSON *list = find(r, "mlp_only_layers"), *j;
    int64_t n = 0, layer;
    MT_REQUIRE(!list || cJSON_IsArray(list), e, MT_CKPT, "'%s': mlp_only_layers is no list", r->name);
    cJSON_ArrayForEach(j, list)
    {
        MT_REQUIRE(mt_json_count(j, &layer) && layer == n, e, MT_CONFIG,
                   "'%s': mlp_only_layers are not the first layers, 0, 1 and so on; model.first_dense can "
                   "express nothing else",
                   r->name);
        n++;
    }
    r->c->model_first_dense = n;
    return MT_OK;
}

static mt_status check_weights(const struct reading *r, mt_err *e)
{
    MT_REQUIRE(!find(r, "quantization_config"), e, MT_CONFIG,
               "'%s' has a quantization_config: quantised weights cannot be read; take the folder of the "
               "bfloat16 model",
               r->name);
    return MT_OK;
}

static mt_status take_all(const struct reading *r, mt_err *e)
{
    int bit = 1 << r->f;
    mt_config *c = r->c;
    const cJSON *positions = find(r, "max_position_embeddings");
    int64_t n = MT_HF_SEQ_LEN;
#define KEY(families, key, alias, option, missing) \
    if (bit & (families)) MT_TRY(take(r, key, alias, MT_OPTION_##option, missing, e));
#include "hf/family.def"
    mt_hf_imply(r->f, c);
#define FIXED(families, key, value) \
    if (bit & (families)) MT_TRY(fixed(r, key, value, e));
#include "hf/family.def"
    if (r->f == MT_HF_GLM4_MOE) MT_TRY(take_rotary_factor(r, e));
    if (r->f == MT_HF_DEEPSEEK_V3) MT_TRY(take_latent(r, e));
    if (bit & (GLM4_MOE + DEEPSEEK_V3)) MT_TRY(take_shared(r, e));
    if (r->f == MT_HF_QWEN3_MOE) MT_TRY(take_dense_layers(r, e));
    MT_REQUIRE(!positions || (mt_json_count(positions, &n) && n > 0), e, MT_CKPT,
               "'%s': max_position_embeddings is no whole number above 0", r->name);
    c->train_seq_len = n < MT_HF_SEQ_LEN ? n : MT_HF_SEQ_LEN;
    MT_TRY(mt_hf_rope_read(c, r->f, r->json, r->name, e));
    MT_TRY(mt_hf_window_read(c, r->f, r->json, r->name, e));
    return check_weights(r, e);
}

static bool is_used(enum mt_hf_family f, const char *key)
{
    static const char *const special[] = {"model_type",
                                          "qk_nope_head_dim",
                                          "q_lora_rank",
                                          "partial_rotary_factor",
                                          "n_shared_experts",
                                          "mlp_only_layers",
                                          "max_position_embeddings",
                                          "architectures",
                                          "torch_dtype",
                                          "dtype",
                                          "use_cache",
                                          "transformers_version"};
    int bit = 1 << f;
    if (mt_hf_attention_key(f, key)) return true;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (!strcmp(key, special[i])) return true;
#define KEY(families, name, alias, option, missing) \
    if (bit & (families) && !strcmp(key, name)) return true;
#define FIXED(families, name, value) \
    if (bit & (families) && !strcmp(key, name)) return true;
#include "hf/family.def"
#define KEY(families, name, alias, option, missing)                        \
    {                                                                      \
        const char *other = alias;                                         \
        if (bit & (families) && other && !strcmp(key, other)) return true; \
    }
#include "hf/family.def"
    return false;
}

/* Names are printed: only plain ones. */
static bool plain(const char *key)
{
    return *key && !key[strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")];
}

static mt_status check_keys(const struct reading *r, char unused[MT_HF_UNUSED], mt_err *e)
{
    const cJSON *j, *k;
    size_t at = 0;
    unused[0] = 0;
    cJSON_ArrayForEach(j, r->json)
    {
        for (k = j->next; k; k = k->next)
            MT_REQUIRE(strcmp(j->string, k->string), e, MT_CKPT, "'%s' has a key twice: %.60s", r->name,
                       plain(j->string) ? j->string : "one that is no plain name");
        if (!is_used(r->f, j->string) && at < MT_HF_UNUSED)
            at += (size_t)snprintf(unused + at, MT_HF_UNUSED - at, "%s%s", at ? ", " : "",
                                   plain(j->string) ? j->string : "?");
    }
    return MT_OK;
}

/* What has its default did not come from here. */
static void mark_defaults(mt_config *c)
{
    static mt_config const zero;
    mt_config d = zero;
    char a[MT_VALUE_TEXT], b[MT_VALUE_TEXT];
    mt_config_defaults(&d);
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (o->list || !strcmp(mt_value_text(o, c, a), mt_value_text(o, &d, b)))
            c->origin[i] = (mt_origin){.from = MT_FROM_DEFAULT};
    }
}

/* All rules that a configuration of a file is held to. */
static mt_status check_rules(const struct reading *r, mt_err *e)
{
    char *text, name[MT_CONFIG_PATH];
    int64_t bytes;
    snprintf(name, sizeof name, "%.900s, as options", r->name);
    MT_TRY(mt_saving_config(r->c, &text, &bytes, e));
    mt_status st = mt_config_parse(r->c, name, text, (size_t)bytes, e);
    free(text);
    MT_TRY(st);
    mark_defaults(r->c);
    return MT_OK;
}

/* A mixture without experts, say, is no model of its family. */
static mt_status check_family(const struct reading *r, mt_err *e)
{
    enum mt_hf_family f;
    mt_status st = mt_hf_family_of(r->c, &f, e);
    if (st != MT_OK) mt_err_while(e, "'%s'", r->name);
    MT_TRY(st);
    MT_REQUIRE(f == r->f, e, MT_CONFIG, "'%s' says model_type \"%s\", but describes a model of %s", r->name,
               mt_hf_type(r->f), mt_hf_type(f));
    return MT_OK;
}

static mt_status read_all(struct reading *r, enum mt_hf_family *f, char unused[MT_HF_UNUSED], mt_err *e)
{
    const cJSON *type = find(r, "model_type");
    MT_REQUIRE(cJSON_IsString(type), e, MT_CKPT, "'%s' has no model_type", r->name);
    mt_status st = mt_hf_family_named(plain(type->valuestring) ? type->valuestring : "?", f, e);
    if (st != MT_OK) mt_err_while(e, "'%s'", r->name);
    MT_TRY(st);
    r->f = *f;
    mt_config_defaults(r->c);
    MT_TRY(check_keys(r, unused, e));
    MT_TRY(take_all(r, e));
    MT_TRY(check_rules(r, e));
    return check_family(r, e);
}

mt_status mt_hf_config_read(mt_config *c, enum mt_hf_family *f, const char *name, const char *text,
                            int64_t bytes, char unused[MT_HF_UNUSED], mt_err *e)
{
    cJSON *json = mt_json_object(text, bytes);
    MT_REQUIRE(json, e, MT_CKPT, "'%s' is not a JSON object", name);
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(json, "rope_parameters");
    struct reading r = {.json = json, .rope = cJSON_IsObject(rope) ? rope : NULL, .name = name, .c = c};
    mt_status st = read_all(&r, f, unused, e);
    cJSON_Delete(json);
    return st;
}
