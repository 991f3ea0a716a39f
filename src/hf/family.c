#include "hf/family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/table.h"
#include "hf/mask.h"
#include "hf/rows.h"

static const struct {
    const char *type, *class;
} family[] = {
#define FAMILY(id, model_type, class, kind) {model_type, class},
#include "hf/family.def"
};
static const struct {
    const char *type, *why;
} refused[] = {
#define REFUSED(model_type, why) {model_type, why},
#include "hf/family.def"
};

const char *mt_hf_type(enum mt_hf_family f)
{
    return family[f].type;
}
const char *mt_hf_class(enum mt_hf_family f)
{
    return family[f].class;
}

static const char *all_types(char *out, size_t size)
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < MT_HF_FAMILIES && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "", family[i].type);
    return out;
}

mt_status mt_hf_family_named(const char *model_type, enum mt_hf_family *f, mt_err *e)
{
    char all[256];
    for (int i = 0; i < MT_HF_FAMILIES; i++) {
        *f = (enum mt_hf_family)i;
        if (!strcmp(model_type, family[i].type)) return MT_OK;
    }
#define ALIAS(type, family)          \
    if (!strcmp(model_type, type)) { \
        *f = MT_HF_##family;         \
        return MT_OK;                \
    }
#include "hf/family.def"
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        MT_REQUIRE(strcmp(model_type, refused[i].type), e, MT_CONFIG, "model_type \"%s\" cannot be read: %s",
                   refused[i].type, refused[i].why);
    MT_FAIL(e, MT_CONFIG, "model_type \"%.60s\" is no family that is read; these are: %s", model_type,
            all_types(all, sizeof all));
}

static enum mt_hf_family nearest(const mt_config *c)
{
#define FAMILY(id, model_type, class, kind) \
    if (kind) return MT_HF_##id;
#include "hf/family.def"
}

static mt_status not_so(const mt_config *c, enum mt_hf_family f, mt_option_id id, double value, mt_err *e)
{
    const mt_option *o = &mt_options[id];
    char has[MT_VALUE_TEXT], wants[64];
    if (o->type == MT_VALUE_CHOICE)
        snprintf(wants, sizeof wants, "%s", o->choices[(int)value]);
    else if (o->type == MT_VALUE_BOOL)
        snprintf(wants, sizeof wants, "%s", value > 0 ? "true" : "false");
    else
        snprintf(wants, sizeof wants, "%.10g", value);
    MT_FAIL(e, MT_CONFIG, "%s is %s: the nearest family, %s, cannot express that, all its models have %s",
            o->key, mt_value_text(o, c, has), family[f].type, wants);
}

mt_status mt_hf_family_of(const mt_config *c, enum mt_hf_family *f, mt_err *e)
{
    *f = nearest(c);
    int bit = 1 << *f;
#define IMPLIED(families, option, value)                                     \
    if (bit & (families) && fabs((double)(c->option) - (double)(value)) > 0) \
        return not_so(c, *f, MT_OPTION_##option, (double)(value), e);
#include "hf/family.def"
    MT_REQUIRE(*f != MT_HF_DEEPSEEK_V3 || c->model_experts, e, MT_CONFIG,
               "model.experts is 0: the nearest family, deepseek_v3, has experts");
    MT_REQUIRE(!(bit & (GLM4_MOE + DEEPSEEK_V3)) || c->model_shared_ffn % c->model_expert_ffn == 0, e,
               MT_CONFIG,
               "model.shared_ffn is %" PRId64 ": a shared expert of %s is a multiple of "
               "model.expert_ffn, %" PRId64 ", wide",
               c->model_shared_ffn, family[*f].type, c->model_expert_ffn);
    return MT_OK;
}

bool mt_hf_has_mtp(enum mt_hf_family f)
{
    return f == MT_HF_GLM4_MOE || f == MT_HF_DEEPSEEK_V3;
}

void mt_hf_imply(enum mt_hf_family f, mt_config *c)
{
    int bit = 1 << f;
#define IMPLIED(families, option, value) \
    if (bit & (families)) c->option = value;
#include "hf/family.def"
}

/* ---- tensors ---- */
static const char *pattern_of(enum mt_hf_family f, int kind)
{
#define NAME(family, tensor, pattern) \
    if (f == MT_HF_##family && kind == MT_P_##tensor) return pattern;
#include "hf/family.def"
    return mt_param_hf(kind);
}

static void add(struct mt_hf_tensors *t, enum mt_hf_family f, const struct mt_shape *s,
                const struct mt_hf_tensor *x)
{
    struct mt_hf_tensor *to = &t->x[t->n++];
    *to = *x;
    to->their_rows = mt_hf_their_rows(s, x->kind, x->rows);
    if (x->kind == MT_N_TENSOR_KINDS) {
        mt_param_fill("layers.%d.moe.router.bias", x->layer, 0, to->ours);
        if (f == MT_HF_GLM4_MOE || f == MT_HF_DEEPSEEK_V3)
            mt_param_fill("model.layers.%d.mlp.gate.e_score_correction_bias", x->layer, 0, to->theirs);
        return;
    }
    mt_param_fill(mt_param_pattern(x->kind), x->layer, x->expert, to->ours);
    mt_param_fill(pattern_of(f, x->kind), x->layer, x->expert, to->theirs);
    mt_param_fill(mt_param_hf(x->kind), x->layer, x->expert, to->plain);
    if (!strcmp(to->plain, to->theirs)) to->plain[0] = 0;
}

static void add_layer(struct mt_hf_tensors *t, enum mt_hf_family f, const struct mt_shape *s, int layer)
{
    for (int k = 0; k < MT_N_TENSOR_KINDS; k++) {
        struct mt_param_size size = mt_param_size(s, k, layer);
        int64_t parts = !size.rows ? 0 : mt_param_of_expert(k) ? s->E : 1;
        for (int64_t i = 0; i < parts; i++)
            add(t, f, s,
                &(struct mt_hf_tensor){
                    .rows = size.rows, .cols = size.cols, .kind = k, .layer = layer, .expert = i});
    }
    if (layer >= 0 && mt_is_moe(s, layer))
        add(t, f, s, &(struct mt_hf_tensor){.rows = s->E, .kind = MT_N_TENSOR_KINDS, .layer = layer});
}

mt_status mt_hf_tensors_open(struct mt_hf_tensors *t, enum mt_hf_family f, const struct mt_shape *s,
                             mt_err *e)
{
    int64_t most = (s->L + 1) * (MT_N_TENSOR_KINDS + 1 + 3 * s->E);
    *t = (struct mt_hf_tensors){.x = calloc((size_t)most, sizeof *t->x)};
    MT_REQUIRE(t->x, e, MT_IO, "no memory to list %" PRId64 " tensors of a model", most);
    for (int l = -1; l < (int)s->L; l++) add_layer(t, f, s, l);
    MT_ASSERT(t->n <= most);
    return MT_OK;
}

void mt_hf_tensors_close(struct mt_hf_tensors *t)
{
    free(t->x);
    *t = (struct mt_hf_tensors){0};
}
