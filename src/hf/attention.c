#include "hf/attention.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/json.h"
#include "hf/mask.h"
#include "model/shape.h"

/* Nothing and null are alike. */
static const cJSON *find(const cJSON *json, const char *key)
{
    const cJSON *j = json ? cJSON_GetObjectItemCaseSensitive(json, key) : NULL;
    return j && !cJSON_IsNull(j) ? j : NULL;
}

void mt_hf_put_float(FILE *out, double v)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (!(fabs(strtod(text, NULL) - v) > 0)) break;
    }
    fprintf(out, "%s%s", text, text[strcspn(text, ".e")] ? "" : ".0");
}

/* ---- rotary positions ---- */
static mt_status number(const cJSON *rope, const char *key, double missing, double *out, const char *name,
                        mt_err *e)
{
    const cJSON *j = find(rope, key);
    MT_REQUIRE(j || missing >= 0, e, MT_CKPT, "'%s': YaRN's %s is missing", name, key);
    MT_REQUIRE(!j || cJSON_IsNumber(j), e, MT_CKPT, "'%s': YaRN's %s is no number", name, key);
    *out = j ? j->valuedouble : missing;
    return MT_OK;
}

/* Without mscale_all_dim the library takes mscale for 1. */
static mt_status temperature(mt_config *c, enum mt_hf_family f, const cJSON *rope, const char *name,
                             mt_err *e)
{
    double mscale, all;
    const cJSON *truncate = find(rope, "truncate");
    MT_TRY(number(rope, "mscale", 0, &mscale, name, e));
    MT_TRY(number(rope, "mscale_all_dim", 0, &all, name, e));
    MT_REQUIRE(!find(rope, "attention_factor"), e, MT_CONFIG,
               "'%s': YaRN's attention_factor cannot be expressed; what its factor gives can", name);
    MT_REQUIRE(!truncate || cJSON_IsTrue(truncate), e, MT_CONFIG,
               "'%s': YaRN without truncate cannot be expressed", name);
    if (!(fabs(all) > 0)) {
        MT_REQUIRE(!(fabs(mscale) > 0) || !(fabs(mscale - 1) > 0), e, MT_CONFIG,
                   "'%s': YaRN's mscale is %g without an mscale_all_dim, of which there are two readings",
                   name, mscale);
        return MT_OK;
    }
    MT_REQUIRE(f == MT_HF_DEEPSEEK_V3 && mscale > 0, e, MT_CONFIG,
               "'%s': YaRN's mscale_all_dim is %g, which only deepseek_v3 can express, with an mscale", name,
               all);
    c->model_rope_mscale = mscale;
    c->model_rope_mscale_all = all;
    return MT_OK;
}

static mt_status take_yarn(mt_config *c, enum mt_hf_family f, const cJSON *rope, const char *name, mt_err *e)
{
    double factor, original;
    MT_TRY(number(rope, "factor", -1, &factor, name, e));
    MT_TRY(number(rope, "original_max_position_embeddings", -1, &original, name, e));
    MT_REQUIRE(original >= 1 && original <= 1 << 30 && !(fabs(original - floor(original)) > 0), e, MT_CKPT,
               "'%s': YaRN's original_max_position_embeddings is no whole number above 0", name);
    MT_REQUIRE(factor >= 1, e, MT_CONFIG, "'%s': YaRN's factor is %g, less than 1", name, factor);
    if (!(factor > 1)) return MT_OK;
    c->model_rope_factor = factor;
    c->model_rope_original = (int64_t)original;
    MT_TRY(number(rope, "beta_fast", 32, &c->model_rope_beta_fast, name, e));
    MT_TRY(number(rope, "beta_slow", 1, &c->model_rope_beta_slow, name, e));
    return temperature(c, f, rope, name, e);
}

mt_status mt_hf_rope_read(mt_config *c, enum mt_hf_family f, const cJSON *json, const char *name, mt_err *e)
{
    const cJSON *rope = find(json, "rope_parameters"), *scaling = find(json, "rope_scaling");
    MT_REQUIRE(!rope || !scaling, e, MT_CONFIG, "'%s' has both rope_parameters and rope_scaling", name);
    if (!rope) rope = scaling;
    const cJSON *type = find(rope, "rope_type");
    if (!type) type = find(rope, "type");
    if (!rope || (rope != scaling && !type)) return MT_OK;
    bool text = cJSON_IsString(type);
    if (text && !strcmp(type->valuestring, "default")) return MT_OK;
    MT_REQUIRE(
        text && !strcmp(type->valuestring, "yarn"), e, MT_CONFIG,
        "'%s': rope_type is neither \"default\" nor \"yarn\", which a configuration here cannot express",
        name);
    return take_yarn(c, f, rope, name, e);
}

static void put(FILE *out, const char *key, double v)
{
    fprintf(out, ", \"%s\": ", key);
    mt_hf_put_float(out, v);
}

/* Old readers know `type`, newer ones `rope_type`. */
void mt_hf_rope_write(const mt_config *c, FILE *out)
{
    if (!(c->model_rope_factor > 1)) {
        fputs(",\n  \"rope_scaling\": null", out);
        return;
    }
    fputs(",\n  \"rope_scaling\": {\"type\": \"yarn\", \"rope_type\": \"yarn\"", out);
    put(out, "factor", c->model_rope_factor);
    fprintf(out, ", \"original_max_position_embeddings\": %" PRId64, c->model_rope_original);
    put(out, "beta_fast", c->model_rope_beta_fast);
    put(out, "beta_slow", c->model_rope_beta_slow);
    if (c->model_rope_mscale_all > 0) {
        put(out, "mscale", c->model_rope_mscale);
        put(out, "mscale_all_dim", c->model_rope_mscale_all);
    }
    fputc('}', out);
}

