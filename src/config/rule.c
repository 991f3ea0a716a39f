#include "config/rule.h"

#include "config/table.h"
#include "config/word.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

static void follow(mt_config *c, int64_t *member, mt_option_id id, int64_t value)
{
    if (*member != 0) return;
    *member = value;
    c->origin[id].from = MT_FROM_OTHER;
}

void mt_config_resolve(mt_config *c)
{
    follow(c, &c->model_v_head_dim, MT_OPTION_model_v_head_dim, c->model_head_dim);
    follow(c, &c->model_rotary_dims, MT_OPTION_model_rotary_dims, c->model_head_dim);
    if (c->model_experts == 0) follow(c, &c->model_first_dense, MT_OPTION_model_first_dense, c->model_layers);
}

/* The place of the blamed option stands in front: its line where a file has set it. */
static MT_PRINTF(4, 5) mt_status broken(const mt_config *c, mt_option_id who, mt_err *e, const char *fmt, ...)
{
    char text[512], shown[160];
    const mt_origin *o = &c->origin[who];
    const char *key = mt_options[who].key;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    switch (o->from) {
    case MT_FROM_FILE:
        mt_word_clean(shown, sizeof shown, c->files[o->file]);
        MT_FAIL(e, MT_CONFIG, "%s:%d:%d: %s: %s", shown, o->line, o->col, key, text);
    case MT_FROM_COMMAND: MT_FAIL(e, MT_CONFIG, "command line: %s: %s", key, text);
    case MT_FROM_OTHER: MT_FAIL(e, MT_CONFIG, "%s (from another option): %s", key, text);
    case MT_FROM_DEFAULT: break;
    }
    MT_FAIL(e, MT_CONFIG, "%s (default): %s", key, text);
}

#define CHECK_RULE(who, condition, ...) \
    if (!(condition)) return broken(c, MT_OPTION_##who, e, __VA_ARGS__);
#define SKIP_RULE(who, condition, ...)

mt_status mt_config_check(const mt_config *c, mt_err *e)
{
#define MT_RULE CHECK_RULE
#define MT_RULE_WORLD SKIP_RULE
#include "config/rule.def"
    return MT_OK;
}

mt_status mt_config_check_world(const mt_config *c, int64_t world, mt_err *e)
{
    MT_ASSERT(world >= 1);
#define MT_RULE SKIP_RULE
#define MT_RULE_WORLD CHECK_RULE
#include "config/rule.def"
    return MT_OK;
}
