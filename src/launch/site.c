#include "launch/site.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/tree.h"
#include "config/word.h"

static const char *const chains[] = {"none", "self", "dependency", NULL};
const char *mt_chain_name(mt_choice_chain c)
{
    return chains[c];
}

#define LIMIT_INT(interval) .limit = interval
#define LIMIT_FLOAT(interval) .limit = interval
#define LIMIT_TIME(interval) .limit = interval
#define LIMIT_BOOL(none) .limit = NULL
#define LIMIT_STR(none) .limit = NULL
#define LIMIT_PATH(none) .limit = NULL
#define LIMIT_CHOICE(set) .choices = chains
static const mt_option rows[] = {
#define MT_SITE(field_, type_, def_, limit_, doc_) \
    {.key = #field_,                               \
     .def = def_,                                  \
     LIMIT_##type_(limit_),                        \
     .doc = doc_,                                  \
     .type = MT_VALUE_##type_,                     \
     .offset = offsetof(struct mt_site, field_),   \
     .size = sizeof((struct mt_site *)0)->field_},
#include "launch/site.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

static const mt_option *find(const char *key)
{
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].key, key)) return &rows[i];
    return NULL;
}

static mt_status read_node(struct mt_site *s, const char *file, const mt_node *n, mt_err *e)
{
    char why[MT_VALUE_WHY], shown[96];
    const char *names[ROWS];
    const mt_option *o = find(n->key);
    if (!o) {
        for (int i = 0; i < ROWS; i++) names[i] = rows[i].key;
        const char *near = mt_word_nearest(n->key, names, ROWS);
        return mt_tree_fail(e, file, n->key_line, n->key_col, "a site has no '%s'%s%s",
                            mt_word_clean(shown, sizeof shown, n->key), near ? "; did you mean " : "",
                            near ? near : "");
    }
    if (n->kind != MT_NODE_SCALAR || mt_node_is_null(n))
        return mt_tree_fail(e, file, n->line, n->col, "%s must be a value, not %s", o->key,
                            mt_node_what(n, shown, sizeof shown));
    if (!mt_value_set(o, s, n->text, why))
        return mt_tree_fail(e, file, n->line, n->col, "%s: %s", o->key, why);
    return MT_OK;
}

static mt_status read_file(struct mt_site *s, const char *file, mt_err *e)
{
    mt_tree t;
    mt_status st = mt_tree_open(&t, file, e);
    if (st != MT_OK) mt_err_while(e, "reading a site file");
    if (st == MT_OK && (!t.root || t.root->kind != MT_NODE_MAP))
        st = mt_tree_fail(e, file, 1, 1, "a site file is a map of keys and values");
    for (const mt_node *n = st == MT_OK ? t.root->child : NULL; n && st == MT_OK; n = n->next)
        st = read_node(s, file, n, e);
    mt_tree_close(&t);
    return st;
}

bool mt_site_shared(const char *name, char *out, size_t size)
{
    char self[MT_CONFIG_PATH];
    snprintf(out, size, "%s", name);
    if (!access(out, R_OK)) return true;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    for (int i = 0; i < 2; i++) { /* PREFIX/bin/moetitan */
        char *slash = strrchr(self, '/');
        if (!slash) return false;
        *slash = 0;
    }
    int k = snprintf(out, size, "%s/share/moetitan/%s", self, name);
    return k > 0 && (size_t)k < size && !access(out, R_OK);
}

mt_status mt_site_load(struct mt_site *s, const char *name, mt_err *e)
{
    char why[MT_VALUE_WHY], shared[128], shown[64];
    *s = (struct mt_site){.jobs = 1};
    for (int i = 0; i < ROWS; i++) MT_ASSERT(mt_value_set(&rows[i], s, rows[i].def, why));
    if (strchr(name, '/') || strstr(name, ".yaml")) {
        MT_REQUIRE(strlen(name) < sizeof s->file, e, MT_CONFIG, "the path of the site file is too long");
        snprintf(s->file, sizeof s->file, "%s", name);
        return read_file(s, s->file, e);
    }
    mt_word_clean(shown, sizeof shown, name);
    snprintf(shared, sizeof shared, "slurm/sites/%.60s.yaml", name);
    MT_REQUIRE(mt_site_shared(shared, s->file, sizeof s->file), e, MT_CONFIG,
               "there is no site \"%s\": no %s here or in the installation; jupiter and generic come with "
               "moetitan, and the "
               "path of a file of your own will do",
               shown, shared);
    return read_file(s, s->file, e);
}

