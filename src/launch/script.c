#include "launch/script.h"

#include <stdlib.h>
#include <string.h>

#define DIRECTIVE "#SBATCH --"
#define END_OF_VALUES "# ---- end of values"

struct row {
    const char *name, *text;
    bool used;
};
enum {
#define MT_DIRECTIVE(field, option) DIRECTIVE_##field,
#define MT_SCRIPT_VALUE(field)
#include "launch/script.def"
    DIRECTIVES
};
enum {
#define MT_DIRECTIVE(field, option)
#define MT_SCRIPT_VALUE(field) VALUE_##field,
#include "launch/script.def"
    VALUES
};
struct filling {
    struct row directive[DIRECTIVES], value[VALUES];
    FILE *out;
};

static struct filling filling_of(const struct mt_script *s, FILE *out)
{
    return (struct filling){
        .directive =
            {
#define MT_DIRECTIVE(field, option) {option, s->field, false},
#define MT_SCRIPT_VALUE(field)
#include "launch/script.def"
            },
        .value =
            {
#define MT_DIRECTIVE(field, option)
#define MT_SCRIPT_VALUE(field) {#field, s->value.field, false},
#include "launch/script.def"
            },
        .out = out,
    };
}

void mt_script_quote(FILE *f, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
    if (*text && strspn(text, plain) == strlen(text)) {
        fputs(text, f);
        return;
    }
    fputc('\'', f);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", f);
        else
            fputc(*text, f);
    fputc('\'', f);
}

/* The row of which `text` is "name=...", of those that have something to say. */
static struct row *row_of(struct row *rows, int n, const char *text, size_t size)
{
    for (int i = 0; i < n; i++) {
        size_t k = strlen(rows[i].name);
        if (rows[i].text && k < size && !strncmp(text, rows[i].name, k) && text[k] == '=') return &rows[i];
    }
    return NULL;
}

/* Slurm takes a directive's value in double quotes, in which only those and backslashes mean something: mt_script_render refuses them. */
static void print_directive(FILE *f, const struct row *r)
{
    const char *quote = strpbrk(r->text, " \t#'") ? "\"" : "";
    fprintf(f, DIRECTIVE "%s=%s%s%s\n", r->name, quote, r->text, quote);
}
static void print_other_directives(struct filling *x)
{
    for (int i = 0; i < DIRECTIVES; i++) {
        struct row *r = &x->directive[i];
        if (!r->text || r->used) continue;
        print_directive(x->out, r);
        r->used = true;
    }
}

/* One line, without its break. Directives end where commands begin, and values where the template says. */
static void fill_line(struct filling *x, const char *line, size_t n, bool in_values)
{
    struct row *r = NULL;
    if (n > sizeof DIRECTIVE - 1 && !strncmp(line, DIRECTIVE, sizeof DIRECTIVE - 1)) {
        r = row_of(x->directive, DIRECTIVES, line + sizeof DIRECTIVE - 1, n - (sizeof DIRECTIVE - 1));
        if (r && !r->used) print_directive(x->out, r);
    } else if (in_values) {
        r = row_of(x->value, VALUES, line, n);
        if (r && !r->used) fprintf(x->out, "%s=%s\n", r->name, r->text);
    }
    if (r)
        r->used = true;
    else
        fprintf(x->out, "%.*s\n", (int)n, line);
}

static mt_status fill(struct filling *x, const char *name, const char *template, mt_err *e)
{
    bool in_head = true, in_values = true;
    for (const char *p = template, *end; *p; p = *end ? end + 1 : end) {
        end = strchrnul(p, '\n');
        size_t n = (size_t)(end - p);
        if (in_head && (n == 0 || *p != '#')) {
            print_other_directives(x);
            in_head = false;
        }
        if (!strncmp(p, END_OF_VALUES, sizeof END_OF_VALUES - 1)) in_values = false;
        fill_line(x, p, n, in_values);
    }
    if (in_head) print_other_directives(x);
    MT_REQUIRE(!in_values, e, MT_CONFIG, "the template '%s' has no line \"" END_OF_VALUES "\"", name);
    for (int i = 0; i < VALUES; i++)
        MT_REQUIRE(!x->value[i].text || x->value[i].used, e, MT_CONFIG,
                   "the template '%s' has no line \"%s=...\" among its values", name, x->value[i].name);
    return MT_OK;
}

mt_status mt_script_render(const struct mt_script *s, const char *name, const char *template, char **text,
                           mt_err *e)
{
    size_t bytes = 0;
    *text = NULL;
    MT_REQUIRE(!strncmp(template, "#!", 2), e, MT_CONFIG, "the template '%s' does not begin with #!", name);
    struct filling x = filling_of(s, NULL);
    for (int i = 0; i < DIRECTIVES; i++)
        MT_REQUIRE(!x.directive[i].text || !strpbrk(x.directive[i].text, "\"\\\n"), e, MT_CONFIG,
                   "--%s is '%.80s': sbatch takes no value with double quotes, backslashes or line breaks",
                   x.directive[i].name, x.directive[i].text);
    FILE *f = x.out = open_memstream(text, &bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for a batch script");
    mt_status st = fill(&x, name, template, e);
    if (fclose(f) && st == MT_OK) st = mt_err_set(e, MT_IO, "no memory for a batch script");
    if (st == MT_OK) return st;
    free(*text);
    *text = NULL;
    return st;
}
