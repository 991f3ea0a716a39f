#include "train/space.h"

#include <stdio.h>
#include <string.h>

#include "config/rule.h"
#include "config/table.h"

/* X(field of the option, values, note). Those with the greatest effect on the others come first. Values are parted by commas, texts
 * by blanks; '' is the empty one. */
#define AXES(X)                                                                     \
    X(train_micro_batch, "1,2,4,8", "")                                             \
    X(train_micro_order, "batch,layer", "")                                         \
    X(mesh_ep, "1,2,4,8", "")                                                       \
    X(mesh_replicas, "1,2,4,8,16", "")                                              \
    X(wire_gather_experts, "auto,fp8", "products use weights rounded to fp8")       \
    X(wire_gather_dense, "auto,fp8", "products use weights rounded to fp8")         \
    X(wire_reduce, "f32,bf16", "each rank's gradient is rounded once")              \
    X(recompute_policy, "full,selective,none", "")                                  \
    X(recompute_keep, "'' attention attention,attn_out qkv,attention,attn_out", "") \
    X(offload_activations_fraction, "0,0.5,0.75,1", "")                             \
    X(recompute_keep_on, "device,host", "")                                         \
    X(moe_buffer_factor, "0.1,0.2,0.5,1,1.25", "")                                  \
    X(offload_masters, "device,host", "")                                           \
    X(offload_moments, "device,host", "")                                           \
    X(offload_grads, "device,host", "")                                             \
    X(optim_compute, "device,host", "")                                             \
    X(offload_slots, "1,2,4,6", "")                                                 \
    X(offload_slot_bytes, "16MiB,64MiB,256MiB", "")                                 \
    X(muon_dense, "exchange,gather", "")                                            \
    X(muon_batch_bytes, "16MiB,64MiB,256MiB", "")                                   \
    X(train_loss_chunk, "256,1024,4096", "")                                        \
    X(shard_host_weights, "none,dense,experts,all", "")                             \
    X(shard_reshard_dense, "world,node,none", "")                                   \
    X(shard_reshard_experts, "world,node,none", "")                                 \
    X(shard_keep_last, "0,1,2,4,8", "")                                             \
    X(shard_prefetch, "1,2,3", "")                                                  \
    X(shard_grads, "1,2,3", "")                                                     \
    X(offload_activations_prefetch, "1,2", "")

static const struct row {
    mt_option_id option;
    const char *values, *note;
} rows[] = {
#define X(field, values, note) {MT_OPTION_##field, values, note},
    AXES(X)
#undef X
};
enum { N_ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)N_ROWS < (int)MT_SPACE_AXES, "room for every option");

/* Texts may have commas in them. */
static const char *parts_of(const mt_option *o)
{
    return o->type == MT_VALUE_STR ? " " : ",";
}

/* Appends the values of a list that are not there yet, as the option's own text has them. */
static mt_status add_values(struct mt_axis *a, const mt_config *cfg, const char *list, mt_err *e)
{
    static const char expected[] = "is more than a search takes";
    const mt_option *o = &mt_options[a->option];
    mt_config c = *cfg;
    char value[MT_SPACE_TEXT], text[MT_VALUE_TEXT], why[MT_VALUE_WHY];
    for (const char *at = list; *at; at += strspn(at, parts_of(o))) {
        size_t n = strcspn(at, parts_of(o));
        int same = 0;
        MT_REQUIRE(n < sizeof value, e, MT_CONFIG, "%s: '%.*s' %s", o->key, (int)n, at, expected);
        memcpy(value, at, n);
        value[n] = 0;
        at += n;
        if (!strcmp(value, "''")) value[0] = 0;
        MT_REQUIRE(mt_value_set(o, &c, value, why), e, MT_CONFIG, "%s: %s", o->key, why);
        mt_value_text(o, &c, text);
        while (same < a->n && strcmp(a->value[same], text) != 0) same++;
        if (same < a->n) continue;
        MT_REQUIRE(a->n < MT_SPACE_VALUES && strlen(text) < MT_SPACE_TEXT, e, MT_CONFIG, "%s: '%s' %s",
                   o->key, list, expected);
        snprintf(a->value[a->n++], MT_SPACE_TEXT, "%.*s", MT_SPACE_TEXT - 1, text);
    }
    return MT_OK;
}