char **mt_site_words(int *argc, char **argv)
{
    int n = 0;
    size_t bytes = 0;
    for (int i = 0; i < *argc; i++) bytes += strlen(argv[i]) + 1;
    char **word = calloc(1, (2 * (size_t)*argc + 1) * sizeof *word + bytes);
    if (!word) return NULL;
    char *text = (char *)(word + 2 * *argc + 1);
    bool flags = true;
    for (int i = 0; i < *argc; i++) {
        size_t size = strlen(argv[i]) + 1;
        flags = flags && strcmp(argv[i], "--") != 0;
        memcpy(text, argv[i], size);
        char *value = flags && !strncmp(text, "--", 2) ? strchr(text, '=') : NULL;
        word[n++] = text;
        if (value) {
            *value = 0;
            word[n++] = value + 1;
        }
        text += size;
    }
    *argc = n;
    return word;
}

/* "--tasks-per-node" as "tasks_per_node". */
static void key_of(const char *flag, char *key, size_t size)
{
    snprintf(key, size, "%s", flag + 2);
    for (char *p = key; *p; p++)
        if (*p == '-') *p = '_';
}

const char *mt_site_meant(const char *flag, char out[static 96])
{
    char key[64];
    const char *names[ROWS];
    snprintf(out, 96, ";");
    if (strncmp(flag, "--", 2) != 0 || strlen(flag) >= sizeof key) return out;
    key_of(flag, key, sizeof key);
    for (int i = 0; i < ROWS; i++) names[i] = rows[i].key;
    const char *near = mt_word_nearest(key, names, ROWS);
    if (near) snprintf(out, 96, "; did you mean --%s?", near);
    for (char *p = out; *p; p++)
        if (*p == '_') *p = '-';
    return out;
}

mt_status mt_site_flag(struct mt_site *s, const char *flag, const char *value, bool *known, mt_err *e)
{
    char key[64], why[MT_VALUE_WHY];
    *known = false;
    if (strncmp(flag, "--", 2) != 0 || strlen(flag) >= sizeof key) return MT_OK;
    key_of(flag, key, sizeof key);
    const mt_option *o = find(key);
    if (!o) return MT_OK;
    *known = true;
    MT_REQUIRE(value, e, MT_CONFIG, "%s needs a value", flag);
    MT_REQUIRE(mt_value_set(o, s, value, why), e, MT_CONFIG, "%s: %s", flag, why);
    return MT_OK;
}

mt_status mt_site_template(const struct mt_site *s, const char *name, struct mt_text *text, mt_err *e)
{
    enum { MOST = 1 << 18 };
    char path[3 * MT_CONFIG_PATH], shared[MT_CONFIG_PATH + 16];
    const char *slash = strrchr(s->file, '/');
    if (strchr(name, '/'))
        snprintf(path, sizeof path, "%s", name);
    else
        snprintf(path, sizeof path, "%.*s../%s", slash ? (int)(slash - s->file) + 1 : 0, s->file, name);
    snprintf(shared, sizeof shared, "slurm/%s", name);
    if (access(path, R_OK) && !strchr(name, '/')) (void)mt_site_shared(shared, path, sizeof path);
    mt_status st = mt_text_read(text, path, MOST, MT_CONFIG, e);
    if (st != MT_OK) mt_err_while(e, "the template '%s' of %s", name, s->file);
    return st;
}

mt_status mt_site_time(const char *time, char out[static 32], mt_err *e)
{
    static const mt_option row = {
        .key = "time", .limit = "[1s, 365d]", .type = MT_VALUE_TIME, .size = sizeof(double)};
    char why[MT_VALUE_WHY];
    double s = 0;
    if (strspn(time, "0123456789:-") == strlen(time) && strlen(time) < 32) {
        snprintf(out, 32, "%s", time);
        return MT_OK;
    }
    MT_REQUIRE(mt_value_set(&row, &s, time, why), e, MT_CONFIG,
               "--time: %s; or as Slurm writes it, 1-12:00:00", why);
    long long n = (long long)s;
    snprintf(out, 32, "%02lld:%02lld:%02lld", n / 3600, n / 60 % 60, n % 60);
    return MT_OK;
}

void mt_site_usage(FILE *f)
{
    for (int i = 0; i < ROWS; i++) {
        char flag[64];
        snprintf(flag, sizeof flag, "--%s", rows[i].key);
        for (char *p = flag; *p; p++)
            if (*p == '_') *p = '-';
        fprintf(f, "  %-18s %s%s%s%s\n", flag, rows[i].doc, rows[i].def[0] ? " (" : "", rows[i].def,
                rows[i].def[0] ? ")" : "");
    }
}
