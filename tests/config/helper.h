/* helper.h: loads configurations from strings and from files of a temporary folder. */
#ifndef MT_TESTS_CONFIG_HELPER_H
#define MT_TESTS_CONFIG_HELPER_H
#include "config/config.h"

#include "../check.h"

#include <unistd.h>

/* Parses `text` as the file "t.yaml"; returns the message, "" on success. */
static inline const char *parse(mt_config *c, const char *text)
{
    static mt_err e;
    e = (mt_err){0};
    mt_status s = mt_config_parse(c, "t.yaml", text, strlen(text), &e);
    CHECK_INT(s, e.code);
    return e.msg;
}

/* Loads a file (or NULL) with overrides ended by NULL; returns the message. */
static inline const char *load(mt_config *c, const char *path, const char *const *overrides)
{
    static mt_err e;
    int n = 0;
    e = (mt_err){0};
    while (overrides && overrides[n]) n++;
    mt_status s = mt_config_load(c, path, n, (char *const *)overrides, &e);
    CHECK_INT(s, e.code);
    return e.msg;
}
#define OVERRIDE(c, ...) load((c), NULL, (const char *const[]){__VA_ARGS__, NULL})

static inline char *dump(const mt_config *c)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    mt_config_dump(c, f);
    fclose(f);
    return text;
}

/* Makes a new folder for the files of a test and goes there. Returns the folder left, to go back to. */
static inline char *enter_folder(char path[static 256])
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, 256, "%s/moetitan-test-XXXXXX", tmp ? tmp : "/tmp");
    char *left = getcwd(NULL, 0);
    if (!left || !mkdtemp(path) || chdir(path) != 0) {
        perror(path);
        exit(1);
    }
    return left;
}

/* Goes back and removes the folder, which the test has emptied. */
static inline void leave_folder(const char *path, char *left)
{
    CHECK(chdir(left) == 0);
    CHECK(rmdir(path) == 0);
    free(left);
}

static inline void put_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "wb");
    if (!CHECK(f != NULL)) exit(1);
    CHECK(fputs(text, f) >= 0);
    fclose(f);
}
#endif