static mt_status axis_fill(struct mt_axis *a, const mt_config *cfg, mt_option_id option, const char *list,
                           const char *note, mt_err *e)
{
    char own[MT_VALUE_TEXT];
    *a = (struct mt_axis){.option = option, .note = note, .n = 1};
    mt_value_text(&mt_options[option], cfg, own);
    snprintf(a->value[0], MT_SPACE_TEXT, "%.*s", MT_SPACE_TEXT - 1, own);
    return add_values(a, cfg, list, e);
}

void mt_space_fill(struct mt_space *s, const mt_config *cfg)
{
    mt_err e = {0};
    s->n = 0;
    for (int i = 0; i < N_ROWS; i++) {
        mt_status st = axis_fill(&s->axis[s->n++], cfg, rows[i].option, rows[i].values, rows[i].note, &e);
        MT_ASSERT(st == MT_OK);
    }
}

mt_status mt_space_vary(struct mt_space *s, const mt_config *cfg, const char *assignment, mt_err *e)
{
    const char *equals = strchr(assignment, '='), *note = "";
    char key[64], unknown[512];
    int i = 0;
    MT_REQUIRE(equals && equals[1] && (size_t)(equals - assignment) < sizeof key, e, MT_CONFIG,
               "--vary needs KEY=VALUE,VALUE,... such as train.seq_len=8Ki,32Ki, not '%.80s'", assignment);
    snprintf(key, sizeof key, "%.*s", (int)(equals - assignment), assignment);
    mt_option_id option = mt_option_find(key);
    MT_REQUIRE(option != MT_OPTION_COUNT, e, MT_CONFIG, "--vary: %s",
               mt_option_unknown(key, false, unknown, sizeof unknown));
    mt_option_type type = mt_options[option].type;
    MT_REQUIRE(type <= MT_VALUE_BOOL || type == MT_VALUE_CHOICE || type == MT_VALUE_STR, e, MT_CONFIG,
               "--vary %s: only numbers, names and texts can be varied", key);
    while (i < s->n && s->axis[i].option != option) i++;
    MT_REQUIRE(i < MT_SPACE_AXES, e, MT_CONFIG, "--vary: at most %d options at a time", MT_SPACE_AXES);
    if (i < s->n)
        note = s->axis[i].note;
    else
        s->n++;
    if (mt_options[option].fixed) note = "a run cannot be resumed with another";
    return axis_fill(&s->axis[i], cfg, option, equals + 1, note, e);
}

int64_t mt_space_size(const struct mt_space *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->n; i++) {
        if (n > INT64_MAX / MT_SPACE_VALUES) return INT64_MAX;
        n *= s->axis[i].n;
    }
    return n;
}

mt_status mt_space_apply(const struct mt_space *s, const struct mt_choice *p, const mt_config *cfg,
                         int64_t world, mt_config *out, mt_err *e)
{
    char why[MT_VALUE_WHY];
    *out = *cfg;
    for (int i = 0; i < s->n; i++) {
        const struct mt_axis *a = &s->axis[i];
        bool known = !p->at[i] || mt_value_set(&mt_options[a->option], out, a->value[p->at[i]], why);
        MT_ASSERT(known);
    }
    MT_TRY(mt_config_check(out, e));
    return mt_config_check_world(out, world, e);
}

int mt_space_changes(const struct mt_space *s, const struct mt_choice *p, char *out, size_t size)
{
    int n = 0;
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < s->n; i++) {
        if (!p->at[i] || used >= size) continue;
        int more = snprintf(out + used, size - used, "%s%s=%s", n++ ? " " : "",
                            mt_options[s->axis[i].option].key, s->axis[i].value[p->at[i]]);
        used += more > 0 ? (size_t)more : 0;
    }
    return n;
}