/* ---- windows ---- */
/* Families whose layers can differ. */
static bool by_layer(enum mt_hf_family f)
{
    return f == MT_HF_QWEN3 || f == MT_HF_QWEN2;
}
static bool has_windows(enum mt_hf_family f)
{
    return by_layer(f) || f == MT_HF_QWEN3_MOE || f == MT_HF_MIXTRAL;
}

/* The pattern that gives layer_types; the first layers without a window are those before the first that has one. */
static bool take_pattern(mt_config *c, const cJSON *types)
{
    struct mt_shape s = mt_shape_of(c);
    const cJSON *j;
    s.full_first = 0;
    cJSON_ArrayForEach(j, types)
    {
        if (!strcmp(j->valuestring, "sliding_attention")) break;
        s.full_first++;
    }
    for (s.full_every = 0; s.full_every <= s.L; s.full_every += s.full_every ? 1 : 2) {
        int64_t l = 0;
        cJSON_ArrayForEach(j, types) if (mt_is_near(&s, l++) !=
                                         !strcmp(j->valuestring, "sliding_attention")) break;
        if (j) continue;
        c->model_window_full_first = s.full_first;
        c->model_window_full_every = s.full_every;
        return true;
    }
    return false;
}

/* *sliding: whether a layer has a window. */
static mt_status check_types(const cJSON *types, int64_t layers, bool *sliding, const char *name, mt_err *e)
{
    const cJSON *j;
    *sliding = false;
    cJSON_ArrayForEach(j, types)
    {
        bool near = cJSON_IsString(j) && !strcmp(j->valuestring, "sliding_attention");
        MT_REQUIRE(near || (cJSON_IsString(j) && !strcmp(j->valuestring, "full_attention")), e, MT_CONFIG,
                   "'%s': layer_types has something else than full_attention and sliding_attention, which a "
                   "configuration here cannot express",
                   name);
        *sliding = *sliding || near;
    }
    MT_REQUIRE(!*sliding || (cJSON_IsArray(types) && cJSON_GetArraySize(types) == layers), e, MT_CKPT,
               "'%s': layer_types is no list of %" PRId64, name, layers);
    return MT_OK;
}

bool mt_hf_attention_key(enum mt_hf_family f, const char *key)
{
    static const char *const keys[] = {"rope_scaling",   "rope_parameters",    "layer_types",
                                       "sliding_window", "use_sliding_window", "max_window_layers"};
    for (size_t i = 0; i < (has_windows(f) ? sizeof keys / sizeof *keys : 3); i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

/* Of a family with windows: their width, 0: there are none. */
static mt_status read_width(enum mt_hf_family f, const cJSON *json, int64_t *window, const char *name,
                            mt_err *e)
{
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(json, "sliding_window"),
                *use = find(json, "use_sliding_window");
    MT_REQUIRE(!use || cJSON_IsBool(use), e, MT_CKPT, "'%s': use_sliding_window is no truth value", name);
    *window = 0;
    if (f != MT_HF_MIXTRAL && !cJSON_IsTrue(use)) return MT_OK;
    if (!j && f != MT_HF_MIXTRAL) *window = 4096;
    if (!j || cJSON_IsNull(j)) return MT_OK;
    MT_REQUIRE(mt_json_count(j, window) && *window >= 1 && *window <= 1 << 24, e, MT_CKPT,
               "'%s': sliding_window is no whole number from 1 to 16 Mi", name);
    return MT_OK;
}

mt_status mt_hf_window_read(mt_config *c, enum mt_hf_family f, const cJSON *json, const char *name, mt_err *e)
{
    const cJSON *types = find(json, "layer_types"), *first = find(json, "max_window_layers");
    int64_t window = 0, n = 28;
    bool sliding;
    MT_TRY(check_types(types, c->model_layers, &sliding, name, e));
    if (has_windows(f)) MT_TRY(read_width(f, json, &window, name, e));
    MT_REQUIRE(window || !sliding, e, MT_CONFIG,
               "'%s': layer_types has sliding_attention, but there is no %s", name,
               has_windows(f) ? "sliding_window" : "window in this family");
    MT_REQUIRE(!first || mt_json_count(first, &n), e, MT_CKPT, "'%s': max_window_layers is no whole number",
               name);
    if (!window || (types && !sliding)) return MT_OK;
    c->model_window = window;
    if (types) {
        MT_REQUIRE(take_pattern(c, types) && (by_layer(f) || !c->model_window_full_first), e, MT_CONFIG,
                   "'%s': layer_types are no pattern of model.window_full_first and model.window_full_every",
                   name);
    } else if (by_layer(f)) {
        if (n >= c->model_layers) c->model_window = 0;
        c->model_window_full_first = n < c->model_layers ? n : 0;
    }
    return MT_OK;
}

void mt_hf_window_write(const mt_config *c, enum mt_hf_family f, FILE *out)
{
    struct mt_shape s = mt_shape_of(c);
    if (!has_windows(f)) return;
    if (f != MT_HF_MIXTRAL) fprintf(out, ",\n  \"use_sliding_window\": %s", s.W ? "true" : "false");
    if (s.W)
        fprintf(out, ",\n  \"sliding_window\": %" PRId64, s.W);
    else
        fputs(",\n  \"sliding_window\": null", out);
    if (!s.W || !by_layer(f)) return;
    fprintf(out, ",\n  \"max_window_layers\": %" PRId64 ",\n  \"layer_types\": [", s.full_first);
    for (int64_t l = 0; l < c->model_layers; l++)
        fprintf(out, "%s\"%s\"", l ? ", " : "", mt_is_near(&s, l) ? "sliding_attention" : "full_attention");
    fputc(']', out);
}
